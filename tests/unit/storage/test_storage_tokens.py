"""Storages of tokens: what is generated, how it is read, and what is said of wrong ones."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from stallpoint.errors import InputError
from stallpoint.measure.training.input_pipeline import InputPipeline
from stallpoint.networks.inputs import Images, Tokens
from stallpoint.storage import Storage
from stallpoint.storage.generate import prepare
from stallpoint.storage.synthetic import synthetic_sequences
from stallpoint.storage.tokens import Sequences, TokenSequences

SHAPE = Sequences(sequence_length=10, vocabulary=40)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    generated = Storage("text", tmp_path / "text", "tokens")
    prepare(generated, generate=12, seed=3, shape=SHAPE)
    return generated


def pipeline(storage: Storage, takes: Tokens | Images, prefetch: int = 0) -> InputPipeline:
    return InputPipeline(storage, takes=takes, batch=4, rank=0, ranks=1, prefetch=prefetch, readers=2, seed=5)


def read_all(storage: Storage, takes: Tokens | Images) -> None:
    with pipeline(storage, takes) as batches:
        for _ in range(3):
            batches.next_batch()


def test_a_sample_is_a_sequence_of_16_bit_tokens(storage: Storage) -> None:
    manifest = prepare(storage, generate=12, seed=3, shape=SHAPE)
    assert (manifest["samples"], manifest["sequence_length"], manifest["files"]) == (12, 10, 1)
    assert manifest["bytes"] == 12 * manifest["median_bytes"] == 12 * 2 * (10 + 1)
    text = storage.open()
    expected = list(synthetic_sequences(12, 3, SHAPE.sequence_length, SHAPE.vocabulary))
    for index in range(12):
        assert np.frombuffer(text.read(index), np.uint16).tolist() == expected[index].tolist()
    text.close()


def test_the_generated_text_is_one_text_and_as_frequent_as_words_are() -> None:
    sequences = list(synthetic_sequences(200, 1, 1000, 5000))
    assert all(one[-1] == next_one[0] for one, next_one in pairwise(sequences))
    counts = np.bincount(np.concatenate([sequence[1:] for sequence in sequences]), minlength=5000)
    shares = counts / counts.sum()
    law = 1 / (np.arange(5000) + 3.7)
    assert shares[:20] == pytest.approx(law[:20] / law.sum(), rel=0.1)
    assert shares[:100].sum() > 0.4, "a hundred words make up much of any text"


def test_another_shape_replaces_the_generated_text_and_the_same_leaves_it(storage: Storage) -> None:
    file = storage.path / "tokens.npy"
    written = file.stat().st_mtime_ns
    prepare(storage, generate=12, seed=3, shape=SHAPE)
    assert file.stat().st_mtime_ns == written
    assert prepare(storage, generate=12, seed=3, shape=Sequences(20, 40))["sequence_length"] == 20


def test_large_vocabularies_take_32_bits(tmp_path: Path) -> None:
    storage = Storage("text", tmp_path / "text", "tokens")
    assert prepare(storage, generate=2, seed=3, shape=Sequences(10, 70_000))["median_bytes"] == 4 * 11


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("length", [10, 7])
def test_the_label_of_each_token_is_the_one_that_follows(storage: Storage, length: int, prefetch: int) -> None:
    known = {
        tuple(sequence[: length + 1].tolist())
        for sequence in synthetic_sequences(12, 3, SHAPE.sequence_length, SHAPE.vocabulary)
    }
    read = set()
    with pipeline(storage, Tokens(length, 40), prefetch) as batches:
        for _ in range(3):
            batch = batches.next_batch()
            assert batch.inputs.shape == batch.labels.shape == (4, length)
            assert batch.inputs.dtype == batch.labels.dtype == torch.int64
            assert torch.equal(batch.inputs[:, 1:], batch.labels[:, :-1])
            read |= {
                (*inputs, labels[-1])
                for inputs, labels in zip(batch.inputs.tolist(), batch.labels.tolist(), strict=True)
            }
            assert batch.read > 0
            assert batch.decode > 0
    assert read == known


def test_a_network_gets_only_what_it_takes(storage: Storage, tmp_path: Path) -> None:
    for takes, message in (
        (Tokens(11, 40), "sequences of 10 tokens are too short for inputs of 11"),
        (Tokens(10, 4), r"holds token \d+, but the vocabulary has 4"),
        (Images(32), "holds tokens, but the network takes images of 32x32 pixels"),
    ):
        with pytest.raises(InputError, match=message):
            read_all(storage, takes)
    suiting = {takes for takes in (Tokens(10, 40), Tokens(11, 40), Tokens(10, 39), Images(32)) if SHAPE.suits(takes)}
    assert suiting == {Tokens(10, 40)}


@pytest.mark.parametrize(
    "array", [np.zeros((3, 5), np.int64), np.zeros(15, np.uint16), np.zeros((3, 1), np.uint16)], ids=str
)
def test_another_array_is_refused_with_what_is_expected(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "tokens.npy", array)
    with pytest.raises(InputError, match=r"expected tokens.npy, uint16 or uint32 \[samples, length \+ 1\]"):
        TokenSequences(tmp_path)


def test_a_users_text_is_read_as_it_is(tmp_path: Path) -> None:
    np.save(tmp_path / "tokens.npy", np.arange(12, dtype=np.uint16).reshape(3, 4))
    manifest = prepare(Storage("mine", tmp_path, "tokens"), generate=None, seed=0)
    assert (manifest["samples"], manifest["generated"]) == (3, None)
    text = TokenSequences(tmp_path)
    assert text.decode(text.read(1), 3, 50).tolist() == [4, 5, 6, 7]
