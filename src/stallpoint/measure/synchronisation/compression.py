"""Gradients made smaller before they are sent (Keuper & Pfreundt 2016, section II-A).

An all-reduce adds on the way, which encoded values do not allow. So what is sent is:

- fewer bits: each rank gets one part of all ranks' encoded gradients (all-to-all), adds them in single precision,
  and sends the encoded sum to all (all-gather): as many values as an all-reduce moves, in fewer bytes;
- the largest values: every rank's positions (32 bits) and encoded values go to all (all-gather), which add them up.
  What a rank leaves out, or loses by encoding, it adds to its gradients of the next iteration (error feedback).

All ranks decode the same bytes in the same order, so that their weights stay equal.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch

from stallpoint.measure.synchronisation.communicator import Communicator
from stallpoint.strategies.presets import Preset


class Codec(ABC):
    """Single-precision values to bytes and back; sizes are multiples of 4 bytes."""

    @abstractmethod
    def size(self, values: int) -> int:
        """Bytes for so many values."""

    @abstractmethod
    def encode(self, values: torch.Tensor, out: torch.Tensor) -> None:
        """Values [n] to `out`, bytes [size(n)]."""

    @abstractmethod
    def decode(self, data: torch.Tensor, values: int) -> torch.Tensor:
        """Bytes [size(n)] to values [n]."""


class Float(Codec):
    """Values as numbers of `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def size(self, values: int) -> int:
        """Bytes for so many values."""
        return _padded(values * self._dtype.itemsize)

    def encode(self, values: torch.Tensor, out: torch.Tensor) -> None:
        """Rounded to the nearest."""
        out.view(self._dtype)[: len(values)].copy_(values)

    def decode(self, data: torch.Tensor, values: int) -> torch.Tensor:
        """Exact."""
        return data.view(self._dtype)[:values].float()


class Scaled(Codec):
    """8-bit integers times a scale, by which the largest magnitude is 127: an error of half the scale at most."""

    def size(self, values: int) -> int:
        """Bytes for so many values: 4 for the scale, then one for each."""
        return 4 + _padded(values)

    def encode(self, values: torch.Tensor, out: torch.Tensor) -> None:
        """Rounded to the nearest."""
        scale = out[:4].view(torch.float32)
        scale.copy_(values.abs().max() / 127 if len(values) else torch.zeros(1))
        scale.clamp_(min=torch.finfo(torch.float32).tiny)  # below it numbers lose their digits
        out[4:].view(torch.int8)[: len(values)].copy_((values / scale).round_())

    def decode(self, data: torch.Tensor, values: int) -> torch.Tensor:
        """Exact."""
        return data[4:].view(torch.int8)[:values] * data[:4].view(torch.float32)


CODECS: dict[int, Codec] = {32: Float(torch.float32), 16: Float(torch.float16), 8: Scaled()}
"""By bits for each value."""


class FewerBits:
    """Every value, encoded."""

    def __init__(self, communicator: Communicator, codec: Codec) -> None:
        self._communicator, self._codec = communicator, codec

    def sum(self, values: torch.Tensor, place: int) -> int:
        """Sum over all ranks, in place; bytes this rank put into messages."""
        ranks, size = self._communicator.ranks, math.ceil(len(values) / self._communicator.ranks)
        sent = torch.zeros(ranks, self._codec.size(size), dtype=torch.uint8, device=values.device)
        parts = [values[rank * size : (rank + 1) * size] for rank in range(ranks)]  # the last ones may be shorter
        for part, row in zip(parts, sent, strict=True):
            self._codec.encode(part, row)
        received = torch.empty_like(sent)
        count = self._communicator.all_to_all(received, sent)
        total = torch.stack([self._codec.decode(row, size) for row in received]).sum(0)
        own = torch.zeros_like(sent[0])
        self._codec.encode(total, own)
        count += self._communicator.all_gather(received, own)
        for part, row in zip(parts, received, strict=True):
            part.copy_(self._codec.decode(row, size)[: len(part)])
        return count


class Largest:
    """The share `top_k` of a message's values, those of the largest magnitude, encoded; with error feedback."""

    def __init__(
        self, communicator: Communicator, codec: Codec, top_k: float, values: int, device: torch.device
    ) -> None:
        self._communicator, self._codec, self._share = communicator, codec, top_k
        self.residuals = torch.zeros(values, device=device)

    def sum(self, values: torch.Tensor, place: int) -> int:
        """Sum over all ranks, in place; bytes this rank put into messages."""
        count = max(1, round(len(values) * self._share))
        residual = self.residuals[place : place + len(values)]
        residual += values
        chosen = residual.abs().topk(count, sorted=False).indices
        sent = torch.zeros(4 * count + self._codec.size(count), dtype=torch.uint8, device=values.device)
        sent[: 4 * count].view(torch.int32).copy_(chosen)
        self._codec.encode(residual[chosen], sent[4 * count :])
        residual[chosen] -= self._codec.decode(sent[4 * count :], count)
        received = torch.empty(self._communicator.ranks, len(sent), dtype=torch.uint8, device=values.device)
        size = self._communicator.all_gather(received, sent)
        values.zero_()
        for row in received:
            places = row[: 4 * count].view(torch.int32)
            values.index_add_(0, places, self._codec.decode(row[4 * count :], count))
        return size


class Whole:
    """Every value in single precision, by all-reduce."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator

    def sum(self, values: torch.Tensor, place: int) -> int:
        """Sum over all ranks, in place; bytes this rank put into messages."""
        return self._communicator.all_reduce(values)


Reducer = Whole | FewerBits | Largest


def reducer(preset: Preset, communicator: Communicator, values: int, device: torch.device) -> Reducer:
    """How `preset` sums a network's gradients, so many `values` in all."""
    if preset.lossless:
        return Whole(communicator)
    codec = CODECS[preset.gradient_bits]
    if preset.top_k < 1:
        return Largest(communicator, codec, preset.top_k, values, device)
    return FewerBits(communicator, codec)


def _padded(size: int) -> int:
    return -(-size // 4) * 4
