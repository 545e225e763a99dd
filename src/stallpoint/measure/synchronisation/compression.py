"""Compression of gradients (Keuper & Pfreundt 2016, section II-A).

An all-reduce adds values on their way, which is impossible with encoded values. There are two ways instead:

- fewer bits for each value: an all-to-all gives each rank one part of all ranks' encoded gradients. The rank adds them
in single precision, and an all-gather sends the encoded sum to all ranks. As many values are sent as by an all-reduce.
- only the largest values: an all-gather sends positions (32 bits) and encoded values to all ranks, which add them up.
A rank adds the values that it did not send, and errors of encoding, to its next gradients (error feedback).

All ranks decode the same bytes in the same order, so that their weights stay equal.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from typing_extensions import override

from stallpoint.measure.synchronisation.communicator import Communicator
from stallpoint.strategies.presets import Preset


class Codec(ABC):
    """Encoding of single-precision values as bytes; sizes are multiples of 4 bytes."""

    @abstractmethod
    def size(self, values: int) -> int:
        """Return the bytes of `values` encoded values."""

    @abstractmethod
    def encode(self, values: torch.Tensor, out: torch.Tensor) -> None:
        """Encode values [n] into `out`, bytes [size(n)]."""

    @abstractmethod
    def decode(self, data: torch.Tensor, values: int) -> torch.Tensor:
        """Decode bytes [size(n)] to values [n]."""


class Float(Codec):
    """Encoding of values as numbers of type `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    @override
    def size(self, values: int) -> int:
        """Return the bytes of `values` encoded values."""
        return _padded(values * self._dtype.itemsize)

    @override
    def encode(self, values: torch.Tensor, out: torch.Tensor) -> None:
        """Encode by rounding each value to the nearest number of the type."""
        out.view(self._dtype)[: len(values)].copy_(values)

    @override
    def decode(self, data: torch.Tensor, values: int) -> torch.Tensor:
        return data.view(self._dtype)[:values].float()


class Scaled(Codec):
    """Encoding as 8-bit integers and a scale. The largest magnitude becomes 127; errors are at most half the scale."""

    @override
    def size(self, values: int) -> int:
        """Return the bytes of `values` encoded values: 4 for the scale, then one for each value."""
        return 4 + _padded(values)

    @override
    def encode(self, values: torch.Tensor, out: torch.Tensor) -> None:
        """Encode the scale, then each value divided by it and rounded to the nearest integer."""
        scale = out[:4].view(torch.float32)
        scale.copy_(values.abs().max() / 127 if len(values) else torch.zeros(1))
        scale.clamp_(min=torch.finfo(torch.float32).tiny)  # a denormal scale would have too few digits
        out[4:].view(torch.int8)[: len(values)].copy_((values / scale).round_())

    @override
    def decode(self, data: torch.Tensor, values: int) -> torch.Tensor:
        return data[4:].view(torch.int8)[:values] * data[:4].view(torch.float32)


CODECS: dict[int, Codec] = {32: Float(torch.float32), 16: Float(torch.float16), 8: Scaled()}
"""Codecs by bits for each value."""


class FewerBits:
    """Reducer that sends every value in fewer bits."""

    def __init__(self, communicator: Communicator, codec: Codec) -> None:
        self._communicator, self._codec = communicator, codec

    def sum(self, values: torch.Tensor, offset: int) -> int:
        """Sum over all ranks, in place; return the bytes that this rank sent."""
        ranks, size = self._communicator.ranks, math.ceil(len(values) / self._communicator.ranks)
        outgoing = torch.zeros(ranks, self._codec.size(size), dtype=torch.uint8, device=values.device)
        parts = [values[rank * size : (rank + 1) * size] for rank in range(ranks)]  # the last parts may be shorter
        for part, row in zip(parts, outgoing, strict=True):
            self._codec.encode(part, row)
        received = torch.empty_like(outgoing)
        count = self._communicator.all_to_all(received, outgoing)
        total = torch.stack([self._codec.decode(row, size) for row in received]).sum(0)
        encoded = torch.zeros_like(outgoing[0])
        self._codec.encode(total, encoded)
        count += self._communicator.all_gather(received, encoded)
        for part, row in zip(parts, received, strict=True):
            part.copy_(self._codec.decode(row, size)[: len(part)])
        return count


class Largest:
    """Reducer that sends the share `top_k` of a message's values with the largest magnitude, with error feedback.

    With `momentum` a rank adds up gradients with momentum, and clears sum and momentum of each value that it sends (Lin
    et al. 2018, Deep Gradient Compression, algorithm 4). The recipe's optimiser applies the same momentum m again. So
    in step t it gets S(t) - m S(t - 1), where S is the sum over ranks: its update is then S(t).
    """

    def __init__(
        self,
        communicator: Communicator,
        codec: Codec,
        top_k: float,
        values: int,
        device: torch.device,
        momentum: float = 0.0,
        warmup: int = 0,
    ) -> None:
        self._communicator, self._codec, self._share = communicator, codec, top_k
        self._momentum, self._warmup = momentum, warmup
        self._steps: dict[int, int] = {}
        """Last step in which each message was summed, from 0, by the offset of the message."""
        self.residuals = torch.zeros(values, device=device)
        self._velocities, self._before = (torch.zeros(values if momentum else 0, device=device) for _ in range(2))

    def share(self, step: int) -> float:
        """Return the share of the values that is sent in a `step`; steps are counted from 0."""
        return float(self._share ** min(1.0, (step + 1) / (self._warmup + 1)))

    def sum(self, values: torch.Tensor, offset: int) -> int:
        """Sum over all ranks, in place; return the bytes that this rank sent."""
        step = self._steps[offset] = self._steps.get(offset, -1) + 1
        count = max(1, round(len(values) * self.share(step)))
        part = slice(offset, offset + len(values))
        residual = self.residuals[part]
        if self._momentum:
            residual += self._velocities[part].mul_(self._momentum).add_(values)
        else:
            residual += values
        chosen = residual.abs().topk(count, sorted=False).indices
        outgoing = torch.zeros(4 * count + self._codec.size(count), dtype=torch.uint8, device=values.device)
        outgoing[: 4 * count].view(torch.int32).copy_(chosen)
        self._codec.encode(residual[chosen], outgoing[4 * count :])
        residual[chosen] -= self._codec.decode(outgoing[4 * count :], count)
        received = torch.empty(self._communicator.ranks, len(outgoing), dtype=torch.uint8, device=values.device)
        size = self._communicator.all_gather(received, outgoing)
        values.zero_()
        for row in received:
            positions = row[: 4 * count].view(torch.int32)
            values.index_add_(0, positions, self._codec.decode(row[4 * count :], count))
        if self._momentum:
            self._velocities[part][chosen] = 0
            total = values.clone()
            values.sub_(self._before[part], alpha=self._momentum)
            self._before[part] = total
        return size


class Uncompressed:
    """Reducer by all-reduce in single precision."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator

    def sum(self, values: torch.Tensor, offset: int) -> int:
        """Sum over all ranks, in place; return the bytes that this rank sent."""
        return self._communicator.all_reduce(values)


Reducer = Uncompressed | FewerBits | Largest


def reducer(preset: Preset, communicator: Communicator, values: int, device: torch.device) -> Reducer:
    """Return the reducer of `preset` for a network with `values` gradient values."""
    if preset.lossless:
        return Uncompressed(communicator)
    codec = CODECS[preset.gradient_bits]
    if preset.top_k < 1:
        correction, warmup = preset.momentum_correction, preset.sparse_warmup
        return Largest(communicator, codec, preset.top_k, values, device, correction, warmup)
    return FewerBits(communicator, codec)


def _padded(size: int) -> int:
    return -(-size // 4) * 4
