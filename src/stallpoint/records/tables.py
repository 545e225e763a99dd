"""Every table stallpoint writes: columns, types, units, and how files are written and read.

A raw record is a Parquet file inside a cell's folder (``results/<study>/raw/<cell>/<table>.parquet``); a tidy
table is the same columns from all cells (``results/<study>/tables/<table>.parquet``); model tables are derived
from tidy tables. Units and descriptions stand in the field metadata of each file, with the schema
version. Files appear whole or not at all: they are written under another name and renamed.

Statistics of a quantity ``x`` are three columns: ``x`` (median or fit), ``x_low`` and ``x_high`` (90 % interval).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 4

TEXT, INT, REAL, FLAG = pa.large_string(), pa.int64(), pa.float64(), pa.bool_()


@dataclass(frozen=True)
class Column:
    """One column: its type, its unit (None: a name, a count or a ratio) and what it means."""

    name: str
    type: pa.DataType
    unit: str | None
    description: str
    relative: bool = False
    """Whether it is a ratio to another row of the table: 1, without an interval, in that row itself."""

    @property
    def field(self) -> pa.Field:
        """The Arrow field, with unit and description as metadata."""
        metadata = {"description": self.description, "unit": self.unit or "1"}
        return pa.field(self.name, self.type, metadata=metadata)


@dataclass(frozen=True)
class Table:
    """A named list of columns; `schema` is its Arrow form with units in the metadata."""

    name: str
    description: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with the table's name and the schema version as metadata."""
        metadata = {
            "stallpoint_table": self.name,
            "stallpoint_schema": str(SCHEMA_VERSION),
            "description": self.description,
        }
        return pa.schema([column.field for column in self.columns], metadata=metadata)


def _estimate(
    name: str, unit: str | None, description: str, *, relative: bool = False
) -> tuple[Column, Column, Column]:
    """A quantity with its 90 % interval."""
    return (
        Column(name, REAL, unit, description, relative),
        Column(f"{name}_low", REAL, unit, f"lower end of the 90 % interval of {name}"),
        Column(f"{name}_high", REAL, unit, f"upper end of the 90 % interval of {name}"),
    )


# --- axes -----------------------------------------------------------------------------------------

CELL = Column("cell", TEXT, None, "path of the cell below the raw folder of its study")
NETWORK = Column("network", TEXT, None, "neural network")
HARDWARE = Column("hardware", TEXT, None, "hardware entry of the study")
NODES = Column("nodes", INT, None, "nodes taking part at once")
WORKERS_PER_NODE = Column(
    "workers_per_node", INT, None, "workers on each node; of a scaling curve those on a full node, each filled in turn"
)
RANKS = Column("ranks", INT, None, "workers (MPI ranks) in all")
BATCH = Column("batch", INT, "samples", "mini-batch as configured: B for strong scaling, b for weak and compute")
GLOBAL_BATCH = Column("global_batch", INT, "samples", "B, samples in all workers' mini-batches together")
WORKER_BATCH = Column("worker_batch", INT, "samples", "b, samples in one worker's mini-batch")
STORAGE = Column("storage", TEXT, None, "storage entry of the study")
SCALING = Column("scaling", TEXT, None, "strong, weak or compute")
SYNC = Column("sync", TEXT, None, "preset by which gradients are synchronised; none for a worker alone")
BACKEND = Column("backend", TEXT, None, "what communicates: mpi or torch")
REDUCTION = Column("reduction", TEXT, None, "reduction scheme, or library: whatever the library takes")
PREFETCH = Column("prefetch", INT, None, "mini-batches read ahead; 0 reads in line")
REPEAT = Column("repeat", INT, None, "repetition of the whole cell, from 1")
VISIT = Column("visit", INT, None, "visit to the cell, from 1: between two of them other cells had their turn")
WORKERS = Column("workers", INT, None, "workers taking part at once")
TABLE = Column("table", TEXT, None, "external table of the study, or measured: the study's own scaling curves")
RANK = Column("rank", INT, None, "MPI rank of the worker")
INTERVENTION = Column("intervention", TEXT, None, "what is left out")
SERIES = (NETWORK, HARDWARE, STORAGE, SCALING, SYNC, PREFETCH, BATCH, WORKERS_PER_NODE)
"""What stays fixed along one scaling curve."""
TRAIN_AXES = (*SERIES, NODES, RANKS, GLOBAL_BATCH, WORKER_BATCH, REPEAT)
MESSAGES = Column("messages", INT, None, "messages, one after the other")
OPERATION = Column("operation", TEXT, None, "collective operation: all-reduce, all-gather, reduce-scatter, ...")
SAMPLE = Column("sample", INT, None, "repetition, from 0, counted on from visit to visit")
ITERATION = Column("iteration", INT, None, "iteration, from 0, warm-up included, counted on from visit to visit")
WARMUP = Column("warmup", FLAG, None, "warm-up: recorded, left out of statistics")
LAYER_TYPE = Column(
    "layer_type", TEXT, None,
    "convolution, fully-connected, attention, embedding, relu, pooling, batch-norm, dropout, add, loss, ...",
)  # fmt: skip

# --- raw records ----------------------------------------------------------------------------------

RUNS = Table(
    "runs",
    "one row for each cell: what was asked for and how it ended",
    (
        CELL,
        Column(
            "kind",
            TEXT,
            None,
            "train, command, intervention, sgemm, collectives, storage, copies, convergence, imported-train or "
            "imported-collectives",
        ),
        Column("status", TEXT, None, "ok, or failed: the job could not run here and says why"),
        Column("reason", TEXT, None, "why a failed job could not run; empty when ok"),
        HARDWARE,
        NODES,
        WORKERS_PER_NODE,
        RANKS,
        REPEAT,
        Column("started", pa.timestamp("us", tz="UTC"), None, "start of the first visit"),
        Column("duration", REAL, "s", "duration of all its visits"),
        *_estimate("planned", "s", "what that was expected to be when its job was submitted; not known if imported"),
        Column("settings", TEXT, None, "the whole cell as JSON"),
        Column(
            "ended",
            TEXT,
            None,
            "why there was no further visit: visits (its own number), precision (reached), budget (used up), "
            "most visits; empty where it failed or was imported",
        ),
        Column("source", TEXT, None, "imported files, each with its SHA-256; empty where the job ran here"),
    ),
)

ENVIRONMENTS = Table(
    "environments",
    "one row for each rank of each cell: the machine and software it really used",
    (
        CELL,
        RANK,
        Column("node", TEXT, None, "host name, or node0, node1, ... when anonymised"),
        Column("device", TEXT, None, "cpu or cuda"),
        Column("cpu_model", TEXT, None, "model name of the CPU"),
        Column("gpu_model", TEXT, None, "model name of the GPU; empty without one"),
        Column("cpu_nominal_clock", REAL, "Hz", "clock the CPU is sold with; null where the machine does not tell"),
        Column("cpu_max_clock", REAL, "Hz", "highest clock of the CPU; null as above"),
        Column("gpu_max_clock", REAL, "Hz", "highest clock of the GPU's multiprocessors; null without a GPU or NVML"),
        Column("cores_available", INT, None, "cores this process may run on"),
        Column("threads", INT, None, "threads the tensor library really used"),
        Column("load_average", REAL, None, "1-minute load average of the node at the start"),
        Column(
            "core_cache_bytes", INT, "B", "largest cache of a core of its own; empty where the machine does not tell"
        ),
        Column(
            "cache_bytes",
            INT,
            "B",
            "caches of the last level that the worker's threads can fill, or that of the GPU; empty as above",
        ),
        Column("memory_bytes", INT, "B", "memory of the node"),
        Column(
            "available_memory",
            INT,
            "B",
            "memory of the host that the worker may use: its part of the machine's, of its cgroups' limits and of what "
            "Slurm gave, the least of them",
        ),
        Column("gpu_available_memory", REAL, "B", "memory of the GPU that tensors can have; null without a GPU"),
        Column("kernel", TEXT, None, "operating system and kernel release"),
        Column("python", TEXT, None, "version of Python"),
        Column("torch", TEXT, None, "version of PyTorch"),
        Column("cuda", TEXT, None, "version of CUDA that PyTorch is built for; empty without a GPU, as below"),
        Column("cudnn", TEXT, None, "version of cuDNN; empty as well where PyTorch has none"),
        Column("nccl", TEXT, None, "version of NCCL; empty as well where PyTorch has none"),
        Column("driver", TEXT, None, "version of NVIDIA's driver; empty as well where it does not tell"),
        Column("blas", TEXT, None, "library of matrix products on the CPU; of MKL its version, as PyTorch tells it"),
        Column("onednn", TEXT, None, "version of oneDNN (MKL-DNN); empty where PyTorch has none"),
        Column("cudnn_in_force", FLAG, None, "the GPU computes with cuDNN, as read back from PyTorch; false on a CPU"),
        Column("onednn_in_force", FLAG, None, "the CPU computes with oneDNN, read back likewise; false on a GPU"),
        Column(
            "precision_in_force", TEXT, None, "precision of matrix products, read back likewise: float32, tf32, ..."
        ),
        Column("mpi4py", TEXT, None, "version of mpi4py"),
        Column("mpi_library", TEXT, None, "first line of the MPI library's own version text"),
        Column("mpi_parameters", TEXT, None, "parameters that force the reduction scheme, read back from the library"),
        Column("stallpoint", TEXT, None, "version of stallpoint"),
        Column("git_commit", TEXT, None, "commit of the workflow; empty outside a repository"),
        Column("git_dirty", FLAG, None, "the workflow had uncommitted changes"),
        Column("slurm_job_id", TEXT, None, "Slurm job; empty outside Slurm"),
    ),
)

SLURM_JOBS = Table(
    "slurm_jobs",
    "one row for each cell that ran in a Slurm job: what the job asked for and was given, as the job itself saw it",
    (
        CELL,
        Column("slurm_job_id", TEXT, None, "Slurm job"),
        Column("partition", TEXT, None, "partition; empty where the job could not tell, as below"),
        Column("nodes", INT, None, "nodes of the job"),
        Column("tasks", INT, None, "tasks of the job"),
        Column("cpus_per_task", INT, None, "cores asked for each task"),
        Column("cpus", INT, None, "cores given to the whole job"),
        Column("requested", TEXT, None, "trackable resources asked for, as Slurm writes them"),
        Column("time_limit", TEXT, None, "time limit, as Slurm writes it"),
        Column("submitted", TEXT, None, "when it was submitted, local time"),
        Column("started", TEXT, None, "when it started, local time"),
        Column("node_list", TEXT, None, "its nodes, as Slurm writes them"),
    ),
)

SENSORS = (
    Column("runnable_wait", REAL, "s", "time the computing thread could have run but did not; null where unknown"),
    Column("thread_time", REAL, "s", "CPU time of the computing thread"),
    Column("process_time", REAL, "s", "CPU time of all threads of the process"),
    Column("node_busy", REAL, "s", "time that any thread of this kernel ran on the CPUs this process may run on"),
    Column("steal", REAL, "s", "time that the hypervisor took from those CPUs, in steps of 10 ms"),
    Column("cpu_pressure", REAL, "s", "time in which some thread of this kernel waited for a CPU"),
    Column("involuntary_switches", REAL, None, "how often the computing thread lost its CPU to another one"),
    Column("throttled", REAL, "s", "time that a quota kept threads of this process's cgroup from running, over CPUs"),
    Column("thermal_throttles", REAL, None, "how often those CPUs slowed down for heat; null where unknown"),
    Column("frequency", REAL, "Hz", "mean clock of those CPUs at the end of the iteration; null where unknown"),
    Column(
        "gpu_clock", REAL, "Hz", "clock of the GPU's multiprocessors at the end of the iteration; null without NVML"
    ),
    Column("gpu_throttle", TEXT, None, "why the GPU's clock is lower than it could be; null without NVML"),
)
"""What may have disturbed an iteration (`stallpoint.measure.machine.sensors`); null where it cannot be known."""

ITERATIONS = Table(
    "iterations",
    "one row for each training iteration of each rank",
    (
        CELL,
        *TRAIN_AXES,
        RANK,
        VISIT,
        ITERATION,
        WARMUP,
        Column("start", REAL, "s", "start of the iteration, since the ranks began the first one together"),
        Column("data_wait", REAL, "s", "time the worker waited for its mini-batch"),
        Column(
            "read",
            REAL,
            "s",
            "time spent reading this mini-batch from the storage, summed over samples; of a command data_wait, as how "
            "it reads is its own",
        ),
        Column("decode", REAL, "s", "time spent decoding and resizing this mini-batch, summed over samples"),
        Column(
            "host_to_device",
            REAL,
            "s",
            "copy of the mini-batch to the device; of a command all that it does between data and forward pass",
        ),
        Column("forward", REAL, "s", "forward pass, loss included"),
        Column("backward", REAL, "s", "backward pass"),
        Column("communication", REAL, "s", "time in which at least one collective operation was under way"),
        Column(
            "exposed_communication",
            REAL,
            "s",
            "from the end of the backward pass to the last gradient's arrival, and waiting for collectives within the "
            "passes and the update, whose times are without it; in a pipeline receiving what another stage has sent",
        ),
        Column(
            "update",
            REAL,
            "s",
            "model update; 0 where a parameter server updates, as part of the communication; of a command all that it "
            "does behind the backward pass",
        ),
        Column(
            "iteration_time",
            REAL,
            "s",
            "whole iteration; in a pipeline what it takes beyond its parts is waiting for other stages, the bubble",
        ),
        Column("loss", REAL, None, "training loss of the worker's mini-batch"),
        *SENSORS,
    ),
)

INTERVENED = Table(
    "intervened",
    "one row for each iteration of each rank of training with one thing left out: columns as in iterations",
    (
        CELL,
        *TRAIN_AXES,
        INTERVENTION,
        *(column for column in ITERATIONS.columns if column not in (CELL, *TRAIN_AXES)),
    ),
)

GATHERS = ("gather_start", "gather_end", "gather_again_start", "gather_again_end")
"""Columns of `LAYERS` that only sharded weights and split outputs have."""

LAYERS = Table(
    "layers",
    "one row for each layer, training iteration and rank",
    (
        CELL,
        *TRAIN_AXES,
        RANK,
        VISIT,
        ITERATION,
        WARMUP,
        Column("layer_index", INT, None, "position in the forward pass, from 0"),
        Column("layer", TEXT, None, "name of the layer"),
        LAYER_TYPE,
        Column("forward", REAL, "s", "forward time of the layer"),
        Column("backward", REAL, "s", "backward time of the layer"),
        Column("gradient_ready", REAL, "s", "when its gradients were complete, since the start of the iteration"),
        Column("all_reduce_start", REAL, "s", "start of its all-reduce, since the start of the iteration"),
        Column("all_reduce_end", REAL, "s", "end of its all-reduce, since the start of the iteration"),
        Column("gradient_bytes", INT, "B", "size of its gradients; 0 where nothing is learned"),
        Column("message", INT, None, "message that carried its gradients, in the order of sending, from 0; -1: none"),
        Column("message_bytes", INT, "B", "what this rank put into messages for its gradients, after compression"),
        Column(
            "gather_start",
            REAL,
            "s",
            "start of the (last) all-gather of its weights ahead of the forward pass, or after a sharded update, since "
            "the start of the iteration; where outputs are split, of what it takes; null where nothing is gathered",
        ),
        Column("gather_end", REAL, "s", "end of it"),
        Column(
            "gather_again_start",
            REAL,
            "s",
            "start of the (last) all-gather of its weights for the backward pass; where outputs are split, of the "
            "reduce-scatter of the gradients of what it takes",
        ),
        Column("gather_again_end", REAL, "s", "end of it"),
    ),
)

VISITS = Table(
    "visits",
    "one row for each visit to a cell and rank: cells that are compared take turns, in a random order",
    (
        CELL,
        Column("kind", TEXT, None, "kind of the cell"),
        HARDWARE,
        NODES,
        WORKERS_PER_NODE,
        RANKS,
        RANK,
        VISIT,
        Column("turn", INT, None, "place of the visit among all visits of the hardware entry, from 1"),
        Column("beside", INT, None, "other cells visited at the same moment, on other nodes of the job"),
        Column("began", pa.timestamp("us", tz="UTC"), None, "start of the visit"),
        Column("duration", REAL, "s", "from there to its end, what is done before and after measuring included"),
        Column("preparing", REAL, "s", "of that: until the ranks begin to measure together"),
        Column("measuring", REAL, "s", "of that: iterations, products, all-reduces and reads, warm-up included"),
        Column("left_out", INT, None, "samples of its storage that cannot be decoded and are left out (most_corrupt)"),
        Column("kernel", TEXT, None, "hash that tells the running kernel from others: ranks on one share its counters"),
        Column("cpus", TEXT, None, "CPUs that the process may run on, such as 0-3,8"),
        Column("threads", INT, None, "threads that the worker computes with"),
        Column("node_busy_error", REAL, "s", "how far a difference of node_busy may be off"),
        Column("product_before", REAL, "s", "sentinel: 1,000 of always the same matrix products, before measuring"),
        Column("product_after", REAL, "s", "the same, after it"),
        Column("all_reduce_before", REAL, "s", "sentinel: always the same all-reduces, before; null for one rank"),
        Column("all_reduce_after", REAL, "s", "the same, after it"),
    ),
)

INSTRUMENTATION = Table(
    "instrumentation",
    "one row for each rank and visit of a training cell: what timing its layers cost, and whether their times add up",
    (
        CELL,
        *TRAIN_AXES,
        RANK,
        VISIT,
        Column("layers", INT, None, "layers timed"),
        Column("turns", INT, None, "marks taken in a forward pass: one for each call of a layer; more within layers"),
        Column("timing_cost", REAL, "s", "time that timing adds to an iteration for each turn, measured in this job"),
        Column(
            "timing_share", REAL, None, "part of the iteration that timing takes: timing_cost · turns / median time"
        ),
        Column("forward_closure", REAL, None, "layers' forward times over the forward pass, median of the iterations"),
        Column("backward_closure", REAL, None, "the same of the backward pass; 1 where the layers add up to the pass"),
    ),
)

PEAK_MEMORY = Table(
    "peak_memory",
    "one row for each rank and visit of a training cell: the most memory that training took, and what of it is known",
    (
        CELL,
        *TRAIN_AXES,
        RANK,
        VISIT,
        Column(
            "host_peak",
            REAL,
            "B",
            "most memory of the host that the process had, less networks kept for other visits; null where unknown",
        ),
        Column("device_peak", REAL, "B", "most memory of tensors on the GPU, less the same; null on a CPU"),
        Column("process", REAL, "B", "memory of the host before training, without networks: programs and libraries"),
        Column("weights", INT, "B", "parameters and buffers of the network; on the device, as the next two"),
        Column("gradients", INT, "B", "gradients of the parameters"),
        Column("optimiser", INT, "B", "what the optimiser keeps: a momentum for each parameter"),
    ),
)

PROBES = Table(
    "probes",
    "one row for each rank and visit of a command whose script has a probe: what the probe could see of it",
    (
        CELL,
        *TRAIN_AXES,
        RANK,
        VISIT,
        Column("script_ranks", INT, None, "workers that the script trains on, as it tells itself"),
        Column("parallelism", TEXT, None, "what brings gradients together: ddp, fsdp2, none, or unknown"),
        Column("model", TEXT, None, "class of the model"),
        Column("layers", INT, None, "layers timed"),
        Column("iterations", INT, None, "iterations recorded"),
        Column("threads", INT, None, "threads that the script computes with, as PyTorch tells it at the end"),
        Column("cpus", TEXT, None, "CPUs that the script's process may run on, such as 0-3,8"),
        Column(
            "busy_threads",
            REAL,
            None,
            "CPU time of the process over that of its computing thread, behind the first "
            "iteration; null where there is none",
        ),
        Column(
            "collectives",
            INT,
            None,
            "collectives of torch.distributed that the worker called meanwhile; null where it may have called others",
        ),
        Column(
            "checksum",
            INT,
            None,
            "CRC-32 of the trained weights at the end; null where a worker holds a shard of "
            "them, or an exception ended the training",
        ),
        Column("bookkeeping", REAL, "s", "time of an iteration in which the probe kept what it measured, the mean"),
        Column("unseen", TEXT, None, "what it could not see, in words; empty where it saw all"),
        Column("ended", TEXT, None, "complete, or the exception that ended the training; empty where it was killed"),
    ),
)

MACHINE = "machine"
"""Layer type of the products that tell about the machine: layers ``peak``, ``bandwidth`` and ``rows``."""

SGEMM = Table(
    "sgemm",
    "one row for each timed matrix product m x k · k x n, done `operations` times",
    (
        CELL,
        NETWORK,
        HARDWARE,
        REPEAT,
        Column("layer", TEXT, None, "layer (and which of its products), reference, or peak, bandwidth or rows"),
        LAYER_TYPE,
        WORKER_BATCH,
        Column("m", INT, None, "rows of the left matrix"),
        Column("k", INT, None, "columns of the left matrix"),
        Column("n", INT, None, "columns of the right matrix"),
        Column("operations", INT, None, "products of this shape in one forward pass"),
        VISIT,
        SAMPLE,
        Column("seconds", REAL, "s", "time of all operations together"),
        Column("gflops", REAL, "GFLOP/s", "2·m·k·n·operations / seconds / 1e9"),
    ),
)

_MESSAGE = (
    CELL,
    HARDWARE,
    NODES,
    WORKERS_PER_NODE,
    RANKS,
    BACKEND,
    REDUCTION,
    OPERATION,
    REPEAT,
    RANK,
    Column("message_bytes", INT, "B", "size of the whole message: what is reduced, gathered or sent"),
    VISIT,
    SAMPLE,
    WARMUP,
)
"""Which message, of which rank."""

COLLECTIVES = Table(
    "collectives",
    "one row for each timed burst of a collective operation of each rank",
    (
        *_MESSAGE,
        MESSAGES,
        Column("seconds", REAL, "s", "time of all of them together, from a barrier on"),
    ),
)

CONTENTION = Table(
    "contention",
    "one row for each time that a rank called collectives from a thread while it computed; and computing alone",
    (
        *_MESSAGE,
        MESSAGES,
        Column("seconds", REAL, "s", "time of all of them together"),
        Column("operations", INT, None, "equal pieces of computing done from the first call to the last return"),
        Column("computing", REAL, "s", "time of these; the last one may end after the last return"),
        Column("alone_operations", INT, None, "the same pieces with nothing sent, before the samples of a size"),
        Column("alone_computing", REAL, "s", "time of these"),
    ),
)

_READING = (
    Column(
        "order",
        TEXT,
        None,
        "sequential (as stored), shuffled (every sample once, in random order) or random (each drawn anew)",
    ),
    Column(
        "cache",
        TEXT,
        None,
        "page cache before the pass: cold (dropped), warm (read before) or untouched (never opened by this cell)",
    ),
    Column("readers", INT, None, "threads of each worker that read at once"),
)
_STORAGE_AXES = (CELL, STORAGE, HARDWARE, NODES, WORKERS_PER_NODE, RANKS, REPEAT, RANK)

STORAGE_READS = Table(
    "storage_reads",
    "one row for each sample read from a storage by each rank",
    (
        *_STORAGE_AXES,
        *_READING,
        VISIT,
        SAMPLE,
        Column("start", REAL, "s", "start of the read, since all ranks began the pass"),
        Column("seconds", REAL, "s", "time to read the sample"),
        Column("bytes", INT, "B", "bytes of the sample"),
    ),
)

_SOURCE = (
    Column("filesystem", TEXT, None, "type of the file system, as the kernel calls it: ext4, nfs4, lustre, ..."),
    Column("locality", TEXT, None, "whether the path is local to a node or shared, by that type; or unknown"),
)
_ORIGIN = (
    Column(
        "origin",
        TEXT,
        None,
        "where the bytes came from: page cache, server cache (seen below the file system), local device, network, "
        "mixed, or unknown",
    ),
    Column(
        "server_cache",
        TEXT,
        None,
        "cache beyond the node: none, excluded (the set is 5 times as large), seen, or unknown; empty where the bytes "
        "did not come from there",
    ),
    Column("of_storage", FLAG, None, "the pass tells how fast the storage is, and not how fast a cache"),
)

STORAGE_PASSES = Table(
    "storage_passes",
    "one row for each pass over samples of a storage and rank: what was asked for, and who counted it",
    (
        *_STORAGE_AXES,
        *_READING,
        VISIT,
        *_SOURCE,
        Column("source", TEXT, None, "what is mounted there, as the kernel tells it; empty when anonymised"),
        Column("metadata", TEXT, None, "what the node knew of the files before: cold (dropped), warm or unknown"),
        Column("resident", REAL, None, "share of the samples' pages in the page cache before; null where unknown"),
        Column("bytes", INT, "B", "bytes that this worker asked for"),
        Column("node_bytes", INT, "B", "bytes that all workers of its node asked for"),
        Column("process_bytes", INT, "B", "read by block devices for this process; null where unknown, as below"),
        Column("device_bytes", INT, "B", "read by the file system's block device, for anybody on the node"),
        Column("disk_bytes", INT, "B", "read by the disks at the bottom of that device, likewise"),
        Column("server_bytes", INT, "B", "from the NFS server, for anybody on this mount"),
        Column("network_bytes", INT, "B", "received by the node's network interfaces"),
        *_ORIGIN,
        Column("set_bytes", INT, "B", "size of the whole training set"),
        Column("memory_bytes", INT, "B", "memory of all nodes of the cell together"),
    ),
)

STORAGE_OPERATIONS = Table(
    "storage_operations",
    "one row for each operation on a storage that is not the reading of a sample",
    (
        *_STORAGE_AXES,
        Column(
            "operation",
            TEXT,
            None,
            "stat, open (and close), decode (of a sample that was read), checkpoint write (with fsync) or checkpoint "
            "read (cold)",
        ),
        Column("metadata", TEXT, None, "what the node knew of the file before: cold (dropped) or warm"),
        Column("origin", TEXT, None, "where a checkpoint was read from, as in storage_passes; empty for the others"),
        VISIT,
        SAMPLE,
        Column("seconds", REAL, "s", "duration"),
        Column("bytes", INT, "B", "bytes decoded, written or read; 0 for stat and open"),
    ),
)

STAGING = Table(
    "staging",
    "one row for each node that copied a shared storage to its own disk, all nodes of the job at once",
    (
        CELL,
        STORAGE,
        HARDWARE,
        REPEAT,
        Column("visit", INT, None, "visit to the cell before which it was copied, for all cells of the job"),
        Column("job_nodes", INT, None, "nodes of the job"),
        Column("node", INT, None, "which of them, from 0"),
        Column("files", INT, None, "files copied"),
        Column("samples", INT, None, "samples in them"),
        Column("bytes", INT, "B", "bytes copied"),
        Column("seconds", REAL, "s", "from when all nodes began until this node's copy was whole"),
    ),
)

CONVERSIONS = Table(
    "conversions",
    "one row for a storage that was converted from another, unless the conversion was interrupted",
    (
        CELL,
        STORAGE,
        HARDWARE,
        REPEAT,
        Column("source", TEXT, None, "path of the storage that it was made of"),
        Column("samples", INT, None, "samples converted"),
        Column("threads", INT, None, "threads that converted"),
        Column("seconds", REAL, "s", "until all samples were written and compared"),
    ),
)

COPIES = Table(
    "copies",
    "one row for each timed copy of memory",
    (
        CELL,
        HARDWARE,
        REPEAT,
        RANK,
        Column(
            "copy",
            TEXT,
            None,
            "copy or triad (STREAM, in the host's memory); host to device (from pinned memory, or pageable), device to "
            "host, within the device, device to device",
        ),
        Column("threads", INT, None, "threads that copied"),
        VISIT,
        SAMPLE,
        Column("bytes", INT, "B", "bytes read and written; between memories those sent, once"),
        Column("seconds", REAL, "s", "duration"),
    ),
)

RECIPE = Column("recipe", TEXT, None, "recipe: optimiser, step-size schedule and their values")
TRIAL = Column("trial", INT, None, "point of what the recipe searches, from 1")
SEED = Column("seed", INT, None, "seed of the initial weights, of the order of the samples and of what is dropped out")
STEP = Column("step", INT, None, "updates of the weights so far")
_WHOLE_BATCH = Column("batch", INT, "samples", "B, samples in all workers' mini-batches together")
RUN_AXES = (
    CELL, NETWORK, HARDWARE, STORAGE, SYNC, RECIPE, NODES, WORKERS_PER_NODE, RANKS,
    _WHOLE_BATCH, TRIAL, SEED,
)  # fmt: skip
"""Which run of training to a target."""

CONVERGENCE = Table(
    "convergence",
    "one row for each evaluation of a network that is trained to a target, the one before the first step included",
    (
        *RUN_AXES,
        STEP,
        Column("samples", INT, None, "training samples seen so far"),
        Column("seconds", REAL, "s", "training so far, without evaluations and checkpoints"),
        Column("train_loss", REAL, None, "mean training loss since the evaluation before; empty before the first step"),
        Column("validation_loss", REAL, None, "mean cross-entropy of the validation samples"),
        Column("validation_accuracy", REAL, None, "share of the validation samples whose class is found"),
    ),
)

CONVERGENCE_RUNS = Table(
    "convergence_runs",
    "one row for each run of training to a target; what that took is linear in accuracy between evaluations",
    (
        *RUN_AXES,
        Column("target", REAL, None, "validation accuracy that was to be reached; empty where the run had none"),
        Column("reached", FLAG, None, "the target was reached"),
        Column("steps_to_target", REAL, None, "updates until then; empty where it was not reached, as below"),
        Column("samples_to_target", REAL, None, "training samples until then"),
        Column("seconds_to_target", REAL, "s", "training until then, without evaluations and checkpoints"),
        Column("best_accuracy", REAL, None, "best validation accuracy of all evaluations"),
        Column("best_step", INT, None, "updates before that evaluation, the first of equal ones"),
        Column(
            "ended",
            TEXT,
            None,
            "target (reached), most steps (that it was to make), diverged (a loss that is no number, or a validation "
            "loss well above that of the initial weights), stopped early (no better for as long as its patience) or "
            "walltime (its minutes are used up)",
        ),
        Column("step_size", REAL, None, "after warm-up, scaled for B"),
        Column("momentum", REAL, None, "momentum of the optimiser; 0 without"),
        Column("warmup_steps", INT, None, "updates in which the step size rose"),
        Column("settings", TEXT, None, "all fields of the recipe as JSON"),
    ),
)

GRADIENT_NOISE = Table(
    "gradient_noise",
    "one row for each step whose gradients' norms were recorded; none on one worker, and where gradients do not arrive "
    "whole on every worker (McCandlish et al. 2018, appendix A.1)",
    (
        *RUN_AXES,
        STEP,
        WORKER_BATCH,
        Column("small", REAL, None, "squared norm of a worker's gradient, of b samples: mean over the workers"),
        Column("large", REAL, None, "squared norm of their mean, the gradient of B samples"),
    ),
)

STALENESS = Table(
    "staleness",
    "one row for each gradient that a server applied, or each meeting of a worker with the centre of elastic averaging",
    (
        CELL, NETWORK, HARDWARE, NODES, WORKERS_PER_NODE, RANKS, BATCH, STORAGE, SYNC, VISIT,
        Column("server", INT, None, "rank beside which the server runs"),
        Column("update", INT, None, "number of the update of the server's weights, from 1; gradients can share it"),
        Column("worker", INT, None, "rank of the worker whose gradient it is"),
        Column("staleness", INT, None, "updates of these weights since the worker took them, this one not counted"),
    ),
)  # fmt: skip

TIDY_TABLES: tuple[Table, ...] = (
    RUNS, ENVIRONMENTS, SLURM_JOBS, VISITS, ITERATIONS, LAYERS, INSTRUMENTATION, PEAK_MEMORY, PROBES, INTERVENED, SGEMM,
    COLLECTIVES, CONTENTION, STORAGE_READS, STORAGE_PASSES, STORAGE_OPERATIONS, STAGING, CONVERSIONS, COPIES,
    CONVERGENCE, CONVERGENCE_RUNS, GRADIENT_NOISE, STALENESS,
)  # fmt: skip
"""Tables of raw records, in each cell's folder (`stallpoint.study.kinds` says which) and collected from all of them."""

# --- model tables ---------------------------------------------------------------------------------

LAYER_SCALING = Table(
    "layer_scaling",
    "compute time of each layer type at falling mini-batch on one worker: free communication",
    (
        NETWORK,
        HARDWARE,
        Column("layer_type", TEXT, None, "layer type, or all"),
        WORKER_BATCH,
        *_estimate("seconds", "s", "forward and backward time in one iteration"),
        *_estimate("share", None, "part of all layers' time"),
        *_estimate("speedup", None, "time at the largest measured mini-batch over time at this one", relative=True),
        Column("iterations", INT, None, "iterations of one worker that were recorded there, warm-up left out"),
        Column("disturbed", INT, None, "of these, disturbed"),
    ),
)

SGEMM_SPEEDUP = Table(
    "sgemm_speedup",
    "matrix products at falling mini-batch",
    (
        NETWORK,
        HARDWARE,
        Column("layer", TEXT, None, "layer, or reference (b x 4096 · 4096 x 9216)"),
        LAYER_TYPE,
        WORKER_BATCH,
        *_estimate("seconds", "s", "time of all operations of one forward pass"),
        *_estimate("gflops", "GFLOP/s", "rate"),
        *_estimate("speedup", None, "time at the largest measured mini-batch over time at this one", relative=True),
        Column(
            "roofline", REAL, "s", "larger of operations / peak and bytes / bandwidth, where the product has b rows"
        ),
    ),
)

MATRIX_PRODUCTS = Table(
    "matrix_products",
    "each layer's matrix products by the law t(b) = (floor^s + (each · B)^s)^(1/s), B: b in whole blocks of rows",
    (
        NETWORK,
        HARDWARE,
        Column("layer", TEXT, None, "layer, or reference (b x 4096 · 4096 x 9216)"),
        LAYER_TYPE,
        *_estimate("floor", "s", "time that does not fall with b"),
        *_estimate("each", "s", "time for each further sample"),
        *_estimate("traffic", None, "floor over the time to read the weights once at the measured bandwidth"),
        *_estimate("efficiency", None, "operations of a sample over each, as a part of the measured peak"),
        Column("block", INT, None, "rows computed at once"),
        Column("sharpness", REAL, None, "s: 1 where floor and arithmetic follow each other, large where they overlap"),
        Column("by_row", INT, None, "fewer rows than this are multiplied one by one"),
        Column("bent", FLAG, None, "the law is floor + each · b, bent as that of the machine's product `rows`"),
        Column("points", INT, None, "mini-batches measured"),
        Column("left_out_error", REAL, None, "median of |log(predicted / measured)| at each b, from the others"),
    ),
)

COMMUNICATION = Table(
    "communication",
    "time of a collective operation by message size, fitted for each place, and over places by its law: alpha + "
    "the sum over pieces of beta · (bytes of the message in that piece); one row for each piece",
    (
        HARDWARE,
        BACKEND,
        REDUCTION,
        OPERATION,
        Column(
            "fit",
            TEXT,
            None,
            "place: one number of nodes and workers on each; or the law over several, e.g. ring (factors 2(p-1) and "
            "2(p-1)/p), of a library with "
            "the size from which on the next one holds; average (...) where several are possible, the likeliest first",
        ),
        Column(
            "level",
            TEXT,
            None,
            "links that the times are of: inside a node, between nodes (beyond what is spent inside), or both as one",
        ),
        NODES,
        RANKS,
        Column("piece", INT, None, "piece of the curve, from 0; a fit with one piece is a straight line"),
        Column("from_bytes", REAL, "B", "message size at which the piece begins; it ends where the next one does"),
        *_estimate("alpha", "s", "latency"),
        *_estimate("beta", "s/B", "time for each byte in this piece"),
        Column("points", INT, None, "message sizes fitted"),
        Column("residual", REAL, None, "median of |fit - measured| / measured"),
    ),
)

PREDICTIONS = Table(
    "predictions",
    "iterations as the DAG model predicts them, by one model for each curve, and as they were measured; measured "
    "columns are empty where nobody ran, predicted ones where a part of the model was not measured",
    (
        *SERIES,
        NODES,
        RANKS,
        GLOBAL_BATCH,
        WORKER_BATCH,
        Column(
            "equation",
            TEXT,
            None,
            "equation of Shi et al. (2018) used, e.g. eq. 5; or sharded, pipeline, or outputs",
        ),
        Column("extrapolated", FLAG, None, "no cell was measured here"),
        Column("compute_source", TEXT, None, "where layer times come from: measured at b, interpolated in b, ..."),
        Column("predicted_data", REAL, "s", "predicted t_io: reading and decoding the mini-batch"),
        Column("predicted_forward", REAL, "s", "predicted t_f"),
        Column("predicted_backward", REAL, "s", "predicted t_b"),
        Column("predicted_communication", REAL, "s", "predicted t_c, all layers"),
        Column("predicted_exposed_communication", REAL, "s", "predicted t_c^no"),
        Column("predicted_update", REAL, "s", "predicted t_u"),
        Column("predicted_straggling", REAL, "s", "predicted wait for the slowest worker, or for other stages"),
        *_estimate("predicted_iteration", "s", "predicted iteration time"),
        *_estimate(
            "predicted_speedup", None, "predicted throughput over that at the fewest measured workers", relative=True
        ),
        *_estimate("predicted_efficiency", None, "predicted_speedup over the ratio of workers", relative=True),
        Column("measured_data", REAL, "s", "measured wait for data"),
        Column("measured_forward", REAL, "s", "measured forward pass"),
        Column("measured_backward", REAL, "s", "measured backward pass"),
        Column("measured_communication", REAL, "s", "measured time with an all-reduce under way"),
        Column("measured_exposed_communication", REAL, "s", "measured exposed communication"),
        Column("measured_update", REAL, "s", "measured update"),
        *_estimate("measured_iteration", "s", "measured iteration time, mean over ranks"),
        *_estimate(
            "measured_speedup", None, "measured throughput over that at the fewest measured workers", relative=True
        ),
        *_estimate("measured_efficiency", None, "measured_speedup over the ratio of workers", relative=True),
        *_estimate("held_out_iteration", "s", "iteration time as predicted without the cells measured here"),
        Column("error", REAL, None, "held_out_iteration / measured iteration time - 1"),
    ),
)

LAYER = tuple(
    column for column in LAYERS.columns if column.name in ("layer_index", "layer", "layer_type", "gradient_bytes")
)
"""Which layer it is."""
PHASES = ("data_wait", "host_to_device", "forward", "backward", "exposed_communication", "update")
"""What a worker does in an iteration, one after the other; together they are its time, but in a pipeline."""
TIMES = (
    "data_wait", "host_to_device", "forward", "backward", "communication", "exposed_communication", "update",
    "iteration_time",
)  # fmt: skip
"""What an iteration takes, and its parts."""
_DRAWN_OF_LAYERS = (
    "layer_index", "layer", "backward", "all_reduce_start", "all_reduce_end", "gradient_bytes", "message",
)  # fmt: skip

LAYER_PREDICTIONS = Table(
    "layer_predictions",
    "each layer's tasks in the DAG model and as measured, for measured cells (means, rank 0)",
    (
        *SERIES,
        NODES,
        RANKS,
        *LAYER,
        Column("predicted_forward", REAL, "s", "predicted forward time"),
        Column("measured_forward", REAL, "s", "measured forward time"),
        Column("predicted_backward", REAL, "s", "predicted backward time"),
        Column("measured_backward", REAL, "s", "measured backward time"),
        Column("predicted_all_reduce_start", REAL, "s", "predicted start, since the start of the backward pass"),
        Column("predicted_all_reduce_end", REAL, "s", "predicted end, since the start of the backward pass"),
        Column("measured_all_reduce_start", REAL, "s", "measured start, since the start of the backward pass"),
        Column("measured_all_reduce_end", REAL, "s", "measured end, since the start of the backward pass"),
    ),
)

LAYER_TIMES = Table(
    "layer_times",
    "each layer as measured on rank 0: means of every point, of one worker alone and imported ones included",
    (
        *SERIES,
        NODES,
        RANKS,
        GLOBAL_BATCH,
        WORKER_BATCH,
        *LAYER,
        Column("forward", REAL, "s", "forward time"),
        Column("backward", REAL, "s", "backward time"),
        Column("all_reduce_start", REAL, "s", "start of its all-reduce, since the start of the backward pass"),
        Column("all_reduce_end", REAL, "s", "end of its all-reduce, since the start of the backward pass"),
    ),
)

MEDIAN_ITERATIONS = Table(
    "median_iterations",
    "one iteration in full of each network, hardware and preset on most workers: its ranks, at most the 16 slowest",
    (
        CELL,
        *SERIES,
        NODES,
        RANKS,
        RANK,
        VISIT,
        ITERATION,
        Column("start", REAL, "s", "start of the iteration, since the first rank started it"),
        *(column for column in ITERATIONS.columns if column.name in TIMES),
        Column("wall", REAL, "s", "whole iteration on its slowest rank: the median of the cell's"),
        Column("of", INT, None, "iterations of which it is the median"),
    ),
)

MEDIAN_LAYERS = Table(
    "median_layers",
    "the layers of median_iterations",
    (CELL, RANK, ITERATION, *(column for column in LAYERS.columns if column.name in _DRAWN_OF_LAYERS)),
)


VALIDATION = Table(
    "validation",
    "iteration times at larger worker counts, predicted when training was seen on the smaller ones alone, and measured",
    (
        *SERIES,
        NODES,
        RANKS,
        WORKER_BATCH,
        Column("calibration", TEXT, None, "worker counts whose training the prediction knows"),
        *_estimate("predicted", "s", "predicted iteration time"),
        *_estimate("measured", "s", "measured iteration time, mean over ranks"),
        Column("error", REAL, None, "predicted / measured - 1"),
        Column("error_computing", REAL, None, "what of it is forward and backward pass"),
        Column("error_communication", REAL, None, "what of it is exposed communication; the rest is everything else"),
        Column("covered", FLAG, None, "measured lies in the interval of predicted"),
        Column("repeats", INT, None, "jobs that measured it"),
        Column("repeats_differ", REAL, None, "slower over faster of two of these jobs, minus 1 (mean over pairs)"),
    ),
)

AMDAHL = Table(
    "amdahl",
    "Amdahl's law S(n) = 1 / (s + (1-s)/n) fitted to falling compute time (free communication) and to measured speedup",
    (
        NETWORK,
        HARDWARE,
        Column("basis", TEXT, None, "compute (one worker at falling b, by layer type) or measured (strong scaling)"),
        Column("layer_type", TEXT, None, "layer type, or all"),
        Column("series", TEXT, None, "storage/sync/prefetch/batch of a measured curve; empty for compute"),
        *_estimate("serial_fraction", None, "s, the part that does not get faster"),
        *_estimate("stall_ranks", None, "workers from which doubling gains less than the threshold"),
        *_estimate("speedup_limit", None, "1 / s"),
        Column("points", INT, None, "different worker counts (or mini-batches) fitted"),
        Column("note", TEXT, None, "why nothing could be fitted; empty when it could"),
    ),
)

CRITICAL_PATH = Table(
    "critical_path",
    "where the time of an iteration goes; the parts add up to the iteration time",
    (
        *SERIES,
        NODES,
        RANKS,
        Column("basis", TEXT, None, "measured, or predicted where nobody ran so many workers"),
        Column(
            "part", TEXT, None,
            "data, host-to-device; fully-connected layers, other matrix layers, non-scaling layers (isolated), "
            "co-running ranks, communication thread (or compute, undivided); communication latency, communication "
            "bandwidth (or communication, undivided); straggling (in a pipeline bubble), update",
        ),
        Column("cause", TEXT, None, "cause that the part belongs to"),
        *_estimate("seconds", "s", "time on the critical path"),
        *_estimate("share", None, "part of the iteration time"),
    ),
)  # fmt: skip

CAUSES = Table(
    "causes",
    "what keeps an iteration from being n times faster (strong) or as fast as on the fewest (weak), above those",
    (
        *SERIES,
        NODES,
        RANKS,
        Column("basis", TEXT, None, "measured, or predicted where nobody ran so many workers"),
        Column(
            "cause", TEXT, None,
            "communication, matrix shapes, non-scaling layers, interference (or compute, undivided), training data, "
            "model update, straggling, pipeline bubble",
        ),
        *_estimate("lost", "s", "time of the iteration above ideal scaling, by this cause"),
        Column("share", REAL, None, "part of the iteration time"),
        Column("verdict", TEXT, None, "dominant, minor, or not distinguishable from the largest"),
    ),
)  # fmt: skip

DISTURBANCES = Table(
    "disturbances",
    "one row for each disturbed iteration, warm-up included",
    (
        CELL,
        HARDWARE,
        VISIT,
        ITERATION,
        Column(
            "reason",
            TEXT,
            None,
            "another process, steal, quota, throttled clock, slow machine, standstill; several by commas",
        ),
        Column("left_out", FLAG, None, "statistics do without it; not where too little of the cell would be left"),
    ),
)

CONTROLS = Table(
    "controls",
    "A/A controls: cells on one worker that do the same, and whether their iteration times agree",
    (
        HARDWARE,
        NETWORK,
        STORAGE,
        PREFETCH,
        WORKER_BATCH,
        Column("first", TEXT, None, "scaling and preset of the one, or compute"),
        Column("second", TEXT, None, "the same of the other"),
        *_estimate("ratio", None, "iteration time of the second over that of the first"),
        Column("p", REAL, None, "chance of a ratio so far from 1 where it is 1"),
        Column("agrees", FLAG, None, "no difference at 5 % over all pairs of the hardware entry (Holm)"),
    ),
)

STALLING = Table(
    "stalling",
    "how many workers: where each scaling curve stops getting faster, and what is worth its cost",
    (
        *SERIES,
        Column("stall_ranks", REAL, None, "workers from which doubling gains less than the threshold, the median"),
        Column("stall_ranks_low", REAL, None, "least of the fewest worker counts that together have 90 % probability"),
        Column("stall_ranks_high", REAL, None, "largest of them"),
        Column("reached", FLAG, None, "false: no stall up to largest_considered, which stall_ranks then holds"),
        Column("basis", TEXT, None, "measured, or predicted: by the DAG model beyond what was measured"),
        Column("verdict", TEXT, None, "of what was measured: stalls, scales, undecided, or withheld (why: note)"),
        Column("verdict_ranks", INT, None, "workers where it stalls, up to which it scales, or where it is undecided"),
        *_estimate("measured_speedup", None, "largest speedup at any worker count measured"),
        Column("measured_speedup_ranks", INT, None, "the worker count of that"),
        *_estimate("crossing_ranks", None, "workers where communication takes as long as compute; infinite: nowhere"),
        Column("crossing_after", REAL, None, "largest worker count below that is known: between it and the next one"),
        *_estimate("worthwhile_ranks", None, "most workers on which a sample costs at most 1/efficiency as much"),
        *_estimate("best_speedup", None, "largest speedup at any worker count considered"),
        Column("largest_measured", INT, None, "largest worker count measured"),
        Column("largest_considered", INT, None, "largest worker count considered"),
        Column("dominant_cause", TEXT, None, "cause that dominates at twice stall_ranks, or not distinguishable"),
        Column("withheld", TEXT, None, "why nothing is predicted where nobody measured; empty where it is"),
        Column("note", TEXT, None, "what is missing for an answer; empty when there is one"),
    ),
)

STALL_PROBABILITIES = Table(
    "stall_probabilities",
    "how probable it is that a scaling curve stalls at each worker count that has a double",
    (
        *SERIES,
        NODES,
        RANKS,
        Column("of", TEXT, None, "measured: of what was measured, as the verdict is; known: of predicted ones too"),
        Column("stalls", FLAG, None, "false: the largest worker count; no stall up to it"),
        Column("probability", REAL, None, "all of a curve's add up to 1"),
    ),
)

WHAT_IF = Table(
    "what_if",
    "every scaling curve as predicted for another cluster; scenario `as measured` is the prediction without change",
    (
        *SERIES,
        NODES,
        RANKS,
        Column("scenario", TEXT, None, "what is different, in words"),
        Column("bandwidth", REAL, None, "factor on the bandwidth of the links"),
        Column("latency", REAL, None, "factor on the latency of the links"),
        Column("compute_speed", REAL, None, "factor on the speed of forward and backward pass and update"),
        Column("gradient_bytes", REAL, None, "factor on the size of the gradients"),
        Column("straggling", REAL, None, "factor on waiting for the slowest worker"),
        Column("launches", REAL, None, "factor on the time that starting kernels takes"),
        Column("batch_factor", REAL, None, "factor on the mini-batch"),
        Column("scenario_batch", INT, "samples", "mini-batch: B for strong, b for weak scaling"),
        Column("scenario_prefetch", INT, None, "mini-batches read ahead"),
        Column("scenario_readers", REAL, None, "threads of a worker that read ahead; empty: as they were"),
        Column("scenario_storage", TEXT, None, "storage"),
        Column("scenario_sync", TEXT, None, "preset"),
        Column("link_latency", REAL, "s", "latency of the links in place of the measured ones"),
        Column("link_bandwidth", REAL, "B/s", "their bandwidth"),
        *_estimate("iteration", "s", "predicted iteration time"),
        *_estimate("speedup", None, "throughput over that predicted for the measured cluster on the fewest workers"),
        *_estimate("gain", None, "throughput over that predicted for the measured cluster on as many workers"),
        *_estimate("stall_ranks", None, "workers from which doubling gains less than the threshold, in this scenario"),
        Column("reached", FLAG, None, "false: no stall up to the largest worker count, which stall_ranks then holds"),
        Column("note", TEXT, None, "why nothing could be predicted; empty when it could"),
    ),
)

WHAT_IF_GRID = Table(
    "what_if_grid",
    "predicted iteration times of each network's fastest curve on a grid of factors, for the sliders of the report",
    (
        *SERIES,
        NODES,
        RANKS,
        GLOBAL_BATCH,
        Column("batch_factor", REAL, None, "factor on the mini-batch"),
        Column("gradient_bytes", REAL, None, "factor on the size of the gradients"),
        Column("compute", REAL, None, "factor on the time of forward and backward pass and update"),
        Column("latency", REAL, None, "factor on the latency of the links"),
        Column("transfer", REAL, None, "factor on the time that bytes take: 1 over that on the bandwidth"),
        Column("iteration", REAL, "s", "predicted iteration time, without interval"),
    ),
)

_FIT = "yes, no, undecided (the interval holds what is available) or unknown"

REMEDIES = Table(
    "remedies",
    "what would help each scaling curve on the most workers measured, and the cell that would confirm it",
    (
        *SERIES,
        NODES,
        RANKS,
        Column("remedy", TEXT, None, "what is done, in words"),
        Column("changes", TEXT, None, "what it changes: mini-batch, accumulation, preset, link, readers, ..."),
        Column("also", TEXT, None, "what else it changes, or takes; empty where nothing"),
        *_estimate("gain", None, "throughput over that predicted without it; empty where a part was not measured"),
        Column("at_most", FLAG, None, "whether it gains that at most: what it avoids is taken to cost nothing"),
        *_estimate("memory", "B", "most memory of a worker with it, as predicted"),
        Column("fits", TEXT, None, f"whether that fits: {_FIT}"),
        Column(
            "verdict",
            TEXT,
            None,
            "helps: the interval lies above a gain of 5 %; no gain: below; undecided: it holds that; does not fit; "
            "unknown: not predicted",
        ),
        Column("cell", TEXT, None, "what a study needs to measure it, in YAML; empty where no cell can"),
        Column("node_hours", REAL, "h", "nodes times the time that this cell takes"),
        Column("rank_in_curve", INT, None, "place among the remedies of the curve; 1: the first to try"),
    ),
)

NEXT_CELLS = Table(
    "next_cells",
    "cells that nobody ran: what each would tell about the stalling point, and what it costs",
    (
        *SERIES,
        Column("kind", TEXT, None, "train, collectives or compute (a train cell of scaling compute)"),
        NODES,
        RANKS,
        WORKER_BATCH,
        Column(
            "width",
            REAL,
            "doublings",
            "90 % interval of the stalling point today (3.29 standard deviations), errors of the model included",
        ),
        Column("expected_width", REAL, "doublings", "the same, expected once the cell is measured"),
        Column("narrowing", REAL, "doublings", "width - expected_width"),
        Column("node_hours", REAL, "h", "nodes times the time the job takes"),
        Column("narrowing_per_node_hour", REAL, "doublings/h", "narrowing / node_hours"),
        Column("rank_in_curve", INT, None, "place among the cells of the curve, by narrowing_per_node_hour; 1: next"),
    ),
)

PAPER_FIGURES = Table(
    "paper_figures",
    "figures of a paper, computed by the models from the parameters it states",
    (
        Column("paper", TEXT, None, "whose parameters"),
        Column("figure", INT, None, "figure of the paper"),
        NETWORK,
        Column("hardware", TEXT, None, "compute unit of the paper"),
        GLOBAL_BATCH,
        NODES,
        WORKER_BATCH,
        Column("compute", REAL, "s", "compute time of an iteration"),
        Column("communication", REAL, "s", "communication time of an iteration"),
        Column("iteration_time", REAL, "s", "whole iteration"),
        Column("speedup", REAL, None, "throughput over that of one node"),
        Column("crossing_ranks", REAL, None, "workers where communication takes as long as compute; infinite: nowhere"),
        Column("stall_ranks", REAL, None, "workers from which doubling gains less than wanted; infinite: nowhere"),
    ),
)

STORAGE_RATES = Table(
    "storage_rates",
    "reading the training set: rates over all nodes and latency percentiles",
    (
        STORAGE,
        HARDWARE,
        NODES,
        WORKERS_PER_NODE,
        RANKS,
        *_READING,
        *_ORIGIN,
        *_SOURCE,
        Column("metadata", TEXT, None, "what the nodes knew of the files before: cold, warm or unknown"),
        Column("resident", REAL, None, "share found in the page cache before the pass; null where unknown"),
        Column("set_over_memory", REAL, None, "size of the training set over the memory of all nodes"),
        *_estimate("samples_per_second", "1/s", "samples read by all nodes together"),
        *_estimate("bytes_per_second", "B/s", "bytes read by all nodes together"),
        Column("latency_p50", REAL, "s", "median time to read a sample"),
        Column("latency_p95", REAL, "s", "95th percentile"),
        Column("latency_p99", REAL, "s", "99th percentile"),
    ),
)

STORAGE_OPERATION_RATES = Table(
    "storage_operation_rates",
    "operations on a storage that are not the reading of a sample: of one worker, while all do the same",
    (
        STORAGE,
        HARDWARE,
        NODES,
        WORKERS_PER_NODE,
        RANKS,
        Column("operation", TEXT, None, "as in storage_operations"),
        Column("metadata", TEXT, None, "as in storage_operations"),
        Column("origin", TEXT, None, "as in storage_operations"),
        *_estimate("seconds", "s", "mean time of one"),
        *_estimate("per_second", "1/s", "operations of one worker in a second"),
        *_estimate("bytes_per_second", "B/s", "bytes of one worker in a second; empty for stat and open"),
        Column("latency_p50", REAL, "s", "median time of one"),
        Column("latency_p95", REAL, "s", "95th percentile"),
        Column("latency_p99", REAL, "s", "99th percentile"),
    ),
)

COPY_RATES = Table(
    "copy_rates",
    "how fast memory is copied",
    (
        HARDWARE,
        Column("copy", TEXT, None, "as in copies"),
        Column("threads", INT, None, "threads that copied"),
        *_estimate("bytes_per_second", "B/s", "bytes over the mean duration"),
    ),
)

DATA_SHARE = Table(
    "data_share",
    "part of an iteration spent waiting for training data",
    (
        *SERIES,
        NODES,
        RANKS,
        WORKER_BATCH,
        *_estimate("data_wait", "s", "wait for data in one iteration"),
        *_estimate("share", None, "wait for data over iteration time"),
    ),
)

SATURATION = Table(
    "saturation",
    "at how many workers that read at once each storage gives no more, by the fit of its reads",
    (
        HARDWARE,
        STORAGE,
        Column("readers", INT, None, "threads of a worker that read at once"),
        WORKERS_PER_NODE,
        *_estimate("saturation_ranks", None, "workers whose double read less than threshold more together; the median"),
        Column("reached", FLAG, None, "whether it saturates up to largest_considered"),
        Column(
            "verdict",
            TEXT,
            None,
            "saturates or keeps pace, where one worker count has 90 % and no place was visited once; else undecided",
        ),
        Column(
            "verdict_ranks",
            INT,
            None,
            "workers at which it saturates, to which it keeps pace, or from which it is open; 0: nothing is known",
        ),
        Column("deciding", TEXT, None, "what would decide it, where it is undecided"),
        Column("largest_measured", INT, None, "most workers that read at once"),
        Column("largest_considered", INT, None, "most workers that were looked at"),
    ),
)

FEEDING = Table(
    "feeding",
    "whether training data keeps the workers of each scaling curve busy, and how many readers that takes",
    (
        *SERIES,
        NODES,
        RANKS,
        WORKER_BATCH,
        Column("basis", TEXT, None, "whether the iteration was measured or predicted"),
        *_estimate("utilisation", None, "accelerator utilisation: part of the iteration without its wait for data"),
        *_estimate("predicted_utilisation", None, "the same as predicted, of measured places without their own cells"),
        Column("readers", INT, None, "reader threads of a worker; 1 where it reads in line"),
        *_estimate("read_time", "s", "time in which one reader reads and decodes a worker's mini-batch"),
        *_estimate("busy_time", "s", "iteration without its wait for data"),
        *_estimate("readers_needed", None, "read_time over busy_time: so many readers ahead keep a worker busy"),
    ),
)

RATES = Table(
    "rates",
    "measured scaling curves of the study, in the form external tables have",
    (
        Column("series", TEXT, None, "what stays fixed along the curve: " + "/".join(column.name for column in SERIES)),
        WORKERS,
        Column("workers_per_node", REAL, None, "workers on each node; the mean where nodes differ, empty if unknown"),
        Column("samples_per_second", REAL, "1/s", "samples trained by all workers together"),
        Column("batch_per_worker", REAL, "samples", "b, samples in one worker's mini-batch; empty if unknown"),
    ),
)

SCALING_LAWS = Table(
    "scaling_laws",
    "throughput of each scaling curve by each scaling law and by their average, beside the DAG model",
    (
        *SERIES,
        NODES,
        RANKS,
        Column("law", TEXT, None, "scaling law, or chosen: the law that wins or, where none does, the average"),
        Column("weight", REAL, None, "how well the law predicts larger node counts from smaller ones, over all laws"),
        *_estimate("samples_per_second", "1/s", "throughput by the law, as a new measurement would find it"),
        *_estimate("dag_samples_per_second", "1/s", "throughput by the DAG model"),
        *_estimate("measured_samples_per_second", "1/s", "measured throughput"),
        Column("note", TEXT, None, "what was chosen, or why nothing could be; empty for single laws"),
    ),
)

EXTRAPOLATION = Table(
    "extrapolation",
    "rates of a table's series at each worker count, by scaling laws",
    (
        Column("series", TEXT, None, "series of the table"),
        WORKERS,
        Column("predicted", REAL, "1/s", "samples per second; empty where the data cannot tell"),
        Column("lower", REAL, "1/s", "lower end of the 90 % interval of a new measurement"),
        Column("upper", REAL, "1/s", "upper end of the 90 % interval of a new measurement"),
        Column("law", TEXT, None, "law or laws averaged, or why nothing is predicted; and what would tell more"),
    ),
)

EXTRAPOLATIONS = Table(
    "extrapolations",
    "rates of the external tables' series, at their own worker counts and beyond",
    (
        TABLE,
        *EXTRAPOLATION.columns,
        Column("measured", REAL, "1/s", "median of what was measured there; empty where nothing was"),
    ),
)

LAW_PARAMETERS = Table(
    "law_parameters",
    "coefficients of each scaling law, fitted to each series of the study and of external tables",
    (
        TABLE,
        Column("series", TEXT, None, "series of the table"),
        Column("law", TEXT, None, "scaling law"),
        Column("weight", REAL, None, "how well the law predicts larger worker counts from smaller ones, over all laws"),
        Column("coefficient", TEXT, None, "name of the coefficient in docs/models/scaling-laws.md"),
        *_estimate("value", None, "the coefficient: median"),
        Column("note", TEXT, None, "not identifiable, where the interval is hardly narrower than before measuring"),
    ),
)

LAW_VALIDATION = Table(
    "law_validation",
    "predicted against measured at counts left out: each series fitted up to a quarter of its largest count",
    (
        TABLE,
        *EXTRAPOLATION.columns,
        Column("measured", REAL, "1/s", "median of what was measured there"),
        Column("fitted_up_to", INT, None, "largest worker count that was fitted"),
        Column("error", REAL, None, "predicted / measured - 1"),
        Column("covered", FLAG, None, "measured lies in the interval"),
    ),
)

HALVINGS = Table(
    "halvings",
    "what each halving of the mini-batch gains in compute time on one worker, from one measured mini-batch to the next",
    (
        NETWORK,
        HARDWARE,
        Column("basis", TEXT, None, "layers (of training, free communication) or sgemm (matrix products alone)"),
        Column(
            "layer", TEXT, None, "layer, or reference (b x 4096 · 4096 x 9216); empty for layers of one type together"
        ),
        Column("layer_type", TEXT, None, "layer type, or all"),
        Column("worker_batch", INT, "samples", "b, the larger mini-batch"),
        Column("to_batch", INT, "samples", "the next smaller one that was measured"),
        *_estimate("gain", None, "factor by which time falls with each halving: 2 in proportion to b, 1 not at all"),
    ),
)

CURVE_DISTANCES = Table(
    "curve_distances",
    "how far the speedup of a matrix product at falling mini-batch is from that of the whole network's compute time",
    (
        NETWORK,
        HARDWARE,
        Column("layer", TEXT, None, "layer, or reference (b x 4096 · 4096 x 9216)"),
        Column("layer_type", TEXT, None, "type of the layer"),
        Column("largest_batch", INT, "samples", "largest mini-batch at which both were measured; speedups refer to it"),
        Column("smallest_batch", INT, "samples", "smallest one"),
        Column("points", INT, None, "mini-batches compared, the largest left out"),
        *_estimate("distance", None, "mean of |log(speedup of the product / speedup of the network)|; 0: one shape"),
    ),
)

HIDDEN_COMMUNICATION = Table(
    "hidden_communication",
    "what communicating costs an iteration of several ranks, and how much of the communication the backward pass hides",
    (
        *SERIES,
        NODES,
        RANKS,
        *_estimate("communication", "s", "time with an all-reduce under way"),
        *_estimate("exposed", "s", "of it after the backward pass"),
        *_estimate("isolated", "s", "what the same messages take on idle workers"),
        *_estimate("without", "s", "iteration time of the same cell without communication; empty: not measured"),
        *_estimate("cost", "s", "iteration time less that: what communicating costs"),
        *_estimate("hidden", "s", "isolated - cost; negative where overlapping costs more than it hides"),
        *_estimate("hidden_share", None, "hidden over isolated"),
        *_estimate("of_backward", None, "communication over the backward pass, which could hide it"),
    ),
)

INTERVENTIONS = Table(
    "interventions",
    "what training saves with one thing left out, beside the parts of the critical path that should go with it",
    (
        *SERIES,
        NODES,
        RANKS,
        INTERVENTION,
        Column("parts", TEXT, None, "those parts, joined by semicolons"),
        *_estimate("saved", "s", "iteration time less that with it left out, both measured in turns"),
        *_estimate("parted", "s", "what the parts take together"),
        Column("agrees", FLAG, None, "whether their intervals overlap"),
    ),
)

COMPARISONS = Table(
    "comparisons",
    "each measured point beside another one that differs in nothing but storage, preset or prefetch",
    (
        *SERIES,
        NODES,
        RANKS,
        Column("axis", TEXT, None, "what differs: storage, sync or prefetch"),
        Column("against", TEXT, None, "its value at the other point"),
        *_estimate("throughput", None, "throughput over that of the other"),
        *_estimate("exposed", None, "exposed communication over that of the other, on more than one rank"),
    ),
)

TRAFFIC = Table(
    "traffic",
    "bytes that an iteration and an epoch move, for measured points of more than one rank whose storage was read alone",
    (
        *SERIES,
        NODES,
        RANKS,
        Column("data_bytes", INT, "B", "the samples of the global mini-batch, at their mean size"),
        Column("gradient_bytes", INT, "B", "gradients and weights of n workers and a parameter server: 2(n-1) models"),
        Column("epoch_data_bytes", REAL, "B", "samples of an epoch of epoch_samples"),
        Column("epoch_gradient_bytes", REAL, "B", "gradient_bytes of the iterations of such an epoch"),
    ),
)

BREAK_EVEN = Table(
    "break_even",
    "staging or packing a storage beside reading it as it was, for measured points of both",
    (
        *SERIES,
        NODES,
        Column("remedy", TEXT, None, "staging (copied to the nodes' own disks) or packing (converted into its format)"),
        Column("before", TEXT, None, "storage entry of the same samples without that"),
        *_estimate("seconds", "s", "what it takes, once: staging on the slowest node, or converting"),
        *_estimate("wait_before", "s", "wait for data in an epoch of the set, without"),
        *_estimate("wait_after", "s", "the same, with"),
        Column("verdict", TEXT, None, "pays, never pays, or undecided: the interval of what an epoch gains holds 0"),
        *_estimate("epochs", None, "epochs after which it has paid; empty unless it does"),
    ),
)

UTILISATION = Table(
    "utilisation",
    "what training makes of what its hardware is rated for, and what an epoch costs, for measured node counts",
    (
        *SERIES,
        NODES,
        RANKS,
        GLOBAL_BATCH,
        WORKER_BATCH,
        *_estimate("samples_per_second", "1/s", "global mini-batch over the iteration time"),
        *_estimate("tokens_per_second", "1/s", "the same of tokens, of networks that take sequences of them"),
        *_estimate(
            "flops",
            "FLOP/s",
            "a worker's operations, 6 for each multiply-add of a forward pass, over the iteration time",
        ),
        *_estimate("flops_share", None, "flops over rated_tflops of the hardware: model FLOP/s utilisation"),
        *_estimate("link", "B/s", "bytes of all gradients, 4 for each, over the time of communication between nodes"),
        *_estimate("link_share", None, "link over rated_gbits of the hardware"),
        *_estimate("epoch_time", "s", "time for epoch_samples samples"),
        *_estimate("epoch_node_hours", "h", "epoch_time of all nodes"),
        *_estimate("epoch_energy", "kWh", "epoch_node_hours by node_watts of the hardware"),
    ),
)

_MEMORY = (
    NETWORK,
    HARDWARE,
    Column("workers_per_node", INT, None, "workers that share a node"),
    SYNC,
    PREFETCH,
    Column(
        "shards", INT, None, "parts that the optimiser's state is in, and weights and gradients where they are sharded"
    ),
    Column("memory", TEXT, None, "host or device (the GPU's)"),
)
"""Training whose memory depends on b alone, and which memory it is."""

MEMORY = Table(
    "memory",
    "the most memory that a worker's training takes, by b: as measured, what of it is what, and by fixed + slope · b",
    (
        *_MEMORY,
        WORKER_BATCH,
        *_estimate("peak", "B", "most memory, of the rank that needs most"),
        Column("process", REAL, "B", "of it programs and libraries; not counted on a GPU"),
        Column("weights", REAL, "B", "of it parameters and buffers of the network; 0 where they are on the device"),
        Column("gradients", REAL, "B", "of it gradients of the parameters; 0 likewise"),
        Column("optimiser", REAL, "B", "of it what the optimiser keeps; 0 likewise"),
        Column("rest", REAL, "B", "of it all else: activations, mini-batches, messages and what the allocator wastes"),
        *_estimate("predicted", "B", "fixed + slope · b; empty with fewer than two b"),
    ),
)

LARGEST_BATCH = Table(
    "largest_batch",
    "the largest mini-batch of a worker that fits into its memory",
    (
        *_MEMORY,
        Column("available", REAL, "B", "memory that a worker may use, the least of all its cells"),
        *_estimate("fixed", "B", "memory that does not depend on b"),
        *_estimate("slope", "B", "memory for each further sample"),
        Column("largest_measured", REAL, "samples", "largest b that was trained; empty if none was"),
        Column("smallest_failed", REAL, "samples", "smallest b that ran out of memory; empty if none did"),
        *_estimate("largest_batch", "samples", "largest b that fits"),
        Column(
            "basis",
            TEXT,
            None,
            "measured: a smaller b was trained and a larger one ran out of memory; predicted: by fixed + slope · b; "
            "unknown",
        ),
        Column("note", TEXT, None, "what is missing where it is unknown"),
    ),
)

FITS = Table(
    "fits",
    "whether training fits into a worker's memory, by what one worker alone takes and what the preset divides",
    (
        *SERIES,
        NODES,
        RANKS,
        WORKER_BATCH,
        Column("memory", TEXT, None, "host or device (the GPU's)"),
        *_estimate("predicted", "B", "most memory of a worker"),
        Column("measured", REAL, "B", "the same as measured, of the rank that needs most; empty where nobody trained"),
        Column("available", REAL, "B", "memory that a worker may use, the least of the cells that are alike"),
        Column("fits", TEXT, None, _FIT),
    ),
)

TARGET = Column("target", REAL, None, "validation accuracy that was to be reached")
_OF_TRAINING = (NETWORK, STORAGE, SYNC, RECIPE)
_STEPS_OF = (
    Column("steps_storage", TEXT, None, "storage of the runs to the target that the steps are of"),
    Column("steps_sync", TEXT, None, "preset of those runs"),
    RECIPE,
    TARGET,
)
_STEPS_RANKS = "workers of the runs that the steps are of; 0: their number changes no step"


def _stall(when: str) -> tuple[Column, ...]:
    """The columns of a stalling point."""
    return (
        Column("stall_ranks", REAL, None, f"workers from which doubling {when}, the median"),
        Column("stall_ranks_low", REAL, None, "least of the fewest worker counts that together have 90 % probability"),
        Column("stall_ranks_high", REAL, None, "largest of them"),
        Column("reached", FLAG, None, "false: no stall up to largest_considered, which stall_ranks then holds"),
        Column("verdict", TEXT, None, "stalls, scales or undecided"),
        Column("verdict_ranks", INT, None, "workers where it stalls, up to which it scales, or where it is undecided"),
    )


STEPS_TO_TARGET = Table(
    "steps_to_target",
    "steps to a target accuracy at each mini-batch B, as trained and by S(B) = S_min + E_min / B",
    (
        *_OF_TRAINING,
        TARGET,
        Column("ranks", INT, None, _STEPS_RANKS),
        _WHOLE_BATCH,
        Column("runs", INT, None, "all runs, of all trials and seeds"),
        Column("runs_reached", INT, None, "those of them that reached the target"),
        Column("trial", INT, None, "that which reached it with every seed in the fewest steps; -1 where none did"),
        Column("best_accuracy", REAL, None, "highest validation accuracy of any run"),
        *_estimate("steps", None, "steps of that trial, mean over its seeds"),
        *_estimate("samples", "samples", "B · steps"),
        *_estimate("fitted_steps", None, "S(B), fitted to all B"),
        *_estimate("held_out_steps", None, "S(B), fitted to all other B, with how far they lie from such a fit"),
        Column("error", REAL, None, "held_out_steps / steps - 1"),
        Column(
            "regime", TEXT, None,
            "what doubling B does by the fit: perfect scaling, diminishing returns, no gain, or undecided",
        ),
    ),
)  # fmt: skip

NOISE_SCALE = Table(
    "noise_scale",
    "the noise scale of gradients, in four equal parts of a training",
    (
        *_OF_TRAINING,
        _WHOLE_BATCH,
        Column("part", INT, None, "part of the training's steps, from 1"),
        Column("steps", INT, None, "steps in it whose gradients' norms were recorded, of all runs"),
        *_estimate("noise_scale", "samples", "B_simple = tr(Σ) / |G|²; infinite: no gradient is told from the noise"),
    ),
)

CRITICAL_BATCHES = Table(
    "critical_batches",
    "the mini-batch up to which larger ones pay: by steps to a target, and by the noise of gradients",
    (
        *_OF_TRAINING,
        TARGET,
        Column("ranks", INT, None, _STEPS_RANKS),
        Column("batches", INT, None, "different B that reached the target"),
        Column("largest_reaching", INT, "samples", "the largest of them; 0 where none did"),
        *_estimate("least_steps", None, "S_min: steps that are needed however large B is"),
        *_estimate("least_samples", "samples", "E_min: samples that are needed however small B is"),
        *_estimate(
            "bend", None, "how sharply the one becomes the other: 1 by McCandlish et al. (2018), more if sharper"
        ),
        *_estimate(
            "critical_batch",
            "samples",
            "B_crit = E_min / S_min; infinite: steps fell in proportion to B; of two B without interval",
        ),
        *_estimate("perfect_to", "samples", "B up to which doubling it is perfect scaling, by the fit"),
        *_estimate("no_gain_from", "samples", "B from which doubling it gains nothing, by the fit"),
        *_estimate("noise_scale", "samples", "B_simple of the whole training at all B"),
        *_estimate("noise_over_critical", None, "noise_scale / critical_batch"),
    ),
)

TIME_TO_ACCURACY = Table(
    "time_to_accuracy",
    "time to a target accuracy at each place of a scaling curve: steps at its B times its iteration time",
    (
        *SERIES,
        NODES,
        RANKS,
        GLOBAL_BATCH,
        *_STEPS_OF,
        Column("steps_ranks", INT, None, _STEPS_RANKS),
        Column("basis", TEXT, None, "of the iteration time: measured or predicted"),
        *_estimate("steps", None, "steps to the target at this B, trained or fitted; empty beyond what reached it"),
        *_estimate("time", "s", "steps · iteration time"),
        *_estimate(
            "speedup", None, "time on the fewest workers over time, both iterations of one basis", relative=True
        ),
        *_estimate(
            "throughput_speedup", None, "throughput over that on the fewest workers, of the same", relative=True
        ),
        *_estimate(
            "statistical_efficiency",
            None,
            "samples that the smallest B needs over those that this one needs",
            relative=True,
        ),
        *_estimate("goodput", "samples/s", "throughput · statistical_efficiency"),
        *_estimate("noise_efficiency", None, "statistical efficiency as the noise scale φ has it: (φ + B₀) / (φ + B)"),
    ),
)

TARGET_TIMES = Table(
    "target_times",
    "time to a target as trained: a row for each preset, recipe, B and place, beside the fastest at that place and a "
    "prediction that knows nothing of these runs",
    (
        NETWORK,
        HARDWARE,
        STORAGE,
        SYNC,
        RECIPE,
        TARGET,
        NODES,
        WORKERS_PER_NODE,
        RANKS,
        _WHOLE_BATCH,
        Column("runs", INT, None, "all runs, of all trials and seeds"),
        Column("runs_reached", INT, None, "those of them that reached the target"),
        Column("trial", INT, None, "that which reached it with every seed in the fewest steps; -1 where none did"),
        *_estimate("time", "s", "training until then, mean over the seeds of that trial"),
        *_estimate("steps", None, "its steps"),
        *_estimate("step_time", "s", "time / steps"),
        *_estimate("slower", None, "time over that of the fastest at this place"),
        *_estimate("more_steps", None, "steps over those of the fastest"),
        *_estimate("longer_steps", None, "step_time over that of the fastest; slower = more_steps · longer_steps"),
        Column("verdict", TEXT, None, "fastest, slower, not distinguishable (from the fastest), or not reached"),
        *_estimate(
            "predicted", "s", "steps of a fit to all other B, times an iteration that was predicted without this place"
        ),
        Column("error", REAL, None, "predicted / time - 1"),
    ),
)

TARGET_STALLING = Table(
    "target_stalling",
    "how many workers: where the time to a target by the fastest way at each worker count stops falling",
    (
        NETWORK,
        HARDWARE,
        STORAGE,
        TARGET,
        WORKERS_PER_NODE,
        Column("of", TEXT, None, "trained: of runs to the target; known: of steps · iteration time, on any curve"),
        *_stall("saves less than the threshold"),
        Column("largest_considered", INT, None, "largest worker count with a known time; 0: no two of them"),
    ),
)

EARLY_STOPPING = Table(
    "early_stopping",
    "large mini-batches beside stopping the smallest early, at equal accuracy (Keuper & Pfreundt 2016, section III-C)",
    (
        *_OF_TRAINING,
        _WHOLE_BATCH,
        Column("against", INT, "samples", "smallest B, which is stopped early"),
        *_estimate("accuracy", None, "best validation accuracy at B, mean over seeds of its best trial"),
        *_estimate("difference", None, "accuracy - that of the smallest B trained to its end"),
        Column("verdict", TEXT, None, "lower, higher or not distinguishable, by that difference"),
        *_estimate("speedup", None, "steps of the whole training at the smallest B over those at B", relative=True),
        *_estimate(
            "early_speedup",
            None,
            "steps of the whole training at the smallest B over its steps until that accuracy; 1 where it has less",
        ),
        *_estimate("early_over_batch", None, "early_speedup / speedup"),
    ),
)

ACCURACY_STALLING = Table(
    "accuracy_stalling",
    "how many workers: where the time to a target accuracy stops falling, for each scaling curve and target",
    (
        *SERIES,
        *_STEPS_OF,
        *_stall("saves less than the threshold"),
        Column("largest_considered", INT, None, "largest worker count with a known time; 0: no two of them"),
    ),
)

_SERVED = (NETWORK, HARDWARE, STORAGE, SYNC, BATCH, NODES, WORKERS_PER_NODE, RANKS)
_GRADIENTS = Column("gradients", INT, None, "gradients that servers applied; each server applies its own share")

STALENESS_SHARES = Table(
    "staleness_shares",
    "how stale the gradients were that servers applied: the distribution in each training",
    (
        *_SERVED,
        Column("staleness", INT, None, "updates of the weights since the worker took them, its own not counted"),
        _GRADIENTS,
        Column("share", REAL, None, "part of all gradients of this training"),
    ),
)

WORKER_STALENESS = Table(
    "worker_staleness",
    "how stale each worker's gradients were; a slow worker's are more so",
    (
        *_SERVED,
        Column("worker", INT, None, "rank of the worker"),
        _GRADIENTS,
        *_estimate("mean_staleness", None, "mean; of equally fast workers their number less one"),
        *_estimate("over_workers", None, "mean_staleness, the gradient's own update counted, over the workers"),
        Column("largest_staleness", INT, None, "the largest one seen"),
    ),
)

MODEL_TABLES: tuple[Table, ...] = (
    LAYER_SCALING, SGEMM_SPEEDUP, MATRIX_PRODUCTS, COMMUNICATION, PREDICTIONS, LAYER_PREDICTIONS, LAYER_TIMES,
    MEDIAN_ITERATIONS, MEDIAN_LAYERS, VALIDATION, AMDAHL,
    CRITICAL_PATH, CAUSES, CONTROLS, DISTURBANCES, STALLING, STALL_PROBABILITIES, WHAT_IF, WHAT_IF_GRID, REMEDIES,
    NEXT_CELLS, STORAGE_RATES, STORAGE_OPERATION_RATES, DATA_SHARE, FEEDING, SATURATION, RATES, SCALING_LAWS, HALVINGS,
    CURVE_DISTANCES, HIDDEN_COMMUNICATION, INTERVENTIONS, COMPARISONS, TRAFFIC, UTILISATION, COPY_RATES, BREAK_EVEN,
    MEMORY, LARGEST_BATCH, FITS, STEPS_TO_TARGET, NOISE_SCALE, CRITICAL_BATCHES, TIME_TO_ACCURACY, ACCURACY_STALLING,
    STALENESS_SHARES, WORKER_STALENESS, TARGET_TIMES, TARGET_STALLING, EARLY_STOPPING,
)  # fmt: skip

EXTRAPOLATED_TABLES: tuple[Table, ...] = (EXTRAPOLATIONS, LAW_PARAMETERS, LAW_VALIDATION)
"""What scaling laws say of external tables and of the study's own rates."""

# --- networks, as they are before anything is measured ---------------------------------------------

NETWORK_LAYERS = Table(
    "network_layers",
    "one row for each layer of a network",
    (
        NETWORK,
        Column("layer_index", INT, None, "position in the forward pass, from 0"),
        Column("layer", TEXT, None, "name of the layer"),
        LAYER_TYPE,
        Column(
            "parameters",
            INT,
            None,
            "learned values; what layers share is counted at the first of them; empty where only traces tell of it",
        ),
        Column("gradient_bytes", INT, "B", "size of its gradients"),
        Column(
            "multiply_adds",
            INT,
            None,
            "multiply-adds of its matrix products in one sample's forward pass; empty where only traces tell of it",
        ),
        Column(
            "handed_on",
            INT,
            "B",
            "what the stage of a pipeline that ends with it hands on for one sample; empty where none can end",
        ),
        Column(
            "outputs",
            INT,
            None,
            "its outputs, where preset one-weird-trick splits them over workers; empty for all other layers",
        ),
    ),
)

PUBLISHED = Table(
    "published",
    "one row for each cell of a published table of network properties: theirs beside ours",
    (
        Column("source", TEXT, None, "where it was published"),
        Column("property", TEXT, None, "what the row of the published table says"),
        NETWORK,
        Column("published", REAL, None, "their value, in the unit of the property's name"),
        Column("ours", REAL, None, "our value in the same unit; empty where we have none"),
        Column("digits", INT, None, "significant digits that their value was published with"),
        Column("agrees", FLAG, None, "ours, rounded to as many digits, is theirs"),
        Column("explanation", TEXT, None, "why ours differs; empty where it agrees"),
    ),
)

CLAIMS = Table(
    "claims",
    "one row for each claim and each combination of the study that it was judged for",
    (
        Column("paper", TEXT, None, "who claims it"),
        Column("claim", TEXT, None, "id of the claim"),
        Column("sentence", TEXT, None, "what is claimed"),
        Column("source", TEXT, None, "where the paper says so"),
        Column("verdict", TEXT, None, "over all combinations: holds, does not hold, not distinguishable or not tested"),
        Column("combination", TEXT, None, "what of the study this row is about, e.g. network alexnet, hardware local"),
        Column("combination_verdict", TEXT, None, "the same four, for this combination"),
        Column("quantity", TEXT, None, "which number decides"),
        Column("condition", TEXT, None, "what it must be"),
        *_estimate("value", None, "the number, in SI units; an end that is unbounded is infinite"),
        Column("basis", TEXT, None, "measured, predicted or both, where the table says so"),
        Column("rows", INT, None, "rows of the table that the number was taken from"),
        Column("missing", TEXT, None, "what the study lacks to test it; empty when it was tested"),
        Column("chart", TEXT, None, "chart that shows it"),
    ),
)

# --- what an archive adds -------------------------------------------------------------------------

ACCOUNTING = Table(
    "accounting",
    "one row for each Slurm job of the study, as Slurm's accounting (sacct) knows it",
    (
        Column("slurm_job_id", TEXT, None, "Slurm job"),
        Column("partition", TEXT, None, "partition"),
        Column("state", TEXT, None, "how it ended, such as COMPLETED or OUT_OF_MEMORY"),
        Column("exit_code", TEXT, None, "exit status:signal"),
        Column("reason", TEXT, None, "why it did not complete, in words; empty when it did"),
        Column("submitted", TEXT, None, "when it was submitted, local time"),
        Column("started", TEXT, None, "when it started, local time"),
        Column("ended", TEXT, None, "when it ended, local time"),
        Column("elapsed", INT, "s", "time from start to end"),
        Column("nodes", INT, None, "nodes given"),
        Column("node_hours", REAL, "h", "elapsed time times the nodes given"),
        Column("cpus", INT, None, "cores given"),
        Column("cpu_time", INT, "s", "elapsed time times the cores given"),
        Column("energy", INT, "J", "energy its nodes took; empty where Slurm measures none"),
        Column("requested", TEXT, None, "trackable resources asked for, as Slurm writes them"),
        Column("allocated", TEXT, None, "trackable resources given, as Slurm writes them"),
        Column("time_limit", TEXT, None, "time limit, as Slurm writes it"),
        Column("node_list", TEXT, None, "its nodes, as Slurm writes them"),
    ),
)

# --- two studies beside each other ----------------------------------------------------------------

COMPARISON = Table(
    "comparison",
    "one row for each answer that two studies have in common; empty columns are not part of what the answer is about",
    (
        Column("of", TEXT, None, "hardware (all points together), point (an iteration), speedup or layer"),
        HARDWARE,
        NETWORK,
        STORAGE,
        SCALING,
        SYNC,
        PREFETCH,
        BATCH,
        WORKERS_PER_NODE,
        NODES,
        RANKS,
        WORKER_BATCH,
        Column("layer", TEXT, None, "name of the layer"),
        LAYER_TYPE,
        Column("points", INT, None, "points that were averaged over"),
        Column("old", REAL, None, "in the first study: time of an iteration or layer in s, or speedup"),
        Column("new", REAL, None, "in the second study"),
        Column("old_visits", INT, None, "visits in the first study that it is from"),
        Column("new_visits", INT, None, "visits in the second study"),
        *_estimate(
            "ratio", None, "new over old: the geometric mean of all points; of a layer beside its network's others"
        ),
        Column("p", REAL, None, "chance of a ratio so far from 1 where nothing changed"),
        Column("change", TEXT, None, "slower or faster (speedups: lower or higher), same, or undecided"),
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        *TIDY_TABLES,
        *MODEL_TABLES,
        *EXTRAPOLATED_TABLES,
        NETWORK_LAYERS,
        PUBLISHED,
        PAPER_FIGURES,
        CLAIMS,
        ACCOUNTING,
        COMPARISON,
    )
}
