"""The conclusions in a few lines, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from stallpoint.findings.conclusions.conclusion_words import (
    count,
    gain_in_words,
    imported_beside,
    instrumentation_warnings,
    left_out_in_words,
    machine_in_words,
    mistrusted,
    sentence,
    slow_node_in_words,
)
from stallpoint.findings.conclusions.numbers import Conclusions
from stallpoint.findings.conclusions.target_words import lead


def summary(conclusions: Conclusions) -> Iterator[str]:
    """A line for each answer, for what it was measured on, and for each warning."""
    machines = conclusions["machines"]
    for answer in conclusions["answers"]:
        place = f"{answer['hardware']}, {answer['scaling']} scaling"
        seen = answer["at"] and not answer["why_withheld"]
        where = f". On {place}, {answer['sync']}: {gain_in_words(answer)}." if seen else f" ({place})."
        yield f"{sentence(answer, machines)}{where}"
    yield from (f"{lead(target)}." for target in conclusions["targets"])
    yield from (f"{at['hardware']}: {machine_in_words(at)}" for at in machines)
    yield from warnings(conclusions)


def warnings(conclusions: Conclusions) -> Iterator[str]:
    """What a reader has to know before trusting the answers."""
    for hardware in mistrusted(conclusions):
        yield f"warning: {hardware}: verdicts are withheld, as cells that do the same differ"
    for entry in conclusions["slow_nodes"]:
        yield f"warning: {entry['hardware']}: {slow_node_in_words(entry)}"
    for entry in conclusions["left_out"]:
        yield f"warning: {left_out_in_words(entry)}"
    for entry in conclusions["ended"]:
        if entry["ended"] in ("budget", "most visits"):
            yield f"warning: {entry['hardware']}: the precision was not reached"
    yield from instrumentation_warnings(conclusions["instrumentation"])
    if kept := sum(entry["kept"] for entry in conclusions["disturbances"]):
        verb = "counts" if kept == 1 else "count"
        yield f"warning: {count(kept, 'disturbed iteration')} {verb} for want of others"
    if imported := imported_beside(conclusions):
        yield f"{count(imported, 'cell')} imported, not measured here"
    if failed := conclusions["failed"]:
        yield f"{count(len(failed), 'cell')} could not run"
