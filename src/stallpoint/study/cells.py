"""Cells: the experiments of a study, one frozen dataclass for each kind of job (`stallpoint.study.kinds`).

A cell has *axes*, which name its folder below the raw folder of its study (``train/network~alexnet/nodes~2/...``),
and *settings*, which say how it is measured. Two cells with the same axes are the same experiment;
changing a setting makes that experiment stale and leaves every other alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from stallpoint.strategies.presets import ALL_REDUCE, preset_from
from stallpoint.study.workers import Place

_LATER = {"later": True}
"""Marks a setting that was added later: a cell's JSON leaves it out at its default."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What every job is told: where it belongs and which hardware it runs on."""

    kind: ClassVar[str]
    axes: ClassVar[tuple[str, ...]]

    hardware: str
    """Name of the hardware entry."""
    nodes: int
    """Nodes that take part at once."""
    repeat: int
    """Which repetition of the whole cell this is, from 1."""
    workers_per_node: int
    """Workers (MPI ranks) on each of them."""
    device: str
    """``cpu`` or ``cuda``."""
    threads_per_worker: int
    seed: int
    precision: str
    """``float32``, ``tf32``, ``fp16`` (both CUDA) or ``bf16``: what matrix products are computed in."""
    anonymise: bool
    """Write ``node0``, ``node1``, ... instead of host names."""
    visits: int = field(default=1, kw_only=True)
    """How often it is visited at least; between two visits other cells have their turn."""
    cudnn: bool | None = field(default=None, kw_only=True, metadata=_LATER)
    """Whether a GPU takes cuDNN; None: as PyTorch does."""
    onednn: bool | None = field(default=None, kw_only=True, metadata=_LATER)
    """Whether a CPU takes oneDNN (MKL-DNN); None: as PyTorch does."""

    @property
    def ranks(self) -> int:
        """Workers (MPI ranks) in all."""
        return self.nodes * self.workers_per_node

    @property
    def place(self) -> Place:
        """On how many nodes its workers are, and how many on each."""
        return self.nodes, self.workers_per_node

    @property
    def value_bytes(self) -> int:
        """Bytes of each number that matrix products take."""
        return 2 if self.precision in ("bf16", "fp16") else 4

    @property
    def scheme(self) -> str:
        """Reduction scheme that its MPI library has to be told before it is initialised."""
        return "library"

    @property
    def storages(self) -> tuple[str, ...]:
        """Names of the storages that it reads."""
        return tuple(getattr(self, axis) for axis in self.axes if axis == "storage")

    @property
    def path(self) -> str:
        """Folder below the raw folder of the study, e.g. ``sgemm/network~alexnet/hardware~cpu/repeat~1``."""
        return "/".join([self.kind, *(f"{axis}~{getattr(self, axis)}" for axis in self.axes)])

    @classmethod
    def later(cls) -> dict[str, Any]:
        """The settings that JSON leaves out at their defaults, and these."""
        return {one.name: one.default for one in fields(cls) if one.metadata == _LATER}

    def to_json(self) -> str:
        """The cell as one line of JSON, as jobs are told it."""
        later = self.later()
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values = {name: value for name, value in values.items() if name not in later or value != later[name]}
        return json.dumps({"kind": self.kind, **values}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class TrainCell(Cell):
    """Synchronous data-parallel SGD on ``ranks`` workers."""

    kind: ClassVar[str] = "train"
    axes: ClassVar[tuple[str, ...]] = (
        "network", "hardware", "nodes", "workers_per_node", "batch", "storage", "scaling", "sync", "prefetch", "repeat",
    )  # fmt: skip

    network: str
    batch: int
    """As configured: the global mini-batch B (``strong``) or the worker's b (``weak``, ``compute``)."""
    storage: str
    scaling: str
    """``strong`` (b = B/ranks), ``weak`` (b fixed) or ``compute`` (one worker alone, at batch b)."""
    sync: str
    """Name of the preset by which gradients are synchronised; ``none`` for a worker alone."""
    prefetch: int
    """Mini-batches read ahead while computing; 0 reads in line."""
    worker_batch: int
    """b, samples in one worker's mini-batch."""
    iterations: int
    """Iterations of a visit that are kept for statistics."""
    warmup: int
    """Iterations of a visit before them, recorded and marked."""
    readers: int
    """Threads that decode samples when ``prefetch`` > 0."""
    storage_path: str
    storage_format: str
    preset: dict[str, Any]
    """Fields of the `strategies.presets.Preset` that `sync` names (`to_values`)."""
    own_network: dict[str, Any] | None
    """The study's entry under ``networks``; None for a network of the registry."""
    stage_to: str = field(default="", kw_only=True, metadata=_LATER)
    """Folder on each node that the storage is copied to before it is read (`measure.staging`); empty: it is not."""
    stage_keep: bool = field(default=False, kw_only=True, metadata=_LATER)
    """Whether the copy stays there when the job ends."""

    @property
    def scheme(self) -> str:
        """As `Cell.scheme`."""
        return preset_from(self.preset).scheme

    @property
    def shards(self) -> int:
        """As `Preset.shards`, of its workers."""
        return preset_from(self.preset).shards(self.nodes, self.workers_per_node)

    @property
    def global_batch(self) -> int:
        """B, samples in all workers' mini-batches together."""
        return self.worker_batch * self.ranks


@dataclass(frozen=True, slots=True)
class CommandCell(TrainCell):
    """Training by a script of the user's (`stallpoint.study.commands`); its network is what the command is called."""

    kind: ClassVar[str] = "command"

    run: str
    """The command, with placeholders."""
    launch: str
    """What starts it on the workers."""
    rate: str
    """Regular expression of the rates that it prints; empty where a probe records its iterations."""
    most_minutes: float
    """How long a visit may take."""

    @property
    def scheme(self) -> str:
        """Nothing that MPI has to be told: the script communicates by its own means."""
        return "library"

    @property
    def storages(self) -> tuple[str, ...]:
        """The storage of the study that the script reads; none where its data is its own."""
        return (self.storage,) if self.storage_format else ()


@dataclass(frozen=True, slots=True)
class InterventionCell(TrainCell):
    """A training cell with one thing left out (`stallpoint.study.interventions`); no point of any scaling curve."""

    kind: ClassVar[str] = "intervention"
    axes: ClassVar[tuple[str, ...]] = (*TrainCell.axes[:-1], "intervention", "repeat")

    intervention: str
    """What is left out."""


@dataclass(frozen=True, slots=True)
class SgemmCell(Cell):
    """Matrix products of the network's layers (Keuper & Pfreundt, Table III)."""

    kind: ClassVar[str] = "sgemm"
    axes: ClassVar[tuple[str, ...]] = ("network", "hardware", "repeat")

    network: str
    batches: list[int]
    """Values of b."""
    samples: int
    """Timed products for each shape in a visit."""
    own_network: dict[str, Any] | None
    """As in `TrainCell`."""


@dataclass(frozen=True, slots=True)
class CollectivesCell(Cell):
    """Collective operations over message sizes, by one backend and reduction scheme (`strategies.presets.CHOICES`)."""

    kind: ClassVar[str] = "collectives"
    axes: ClassVar[tuple[str, ...]] = ("hardware", "nodes", "workers_per_node", "backend", "reduction", "repeat")

    backend: str
    """``mpi`` or ``torch``."""
    reduction: str
    message_bytes: list[int]
    samples: int
    """Timed rows of calls for each size in a visit."""
    operations: list[str] | None = field(default=None, kw_only=True, metadata=_LATER)
    """Those of `stallpoint.strategies.presets.OPERATIONS` that are timed; None: all-reduces alone."""

    @property
    def sent(self) -> list[str]:
        """The operations that are timed."""
        return self.operations or [ALL_REDUCE]

    @property
    def scheme(self) -> str:
        """As `Cell.scheme`."""
        return self.reduction


@dataclass(frozen=True, slots=True)
class StorageCell(Cell):
    """Reading the training set from all workers at once."""

    kind: ClassVar[str] = "storage"
    axes: ClassVar[tuple[str, ...]] = ("storage", "hardware", "nodes", "workers_per_node", "repeat")

    storage: str
    storage_path: str
    storage_format: str
    samples: int
    """Samples read by each worker in each pass."""
    readers: int = field(default=1, kw_only=True, metadata=_LATER)
    """Threads of each worker that read at once; where there are several, one alone reads as well."""
    drop_caches: bool = field(default=False, kw_only=True, metadata=_LATER)
    """Drop all caches of the kernel before a cold pass, where this user may."""
    checkpoint_bytes: int | None = field(default=None, kw_only=True, metadata=_LATER)
    """Size of a checkpoint that is written and read back; None: none is."""
    server_memory: float | None = field(default=None, kw_only=True, metadata=_LATER)
    """Memory of all servers behind the storage, bytes, where the study says it."""
    stage_to: str = field(default="", kw_only=True, metadata=_LATER)
    """As in `TrainCell`."""
    stage_keep: bool = field(default=False, kw_only=True, metadata=_LATER)
    """As in `TrainCell`."""


@dataclass(frozen=True, slots=True)
class CopiesCell(Cell):
    """Copies of memory, by one worker."""

    kind: ClassVar[str] = "copies"
    axes: ClassVar[tuple[str, ...]] = ("hardware", "repeat")

    samples: int
    """Timed copies of each sort in a visit."""


@dataclass(frozen=True, slots=True)
class ConvergenceCell(Cell):
    """Training to a target: one run, from the initial weights to its end."""

    kind: ClassVar[str] = "convergence"
    axes: ClassVar[tuple[str, ...]] = (
        "network", "hardware", "nodes", "workers_per_node", "batch", "storage", "sync", "recipe", "trial", "seed",
        "repeat",
    )  # fmt: skip

    network: str
    batch: int
    """The global mini-batch B."""
    storage: str
    sync: str
    """As in `TrainCell`."""
    recipe: str
    """Name of the recipe."""
    trial: int
    """Which point of what the recipe searches, from 1."""
    prefetch: int
    """As in `TrainCell`."""
    readers: int
    """As in `TrainCell`."""
    storage_path: str
    storage_format: str
    validation_storage: str
    """Storage that validation samples are read from; the one of training, where a part of it is set apart."""
    validation_path: str
    validation_format: str
    validation_share: float
    """Part of the storage's samples that is set apart for validation; 0 with a storage of its own."""
    preset: dict[str, Any]
    """As in `TrainCell`."""
    settings: dict[str, Any]
    """Fields of the `stallpoint.study.recipes.Recipe` of this trial."""
    own_network: dict[str, Any] | None
    """As in `TrainCell`."""
    target: float | None
    """Validation accuracy that ends the run; None: it goes on to its last step."""
    most_epochs: float
    """Passes over the training samples after which the run ends."""
    evaluation_epochs: float
    """Passes between two evaluations; at least one step."""
    patience: int | None
    """Evaluations without a better accuracy that end the run; None: any number."""
    most_minutes: float | None
    """Training time that ends the run; None: any."""
    noise_steps: int | None
    """Every so many steps the gradients' norms are recorded; None: never."""

    @property
    def scheme(self) -> str:
        """As `Cell.scheme`."""
        return preset_from(self.preset).scheme

    @property
    def storages(self) -> tuple[str, ...]:
        """As `Cell.storages`."""
        return tuple(dict.fromkeys((self.storage, self.validation_storage)))

    @property
    def worker_batch(self) -> int:
        """b, samples in one worker's mini-batch."""
        return self.batch // self.ranks


@dataclass(frozen=True, slots=True)
class ImportedTrainCell(TrainCell):
    """A training run that others measured, from files in the layout of Shi et al. (2018), Table VI, or of profilers."""

    kind: ClassVar[str] = "imported-train"

    files: list[str]
    """One for each rank that has one, from rank 0."""
    read: float | None
    """Time to read and decode a mini-batch, s; None where the worker reads in line, as the files then say it."""
    host_to_device: float
    """Copy of the mini-batch to the device, s."""
    update: float
    """Model update, s."""
    format: str = field(default="layers", kw_only=True, metadata=_LATER)
    """What the files are: ``layers``, or traces of a ``profiler``, which say themselves what the entry leaves out."""


@dataclass(frozen=True, slots=True)
class ImportedCollectivesCell(Cell):
    """All-reduce over message sizes as another program measured it."""

    kind: ClassVar[str] = "imported-collectives"
    axes: ClassVar[tuple[str, ...]] = ("hardware", "nodes", "workers_per_node", "backend", "reduction", "repeat")

    backend: str
    reduction: str
    files: list[str]
    """One file: what the program printed; or a profiler's traces, one for each rank that has one."""
    format: str
    """``nccl-tests``, ``osu`` or ``profiler``."""
