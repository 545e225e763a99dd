"""Test of the probe's summary: waits are planted in a script through the probe's hooks; does the summary name them?

usage: python -m stallpoint.measure.probe.planting [--ranks 2,4] [--seed SEED] SCRIPT [ARGUMENT ...]

A script that has a probe is started once for each number of ranks. Its iterations are divided into stretches. Each
stretch has one plant: a sleep in a phase, on one rank or on all ranks, in every iteration, in every 20th, or in a part
of the stretch. A seed draws ranks, times, periods and parts at random. The summary of each stretch is scored: *named*
if it says phase and ranks (and period or part), *wrong* if it names another rank or part. ``STALLPOINT_PLANT`` plants
waits without scoring them: ``PHASE:SECONDS:RANK:PERIOD:FIRST:LAST``, several separated by commas.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from typing_extensions import override

from stallpoint.errors import InputError, program
from stallpoint.measure.clock import Mark
from stallpoint.measure.probe.probe_box import diagnose
from stallpoint.measure.probe.probe_phases import BACKWARD, DATA, FORWARD, UPDATE, ProbedPhases
from stallpoint.measure.probe.probe_runs import last_run
from stallpoint.measure.probe.probe_words import WORDS, ordinal, texts

PLANT = "STALLPOINT_PLANT"
"""Environment variable with the waits that are planted in a script, to test the probe."""
WHERE = {"data": DATA, "forward": FORWARD, "backward": BACKWARD, "update": UPDATE}
ALL = "all"
NAMED, WRONG, UNTOLD = "named", "wrong", "not told"
STEADY, RARE, SETTLING = 30, 101, 5
"""Iterations of a steady stretch, of a stretch with rare or partial waits, and excluded at the begin of a stretch."""
PERIOD, RARELY = 20, 8.0
"""Iterations from one rare wait to the next, and the ratio of a rare wait's time to that of a steady wait."""
WAIT = 0.1
"""Default wait of a steady plant, s."""
DRAWN, PERIODS = (0.5, 2.0), (10, 21)
"""Ranges from which waits, as multiples of the default, and periods are drawn."""


@dataclass(frozen=True)
class Planted:
    """A wait planted in some iterations of a script."""

    where: str
    """Phase of the wait, a key of `WHERE`."""
    seconds: float
    who: str
    """Number of the rank that waits, or `ALL`."""
    period: int
    first: int
    last: int
    """First iteration after the wait."""

    def due(self, rank: int, iteration: int) -> bool:
        """Return whether `rank` waits in `iteration`."""
        return (
            self.first <= iteration < self.last
            and (iteration - self.first) % self.period == self.period - 1
            and self.who in (ALL, str(rank))
        )

    def text(self) -> str:
        """Return the wait as the variable `PLANT` writes it."""
        return ":".join(map(str, astuple(self)))


def plants(text: str) -> list[Planted]:
    """Return the waits in `text`, a value of the variable `PLANT`."""
    found = []
    for entry in text.split(","):
        where, *rest = entry.split(":")
        try:
            seconds, who, period, first, last = [*rest, *("1", "0", str(sys.maxsize))[len(rest) - 2 :]]
            found.append(Planted(where, float(seconds), who, int(period), int(first), int(last)))
        except ValueError:
            where = ""
        if where not in WHERE:
            raise InputError(
                f"{PLANT}={entry}: PHASE:SECONDS:RANK is expected, of {', '.join(WHERE)}; :PERIOD:FIRST:LAST"
            )
    return found


class PlantedPhases(ProbedPhases):
    """Phases of a script with planted waits: this rank may sleep when a phase first begins in an iteration."""

    def __init__(self, text: str, rank: int) -> None:
        super().__init__()
        self._plants, self._rank, self._iteration = plants(text), rank, 0
        self._slept: set[str] = set()

    @override
    def begin(self, phase: str, mark: Mark) -> None:
        super().begin(phase, mark)
        if phase in self._slept:
            return
        for plant in self._plants:
            if WHERE[plant.where] == phase and plant.due(self._rank, self._iteration):
                self._slept.add(phase)
                time.sleep(plant.seconds)

    @override
    def ended(self) -> None:
        self._iteration += 1
        self._slept.clear()


# --- scores ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """Iterations with one planted wait, which a summary should name."""

    kind: str
    plant: Planted
    first: int
    last: int

    def judged(self, sentences: Sequence[str]) -> str:
        """Return the score of a summary: `NAMED` if a sentence says phase, ranks and iterations of the wait; `WRONG` if
        a sentence names another rank, period or part; else `UNTOLD`."""
        matching = [one for one in sentences if self._names_phase_and_ranks(one)]
        text = {"rare": f"every {ordinal(self.plant.period)}", "until": "until ", "from": "from "}.get(self.kind, "")
        if any(text in one for one in matching):
            return NAMED
        claims = r"every \d" if matching else r"rank \d+ h|iterations? (take|\()"
        return WRONG if any(re.search(claims, one) for one in matching or sentences) else UNTOLD

    def _names_phase_and_ranks(self, verdict: str) -> bool:
        phase, is_one_rank = WORDS[WHERE[self.plant.where]], self.plant.who != ALL
        ranks = re.findall(r"ranks? ([\d, ]+)", verdict)
        return phase in verdict and (bool(ranks) and ranks[0].strip() == self.plant.who if is_one_rank else not ranks)


def schedule(ranks: int, wait: float = WAIT, begin: int = SETTLING, seed: int | None = None) -> list[Stretch]:
    """Return consecutive stretches. First come steady waits, in each phase, on the first, the last and all ranks; then
    rare waits, and waits in a part of a stretch. A `seed` draws ranks, times, periods and parts at random."""
    found: list[Stretch] = []
    draw = random.Random(seed)

    def add(kind: str, where: str, who: str, length: int, part: slice = slice(None)) -> None:
        seconds, period = wait, PERIOD
        if seed is not None:
            who = ALL if who == ALL else str(draw.randrange(ranks))
            seconds, period = round(draw.uniform(*DRAWN) * wait, 3), draw.randrange(*PERIODS)
            part = slice(*(edge and edge + draw.randrange(-10, 11) for edge in (part.start, part.stop)))
        if kind == "rare":
            seconds *= RARELY
        first = found[-1].last if found else begin
        iterations = range(first + SETTLING, first + length)[part]
        plant = Planted(where, seconds, who, period if kind == "rare" else 1, iterations[0], iterations[-1] + 1)
        found.append(Stretch(kind, plant, first + SETTLING, first + length))

    for where in WHERE:
        for who in ("0", str(ranks - 1), ALL):
            add("steady", where, who, STEADY)
    for where, who in (("update", "0"), ("update", ALL), ("data", str(ranks - 1)), ("data", ALL), ("forward", "0")):
        add("rare", where, who, RARE + SETTLING)
    add("until", "backward", str(ranks - 1), RARE, slice(60))
    add("from", "data", "0", RARE, slice(40, None))
    return found


def score(
    command: Sequence[str], ranks: int, folder: Path, wait: float = WAIT, seed: int | None = None
) -> Iterator[tuple[Stretch, list[str]]]:
    """Run a script on `ranks` ranks with the waits of a `schedule`; yield each stretch, and texts of its summary."""
    stretches = schedule(ranks, wait, seed=seed)
    _start(command, ranks, folder, ",".join(stretch.plant.text() for stretch in stretches), stretches[-1].last)
    runs = {rank: run for rank in range(ranks) if (run := last_run(folder, rank))}
    if len(runs) < ranks:
        raise InputError(f"{' '.join(command)}: {len(runs)} of {ranks} ranks left records: it needs a probe")
    for stretch in stretches:
        found = diagnose({rank: run.within(stretch.first, stretch.last) for rank, run in runs.items()})
        sentences = texts(found) if found else {}
        yield stretch, [sentences[label] for label in ("verdict", "also") if label in sentences]


def _start(command: Sequence[str], ranks: int, folder: Path, text: str, iterations: int) -> None:
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        port = str(any_socket.getsockname()[1])
    variables = {
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), PLANT: text,
        "LOCAL_WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1", "STALLPOINT_PROBE": str(folder),
        "STALLPOINT_PROBE_ITERATIONS": str(iterations), "STALLPOINT_PROBE_BOX": "0",
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, *command], env={**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    outputs = [process.communicate()[0] for process in processes]
    if failures := [text for process, text in zip(processes, outputs, strict=True) if process.returncode]:
        raise InputError(f"{' '.join(command)} failed on {ranks} ranks: {failures[0][-500:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the test as a program; return 0 if the summary names every planted wait, else 1."""
    parser = argparse.ArgumentParser(description="Plant waits in a script that has a probe, and score its summary.")
    parser.add_argument("--ranks", default="2", help="numbers of ranks, with commas between (%(default)s)")
    parser.add_argument("--wait", type=float, default=WAIT, help="seconds of a steady plant (%(default)s)")
    parser.add_argument("--seed", type=int, help="draw ranks, times, periods and parts")
    parser.add_argument("script")
    parser.add_argument("argument", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    total: Counter[str] = Counter()
    for ranks in map(int, options.ranks.split(",")):
        with tempfile.TemporaryDirectory() as scratch:
            found = list(score([options.script, *options.argument], ranks, Path(scratch), options.wait, options.seed))
        scores = [(stretch.kind, stretch.judged(sentences)) for stretch, sentences in found]
        for (stretch, sentences), (_, result) in zip(found, scores, strict=True):
            if result != NAMED:
                place = f"{stretch.plant.where} on {stretch.plant.who}"
                print(f"{ranks} ranks, {stretch.kind}, {place}: {result}: {'; '.join(sentences) or 'nothing'}")
        total.update(result for _, result in scores)
        counts = [
            f"{kind} {scores.count((kind, NAMED))} of {count}"
            for kind, count in Counter(kind for kind, _ in scores).items()
        ]
        print(f"{options.script}, {ranks} ranks: named {', '.join(counts)}", flush=True)
    print(f"of {total.total()} plants {', '.join(f'{total[result]} {result}' for result in (NAMED, WRONG, UNTOLD))}")
    return int(total[NAMED] < total.total())


if __name__ == "__main__":
    with program():
        sys.exit(main())
