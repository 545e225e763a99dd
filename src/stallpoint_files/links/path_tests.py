"""Results of tests of a link between two nodes (perftest, iperf, OSU) and of a file system (IOR), and answers to them.

A link's test shows its rate and, for a known kind of link, whether the rate is normal. A file system's tests on several
node counts are a curve of the total rate, which shows where it stops growing.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stallpoint.base.curve import Curve, rates_from
from stallpoint.base.section import Cause, Finding
from stallpoint.base.stall import Verdict
from stallpoint.inputs.all_reduce_logs import OSU_PATH
from stallpoint.inputs.documents import Document
from stallpoint.text import number
from stallpoint_files.file_options import Options
from stallpoint_files.links.all_reduce_answers import BREAK, SHOWS_BANDWIDTH, in_arrows_of, rate, size_of
from stallpoint_files.links.links import GB, link_named, nearest
from stallpoint_files.reader import FoundRecords

MIB = 2**20
_NUMBER = r"\d++(?>(?:\.\d++)?)"
_PERFTEST = re.compile(
    r"#bytes +#iterations +(?:BW (?P<first>peak|average)\[(?P<unit>\w+)/sec\]|t_min\[usec\]|t_avg\[usec\])"
)
_PERFTEST_ROW = re.compile(rf"\s*(\d++)\s++\d++\s++({_NUMBER})\s++({_NUMBER})(?:\s++({_NUMBER}))?")
_PERFTEST_BEST = re.compile(rf"BW average\[(\w+)/sec\]\W{{1,5}}({_NUMBER})")
"""The average alone, copied without its table."""
_PERFTEST_UNITS = {"Gb": GB / 8, "MB": MIB, "MiB": MIB, "GB": GB}
"""Bytes of perftest's units: its MB are 2^20 bytes (linux-rdma/perftest, src/perftest_parameters.h)."""
_DEVICE = re.compile(r"\bDevice\s+: (\S{1,40})")
_TEST = re.compile(r"^\s*(\S.{0,40}?(?:BW|Bandwidth|Latency) Test)\s*$", re.MULTILINE)
_IPERF = re.compile(
    r"\[ *ID\] Interval +Transfer +(?:Bitrate|Bandwidth)|"
    rf"^\[(?:SUM| *\d++)\] +{_NUMBER}- *{_NUMBER} +sec +{_NUMBER} \wBytes +{_NUMBER} [KMGT]?bits/sec",
    re.MULTILINE,
)
_IPERF_ROW = re.compile(
    rf"\[ *(?P<id>\d++|SUM)\] +(?P<begin>{_NUMBER})- *(?P<end>{_NUMBER}) +sec +{_NUMBER} \wBytes +(?P<rate>{_NUMBER}) "
    r"(?P<unit>[KMGT]?)bits/sec(?: +(?P<retr>\d++)(?= ))?.{0,40}?(?P<role>sender|receiver)?\s*$"
)
_BITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_LOOP_BACK = re.compile(r"\b(?:Connecting to host|connected to) (?:127\.|localhost|::1)")
_UCX = re.compile(rf"^(?:log:)?Final: +\d++ +({_NUMBER})(?: +{_NUMBER}){{3}} +({_NUMBER}) ", re.MULTILINE)
"""ucx_perftest's last line: the typical time of a message in µs, and the bandwidth of the whole run."""
_IOR = re.compile(r"access +bw\(MiB/s\)")
_IOR_ROW = re.compile(rf"\s*(write|read) +({_NUMBER}) ")
_OSU_ROW = re.compile(rf"\s*(\d++)\s++({_NUMBER})(?:\s++(?:Pass|\d\S*))?\s*$")
_REORDERED = re.compile(r"ordering inter file *: *(?!no )\S")
LINK_ASK = "what connects the nodes, so that expected stands beside got:  --link 100 (Gbit/s), hdr, ndr, ..."


@dataclass(frozen=True)
class PathTest:
    """Result of a test of a link or of a file system."""

    program: str
    what: str = ""
    """The test and its device, as the program names them."""
    bytes_per_second: float = 0.0
    """Total rate of all streams or nodes."""
    fits: str = ""
    latency: float | None = None
    """Latency of the smallest message, s; None if not measured."""
    local: bool = False
    """Whether both ends were on one machine."""
    nodes: int | None = None
    cached: bool = False
    """Whether each task read its own data, which the page cache of its node may still hold."""


def recognised(document: Document) -> bool:
    """Return whether the text has the heading of one of these programs' results."""
    found = any(one.search(document.text) for one in (_UCX, _PERFTEST, _PERFTEST_BEST, _IPERF, _IOR))
    return found or any(map(OSU_PATH.match, document.lines)) or _in_json(document) is not None


def read(document: Document) -> list[PathTest]:
    """Return the tests in a text; `InputError` if a heading has no result below it."""
    if results := _in_json(document):
        found = [PathTest("iperf3", "", results[0] / 8, _in_gbit(*results))]
    elif _IOR.search(document.text):
        found = list(_ior_results(document))
    elif _UCX.search(document.text):
        found = list(_ucx_results(document))
    elif _IPERF.search(document.text):
        found = list(_iperf_results(document))
    else:
        found = [*_perftest_results(document), *_osu_results(document)]
    if not found:
        raise document.error(1, "a test of a link or a file system without a result; give its output to the end")
    return found


def _in_json(document: Document) -> tuple[float, float] | None:
    """Return bits/s and retransmissions from `iperf3 -J`; None for other documents."""
    if '"sum_received"' not in document.text and '"sum_sent"' not in document.text:
        return None
    try:
        end = json.loads(document.text)["end"]
        received, sent = (end.get(name, {}) for name in ("sum_received", "sum_sent"))
        value = float(received.get("bits_per_second") or sent["bits_per_second"])
        return value, float(sent.get("retransmits", 0))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _perftest_results(document: Document) -> Iterator[PathTest]:
    head, rows = None, list[re.Match[str]]()
    tests, devices = _TEST.findall(document.text), _DEVICE.findall(document.text)
    for line in (*document.lines, ""):
        found = _PERFTEST.search(line)
        row = _PERFTEST_ROW.match(line) if head else None
        if row:
            rows.append(row)
        elif head and rows and (found or not line.strip(" -")):
            what = ", ".join(part for part in (tests[0] if tests else "", devices[0] if devices else "") if part)
            if unit := head["unit"]:
                average = 2 if head["first"] == "average" else 3  # a peak may precede the average
                best = max(rows, key=lambda one: float(one[average]))
                value = float(best[average]) * _PERFTEST_UNITS.get(unit, MIB)
                yield PathTest(
                    "perftest", what, value, f"{size_of(int(best[1]))} messages: {best[average]} {unit}/s on average"
                )
            else:
                typical = rows[0][4] or rows[0][2]
                words = f"{size_of(int(rows[0][1]))}: {typical} µs, at least {rows[0][2]} µs"
                yield PathTest("perftest", what, fits=words, latency=float(typical) * 1e-6)
            head, rows = None, []
        head = found or head
    for unit, best in () if _PERFTEST.search(document.text) else _PERFTEST_BEST.findall(document.text):
        yield PathTest("perftest", "", float(best) * _PERFTEST_UNITS.get(unit, MIB), f"{best} {unit}/s on average")


def _ucx_results(document: Document) -> Iterator[PathTest]:
    """Yield ucx_perftest's results, whose MB are 2^20 bytes (openucx/ucx, src/tools/perf/perftest_run.c)."""
    for typical, all_told in _UCX.findall(document.text):
        if "overhead (usec)" in document.text:
            yield PathTest("ucx_perftest", "", float(all_told) * MIB, f"{all_told} MB/s over all messages")
        else:
            yield PathTest("ucx_perftest", "", fits=f"{typical} µs for half of them", latency=float(typical) * 1e-6)


def _osu_results(document: Document) -> Iterator[PathTest]:
    """Yield OSU's tests between two ranks, whose bandwidths are printed in 10^6 B/s."""
    test, rows = "", list[tuple[int, float]]()
    for line in (*document.lines, "# OSU"):
        if row := _OSU_ROW.match(line):
            rows.append((int(row[1]), float(row[2])))
        elif line.lstrip().startswith("# OSU"):
            if test and rows:
                yield _osu_result(test, rows)
            found = OSU_PATH.match(line)
            test, rows = found["test"] if found else "", []


def _best(rows: Sequence[tuple[int, float]]) -> tuple[int, float]:
    """Return the size and the bandwidth of the fastest large message: of small ones a cache may be as fast."""
    return max([row for row in rows if row[0] >= SHOWS_BANDWIDTH] or rows, key=lambda row: row[1])


def _osu_result(test: str, rows: Sequence[tuple[int, float]]) -> PathTest:
    what = f"{test.lower()} of two ranks"
    if "Latency" not in test:
        (size, best), (small, most) = _best(rows), max(rows, key=lambda row: row[1])
        ways = 2 if test.startswith("Bi-") else 1
        words = f"{size_of(size)} messages: {number(best)} MB/s{' in both directions together' if ways > 1 else ''}"
        words += f"; {number(most)} at {size_of(small)}: larger ones take a slower path" if most > BREAK * best else ""
        return PathTest("OSU", what, best * 1e6 / ways, words)
    (small, latency), (large, longest) = min(rows), max(rows)
    words = f"{size_of(small)}: {number(latency)} µs, {size_of(large)}: {number(longest)} µs"
    return PathTest("OSU", what, fits=words, latency=latency * 1e-6)


def _runs_of_iperf(document: Document) -> list[list[re.Match[str]]]:
    """Return the rows of each run; a run begins at another iperf version's row, or when a stream restarts at 0."""
    runs: list[list[re.Match[str]]] = []
    for line in document.lines:
        row = None if "(omitted)" in line else _IPERF_ROW.match(line)
        if not row:
            continue
        last = runs[-1] if runs else []
        again = float(row["begin"]) == 0 and any(
            float(one["begin"]) == 0 and float(row["end"]) <= float(one["end"])
            for one in last
            if one.group("id", "role") == row.group("id", "role")
        )
        if not last or again or _program_of(row) != _program_of(last[0]):
            runs.append([])
        runs[-1].append(row)
    return runs


def _program_of(row: re.Match[str]) -> str:
    """Return which iperf version printed a row: version 3 prints times with two decimals."""
    return "iperf3" if row["role"] or re.fullmatch(r"\d+\.\d\d", row["begin"]) else "iperf2"


def _iperf_results(document: Document) -> Iterator[PathTest]:
    local = bool(_LOOP_BACK.search(document.text))
    yield from (_iperf_result(rows, local) for rows in _runs_of_iperf(document))


def _iperf_result(rows: Sequence[re.Match[str]], local: bool) -> PathTest:
    whole = {row["id"]: row for row in rows if float(row["begin"]) == 0}  # the last row covers all intervals
    ends = [row for row in rows if row["role"]] or (
        list(whole.values()) if _program_of(rows[0]) == "iperf2" and whole else rows
    )
    kept = [row for row in ends if row["role"] == "receiver"] or ends
    kept = [row for row in kept if row["id"] == "SUM"] or kept
    last = [row for row in kept if row["role"]]
    streams = len({row["id"] for row in ends} - {"SUM"})
    rates = [float(row["rate"]) * _BITS[row["unit"]] for row in last or kept]
    bits = sum(rates)
    if not last:  # without a summary (the log was cut off), the mean of intervals is taken
        bits *= (1 if kept[0]["id"] == "SUM" else streams) / len(rates)
    again = max((int(row["retr"]) for row in ends if row["retr"] and row["role"] == "sender"), default=0)
    return PathTest(_program_of(rows[0]), "", bits / 8, _in_gbit(bits, again, streams), local=local)


def _in_gbit(bits: float, again: float, streams: int = 1) -> str:
    of = f" in {streams} streams" if streams > 1 else ""
    return f"{number(bits / GB)} Gbit/s{of}" + (f", {again:,.0f} segments sent again" if again else "")


def _ior_results(document: Document) -> Iterator[PathTest]:
    nodes = re.search(r"^nodes +: (\d{1,6})\b", document.text, re.MULTILINE)
    tasks = re.search(r"^tasks +: (\d{1,7})\b", document.text, re.MULTILINE)
    found: defaultdict[str, list[float]] = defaultdict(list)
    for line in document.lines:
        if row := _IOR_ROW.match(line):
            found[row[1]].append(float(row[2]))
    ran = ", ".join(
        f"{one[1]} {name}{'' if one[1] == '1' else 's'}" for one, name in ((nodes, "node"), (tasks, "task")) if one
    )
    cached = "write" in found and not _REORDERED.search(document.text)
    for what, values in found.items():
        mean = sum(values) / len(values)
        words = f"{number(mean)} MiB/s of {ran or 'all tasks'}" + (
            f", mean of {len(values)}" if len(values) > 1 else ""
        )
        yield PathTest(
            "IOR", what, mean * MIB, words, nodes=int(nodes[1]) if nodes else None, cached=cached and what == "read"
        )


def answers(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield an answer to each test of a link, and one to all tests of a file system."""
    tests = [test for _, of_file in found.of("path-test") for test in of_file]
    for test in tests:
        if test.program != "IOR":
            yield _link_finding(test, options)
    for what in dict.fromkeys(test.what for test in tests if test.program == "IOR"):
        yield _storage_finding(what, [test for test in tests if test.program == "IOR" and test.what == what], options)


def _link_finding(test: PathTest, options: Options) -> Finding:
    subject = ", ".join(filter(None, (test.program, test.what)))
    if test.local:
        words = f"{rate(test.bytes_per_second)} to the machine itself, which crosses no link"
        ask = f"{test.program} between two nodes: the server on one, its address in -c on the other"
        return Finding("self-test", subject, words, Verdict.UNDECIDED, evidence="measured", fits=test.fits, ask=(ask,))
    if test.latency is not None:
        words = f"{number(1e6 * test.latency)} µs for the smallest message; a latency says nothing of large gradients"
        ask = "the bandwidth between the same nodes:  ib_write_bw -a --report_gbits"
        return Finding("latency", subject, words, evidence="measured", fits=test.fits, ask=(ask,))
    got, causes, asks = test.bytes_per_second, [], []
    words = f"{rate(got)} between two nodes"
    if options.link:
        expected = link_named(options.link)
        share = got / expected.bytes_per_second
        words = f"{number(got / GB)} of {rate(expected.bytes_per_second)} of {expected.name}, {100 * share:.0f} %"
        if share < 0.75 * expected.reachable:
            slow = f"the link gives {100 * share:.0f} % of what it carries, without any collective: cable, port, "
            slow += "negotiated rate, PCIe slot, or for iperf3 one core for all streams (-P 8)"
            causes.append(Cause("slow_path", slow, round(1 - share, 3), expected.source))
    else:
        near = nearest(got)
        words += f", as much as {near.name} carries ({rate(near.bytes_per_second)})" if near else ""
        asks.append(LINK_ASK)
    return Finding("link", subject, words, causes=tuple(causes), evidence="measured", fits=test.fits, ask=tuple(asks))


def _storage_finding(what: str, tests: list[PathTest], options: Options) -> Finding:
    subject = f"IOR, {what}"
    fits = "; ".join(test.fits for test in tests)
    if any(test.cached for test in tests):
        words = "not believed: each task read what it had written, which the node's memory still holds"
        ask = "the same with  ior -C -e  (another node reads what one wrote)"
        return Finding("storage", subject, words, Verdict.UNDECIDED, evidence="measured", fits=fits, ask=(ask,))
    by_nodes: defaultdict[int, list[float]] = defaultdict(list)
    for test in tests:
        by_nodes[test.nodes or 0].append(test.bytes_per_second)
    more = "the same on twice the nodes: where it stays the same, the file system is the wall"
    if len(by_nodes) == 1 or 0 in by_nodes:
        ((nodes, values),) = (
            by_nodes.items() if len(by_nodes) == 1 else ((0, [test.bytes_per_second for test in tests]),)
        )
        mean = sum(values) / len(values)
        each = f", {rate(mean / nodes)} for each of {nodes} nodes" if nodes > 1 else ""
        ask = "training's bytes a second (samples/s x bytes of a sample) to stand beside it, or " + more
        return Finding("storage", subject, f"{rate(mean)}{each}", evidence="measured", fits=fits, ask=(ask,))
    curve = Curve(
        rates_from(by_nodes), None, options.threshold, "GB/s", counted="nodes", repeated=len(tests) > len(by_nodes)
    )
    verdict, count = curve.verdict
    fits = in_arrows_of([curve.rate(one) / GB for one in curve.counts], "GB/s", curve.counts)
    if verdict == Verdict.STALLS:
        word = "node" if count == 1 else "nodes"
        wall = f"{rate(curve.rate(count))} is all that the file system gives: each node more has less of it"
        words = f"the file system stops giving more at {count} {word}"
        return Finding(
            "storage", subject, words, Verdict.STALLS, count, causes=(Cause("file_system", wall),), evidence="measured",
            fits=fits, unit="nodes",
        )  # fmt: skip
    last = curve.counts[-1]
    words = f"still gives more at {last} nodes" if verdict == Verdict.SCALES else f"undecided beyond {count} nodes"
    return Finding("storage", subject, words, verdict, evidence="measured", fits=fits, ask=(more,))
