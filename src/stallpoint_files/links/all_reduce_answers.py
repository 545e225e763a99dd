"""Answers to logs of all-reduces: the reached rate, whether the link limits it, and breaks over message sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median

from stallpoint.base.section import Cause, Finding
from stallpoint.inputs.all_reduce_logs import AllReduceRun
from stallpoint.text import number
from stallpoint_files.file_options import Options
from stallpoint_files.links.links import GB, LinkRate, inside_node, link_named, nearest
from stallpoint_files.links.nccl_answers import rate_of
from stallpoint_files.links.nccl_debug import NcclLog
from stallpoint_files.reader import FoundRecords

MIN_PLATEAU = 1e-3
"""Minimum time, s, for a plateau over message sizes to be a fault: no network has such a latency."""
PLATEAU = 0.05
BREAK = 1.5
"""Minimum factor by which bandwidth falls from one message size to the next for a break."""
SLOWER_GROUP = 1.25
"""Minimum factor for a group to be slower than another group of as many ranks."""
ALL_REDUCE = ("all-reduce",)
ANY_PARTS = "all-gather, reduce-scatter or all-to-all"
PARTS = ("all-gather", "reduce-scatter", "all-to-all", "all-gather or all-to-all", ANY_PARTS, "gather", "scatter")
"""Collectives in which each rank holds a part of the message."""
SHOWS_BANDWIDTH, FILLS_LINK = 1 << 20, 16 << 20
"""Minimum message sizes, bytes, to show bandwidth at all, and to show the link's full bandwidth."""


@dataclass(frozen=True)
class MedianTimes:
    """All runs with one number of ranks, reduced to the median time of each message size."""

    runs: Sequence[AllReduceRun]

    @property
    def ranks(self) -> int | None:
        """Number of ranks; None if unknown."""
        return self.runs[0].ranks

    @property
    def collective(self) -> str:
        """The measured collective."""
        return self.runs[0].collective

    @property
    def hosts(self) -> int | None:
        """Number of nodes; None if the log does not name nodes, or names them inconsistently."""
        named = list(self.runs[0].hosts)
        if not named or len(named) != (self.ranks or len(named)):
            return 1 if named and len(set(named)) == 1 and (self.ranks or 0) > len(named) else None
        return len(set(named))

    @property
    def device(self) -> str:
        """Device of the ranks; empty if unknown."""
        return next((name for name in self.runs[0].devices if name), "")

    @cached_property
    def seconds(self) -> dict[int, float]:
        """Median time by message size, s."""
        found: defaultdict[int, list[float]] = defaultdict(list)
        for run in self.runs:
            for row in run.rows:
                found[row.message_bytes].append(row.seconds)
        return {size: median(found[size]) for size in sorted(found)}

    @property
    def factor(self) -> float:
        """Ratio of the bytes through a ring's link to the message's: 2(n-1)/n for an all-reduce, (n-1)/n for `PARTS`; 1
        for others, and if n is unknown."""
        if self.collective not in ALL_REDUCE + PARTS or not self.ranks or self.ranks < 2:
            return 1.0
        return (2 if self.collective in ALL_REDUCE else 1) * (self.ranks - 1) / self.ranks

    def bandwidth(self, size: int) -> float:
        """Return the bandwidth through each link (busbw) at a message size, B/s."""
        return self.factor * size / self.seconds[size]

    @property
    def best(self) -> float:
        """Largest bandwidth of any size, B/s."""
        return max(map(self.bandwidth, self.seconds))

    @cached_property
    def broken(self) -> str:
        """Description of a break in the time over message sizes; empty if a single law may hold."""
        sizes = list(self.seconds)
        falls = [(self.bandwidth(a) / self.bandwidth(b), a, b) for a, b in pairwise(sizes)]
        worst, a, b = max(falls, default=(0.0, 0, 0))
        if worst > BREAK and self.seconds[b] > 100e-6:
            back = next((c for c in sizes if c > b and self.bandwidth(c) > self.bandwidth(a)), None)
            after = f", and comes back at {size_of(back)}" if back else ""
            return (
                f"bandwidth breaks between {size_of(a)} and {size_of(b)}: {rate(self.bandwidth(a))} -> "
                f"{rate(self.bandwidth(b))}{after}; another algorithm, protocol or link begins there"
            )
        floor = self._floor(sizes)
        if floor:
            low, high = floor
            return (
                f"{size_of(low)} to {size_of(high)} take the same {duration(self.seconds[low])}: something waits for a "
                "fixed time, which is no latency of a network"
            )
        return ""

    def _floor(self, sizes: Sequence[int]) -> tuple[int, int] | None:
        for low in sizes:
            same = [size for size in sizes if size >= low and abs(self.seconds[size] / self.seconds[low] - 1) < PLATEAU]
            if self.seconds[low] > MIN_PLATEAU and same[-1] >= 4 * low:
                return low, same[-1]
        return None


def size_of(size: int) -> str:
    """Return a size in words, such as ``128 MiB``."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{number(size / 2**power)} {unit}"
    return f"{size} B"


def rate(bytes_per_second: float) -> str:
    """Return a rate in words, such as ``3.1 GB/s``."""
    return f"{number(bytes_per_second / GB)} GB/s"


def duration(seconds: float) -> str:
    """Return a time in words, such as ``4.37 ms``."""
    return f"{number(1e6 * seconds)} µs" if seconds < 1e-3 else f"{number(1e3 * seconds)} ms"


def in_arrows_of(values: Sequence[float], unit: str, counts: Sequence[int]) -> str:
    """Return values over counts in words, such as ``1 -> 2 GB/s on 1, 2``."""
    return f"{' -> '.join(map(number, values))} {unit} on {', '.join(map(str, counts))}"


def measured(runs: Sequence[AllReduceRun]) -> list[MedianTimes]:
    """Return runs grouped by collective and devices, the fewest ranks and nodes first."""
    by_program: defaultdict[tuple[str, str, int, int, tuple[str, ...]], list[AllReduceRun]] = defaultdict(list)
    for run in runs:
        places = tuple(sorted(run.places))
        by_program[run.program, run.collective, run.ranks or 0, len(set(run.hosts)), places].append(run)
    return [MedianTimes(found) for _, found in sorted(by_program.items(), key=lambda one: one[0][1:4])]


def answers(
    runs: Sequence[AllReduceRun], *, link: str = "", expected: LinkRate | None = None, logged: bool = False
) -> Iterator[Finding]:
    """Yield a finding for each number of ranks; `expected` is the NICs' rate by a log of NCCL, if there is one
    (`logged`)."""
    every = measured(runs)
    single = [one for one in every if one.hosts == 1 and (one.ranks or 0) > 1]
    for one in every:
        of_link = (
            link_named(link)
            if link
            else (inside_node(one.device) if one.hosts == 1 and not _same_device(one) else expected)
        )
        inside = max((other.best for other in single if other is not one), default=0.0)
        alike = [
            other
            for other in every
            if (other.collective, other.ranks, other.hosts) == (one.collective, one.ranks, one.hosts)
        ]
        faster = max((other.best for other in alike), default=0.0)
        yield _finding(one, of_link, inside if one.hosts and one.hosts > 1 else 0.0, logged, faster)


def _same_device(one: MedianTimes) -> bool:
    """Return whether two ranks name the same device, which suggests that host names were anonymised."""
    return (
        one.runs[0].program == "nccl-tests"
        and (one.ranks or 0) == 2
        and len(set(one.runs[0].devices)) == 1
        and bool(one.broken)
    )


def _finding(one: MedianTimes, expected: LinkRate | None, inside: float, logged: bool, faster: float) -> Finding:
    where = "" if not one.hosts or _same_device(one) else f" on {one.hosts} node{'' if one.hosts == 1 else 's'}"
    ranks = f"{one.ranks} rank{'' if one.ranks == 1 else 's'}" if one.ranks else "ranks (how many is not said)"
    subject = f"{one.collective} of {ranks}{where}" + (f", {one.device}" if one.device else "")
    sizes = list(one.seconds)
    largest = sizes[-1]
    causes: list[Cause] = []
    asks: list[str] = []
    got = one.best
    headline = f"{rate(got)} a link at best"
    if one.ranks == 1:
        headline = "one rank sends nothing: its times are those of starting and copying"
        asks.append("the same of 2 ranks, in one node or between two nodes:  all_reduce_perf -b 64M -e 256M -f 2 -g 2")
    elif largest < SHOWS_BANDWIDTH:
        headline = (
            f"{duration(one.seconds[sizes[0]])} for the smallest message; {size_of(largest)} is too "
            f"small to show bandwidth"
        )
        asks.append("all-reduces of 64 to 256 MiB:  all_reduce_perf -b 64M -e 256M -f 2")
    elif expected and largest < FILLS_LINK:
        headline = (
            f"{rate(got)} a link at {size_of(largest)}, which is too small to fill {expected.name} "
            f"({rate(expected.bytes_per_second)})"
        )
        asks.append("all-reduces of 64 to 256 MiB:  all_reduce_perf -b 64M -e 256M -f 2")
    elif expected:
        share = got / expected.bytes_per_second
        headline = f"{number(got / GB)} of {rate(expected.bytes_per_second)} of {expected.name}, {100 * share:.0f} %"
        if share < 0.75 * expected.reachable:
            causes.append(
                Cause(
                    "slow_path",
                    f"the link gives {100 * share:.0f} % of what it carries: a slower path is taken (sockets, one "
                    "NIC of several, PCIe in place of NVLink, access control services), or the messages' size "
                    "is too small",
                    round(1 - share, 3),
                    expected.source,
                )
            )
            if not logged:
                asks.append("the start of the same run with NCCL_DEBUG=INFO: it names transport, NICs and channels")
    else:
        near = nearest(got)
        if near:
            headline += f", as much as {near.name} carries ({rate(near.bytes_per_second)})"
        asks.append(
            "what connects the workers, so that expected stands beside got:  --link 100 (Gbit/s), hdr, ndr, "
            "nvlink4, ..."
        )
    if inside > 4 * got:
        causes.insert(
            0,
            Cause(
                "link_between_nodes",
                f"between nodes an all-reduce is {number(inside / got)} times as slow as "
                f"inside one ({rate(inside)} -> {rate(got)}): the link between nodes",
            ),
        )
    if faster > SLOWER_GROUP * got:
        times = f"{number(faster / got)} times as slow as {number(faster / GB)} GB/s of another group of as many ranks"
        where = ", ".join(one.runs[0].places[:4])
        words = f"these devices ({where}) are {times}: do they share a NIC, a switch or a slower link?"
        causes.append(Cause("slower_group", words))
    if one.broken:
        causes.append(Cause("break", one.broken))
    if one.ranks is None and one.collective in ALL_REDUCE + PARTS:
        asks.append("how many ranks took part (--workers), which the ring's factor 2(n-1)/n needs")
    runs = f"{len(one.runs)} runs; " if len(one.runs) > 1 else ""
    law = "; no law fitted across the break" if one.broken else ""
    ends = ", ".join(f"{size_of(size)} {duration(one.seconds[size])}" for size in dict.fromkeys((sizes[0], largest)))
    fits = f"{runs}{ends}" + (f" ({rate(one.bandwidth(largest))}){law}" if one.ranks != 1 else "")
    return Finding("link", subject, headline, causes=tuple(causes), evidence="measured", fits=fits, ask=tuple(asks))


def runs_of(found: FoundRecords) -> list[AllReduceRun]:
    """Return the runs of all logs of all-reduces."""
    return [run for name in ("all-reduce", "other-all-reduces") for _, of_file in found.of(name) for run in of_file]


def of_files(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield the answers to logs of all-reduces, with the NICs' rates from logs of NCCL, if any."""
    runs = runs_of(found)
    for run in runs:
        if run.ranks is None and len(options.workers) == 1:
            run.ranks = options.workers[0]
    logs: list[NcclLog] = [log for _, log in found.of("nccl-debug")]
    expected = next((of for log in logs if (of := rate_of(log))), None)
    yield from answers(runs, link=options.link, expected=expected, logged=bool(logs))
