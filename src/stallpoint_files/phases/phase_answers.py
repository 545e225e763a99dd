"""Answers to steps of phases: which phase stops scaling, which differs between setups, or where a run's time goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stallpoint.base.curve import Curve
from stallpoint.base.section import Cause, Finding
from stallpoint.base.stall import Verdict
from stallpoint.base.statistics import estimate
from stallpoint.errors import InputError
from stallpoint.text import interval, listed, number
from stallpoint_files.file_options import Options
from stallpoint_files.phases.phase_laws import FEW, FOR_A_LAW, SURE_OF_PHASE, PhaseTimes, drawn
from stallpoint_files.phases.phased_steps import PhasedSteps, PhaseKind, kind_of_phase
from stallpoint_files.rates.curve_answer import measured, subject_of
from stallpoint_files.reader import FoundRecords

LIMITING = 0.5
"""Minimum share of a step for waiting or communication to be its limit."""
MIN_REPORTED = 0.1
"""Minimum share of a step for its wait for data to be reported."""
SURE_OF_DIFFERENCE = 0.95
"""Minimum probability for a phase to differ between two setups."""
MIN_DIFFERENCE = 0.05
"""Minimum relative difference of the answers' mean length to be reported; also of a phase between two setups."""
_WHY = {
    PhaseKind.GENERATION: "it has a part that nodes do not share, such as the longest answer, whose tokens come one "
    "after the other",
    PhaseKind.LOG_PROBABILITIES: "too few sequences for each worker, or parameters that are gathered again",
    PhaseKind.REWARD: "one process, a judge or a sandbox scores all answers",
    PhaseKind.WEIGHTS: "every engine gets all weights, however many there are: their bytes over the link",
    PhaseKind.UPDATE: "the gradients' communication, or a mini-batch that is split too fine",
    PhaseKind.DATA: "all share the storage or the processes that read",
    PhaseKind.COMMUNICATION: "each node more has to send, too",
    PhaseKind.COMPUTING: "the mini-batch is split too fine, or some workers have more of it",
    PhaseKind.OTHER: "nothing says what is in it",
}
_HELPS = {
    PhaseKind.GENERATION: "response_length/max beside its mean: whether generation waits for the longest answer",
    PhaseKind.WEIGHTS: "the bytes of the weights and the link's Gbit/s (--link)",
    PhaseKind.UPDATE: "the same update with its communication alone (NCCL_DEBUG=INFO, or a trace of one step)",
}
_ASK_TWO = "the same log on twice the nodes: two counts say which phase stops"


def answers(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield the findings on the steps of all files."""
    read = [(path, run) for path, runs in found.of("phases") for run in runs]
    if options.workers and read and not any(run.workers or run.nodes for _, run in read):
        if len(options.workers) != len(read):
            raise InputError(f"--workers: {len(options.workers)} counts for {len(read)} logs of phases; one for each")
        read = [(path, replace(run, workers=count)) for (path, run), count in zip(read, options.workers, strict=True)]
    for path, run in read:
        if not run.complete and (data := _data_finding(path.name, run)):
            yield data
    grouped: defaultdict[str, list[tuple[Path, PhasedSteps]]] = defaultdict(list)
    for path, run in read:
        if run.complete:
            grouped[run.setup].append((path, run))
    rest: list[tuple[Path, PhasedSteps]] = []
    for name, runs in grouped.items():
        by_count: defaultdict[int, list[PhasedSteps]] = defaultdict(list)
        in_nodes = not all(run.workers for _, run in runs)
        for _, run in runs:
            by_count[(run.nodes if in_nodes else run.workers) or 0].append(run)
        if len(by_count) > 1 and 0 not in by_count:
            yield _growing_phases(name, by_count, options, "nodes" if in_nodes else "workers")
        else:
            rest += runs
    yield from _similar_and_single(rest)


# --- one training on several counts -----------------------------------------------------------------


def _growing_phases(name: str, by_count: dict[int, list[PhasedSteps]], options: Options, counted: str) -> Finding:
    first = min(by_count)
    batches = {count: runs[0].batch for count, runs in by_count.items()}
    known = all(batches.values())
    work = {count: (batches[count] or 1.0) / (batches[first] or 1.0) if known else 1.0 for count in by_count}
    times = PhaseTimes(by_count, work)
    per_node = next(
        (run.workers / run.nodes for runs in by_count.values() for run in runs if run.workers and run.nodes), None
    )
    rates = {count: work[count] / times.step(count) for count in times.counts}
    several = all(sum(len(run.total) for run in runs) >= FEW for runs in by_count.values())
    curve = Curve(
        rates, options.workers_per_node or per_node, options.threshold, "steps/s", counted=counted, repeated=several
    )
    found = measured(subject_of(name, curve), curve)
    likely = [one for one, chance in times.stopping.items() if chance > 1 - SURE_OF_PHASE]
    named = times.stopping[likely[0]] >= SURE_OF_PHASE if likely else False
    causes = [_stopping_cause(times, one, counted) for one in (likely[:1] if named else likely[:2])]
    if likely and not named:
        words = f"{listed(likely[:3]).replace(' and ', ' or ')} holds it back, which these steps do not tell apart"
    else:
        words = f"{likely[0]} holds it back" if likely else "all phases are split evenly"
    factors = ", ".join(f"{one} {interval(estimate(times.factor(one)), 1.0, '×')}" for one in times.names[:6])
    fits = f"{_steps_in_words(times)} s a step; times as fast: {factors}"
    asks = [one for one in found.ask if "--scaling" not in one]
    helps = _HELPS.get(kind_of_phase(likely[0])) if likely else None
    asks += [helps] if helps else []
    notes = [*found.notes, *(note for runs in by_count.values() for run in runs for note in run.notes)]
    if not known:
        notes.append("each count is taken to train the same mini-batch a step, which the log does not say")
    elif any(abs(one - 1) > 0.01 for one in work.values()):
        notes.append("the mini-batch differs between counts: phases are compared for equal work")
    notes += list(_longer_answers(by_count))
    if times.concurrent:
        notes.append(
            "phases are longer together than the step: some run at the same time, and no share of the change is said"
        )
    return replace(
        found, kind="phases", words=f"{found.words}; {words}", causes=tuple(causes), fits=fits,
        beyond=_next_count(times, likely, counted, curve.per_node), ask=tuple(dict.fromkeys(asks)),
        notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _steps_in_words(times: PhaseTimes) -> str:
    return " -> ".join(number(float(times.step(count)[0])) for count in times.counts)


def _stopping_cause(times: PhaseTimes, name: str, counted: str) -> Cause:
    seconds = " -> ".join(number(float(times.seconds(name, count)[0])) for count in times.counts)
    ideal = times.counts[-1] / times.counts[0]
    factor = interval(estimate(times.factor(name)))
    lost = times.share_of_loss(name)
    words = f"{name}: {seconds} s, {factor} of {number(ideal)} times as fast"
    words += f"; {interval(lost, 100, ' %')} of what an even split would save"
    if not times.concurrent:
        words += f", {interval(estimate(times.change(name)), 100, ' %')} of the change"
    if (fixed := times.fixed(name)) and fixed.low > 0:
        words += f"; {interval(fixed)} s of it stay on any number of {counted}"
    return Cause("phase", f"{words}: {_WHY[kind_of_phase(name)]}", round(float(lost[0]), 3))


def _next_count(times: PhaseTimes, likely: Sequence[str], counted: str, per_node: float | None) -> str:
    """Return, in words, what the next count would save."""
    if times.concurrent:
        return "not predicted: phases run at the same time"
    last = times.counts[-1]
    node = per_node if counted == "workers" else 1.0
    third = node is not None and abs(last / node - 2) < 1e-9  # the next count after two nodes is a third node
    count = round(3 * (node or 1)) if third else 2 * last
    saved = estimate(times.saved(count))
    who = f"a third node{'' if counted == 'nodes' else f' ({count} {counted})'}" if third else f"{count} {counted}"
    save = "saves" if third else "save"
    after = np.sum([times.at(name, count) for name in times.names], axis=0)
    words = f"{who} {save} {interval(saved, 100, ' %')} of a step: {interval(estimate(after))} s"
    if likely:
        words += f", {number(float(times.at(likely[0], count)[0]))} s of it {likely[0]}"
    laws = "" if len(times.counts) >= FOR_A_LAW else "; from two counts, of a law with a part that stays"
    return words + laws


def _longer_answers(by_count: dict[int, list[PhasedSteps]]) -> Iterator[str]:
    lengths = {count: runs[0].answer for count, runs in sorted(by_count.items()) if runs[0].answer}
    if len(lengths) > 1:
        first, last = (lengths[count] or 1.0 for count in (min(lengths), max(lengths)))
        if abs(last / first - 1) > MIN_DIFFERENCE:
            more = f"{100 * abs(last / first - 1):.0f} % {'longer' if last > first else 'shorter'}"
            yield f"answers are {more} at {max(lengths)}: generation is not of equal work"


# --- pairs of similar runs, and single runs ---------------------------------------------------------


def _similar_and_single(runs: Sequence[tuple[Path, PhasedSteps]]) -> Iterator[Finding]:
    """Yield the findings on runs that form no curve: pairs of similar runs, and single runs."""
    alone = []
    for at, (path, run) in enumerate(runs):
        earlier = [other for _, other in runs[:at] if other.nodes == run.nodes and other.workers == run.workers]
        like = [other for other in earlier if _same_training(other, run)]
        if like:
            of_one = [other for other in like if run.setup.startswith(other.setup)]
            yield _pair_finding((of_one or like)[-1 if of_one else 0], run, repeated=bool(of_one))
        elif not any(
            _same_training(run, other) and (other.nodes, other.workers) == (run.nodes, run.workers)
            for _, other in runs[at + 1 :]
        ):
            alone.append((path, run))
    for path, run in alone[:4]:
        yield _shares_of_step(path.name, run)


def _same_training(old: PhasedSteps, new: PhasedSteps) -> bool:
    """Return whether two runs are of the same training: common phases, and setups with an equal first part."""
    same = len(set(old.phases) & set(new.phases)) > 1
    return same and (old.setup.partition(",")[0] == new.setup.partition(",")[0])


def _pair_finding(old: PhasedSteps, new: PhasedSteps, *, repeated: bool) -> Finding:
    both = [name for name in old.phases if name in new.phases]
    posted = bool(old.rounded or new.rounded)
    ratios = {
        name: drawn(new.phases[name], new.rounded, f"new {name}", posted=posted)
        / np.maximum(drawn(old.phases[name], old.rounded, f"old {name}", posted=posted), 1e-12)
        for name in both
        if min(sum(old.phases[name]), sum(new.phases[name])) > 0
    }
    step = drawn(new.total, new.rounded, "new step", posted=posted) / drawn(
        old.total, old.rounded, "old step", posted=posted
    )
    differs = [
        name for name, ratio in ratios.items()
        if max(np.mean(ratio[1:] > 1 + MIN_DIFFERENCE), np.mean(ratio[1:] < 1 - MIN_DIFFERENCE)) >= SURE_OF_DIFFERENCE
    ]  # fmt: skip
    mean = float(np.mean(new.total))
    gaps = {name: _mean(new, name) - _mean(old, name) for name in differs}
    differs = [name for name in differs if name != "other" or abs(gaps[name]) >= MIN_DIFFERENCE * mean]
    differs.sort(key=lambda name: -abs(gaps[name]))
    where = f" on {_workers_in_words(new)}" if _workers_in_words(new) else ""
    low, high = (number(end, 2) for end in estimate(step)[1:])
    words = f"a step takes {number(float(step[0]))} times ({low}–{high}) as long as with {old.setup}"
    which = listed([f"{name} {number(float(ratios[name][0]), 2)} times" for name in differs])
    equal = [name for name in ratios if name not in differs and name != "other"]
    most = max((abs(float(ratios[name][0]) - 1) for name in equal), default=0.0)
    if sum(abs(gaps[name]) for name in differs) < MIN_DIFFERENCE * mean:
        words += f", equal within {max(100 * abs(float(step[0]) - 1), 1):.0f} %"
        words += f" ({which}, {number(sum(gaps[name] for name in differs))} s)" if differs else ""
        differs = []
    else:
        words += f": {which}" + (f", the rest equal within {100 * most:.0f} %" if equal else "")
    causes = tuple(
        Cause(
            "phase",
            f"{name}: {number(_mean(old, name))} -> {number(_mean(new, name))} s, "
            f"{interval(estimate(ratios[name]))} times as long, {number(gaps[name])} s of the difference",
            round(abs(gaps[name]) / mean, 3),
        )
        for name in differs
    )
    ask = ("the same on another count of nodes: two counts say which phase stops",)
    slower = repeated and any(gaps[name] > 0 for name in differs)
    return Finding(
        "phases", f"{new.setup}{where}", words, "" if slower or not causes else Verdict.UNDECIDED, causes=causes,
        evidence="measured" if posted else "logged", ask=() if not causes else ask,
        notes=(*old.notes, *new.notes),
    )  # fmt: skip


def _workers_in_words(run: PhasedSteps) -> str:
    """Return the number of workers or nodes of a run in words; empty if unknown."""
    count, of = (run.workers, "worker") if run.workers else (run.nodes, "node")
    return f"{count} {of}{'' if count == 1 else 's'}" if count else ""


def _mean(run: PhasedSteps, name: str) -> float:
    return float(np.mean(run.phases[name]))


def _data_finding(file: str, run: PhasedSteps) -> Finding | None:
    """Return the finding on a step's wait for data; None if it is short."""
    name = next(iter(run.phases), "")
    if not name or run.share(name) < MIN_REPORTED:
        return None
    much = run.share(name) >= LIMITING
    share = _share(run, [name])
    more = "another worker gains nothing until its reading is faster" if much else "the rest is not waiting for data"
    cause = Cause("data", f"{share} of a step waits for the reader ({name}): {more}", round(run.share(name), 3))
    ask = "the same run on data that are made up or cached: how fast it is without waiting"
    return Finding(
        "phases", f"steps of {run.program}, {file}", f"{share} of a step waits for data",
        "" if much else Verdict.UNDECIDED, causes=(cause,) if much else (), evidence="logged", ask=(ask,),
    )  # fmt: skip


def _share(run: PhasedSteps, names: Sequence[str]) -> str:
    """Return the phases' share of a step in words, such as ``85 %``, with its range over several steps."""
    shares = [sum(run.phases[name][at] for name in names) / one for at, one in enumerate(run.total)]
    value = 100 * sum(run.share(name) for name in names)
    low, high = np.quantile(shares, (0.05, 0.95))
    ends = f" ({100 * low:.0f}–{100 * high:.0f})" if len(shares) > 1 and round(100 * low) < round(100 * high) else ""
    return f"{value:.0f} %{ends}"


def _shares_of_step(file: str, run: PhasedSteps) -> Finding:
    """Return the finding on a single run: the phases' shares of a step, and the question that follows."""
    order = sorted(run.phases, key=lambda name: -run.share(name))
    shares = ", ".join(f"{name} {_share(run, [name])}" for name in order[:6] if run.share(name) >= 0.005)
    mean = float(np.mean(run.total))
    step = f"{number(mean)} s" if mean >= 1 else f"{number(1e3 * mean)} ms"
    sent = [name for name in order if kind_of_phase(name) == PhaseKind.COMMUNICATION]
    where = f", {_workers_in_words(run)}" if _workers_in_words(run) else ""
    subject = f"{run.setup}{where}" if run.setup != run.program else f"steps of {run.program}, {file}{where}"
    notes = [] if run.program == "Overlap report" else list(run.notes)
    if run.concurrent:
        notes.append("phases are longer together than the step: some run at the same time")
    causes: tuple[Cause, ...] = ()
    words = f"a step of {step}: {shares}"
    if sent:
        of_all = sum(run.share(name) for name in sent)
        parts = ", ".join(f"{name} {100 * run.share(name):.0f} %" for name in sent if run.share(name) >= 0.005)
        words = f"communication {_share(run, sent)} of a step of {step}; {shares}"
        if of_all >= LIMITING:
            why = "; ".join(run.notes) or parts
            causes = (
                Cause("communication", f"communication is {100 * of_all:.0f} % of a step: {why}", round(of_all, 3)),
            )
        elif of_all < 2 * MIN_REPORTED:
            words += "; communication is not what limits it"
    ask = _ASK_TWO
    if not (run.workers or run.nodes):
        ask += ", with the number of workers of each (--workers)"
    return Finding(
        "phases", subject, words, "" if causes else Verdict.UNDECIDED, causes=causes, evidence="logged",
        fits=f"{len(run.total)} step{'' if len(run.total) == 1 else 's'}", ask=(ask,), notes=tuple(notes),
    )  # fmt: skip
