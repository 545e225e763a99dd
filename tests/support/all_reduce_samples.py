"""What nccl-tests and OSU micro-benchmarks print, made up for α = 20 µs and β = 0.1 ns/B."""

ALPHA, BETA = 20e-6, 1e-10
SIZES = (1024, 65536, 1048576, 16777216, 268435456)


def microseconds(size: int) -> float:
    return 1e6 * (ALPHA + BETA * size)


def nccl_tests(ranks: int = 8, *, processes: int = 1, sizes: tuple[int, ...] = SIZES, extra: str = "") -> str:
    """``mpirun all_reduce_perf -b 1K -e 256M -f 16`` on `ranks` GPUs; out of place takes twice the time."""
    lines = [
        "Warning: Permanently added 'node1' (ED25519) to the list of known hosts.",
        "# nccl-tests version 2.17.6 nccl-headers=22501 nccl-library=22501",
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 268435456 step: 16(factor) warmup iters: 1 iters: 20 agg iters: 1 "
        "validation: 1 graph: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {rank:2d} Group  0 Pid {4000 + rank:6d} on      node{rank // 4} device {rank % 4:2d} "
            f"[0000:{rank:02x}:00] NVIDIA V100"
            for _ in range(processes)
            for rank in range(ranks)
        ),
        "node0:4000:4021 [0] NCCL INFO Using network IB",
        "#",
        "#" + 62 * " " + "out-of-place" + 23 * " " + "in-place",
        "#       size         count      type   redop    root" + 2 * "     time   algbw   busbw #wrong",
        "#        (B)    (elements)" + 31 * " " + 2 * "(us)  (GB/s)  (GB/s)            ",
        *(
            f"{size:12d}  {size // 4:12d}     float     sum      -1"
            f"  {2 * microseconds(size):7.5g}    0.00    0.00      0  {microseconds(size):7.5g}    0.00    0.00      0"
            for size in sizes
        ),
        *([extra] if extra else []),
        "node0:4000:4000 [0] NCCL INFO comm 0x55d0 rank 0 nranks 8 cudaDev 0 - Destroy COMPLETE",
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 12.3456",
        "#",
        "# Collective test concluded: all_reduce_perf",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def osu(*, full: bool = False, sizes: tuple[int, ...] = SIZES, extra: str = "") -> str:
    """``osu_allreduce`` version 7, with ``-f`` if `full`; the mean over ranks is then 0.9 of the largest."""
    head = "# Size       Avg Latency(us)" + ("   Min Latency(us)   Max Latency(us)  Iterations" if full else "")
    rows = [
        f"{size:<10}{0.9 * microseconds(size):18.2f}{0.8 * microseconds(size):18.2f}{microseconds(size):18.2f}{100:12d}"
        if full
        else f"{size:<10}{microseconds(size):18.2f}"
        for size in sizes
    ]
    top = ["Lmod is automatically replacing 'a' with 'b'.", "", "# OSU MPI Allreduce Latency Test v7.4"]
    return "\n".join([*top, "# Datatype: MPI_CHAR.", head, *rows, *([extra] if extra else []), ""])
