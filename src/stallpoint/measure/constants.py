"""Constants of measuring that were set by hand, each with its reason; machine-dependent sizes are derived from them.

None is a quantity of a result: `benchmarks/sensitivity.py` and its test show the effect of half and twice each value.
Constants of rules that judge records stand with the rule (`stallpoint.records.disturbances`, models).
"""

from __future__ import annotations

MIB = 2**20

# --- caches (`caches`) ---------------------------------------------------------------------------

CACHE_UNKNOWN = 32 * MIB
"""Bytes of the largest caches where the machine does not report them: those of a desktop, of part of a server, of a
GPU."""
CORE_CACHE_UNKNOWN = 256 * 2**10
"""Bytes of a core's own cache where the machine does not report it: the smallest of servers of the last ten years."""

# --- matrix products (`sgemm`) -------------------------------------------------------------------

PEAK_SIDE = {"cpu": 2048, "cuda": 8192}
"""Side of the square product ``peak``: each value that comes from memory is used so often that the memory does not
count, and a GPU is full. Twice the side is eight times the work."""
ROWS_DEEP = 4096
"""Values in a row of the product ``rows``, as in AlexNet's fully-connected layers."""
ROWS_BYTES = 96 * MIB, 384 * MIB
"""Smallest and largest size of the matrix of ``rows``, which doubles in between. Virtual machines may report less cache
than there is: with 64 MiB on a processor that has 480 MiB, 8 rows took as long as 3, with 96 MiB 1.5 times as long.
Weights of the largest layers take 144 MiB (AlexNet) and 392 MiB (VGG-16): a cache that holds more, holds them, too."""
ROWS_CACHES = 3
"""Caches that ``rows`` fills, so that most of it comes from memory each time."""
BANDWIDTH_BYTES = {"cpu": (256 * MIB, 1024 * MIB), "cuda": (1024 * MIB, 1024 * MIB)}
"""Smallest and largest size of the matrix of ``bandwidth``, which doubles in between. On a GPU, starting a product
takes as long as reading some 10 MiB."""
BANDWIDTH_CACHES = 8
"""Caches that the matrix of ``bandwidth`` fills: the part that stays in a cache makes memory look at most an eighth
faster."""
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
"""Change of the rate by twice the rows below which the rate has settled: samples scatter as much. Where the matrix
takes as long as f rows, the rate grows by f over twice the rows."""
ROWS_SAMPLES = 2
"""Samples of each row count, of which the shortest counts: other work makes times longer, never shorter."""
SECONDS_PER_PRODUCT = 20.0
"""A product that has taken this long gets no further sample, if it has `MIN_SAMPLES`: so that no cell takes hours."""
MIN_SAMPLES = 3
"""Samples whose median is robust against one of them."""

# --- bursts of collective operations (`bursts`) --------------------------------------------------

BURST_SECONDS = 0.1
"""Wanted duration of a burst of equal messages, s; one message may take longer. Ranks that share cores get some twenty
time slices of a scheduler, and ranks leave the barrier before the burst only some µs apart."""
MAX_BURST_CALLS = 16
"""Largest number of messages in a burst: each then has a sixteenth of the ranks' offset after the barrier. Training
sends one for each layer with weights, 8 (AlexNet) to 107 (ResNet-50); with 32 of them 1 KiB took 0.84 times as long."""
BURST_AS_BYTES, CO_RUNNING_AS_BYTES = 2**22, 2**24
"""Bytes of the message that takes as long as a burst, at least, and as a burst during computing; only for the remaining
time in the log."""

# --- all-reduces co-running with computing (`contention`) -------------------------------------------------

ISOLATED_SECONDS = 0.4
"""Duration of the isolated computing of a visit, s: as long as a pass. In much less, some ranks begin or end while
others do not compute, and compute bursts seem faster than a network's layers are (docs/measuring.md)."""
COMPUTE_BURSTS = 40
"""Compute bursts that the messages of a sample are to last for, as estimated from the sample before. Bursts are counted
completely: one in 40 is 2.5 %."""
MAX_CO_RUNNING_CALLS = 64
"""Largest number of messages in such a sample: enough to estimate the cost of one that takes less than a compute
burst."""
CO_RUNNING_SAMPLES = 3
"""Samples where a single message takes as long as `COMPUTE_BURSTS`: each is worth many short messages."""
COMPUTE_IMAGES = {"cpu": 2, "cuda": 512}
"""Images of 32 channels and 28 x 28 pixels in a compute burst, a convolution's backward pass: some 0.1 ms on a CPU,
much longer than starting it and much shorter than the messages that training waits for. On a GPU starting it and
waiting for it take some 0.05 ms: a burst has 15 GFLOP, a millisecond at 15 TFLOP/s."""

# --- the sentinel (`sentinel`) -------------------------------------------------------------------

SENTINEL_SECONDS = 0.1
"""Approximate duration of the products, and of the all-reduces, when their number is chosen, s; each end of a visit
takes twice as long."""
SENTINEL_PROBE = 0.02
"""Duration from which the number of products is estimated, s."""
SENTINEL_CACHE = 1 / 2
"""Part of a core's own cache that the three matrices fill: other cores' work does not evict them."""
SENTINEL_SIDE = {"cuda": 2048}
"""Side of the matrices on a GPU, which a smaller product does not fill."""
SENTINEL_STEP = 32
"""Granularity of the side, that of compute kernels."""
SENTINEL_PRODUCTS = 1000
"""Products that the recorded time is scaled to, whatever their number was, so that processes compare."""
SENTINEL_VALUES = 1024
"""Single-precision values of an all-reduce, from and to the host's memory: nearly all latency."""

# --- sending gradients (`synchronisation`) -------------------------------------------------------

IN_PLACE_BYTES = 4 * MIB
"""Size from which gradients are sent from where they lie, B: a copy would cost more than a separate message."""
LATENCY_BYTES = 4 * 2**10
"""Bytes of a message that is nearly all latency."""
LATENCIES = 16
"""Factor on the time of that message from which a message is nearly all bandwidth."""
CALIBRATION_SAMPLES = 7
"""Messages of each size, whose median is taken."""

# --- what timing costs (`instrumentation`), memory (`resident`), sensors -------------------------

TINY_LAYERS, PAIRS = 200, 15
"""Layers, and passes with and without timing that are compared: about 0.2 s in all on a CPU. The cost of a layer is
the median over pairs, so that half of them may be disturbed."""
NETWORKS_KEPT = 4
"""Networks in memory at once, each with its initial weights; beyond these the one that was not used for longest is
built again. Four of VGG-16, the largest, take 4.4 GB."""
MAX_CLOCKS = 8
"""Largest number of CPUs whose clocks are read, evenly chosen: some drivers ask the hardware for each."""
KERNEL_SHARE = 0.8
"""Share of all CPU time since boot that the kernel's root cgroup must have counted; a container's own is far below,
unless nothing else runs."""
