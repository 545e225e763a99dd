"""The probe that a script puts around its training loop."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from stallpoint.errors import InputError
from stallpoint.measure.clock import Mark, clock_for, host_mark, union_length
from stallpoint.measure.machine.peak_memory import status_bytes
from stallpoint.measure.machine.sensors import Sensors, between, shared, temperature
from stallpoint.measure.probe import probe_files
from stallpoint.measure.probe.parallelism import parallelism_of
from stallpoint.measure.probe.planting import PLANT, PlantedPhases
from stallpoint.measure.probe.probe_phases import (
    BACKWARD,
    BETWEEN,
    DATA,
    EXPOSED,
    FORWARD,
    UPDATE,
    ProbedPhases,
    samples_in,
    watched,
)
from stallpoint.measure.probe.probe_words import summary
from stallpoint.measure.probe.ranks import backend, checksum, collectives, rank_and_size
from stallpoint.measure.training.layer_timing import LayerTimer, LayerTimes
from stallpoint.measure.training.transfers import Gathered, Transfer
from stallpoint.networks.layers import Layer, layers
from stallpoint.records.tables import PEAK_MEMORY, PROBES
from stallpoint.text import for_terminal

MAX_ITERATIONS = "STALLPOINT_PROBE_ITERATIONS"
"""Environment variable with the number of iterations after which the script is ended on all ranks."""
BOX = "STALLPOINT_PROBE_BOX"
"""Environment variable that suppresses the summary of rank 0 if it is 0."""
WARMUP = 1
"""Iterations marked as warm-up outside of a study: at first, buckets are rebuilt and memory is allocated."""
ITERATIONS_AT_ONCE, SECONDS_AT_ONCE, PART_AT_ONCE = 1000, 10.0, 0.01
"""Iterations, or seconds, after which records are written to disk, which takes tens of ms; in a long run the seconds
are this fraction of its duration, so that there are few files."""
SENSE_EACH = 0.05
"""Shortest time between two readings of the sensors, s; in a study they are read after each iteration."""
LAYERS_FIRST = 20
"""Number of first iterations whose layers are all timed. Later, timing the layers of each short iteration would cost
more than 1 %; in a study the layers of all iterations are timed."""
LAYERS_EACH = 7
"""Interval of later iterations whose layers are timed: a prime, unlike periods with which scripts log or validate."""
LONG = 0.1
"""Time of an iteration from which the layers of the next iteration are timed in any case, s."""
COMPLETE = "complete"
MAX_UPDATES = 100
"""Updates of optimizers before the first call of `step`, at which the loop has probably forgotten to call it."""


class _LayersOfIteration(NamedTuple):
    times: LayerTimes
    transfers: Mapping[int, Transfer]
    gathered: Mapping[int, Sequence[Gathered]]


class _Iteration(NamedTuple):
    columns: Mapping[str, Any]
    layers: _LayersOfIteration | None


class Probe:
    """Recorder of a training loop's iterations: phases, layers, collectives, memory and disturbances.

    Use it as ``with stallpoint.probe(model, optimizer) as probe:`` around the loop, with ``probe.step()`` at the end of
    each iteration. `model` is the module that the loop calls, after any wrapping by DistributedDataParallel or sharding
    by ``fully_shard``. Waiting for a collective of torch.distributed counts as communication, wherever the script
    waits. An iteration in which the model was called without gradients (an evaluation) is marked like warm-up. Records
    go to `folder`, else to the folder in ``STALLPOINT_PROBE``, else to ``probe-records``; every rank writes its own
    files (`probe_files`). Without `layers`, no layer is timed. The state of `optimizer` counts as memory. On a GPU,
    `step` waits for the device.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        *,
        folder: str | Path | None = None,
        layers: bool = True,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"stallpoint.probe: a torch.nn.Module is expected, not {type(model).__name__}")
        self._model, self._optimizer = model, optimizer
        self._folder = Path(folder or os.environ.get(probe_files.FOLDER) or probe_files.DEFAULT)
        self._max_iterations = _max_iterations()
        self._device = next((weights.device for weights in model.parameters()), torch.device("cpu"))
        self._clock = clock_for(self._device)
        self._unseen: list[str] = []
        self._layers = self._layers_of_model() if layers else []
        self._done = 0

    def __enter__(self) -> Self:
        rank, self._ranks = rank_and_size()
        self._recording = probe_files.Recording.begin(self._folder, rank)
        with ExitStack() as undo:
            self._last_ready: Mark = None
            self._timer = LayerTimer(self._layers, self._clock, self._ready)
            undo.callback(self._timer.remove)
            self._parallelism = parallelism_of(self._model, self._layers, self._clock.mark, self._ranks, self._waiting)
            undo.callback(self._parallelism.close)
            self._memory = LoopMemory(self._model, self._optimizer, self._device)
            for hook in (
                self._model.register_forward_pre_hook(lambda *_: self.called()),
                self._model.register_forward_hook(self._returned),
                *self._hooks_of_buffers(),
            ):
                undo.callback(hook.remove)
            undo.callback(register_optimizer_step_post_hook(self._updated).remove)
            undo.enter_context(watched(self._batch, self._backward, self._collective, self._optimizer))
            self._sensors = undo.enter_context(Sensors(gpu=self._device.index))
            self._thread = threading.get_ident()
            plants = os.environ.get(PLANT, "")
            self._phases = PlantedPhases(plants, rank) if plants else ProbedPhases()
            self._loaded = self._forwards = False
            self._depth, self._waits, self._bookkeeping, self._updates = 0, 0, 0.0, 0
            self._given = 0
            self._first, self._written = host_mark(), time.monotonic()
            self._first_collectives = self._collectives = collectives()
            self._samples = [self._sensors.sample()]
            self._sensed = host_mark()
            self._shared_times: list[list[float]] = []
            self._unsensed_times: list[float] = []
            self._pending: list[_Iteration] = []
            self._cpu_times = self._first_cpu_times = 0.0, 0.0
            self._describe(ended="")
            self._begin()
            self._undo = undo.pop_all()
        return self

    def step(self) -> None:
        """End an iteration and begin the next; end the script once the wanted number of iterations is recorded."""
        if self.stepped():
            raise SystemExit(0)

    def stepped(self) -> bool:
        """End an iteration and begin the next; return whether the wanted number of iterations is recorded."""
        end = self._clock.mark()
        self._clock.wait()
        begin = time.perf_counter()
        self._keep(end)
        self._done += 1
        is_last = self._done == self._max_iterations
        age = time.monotonic() - self._written
        if (
            is_last
            or len(self._pending) >= ITERATIONS_AT_ONCE
            or age > max(SECONDS_AT_ONCE, PART_AT_ONCE * self._start)
        ):
            self.write()
            self._samples = [self._sensors.sample()]  # the next reading of the sensors must leave out the writing
        self._bookkeeping += time.perf_counter() - begin
        self._begin()
        return is_last

    def write(self) -> None:
        """Write pending records to disk."""
        if self._unsensed_times:
            self._sense(host_mark())
        readings = map(self._sensors.reading, self._samples)
        sensor_rows = (
            row
            for (first, last), shares in zip(pairwise(readings), self._shared_times, strict=True)
            for row in shared(between(first, last), shares)
        )
        for item, row in zip(self._pending, sensor_rows, strict=True):
            layers = item.layers and item.layers.times.columns(item.layers.transfers, item.layers.gathered)
            self._recording.add({**item.columns, **row}, layers)
        self._recording.write(self._state())
        self._pending.clear()
        self._shared_times.clear()
        del self._samples[:-1]
        self._written, self._given = time.monotonic(), 0

    def _state(self) -> dict[str, Any]:
        """Return the rank's present state as a row of `probe_files.STATES`."""
        reading = self._sensors.reading(self._samples[-1])
        on_gpu = self._device.type == "cuda"
        return {
            "samples": self._given / len(self._pending) if self._given and self._pending else None,
            "backend": backend(),
            "frequency": reading.frequency,
            "gpu_clock": reading.gpu_clock,
            "temperature": temperature(self._device.index if on_gpu else None),
            "memory": status_bytes("VmRSS"),
            "device_memory": torch.cuda.memory_allocated(self._device) if on_gpu else None,
        }

    def called(self) -> None:
        """Mark the begin of a forward pass, for loops that do not call the model itself."""
        self._forwards = True
        self._phases.begin(FORWARD, self._clock.mark())

    def mark_as_warmup(self) -> None:
        """Mark this iteration as one of the warm-up, because the loop does more than train in it."""
        self._evaluated = True
        self._timer.forget()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        count = collectives()
        if count is None or count >= (self._collectives or 0):  # a smaller count would be that of a new process group
            self._collectives = count
        self._undo.close()
        self.write()
        self._recording.write_once(PEAK_MEMORY, self._memory.row())
        is_complete = kind is SystemExit and self._done == self._max_iterations
        ended = COMPLETE if kind is None or is_complete else for_terminal(f"{kind.__name__}: {error}"[:200])
        self._describe(ended=ended)
        if ended == COMPLETE and self._recording.rank == 0 and os.environ.get(BOX) != "0":
            self._say()

    def _say(self) -> None:
        """Print the summary; if there is none, print why, and let the script go on."""
        try:
            lines = summary(self._folder, self._ranks)
        except (InputError, OSError) as error:
            lines = [f"stallpoint: no summary: {error}"]
        print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr, flush=True)

    def _layers_of_model(self) -> Sequence[Layer]:
        """Return the layers of the model; an empty list if stallpoint cannot divide the model into layers."""
        module = self._model.module if isinstance(self._model, DistributedDataParallel) else self._model
        try:
            return layers(module)
        except InputError as error:
            self._unseen.append(f"layers: {error}")
            return []

    def _hooks_of_buffers(self) -> Iterator[RemovableHandle]:
        """Time DistributedDataParallel's broadcast of rank 0's buffers before a forward pass; yield its hooks."""
        if isinstance(self._model, DistributedDataParallel) and self._model.will_sync_module_buffers():  # type: ignore[no-untyped-call]
            mark = self._clock.mark
            yield self._model.register_forward_pre_hook(lambda *_: self._phases.begin(EXPOSED, mark()))
            yield self._model.module.register_forward_pre_hook(lambda *_: self._phases.begin(FORWARD, mark()))

    def _begin(self) -> None:
        self._evaluated = False
        self._start = (host_mark() - self._first) * 1e-9
        self._cpu_times = time.process_time(), time.thread_time()
        if self._done <= WARMUP:  # CPU time of the warm-up does not count in `_busy_threads`
            self._first_cpu_times = self._cpu_times
        self._clock.start()

    def _keep(self, end: Mark) -> None:
        """Keep the measurements of the iteration that ended at `end`; `write` turns them into records."""
        seconds = self._clock.seconds
        duration = seconds(end)
        self._unsensed_times.append(duration)
        now = host_mark()
        if self._max_iterations or now - self._sensed > 1e9 * SENSE_EACH:
            self._sense(now)  # sensors are read now: the reading must leave out the next iteration
        phases = self._phases.seconds(seconds, end)
        columns = {
            "iteration": self._done,
            "warmup": self._evaluated or (self._max_iterations is None and self._done < WARMUP),
            "start": self._start,
            **phases,
            "read": phases[DATA],
            "decode": 0.0,
            "communication": union_length(self._parallelism.under_way(seconds)),
            "iteration_time": duration,
            "loss": float("nan"),
        }
        layers = None
        if self._timer.timed:
            transfers, gathered = self._parallelism.transfers(seconds), self._parallelism.gathered(seconds)
            layers = _LayersOfIteration(self._timer.times(), transfers, gathered)
        else:
            self._timer.forget()
        self._pending.append(_Iteration(columns, layers))
        self._parallelism.clear()
        next_number = self._done + 1
        self._timer.timed = bool(
            self._max_iterations or next_number < LAYERS_FIRST or next_number % LAYERS_EACH == 0 or duration > LONG
        )

    def _sense(self, now: int) -> None:
        """Read the sensors once for all iterations since the last reading."""
        self._samples.append(self._sensors.sample())
        self._shared_times.append(self._unsensed_times)
        self._sensed, self._unsensed_times = now, []

    def _describe(self, *, ended: str) -> None:
        unseen = [*self._unseen, *filter(None, [self._parallelism.unseen])]
        if self._done and not self._loaded:
            unseen.append("waiting for data: no DataLoader of PyTorch gives it; it is part of host_to_device")
        if self._done and not self._forwards:
            unseen.append("forward: the model itself is never called; it is part of host_to_device")
        self._recording.write_once(
            PROBES,
            {
                "script_ranks": self._ranks,
                "parallelism": self._parallelism.name,
                "model": type(self._model).__name__,
                "layers": len(self._layers),
                "iterations": self._done,
                "threads": torch.get_num_threads(),
                "cpus": self._sensors.cpus,
                "busy_threads": self._busy_threads(),
                "collectives": self._called(),
                "checksum": checksum(self._model) if ended == COMPLETE else None,
                "bookkeeping": self._bookkeeping / max(1, self._done),
                "unseen": "; ".join(unseen),
                "ended": ended,
            },
        )

    def _busy_threads(self) -> float | None:
        process, thread = (end - first for end, first in zip(self._cpu_times, self._first_cpu_times, strict=True))
        return process / thread if thread else None

    def _called(self) -> int | None:
        """Return the number of collectives since the first iteration began."""
        before, after = self._first_collectives, self._collectives
        return None if before is None or after is None else after - before

    def _batch(self, begins: bool, batch: Any = None) -> None:
        """Note that the script requests a mini-batch (`begins`), or has got it."""
        if threading.get_ident() == self._thread:
            self._loaded = True
            self._phases.begin(DATA if begins else BETWEEN, self._clock.mark())
            if not begins:
                self._given += samples_in(batch)

    def _collective(self, begins: bool, _: Any = None) -> None:
        """Note that the script `begins` to wait for a collective of torch.distributed, or that the wait has ended."""
        if threading.get_ident() == self._thread:
            self._waiting(begins)

    def _updated(self, *_: Any) -> None:
        self._updates += 1
        if self._updates == MAX_UPDATES and self._max_iterations and not self._done:
            raise InputError(
                f"stallpoint.probe: an optimizer updated {MAX_UPDATES} times and probe.step() was not called: "
                "call it behind each update"
            )

    def _returned(self, *_: Any) -> None:
        if not torch.is_grad_enabled():
            self.mark_as_warmup()

    def _ready(self, _layer: int) -> None:
        self._last_ready = self._clock.mark()

    def _waiting(self, begins: bool) -> None:
        """Note that this rank `begins` to wait for a collective within computing, or that the wait has ended. The wait
        counts as exposed communication, and for no layer."""
        self._waits += 1 if begins else -1
        if self._waits != (1 if begins else 0):  # this wait is within another wait
            return
        if begins:
            self._timer.waiting(True)
        self._phases.waiting(begins, self._clock.mark())
        if not begins:
            self._timer.waiting(False)

    def _backward(self, begins: bool, _: Any = None) -> None:
        """Note that a backward pass `begins`, or has returned. A pass within another one is part of that pass."""
        self._depth += 1 if begins else -1
        if self._depth != (1 if begins else 0):
            return
        now = self._clock.mark()
        if begins:
            self._forward_end, self._last_ready = now, None
            self._phases.begin(BACKWARD, now)
            return
        ready = self._parallelism.last_ready(self._last_ready) if self._ranks > 1 else None
        if ready is not None:
            self._phases.begin(EXPOSED, ready)
        self._phases.begin(UPDATE, now)
        # Layers' times end when the last gradients are complete: after that, the backward pass only waits.
        self._timer.passed(self._forward_end, now if ready is None else ready)


def _max_iterations() -> int | None:
    """Return the number of iterations to record; None for all iterations of the script."""
    text = os.environ.get(MAX_ITERATIONS, "")
    if text and not (text.isascii() and text.isdigit() and int(text)):
        raise InputError(f"{MAX_ITERATIONS}={text}: a number of iterations is expected")
    return int(text) if text else None


class LoopMemory:
    """Meter of peak memory from the begin of a training loop to its end. Other ranks' shards do not count."""

    def __init__(self, model: nn.Module, optimizer: Optimizer | None, device: torch.device) -> None:
        self._model, self._optimizer, self._device = model, optimizer, device
        self._weights = _bytes((*model.parameters(), *model.buffers()))
        host_weights = self._weights if device.type == "cpu" else 0
        self._process = max(0, status_bytes("VmRSS") - host_weights)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def row(self) -> dict[str, Any]:
        """Return the row of `tables.PEAK_MEMORY` without its rank. The host's peak is that of the whole process."""
        on_gpu = self._device.type == "cuda"
        return {
            "host_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "device_peak": torch.cuda.max_memory_allocated(self._device) if on_gpu else None,
            "process": self._process,
            "weights": self._weights,
            "gradients": _bytes(weights for weights in self._model.parameters() if weights.requires_grad),
            "optimiser": _bytes(_state(self._optimizer)) if self._optimizer else 0,
        }


def _state(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for entry in optimizer.state.values():
        values = entry.values() if isinstance(entry, dict) else ()
        yield from (value for value in values if isinstance(value, torch.Tensor))


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of this rank's shards of `tensors`."""
    return sum((tensor.to_local() if hasattr(tensor, "to_local") else tensor).nbytes for tensor in tensors)
