"""The conclusions in a few lines, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from stallpoint.findings.conclusions.answer_findings import GAIN, VERDICT, WITHHELD, answer_findings, machine_in_words
from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.target_words import lead
from stallpoint.findings.conclusions.trust_findings import WARNING, warnings


def summary(conclusions: Conclusions) -> Iterator[str]:
    """A line for each answer, for what it was measured on, and for each warning."""
    for answer in conclusions["answers"]:
        found = answer_findings(answer, conclusions)
        place = f"{answer['hardware']}, {answer['scaling']} scaling"
        seen = answer["at"] and WITHHELD not in found
        where = f". On {place}, {answer['sync']}: {found[GAIN].words}." if seen else f" ({place})."
        yield f"{found[VERDICT].words}{where}"
    yield from (f"{lead(target)}." for target in conclusions["targets"])
    yield from (f"{at['hardware']}: {machine_in_words(at)}" for at in conclusions["machines"])
    for one in warnings(conclusions):
        yield f"warning: {one.words}" if one.verdict == WARNING else one.words
