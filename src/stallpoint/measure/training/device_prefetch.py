"""Mini-batches copied to the device ahead of the iteration that needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from stallpoint.measure.device import has_streams, in_stream, thread_for
from stallpoint.measure.training.pipeline import MiniBatch

NextBatch = Callable[[], MiniBatch]


class DevicePrefetch:
    """Keeps one mini-batch of `source` ahead in the memory of `device`.

    A thread waits for the mini-batch and copies it through pinned memory, in a stream of its own where the device has
    streams, while the device computes. The iteration that takes it waits only if the copy has not ended.
    """

    def __init__(self, source: NextBatch, device: torch.device) -> None:
        self._source, self._device = source, device
        self._stream = torch.Stream(device) if has_streams(device) else None
        self._thread = thread_for(device, "device-prefetch")
        self._ahead = self._thread.submit(self._copy)

    def next_batch(self) -> MiniBatch:
        """Return the next mini-batch, on the device; raises what went wrong when it was read."""
        batch = self._ahead.result()
        self._ahead = self._thread.submit(self._copy)
        return batch

    def close(self) -> None:
        """Stop, after the pending mini-batch."""
        self._ahead.cancel()
        self._thread.shutdown()

    def _copy(self) -> MiniBatch:
        batch = self._source()
        with in_stream(self._stream):
            inputs, labels = (self._on_device(tensor) for tensor in (batch.inputs, batch.labels))
        if self._stream:
            self._stream.synchronize()  # also frees the source's buffer for the next mini-batch
        return replace(batch, inputs=inputs, labels=labels)

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._stream is None:
            return tensor.clone()
        return tensor.pin_memory().to(self._device, non_blocking=True)
