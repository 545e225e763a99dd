"""How well traces of two nodes predict four: small trainings over Gloo on slow nodes of the test cluster.

Every training is traced on two and on four nodes, in turns; all that is known of four are the traces of two. Printed is
predicted over traced, and how near the replay comes to the iterations that it was made of.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from paired import Figure, Timing
from slow_nodes import NotHere, slow_nodes

from stallpoint.base.statistics import estimate
from stallpoint_traces import other_worker_counts
from stallpoint_traces.rank.clocks import min_seconds
from stallpoint_traces.rank.rank import Rank, read_ranks

TRAININGS = ("ddp-dense", "ddp-convolutions", "fsdp-dense")
FEW, MANY = 2, 4
TURNS = 2
PROGRAM = Path(__file__).with_name("traced_training.py")
SRUN = "srun --mpi=pmix --exclusive --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --kill-on-bad-exit=1"


def benchmark(scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    try:
        with slow_nodes() as environment:
            for turn in range(TURNS):
                for how in TRAININGS:
                    for nodes in (FEW, MANY):
                        folder = _folder(scratch, how, nodes, turn)
                        folder.mkdir(parents=True)
                        program = [
                            sys.executable,
                            str(Path(__file__).with_name("traced_training.py")),
                            how,
                            str(folder),
                        ]
                        subprocess.run([*SRUN.format(nodes=nodes).split(), *program], env=environment, check=True)
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"own-traces: not run, or not to the end: {error}"]
    rows, errors, replays = [], [], []
    for turn in range(TURNS):
        for how in TRAININGS:
            few, many = (_ranks(_folder(scratch, how, nodes, turn)) for nodes in (FEW, MANY))
            replays += [abs(float(np.median(rank.replayed / rank.traced)) - 1) for rank in (*few, *many)]
            predicted = np.median([_predicted(rank, few) for rank in few], axis=0)
            traced = float(np.median([np.median(rank.iterations.seconds) for rank in many]))
            ratios = [seconds / traced for seconds in predicted]
            errors.append(abs(ratios[0] - 1))
            rows.append(Figure("own-traces", f"{how}, turn {turn}", "predicted / traced", *ratios))
    middle = float(np.median(errors))
    lines = [
        f"own-traces: {MANY} nodes from traces of {FEW}: median |error| {100 * middle:.1f} %, wanted at most 5 %; "
        f"replayed over traced iterations: median |error| {100 * float(np.median(replays)):.2f} %, wanted at most 2 %",
        *(row.line() for row in rows),
    ]
    return [*rows, Figure("own-traces", "all", "median |error|", middle, min(errors), max(errors), "<= 0.05")], lines


def _folder(scratch: Path, how: str, nodes: int, turn: int) -> Path:
    return scratch / f"{how}-{nodes}-{turn}"


def _ranks(folder: Path) -> list[Rank]:
    return [rank for _, rank in read_ranks(sorted(folder.glob("rank*.json"))) if rank]


def _predicted(rank: Rank, ranks: list[Rank]) -> tuple[float, float, float]:
    """Seconds of an iteration on many nodes, with its 90 % interval, from a rank's trace and what others tell of it."""
    together = [rank.collectives, *(one.collectives for one in ranks if one is not rank)]
    return estimate(other_worker_counts.learn(rank, least=min_seconds(together)[0]).iteration(MANY))
