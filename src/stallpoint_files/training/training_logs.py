"""Rates in the logs of training programs, by known patterns or the user's own pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from statistics import median

from stallpoint.errors import MAX_SEARCH_SECONDS, InputError, search_limit
from stallpoint.inputs.documents import Document
from stallpoint_files.rates.rate_rows import EACH
from stallpoint_files.rates.rate_tables import recognised as is_table
from stallpoint_files.tables.objects import objects
from stallpoint_files.texts.counts import COUNT_AHEAD
from stallpoint_files.texts.headings import COUNTS, PER_WORKER, kind_of
from stallpoint_files.texts.numbers import number_in, seconds_in, unit_in
from stallpoint_files.training.log_programs import BELOW_HEADINGS, NUMBER, PROGRAMS, REDRAWN, REPEATED, Program, has_one
from stallpoint_files.training.logged_counts import (
    ACCUMULATION,
    BATCH,
    WORKER_BATCH,
    Begin,
    before,
    begins_in,
    counts_in,
    counts_in_name,
    first_number,
    headings_in,
    last_before,
)
from stallpoint_files.training.logged_metrics import MIN_STEPS, in_csv, in_json
from stallpoint_files.training.logged_rate import EVALUATION, LoggedRate, after_warmup

_REDRAWS = re.compile(r"\r(?![\r\n])")
_MODEL = re.compile(
    r"\b(num_layers|num_hidden_layers|n_layers?|hidden_size|n_embd|d_model)\b[\"' .:=]{1,60}(\d{1,9})\b"
)
_LEARNING = re.compile(r"\bactor_rollout_ref\b|\bgrpo[_.]|\b(?:GRPO|PPO|RLOO)Trainer\b|\brollout[_-]batch[_-]size\b")
_LOADERS = re.compile(r"[\"']num_workers[\"']: *(\d+)")
_OF_STEPS = re.compile(r"[\[ ] *\d{1,9}/(\d{1,9})[\] ]")
_RANK = re.compile(
    r"\s{0,3}(?:\[(?:rank|default)?(\d{1,5})\] ?:|\[\d+,(\d{1,5})\]|(\d{1,5}):(?=\s)|.{0,40}?\bNode\[(\d{1,5})\] )"
)
"""Rank that a launcher prints before a line."""
_SETUP = re.compile(
    r"CUDA capacity: ([^:]+?) with|Building (\S+ \S+) with|(Float8) training|"
    r"^(?:Model|GPU|Precision|Data type):\s+(.+)",
    re.I,
)
"""Lines about model, precision and hardware by torchtitan, tf_cnn_benchmarks and programs with similar names."""
_SETUP_WORDS = ("cuda capacity", "building ", "float8", "model:", "gpu:", "precision:", "data type:")
"""Lower-case texts of which each line of `_SETUP` has one, checked first (as `Program.words`)."""
Found = list[tuple[int, re.Match[str]]]
"""Lines of a program with their numbers."""
_PHASE = re.compile(
    r"\b(data|load|loader|loading|reader_cost|forward|fwd|backward|bwd|optimizer|update|comm|communication|all[-_]?reduce)"
    rf"(?:[_ ](?:time|loading))?\b[ :=]*+({NUMBER})(?: ?(ms|s)\b)?",
    re.IGNORECASE,
)
"""Part of an iteration as printed in a line: ``data_time: 0.01``, ``forward 12 ms``."""
_SCALES = {"ms": 1e-3, "us": 1e-6}
"""Groups of times in other units than s, and their units in s."""
_GROUPS = {"rate", "seconds", "its", "epoch", "batch", "unit", "sample", *_SCALES}
"""Groups of patterns that do not name a part of an iteration."""


def recognised(document: Document) -> bool:
    """Return whether the text has lines of a known program, or lines that match the user's pattern.

    JSON objects with several counts are a table instead; those with several ``num_workers`` are asked about.
    """
    if document.text.lstrip()[:1] in ("[", "{"):
        rows = [row for _, row in objects(document)]
        counts = {tuple(cell for head, cell in row.items() if kind_of(head) in COUNTS) for row in rows}
        if len(counts) > 1 or len({*_LOADERS.findall(document.text)}) > 1:
            return False
    if not document.pattern and (in_csv(document) or in_json(document)):
        return True
    return _found(document) is not None


def _own(pattern: str) -> Program:
    """Return the program of the user's pattern."""
    program = Program("own pattern", pattern)
    try:
        groups = program.pattern.groupindex
    except re.error as error:
        raise InputError(f"--pattern: {pattern} is no regular expression: {error}") from None
    if not {"rate", "seconds", "ms"} & set(groups):
        raise InputError(
            f"--pattern: {pattern} names no group; expected is (?P<rate>...), (?P<seconds>...) or (?P<ms>...) "
            f"around the number"
        )
    return program


@lru_cache(maxsize=1)
def _found(document: Document) -> tuple[Program, Found] | None:
    """Return the first program that has lines in the log, with these lines; None without one."""
    if document.pattern:
        own = _own(document.pattern)
        with search_limit(MAX_SEARCH_SECONDS, f"{document.path}: --pattern {document.pattern}"):
            found = _lines(document, own)
        return (own, found) if found else None
    for program in (*PROGRAMS, REDRAWN) if _REDRAWS.search(document.text) else PROGRAMS:
        if found := _lines(document, program):
            return program, found
    if len(headings := headings_in(document)) > 1:
        for program in BELOW_HEADINGS:
            found = _lines(document, program)
            if len({*before(headings, [number for number, _ in found])} - {None}) > 1:
                return program, found
    for program in REPEATED:
        found = _lines(document, program)
        counted = any(COUNT_AHEAD.search(document.lines[number - 1]) for number, _ in found)
        many = any(counts_in_name(document.path.name)) or (len(found) >= MIN_STEPS and not counted)
        if found and many and not is_table(document):
            return program, found
    return None


def _lines(document: Document, program: Program) -> Found:
    """Return the lines of a program; lines of evaluation only if there are none of training."""
    if program.words and not has_one(document.text, program.words):
        return []
    found = [(number, match) for number, line in enumerate(document.lines, start=1) if (match := program.search(line))]
    train = [one for one in found if not EVALUATION.search(document.lines[one[0] - 1])]
    return _begun(train or found)


def _begun(found: Found) -> Found:
    """Return the lines from the first on whose rate is above 0, as some programs print none before: ``wps=0``."""
    zero = [set(match.groupdict().get("rate") or "1") <= set("0.") for _, match in found]
    return found[zero.index(False) :] if any(zero[:1]) and not all(zero) else found


def read(document: Document) -> list[LoggedRate]:
    """Return the rate in the log, or in each part that ran on other workers; `InputError` if the pattern finds
    something that is not a number."""
    if not document.pattern and (columns := in_csv(document)):
        return columns
    if not (known := _found(document)):
        if logged := in_json(document):
            return logged
        raise document.error(1, "no line with a rate")
    program, found = known
    parts: dict[int | None, Found] = {}
    numbers = [number for number, _ in found]
    begins = begins_in(document, numbers)
    for begin, line in zip(before(begins, numbers), found, strict=True):
        parts.setdefault(begin, []).append(line)
    return [_logged(document, program, part, begins.get(begin or 0)) for begin, part in parts.items()]


def _logged(document: Document, program: Program, found: Found, begin: Begin | None) -> LoggedRate:
    notes = [document.cut_remark] if document.cut_remark else []
    batches = [float(match["batch"]) for _, match in found if match.groupdict().get("batch")]
    if len(set(batches)) > 1:
        # The mini-batch is ramped up: only lines with the last one represent the training that follows.
        notes.append(f"the mini-batch changes ({batches[0]:g} to {batches[-1]:g}); lines of the last one are taken")
        found = [(number, match) for number, match in found if match["batch"] and float(match["batch"]) == batches[-1]]
    values = [_value(document, number, match) for number, match in found]
    groups = found[-1][1].groupdict()
    seconds = not (groups.get("rate") or groups.get("sample"))
    kept = values[-1:] if program.averages else after_warmup(values)
    named = groups.get("unit") or ""
    first, last = (found[0][0], found[-1][0]) if begin else (1, len(document.lines))
    lines = document.lines[max(first - 50, 0) if begin else 0 : last]
    ranks = _by_rank(document, found, values)
    of = EACH if PER_WORKER.search(named) else program.of
    if not of and not seconds and len(ranks) > 1 and len({tuple(of_rank) for of_rank in ranks.values()}) > 1:
        of = EACH  # ranks print different rates, so that these are no totals
    workers, nodes = counts_in(document, lines, begin)
    if workers is None and not nodes and len(ranks) > 1 and set(ranks) == set(range(len(ranks))):
        workers = len(ranks)
    batch = batches[-1] if batches else float(last_before(BATCH, document, found[0][0]) or 0) if seconds else 0.0
    if seconds and not batch and workers and (each := first_number(WORKER_BATCH, [document.text])):
        batch = float(each * workers * (first_number(ACCUMULATION, lines) or 1))
    model, setup, learning = _model_and_setup(document)
    return LoggedRate(
        program.name,
        median(kept),
        unit_in(named) or program.unit,
        seconds,
        of,
        workers,
        batch if 0 < batch < 1e12 else None,
        len(found),
        kept,
        setup,
        tuple(notes),
        nodes,
        model,
        learning=learning,
        epochs="epoch" in groups,
        steps=first_number(_OF_STEPS, [document.lines[found[-1][0] - 1]]),
        phases=_phases(document, found[-len(kept) :]) if seconds else {},
    )


@lru_cache(maxsize=1)
def _model_and_setup(document: Document) -> tuple[str, str, bool]:
    """Return the model's size, the words about the setup, and whether the training is reinforcement learning."""
    layers = {match[1]: match[2] for line in document.lines if (match := _MODEL.search(line))}
    setup = dict.fromkeys(
        part
        for line in document.lines
        if has_one(line, _SETUP_WORDS)
        for one in _SETUP.finditer(line)
        for part in one.groups("")
        if part
    )
    model = ", ".join(f"{name} {size}" for name, size in sorted(layers.items()))
    return model, " ".join(setup), bool(_LEARNING.search(document.text))


def _phases(document: Document, found: Found) -> dict[str, list[float]]:
    """Return the parts of an iteration that all lines have, s; further groups of the user's pattern are parts, too."""
    lines = []
    for number, match in found:
        groups = match.groupdict()
        in_ms = bool(groups.get("ms"))
        parts = [(name, text, "") for name, text in groups.items() if text and name not in _GROUPS]
        if not parts:
            parts = [(one[1], one[2], one[3] or "") for one in _PHASE.finditer(document.lines[number - 1])]
        lines.append(
            {
                name.lower(): number_in(text) / (1e3 if unit == "ms" or (in_ms and unit != "s") else 1)
                for name, text, unit in parts
            }
        )
    names = set.intersection(*map(set, lines))
    return {name: [line[name] for line in lines] for name in sorted(names)}


def _value(document: Document, number: int, match: re.Match[str]) -> float:
    groups = match.groupdict()
    text = next((groups[name] for name in ("rate", "seconds", "its", "epoch", *_SCALES) if groups.get(name)), "")
    value = seconds_in(text, "", False) if groups.get("epoch") else number_in(text)
    if not 1e-15 < value < 1e15:
        raise document.error(
            number, f"{text[:40] or 'nothing'} is no rate; the pattern's group has to be around a number above 0"
        )
    value *= next((scale for name, scale in _SCALES.items() if groups.get(name)), 1.0)
    return 1 / value if groups.get("its") or groups.get("sample") else value


def _by_rank(document: Document, found: Found, values: Sequence[float]) -> dict[int, list[float]]:
    """Return the values by the rank that the launcher prints before their lines."""
    ranks: dict[int, list[float]] = {}
    for (number, _), value in zip(found, values, strict=True):
        if mark := _RANK.match(document.raw_lines[number - 1]):
            ranks.setdefault(int(next(filter(None, mark.groups()))), []).append(value)
    return ranks
