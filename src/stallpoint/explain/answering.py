"""Answers to files of any kind that is known, put together."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stallpoint.base.section import Cause, Finding
from stallpoint.base.section_texts import SCHEMA_VERSION, in_json, in_terminal, plain_json
from stallpoint.base.stall import Verdict
from stallpoint.errors import InputError
from stallpoint.explain import (
    all_reduce_answers,
    nccl_answers,
    rate_answers,
    script_answers,
    slurm_account_answers,
    study_results,
    target_answers,
)
from stallpoint.explain.rate_answers import Options
from stallpoint.inputs import mlperf_logs, readers
from stallpoint.inputs.all_reduce_logs import AllReduce, AllReduceRun
from stallpoint.inputs.mlperf_logs import MlperfRun
from stallpoint.inputs.nccl_debug import NcclLog
from stallpoint.inputs.rate_tables import RateRow, Rates
from stallpoint.text import listed, number

if TYPE_CHECKING:
    from stallpoint.explain.rank import Rank
    from stallpoint.inputs.events import Trace

MAX_FILES = 10_000
TRACE, STUDY, PROBE = "trace", "study", "probe"


@dataclass(frozen=True)
class Input:
    """A file and its recognised content."""

    file: str
    recognised: tuple[str, ...]


@dataclass(frozen=True)
class Traced:
    """Traces with their interpretation, and what each says (`stallpoint.explain.trace_answers`)."""

    ranks: Sequence[tuple[Trace, Rank | None]] = ()
    explained: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True)
class Explanation:
    """Findings of all files."""

    inputs: Sequence[Input]
    answers: Sequence[Finding]
    traced: Traced = Traced()

    def to_json(self) -> dict[str, Any]:
        """Return the version of this form, ``inputs``, ``answers``, and everything about each of the ``traces``."""
        inputs = [asdict(one) for one in self.inputs]
        return {
            "version": SCHEMA_VERSION,
            "inputs": inputs,
            "answers": in_json(self.answers),
            "traces": plain_json(self.traced.explained),
        }

    def in_words(self) -> str:
        """Return the answers for people."""
        return in_terminal(self.answers)


@dataclass
class FoundRecords:
    """The records of all files, by the names of their readers, each with its file."""

    records: dict[str, list[tuple[Path, Any]]] = field(default_factory=dict)
    traces: list[Path] = field(default_factory=list)
    probes: list[Path] = field(default_factory=list)
    """Folders with the records of a probe's ranks."""
    traced: Traced = Traced()

    def of(self, name: str) -> list[tuple[Path, Any]]:
        """Return the records of a reader with their files."""
        return self.records.get(name, [])


def explain_files(names: Sequence[str], options: Options) -> Explanation:
    """Return what the files say; `InputError` names the file and line that is wrong."""
    with tempfile.TemporaryDirectory(prefix="stallpoint-") as scratch:

        def named(text: str) -> str:
            for place, name in enumerate(names):
                text = text.replace(f"{scratch}/{place}/", f"{name}/")
            return text

        try:
            paths, of_folders = _paths(names, Path(scratch))
            found = _explained(paths, options, of_folders)
        except InputError as error:
            raise InputError(named(str(error))) from None
        return replace(found, inputs=[replace(one, file=named(one.file)) for one in found.inputs])


def _explained(paths: Sequence[Path], options: Options, of_folders: Collection[Path]) -> Explanation:
    """Return what the files say; of those of a folder, which may hold others too, some may be refused."""
    found, inputs = FoundRecords(), []
    refused: dict[Path, InputError] = {}
    for path in paths:
        if studies := study_results.read(path):
            found.records.setdefault(STUDY, []).extend((path, one) for one in studies)
            inputs.append(Input(str(path), (STUDY,)))
            continue
        if folder := study_results.probe_folder(path):
            if folder not in found.probes:
                found.probes.append(folder)
                inputs.append(Input(str(folder), (PROBE,)))
            continue
        if readers.trace(path):
            found.traces.append(path)
            inputs.append(Input(str(path), (TRACE,)))
            continue
        try:
            records = readers.read(path, options.pattern)
        except InputError as error:
            if path not in of_folders:
                raise
            refused[path] = error
            continue
        for name, record in records.items():
            found.records.setdefault(name, []).append((path, record))
        inputs.append(Input(str(path), tuple(records)))
    if found.traces:
        found.traced = _traced(found, options)
    if refused and not inputs:
        raise next(iter(refused.values()))
    answers = [finding for question in QUESTIONS for finding in question(found, options)]
    if refused and answers:
        names = listed([path.name for path in list(refused)[:3]]) + (", ..." if len(refused) > 3 else "")
        answers[0] = replace(answers[0], notes=(*answers[0].notes, f"not read, as nothing that is known: {names}"))
    return Explanation(inputs, _joined(answers), found.traced)


def _paths(names: Sequence[str], scratch: Path) -> tuple[list[Path], set[Path]]:
    """Return the files to read, those of folders and of zips, which are unpacked in `scratch`; and those of folders."""
    paths: list[Path] = []
    of_folders: set[Path] = set()
    for place, name in enumerate(names):
        path = Path(name)
        if path.is_dir() and not (study_results.is_study(path) or study_results.probe_folder(path)):
            in_folder = _results(sorted(path.rglob("*"))) or _in_folder(path)
            paths += in_folder
            of_folders.update(in_folder)
        elif path.exists():
            unpacked = study_results.unpack(path, scratch / str(place))
            traces = _results(unpacked) or [file for file in unpacked if readers.trace(file)]
            paths += traces or unpacked or [path]
        elif Path("results", name).is_dir():
            paths.append(Path("results", name))
        else:
            raise InputError(f"{name}: there is no such file, folder or study")
    if len(paths) > MAX_FILES:
        raise InputError(f"{len(paths)} files; at most {MAX_FILES:,} are read at once")
    return paths, of_folders


def _in_folder(folder: Path) -> list[Path]:
    """Return the traces in a folder and its subfolders, or where there are none all its files."""
    from stallpoint.inputs.trace_formats import trace_files

    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.name.startswith(".")]
    if any(map(readers.trace, files)) or not files:
        return trace_files([str(folder)])
    return files


def _results(paths: Sequence[Path]) -> list[Path]:
    """Return the result logs of MLPerf among files."""
    return [path for path in paths if path.suffix in (".txt", ".log", ".out") and mlperf_logs.in_file(path)]


def _of_tables(found: FoundRecords, options: Options) -> Iterator[Finding]:
    for _, tables in found.of("rates"):
        for rates in tables:
            yield from rate_answers.answers(rates, options)


def _of_targets(found: FoundRecords, options: Options) -> Iterator[Finding]:
    for _, table in found.of("targets"):
        yield from target_answers.answers(table, options)


def _of_mlperf(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield the answers of MLPerf's result logs: those of one system are one series."""
    runs: list[MlperfRun] = [run for _, run in found.of("mlperf")]
    if not runs:
        return
    if options.workers and len(options.workers) != len(runs):
        raise InputError(
            f"--workers: {len(options.workers)} counts for {len(runs)} result logs; one for each, in order"
        )
    counts = options.workers or tuple(run.workers or 0 for run in runs)
    if all(counts):
        yield from target_answers.answers(mlperf_logs.target_runs(runs, counts), options)
        return
    unknown = next(run for run, count in zip(runs, counts, strict=True) if not count)
    minutes = "; ".join(f"{run.path.name}: {number(run.seconds / 60)} min" for run in runs[:4] if run.seconds)
    platform = f" (its platform line, {unknown.platform}, may be a placeholder)" if unknown.platform else ""
    yield Finding(
        target_answers.KIND,
        f"result log{'s' if len(runs) > 1 else ''} of {unknown.system}",
        minutes or "no run reached the target",
        Verdict.UNDECIDED,
        evidence="logged",
        ask=(
            f"how many accelerators there were, which {unknown.path} does not say{platform}:  --workers N (one for "
            "each log, with commas), or the system's JSON where submissions have it",
        ),
    )


def _of_layouts(found: FoundRecords, options: Options) -> Iterator[Finding]:
    if not found.of("layouts"):
        return
    from stallpoint.explain import layout_answers

    for _, tables in found.of("layouts"):
        for table in tables:
            yield from layout_answers.answers(table, options)


def _of_logs(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield the answer of training logs of several worker counts, which are one series for each program."""
    logs = [(path, log) for path, of_file in found.of("training-log") for log in of_file]
    if not logs:
        return
    if options.workers and len(options.workers) != len(logs):
        raise InputError(
            f"--workers: {len(options.workers)} counts for {len(logs)} training logs; one for each, in their order"
        )
    notes = tuple(f"{path.name}, {note}" for path, log in logs for note in log.notes)
    in_nodes = not options.workers and not all(log.workers for _, log in logs)
    counts = options.workers or tuple((log.nodes if in_nodes else log.workers) or 0 for _, log in logs)
    unknown = [str(path) for (path, _), count in zip(logs, counts, strict=True) if not count]
    if unknown:
        words = "; ".join(
            f"{log.run or path.name}: {number(log.value)} {'s an iteration' if log.seconds else log.unit}"
            for path, log in logs[:4]
        )
        yield Finding(
            "rates",
            f"training log{'s' if len(logs) > 1 else ''} of {logs[0][1].program}",
            words,
            Verdict.UNDECIDED,
            evidence="logged",
            notes=notes,
            ask=(
                f"how many workers there were, which {unknown[0]} does not say:  --workers N (one for each log, "
                f"with commas)",
            ),
        )
        return
    models = {log.model for _, log in logs if log.model}
    for program in dict.fromkeys((log.program, log.unit, log.seconds, log.of) for _, log in logs):
        rows = [
            RateRow(
                f"{program[0]}, {log.model}" if len(models) > 1 else program[0],
                count,
                log.value,
                options.workers_per_node or (log.workers / log.nodes if log.workers and log.nodes else None),
                log.batch / count if log.batch else options.batch,
                0,
            )
            for (_, log), count in zip(logs, counts, strict=True)
            if (log.program, log.unit, log.seconds, log.of) == program
        ]
        setup = " ".join(dict.fromkeys(log.setup for _, log in logs))
        seconds = "iteration" if program[2] else ""
        counted = "nodes" if in_nodes else "workers"
        spread = max((of for _, log in logs if (of := log.spread)), default=None)
        rates = Rates(rows, program[1], program[3], seconds, counted, notes, setup, spread=spread)
        yield from rate_answers.answers(rates, options)


def _all_reduce_runs(found: FoundRecords) -> list[AllReduceRun]:
    return [run for name in ("all-reduce", "all-reduce-json") for _, of_file in found.of(name) for run in of_file]


def _of_all_reduces(found: FoundRecords, options: Options) -> Iterator[Finding]:
    runs = _all_reduce_runs(found)
    for run in runs:
        if run.ranks is None and len(options.workers) == 1:
            run.ranks = options.workers[0]
    logs: list[NcclLog] = [log for _, log in found.of("nccl-debug")]
    expected = next((of for log in logs if (of := nccl_answers.rate_of(log))), None)
    yield from all_reduce_answers.answers(runs, link=options.link, expected=expected, logged=bool(logs))


def _of_nccl(found: FoundRecords, _: Options) -> Iterator[Finding]:
    for path, log in found.of("nccl-debug"):
        finding = nccl_answers.answer(path.name, log)
        # Of a benchmark's log that says no more than its start, the benchmark is the answer.
        if finding.causes or log.via or path not in [other for other, _ in found.of("all-reduce")]:
            yield finding


def _of_accounts(found: FoundRecords, _: Options) -> Iterator[Finding]:
    for path, accounts in found.of("slurm-accounts"):
        yield slurm_account_answers.answer(path.name, accounts)


def _of_scripts(found: FoundRecords, _: Options) -> Iterator[Finding]:
    for path, script in found.of("batch-script"):
        yield script_answers.answer(path.name, script)


SENDING = ("nccl", "rccl", "all_reduce", "allreduce", "c10d::", "gloo:", "oneccl")


def _of_key_averages(found: FoundRecords, _: Options) -> Iterator[Finding]:
    for path, rows in found.of("key-averages"):
        on_device = any(row.device_seconds for row in rows)
        took = {row.name: row.device_seconds if on_device else row.cpu_seconds for row in rows}
        total = sum(took.values()) or 1.0
        communication = sum(seconds for name, seconds in took.items() if any(word in name.lower() for word in SENDING))
        first = sorted(took, key=lambda name: -took[name])[:3]
        largest = ", ".join(f"{name[:40]} {100 * took[name] / total:.0f} %" for name in first)
        where = "the device's" if on_device else "the CPU's"
        causes = (
            (
                Cause(
                    "communication",
                    "communication (transfer and waiting for other ranks, not told apart)",
                    round(communication / total, 3),
                    "of a sum over operators",
                ),
            )
            if communication / total > 0.1
            else ()
        )
        yield Finding(
            "key-averages",
            f"key_averages in {path.name}",
            f"{100 * communication / total:.0f} % of {where} time is communication",
            evidence="a sum, which does not say what hides what",
            causes=causes,
            fits=largest,
            ask=("a trace with prof.export_chrome_trace: it says what of the communication nothing hides",),
        )


def _traced(found: FoundRecords, options: Options) -> Traced:
    """Return what the traces say; a log of all-reduces among as many workers says how fast the link is."""
    from stallpoint.explain.rank import read_ranks
    from stallpoint.explain.trace_answers import explain

    ranks = read_ranks(found.traces, options.workers[0] if len(options.workers) == 1 else None)
    replicas = next((rank.groups.replicas for _, rank in ranks if rank), 1)
    log: dict[int, list[AllReduce]] = defaultdict(list)
    for run in _all_reduce_runs(found):
        log[run.ranks or replicas] += run.rows
    explained = explain(
        ranks,
        batch=int(options.batch) if options.batch else None,
        threshold=options.threshold,
        log=log,
        per_node=options.workers_per_node,
    )
    return Traced(ranks, explained)


def _of_traces(found: FoundRecords, _: Options) -> Iterator[Finding]:
    if not found.traced.explained:
        return
    from stallpoint.explain.trace_answers import findings

    yield from findings(found.traced.explained)


def _of_studies(found: FoundRecords, _: Options) -> Iterator[Finding]:
    if not found.of(STUDY):
        return
    from stallpoint.explain import study_answers

    for _path, study in found.of(STUDY):
        yield from study_answers.answers(study)


def _of_probes(found: FoundRecords, _: Options) -> Iterator[Finding]:
    if not found.probes:
        return
    from stallpoint.explain import probe_answers

    for folder in found.probes:
        yield from probe_answers.answers(folder)


QUESTIONS: tuple[Callable[[FoundRecords, Options], Iterator[Finding]], ...] = (
    _of_studies,
    _of_probes,
    _of_tables,
    _of_targets,
    _of_mlperf,
    _of_layouts,
    _of_logs,
    _of_scripts,
    _of_accounts,
    _of_nccl,
    _of_all_reduces,
    _of_key_averages,
    _of_traces,
)
"""What is said of the records, in the order of the answers."""


def _joined(answers: list[Finding]) -> list[Finding]:
    """Return the answers; rates take over what a log beside them says of the link that they may be limited by."""
    links = [one for one in answers if one.kind in ("link", "transport")]
    slow = [cause for one in links for cause in one.causes if cause.name not in ("break",)]
    if not links:
        return answers
    words = slow[0].words if slow else f"{links[0].subject}: {links[0].words}"
    which = "the log beside it names the link" if slow else "the log beside it"
    return [
        replace(one, causes=tuple(_with_link(cause, which, words) for cause in one.causes))
        if one.kind == "rates"
        else one
        for one in answers
    ]


def _with_link(cause: Cause, which: str, words: str) -> Cause:
    if cause.name not in ("shared_limit", "contention", "between_nodes", "node_boundary", "workers"):
        return cause
    return replace(cause, evidence="; ".join(filter(None, (cause.evidence, f"{which}: {words}"))))
