"""What was set by hand for measuring, each with its reason; what the machine tells is derived from it, by these.

None of them is a quantity of a result: `benchmarks/sensitivity.py` and its test show what half and twice as much do.
Rules by which records are judged stand beside the rule (`stallpoint.records.disturbances`, models).
"""

from __future__ import annotations

MIB = 2**20

# --- caches (`caches`) ---------------------------------------------------------------------------

CACHE_UNKNOWN = 32 * MIB
"""Bytes of the largest caches where the machine does not tell: of a desktop, of a part of a server, of a GPU."""
CORE_CACHE_UNKNOWN = 256 * 2**10
"""Bytes of a core's own cache where the machine does not tell: the smallest that servers of ten years had."""

# --- matrix products (`sgemm`) -------------------------------------------------------------------

PEAK_SIDE = {"cpu": 2048, "cuda": 8192}
"""Side of the square product ``peak``: each value that comes from memory is used so often that the memory does not
count, and a GPU is full. Twice the side is eight times the work."""
ROWS_DEEP = 4096
"""Values in a row of ``rows``, as in AlexNet's fully-connected layers."""
ROWS_BYTES = 96 * MIB, 384 * MIB
"""Least and most of the matrix of ``rows``, which doubles in between. Virtual machines may tell of less cache than
there is: with 64 MiB on a processor that has 480 MiB, 8 rows took as long as 3, with 96 MiB 1.5 times as long. Weights
of the largest layers take 144 MiB (AlexNet) and 392 MiB (VGG-16): a cache that holds more, holds them, too."""
ROWS_CACHES = 3
"""Caches that ``rows`` fills, so that most of it comes from memory each time."""
BANDWIDTH_BYTES = {"cpu": (256 * MIB, 1024 * MIB), "cuda": (1024 * MIB, 1024 * MIB)}
"""Least and most of the matrix of ``bandwidth``, which doubles in between. On a GPU, starting a product takes as long
as reading some 10 MiB."""
BANDWIDTH_CACHES = 8
"""Caches that it fills: what stays in one makes the memory look faster by an eighth at most."""
ROWS = (
    *range(1, 13), 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 160, 192, 256, 384, 512,
    768, 1024, 1536, 2048,
)  # fmt: skip
"""Row counts at and around whole blocks of 2, 4, 8, ... rows. The last ones are left out where they tell nothing new
(`ROWS_SETTLED`)."""
ROWS_LEAST = 256
"""Rows that are measured in any case, and on from which it is asked whether more tell anything: a library may seem to
have settled before it changes to the kernel for many rows (MKL 2024.2 at 192)."""
ROWS_SETTLED = 0.05
"""Change of the rate by twice the rows up to which more rows tell nothing new: samples are as far apart. Where the
matrix takes as long as f rows, the rate grows by f over twice the rows."""
ROWS_SAMPLES = 2
"""Times of which the shorter one counts there: what else the machine does makes times longer, never shorter."""
SECONDS_PER_PRODUCT = 20.0
"""A product that has taken this long gets no further sample, if it has `LEAST_SAMPLES`: so that no cell takes hours."""
LEAST_SAMPLES = 3
"""Samples whose median is no single one's."""

# --- bursts of collective operations (`bursts`) --------------------------------------------------

BURST_SECONDS = 0.1
"""How long a burst of equal messages is to take, unless one alone takes longer: some twenty turns of a scheduler, where
ranks share cores; and ranks leave the barrier before it some µs apart."""
BURST_MESSAGES = 16
"""Messages of a burst at most: of what ranks are apart after the barrier, each has a sixteenth then. Training sends one
for each layer with weights, 8 (AlexNet) to 107 (ResNet-50); with 32 of them 1 KiB took 0.84 times as long."""
BURST_AS_BYTES, BESIDE_AS_BYTES = 2**22, 2**24
"""A burst takes as long as one message of so many bytes, at least, and one beside computing; for the time left, in the
log alone."""

# --- all-reduces beside computing (`contention`) -------------------------------------------------

ISOLATED_SECONDS = 0.4
"""How long pieces are computed with nothing sent, once in a visit: as long as a pass. In much less, some ranks begin or
end while others do not compute, and pieces seem faster than a network's layers are (docs/measuring.md)."""
BESIDE_PIECES = 40
"""For how many pieces messages are to be sent (if those of the sample before tell). Pieces count whole: one in 40 is
2.5 %."""
BESIDE_MESSAGES = 64
"""Messages at most: where one takes less than a piece, so many are enough to tell what each costs."""
BESIDE_SAMPLES = 3
"""Samples of messages of which one alone is as long as `BESIDE_PIECES`: each says what many short ones say."""
PIECE_IMAGES = {"cpu": 2, "cuda": 512}
"""Images of 32 channels and 28 x 28 pixels in a piece, a convolution's backward pass: some 0.1 ms on a CPU, so that
starting it does not count, and short beside the messages that training waits for. On a GPU starting it and waiting for
it take some 0.05 ms: a piece has 15 GFLOP, a millisecond at 15 TFLOP/s."""

# --- the sentinel (`sentinel`) -------------------------------------------------------------------

SENTINEL_SECONDS = 0.1
"""About how long the products take, and the all-reduces, when they are counted. It costs twice as much at each end of
a visit."""
SENTINEL_PROBE = 0.02
"""Long enough to tell from how many there have to be, s."""
SENTINEL_CACHE = 1 / 2
"""Part of a core's own cache that its three matrices fill: other cores' work does not reach them there."""
SENTINEL_SIDE = {"cuda": 2048}
"""On a GPU, which a smaller product does not fill."""
SENTINEL_STEP = 32
"""Sides are whole multiples of it, as kernels compute."""
SENTINEL_PRODUCTS = 1000
"""Products whose time is told, whatever their number was: it then compares between processes."""
SENTINEL_VALUES = 1024
"""Single-precision values of an all-reduce, from and to the host's memory: nearly all latency."""

# --- sending gradients (`synchronisation`) -------------------------------------------------------

IN_PLACE_BYTES = 4 * MIB
"""Gradients of this size and more are sent where they lie: a copy would cost more than a message of its own."""
LATENCY_BYTES = 4 * 2**10
"""A message that is nearly all latency."""
LATENCIES = 16
"""A message that takes so many times as long is nearly all bandwidth."""
CALIBRATION_SAMPLES = 7
"""Messages of a size whose median counts."""

# --- what timing costs (`instrumentation`), memory (`resident`), sensors -------------------------

TINY_LAYERS, PAIRS = 200, 15
"""Layers, and passes with and without timing that are compared: about 0.2 s in all on a CPU. The cost of a layer is
the median over pairs, so that half of them may be disturbed."""
NETWORKS_KEPT = 4
"""Networks in memory at once, each with its initial weights; beyond these the one that was not used for longest is
built again. Four of VGG-16, the largest, take 4.4 GB."""
MOST_CLOCKS = 8
"""CPUs whose clocks are asked for, evenly taken of those there are: some drivers ask the hardware for each."""
WHOLE_KERNEL = 0.8
"""Share of all CPU time since boot that a cgroup must have counted to be the whole kernel's; a container's own is far
below, unless it is all that runs."""
