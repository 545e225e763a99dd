"""The conclusions on one page, ``conclusions.md``, and in a few lines for the terminal; `details` has every number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from stallpoint.findings.claims import claim_words as claims
from stallpoint.findings.conclusions import target_findings
from stallpoint.findings.conclusions.answer_findings import (
    BEYOND,
    COST,
    FAILURES,
    GAIN,
    HEADLINE,
    HELP,
    VERDICT,
    WITHHELD,
    answer_findings,
    cause_in_words,
    machine_in_words,
    rivals_in_words,
    source_in_words,
)
from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import (
    count,
    model_error_in_words,
    next_in_words,
    prefetch_in_words,
)
from stallpoint.findings.conclusions.external_findings import external_lines
from stallpoint.findings.conclusions.target_findings import lead
from stallpoint.findings.conclusions.trust_findings import WARNING, instrumentation_warnings, trust_lines, warnings
from stallpoint.findings.finding import Finding, in_markdown
from stallpoint.findings.listing import listed_below, markdown_table
from stallpoint.records.origins import in_words
from stallpoint.text import interval, number

HEAD = ["network", "verdict", "samples/s", "speedup (90 % CI)", "efficiency", "largest loss", "fastest preset"]


def page(conclusions: Conclusions) -> str:
    """Return the page as Markdown."""
    found = [answer_findings(answer, conclusions) for answer in conclusions["answers"]]
    blocks = [
        "# Conclusions",
        *_answers(conclusions, found),
        *listed_below("Time to accuracy", chain.from_iterable(map(target_findings.lines, conclusions["targets"]))),
        *listed_below("Beyond what was measured", _lines(found, BEYOND)),
        *listed_below("Cost, deadlines and failures", chain(_lines(found, COST), _lines(found, FAILURES))),
        *listed_below("What would help most", _lines(found, HELP)),
        *listed_below("Training data", _data(conclusions)),
        *listed_below("External tables", external_lines(conclusions)),
        *listed_below("How sure this is", _trust(conclusions)),
        *listed_below("What to measure next", _next(conclusions["curves"])),
        *listed_below("Claims", claims.summary_lines(conclusions["claims"])),
        "Every number: `details.md`; charts: `report.html`.",
    ]
    return "\n\n".join(blocks) + "\n"


def _lines(answers: Sequence[Mapping[str, Finding]], kind: str) -> Iterator[str]:
    return in_markdown(answer[kind] for answer in answers if kind in answer)


def _answers(conclusions: Conclusions, found: Sequence[Mapping[str, Finding]]) -> Iterator[str]:
    machines, answers = conclusions["machines"], conclusions["answers"]
    if machines:
        yield "; ".join(f"{at['hardware']}: {machine_in_words(at)}" for at in machines) + "."
    if not answers:
        yield "No scaling curve was measured."
        return
    # Answers for several storages or hardware entries may be the same sentence; the table distinguishes them.
    yield " ".join(dict.fromkeys(f"**{one[VERDICT].words}.**" for one in found))
    yield markdown_table(HEAD, map(_row, answers, found))
    threshold = f"{100 * conclusions['threshold']:.0f} %"
    yield (
        f"Training stalls where doubling the workers gains less than {threshold} in throughput. All of this was "
        f"{_sources(answers, machines)}; speedup and efficiency refer to the fewest workers."
    )


def _sources(answers: Sequence[Mapping[str, Any]], machines: Sequence[Mapping[str, Any]]) -> str:
    found = {source_in_words(answer, machines) for answer in answers}
    return "measured, here or elsewhere" if len(found) > 1 else found.pop()


def _row(answer: Mapping[str, Any], found: Mapping[str, Finding]) -> list[str]:
    at, base = answer["at"], answer["base"]
    rates = [number(point["samples_per_second"]["value"]) for point in (base, at) if point]
    efficiency = f"{100 * at['efficiency']['value']:.0f} %" if at else "–"
    return [
        found[HEADLINE].subject, found[HEADLINE].words, " → ".join(rates) or "–", found[VERDICT].estimate or "–",
        efficiency, cause_in_words(answer) or "–",
        f"{answer['sync']}, {prefetch_in_words(answer)}{rivals_in_words(answer)}",
    ]  # fmt: skip


def _data(conclusions: Conclusions) -> Iterator[str]:
    waits = [curve["data_wait"] for curve in conclusions["curves"] if curve["data_wait"]["share"]]
    if waits:
        longest = max(waits, key=lambda wait: wait["share"]["value"] or 0.0)
        yield f"waiting for data takes at most {interval(longest['share'], 100, ' %')} of an iteration"
    cold = [row for row in conclusions["storages"] if (row["order"], row["cache"]) == ("shuffled", "cold")]
    for hardware in dict.fromkeys(row["hardware"] for row in cold):
        here = [row for row in cold if row["hardware"] == hardware and row["verdict"] == "fastest"]
        if here:
            row = max(here, key=lambda row: int(row["nodes"]))
            rate = interval(row["samples_per_second"])
            where = f"{row['storage']} on {row['hardware']}, {count(row['nodes'], 'node')}"
            came = in_words(row["origin"], row["server_cache"])
            yield f"fastest to read shuffled, page cache cold: {where}, {rate} samples/s, {came}"


def _trust(conclusions: Conclusions) -> Iterator[str]:
    yield from trust_lines(conclusions)
    for error in conclusions["dag_errors"]:
        if error["sync"] == "all":
            yield f"{error['network']} on {error['hardware']}: the model is {model_error_in_words(error)}"
    yield from instrumentation_warnings(conclusions["instrumentation"])
    for name, what in (("imported", "imported, not measured here"), ("failed", "could not run")):
        if conclusions[name]:
            yield f"{count(len(conclusions[name]), 'cell')} {what}"


def _next(curves: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the cell of any curve that narrows most per node-hour."""
    telling = [curve for curve in curves if curve["next_cell"] and curve["next_cell"]["narrows"]]
    if telling:
        best = max(telling, key=_worth)
        yield f"{best['network']} on {best['hardware']}, {best['sync']}: {next_in_words(best)}"


def _worth(curve: Mapping[str, Any]) -> float:
    cell = curve["next_cell"]
    return float((cell["width"] - cell["expected_width"]) / cell["node_hours"])


def summary(conclusions: Conclusions) -> Iterator[str]:
    """Return a line for each answer, for the machines measured, and for each warning."""
    for answer in conclusions["answers"]:
        found = answer_findings(answer, conclusions)
        setting = f"{answer['hardware']}, {answer['scaling']} scaling"
        seen = answer["at"] and WITHHELD not in found
        where = f". On {setting}, {answer['sync']}: {found[GAIN].words}." if seen else f" ({setting})."
        yield f"{found[VERDICT].words}{where}"
    yield from (f"{lead(target)}." for target in conclusions["targets"])
    yield from (f"{at['hardware']}: {machine_in_words(at)}" for at in conclusions["machines"])
    yield from external_lines(conclusions)
    for one in warnings(conclusions):
        yield f"warning: {one.words}" if one.verdict == WARNING else one.words
