"""Every table that stallpoint writes: columns, types and units.

A raw record is a Parquet file inside a cell's folder (``results/<study>/raw/<cell>/<table>.parquet``). A tidy table has
the rows of all cells (``results/<study>/tables/<table>.parquet``). Model tables are derived from tidy tables. Each
file's metadata has the schema version, and the unit and description of each column.

Statistics of a quantity ``x`` are three columns: ``x`` (median or fit), ``x_low`` and ``x_high`` (90 % interval).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc

import pyarrow as pa

SCHEMA_VERSION = 5

TEXT, INT, REAL, FLAG = pa.large_string(), pa.int64(), pa.float64(), pa.bool_()


@dataclass(frozen=True)
class Column:
    """One column: its type, its unit (None: a name, a count or a ratio) and its meaning."""

    name: str
    type: pa.DataType
    unit: str | None
    description: str
    relative: bool = False
    """Whether the column is a ratio to a reference row of the table, which itself has 1 without an interval."""
    bound: str = ""
    """Bound of the column's values in raw records, in addition to those in `study.bounds`; also part of the meaning."""

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
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with the table's name and the schema version as metadata."""
        metadata = {
            "stallpoint_table": self.name,
            "stallpoint_schema": str(SCHEMA_VERSION),
            "description": self.description,
        }
        return pa.schema([column.field for column in self.columns], metadata=metadata)


SHARED: dict[str, tuple[Column, ...]] = {}
"""Columns and groups of columns that several tables have, by the name that follows a plus sign in a table."""
_CONTINUATION = re.compile(r"\n\s+")
_BOUND_PATTERN = re.compile(r" \[([^\[\]]+)\]$")
_TYPE_NAMES = {"text": TEXT, "int": INT, "real": REAL, "flag": FLAG, "time": pa.timestamp("us", tz="UTC")}
_TYPE_NAMES |= {"real±": REAL, "ratio±": REAL}


def columns(text: str) -> Iterator[Column]:
    """Yield the columns that `text` describes, in one line each: ``name | type | unit | meaning``.

    Types are in `_TYPE_NAMES`. Type ``real±`` adds two columns with the ends of the quantity's 90 % interval; so does
    ``ratio±``, for a quantity that is relative (`Column.relative`). Names, counts and ratios have no unit. A line that
    is indented further continues the meaning. The meaning may end with a bound of `study.bounds`: ``[<= duration]``,
    ``[>= 1]``, ``[summed]``. A line ``+ names`` stands for columns or groups in `SHARED`.
    """
    for line in _CONTINUATION.sub(" ", cleandoc(text)).splitlines():
        if line.startswith("+"):
            yield from (column for name in line[1:].split() for column in SHARED[name])
            continue
        name, kind, unit, meaning = (part.strip() for part in line.split("|", 3))
        bound = "".join(_BOUND_PATTERN.findall(meaning))
        yield Column(name, _TYPE_NAMES[kind], unit or None, meaning, kind == "ratio±", bound)
        if kind.endswith("±"):
            for short, end in (("low", "lower"), ("high", "upper")):
                words = f"{end} end of the 90 % interval of {name}"
                yield Column(f"{name}_{short}", REAL, unit or None, words, bound=bound)


def _table(text: str) -> Table:
    """Return the table that a text describes; the first line of the text has the table's name and description."""
    head, _, lines = _CONTINUATION.sub(" ", cleandoc(text)).partition("\n")
    name, description = head.split(": ", 1)
    return Table(name, description, tuple(columns(lines)))


def _add_group(text: str) -> tuple[Column, ...]:
    """Return the columns that a text describes, and add them to `SHARED` by the name in the text's first line."""
    name, lines = cleandoc(text).split(":\n", 1)
    SHARED[name] = tuple(columns(lines))
    return SHARED[name]


def _add_columns(text: str) -> None:
    SHARED.update({column.name: (column,) for column in columns(text)})


# --- columns of several tables -------------------------------------------------------------------

_add_columns("""
    cell             | text |         | path of the cell below the raw folder of its study
    network          | text |         | neural network
    hardware         | text |         | hardware entry of the study
    nodes            | int  |         | nodes taking part at once
    workers_per_node | int  |         | workers on each node; along a scaling curve those on a full node
    ranks            | int  |         | workers (MPI ranks) in all
    batch            | int  | samples | mini-batch as configured: B for strong scaling, b for weak and compute
    global_batch     | int  | samples | B, samples in all workers' mini-batches
    worker_batch     | int  | samples | b, samples in one worker's mini-batch
    storage          | text |         | storage entry of the study
    scaling          | text |         | strong, weak or compute
    sync             | text |         | preset by which gradients are synchronised; none on a single worker
    backend          | text |         | communication backend: mpi or torch
    reduction        | text |         | reduction scheme, or library: whatever the library takes
    prefetch         | int  |         | mini-batches read ahead; 0 reads in line
    repeat           | int  |         | repetition of the whole cell, from 1
    visit            | int  |         | visit to the cell, from 1; other cells are visited in between
    workers          | int  |         | workers taking part at once
    table            | text |         | external table of the study, or measured: the study's own scaling curves
    rank             | int  |         | MPI rank of the worker
    intervention     | text |         | what is excluded from training
""")
CELL, VISIT, WORKERS_PER_NODE = (SHARED[name][0] for name in ("cell", "visit", "workers_per_node"))
SERIES = _add_group("""
    series:
    + network hardware storage scaling sync prefetch batch workers_per_node
""")
"""Columns that are fixed along a scaling curve."""
TRAIN_AXES = _add_group("""
    train_axes:
    + series nodes ranks global_batch worker_batch repeat
""")
_add_columns("""
    calls      | int  |  | calls of the operation, one after the other
    operation  | text |  | collective operation: all-reduce, all-gather, reduce-scatter, ...
    sample     | int  |  | repetition, from 0, counted on from visit to visit
    iteration  | int  |  | iteration, from 0, warm-up included, counted on from visit to visit
    warmup     | flag |  | warm-up: recorded, excluded from statistics
    layer_type | text |  | convolution, fully-connected, attention, embedding, relu, pooling, batch-norm, dropout, add,
        loss, ...
""")

# --- raw records ----------------------------------------------------------------------------------

RUNS = _table("""
    runs: one row for each cell: what was asked for and how it ended
    + cell
    kind     | text  |   | train, command, intervention, sgemm, collectives, storage, copies, convergence,
        imported-train or imported-collectives
    status   | text  |   | ok, or failed: the job could not run here and says why
    reason   | text  |   | why a failed job could not run; empty when ok
    + hardware nodes workers_per_node ranks repeat
    started  | time  |   | start of the first visit
    duration | real  | s | duration of all its visits [unlimited]
    planned  | real± | s | expected duration when its job was submitted; unknown if imported [unlimited]
    settings | text  |   | the cell as JSON
    ended    | text  |   | why there was no further visit: visits (its own number), precision (reached), budget (used
        up), max visits; empty where it failed or was imported
    source   | text  |   | imported files, each with its SHA-256; empty where the job ran here
""")

ENVIRONMENTS = _table("""
    environments: one row for each rank of each cell: the machine and software it really used
    + cell rank
    node                 | text |    | host name, or node0, node1, ... when anonymised
    device               | text |    | cpu or cuda
    cpu_model            | text |    | model name of the CPU
    gpu_model            | text |    | model name of the GPU; empty without one
    cpu_nominal_clock    | real | Hz | clock the CPU is sold with; null where the machine does not report it
    cpu_max_clock        | real | Hz | highest clock of the CPU; null as above
    gpu_max_clock        | real | Hz | highest clock of the GPU's multiprocessors; null without a GPU or NVML
    cores_available      | int  |    | cores this process may run on [>= 1]
    threads              | int  |    | threads the tensor library really used [>= 1]
    load_average         | real |    | 1-minute load average of the node at the start
    core_cache_bytes     | int  | B  | largest cache of a single core; empty where the machine does not report it
    cache_bytes          | int  | B  | caches of the last level that the worker's threads can fill, or that of the GPU;
        empty as above
    memory_bytes         | int  | B  | memory of the node
    available_memory     | int  | B  | memory of the host that the worker may use: the least of its parts of the
        machine's memory, of its cgroups' limits and of Slurm's allocation [<= memory_bytes]
    gpu_available_memory | real | B  | memory of the GPU that tensors can have; null without a GPU
    kernel               | text |    | operating system and kernel release
    python               | text |    | version of Python
    torch                | text |    | version of PyTorch
    cuda                 | text |    | version of CUDA that PyTorch is built for; empty without a GPU, as below
    cudnn                | text |    | version of cuDNN; empty as well where PyTorch has none
    nccl                 | text |    | version of NCCL; empty as well where PyTorch has none
    driver               | text |    | version of NVIDIA's driver; empty as well where it does not report it
    blas                 | text |    | library of matrix products on the CPU; of MKL its version, as reported by PyTorch
    onednn               | text |    | version of oneDNN (MKL-DNN); empty where PyTorch has none
    cudnn_in_force       | flag |    | the GPU computes with cuDNN, as read back from PyTorch; false on a CPU
    onednn_in_force      | flag |    | the CPU computes with oneDNN, read back likewise; false on a GPU
    precision_in_force   | text |    | precision of matrix products, read back likewise: float32, tf32, ...
    mpi4py               | text |    | version of mpi4py
    mpi_library          | text |    | first line of the MPI library's own version text
    mpi_parameters       | text |    | parameters that force the reduction scheme, read back from the library
    interface            | text |    | network interface at which the other ranks reach this one, by Gloo and servers:
        lo on one node; empty with a single rank, and where nodes share no network. MPI and NCCL choose theirs
    subnet               | text |    | network there, such as 10.1.0.0/16 or fd07::/64, only IPv4 or IPv6 when
        anonymised; empty as above
    stallpoint           | text |    | version of stallpoint
    git_commit           | text |    | commit of the workflow; empty outside a repository
    git_dirty            | flag |    | the workflow had uncommitted changes
    slurm_job_id         | text |    | Slurm job; empty outside Slurm
""")

SLURM_JOBS = _table("""
    slurm_jobs: one row for each cell that ran in a Slurm job: what the job asked for and was given, as seen from
        inside it
    + cell
    slurm_job_id  | text |  | Slurm job
    partition     | text |  | partition; empty where unknown, as below
    nodes         | int  |  | nodes of the job
    tasks         | int  |  | tasks of the job
    cpus_per_task | int  |  | cores asked for each task
    cpus          | int  |  | cores given to the job
    requested     | text |  | trackable resources asked for, as Slurm writes them
    time_limit    | text |  | time limit, as Slurm writes it
    submitted     | text |  | when it was submitted, local time
    started       | text |  | when it started, local time
    node_list     | text |  | its nodes, as Slurm writes them
""")

SENSORS = _add_group("""
    sensors:
    runnable_wait        | real | s  | time the computing thread could have run but did not; null where unknown
    thread_time          | real | s  | CPU time of the computing thread
    process_time         | real | s  | CPU time of all threads of the process [summed]
    node_busy            | real | s  | time that any thread of this kernel ran on the CPUs this process may run on
        [summed]
    steal                | real | s  | time that the hypervisor took from those CPUs, in steps of 10 ms [summed]
    cpu_pressure         | real | s  | time in which some thread of this kernel waited for a CPU
    involuntary_switches | real |    | how often the computing thread lost its CPU to another one
    throttled            | real | s  | time that a quota kept threads of this process's cgroup from running, over CPUs
        [summed]
    thermal_throttles    | real |    | how often those CPUs slowed down for heat; null where unknown
    frequency            | real | Hz | mean clock of those CPUs at the end of the iteration; null where unknown
    gpu_clock            | real | Hz | clock of the GPU's multiprocessors at the end of the iteration; null without NVML
    gpu_throttle         | text |    | why the GPU's clock is lower than it could be; null without NVML
""")
"""Sensors of disturbances of an iteration (`stallpoint.measure.machine.sensors`); null if unknown."""

_add_group("""
    timed:
    + rank visit iteration warmup
    start                 | real | s | start of the iteration, since the ranks began the first one together
    data_wait             | real | s | time the worker waited for its mini-batch [<= iteration_time]
    read                  | real | s | time spent reading this mini-batch from the storage, summed over samples; of a
        command data_wait, as how it reads is its own [summed]
    decode                | real | s | time spent decoding and resizing this mini-batch, summed over samples [summed]
    host_to_device        | real | s | copy of the mini-batch to the device; of a command all that it does between data
        and forward pass [<= iteration_time]
    forward               | real | s | forward pass, loss included [<= iteration_time]
    backward              | real | s | backward pass [<= iteration_time]
    communication         | real | s | time in which at least one collective operation was under way [unlimited]
    exposed_communication | real | s | from the end of the backward pass to the last gradient's arrival, and waiting for
        collectives within the passes and the update, whose times are without it; in a pipeline receiving from another
        stage [<= iteration_time]
    update                | real | s | model update; 0 where a parameter server updates, as part of the communication;
        of a command all that it does behind the backward pass [<= iteration_time]
    iteration_time        | real | s | complete iteration; in a pipeline the time beyond its parts is waiting for
        other stages, the bubble
    loss                  | real |   | training loss of the worker's mini-batch [any number]
    + sensors
""")
ITERATIONS = _table("""
    iterations: one row for each training iteration of each rank
    + cell train_axes timed
""")

INTERVENED = _table("""
    intervened: one row for each iteration of each rank of training without one of its parts: columns as in iterations
    + cell train_axes intervention timed
""")

GATHERS = ("gather_start", "gather_end", "gather_again_start", "gather_again_end")
"""Columns of `LAYERS` that only sharded weights and split outputs have."""

LAYERS = _table("""
    layers: one row for each layer, training iteration and rank
    + cell train_axes rank visit iteration warmup
    layer_index        | int  |   | position in the forward pass, from 0
    layer              | text |   | name of the layer
    + layer_type
    forward            | real | s | forward time of the layer
    backward           | real | s | backward time of the layer
    gradient_ready     | real | s | when its gradients were complete, since the start of the iteration
    all_reduce_start   | real | s | start of its all-reduce, since the start of the iteration
    all_reduce_end     | real | s | end of its all-reduce, since the start of the iteration [>= all_reduce_start]
    gradient_bytes     | int  | B | size of its gradients; 0 without parameters
    bucket             | int  |   | bucket that carried its gradients, in the order of sending, from 0; -1: none [>= -1]
    bucket_bytes       | int  | B | what this rank put into that bucket for its gradients, after compression
    gather_start       | real | s | start of the (last) all-gather of its weights ahead of the forward pass, or after a
        sharded update, since the start of the iteration; where outputs are split, of what it takes; null where nothing
        is gathered
    gather_end         | real | s | end of that all-gather [>= gather_start]
    gather_again_start | real | s | start of the (last) all-gather of its weights for the backward pass; where outputs
        are split, of the reduce-scatter of the gradients of what it takes
    gather_again_end   | real | s | end of that operation [>= gather_again_start]
""")

VISITS = _table("""
    visits: one row for each visit to a cell and rank: visits of cells that are compared are interleaved in random
        order
    + cell
    kind              | text |   | kind of the cell
    + hardware nodes workers_per_node ranks rank visit
    position          | int  |   | position of the visit among all visits of the hardware entry, from 1
    concurrent        | int  |   | other cells visited at the same moment, on other nodes of the job
    started           | time |   | start of the visit
    duration          | real | s | from there to its end, what is done before and after measuring included [unlimited]
    preparing         | real | s | part of duration until all ranks begin to measure; of a command
        estimated [any number]
    measuring         | real | s | part of duration: iterations, products, all-reduces, reads, warm-up too [<= duration]
    excluded_samples  | int  |   | samples of its storage that cannot be decoded and are excluded (max_corrupt)
    kernel            | text |   | hash that identifies the running kernel: ranks on one share its counters
    cpus              | text |   | CPUs that the process may run on, such as 0-3,8
    threads           | int  |   | threads that the worker computes with
    node_busy_error   | real | s | how far a difference of node_busy may be off
    product_before    | real | s | sentinel: time of 1,000 matrix products, from fewer, before measuring [unlimited]
    product_after     | real | s | the same, after it [unlimited]
    all_reduce_before | real | s | sentinel: all-reduces, the same for all visits, before; null for one rank
    all_reduce_after  | real | s | the same, after it
""")

ENERGY = _table("""
    energy: one row for each visit to a cell and rank: energy while it was measured, by counters of its node, and what
        these do not say
    + cell hardware nodes ranks repeat rank visit
    kernel      | text |   | hash that identifies the running kernel: ranks on one read the same counters of processors
    seconds     | real | s | time between the two readings; of training from the first iteration on, warm-up included
    node_energy | real | J | of the processors and the memory of the node, by RAPL; null where a counter is unreadable
    gpu_energy  | real | J | of the rank's GPU, by NVML; null where that is unreadable, 0 without a GPU
    counted     | text |   | counters that were read
    not_counted | text |   | counters that were not, and why
""")

INSTRUMENTATION = _table("""
    instrumentation: one row for each rank and visit of a training cell: what timing its layers cost, and whether their
        times add up
    + cell train_axes rank visit
    layers           | int  |   | layers timed
    marks            | int  |   | time stamps taken in a forward pass: one for each call of a layer; more within layers
    timing_cost      | real | s | time that timing adds to an iteration for each mark, measured in this job; may be
        below 0, as the difference of two [any number]
    timing_share     | real |   | part of the iteration that timing takes: timing_cost · marks / median time
        [any number]
    forward_closure  | real |   | layers' forward times over the forward pass, median of the iterations
    backward_closure | real |   | the same of the backward pass; 1 where the layers add up to the pass
""")

PEAK_MEMORY = _table("""
    peak_memory: one row for each rank and visit of a training cell: the peak memory of training, and its known parts
    + cell train_axes rank visit
    host_peak   | real | B | peak host memory of the process, less networks kept for other visits; null where
        unknown
    device_peak | real | B | peak memory of tensors on the GPU, less the same; null on a CPU
    process     | real | B | memory of the host before training, without networks: programs and libraries
    weights     | int  | B | parameters and buffers of the network; on the device, as the next two
    gradients   | int  | B | gradients of the parameters
    optimiser   | int  | B | optimiser state: a momentum for each parameter
""")

PROBES = _table("""
    probes: one row for each rank and visit of a command whose script has a probe: what the probe observed
    + cell train_axes rank visit
    script_ranks | int  |   | workers that the script trains on, as reported by the script
    parallelism  | text |   | what synchronises gradients: ddp, fsdp2, none, or unknown
    model        | text |   | class of the model
    layers       | int  |   | layers timed
    iterations   | int  |   | iterations recorded
    threads      | int  |   | threads that the script computes with, as PyTorch reports at the end
    cpus         | text |   | CPUs that the script's process may run on, such as 0-3,8
    busy_threads | real |   | CPU time of the process over that of its computing thread, behind the first iteration;
        null where there is none
    collectives  | int  |   | collectives of torch.distributed that the worker called meanwhile; null where it may have
        called others
    checksum     | int  |   | CRC-32 of the trained weights at the end; null where a worker holds a shard of them, or an
        exception ended the training
    bookkeeping  | real | s | time of an iteration in which the probe kept what it measured, the mean
    unseen       | text |   | what it could not observe, in words; empty where it observed all
    ended        | text |   | complete, or the exception that ended the training; empty where it was killed
""")

MACHINE = "machine"
"""Layer type of the products that calibrate the machine: layers ``peak``, ``bandwidth`` and ``rows``."""

SGEMM = _table("""
    sgemm: one row for each timed matrix product m x k · k x n, done `operations` times
    + cell network hardware repeat
    layer      | text |         | layer (and which of its products), reference, or peak, bandwidth or rows
    + layer_type worker_batch
    m          | int  |         | rows of the left matrix
    k          | int  |         | columns of the left matrix
    n          | int  |         | columns of the right matrix
    operations | int  |         | products of this shape in one forward pass
    + visit sample
    seconds    | real | s       | time of all operations
    gflops     | real | GFLOP/s | 2·m·k·n·operations / seconds / 1e9
""")

_add_group("""
    message:
    + cell hardware nodes workers_per_node ranks backend reduction operation repeat rank
    message_bytes | int | B | size of the complete message: what is reduced, gathered or sent
    + visit sample warmup
""")
"""The message of a rank."""

COLLECTIVES = _table("""
    collectives: one row for each timed burst of a collective operation of each rank
    + message calls
    seconds | real | s | time of all calls, from a barrier on
""")

CONTENTION = _table("""
    contention: one row for each time that a rank called collectives from a thread while it computed; and the same
        computing in isolation
    + message calls
    seconds          | real | s | time of all calls
    operations       | int  |   | equal bursts of computing done from the first call to the last return
    computing        | real | s | time of these bursts; the last one may end after the last return
    isolated_operations | int  |   | the same bursts without communication, before the samples of a size
    isolated_computing  | real | s | time of these isolated bursts
""")

_add_group("""
    reading:
    order   | text |  | sequential (as stored), shuffled (every sample once, in random order) or random (each drawn
        anew)
    cache   | text |  | page cache before the pass: cold (dropped), warm (read before) or untouched (never opened by
        this cell)
    readers | int  |  | threads of each worker that read at once
""")
_add_group("""
    storage_axes:
    + cell storage hardware nodes workers_per_node ranks repeat rank
""")

STORAGE_READS = _table("""
    storage_reads: one row for each sample read from a storage by each rank
    + storage_axes reading visit sample
    start   | real | s | start of the read, since all ranks began the pass
    seconds | real | s | time to read the sample
    bytes   | int  | B | bytes of the sample
""")

_add_group("""
    source:
    filesystem | text |  | type of the file system, as the kernel calls it: ext4, nfs4, lustre, ...
    locality   | text |  | whether the path is local to a node or shared, by that type; or unknown
""")
_add_group("""
    origin:
    origin       | text |  | where the bytes came from: page cache, server cache (seen below the file system), local
        device, network, mixed, or unknown
    server_cache | text |  | cache beyond the node: none, excluded (the set is 5 times as large), seen, or unknown;
        empty where the bytes did not come from there
    uncached     | flag |  | no cache served the pass: its speed is that of the storage
""")

STORAGE_PASSES = _table("""
    storage_passes: one row for each pass over samples of a storage and rank: bytes requested, and bytes counted by each
        source
    + storage_axes reading visit source
    source        | text |   | mounted device or export, as reported by the kernel; empty when anonymised
    metadata      | text |   | the node's metadata cache before: cold (dropped), warm or unknown
    resident      | real |   | share of the samples' pages in the page cache before; null where unknown [<= 1]
    bytes         | int  | B | bytes that this worker asked for
    node_bytes    | int  | B | bytes that all workers of its node asked for
    process_bytes | int  | B | read by block devices for this process; null where unknown, as below
    device_bytes  | int  | B | read by the file system's block device, for anybody on the node
    disk_bytes    | int  | B | read by the disks at the bottom of that device, likewise
    server_bytes  | int  | B | from the NFS server, for anybody on this mount
    network_bytes | int  | B | received by the node's network interfaces
    + origin
    set_bytes     | int  | B | size of the whole training set
    memory_bytes  | int  | B | memory of all nodes of the cell
""")

STORAGE_OPERATIONS = _table("""
    storage_operations: one row for each operation on a storage that is not the reading of a sample
    + storage_axes
    operation | text |   | stat, open (and close), decode (of a sample that was read), checkpoint write (with fsync) or
        checkpoint read (cold)
    metadata  | text |   | the node's metadata cache before: cold (dropped) or warm
    origin    | text |   | where a checkpoint was read from, as in storage_passes; empty for the others
    + visit sample
    seconds   | real | s | duration
    bytes     | int  | B | bytes decoded, written or read; 0 for stat and open
""")

STAGING = _table("""
    staging: one row for each node that copied a shared storage to its own disk, all nodes of the job at once
    + cell storage hardware repeat
    visit     | int  |   | visit to the cell before which it was copied, for all cells of the job
    job_nodes | int  |   | nodes of the job
    node      | int  |   | which of them, from 0
    files     | int  |   | files copied
    samples   | int  |   | samples in them
    bytes     | int  | B | bytes copied
    seconds   | real | s | from when all nodes began until this node's copy was complete [unlimited]
""")

CONVERSIONS = _table("""
    conversions: one row for a storage that was converted from another, unless the conversion was interrupted
    + cell storage hardware repeat
    source  | text |   | path of the storage it was converted from
    samples | int  |   | samples converted
    threads | int  |   | threads that converted
    seconds | real | s | until all samples were written and compared [unlimited]
""")

COPIES = _table("""
    copies: one row for each timed copy of memory
    + cell hardware repeat rank
    copy    | text |   | copy or triad (STREAM, in the host's memory); host to device (from pinned memory, or pageable),
        device to host, within the device, device to device
    threads | int  |   | threads that copied
    + visit sample
    bytes   | int  | B | bytes read and written; between memories those transferred, once
    seconds | real | s | duration
""")

_add_columns("""
    recipe | text |  | recipe: optimiser, step-size schedule and their values
    trial  | int  |  | point of what the recipe searches, from 1
    seed   | int  |  | seed of the initial weights, of the order of the samples and of what is dropped out
    step   | int  |  | updates of the weights so far
""")
_add_group("""
    whole_batch:
    batch | int | samples | B, samples in all workers' mini-batches
""")
_add_group("""
    run_axes:
    + cell network hardware storage sync recipe nodes workers_per_node ranks whole_batch trial seed
""")
"""Columns that identify a run to a target."""

CONVERGENCE = _table("""
    convergence: one row for each evaluation of a network that is trained to a target, the one before the first step
        included
    + run_axes step
    samples             | int  |   | training samples seen so far
    seconds             | real | s | training so far, without evaluations and checkpoints
    train_loss          | real |   | mean training loss since the evaluation before; empty before the first step
        [any number]
    validation_loss     | real |   | mean cross-entropy of the validation samples [any number]
    validation_accuracy | real |   | share of the validation samples whose class is found [<= 1]
""")

CONVERGENCE_RUNS = _table("""
    convergence_runs: one row for each run of training to a target; steps and times to the target are interpolated
        linearly in accuracy between evaluations
    + run_axes
    target            | real |   | validation accuracy that was to be reached; empty where the run had none [<= 1]
    reached           | flag |   | the target was reached
    steps_to_target   | real |   | updates until then; empty where it was not reached, as below
    samples_to_target | real |   | training samples until then
    seconds_to_target | real | s | training until then, without evaluations and checkpoints
    best_accuracy     | real |   | best validation accuracy of all evaluations [<= 1]
    best_step         | int  |   | updates before that evaluation, the first of equal ones
    loss_gap          | real |   | generalisation gap at the end: loss of the validation samples, less that of
        `sharpness_samples` training samples (Keskar et al. 2017); empty without these, as below, and if diverged
        [any number]
    accuracy_gap      | real |   | accuracy of these training samples, less that of the validation samples [any number]
    sharpness         | real | % | largest rise of the loss f of these training samples, over 1 + f, while each weight x
        moves by up to 0.001 (abs(x) + 1) (Keskar et al. 2017, metric 2.1) [any number]
    ended             | text |   | target (reached), max steps (its number of steps), diverged (a loss that is no
        number, or a validation loss well above that of the initial weights), stopped early (no better for as long as
        its patience) or walltime (its minutes are used up)
    step_size         | real |   | after warm-up, scaled for B
    momentum          | real |   | momentum of the optimiser; 0 without
    warmup_steps      | int  |   | updates in which the step size rose
    settings          | text |   | all fields of the recipe as JSON
""")

GRADIENT_NOISE = _table("""
    gradient_noise: one row for each step whose gradients' norms were recorded; none on one worker, and where gradients
        do not arrive complete on every worker (McCandlish et al. 2018, appendix A.1)
    + run_axes step worker_batch
    small | real |  | squared norm of a worker's gradient, of b samples: mean over the workers
    large | real |  | squared norm of their mean, the gradient of B samples
""")

STALENESS = _table("""
    staleness: one row for each gradient that a server applied, or each exchange of a worker with the centre of elastic
        averaging
    + cell network hardware nodes workers_per_node ranks batch storage sync visit
    server    | int |  | rank beside which the server runs
    update    | int |  | number of the update of the server's weights, from 1; gradients can share it
    worker    | int |  | rank of the worker whose gradient it is
    staleness | int |  | updates of these weights since the worker took them, this one not counted
""")

TIDY_TABLES: tuple[Table, ...] = (
    RUNS, ENVIRONMENTS, SLURM_JOBS, VISITS, ENERGY, ITERATIONS, LAYERS, INSTRUMENTATION, PEAK_MEMORY, PROBES,
    INTERVENED, SGEMM, COLLECTIVES, CONTENTION, STORAGE_READS, STORAGE_PASSES, STORAGE_OPERATIONS, STAGING,
    CONVERSIONS, COPIES, CONVERGENCE, CONVERGENCE_RUNS, GRADIENT_NOISE, STALENESS,
)  # fmt: skip
"""Tables of raw records, in each cell's folder (`stallpoint.study.kinds` says which) and collected from all of them."""

# --- model tables ---------------------------------------------------------------------------------

LAYER_SCALING = _table("""
    layer_scaling: compute time of each layer type at falling mini-batch on one worker: free communication
    + network hardware
    layer_type | text   |   | layer type, or all
    + worker_batch
    seconds    | real±  | s | forward and backward time in one iteration
    share      | real±  |   | part of all layers' time
    speedup    | ratio± |   | time at the largest measured mini-batch over time at this one
    iterations | int    |   | iterations of one worker that were recorded there, without warm-up
    disturbed  | int    |   | of these, disturbed
""")

SGEMM_SPEEDUP = _table("""
    sgemm_speedup: matrix products at falling mini-batch
    + network hardware
    layer    | text   |         | layer, or reference (b x I · I x O, sgemm.reference)
    + layer_type worker_batch
    seconds  | real±  | s       | time of all operations of one forward pass
    gflops   | real±  | GFLOP/s | rate
    speedup  | ratio± |         | time at the largest measured mini-batch over time at this one
    roofline | real   | s       | larger of operations / peak and bytes / bandwidth, where the product has b rows
""")

COMMUNICATION = _table("""
    communication: time of a collective operation by message size, fitted for each placement, and over placements by its
        law: alpha + the sum over segments of beta · (bytes of the message in that segment); one row for each segment
    + hardware backend reduction operation
    fit        | text  |     | place: at this placement, a number of nodes and workers on each; or the law over
        several, e.g. ring (factors 2(p-1) and 2(p-1)/p), of a library with the size from which on the next one holds;
        average (...) where several are possible, the likeliest first
    level      | text  |     | links that the times are of: inside a node, between nodes (beyond the time inside),
        or both as one
    + nodes ranks
    piece      | int   |     | segment of the curve, from 0; a fit with one segment is a straight line
    from_bytes | real  | B   | message size at which the segment begins; it ends where the next one begins
    alpha      | real± | s   | latency
    beta       | real± | s/B | time for each byte in this segment
    points     | int   |     | message sizes fitted
    residual   | real  |     | median of |fit - measured| / measured
""")

PREDICTIONS = _table("""
    predictions: iterations as the DAG model predicts them, by one model for each curve, and as measured; measured
        columns are empty without a cell, predicted ones where a part of the model was not measured
    + series nodes ranks global_batch worker_batch
    equation                | text   |   | equation of Shi et al. (2018) used, e.g. eq. 5; or sharded, pipeline, or
        outputs
    extrapolated            | flag   |   | no cell was measured here
    compute_source          | text   |   | where layer times come from: measured at b, interpolated in b, ...
    predicted_data          | real   | s | predicted t_io: reading and decoding the mini-batch
    predicted_forward       | real   | s | predicted t_f
    predicted_backward      | real   | s | predicted t_b
    predicted_communication | real   | s | predicted t_c, all layers
    predicted_exposed_communication | real   | s | predicted t_c^no
    predicted_update        | real   | s | predicted t_u
    predicted_straggling    | real   | s | predicted wait for the slowest worker, or for other stages
    predicted_iteration     | real±  | s | predicted iteration time
    predicted_speedup       | ratio± |   | predicted throughput over that at the fewest measured workers
    predicted_efficiency    | ratio± |   | predicted_speedup over the ratio of workers
    measured_data           | real   | s | measured wait for data
    measured_forward        | real   | s | measured forward pass
    measured_backward       | real   | s | measured backward pass
    measured_communication  | real   | s | measured time with an all-reduce under way
    measured_exposed_communication | real   | s | measured exposed communication
    measured_update         | real   | s | measured update
    measured_iteration      | real±  | s | measured iteration time, mean over ranks
    measured_speedup        | ratio± |   | measured throughput over that at the fewest measured workers
    measured_efficiency     | ratio± |   | measured_speedup over the ratio of workers
    held_out_iteration      | real±  | s | iteration time as predicted without the cells measured here
    error                   | real   |   | held_out_iteration / measured iteration time - 1
""")

LAYER = tuple(
    column for column in LAYERS.columns if column.name in ("layer_index", "layer", "layer_type", "gradient_bytes")
)
SHARED["layer"] = LAYER
"""The layer of a row."""
PHASES = ("data_wait", "host_to_device", "forward", "backward", "exposed_communication", "update")
"""Sequential phases of a worker's iteration; except in a pipeline they add up to its time."""
TIMES = (
    "data_wait", "host_to_device", "forward", "backward", "communication", "exposed_communication", "update",
    "iteration_time",
)  # fmt: skip
"""Times of an iteration and its parts."""
SHARED["times"] = tuple(column for column in ITERATIONS.columns if column.name in TIMES)
SHARED["drawn_of_layers"] = tuple(
    column
    for column in LAYERS.columns
    if column.name
    in ("layer_index", "layer", "backward", "all_reduce_start", "all_reduce_end", "gradient_bytes", "bucket")
)

LAYER_TIMES = _table("""
    layer_times: each layer as measured on rank 0: means of every point, those of one worker and imported ones included;
        and as the DAG model predicts it without the point's own cells, where the point is on a scaling curve
    + series nodes ranks global_batch worker_batch layer
    forward          | real | s | forward time
    backward         | real | s | backward time
    all_reduce_start | real | s | start of its all-reduce, since the start of the backward pass
    all_reduce_end   | real | s | end of its all-reduce, since the start of the backward pass
    predicted_forward          | real | s | the same as predicted
    predicted_backward         | real | s | the same as predicted
    predicted_all_reduce_start | real | s | the same as predicted
    predicted_all_reduce_end   | real | s | the same as predicted
""")

MEDIAN_ITERATIONS = _table("""
    median_iterations: the median iteration of each network, hardware and preset on the largest worker count: its
        ranks, at most the 16 slowest
    + cell series nodes ranks rank visit iteration
    start | real | s | start of the iteration, since the first rank started it
    + times
    wall  | real | s | time of the iteration on its slowest rank: the median of the cell's
    iterations | int  |   | iterations of which it is the median
""")

MEDIAN_LAYERS = _table("""
    median_layers: the layers of median_iterations
    + cell rank iteration drawn_of_layers
""")


VALIDATION = _table("""
    validation: iteration times at larger worker counts, predicted from training on the smaller ones only, and measured
    + series nodes ranks worker_batch
    calibration         | text  |   | worker counts whose training the prediction is fitted to
    predicted           | real± | s | predicted iteration time
    measured            | real± | s | measured iteration time, mean over ranks
    error               | real  |   | predicted / measured - 1
    error_computing     | real  |   | part of it due to forward and backward pass
    error_communication | real  |   | part of it due to exposed communication; the residual is everything else
    covered             | flag  |   | measured lies in the interval of predicted
    repeats             | int   |   | jobs that measured it
    repeats_differ      | real  |   | slower over faster of two of these jobs, minus 1 (mean over pairs)
""")

AMDAHL = _table("""
    amdahl: Amdahl's law S(n) = 1 / (s + (1-s)/n) fitted to falling compute time (free communication) and to measured
        speedup
    + network hardware
    basis           | text  |  | compute (one worker at falling b, by layer type) or measured (strong scaling)
    layer_type      | text  |  | layer type, or all
    series          | text  |  | storage/sync/prefetch/batch of a measured curve; empty for compute
    serial_fraction | real± |  | s, the part that does not get faster
    stall_ranks     | real± |  | smallest count after which no larger one gains the threshold
    speedup_limit   | real± |  | 1 / s
    points          | int   |  | different worker counts (or mini-batches) fitted
    note            | text  |  | why nothing could be fitted; empty when it could
""")

CRITICAL_PATH = _table("""
    critical_path: where the time of an iteration goes; the parts add up to the iteration time
    + series nodes ranks
    basis   | text  |   | measured, or predicted beyond the measured worker counts
    part    | text  |   | data, host-to-device; fully-connected layers, other matrix layers, non-scaling layers
        (isolated), co-running ranks, communication thread (or compute, undivided); communication latency, communication
        bandwidth (or communication, undivided); straggling (in a pipeline bubble), update
    cause   | text  |   | cause that the part belongs to
    seconds | real± | s | time on the critical path
    share   | real± |   | part of the iteration time
""")

CAUSES = _table("""
    causes: what keeps an iteration from being n times faster (strong) or as fast as on the fewest (weak), above those
    + series nodes ranks
    basis   | text  |   | measured, or predicted beyond the measured worker counts
    cause   | text  |   | communication, small matrices, non-scaling layers, shared hardware (or compute, undivided),
        training data, model update, straggling, pipeline bubble
    lost    | real± | s | time of the iteration above ideal scaling, by this cause
    share   | real  |   | part of the iteration time
    verdict | text  |   | dominant, minor, or not distinguishable from the largest
""")

DISTURBANCES = _table("""
    disturbances: one row for each disturbed iteration, warm-up included, and each disturbed visit to messages or reads
    + cell hardware visit
    iteration | int |  | null of a visit to messages or reads
    reason   | text |  | another process, steal, quota, throttled clock, slow machine, standstill; several by commas
    excluded | flag |  | statistics exclude it; not where too little of the cell would remain
""")

CONTROLS = _table("""
    controls: A/A controls: cells on one worker that do the same, and whether their iteration times agree
    + hardware network storage prefetch worker_batch
    first  | text  |  | scaling and preset of the first point, or compute
    second | text  |  | the same of the second point
    ratio  | real± |  | iteration time of the second over that of the first
    p      | real  |  | chance of a ratio so far from 1 where it is 1
    agrees | flag  |  | no difference at 5 % over all pairs of the hardware entry (Holm)
""")

STALLING = _table("""
    stalling: how many workers: where each scaling curve stops getting faster, and which worker count is cost-efficient
    + series
    stall_ranks            | real  |  | smallest count after which no larger one gains the threshold, the median
    stall_ranks_low        | real  |  | smallest of the fewest worker counts whose probabilities add up to 90 %
    stall_ranks_high       | real  |  | largest of these counts
    reached                | flag  |  | false: no stall up to largest_considered, which stall_ranks then holds
    basis                  | text  |  | measured, or predicted: by the DAG model beyond what was measured
    verdict                | text  |  | of what was measured: stalls, scales, undecided, or withheld (why: note)
    verdict_ranks          | int   |  | workers where it stalls, up to which it scales, or where it is undecided
    deciding_time          | real  | s | further visits that would decide, if the gain stays; null where decided
    measured_speedup       | real± |  | largest speedup at any worker count measured
    measured_speedup_ranks | int   |  | worker count of measured_speedup
    crossing_ranks         | real± |  | workers where communication takes as long as compute; infinite: nowhere
    crossing_after         | real  |  | largest known worker count below crossing_ranks
    cost_efficient_ranks   | real± |  | largest worker count at which a sample costs at most 1/efficiency as much
    best_speedup           | real± |  | largest speedup at any worker count considered
    largest_measured       | int   |  | largest worker count measured
    largest_considered     | int   |  | largest worker count considered
    dominant_cause         | text  |  | cause that dominates at twice stall_ranks, or not distinguishable
    withheld               | text  |  | why nothing is predicted beyond the measured worker counts; empty where it is
    note                   | text  |  | what an answer lacks, or why it ends below larger counts; else empty
    one_machine            | flag  |  | whether its nodes were processes of one machine
    placed                 | text  |  | how scatter between placements is known, where a count ran in one placement only
""")

STALL_PROBABILITIES = _table("""
    stall_probabilities: how probable it is that a scaling curve stalls at each worker count; a stall is the
        smallest count after which no larger one gains the threshold for each doubling
    + series nodes ranks
    basis       | text |  | measured: of what was measured, as the verdict is; known: of predicted ones too
    stalls      | flag |  | false: the largest worker count; no stall up to it
    probability | real |  | all of a curve's add up to 1
""")

WHAT_IF = _table("""
    what_if: every scaling curve as predicted for another cluster; scenario `as measured` is the prediction without
        change
    + series nodes ranks
    scenario          | text  |         | what is different, in words
    bandwidth         | real  |         | factor on the bandwidth of the links
    latency           | real  |         | factor on the latency of the links
    compute_speed     | real  |         | factor on the speed of forward and backward pass and update
    gradient_bytes    | real  |         | factor on the size of the gradients
    straggling        | real  |         | factor on waiting for the slowest worker
    launches          | real  |         | factor on the time that starting kernels takes
    batch_factor      | real  |         | factor on the mini-batch
    iteration         | real± | s       | predicted iteration time
    speedup           | real± |         | throughput over that predicted for the measured cluster on the fewest workers
    gain              | real± |         | throughput over that predicted for the measured cluster on as many workers
    stall_ranks       | real± |         | smallest count after which no larger one gains the threshold, in this scenario
    reached           | flag  |         | false: no stall up to the largest worker count, which stall_ranks then holds
    note              | text  |         | why nothing could be predicted; empty when it could
""")

REMEDIES = _table("""
    remedies: what would help each scaling curve at its largest measured worker count, and the cell that would confirm
        it
    + series nodes ranks
    remedy        | text  |   | what is done, in words
    changes       | text  |   | what it changes: mini-batch, accumulation, preset, link, readers, ...
    also          | text  |   | what else it changes, or takes; empty where nothing
    gain          | real± |   | throughput over that predicted without it; empty where a part was not measured
    upper_bound   | flag  |   | whether the gain is an upper bound: what the remedy avoids is taken to cost nothing
    memory        | real± | B | predicted peak memory of a worker with it
    fits          | text  |   | whether that fits: yes, no, undecided (the interval holds what is available) or unknown
    verdict       | text  |   | helps: the interval lies above a gain of 5 %; no gain: below; undecided: it holds that;
        does not fit; unknown: not predicted
    cell          | text  |   | entries of a study that would measure it, in YAML; empty where no cell can
    node_hours    | real  | h | nodes times the time that this cell takes
    rank_in_curve | int   |   | rank among the remedies of the curve; 1: the first to try
""")

NEXT_CELLS = _table("""
    next_cells: cells not yet measured: how far each would narrow the stalling point, and its cost
    + series
    kind                    | text |             | train, collectives or compute (a train cell of scaling compute)
    + nodes ranks worker_batch
    width                   | real | doublings   | 90 % interval of the stalling point today (3.29 standard deviations),
        errors of the model included
    expected_width          | real | doublings   | the same, expected once the cell is measured
    narrowing               | real | doublings   | width - expected_width
    node_hours              | real | h           | nodes times the time the job takes
    narrowing_per_node_hour | real | doublings/h | narrowing / node_hours
    rank_in_curve           | int  |             | rank among the cells of the curve, by narrowing_per_node_hour; 1:
        next
""")

PAPER_FIGURES = _table("""
    paper_figures: figures of a paper, computed by the models from the parameters it states
    paper          | text |   | whose parameters
    figure         | int  |   | figure of the paper
    + network
    hardware       | text |   | compute unit of the paper
    + global_batch nodes worker_batch
    compute        | real | s | compute time of an iteration
    communication  | real | s | communication time of an iteration
    iteration_time | real | s | whole iteration
    speedup        | real |   | throughput over that of one node
    crossing_ranks | real |   | workers where communication takes as long as compute; infinite: nowhere
    stall_ranks    | real |   | workers from which doubling gains less than wanted; infinite: nowhere
""")

STORAGE_RATES = _table("""
    storage_rates: reading the training set: rates over all nodes and latency percentiles
    + storage hardware nodes workers_per_node ranks reading origin source
    metadata           | text  |     | the nodes' metadata caches before: cold, warm or unknown
    resident           | real  |     | share found in the page cache before the pass; null where unknown
    set_over_memory    | real  |     | size of the training set over the memory of all nodes
    samples_per_second | real± | 1/s | samples read by all nodes
    bytes_per_second   | real± | B/s | bytes read by all nodes
    latency_p50        | real  | s   | median time to read a sample
    latency_p95        | real  | s   | 95th percentile
    latency_p99        | real  | s   | 99th percentile
""")

COPY_RATES = _table("""
    copy_rates: how fast memory is copied
    + hardware
    copy             | text  |     | as in copies
    threads          | int   |     | threads that copied
    bytes_per_second | real± | B/s | bytes over the mean duration
""")

DATA_SHARE = _table("""
    data_share: part of an iteration spent waiting for training data
    + series nodes ranks worker_batch
    data_wait | real± | s | wait for data in one iteration
    share     | real± |   | wait for data over iteration time
""")

SATURATION = _table("""
    saturation: number of concurrent readers at which each storage's rate stops growing, by the fit of its reads
    + hardware storage
    readers            | int   |  | threads of a worker that read at once
    + workers_per_node
    saturation_ranks   | real± |  | smallest count after which no larger one gains the threshold; the median
    reached            | flag  |  | whether it saturates up to largest_considered
    verdict            | text  |  | saturates or keeps pace, where one worker count has 90 % and no placement was
        visited only once; else undecided
    verdict_ranks      | int   |  | workers at which it saturates, to which it keeps pace, or from which it is open; 0:
        nothing is known
    deciding           | text  |  | what would decide it, where it is undecided
    largest_measured   | int   |  | largest number of workers that read at once
    largest_considered | int   |  | largest number of workers considered
""")

FEEDING = _table("""
    feeding: whether training data keeps the workers of each scaling curve busy, and how many readers that takes
    + series nodes ranks worker_batch
    basis                 | text  |   | whether the iteration was measured or predicted
    utilisation           | real± |   | accelerator utilisation: part of the iteration without its wait for data
    predicted_utilisation | real± |   | the same as predicted, at measured points without their own cells
    readers               | int   |   | reader threads of a worker; 1 where it reads in line
    read_time             | real± | s | time in which one reader reads and decodes a worker's mini-batch
    busy_time             | real± | s | iteration without its wait for data
    readers_needed        | real± |   | read_time over busy_time: so many readers ahead keep a worker busy
""")

RATES = _table("""
    rates: measured scaling curves of the study, in the form external tables have
    series             | text |         | what stays fixed along the curve:
        network/hardware/storage/scaling/sync/prefetch/batch/workers_per_node
    + workers
    workers_per_node   | real |         | workers on each node; the mean where nodes differ, empty if unknown
    samples_per_second | real | 1/s     | samples trained by all workers
    batch_per_worker   | real | samples | b, samples in one worker's mini-batch; empty if unknown
""")

EXTRAPOLATION = _table("""
    extrapolation: rates of a table's series at each worker count, by scaling laws
    series    | text |     | series of the table
    + workers
    predicted | real | 1/s | samples per second; empty where the data do not identify it
    lower     | real | 1/s | lower end of the 90 % interval of a new measurement
    upper     | real | 1/s | upper end of the 90 % interval of a new measurement
    law       | text |     | law or laws averaged, or why nothing is predicted; and which measurement would narrow it
""")
SHARED["extrapolation"] = EXTRAPOLATION.columns

EXTRAPOLATIONS = _table("""
    extrapolations: rates of the external tables' series, at their own worker counts and beyond
    + table extrapolation
    measured | real | 1/s | median of the measurements there; empty without any
""")

LAW_VALIDATION = _table("""
    law_validation: predicted against measured at held-out counts: each series fitted up to a quarter of its largest
        count
    + table extrapolation
    measured     | real | 1/s | median of the measurements there
    fitted_up_to | int  |     | largest worker count that was fitted
    error        | real |     | predicted / measured - 1
    covered      | flag |     | measured lies in the interval
""")

HALVINGS = _table("""
    halvings: what each halving of the mini-batch gains in compute time on one worker, from one measured mini-batch to
        the next
    + network hardware
    basis        | text  |         | layers (of training, free communication) or sgemm (isolated matrix products)
    layer        | text  |         | layer, or reference (b x I · I x O, sgemm.reference); empty for all
        layers of one type
    layer_type   | text  |         | layer type, or all
    worker_batch | int   | samples | b, the larger mini-batch
    to_batch     | int   | samples | the next smaller one that was measured
    gain         | real± |         | factor by which time falls with each halving: 2 in proportion to b, 1 not at all
""")

CURVE_DISTANCES = _table("""
    curve_distances: how far the speedup of a matrix product at falling mini-batch is from that of the network's compute
        time
    + network hardware
    layer          | text  |         | layer, or reference (b x I · I x O, sgemm.reference)
    layer_type     | text  |         | type of the layer
    largest_batch  | int   | samples | largest mini-batch at which both were measured; speedups refer to it
    smallest_batch | int   | samples | smallest one
    points         | int   |         | mini-batches compared, without the largest
    distance       | real± |         | mean of |log(speedup of the product / speedup of the network)|; 0: one shape
""")

HIDDEN_COMMUNICATION = _table("""
    hidden_communication: what communicating costs an iteration of several ranks, and how much of the communication the
        backward pass hides
    + series nodes ranks
    communication | real± | s | time with an all-reduce under way
    exposed       | real± | s | part of communication after the backward pass
    isolated      | real± | s | what the same collectives take on idle workers
    without       | real± | s | iteration time of the same cell without communication; empty: not measured
    cost          | real± | s | iteration time minus that without: what communicating costs
    hidden        | real± | s | isolated - cost; negative where overlapping costs more than it hides
    hidden_share  | real± |   | hidden over isolated
    communication_over_backward | real± |   | communication over the backward pass, which could hide it
""")

INTERVENTIONS = _table("""
    interventions: time that training saves without one of its parts, compared with the parts of the critical path that
        should vanish
    + series nodes ranks intervention
    parts  | text  |   | those parts of the critical path, joined by semicolons
    saved  | real± | s | iteration time less that of the intervention, visits of both interleaved
    expected | real± | s | sum of the parts
    agrees | flag  |   | whether their intervals overlap
""")

COMPARISONS = _table("""
    comparisons: each measured point compared with another one that differs only in storage, preset or prefetch
    + series nodes ranks
    axis       | text  |  | what differs: storage, sync or prefetch
    against    | text  |  | its value at the other point
    throughput | real± |  | throughput over that of the other point
    exposed    | real± |  | exposed communication over that of the other point, on more than one rank
""")

TRAFFIC = _table("""
    traffic: bytes that an iteration and an epoch move, for measured points of more than one rank whose storage was read
        in isolation
    + series nodes ranks
    data_bytes     | int | B | the samples of the global mini-batch, at their mean size
    gradient_bytes | int | B | gradients and weights of n workers and a parameter server: 2(n-1) models
""")

BREAK_EVEN = _table("""
    break_even: staging or packing a storage compared with reading it as it was, for measured points of both
    + series nodes
    remedy      | text  |   | staging (copied to the nodes' own disks) or packing (converted into its format)
    before      | text  |   | storage entry of the same samples, neither staged nor packed
    seconds     | real± | s | one-time cost: staging on the slowest node, or converting
    wait_before | real± | s | wait for data in an epoch of the set, before
    wait_after  | real± | s | the same with the remedy
    verdict     | text  |   | pays, never pays, or undecided: the interval of the gain of an epoch contains 0
    epochs      | real± |   | epochs after which it has paid; empty unless it does
""")

UTILISATION = _table("""
    utilisation: rates of training over the ratings of its hardware, for measured node counts
    + series nodes ranks global_batch worker_batch
    samples_per_second | real± | 1/s    | global mini-batch over the iteration time
    flops              | real± | FLOP/s | a worker's operations, 6 for each multiply-add of a forward pass, over the
        iteration time
    flops_share        | real± |        | flops over rated_tflops of the hardware: model FLOP/s utilisation
    link               | real± | B/s    | bytes of all gradients, 4 for each, over the time of communication between
        nodes
    link_share         | real± |        | link over rated_gbits of the hardware
""")

_add_group("""
    cost:
    node_hours  | real± | h   | time of all nodes
    price       | real± |     | node_hours by price_per_node_hour of the hardware
    energy      | real± | kWh | node_hours by the power of a node
    energy_from | text  |     | where that power is from: counters of processors, memory or GPUs while it trained, or
        node_watts of the hardware where these were not readable
""")
_add_columns("""
    goal | text | | epoch (epoch_samples samples), or a target: its accuracy and training
""")

COSTS = _table("""
    costs: what an epoch, or training to a target, costs at each placement of a scaling curve
    + series nodes ranks global_batch
    basis  | text  |     | measured or predicted
    + goal
    time   | real± | s   | time until the goal is reached
    + cost
""")

CHOICES = _table("""
    choices: number of nodes that is cheapest for models.deadline_hours, or fastest for models.budget
    + series goal
    question    | text  |   | cheapest for the deadline, or fastest for the budget
    limit       | real  |   | the deadline in s, or the budget in the unit of prices; of models.training_epochs
        epochs or a target
    basis       | text  |   | points to choose from: measured, or known, with predicted ones
    verdict     | text  |   | decided, undecided, or none within the limit
    nodes       | int   |   | nodes of the most probable choice; 0: none
    ranks       | int   |   | its workers
    likely      | text  |   | smallest set of worker counts with a total probability of 90 %
    probability | real  |   | probability of the most probable choice
    time        | real± | s | its time
    + cost
""")

_add_group("""
    memory:
    + network hardware
    workers_per_node | int  |  | workers that share a node
    + sync prefetch
    shards           | int  |  | shards of the optimiser's state, and of weights and gradients where they are
        sharded
    memory           | text |  | host or device (the GPU's)
""")
"""Training whose memory depends on b only, and the memory meant."""

MEMORY = _table("""
    memory: peak memory of a worker's training, by b: as measured, its parts, and by fixed + slope · b
    + memory worker_batch
    peak      | real± | B | peak memory of the rank that needs most
    process   | real  | B | part of the peak: programs and libraries; not counted on a GPU
    weights   | real  | B | part of the peak: parameters and buffers of the network; 0 where they are on the device
    gradients | real  | B | part of the peak: gradients of the parameters; 0 likewise
    optimiser | real  | B | part of the peak: optimiser state; 0 likewise
    rest      | real  | B | part of the peak: activations, mini-batches, communication buffers and fragmentation
    predicted | real± | B | fixed + slope · b; empty with fewer than two b
""")

LARGEST_BATCH = _table("""
    largest_batch: the largest mini-batch of a worker that fits into its memory
    + memory
    available        | real  | B       | memory that a worker may use, the least of all its cells
    fixed            | real± | B       | memory that does not depend on b
    slope            | real± | B       | memory for each further sample
    largest_measured | real  | samples | largest b that was trained; empty if none was
    smallest_failed  | real  | samples | smallest b that ran out of memory; empty if none did
    largest_batch    | real± | samples | largest b that fits
    basis            | text  |         | measured: a smaller b was trained and a larger one ran out of memory;
        predicted: by fixed + slope · b; unknown
    note             | text  |         | what is missing where it is unknown
""")

FITS = _table("""
    fits: whether training fits into a worker's memory, by the memory of a single worker and what the preset divides
    + series nodes ranks worker_batch
    memory    | text  |   | host or device (the GPU's)
    predicted | real± | B | peak memory of a worker
    measured  | real  | B | the same as measured, of the rank that needs most; empty without a cell
    available | real  | B | memory that a worker may use, the least of equal cells
    fits      | text  |   | yes, no, undecided (the interval holds what is available) or unknown
""")

_add_columns("""
    target | real |  | validation accuracy that was to be reached
""")
_add_group("""
    of_training:
    + network storage sync recipe
""")
_add_group("""
    steps_of:
    steps_storage | text |  | storage of the runs to the target that the steps are of
    steps_sync    | text |  | preset of those runs
    + recipe target
""")


_add_group("""
    stall:
    stall_ranks      | real |  | smallest count after which no larger one saves the threshold, the median
    stall_ranks_low  | real |  | smallest of the fewest worker counts whose probabilities add up to 90 %
    stall_ranks_high | real |  | largest of these counts
    reached          | flag |  | false: no stall up to largest_considered, which stall_ranks then holds
    verdict          | text |  | stalls, scales or undecided
    verdict_ranks    | int  |  | workers where it stalls, up to which it scales, or where it is undecided
""")


STEPS_TO_TARGET = _table("""
    steps_to_target: steps to a target accuracy at each mini-batch B, as trained and by S(B) = S_min + E_min / B
    + of_training target
    ranks          | int   |         | workers of the runs that the steps are of; 0: their number changes no step
    + whole_batch
    runs           | int   |         | all runs, of all trials and seeds
    runs_reached   | int   |         | those of them that reached the target
    trial          | int   |         | trial that reached it with every seed in the fewest steps; -1 where none did
    best_accuracy  | real  |         | highest validation accuracy of any run
    steps          | real± |         | steps of that trial, mean over its seeds
    samples        | real± | samples | B · steps
    held_out_steps | real± |         | S(B), fitted to all other B, with how far they lie from such a fit
    error          | real  |         | held_out_steps / steps - 1
    regime         | text  |         | what doubling B does by the fit: perfect scaling, diminishing returns, no gain,
        or undecided
""")

NOISE_SCALE = _table("""
    noise_scale: the noise scale of gradients, in four equal parts of a training
    + of_training whole_batch
    part        | int   |         | part of the training's steps, from 1
    steps       | int   |         | steps in it whose gradients' norms were recorded, of all runs
    noise_scale | real± | samples | B_simple = tr(Σ) / |G|²; infinite: the gradient is not distinguishable from the
        noise
""")

CRITICAL_BATCHES = _table("""
    critical_batches: the mini-batch up to which larger ones pay: by steps to a target, and by the noise of gradients
    + of_training target
    ranks               | int   |         | workers of the runs that the steps are of; 0: their number changes no step
    batches             | int   |         | different B that reached the target
    largest_reaching    | int   | samples | largest B that reached the target; 0 where none did
    least_steps         | real± |         | S_min: steps that are needed however large B is
    least_samples       | real± | samples | E_min: samples that are needed however small B is
    bend                | real± |         | sharpness of the transition from the one to the other: 1 by McCandlish et
        al. (2018), more if sharper
    critical_batch      | real± | samples | B_crit = E_min / S_min; infinite: steps fell in proportion to B; of two B
        without interval
    perfect_to          | real± | samples | B up to which doubling it is perfect scaling, by the fit
    no_gain_from        | real± | samples | B from which doubling it gains nothing, by the fit
    noise_scale         | real± | samples | B_simple of the whole training at all B
    noise_over_critical | real± |         | noise_scale / critical_batch
""")

TIME_TO_ACCURACY = _table("""
    time_to_accuracy: time to a target accuracy at each point of a scaling curve: steps at its B times its iteration
        time
    + series nodes ranks global_batch steps_of
    steps_ranks        | int    |   | workers of the runs that the steps are of; 0: their number changes no
        step
    basis              | text   |   | of the iteration time: measured or predicted
    steps              | real±  |   | steps to the target at this B, trained or fitted; empty beyond what
        reached it
    time               | real±  | s | steps · iteration time
    speedup            | ratio± |   | time on the fewest workers over time, both iterations of one basis
    throughput_speedup | ratio± |   | throughput over that on the fewest workers, of the same
""")

TARGET_TIMES = _table("""
    target_times: time to a target as trained: a row for each preset, recipe, B and placement, compared with the fastest
        at that placement and with a prediction that is independent of these runs
    + network hardware storage sync recipe target nodes workers_per_node ranks whole_batch
    runs         | int   |   | all runs, of all trials and seeds
    runs_reached | int   |   | those of them that reached the target
    trial        | int   |   | trial that reached it with every seed in the fewest steps; -1 where none did
    time         | real± | s | training until then, mean over the seeds of that trial
    steps        | real± |   | its steps
    slower       | real± |   | time over that of the fastest at this placement
    more_steps   | real± |   | steps over those of the fastest
    longer_steps | real± |   | step_time over that of the fastest; slower = more_steps · longer_steps
    verdict      | text  |   | fastest, slower, not distinguishable (from the fastest), or not reached
    predicted    | real± | s | steps of a fit to all other B, times an iteration that was predicted without this point
    error        | real  |   | predicted / time - 1
""")

TARGET_STALLING = _table("""
    target_stalling: how many workers: where the time to a target, as trained by the fastest configuration at each
        worker count, stops falling
    + network hardware storage target workers_per_node stall
    largest_considered | int  |  | largest worker count that reached it; 0: no two of them
""")

EARLY_STOPPING = _table("""
    early_stopping: large mini-batches compared with stopping the smallest early, at equal accuracy (Keuper & Pfreundt
        2016, section III-C)
    + of_training whole_batch
    against          | int    | samples | smallest B, which is stopped early
    accuracy         | real±  |         | best validation accuracy at B, mean over seeds of its best trial
    difference       | real±  |         | accuracy - that of the smallest B trained to its end
    verdict          | text   |         | lower, higher or not distinguishable, by that difference
    speedup          | ratio± |         | steps of the complete training at the smallest B over those at B
    early_over_batch | real±  |         | early_speedup / speedup
""")

ACCURACY_STALLING = _table("""
    accuracy_stalling: how many workers: where the time to a target accuracy stops falling, for each scaling curve and
        target
    + series steps_of stall
    largest_considered | int |  | largest worker count with a known time; 0: no two of them
""")

AVAILABILITY = _table("""
    availability: what failures and checkpoints leave of each scaling curve: where samples per second, less what these
        take, stop rising, and the part of the time that is productive at the largest known worker count
    + series stall
    largest_considered     | int   |   | largest worker count of a known doubling
    without_failures       | text  |   | the verdict for throughput alone, of the same doublings
    without_failures_ranks | int   |   | worker count of that verdict
    failure_limit          | real± |   | nodes from which failures alone make a doubling gain too little
    ranks                  | int   |   | largest known worker count, to which all following columns refer
    checkpoint_interval    | real± | s | best time between checkpoints (Daly 2006)
    productive_share       | real± |   | part of the time that is neither lost nor spent on checkpoints and restarts
    checkpoint_time        | real± | s | time to write a checkpoint
    checkpoint_from        | text  |   | given by the hardware entry, or measured on the storage
    elastic_share          | real± |   | productive share where training goes on without failed nodes; empty without
        reload_seconds and repair_seconds, as below
    spares                 | int   |   | spare nodes that are enough in 99 % of the time
    spare_share            | real± |   | productive share of all nodes with the spares, which replace failed ones
""")

_add_group("""
    served:
    + network hardware storage sync batch nodes workers_per_node ranks
""")
_add_columns("""
    gradients | int |  | gradients that servers applied; each server applies its own share
""")

STALENESS_SHARES = _table("""
    staleness_shares: how stale the gradients were that servers applied: the distribution in each training
    + served
    staleness | int  |  | updates of the weights since the worker took them, its own not counted
    + gradients
    share     | real |  | part of all gradients of this training
""")

WORKER_STALENESS = _table("""
    worker_staleness: how stale each worker's gradients were; a slow worker's are more so
    + served
    worker            | int   |  | rank of the worker
    + gradients
    mean_staleness    | real± |  | mean; of equally fast workers their number less one
    over_workers      | real± |  | mean_staleness, the gradient's own update counted, over the workers
""")

MODEL_TABLES: tuple[Table, ...] = (
    LAYER_SCALING, SGEMM_SPEEDUP, COMMUNICATION, PREDICTIONS, LAYER_TIMES,
    MEDIAN_ITERATIONS, MEDIAN_LAYERS, VALIDATION, AMDAHL,
    CRITICAL_PATH, CAUSES, CONTROLS, DISTURBANCES, STALLING, STALL_PROBABILITIES, WHAT_IF, REMEDIES,
    NEXT_CELLS, STORAGE_RATES, DATA_SHARE, FEEDING, SATURATION, RATES, HALVINGS,
    CURVE_DISTANCES, HIDDEN_COMMUNICATION, INTERVENTIONS, COMPARISONS, TRAFFIC, UTILISATION, COSTS, CHOICES,
    AVAILABILITY, COPY_RATES, BREAK_EVEN, MEMORY, LARGEST_BATCH, FITS, STEPS_TO_TARGET,
    NOISE_SCALE, CRITICAL_BATCHES, TIME_TO_ACCURACY, ACCURACY_STALLING,
    STALENESS_SHARES, WORKER_STALENESS, TARGET_TIMES, TARGET_STALLING, EARLY_STOPPING,
)  # fmt: skip

EXTRAPOLATED_TABLES: tuple[Table, ...] = (EXTRAPOLATIONS, LAW_VALIDATION)
"""Extrapolations by scaling laws, of external tables and of the study's own rates."""

# --- layers of networks, and claims -----------------------------------------------------

NETWORK_LAYERS = _table("""
    network_layers: one row for each layer of a network
    + network
    layer_index    | int  |   | position in the forward pass, from 0
    layer          | text |   | name of the layer
    + layer_type
    parameters     | int  |   | learned values; shared ones are counted at the first layer that has them; empty where
        only traces are known
    gradient_bytes | int  | B | size of its gradients
    multiply_adds  | int  |   | multiply-adds of its matrix products in one sample's forward pass; empty where only
        traces are known
    activation_bytes | int | B | activations that a pipeline stage ending with it passes to the next one for one sample;
        empty where none can end
    outputs        | int  |   | its outputs, where preset one-weird-trick splits them over workers; empty for all other
        layers
""")

CLAIMS = _table("""
    claims: one row for each claim and each combination of the study that it was judged for
    paper               | text  |  | who claims it
    claim               | text  |  | id of the claim
    sentence            | text  |  | what is claimed
    source              | text  |  | where the paper claims it
    verdict             | text  |  | over all combinations: holds, does not hold, not distinguishable or not tested
    combination         | text  |  | what of the study this row is about, e.g. network alexnet, hardware local
    combination_verdict | text  |  | the same four, for this combination
    quantity            | text  |  | which number decides
    condition           | text  |  | what it must be
    value               | real± |  | the number, in SI units; an end that is unbounded is infinite
    basis               | text  |  | measured, predicted or both, where the table says so
    rows                | int   |  | rows of the table that the number was taken from
    missing             | text  |  | what the study lacks to test it; empty when it was tested
    chart               | text  |  | chart that shows it
""")

# --- jobs in Slurm's accounting, for archives ------------------------------------------------------

ACCOUNTING = _table("""
    accounting: one row for each Slurm job of the study, as Slurm's accounting (sacct) knows it
    slurm_job_id | text |   | Slurm job
    partition    | text |   | partition
    state        | text |   | how it ended, such as COMPLETED or OUT_OF_MEMORY
    exit_code    | text |   | exit status:signal
    reason       | text |   | why it did not complete, in words; empty when it did
    submitted    | text |   | when it was submitted, local time
    started      | text |   | when it started, local time
    ended        | text |   | when it ended, local time
    elapsed      | int  | s | time from start to end
    nodes        | int  |   | nodes given
    node_hours   | real | h | elapsed time times the nodes given
    cpus         | int  |   | cores given
    cpu_time     | int  | s | elapsed time times the cores given
    energy       | int  | J | energy its nodes took; empty where Slurm measures none
    requested    | text |   | trackable resources asked for, as Slurm writes them
    allocated    | text |   | trackable resources given, as Slurm writes them
    time_limit   | text |   | time limit, as Slurm writes it
    node_list    | text |   | its nodes, as Slurm writes them
""")

# --- comparison of two studies ----------------------------------------------------------------

COMPARISON = _table("""
    comparison: one row for each answer that two studies have in common; empty columns do not apply to it
    subject    | text  |  | hardware (all points), point (an iteration), speedup or layer
    + hardware network storage scaling sync prefetch batch workers_per_node nodes ranks worker_batch
    layer      | text  |  | name of the layer
    + layer_type
    points     | int   |  | points that were averaged over
    old        | real  |  | in the first study: time of an iteration or layer in s, or speedup
    new        | real  |  | in the second study
    old_visits | int   |  | visits in the first study that it is from
    new_visits | int   |  | visits in the second study
    ratio      | real± |  | new over old: the geometric mean of all points; of a layer relative to its network's others
    p          | real  |  | chance of a ratio so far from 1 where nothing changed
    change     | text  |  | slower or faster (speedups: lower or higher), same, or undecided
""")

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        *TIDY_TABLES,
        *MODEL_TABLES,
        *EXTRAPOLATED_TABLES,
        NETWORK_LAYERS,
        PAPER_FIGURES,
        CLAIMS,
        ACCOUNTING,
        COMPARISON,
    )
}
