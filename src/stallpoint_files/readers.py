"""Readers of other programs' files: one for each format, which is recognised by the file's content.

To read a further format, write its module (functions `recognised`, `read` and `answers`) and add a line to `READERS`.
Other packages add readers by the entry point ``stallpoint.readers`` (`stallpoint_files.reader`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from stallpoint import extras
from stallpoint.base.section import Finding
from stallpoint.errors import InputError
from stallpoint.inputs import all_reduce_logs
from stallpoint.inputs.documents import Document, head
from stallpoint_files.file_options import Options
from stallpoint_files.jobs import batch_scripts, script_answers, slurm_account_answers, slurm_accounts
from stallpoint_files.links import all_reduce_answers, nccl_answers, nccl_debug, other_all_reduces, path_tests
from stallpoint_files.phases import phase_logs, phase_tables
from stallpoint_files.phases.phased_steps import PhasedSteps
from stallpoint_files.rates import layout_tables, rate_tables
from stallpoint_files.reader import FoundRecords, PathReader, Reader, no_answers
from stallpoint_files.sentences.unwrapped import is_prose
from stallpoint_files.setups import setup_answers
from stallpoint_files.studies import study_results
from stallpoint_files.tables.counted_table import NotANumber
from stallpoint_files.targets import mlperf_answers, mlperf_logs, target_answers, target_tables
from stallpoint_files.texts import event_files, unread
from stallpoint_files.training import training_log_answers, training_logs
from stallpoint_files.unknown_texts import question_on_sentences, unknown


def _rates(found: FoundRecords, options: Options) -> Iterator[Finding]:
    for _, tables in found.of("rates"):
        for rates in tables:
            yield from setup_answers.rate_findings(rates, options)


def _targets(found: FoundRecords, options: Options) -> Iterator[Finding]:
    for _, tables in found.of("targets"):
        for table in tables:
            yield from target_answers.answers(table, options)


def _logged_phases(document: Document) -> object:
    return phase_logs.form_of(document) or phase_logs.exported(document) or phase_tables.phase_tables(document)


def _read_phases(document: Document) -> list[PhasedSteps]:
    return phase_logs.read_log(document) or phase_logs.exported(document) or phase_tables.phase_tables(document)


def _phases(found: FoundRecords, options: Options) -> Iterator[Finding]:
    if not found.of("phases"):
        return
    from stallpoint_files.phases import phase_answers  # a late import: it loads SciPy

    yield from phase_answers.answers(found, options)


def _layouts(found: FoundRecords, options: Options) -> Iterator[Finding]:
    if not found.of("layouts"):
        return
    from stallpoint_files.rates import layout_answers  # a late import: it loads SciPy

    for _, tables in found.of("layouts"):
        for table in tables:
            yield from layout_answers.answers(table, options)


def _scripts(found: FoundRecords, _: Options) -> Iterator[Finding]:
    for path, script in found.of("batch-script"):
        yield script_answers.answer(path.name, script)


def _accounts(found: FoundRecords, _: Options) -> Iterator[Finding]:
    for path, accounts in found.of("slurm-accounts"):
        yield slurm_account_answers.answer(path.name, accounts)


def _studies(found: FoundRecords, _: Options) -> Iterator[Finding]:
    if not found.of("study"):
        return
    from stallpoint_files.studies import study_answers

    for _path, studies in found.of("study"):
        for study in studies:
            yield from study_answers.answers(study)


def _probes(found: FoundRecords, _: Options) -> Iterator[Finding]:
    if not found.of("probe"):
        return
    from stallpoint_files.studies import probe_answers  # a late import: loads the reader of Parquet

    for folder in dict.fromkeys(folder for _, folder in found.of("probe")):
        yield from probe_answers.answers(folder)


READERS: dict[str, Reader] = {
    "mlperf": Reader(
        "a result log of MLPerf Training",
        mlperf_logs.recognised,
        mlperf_logs.read,
        mlperf_answers.answers,
        in_folder=mlperf_logs.in_folder,
    ),
    "batch-script": Reader("a batch script", batch_scripts.recognised, batch_scripts.read, _scripts),
    "other-all-reduces": Reader(
        "nccl-tests (JSON), gloo or hccl_test", other_all_reduces.recognised, other_all_reduces.read, no_answers
    ),
    "all-reduce": Reader(
        "nccl-tests, rccl-tests, OSU or Intel MPI Benchmarks",
        all_reduce_logs.recognised,
        lambda of: all_reduce_logs.read_runs(of.raw_lines, str(of.path), format=all_reduce_logs.recognised(of)),
        all_reduce_answers.of_files,
        shares_file=True,
    ),
    "nccl-debug": Reader(
        "NCCL_DEBUG=INFO", nccl_debug.recognised, nccl_debug.read, nccl_answers.answers, shares_file=True
    ),
    "path-test": Reader("perftest, iperf3 or IOR", path_tests.recognised, path_tests.read, path_tests.answers),
    "phases": Reader("steps of phases", _logged_phases, _read_phases, _phases, shares_file=True),
    "training-log": Reader(
        "a training log", training_logs.recognised, training_logs.read, training_log_answers.answers, shares_file=True
    ),
    "slurm-accounts": Reader("sacct --parsable2", slurm_accounts.recognised, slurm_accounts.read, _accounts),
    "layouts": Reader("a table of layouts", layout_tables.recognised, layout_tables.read, _layouts),
    "targets": Reader("a table of times to a target", target_tables.recognised, target_tables.read, _targets),
    "rates": Reader("a table of rates", rate_tables.recognised, rate_tables.read, _rates),
    "setup": Reader("a training in words", setup_answers.recognised, setup_answers.read, setup_answers.answers),
}
"""Text formats in the order in which they are tried; text formats of other packages are tried before all these."""
PATH_READERS: dict[str, PathReader] = {
    "study": PathReader("a study, its archive or conclusions", study_results.read, _studies),
    "probe": PathReader("records of a probe", study_results.probe_folder, _probes),
}
"""Formats of folders and binary files, in the order in which they are tried; other packages' formats come last."""
ORDER = (
    "study", "probe", "phases", "rates", "targets", "mlperf", "layouts", "training-log", "batch-script",
    "slurm-accounts", "nccl-debug", "all-reduce", "path-test", "setup",
)  # fmt: skip
"""Order of the formats' answers; answers of other packages come last."""


_TRACE_LIKE = re.compile(rb'"traceEvents"|"ph": ?"X"|\ASQLite format 3')
"""Beginning of a file that may be a profiler trace."""


@cache
def _other_packages() -> tuple[dict[str, Reader], dict[str, PathReader]]:
    """Return other packages' readers, of texts and of paths; a missing package has a reader that reports it missing."""
    texts: dict[str, Reader] = {}
    paths: dict[str, PathReader] = {}
    for name, point in extras.entries("readers").items():
        try:
            reader = extras.load(point)
        except extras.MissingPackage as missing:
            reader = PathReader(name, partial(_refused_as_missing, str(missing)), no_answers)
        (texts if isinstance(reader, Reader) else paths)[name] = reader
    return texts, paths


def _refused_as_missing(why: str, path: Path) -> None:
    if path.is_file() and _TRACE_LIKE.search(head(path)):
        raise InputError(f"{path}: may be a trace of a profiler, and {why}")


def path_readers() -> dict[str, PathReader]:
    """Return all readers of formats that are not text, by name."""
    return {**PATH_READERS, **_other_packages()[1]}


def in_folder(folder: Path) -> Sequence[Path]:
    """Return a folder's files of the first format that takes precedence over all others; empty without such files."""
    readers: tuple[Reader | PathReader, ...] = (*READERS.values(), *path_readers().values())
    return next((files for reader in readers if (files := reader.in_folder(folder))), ())


def answers(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield the findings of all formats, in the order of `ORDER`."""
    texts, paths = _other_packages()
    every: dict[str, Reader | PathReader] = {**PATH_READERS, **READERS}
    for reader in (*(every[name] for name in ORDER), *texts.values(), *paths.values()):
        yield from reader.answers(found, options)


def read(path: Path, pattern: str = "") -> dict[str, Any]:
    """Return the records in a file by the names of their readers; `InputError` where no reader knows it.

    `pattern` is the user's regular expression for the lines of a training log.
    """
    document = event_files.table(path, pattern)
    try:
        document = document or Document.read(path, pattern)
    except InputError:
        if known_format := unread.unread(path):
            raise unread.refused(path, known_format) from None
        raise
    if not document.text.strip():
        raise InputError(f"{path}: empty; {known()}")
    found: dict[str, Any] = {}
    for name, reader in {**_other_packages()[0], **READERS}.items():
        if (not found or reader.shares_file) and reader.recognised(document):
            try:
                records = reader.read(document)
            except InputError as error:
                if name == "rates" and (known_format := unread.unread(path)):
                    raise unread.refused(path, known_format) from None
                misread = isinstance(error, NotANumber) and is_prose(document.raw_lines)
                if misread and (asked := question_on_sentences(document).text):
                    raise document.error(1, asked) from None
                raise
            if not records:
                continue
            found[name] = records
            if not reader.shares_file:
                break
    if not found and pattern:
        raise InputError(f"{path}: --pattern {pattern} is found in no line; {known()}")
    known_format = None if found else unread.unread(path)
    if known_format and not (known_format.pasted and is_prose(document.raw_lines)):
        raise unread.refused(path, known_format)
    if not found:
        raise unknown(document, known())
    return found


def known() -> str:
    """Return the list of known kinds of files in words."""
    return (
        "known are tables of rates or layouts, sentences (8 GPUs: 1200 img/s), training logs, steps of phases, result "
        "logs of MLPerf, nccl-tests, OSU, IMB, NCCL_DEBUG=INFO, batch scripts, sacct, traces of profilers"
    )
