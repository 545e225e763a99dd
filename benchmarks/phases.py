"""Planted steps of reinforcement learning, 2 to 64 nodes: which phase stops, and whether intervals hold the truth.

usage: phases.py [--choose] [WORLDS]

Generation is simulated answer by answer: engines with so many slots, a time for each token that grows with the answers
that are active, lengths with a long tail; a step waits for the last answer of the slowest engine. Logs are written as
verl prints them and read as such. Rules were chosen on worlds of ``--choose`` (log-normal lengths); others have lengths
of two kinds of questions, or a power law.
"""

from __future__ import annotations

import heapq
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stallpoint.base.statistics import Estimate, Reals, estimate
from stallpoint.inputs.documents import Document
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options
from stallpoint_files.phases.phase_laws import PhaseTimes
from stallpoint_files.phases.phase_logs import read_log

TRUE_STEPS = 60
"""Steps whose mean is the truth."""
CLOSE = 0.1
"""Losses of two phases that are nearer to each other, relative to the larger one, are not told apart rightly either."""


@dataclass(frozen=True)
class World:
    """One training, and the nodes on which it was logged."""

    kind: str
    """What stops by construction, mostly: tail, update, weights, even."""
    counts: tuple[int, ...]
    steps: int
    answers: int
    engines: int
    """Of a node."""
    slots: int
    token: tuple[float, float]
    """Seconds of a token: of itself, and for each active answer."""
    lengths: str
    update: tuple[float, float]
    """Seconds: of all nodes together, and of each step whatever their number."""
    weights: tuple[float, float]
    """Seconds, and more of them for each doubling."""
    log_probabilities: float

    def lengths_of(self, random: np.random.Generator) -> Reals:
        """Draw the lengths of a step's answers, tokens."""
        if self.lengths == "lognormal":
            drawn = random.lognormal(6.3, 0.9, self.answers)
        elif self.lengths == "power law":
            drawn = 250 * (1 + random.pareto(1.6, self.answers))
        else:
            hard = random.random(self.answers) < 0.15
            drawn = np.where(hard, random.gamma(6, 500, self.answers), random.gamma(4, 90, self.answers))
        return np.clip(drawn, 8, 8192)

    def generation(self, nodes: int, random: np.random.Generator) -> float:
        """Return the seconds until the slowest engine has its last answer."""
        lengths = self.lengths_of(random)
        engines = self.engines * nodes
        return max(self._engine(lengths[at::engines]) for at in range(min(engines, len(lengths))))

    def _engine(self, lengths: Reals) -> float:
        active = list(lengths[: self.slots])
        heapq.heapify(active)
        at, seconds = 0.0, 0.0
        waiting = iter(lengths[self.slots :])
        while active:
            end = heapq.heappop(active)
            seconds += (end - at) * (self.token[0] + self.token[1] * (len(active) + 1))
            at = end
            if (more := next(waiting, None)) is not None:
                heapq.heappush(active, at + more)
        return seconds

    def phases(self, nodes: int, random: np.random.Generator) -> dict[str, float]:
        """Return the seconds of each phase in one step."""
        scatter = random.lognormal(0, 0.015, 4)
        return {
            "gen": self.generation(nodes, random) * scatter[0],
            "old_log_prob": (self.log_probabilities / nodes + 0.1) * scatter[1],
            "update_actor": (self.update[0] / nodes + self.update[1]) * scatter[2],
            "update_weights": (self.weights[0] + self.weights[1] * np.log2(nodes)) * scatter[3],
        }

    def truth(self, nodes: int) -> dict[str, float]:
        """Return the mean seconds of each phase."""
        random = np.random.default_rng(10_000 + nodes)
        steps = [self.phases(nodes, random) for _ in range(TRUE_STEPS)]
        return {name: float(np.mean([step[name] for step in steps])) for name in steps[0]}

    def log(self, nodes: int, random: np.random.Generator) -> str:
        """Return the console of a run; a run is off by a factor of its own."""
        run = random.lognormal(0, 0.01)
        lines = [f"trainer.nnodes={nodes} trainer.n_gpus_per_node=8 data.train_batch_size={self.answers}"]
        for step in range(1, self.steps + 2):
            parts = {name: run * value for name, value in self.phases(nodes, random).items()}
            if step == 1:
                parts["gen"] *= 1.3  # engines compile
            text = " - ".join(f"timing_s/{name}:{value:.4f}" for name, value in parts.items())
            lines.append(f"step:{step} - actor/lr:1e-06 - {text} - timing_s/step:{sum(parts.values()) + 0.05:.4f}")
        return "\n".join(lines) + "\n"


def drawn(number: int, choose: bool) -> World:
    """Draw a world."""
    random = np.random.default_rng((7 if choose else 8) * 100_000 + number)
    kind = str(random.choice(["tail", "tail", "tail", "update", "weights"]))
    measured = int(random.integers(2, 6))
    token = float(random.uniform(0.008, 0.02)) if kind == "tail" else float(random.uniform(0.001, 0.002))
    return World(
        kind,
        tuple(2**power for power in range(1, measured + 1)),
        int(random.integers(4, 12)),
        int(random.choice([256, 512, 1024])),
        int(random.choice([1, 2, 4])),
        int(random.choice([64, 128, 256])),
        (token, float(random.uniform(0.5, 3)) * 1e-4),
        "lognormal" if choose else str(random.choice(["power law", "two kinds"])),
        (float(random.uniform(60, 240)), float(random.uniform(20, 60) if kind == "update" else random.uniform(0, 3))),
        (float(random.uniform(15, 40) if kind == "weights" else random.uniform(1, 4)), float(random.uniform(0, 2))),
        float(random.uniform(10, 60)),
    )


def lost(world: World, truth: dict[int, dict[str, float]]) -> dict[str, float]:
    """Return the seconds that each phase loses against an even split."""
    first, last = world.counts[0], world.counts[-1]
    return {name: truth[last][name] - first / last * truth[first][name] for name in truth[first]}


def judged(world: World, number: int) -> tuple[str, Counter[str], Counter[str]]:
    """Return whether the phase was named (right, wrong, open, close), and how many intervals of each kind hold."""
    random = np.random.default_rng(900_000 + number)
    following = 2 * world.counts[-1]
    if following / 2 == 2:
        following = 3
    truth = {nodes: world.truth(nodes) for nodes in (*world.counts, following)}
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for nodes in world.counts:
            path = Path(folder, f"{nodes}.log")
            path.write_text(world.log(nodes, random))
            names.append(str(path))
        (found,) = explain_files(names, Options()).answers
        runs = {nodes: read_log(Document.read(Path(name))) for nodes, name in zip(world.counts, names, strict=True)}
    losses = lost(world, truth)
    first, second = sorted(losses, key=lambda name: -losses[name])[:2]
    said = [cause.words.partition(":")[0] for cause in found.causes if cause.name == "phase"]
    close = losses[second] > (1 - CLOSE) * losses[first]
    if len(said) != 1:
        named = "close" if close and len(said) > 1 else "open"
    else:
        named = "right" if said[0] == first or (close and said[0] == second) else "wrong"
    times = PhaseTimes(runs, dict.fromkeys(runs, 1.0))
    start, end = world.counts[0], world.counts[-1]
    whole = {nodes: sum(of.values()) for nodes, of in truth.items()}
    checks = [("saved by the next count", 1 - whole[following] / whole[end], estimate(times.saved(following)))]
    for name in truth[start]:
        checks.append(("factor of a phase", truth[start][name] / truth[end][name], estimate(times.factor(name))))
        change = (truth[start][name] - truth[end][name]) / (whole[start] - whole[end])
        checks.append(("share of the change", change, estimate(times.change(name))))
    held = Counter(kind for kind, right, interval in checks if _holds(interval, right))
    return named, held, Counter(kind for kind, _, _ in checks)


def _holds(interval: Estimate, right: float) -> bool:
    return interval.low <= right <= interval.high


def main() -> None:
    """Print how often the phase is named, and how often intervals hold the truth."""
    choose = "--choose" in sys.argv
    worlds = int(next((word for word in sys.argv[1:] if word.isdigit()), 100))
    named: dict[str, Counter[str]] = {}
    held, all_of = Counter[str](), Counter[str]()
    for number in range(worlds):
        world = drawn(number, choose)
        verdict, holds, of = judged(world, number)
        named.setdefault(world.kind, Counter())[verdict] += 1
        held += holds
        all_of += of
    for kind, tally in named.items():
        told = ", ".join(f"{name} {count}" for name, count in sorted(tally.items()))
        print(f"{kind}: {sum(tally.values())} worlds, phase named: {told}")
    for kind, count in all_of.items():
        print(f"{kind}: {100 * held[kind] / count:.0f} % of {count} intervals hold the truth")
    print(f"all: {100 * sum(held.values()) / sum(all_of.values()):.0f} % of {sum(all_of.values())}")


if __name__ == "__main__":
    main()
