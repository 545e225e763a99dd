"""Constants of measurements, set by hand, each with its reason; machine-dependent sizes are derived from them.

No result contains them: `benchmarks/sensitivity.py` and its test show the effect of half and twice each value.
Constants by which records are judged stand with their rules (`stallpoint.records.disturbances`, models).
"""

from __future__ import annotations

MIB = 2**20

# --- caches (`caches`) ---------------------------------------------------------------------------

CACHE_UNKNOWN = 32 * MIB
"""Bytes of the largest caches if the machine does not report them: typical of a desktop, part of a server, a GPU."""
CORE_CACHE_UNKNOWN = 256 * 2**10
"""Bytes of a core's own cache if the machine does not report it: the smallest in servers of the last ten years."""

# --- matrix products (`sgemm`) -------------------------------------------------------------------

PEAK_SIDE = {"cpu": 2048, "cuda": 8192}
"""Side of the square product ``peak``, large enough that memory is no limit and a GPU is full."""
ROWS_DEEP = 4096
"""Values in a row of the product ``rows``, as in AlexNet's fully-connected layers."""
ROWS_BYTES = 96 * MIB, 384 * MIB
"""Smallest and largest size of the matrix of ``rows``; sizes between are doubled ones. Virtual machines may report less
cache than exists: with a matrix of 64 MiB on a processor with 480 MiB, 8 rows took as long as 3, with 96 MiB 1.5 times
as long. Weights of the largest layers take 144 MiB (AlexNet) and 392 MiB (VGG-16): a cache for more also holds them."""
ROWS_CACHES = 3
"""Size of ``rows`` in caches, so that most of it is read from memory each time."""
BANDWIDTH_BYTES = {"cpu": (256 * MIB, 1024 * MIB), "cuda": (1024 * MIB, 1024 * MIB)}
"""Smallest and largest size of the matrix of ``bandwidth``; sizes between are doubled ones. On a GPU, starting a
product takes as long as reading some 10 MiB."""
BANDWIDTH_CACHES = 8
"""Size of the matrix of ``bandwidth`` in caches: the part in a cache makes memory look at most an eighth faster."""
ROWS = (
    *range(1, 13), 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 160, 192, 256, 384, 512,
    768, 1024, 1536, 2048,
)  # fmt: skip
"""Row counts at and around full blocks of 2, 4, 8, ... rows. The last ones are skipped once the rate has settled
(`ROWS_SETTLED`)."""
ROWS_LEAST = 256
"""Rows that are always measured; `ROWS_SETTLED` applies beyond. A library may seem to have settled before it changes to
the kernel for many rows (MKL 2024.2 at 192)."""
ROWS_SETTLED = 0.05
"""Change of the rate by twice the rows below which the rate has settled: samples scatter as much. If the matrix
takes as long as f rows, the rate grows by f over twice the rows."""
ROWS_SAMPLES = 2
"""Samples of each row count: the shortest counts, as other work only makes times longer."""
SECONDS_PER_PRODUCT = 20.0
"""Time of a product after which it gets no further sample beyond `MIN_SAMPLES`, so that no cell takes hours."""
MIN_SAMPLES = 3
"""Samples whose median is robust against one of them."""

# --- bursts of collective operations (`bursts`) --------------------------------------------------

BURST_SECONDS = 0.1
"""Wanted duration of a burst of equal messages, s; one message may take longer. In this time, ranks that share cores
get some twenty
time slices, and the µs between ranks after the barrier do not matter."""
MAX_BURST_CALLS = 16
"""Largest number of messages in a burst: each then has a sixteenth of the ranks' offset after the barrier. Training
sends 8 (AlexNet) to 107 (ResNet-50), one for each layer with weights; with 32, 1 KiB took 0.84 times as long."""
BURST_AS_BYTES, CO_RUNNING_AS_BYTES = 2**22, 2**24
"""Bytes of a message that takes as long as a burst, isolated and during computing; used only for the remaining time in
the log."""

# --- all-reduces co-running with computing (`contention`) -------------------------------------------------

ISOLATED_SECONDS = 0.4
"""Duration of the isolated computing of a visit, s, about that of a pass. If much shorter, some ranks compute while
others have not begun or have ended, and bursts seem faster than a network's layers (docs/measuring.md)."""
COMPUTE_BURSTS = 40
"""Wanted duration of a sample's messages in compute bursts, estimated from the previous sample. Only complete bursts
count: one in 40 is 2.5 %."""
MAX_CO_RUNNING_CALLS = 64
"""Largest number of messages in a co-running sample: enough for the cost of a message shorter than a compute burst."""
CO_RUNNING_SAMPLES = 3
"""Samples if a single message takes as long as `COMPUTE_BURSTS`: each is worth many short messages."""
COMPUTE_IMAGES = {"cpu": 2, "cuda": 512}
"""Images of 32 channels and 28 x 28 pixels in a compute burst, a convolution's backward pass. On a CPU a burst takes
some 0.1 ms, much longer than its start and much shorter than the messages for which training waits. On a GPU, where
start and wait take some 0.05 ms, it has 15 GFLOP: a millisecond at 15 TFLOP/s."""

# --- the sentinel (`sentinel`) -------------------------------------------------------------------

SENTINEL_SECONDS = 0.1
"""Approximate duration of the products, and of the all-reduces, for which their number is chosen, s."""
SENTINEL_PROBE = 0.02
"""Duration from which the number of products is estimated, s."""
SENTINEL_CACHE = 1 / 2
"""Part of a core's own cache that the three matrices fill, so that other cores' work does not evict them."""
SENTINEL_SIDE = {"cuda": 2048}
"""Side of the matrices on a GPU: smaller products would not fill it."""
SENTINEL_STEP = 32
"""Granularity of the side, that of compute kernels."""
SENTINEL_PRODUCTS = 1000
"""Number of products to which the recorded time is scaled, so that processes compare."""
SENTINEL_VALUES = 1024
"""Single-precision values of an all-reduce, from and to the host's memory: nearly all latency."""

# --- sending gradients (`synchronisation`) -------------------------------------------------------

IN_PLACE_BYTES = 4 * MIB
"""Size from which gradients are sent without a copy, B: a copy would cost more than a separate message."""
LATENCY_BYTES = 4 * 2**10
"""Bytes of a message that is nearly all latency."""
LATENCIES = 16
"""Multiple of the time of `LATENCY_BYTES` from which a message is nearly all bandwidth."""
CALIBRATION_SAMPLES = 7
"""Messages of each size, whose median is taken."""

# --- what timing costs (`instrumentation`), memory (`resident`), sensors -------------------------

TINY_LAYERS, PAIRS = 200, 15
"""Layers, and pairs of passes with and without timing: about 0.2 s in all on a CPU. The cost of a layer is the median
over pairs, of which almost half may be disturbed."""
NETWORKS_KEPT = 4
"""Networks in memory at once, each with its initial weights. Four of VGG-16, the largest, take 4.4 GB."""
MAX_CLOCKS = 8
"""Largest number of CPUs whose clocks are read, evenly chosen, as some drivers ask the hardware for each."""
KERNEL_SHARE = 0.8
"""Share of all CPU time since boot that a cgroup must have counted to be the kernel's root; a container's is far below,
unless nothing else runs."""
