"""Answers to training logs on several worker counts: the logs of one program are one series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stallpoint.base.section import Finding
from stallpoint.base.stall import Verdict
from stallpoint.errors import InputError
from stallpoint.text import number
from stallpoint_files.file_options import Options
from stallpoint_files.rates import rate_answers
from stallpoint_files.rates.rate_rows import EACH, WEAK, RateRow, Rates
from stallpoint_files.reader import FoundRecords
from stallpoint_files.training.logged_rate import LoggedRate

_MAX_ROUNDING = 0.02
"""Maximum relative difference of steps times workers over the same data, due to rounding."""
_ASK_PHASES = "the phases of these steps (timing_s/*, trainer.logger=console): which of them stops is not in this log"


def _epochs_shrink(logs: Sequence[LoggedRate], counts: Sequence[int]) -> bool:
    """Return whether steps fall in proportion to workers, so that each worker keeps its mini-batch."""
    products = [log.steps * count for log, count in zip(logs, counts, strict=True) if log.steps and not log.batch]
    several = len(products) == len(counts) and len(set(counts)) > 1
    return several and max(products) <= min(products) * (1 + _MAX_ROUNDING)


def answers(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield the findings on training logs on several worker counts, one series for each program.

    Logs whose steps have all phases are left to the answers on phases.
    """
    said = {path for path, runs in found.of("phases") if any(run.complete for run in runs)}
    logs = [(path, log) for path, of_file in found.of("training-log") for log in of_file if path not in said]
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
            f"{log.run or path.name}: {number(log.value)} "
            f"{'s an epoch' if log.epochs else 's an iteration' if log.seconds else log.unit}"
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
    logs = [
        (path, replace(log, of=EACH) if count == 1 and not log.of and any(one.of == EACH for _, one in logs) else log)
        for (path, log), count in zip(logs, counts, strict=True)
    ]  # with one worker, the total rate equals the rate per worker
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
        seconds = ("epoch" if logs[0][1].epochs else "iteration") if program[2] else ""
        counted = "nodes" if in_nodes else "workers"
        spread = max((of for _, log in logs if (of := log.spread)), default=None)
        scaling = WEAK if program[2] and _epochs_shrink([log for _, log in logs], counts) else ""
        rates = Rates(rows, program[1], program[3], seconds, counted, notes, setup, scaling=scaling, spread=spread)
        for one in rate_answers.answers(rates, options):
            yield replace(one, causes=(), ask=(_ASK_PHASES, *one.ask)) if any(log.learning for _, log in logs) else one
