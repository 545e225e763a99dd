"""Phases of steps in logs of known programs: a new program is an entry of `FORMS`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from stallpoint.inputs.documents import Document
from stallpoint_files.phases.phased_steps import TOTAL, PhasedSteps, PhaseKind, kind_of_phase, phases_of, plain_name
from stallpoint_files.tables.grids import separated
from stallpoint_files.texts.numbers import number_in
from stallpoint_files.training.logged_counts import BATCH, before, begins_in, counts_in, first_number

_N = r"(?:np\.\w{1,12}\()?(?P<value>[0-9]++(?>(?:\.[0-9]++)?)(?>(?:[eE][+-]?[0-9]++)?))"
_IS = r"['\"]?\s{0,2}[:=]\s{0,2}"
WARM = 2
"""Maximum number of steps of which all are kept; of more, the first is dropped, as it compiles and allocates."""


@dataclass(frozen=True)
class PhaseForm:
    """Form in which a program prints the phases of its steps."""

    program: str
    sign: str
    """Text that every file with such lines contains."""
    pair: re.Pattern[str]
    """Pattern of a phase and its time, with groups ``key`` and ``value``."""
    unit: float = 1.0
    """Unit of the values, s."""
    line: str = ""
    """Text that a line must contain, if `pair` alone is ambiguous."""
    complete: bool = True
    inside: re.Pattern[str] | None = None
    """Pattern of the part of a line to which pairs of phases are restricted."""


FORMS = (
    PhaseForm("verl", "timing_s/", re.compile(rf"timing_s/(?P<key>[\w./]{{1,60}}){_IS}{_N}")),
    PhaseForm(
        "verl",
        '"timing_s": {',
        re.compile(rf'"(?P<key>\w{{1,60}})": {_N}'),
        inside=re.compile(r'"timing_s": \{[^{}]{1,5000}\}'),
    ),
    PhaseForm("AReaL", "timeperf/", re.compile(rf"timeperf/(?P<key>[\w./]{{1,60}})(?:\s{{0,40}}│\s{{0,9}}|{_IS}){_N}")),
    PhaseForm("slime", "perf/", re.compile(rf"\bperf/(?P<key>\w{{1,60}})_time{_IS}{_N}")),
    PhaseForm(
        "TRL",
        "profiling/Time taken",
        re.compile(rf"profiling/Time taken: \w{{1,60}}\.(?P<key>[\w.]{{1,80}}){_IS}{_N}"),
    ),
    PhaseForm(  # T5X has numbers of sequences and rates there
        "OpenRLHF or NeMo RL",
        "timing/",
        re.compile(rf"\btiming/(?:train/)?(?P<key>(?!se(?:qs|conds)=|\w{{1,40}}_per_)[\w./]{{1,60}}){_IS}{_N}"),
    ),
    PhaseForm(
        "NeMo RL",
        "Total step time:",
        re.compile(rf"^\s{{0,8}}[•*-] (?P<key>[A-Za-z][\w /]{{1,60}}): {_N} ?s(?: \(\d|\s*$)"),
    ),
    PhaseForm("DeepSpeed", "time (ms) |", re.compile(rf"\| (?P<key>\w{{1,60}}): {_N}(?=\s|M|$)"), 1e-3, "time (ms) |"),
    PhaseForm(  # the time of "Others" includes that of "Gather"
        "DeepSpeed-Chat",
        "|E2E latency=",
        re.compile(rf"\|(?P<key>E2E|Gather|Generate|Training) (?:latency|time)={_N}s"),
    ),
    PhaseForm(
        "DeepSpeed-Chat",
        "End-to-End => Latency:",
        re.compile(rf"\b(?P<key>End-to-End|Generation|Training) {{1,9}}=> Latency: {_N}s"),
    ),
    PhaseForm(
        "Overlap report",
        "Overlap Efficiency Report",
        re.compile(rf"^\s{{0,8}}(?P<key>Total Compute Time|Total NCCL Time|Network Tax \(Bubble\)): {_N} ?ms"),
        1e-3,
    ),
    PhaseForm(
        "Paddle",
        "reader_cost",
        re.compile(rf"\b(?P<key>reader_cost|(?:avg_)?batch_cost): {_N}"),
        complete=False,
    ),
)  # fmt: skip
"""In the order in which they are tried."""
_ANSWER = re.compile(
    r"(?:response_len(?:gths?)?(?:/mean)?|Mean Generation Length|response_length)['\"]?\s?[:=]\s?([0-9]+(?:\.[0-9]+)?)"
)
_SAMPLES = re.compile(
    r"(?:\bE2E latency=|\bEnd-to-End => Latency: )(\d+\.\d+)s[^\n]{0,200}?(?:CurSamplesPerSec=|Samples/sec: )(\d+\.\d+)"
)
"""Seconds of a step, and its samples/s."""
_COLUMN = re.compile(
    r"(?:timing_s|timing(?:/train)?|perf)/(?P<key>[\w./]+)|profiling/Time taken: \w+\.(?P<other>[\w.]+)"
)
"""Column headings in exports of metrics."""
_MODEL = re.compile(r"[ *#]{0,8}[A-Za-z][\w .-]{0,40}[ -]\d{1,4}(?:\.\d+)?[BM]\b[*: ]{1,6}")
"""Heading that names a model, such as ``Llama 3.1 8B:``."""
_STEP_COLUMN = re.compile(r"(?:.*[/ ])?(?:step_time|time_per_step|total_step_time)")


def form_of(document: Document) -> PhaseForm | None:
    """Return the form of the phases in a text; None without phases."""
    for form in FORMS:
        if form.sign in document.text and sum(1 for _ in _pairs(document, form)) > 1:
            return form
    return None


def _pairs(document: Document, form: PhaseForm) -> Iterator[tuple[int, str, float]]:
    for number, line in enumerate(document.lines, start=1):
        if form.line in line:
            begins = form.inside.search(line) if form.inside else None
            part = begins[0] if begins else "" if form.inside else line
            for found in form.pair.finditer(part):
                key = found["key"]
                yield number, key, float(found["value"]) * (1e-3 if key.endswith("_ms") else form.unit)


def exported(document: Document) -> list[PhasedSteps]:
    """Return the steps in a CSV export of metrics with a row for each step; empty for other documents."""
    rows = separated(enumerate(document.raw_lines, start=1), ",")
    _, heads = next(rows, (1, []))
    runs: dict[str, dict[int, str]] = {}
    for index, head in enumerate(heads):
        run, _, metric = head.rpartition(" - ")
        found = _COLUMN.search(metric)
        if head.endswith(("__MIN", "__MAX")) or not (found or _STEP_COLUMN.fullmatch(metric)):
            continue
        key = (found["key"] or found["other"]) if found else "step"
        if found and metric.startswith("perf/") and not key.endswith("_time"):
            continue
        runs.setdefault(run, {})[index] = key
    body = [cells for _, cells in rows if len(cells) == len(heads)]
    read: list[PhasedSteps] = []
    for run, columns in runs.items():
        steps = [
            {key: value for index, key in columns.items() if (value := number_in(cells[index])) >= 0} for cells in body
        ]
        steps = [step for step in steps if 2 * len(step) > len(columns)]
        if len(columns) > 2 and steps:
            read.append(_with_steps(PhasedSteps("Metrics", run or "Metrics", [], {}), steps))
    return read


def read_log(document: Document) -> list[PhasedSteps]:
    """Return the steps of a log, one run for each part that ran on other workers."""
    form = form_of(document)
    if not form:
        return []
    pairs = list(_pairs(document, form))
    numbers = [number for number, _, _ in pairs]
    begins = begins_in(document, numbers)
    models = {} if begins else _models_in(document, numbers)
    parts: dict[int | None, list[tuple[int, str, float]]] = {}
    for at, pair in zip(before(begins or models, numbers), pairs, strict=True):
        parts.setdefault(at, []).append(pair)
    read: list[PhasedSteps] = []
    for at, of_part in parts.items():
        begin = begins.get(at or 0)
        lines = document.lines[at or 0 : of_part[-1][0]] if begin else document.lines
        steps = list(_split_steps(of_part, form))
        workers, nodes = counts_in(document, document.lines, begin)
        batch = first_number(BATCH, document.lines) or _batch_by_rates(lines)
        if form.program == "Overlap report":
            read += _overlap_steps(steps)
        elif steps:
            answers = [float(found[1]) for line in lines if (found := _ANSWER.search(line))]
            answer = sum(answers) / len(answers) if answers else None
            setup = models.get(at or 0, form.program)
            run = PhasedSteps(form.program, setup, [], {}, workers, nodes, batch, answer, form.complete)
            read.append(_with_steps(run, steps))
    return read


def _batch_by_rates(lines: Sequence[str]) -> int | None:
    """Return the mini-batch from steps' seconds and samples/s; None if no line has both."""
    found = [float(one[1]) * float(one[2]) for line in lines if (one := _SAMPLES.search(line))]
    return round(median(found)) or None if found else None


def _models_in(document: Document, lines: Sequence[int]) -> dict[int, str]:
    """Return the lines and texts of headings that name models above their steps; empty unless there are several."""
    heads = {
        number: line.strip(" :*#") for number, line in enumerate(document.lines, start=1) if _MODEL.fullmatch(line)
    }
    used = set(before(heads, lines))
    return heads if None not in used and len(used) > 1 else {}


def _split_steps(pairs: Sequence[tuple[int, str, float]], form: PhaseForm) -> Iterator[dict[str, float]]:
    """Yield the parts of each step; a repeated name begins the next step."""
    steps: list[dict[str, float]] = []
    step: dict[str, float] = {}
    for _, key, value in pairs:
        name = plain_name(key)
        if name in step:
            steps.append(step)
            step = {}
        step[name] = value
    steps.append(step)
    most = max(map(len, steps))
    whole = [one for one in steps if any(TOTAL.fullmatch(name) for name in one) or 2 * len(one) > most]
    yield from (one for one in whole if form.complete or len(one) > 1)


def _with_steps(run: PhasedSteps, steps: Sequence[Mapping[str, float]]) -> PhasedSteps:
    """Return the run completed by the times of its steps and their phases."""
    steps = steps[1:] if len(steps) > WARM and run.complete else steps
    total, phases, notes = phases_of(steps)
    comms = [step["comms"] for step in steps if "comms" in step]
    if comms and len(comms) == len(total):
        phases = _with_communication(phases, comms, total)
    if not run.complete:
        phases = {name: values for name, values in phases.items() if kind_of_phase(name) == PhaseKind.DATA}
    return replace(run, total=total, phases=phases, notes=notes)


def _with_communication(
    phases: Mapping[str, list[float]], comms: Sequence[float], total: Sequence[float]
) -> dict[str, list[float]]:
    """Return the phases with communication split from the optimizer's step, computed from the total communication."""
    named = sum(sum(values) for name, values in phases.items() if kind_of_phase(name) == PhaseKind.COMMUNICATION)
    inside = sum(comms) - named
    step = phases.get("step", [])
    if inside < 0.05 * sum(total) or not step:
        return dict(phases)
    part = min(inside / sum(step), 1.0)
    rest = {"step": [(1 - part) * one for one in step]} if part < 0.95 else {}
    found = {name: values for name, values in phases.items() if name != "step"}
    return {**found, **rest, "step's communication": [part * one for one in step]}


def _overlap_steps(steps: Sequence[Mapping[str, float]]) -> Iterator[PhasedSteps]:
    for step in steps:
        compute, nccl = step.get("total_compute"), step.get("total_nccl")
        exposed = step.get("network_tax")
        if compute is None or nccl is None or exposed is None:
            continue
        note = f"{1e3 * exposed:.0f} of {1e3 * nccl:.0f} ms of NCCL are exposed: no computing beside them"
        yield PhasedSteps(
            "Overlap report", "Overlap report", [compute + exposed],
            {"computing": [compute], "exposed communication": [exposed]}, notes=[note],
        )  # fmt: skip
