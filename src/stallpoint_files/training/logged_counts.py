"""Numbers of workers and nodes in a log, its mini-batch, and the lines at which runs on other workers begin."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from stallpoint.inputs.documents import Document
from stallpoint_files.texts.counts import COUNT_AHEAD, COUNTED, one_count
from stallpoint_files.texts.numbers import UNITS, number_in

_LONGEST_HEADING = 100
_HEADING_MARK = re.compile(r" {0,3}(?:#{1,6} |\*\*|__|==)")
"""Beginning of a heading that may have its count anywhere: ``__Training on two GPUs__``."""
_LINES_ABOVE = 8
"""Number of lines above a program's line that may give its workers."""
_SEPARATOR = r"[\"']?[ \t]{0,3}[.:=| ][.:=| ]{0,60}"
"""Separator of a name and its number in options and listings."""
_WORLD_SIZE = (
    re.compile(rf"\bworld[_ ]?size{_SEPARATOR}(\d+)", re.I),
    re.compile(r"\bMEMBER: \d+/(\d+)"),
    re.compile(r"\b(?:using|with|on) (\d+) (?:gpus|procs|processes|ranks|devices)\b", re.I),
    re.compile(r"\bProcess \d+, total (\d+), device\b"),
    re.compile(r"\b(?:srun|mpirun|mpiexec|horovodrun)\b[^\n]{0,200}? (?:-np?|--ntasks)[ =](\d+)\b"),
    re.compile(r"\bnranks[ =](\d+)"),
    re.compile(r"\bGPU number: (\d+)"),
    re.compile(rf"\bnum(?:ber)?[_ -]?(?:of[_ ])?(?:processes|gpus|devices|replicas){_SEPARATOR}(\d+)", re.I),
    re.compile(r"mesh with \[[^][]*\], \[(\d+)\]"),
    re.compile(r"^Total img/sec on (\d+) \w+\(s\): "),
    re.compile(r"\bData Parallel GPUs = (\d+)"),
    re.compile(r"\bholding \d+/(\d+) devices\b"),
)
_DEVICES = re.compile(r"^Devices: +\[('[^]\n]{1,10000})\]", re.MULTILINE)
"""List of devices that tf_cnn_benchmarks prints."""
_GPUS = r"(?:gpu|rank|proc|device)"
_IN_NAME = re.compile(
    rf"(?<![A-Za-z0-9])(?:(?P<workers>\d{{1,6}})(?:[ _-]?{_GPUS}s|{_GPUS}|(?<=\b1)[ _-]{_GPUS})|"
    r"(?P<nodes>\d{1,6})(?:[ _-]?nodes|node|(?<=\b1)[ _-]node)|"
    r"(?:n?gpus|np|nprocs?)[ _-]?(?P<workers_>\d{1,6})|n?nodes[ _-]?(?P<nodes_>\d{1,6}))(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_NODES = re.compile(rf"\b(?:nnodes|n(?:um)?[_-](?:nodes|machines)){_SEPARATOR}(\d{{1,6}})\b", re.IGNORECASE)
_PER_NODE = re.compile(
    rf"\b(?:nproc[_-]per[_-]node|(?:n|num)?[_-]?gpus[_-]per[_-]node){_SEPARATOR}(\d{{1,6}})\b", re.IGNORECASE
)
BATCH = re.compile(
    r"Total train batch size[^=\n]{0,80}= ?(\d{1,9})|"
    r"\b(?:global|total|train|rollout)[_-]batch[_-]size[\"']?(?:\s*[:=]\s*| )(\d{1,9})",
    re.IGNORECASE,
)
WORKER_BATCH = re.compile(
    rf"(?:\bper_device_train_batch_size|\bsamples_per_gpu|batch[_ ]size per device){_SEPARATOR}(\d{{1,6}})\b|"
    r"\btrain_dataloader ?= ?dict\(\s{0,40}batch_size=(\d{1,6})\b",
    re.IGNORECASE,
)
ACCUMULATION = re.compile(rf"gradient[_ ]accumulation[_ ]steps{_SEPARATOR}(\d{{1,6}})\b", re.IGNORECASE)
_ONE_NODE = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b")
_OF_ALL_AND_EACH = re.compile(
    r"(?<![\w/])(?:throughput/|timing/)?(?P<unit>token|sample|seq)s_per_sec(?:ond)?[:=] ?(?P<all>[\d.]+ ?[kKM]?)\b"
    r"(?:[^\n]{0,60}?|(?:\n[^\n]{0,200}){0,2}?)(?:(?<![\w/])throughput/device/(?P=unit)s_per_sec"
    r"|(?P=unit)s_per_sec(?:ond)?_per_(?:gpu|core))[:=] ?(?P<each>[\d.]+ ?[kKM]?)\b|"
    r"(?<![\w.])(?P<all_>[0-9]+\.[0-9]+)/s, (?P<each_>[0-9]+\.[0-9]+)/s/gpu\b|"
    r"\b(?P<unit_>(?i:token|sample))s/s: *(?P<all__>[\d.]+ ?[kKM]?)\b[^\n]{0,60}?"
    r"(?P=unit_)s/s/(?i:gpu): *(?P<each__>[\d.]+ ?[kKM]?)\b"
)
"""A total rate next to the rate of each worker."""
_COUNT_FITS = 0.02
_RATES_BEHIND = 40
"""Number of lines at the end that are searched for total rate and rate of each worker."""


@dataclass(frozen=True)
class Begin:
    """Line at which a run on other workers begins."""

    workers: int | None = None
    nodes: int | None = None
    words: str = ""


def headings_in(document: Document) -> dict[int, Begin]:
    """Return the headings that give the worker count of the lines below, such as ``**2 GPUs:**``, by line number."""
    found = {}
    for number, line in enumerate(document.lines, start=1):
        if len(line) > _LONGEST_HEADING:
            continue
        count = COUNT_AHEAD.search(line) if _HEADING_MARK.match(line) else COUNT_AHEAD.match(line)
        if count and not UNITS.search(line):
            nodes = int(count["nodes"] or count["before"] or 0) or None
            of_nodes = count["of"].lower().startswith("node")
            workers, nodes = (None, int(count["count"])) if of_nodes else (int(count["count"]), nodes)
            found[number] = Begin(workers, nodes, line)
    return found


def before(begins: Iterable[int], numbers: Iterable[int]) -> list[int | None]:
    """Return, for each line of `numbers`, the last line of `begins` (ascending) at or before it; None without one."""
    lines = list(begins)
    return [lines[place - 1] if (place := bisect_right(lines, number)) else None for number in numbers]


def begins_in(document: Document, lines: Sequence[int]) -> Mapping[int, Begin]:
    """Return where runs on other workers begin: at headings above the program's `lines`, or at other world sizes."""
    headings = headings_in(document)
    if _are_several(remarks := _counts_in_comments(document, lines)):
        return remarks
    used = set(before(headings, lines))
    if None not in used and len(used) > 1:
        return {number: begin for number, begin in headings.items() if number in used}
    above = _counts_above(document, lines)
    if above and min(above) <= lines[0] and _are_several(above):
        return above
    alone = {number: begin for number, begin in headings.items() if number in used and COUNTED.fullmatch(begin.words)}
    if None not in used and alone:
        return alone
    worlds: dict[int, Begin] = {}
    for number, line in enumerate(document.lines, start=1):
        workers = workers_in([line]) or _workers_on_nodes(first_number(_NODES, [line]), [line])
        if workers and workers != (list(worlds.values())[-1].workers if worlds else None):
            worlds[number] = Begin(workers)
    used = set(before(worlds, lines))
    return worlds if None not in used and len(used) > 1 else {}


def _are_several(begins: Mapping[int, Begin]) -> bool:
    """Return whether at least two counts differ."""
    return len({(one.workers, one.nodes) for one in begins.values()}) > 1


def _counts_in_comments(document: Document, lines: Iterable[int]) -> dict[int, Begin]:
    """Return the counts in comments at the end of the program's lines; empty if any line has none."""
    found: dict[int, Begin] = {}
    for number in lines:
        _, mark, remark = document.lines[number - 1].partition("#")
        if not mark or not (begin := _single_count(remark)):
            return {}
        found[number] = begin
    return found


def _counts_above(document: Document, lines: Sequence[int]) -> dict[int, Begin]:
    """Return the texts or commands with one count that directly precede the program's lines."""
    found: dict[int, Begin] = {}
    for previous, first in pairwise((0, *lines)):
        for number in range(first - 1, max(previous, first - _LINES_ABOVE), -1):
            line = document.lines[number - 1]
            if begin := _single_count(line):
                found[number] = begin
                break
    return found


def _single_count(text: str) -> Begin | None:
    """Return the count in a text or a command; None for no count or several."""
    if len(text) > _LONGEST_HEADING * 3 or "load" in text.lower() or not (count := one_count(text)):
        return None
    workers, nodes, of_nodes = count
    return Begin(None, workers, text) if of_nodes else Begin(workers, nodes or None, text)


def counts_in(document: Document, lines: Sequence[str], begin: Begin | None) -> tuple[int | None, int | None]:
    """Return the numbers of workers and nodes: from a part's `begin`, else its lines, else the file's name."""
    workers, nodes = (begin.workers, begin.nodes) if begin else (workers_in(lines), first_number(_NODES, lines))
    workers = workers or _workers_on_nodes(nodes, lines) or workers_by_rates(lines) or _workers_by_batches(lines)
    return (workers, nodes) if workers or nodes or begin else counts_in_name(document.path.name)


def workers_in(lines: Sequence[str]) -> int | None:
    """Return the number of workers given in lines; None if unknown."""
    for pattern, line in product(_WORLD_SIZE, lines):
        if (found := pattern.search(line)) and 0 < (workers := int(found[1])) <= 10**7:
            return workers
    listed = next(filter(None, map(_DEVICES.search, lines)), None)
    return listed[1].count(",") + 1 if listed else None


def counts_in_name(name: str) -> tuple[int | None, int | None]:
    """Return the numbers of workers and nodes in a file's name, such as ``8gpus.log``; if it has both, only the nodes,
    as the workers may be those of a node."""
    of: dict[str, set[int]] = {"workers": set(), "nodes": set()}
    for found in _IN_NAME.finditer(name.replace(".", " ").replace("_", " ")):
        kind = "workers" if found["workers"] or found["workers_"] else "nodes"
        of[kind].add(int(next(filter(None, found.groups()))))
    workers, nodes = (next(iter(one)) if len(one) == 1 and one != {0} else None for one in of.values())
    return None if of["nodes"] else workers, nodes


def workers_by_rates(lines: Sequence[str]) -> int | None:
    """Return the ratio of the total rate to each worker's, if lines give both and it is a count; else None."""
    for found in _OF_ALL_AND_EACH.finditer("\n".join(lines[-_RATES_BEHIND:])):
        together, each = (next(filter(None, (found[of], found[f"{of}_"], found[f"{of}__"]))) for of in ("all", "each"))
        times = number_in(together) / max(number_in(each), 1e-300)
        if 1 / 2 < times < 10**7 and abs(times / round(times) - 1) < _COUNT_FITS / times**0.5:
            return round(times)
    return None


def _workers_on_nodes(nodes: int | None, lines: Sequence[str]) -> int | None:
    """Return the number of workers from those of a node; ``torchrun`` without an option for nodes uses one node."""
    if per_node := first_number(_PER_NODE, lines):
        alone = any(map(_ONE_NODE.search, lines)) and not any("nnodes" in line for line in lines)
        return per_node * nodes if nodes else per_node if alone else None
    return None


def _workers_by_batches(lines: Sequence[str]) -> int | None:
    """Return the ratio of global to worker's mini-batch (as ``transformers`` prints them), if it is a count."""
    total, each = first_number(BATCH, lines), first_number(WORKER_BATCH, lines)
    steps = first_number(ACCUMULATION, lines)
    return total // (each * steps) if total and each and steps and total % (each * steps) == 0 else None


def first_number(pattern: re.Pattern[str], lines: Sequence[str]) -> int | None:
    """Return the first positive number that a pattern finds in lines."""
    matches = (match for line in lines if (match := pattern.search(line)))
    return next((int(text) for match in matches for text in match.groups() if text and int(text)), None)


def last_before(pattern: re.Pattern[str], document: Document, line: int) -> int | None:
    """Return the last number that a pattern finds at or before a line."""
    return first_number(pattern, document.lines[line - 1 :: -1])
