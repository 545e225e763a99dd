"""Up to how many workers does training get faster, and why not further? The section has a finding for each answer."""

from __future__ import annotations

from collections.abc import Iterator

from stallpoint.base.section import MACHINE, Absence, Cause, Finding, Point, Section, about
from stallpoint.base.stall import VERDICTS, Stall, Verdict
from stallpoint.models.answers.causes import LossVerdict
from stallpoint.questions.answers import Answer, LargestLoss, answers
from stallpoint.questions.curves_question import next_in_words
from stallpoint.questions.remedies_question import remedies_in_words
from stallpoint.questions.study_tables import CurveRows, MeasuredCount, MeasuredMachine, StudyTables
from stallpoint.questions.study_words import (
    count,
    deciding_in_words,
    prefetch_in_words,
    probabilities_in_words,
    probability_in_words,
    stall_interval,
    why_no_verdict,
    workers_in_words,
)
from stallpoint.questions.trust_question import model_errors
from stallpoint.text import interval, listed, number

KIND = "rates"
"""Kind of an answer's finding, the same as of curves in files."""
MAX_NAMED = 3
"""Number of causes that are named, the largest first, if they are indistinguishable."""
COMMON_SETTINGS = {
    "workers slow each other down: cores, caches, memory or clock": {"shared hardware", "straggling"},
    "sending, and what it takes from computing": {"communication", "shared hardware"},
    "a smaller mini-batch takes less work, but not as much less time": {
        "small matrices",
        "non-scaling layers",
        "model update",
    },
}
"""Common words for causes that are not distinguishable."""


def section(study: StudyTables) -> Section:
    """Return the section: machines, and an answer for each combination of network, hardware, scaling and storage."""
    words = (
        f"Training stalls at the smallest number of workers after which no larger one gains {100 * study.threshold:.0f}"
        " % in throughput for each doubling. Speedup and efficiency refer to the fewest workers measured; intervals "
        "cover 90 %."
    )
    machines = tuple(map(_machine, study.machines))
    if not study.curves:
        reason = "No scaling curve was measured: the study has no train cell with scaling strong or weak that ran."
        return Section("answer", "Answer", "Answer", reason, machines, absence=Absence.NOT_MEASURED)
    errors = model_errors(study)
    findings = (
        _finding(one, study, errors.get((one.curve["hardware"], one.curve["network"]), ""))
        for one in answers(study.curves)
    )
    return Section("answer", "Answer", "Answer", words, (*findings, *machines), cards=True)


def _finding(answer: Answer, study: StudyTables, model_error: str) -> Finding:
    curve = answer.curve
    is_imported = any(at.imported for at in study.machines if at.hardware == curve["hardware"])
    verdict, ranks = Verdict(curve["verdict"]), int(curve["verdict_ranks"])
    stalls = Stall(measured).likely if (measured := curve.stall("measured")) else []
    loss = answer.loss if not curve.unanswered else None
    return Finding(
        KIND,
        placement(answer),
        sentence(answer),
        verdict,
        value=float(ranks) if ranks and verdict != Verdict.WITHHELD else None,
        low=float(min(stalls)) if stalls else None,
        high=float(max(stalls)) if stalls and max(measured) not in stalls else None,
        unit="workers" if ranks else "",
        causes=(Cause(_cause_key(loss), loss_in_words(loss, answer)),) if loss else (),
        evidence="; ".join(filter(None, ("imported" if is_imported else "measured", _precision(answer), model_error))),
        fits="; ".join((throughput_in_words(answer), gain_in_words(answer))),
        beyond=beyond_in_words(answer) if not curve.unanswered else "",
        ask=tuple(_wanted_measurements(curve)),
        notes=tuple(_notes(answer)),
        about=about(curve) | _card(answer),
        first=True,
        points=tuple(_points(curve)),
    )  # fmt: skip


def _wanted_measurements(curve: CurveRows) -> Iterator[str]:
    """Yield the measurements that would decide an undecided curve, or narrow the interval of a decided one."""
    if curve["verdict"] == Verdict.UNDECIDED and curve.deciding_ranks:
        yield deciding_in_words(curve)
    elif curve["verdict"] in (Verdict.STALLS, Verdict.SCALES) and not curve.unanswered and curve.of("next_cells"):
        yield next_in_words(curve)


def _card(answer: Answer) -> dict[str, str]:
    """Return an answer's card title, ``alexnet on cpu``. If verdicts vary with the mini-batch, add the mini-batch."""
    curve, batch = answer.curve, answer.batch
    title = f"{curve['network']}{f' at mini-batch {batch}' if batch else ''} on {curve['hardware']}"
    return {"card": title} | ({"batch": str(batch)} if batch else {})


def placement(answer: Answer) -> str:
    """Return the subject of an answer: ``alexnet on cpu, strong scaling, mini-batch 64, local``."""
    curve = answer.curve
    subject = f"{curve['network']} on {curve['hardware']}"
    return f"{subject}, {curve['scaling']} scaling, {_mini_batch(curve)}, {curve['storage']}"


def _mini_batch(curve: CurveRows) -> str:
    """Return the mini-batch that is constant along a curve, in words: ``mini-batch 64 for each worker``."""
    return f"mini-batch {curve['batch']}{'' if curve['scaling'] == 'strong' else ' for each worker'}"


def _notes(answer: Answer) -> Iterator[str]:
    if limited := answer.curve.limitation:
        where = workers_in_words(answer.curve, int(answer.curve["largest_measured"]))
        yield f"beyond {where} withheld, as {limited}"
    if placed := answer.curve["placed"]:
        yield str(placed)
    if answer.curve["verdict"] == Verdict.UNDECIDED and (likely := probabilities_in_words(answer.curve, limit=2)):
        yield f"most likely: {likely}"
    if helps := remedies_in_words(answer.curve, limit=1):
        yield f"would help: {helps}"
    yield f"curve: {_curve_in_words(answer)}"


def _points(curve: CurveRows) -> Iterator[Point]:
    """Yield the rate at each number of workers: as measured, or as predicted beyond the largest measured number."""
    measured = {at.ranks: at.rate for at in curve.measured}
    for row in sorted(curve.of("predictions"), key=lambda row: int(row["ranks"])):
        ranks = int(row["ranks"])
        if ranks in measured:
            rate = measured[ranks]
            yield {"workers": ranks, "rate": rate.value, "low": rate.low, "high": rate.high}
        elif seconds := None if curve["withheld"] else row.estimate("predicted_iteration"):
            predicted, low, high = seconds.inverse(row["global_batch"])
            yield {"workers": ranks, "predicted": predicted, "low": low, "high": high}


# --- answers in words -----------------------------------------------------------------------------


def sentence(answer: Answer) -> str:
    """Return the answer as a sentence whose subject is left to the caller."""
    curve = answer.curve
    ranks = int(curve["verdict_ranks"])
    if curve.unanswered:
        return f"{curve['verdict']}, as {curve.unanswered}"
    if not ranks:
        return f"undecided, as {why_no_verdict(int(curve['largest_measured']))}"
    deciding = f"; {deciding_in_words(curve)} would decide" if curve["verdict"] == Verdict.UNDECIDED else ""
    return f"{VERDICTS[curve['verdict']]} {workers_in_words(curve, ranks)}{deciding}"


def throughput_in_words(answer: Answer) -> str:
    """Return the rates on the fewest workers and at the verdict: ``15 -> 22 samples/s``."""
    rates = [number(at.rate.value, 3) for at in (answer.base, answer.point) if at]
    return f"{' -> '.join(rates)} samples/s" if rates else "no iteration was measured"


def gain_in_words(answer: Answer) -> str:
    """Return in words, at the verdict: the speedup with its interval, the efficiency, and the iteration time."""
    base, at = answer.base, answer.point
    if not base or not at:
        return "one worker count was measured" if base else "no throughput is known"
    seconds = " instead of ".join(f"{number(one.seconds.value, 2)} s" for one in (at, base))
    return (
        f"{at.ranks} are {interval(at.speedup)} times as fast as {base.ranks}, {_efficiency(at)}; an iteration takes "
        f"{seconds}"
    )


def _efficiency(at: MeasuredCount) -> str:
    """Return the efficiency: ``74 % efficient``. It exceeds 100 % only if all of its interval does."""
    if at.efficiency.value > 1 >= at.efficiency.low:
        return "100 % efficient within its interval"
    return f"{100 * at.efficiency.value:.0f} % efficient"


def loss_in_words(loss: LargestLoss, answer: Answer) -> str:
    """Return the largest measured loss against ideal scaling. Causes that are indistinguishable are named together."""
    iteration = next((at.seconds.value for at in answer.curve.measured if at.ranks == loss.ranks), 0.0)
    losses = {str(row["cause"]): row.estimate("lost") for row in loss.leading}
    if loss.verdict == LossVerdict.DOMINANT:
        ((name, seconds),) = losses.items()
        total = f"of {number(1e3 * iteration, 2)} ms" if iteration else "of each iteration"
        return f"most is lost to {name}: {interval(seconds, 1e3, ' ms')} {total}"
    named = [name for name, seconds in losses.items() if seconds and seconds.low > 0]
    if not named:
        return "no loss beyond what visits differ by"
    if len(losses) == 1:
        return f"{named[0]}, not distinguishable from no loss"
    if common := [words for words, causes in COMMON_SETTINGS.items() if losses.keys() <= causes]:
        return f"undecided: {' or '.join(losses)}; {common[0]}"
    *first, last = every = [*named, *(name for name in losses if name not in named)]
    if len(every) > MAX_NAMED:
        return f"undecided between {len(every)} causes; the largest are {listed(every[:MAX_NAMED])}"
    return f"undecided: {', '.join(first)} or {last}"


def _cause_key(loss: LargestLoss) -> str:
    named = loss.leading[0]["cause"] if loss.verdict == LossVerdict.DOMINANT else LossVerdict.NOT_DISTINGUISHABLE
    return str(named).replace(" ", "_")


def beyond_in_words(answer: Answer) -> str:
    """Return the prediction for more workers than were measured; empty if there is none."""
    curve = answer.curve
    largest, to = int(curve["largest_measured"]), int(curve["largest_considered"])
    start = workers_in_words(curve, largest) if largest else "no count was measured"
    if curve["withheld"]:
        return f"{start}: withheld: {curve['withheld']}"
    verdict, gains = curve.predicted
    workers = " workers" if curve["workers_per_node"] > 1 else ""
    # Beyond the next doubling, new costs may begin that no measurement shows.
    proviso = f", if no cost begins beyond {largest}" if largest and to > 2 * largest else ""
    if verdict is None:
        return ""
    return {
        Verdict.STALLS: f"{start}: predicted to stall at {stall_interval(curve)}{workers}",
        Verdict.SCALES: f"{start}: predicted to gain up to {to}{workers}{proviso}",
        Verdict.UNDECIDED: f"{start}: undecided whether it gains up to {to}{workers} ({probability_in_words(gains)})",
    }[verdict]


def _precision(answer: Answer) -> str:
    at = answer.point
    return f"speedup known to ± {number(100 * at.half_width, 2)} %" if at and at.half_width < float("inf") else ""


def _curve_in_words(answer: Answer) -> str:
    """Return the answer's curve in words: its scaling, mini-batch, preset and storage, and how many rivals it has."""
    one = answer.curve
    per_node = f"{one['workers_per_node']} workers per node" if one["workers_per_node"] > 1 else ""
    prefetch = prefetch_in_words(one) if "prefetch" in answer.differing else ""
    texts = (f"{one['scaling']} scaling", _mini_batch(one), f"preset {one['sync']}", per_node, prefetch, one["storage"])
    return ", ".join(filter(None, texts)) + rivals_in_words(answer)


def rivals_in_words(answer: Answer) -> str:
    """Return ``, the fastest of 4 curves``, if needed with ``, though 1 may be as fast``; empty without rivals."""
    if len(answer.rivals) == 1:
        return ""
    rivals = f", though {answer.rivals_as_fast} may be as fast" if answer.rivals_as_fast else ""
    return f", the fastest of {len(answer.rivals)} curves{rivals}"


def _machine(machine: MeasuredMachine) -> Finding:
    return Finding(MACHINE, machine.hardware, machine_in_words(machine), about={"hardware": machine.hardware},
                   first=True)  # fmt: skip


def machine_in_words(machine: MeasuredMachine) -> str:
    """Return the machine in words: ``2 processes on one machine (AMD EPYC)``."""
    if machine.imported:
        nodes = count(machine.nodes, "node")
        return f"imported, not measured here: up to {count(machine.processes, 'process')} on {nodes}"
    machines = "one machine" if machine.machines == 1 else f"{machine.machines} machines"
    models = ", ".join(machine.models)
    return f"{count(machine.processes, 'process')} on {machines}{f' ({models})' if models else ''}"
