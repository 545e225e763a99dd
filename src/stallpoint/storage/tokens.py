"""Format ``tokens``: a text as numbers, cut into sequences of equal length, in one array file.

The file ``tokens.npy`` is an array [samples, length + 1] of uint16, or uint32 for larger vocabularies. Each token is
the label of the token before it, so the last token is only a label. Networks may use only each sequence's beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.networks.inputs import Inputs, Tokens
from stallpoint.storage.arrays import array, new_array, write_rows
from stallpoint.storage.samples import IndexEntry, Made, SampleSet, SampleShape
from stallpoint.storage.synthetic import synthetic_sequences

TOKENS_FILE = "tokens.npy"


@dataclass(frozen=True)
class Sequences(SampleShape):
    """Shape of a text's sequences; the defaults are those of GPT-2."""

    sequence_length: int = 1024
    """Number of tokens of a sequence that have a label."""
    vocabulary: int = 50257
    """Number of different tokens."""

    @override
    def __str__(self) -> str:
        return f"sequences of {self.sequence_length} tokens out of {self.vocabulary}"

    @property
    def dtype(self) -> type[np.uint16 | np.uint32]:
        """Return the smallest integer type that holds all tokens."""
        return np.uint16 if self.vocabulary <= 2**16 else np.uint32

    @override
    def suits(self, takes: Inputs) -> bool:
        """Return whether the sequences are long enough for the network, and all their tokens are in its vocabulary."""
        return (
            isinstance(takes, Tokens) and self.sequence_length >= takes.length and self.vocabulary <= takes.vocabulary
        )


class TokenSequences(SampleSet):
    """Sequences of tokens in one array file."""

    kind = "tokens"
    shape = Sequences
    layout = f"{TOKENS_FILE}, uint16 or uint32 [samples, length + 1]"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        tokens = array(path / TOKENS_FILE) if self.samples else np.empty((0, 1), np.uint16)
        self._dtype = tokens.dtype
        self.length = tokens.shape[1] - 1
        """Tokens of a sequence that have a label."""

    @classmethod
    @override
    def scan(cls, path: Path) -> Iterator[IndexEntry]:
        """Yield the sequences of the array, one after another."""
        if not (path / TOKENS_FILE).exists():
            return
        tokens = array(path / TOKENS_FILE)
        if tokens.dtype not in (np.uint16, np.uint32) or tokens.ndim != 2 or tokens.shape[1] < 2:
            raise InputError(f"{path}: not a storage of tokens; expected {cls.layout}")
        size = tokens.shape[1] * tokens.itemsize
        for number in range(len(tokens)):
            yield IndexEntry(TOKENS_FILE, tokens.offset + number * size, size, 0)

    def decode(self, data: bytes, length: int, vocabulary: int) -> npt.NDArray[np.unsignedinteger]:
        """Return the first `length` + 1 tokens of a sequence; raise `InputError` if some are missing or invalid."""
        if length > self.length:
            raise InputError(f"{self.path}: sequences of {self.length} tokens are too short for inputs of {length}")
        tokens: npt.NDArray[np.unsignedinteger] = np.frombuffer(data, self._dtype)[: length + 1]
        if (largest := int(tokens.max())) >= vocabulary:
            raise InputError(f"{self.path}: holds token {largest}, but the vocabulary has {vocabulary} (from 0)")
        return tokens

    @override
    def check(self, index: int, data: bytes) -> None:
        """Do nothing, because every number may be a token."""

    @override
    def facts(self) -> dict[str, int]:
        return {"sequence_length": self.length}

    @classmethod
    @override
    def synthetic(cls, samples: int, seed: int, shape: SampleShape | None) -> Iterator[Made]:
        """Yield sequences of a text with word-like token frequencies."""
        assert isinstance(shape, Sequences)
        for sequence in synthetic_sequences(samples, seed, shape.sequence_length, shape.vocabulary):
            yield sequence.astype(shape.dtype).tobytes(), 0

    @classmethod
    @override
    def begin(cls, path: Path, samples: int, shape: SampleShape | None) -> None:
        """Create an array file of its final size."""
        assert isinstance(shape, Sequences)
        path.mkdir(parents=True)
        new_array(path / TOKENS_FILE, shape.dtype, (samples, shape.sequence_length + 1))

    @classmethod
    @override
    def write_part(cls, path: Path, first: int, part: Sequence[Made]) -> None:
        write_rows(path / TOKENS_FILE, first, [data for data, _ in part])
