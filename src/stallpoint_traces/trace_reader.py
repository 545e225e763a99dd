"""Reader of profiler traces: recognises and interprets the files, and answers with findings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stallpoint.base.section import Finding
from stallpoint.base.section_texts import plain_json
from stallpoint.inputs.all_reduce_logs import AllReduce
from stallpoint.inputs.documents import head
from stallpoint_files.file_options import Options
from stallpoint_files.links.all_reduce_answers import runs_of
from stallpoint_files.reader import FoundRecords, PathReader
from stallpoint_files.texts import unread

if TYPE_CHECKING:
    from stallpoint.report.charts.render import Spec
    from stallpoint_traces.formats.events import Trace
    from stallpoint_traces.rank.rank import Rank

TRACE, TRACES = "trace", "traces"
"""Name of the reader and its findings, and the key of their details in JSON."""
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a]")


@dataclass(frozen=True)
class Traced:
    """Traces with the interpretation of each rank and its answer (`stallpoint_traces.trace_answers`)."""

    ranks: Sequence[tuple[Trace, Rank | None]]
    explained: Sequence[dict[str, Any]]
    kind: str = TRACE

    def to_json(self) -> Any:
        return plain_json(self.explained)

    def parts(self) -> Iterator[str | Spec]:
        from stallpoint_traces import trace_page

        yield from trace_page.parts(self.ranks, self.explained)


_LOG_KEYS = re.compile(rb'"(?:results|test_start|log_history|_step|_runtime|timing_s)"')
"""Keys in the JSON of nccl-tests, iperf3, transformers' trainer and metric trackers, which are no traces."""


_KEYS = re.compile(
    rb'"(?:ph|traceEvents|deviceProperties|schemaVersion|schema|ctrlDeps|dataDeps|durationMicros|cat|distributedInfo)"'
)
"""Keys in the first kilobytes of a profiler trace; a JSON object without them may be a row of a table."""


def trace(path: Path) -> Path | None:
    """Return `path` if the file is a profiler trace, else None."""
    if path.is_dir():
        return None
    begin = head(path)
    if unread.unread(path):
        return None
    if re.match(rb"\s*(\[\s*[{\]]|\{\s*[\"}])", begin):
        flat = re.match(rb"\s*\[?\s*\{[^{}]*\}", begin)  # a flat first object may be a row of a log or table
        if flat and not re.search(rb'"(ph|traceEvents)"', flat[0]):
            return None
        return path if _KEYS.search(begin) and (b'"traceEvents"' in begin or not _LOG_KEYS.search(begin)) else None
    # Kineto's JSON was handled above; other texts are traces only if NCCL's profiler wrote them.
    if begin.lstrip()[:1] in (b"{", b"[") or not (_BINARY.search(begin) or b'"cat":' in begin):
        return None
    from stallpoint_traces.formats import trace_formats  # a late import: readers of traces load those of storages

    return path if any(format.recognised(begin) for format in trace_formats.FORMATS.values()) else None


def traces_in(folder: Path) -> Sequence[Path]:
    """Return the trace files in a folder and its subfolders, truncated ones included."""
    from stallpoint_traces.formats.trace_formats import trace_files

    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and not file.name.startswith("."))
    return trace_files([str(folder)]) if any(map(trace, files)) else ()


def answers(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield the findings of traces; the link's speed is that of an all-reduce log with as many workers, if given."""
    if not found.of(TRACE):
        return
    from stallpoint_traces.rank.rank import read_ranks
    from stallpoint_traces.trace_answers import explain
    from stallpoint_traces.trace_words import findings

    files = [path for path, _ in found.of(TRACE)]
    ranks = read_ranks(files, options.workers[0] if len(options.workers) == 1 else None)
    replicas = next((rank.groups.replicas for _, rank in ranks if rank), 1)
    log: dict[int, list[AllReduce]] = defaultdict(list)
    for run in runs_of(found):
        log[run.ranks or replicas] += run.rows
    explained = explain(
        ranks,
        batch=int(options.batch) if options.batch else None,
        threshold=options.threshold,
        log=log,
        per_node=options.workers_per_node,
    )
    found.details[TRACES] = Traced(ranks, explained)
    yield from findings(explained)


READER = PathReader("traces of profilers", trace, answers, traces_in)
