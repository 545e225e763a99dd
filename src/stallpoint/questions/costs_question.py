"""What does training cost: how many nodes for a deadline or a budget, and what gain remains with failures?"""

from __future__ import annotations

from collections.abc import Iterator

from stallpoint.base.section import Absence, Finding, Section, TableRow, about
from stallpoint.base.stall import Verdict
from stallpoint.models.answers.costs import DEADLINE, EPOCH, KNOWN_BASIS, ChoiceVerdict
from stallpoint.questions.answer_question import placement
from stallpoint.questions.answers import Answer, answers
from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.study_words import verdict_in_short
from stallpoint.study.workers import placement_in_words
from stallpoint.text import in_words, interval, listed, number

TITLE = "Cost, deadlines and failures"
COST, FAILURES = "cost", "failures"


def section(study: StudyTables) -> Section:
    """Return the section: for each answer, the choices by deadline and budget, and the gain with failures."""
    found = tuple(_findings(study))
    if not found:
        reason = "The study asks for no deadline and no budget, and gives no time between failures."
        return Section("cost-and-failures", TITLE, "Answer", reason, absence=Absence.NOT_MEASURED)
    return Section("cost-and-failures", TITLE, "Answer", findings=found)


def _findings(study: StudyTables) -> Iterator[Finding]:
    for answer in answers(study.curves):
        if answer.curve.unanswered:
            continue
        for kind, words in ((COST, cost_in_words(answer)), (FAILURES, failures_in_words(answer))):
            if words:
                yield Finding(kind, placement(answer), words, about=about(answer.curve))


def cost_in_words(answer: Answer) -> str:
    """Return the choices by deadline and budget from measured points, then the choices that predicted points change."""
    rows = answer.curve.of("choices")
    measured = {(row["goal"], row["question"]): row for row in rows if row["basis"] != KNOWN_BASIS}
    known = [row for row in rows if row["basis"] == KNOWN_BASIS]
    changed = [
        row for row in known if _result(row) != _result(measured.get((row["goal"], row["question"]), TableRow()))
    ]
    return "; ".join(map(_choice_in_words, (*measured.values(), *changed)))


def _result(row: TableRow) -> tuple[object, object]:
    return row.get("verdict"), row.get("likely")


def _choice_in_words(row: TableRow) -> str:
    limit = in_words(row["limit"]) if row["question"] == DEADLINE else number(row["limit"])
    goal = "" if row["goal"] == EPOCH else f" ({row['goal']})"
    scope_words = ", with predicted points" if row["basis"] == KNOWN_BASIS else ""
    question_words = f"{row['question']} of {limit}{goal}{scope_words}: "
    if row["verdict"] == ChoiceVerdict.NONE:
        return f"{question_words}no number of nodes keeps it"
    if row["verdict"] != ChoiceVerdict.DECIDED:
        return f"{question_words}undecided between {listed(row['likely'].split(', '))} workers"
    price, energy = row.estimate("price"), row.estimate("energy")
    cost = interval(price) if price else interval(row.estimate("node_hours"), 1.0, " node-hours")
    hours = interval(row.estimate("time"), 1 / 3600, " h")
    power = f", {interval(energy, 1.0, ' kWh')} by {row['energy_from']}" if energy else ""
    return f"{question_words}{placement_in_words(row['ranks'], row['workers_per_node'])}, {hours} for {cost}{power}"


def failures_in_words(answer: Answer) -> str:
    """Return the number of workers up to which the curve gains despite failures; empty without a rate of failures."""
    if not (rows := answer.curve.of("availability")):
        return ""
    (row,) = rows
    nodes = placement_in_words(row["ranks"], row["workers_per_node"])
    checkpoints = in_words(row["checkpoint_interval"])
    share = interval(row.estimate("productive_share"), 100, " %")
    if row["checkpoint_from"] == "measured":
        checkpoints += f" that takes {interval(row.estimate('checkpoint_time'), 1.0, ' s')} as measured"
    limit = (
        f"failures alone end the gain from {interval(row.estimate('failure_limit'))} nodes on; on {nodes} {share} of "
        f"the time is productive, with a checkpoint every {checkpoints}"
    )
    if elastic := row.estimate("elastic_share"):
        on, spare = interval(elastic, 100, " %"), interval(row.estimate("spare_share"), 100, " %")
        limit += f" (if it went on without failed nodes {on}; with spare nodes, {row['spares']} in all, {spare})"
    if not row["largest_considered"]:
        return limit
    without = TableRow(row | {"verdict": row["without_failures"], "verdict_ranks": row["without_failures_ranks"]})
    other = verdict_in_short(without)
    if row["verdict"] == Verdict.STALLS and row["verdict_ranks"] < row["without_failures_ranks"]:
        stall = placement_in_words(row["verdict_ranks"], row["workers_per_node"])
        return f"beyond {stall} failures eat more than a doubling gains (throughput alone {other}); {limit}"
    return f"with failures it {verdict_in_short(row)}, without {other}; {limit}"
