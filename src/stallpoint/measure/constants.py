"""Constants of measurements, set by hand, each with its reason. Sizes that depend on the machine are derived from them.

`benchmarks/sensitivity.py` shows how half and twice each constant change the results. Thresholds by which records are
judged are not here, but beside their rules (in `stallpoint.records.disturbances` and in the models).
"""

from __future__ import annotations

MIB = 2**20

# --- caches (`caches`) ---------------------------------------------------------------------------

CACHE_UNKNOWN = 32 * MIB
"""Assumed bytes of the largest caches if the machine reports none: typical of a desktop, part of a server, or a GPU."""
CORE_CACHE_UNKNOWN = 256 * 2**10
"""Assumed bytes of a core's own cache if the machine reports none: the smallest in servers of the last ten years."""

# --- matrix products (`sgemm`) -------------------------------------------------------------------

PEAK_SIDE = {"cpu": 2048, "cuda": 8192}
"""Side of the matrices of the product ``peak``: large enough that memory bandwidth is no limit and a GPU is busy."""
ROWS_DEEP = 4096
"""Values in a row of the product ``rows``, as in AlexNet's fully-connected layers."""
ROWS_BYTES = 96 * MIB, 384 * MIB
"""Smallest and largest bytes of the matrix of ``rows``; the smallest is doubled as needed. Virtual machines may report
less cache than exists: with a matrix of 64 MiB on a processor with 480 MiB, 8 rows took as long as 3, with 96 MiB 1.5
times as long. Weights of the largest layers take 144 MiB (AlexNet) and 392 MiB (VGG-16): a larger cache holds them."""
ROWS_CACHES = 3
"""Size of the matrix of ``rows`` in multiples of the caches, so that most of it is read from memory each time."""
BANDWIDTH_BYTES = {"cpu": (256 * MIB, 1024 * MIB), "cuda": (1024 * MIB, 1024 * MIB)}
"""Smallest and largest bytes of the matrix of ``bandwidth``; the smallest is doubled as needed. On a GPU, starting a
product takes as long as reading some 10 MiB."""
BANDWIDTH_CACHES = 8
"""Size of the matrix of ``bandwidth`` in multiples of the caches: its cached part makes memory seem at most an eighth
faster."""
ROWS = (
    *range(1, 13), 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 160, 192, 256, 384, 512,
    768, 1024, 1536, 2048,
)  # fmt: skip
"""Row counts at and around full blocks of 2, 4, 8, ... rows. Larger counts are skipped once the rate has settled
(`ROWS_SETTLED`)."""
ROWS_LEAST = 256
"""Row count up to which all counts are measured; `ROWS_SETTLED` applies beyond. A rate may seem to have settled before
the library changes to its kernel for many rows (MKL 2024.2 at 192)."""
ROWS_SETTLED = 0.05
"""Relative change of the rate between a row count and twice the count below which the rate has settled: samples scatter
as much. If reading the matrix takes as long as f rows, doubling m rows raises the rate by about f / 2m."""
ROWS_SAMPLES = 2
"""Samples of each row count; the shortest time is used, as other work only makes times longer."""
SECONDS_PER_PRODUCT = 20.0
"""Total time of a product's samples after which it gets no more than `MIN_SAMPLES`, s, so that no cell takes hours."""
MIN_SAMPLES = 3
"""Smallest number of samples whose median is robust against one outlier."""

# --- bursts of collective operations (`bursts`) --------------------------------------------------

BURST_SECONDS = 0.1
"""Wanted duration of a burst of equal messages, s; one message may take longer. Ranks that share cores get some twenty
time slices in this time, and it does not matter that ranks leave the barrier some µs apart."""
MAX_BURST_CALLS = 16
"""Largest number of messages in a burst: a sixteenth of the ranks' offset after the barrier counts for each. Training
sends 8 (AlexNet) to 107 (ResNet-50), one for each layer with weights; with 32, 1 KiB took 0.84 times as long."""
BURST_AS_BYTES, CO_RUNNING_AS_BYTES = 2**22, 2**24
"""Assumed bytes of a message that takes as long as a burst, isolated and during computing; only used to estimate the
remaining time in the log."""

# --- collectives that run while a worker computes (`co_running`) ----------------------------------

ISOLATED_SECONDS = 0.4
"""Duration of the isolated computing of a visit, s, about that of a pass. In a much shorter time, some ranks compute
while others have not begun or have ended, and bursts seem faster than a network's layers (docs/measuring.md)."""
COMPUTE_BURSTS = 40
"""Wanted duration of a sample's messages in compute bursts, estimated from the previous sample. As only complete bursts
count, the duration is exact to one in 40, 2.5 %."""
MAX_CO_RUNNING_CALLS = 64
"""Largest number of messages in a co-running sample: enough for the cost of a message shorter than a compute burst."""
CO_RUNNING_SAMPLES = 3
"""Number of samples if a single message takes as long as `COMPUTE_BURSTS`, and so is worth many short messages."""
COMPUTE_IMAGES = {"cpu": 2, "cuda": 512}
"""Images of 32 channels and 28 x 28 pixels in a compute burst, a convolution's backward pass. On a CPU a burst takes
some 0.1 ms, much longer than its start and much shorter than the messages for which training waits. On a GPU, where
start and wait take some 0.05 ms, it has 15 GFLOP: a millisecond at 15 TFLOP/s."""

# --- the sentinel (`sentinel`) -------------------------------------------------------------------

SENTINEL_SECONDS = 0.1
"""Wanted duration of the products, and of the all-reduces, s, from which their numbers follow."""
SENTINEL_PROBE = 0.02
"""Shortest duration of the trial from which these numbers are estimated, s."""
SENTINEL_CACHE = 1 / 2
"""Part of a core's own cache that the three matrices fill, so that other cores' work does not evict them."""
SENTINEL_SIDE = {"cuda": 2048}
"""Side of the matrices on a GPU: smaller products would not fill it."""
SENTINEL_STEP = 32
"""Step of the matrices' side, which suits the blocks of compute kernels."""
SENTINEL_PRODUCTS = 1000
"""Number of products to which the recorded time is scaled, so that times of different processes can be compared."""
SENTINEL_VALUES = 1024
"""Number of single-precision values in an all-reduce between host memories, whose time is nearly all latency."""

# --- sending gradients (`synchronisation`) -------------------------------------------------------

IN_PLACE_BYTES = 4 * MIB
"""Size from which gradients are sent without a copy, B: a copy would cost more than a separate message."""
LATENCY_BYTES = 4 * 2**10
"""Bytes of a message whose time is nearly all latency."""
LATENCIES = 16
"""Ratio of a message's time to that of `LATENCY_BYTES` from which bandwidth explains nearly all of it."""
CALIBRATION_SAMPLES = 7
"""Messages of each size, of whose times the median is taken."""

# --- cost of timing layers (`layer_timing`), networks in memory (`resident`), `sensors` ----------

TINY_LAYERS, PAIRS = 200, 15
"""Number of layers, and of pairs of passes with and without timing: about 0.2 s in all on a CPU. The cost of a layer is
the median over pairs, of which almost half may be disturbed."""
NETWORKS_KEPT = 4
"""Networks in memory at once, each with its initial weights. Four copies of VGG-16, the largest, take 4.4 GB."""
MAX_CLOCKS = 8
"""Largest number of CPUs whose clocks are read, evenly chosen: some drivers ask the hardware for each clock."""
KERNEL_SHARE = 0.8
"""Share of all CPU time since boot that the kernel's root cgroup must have counted; a container's cgroup has counted
far less, unless nothing else runs."""
