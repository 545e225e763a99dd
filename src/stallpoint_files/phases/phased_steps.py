"""Steps as sums of phases: reinforcement learning, DeepSpeed's time breakdown, waits for data.

Programs time nested parts. Here each second belongs to one phase: nested parts are merged into the outer part or
replace it; occasional work (validation, checkpoints) is subtracted from its steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean

from stallpoint_files.texts.headings import LONGEST

TOTAL = re.compile(r"step|step_total|total_step|total|train_batch|time_per_step|e2e|end_to_end|batch_cost|total_time")
"""Names of the complete step."""
_NESTED = (
    (r"generate_sequences|reshard|gen_m\w+|generation_timing.*|agent_loop.*", "gen"),
    (r"_?step_\w+", "step_"),
    (r"actor_train|log_probs|ref_log_probs|data_preprocess", "train"),
    (r"rollout", "train_wait"),
    (r"backward_(inner|allreduce)", "backward"),
    (r"_generate_and_score_completions", "_prepare_inputs"),
    (r"(transformers|vllm)\.generate|_calculate_rewards|_get_per_token_logps\w*", "_prepare_inputs"),
    (r"_move_model_to_vllm|sync_weights", "_prepare_inputs"),
)  # fmt: skip
"""Names of nested parts, and the part that contains them."""
_SPLIT = {"train", "train_wait", "backward", "_prepare_inputs"}
"""Parts that their nested parts replace."""
_OCCASIONAL = re.compile(
    r"test(ing)?|valid\w*|eval\w*|save\w*|checkpoint\w*|start_profile|stop_profile|dump\w*|log(ging)?"
)
"""Names of occasional work, which not every step does."""
ALMOST_ALL = 0.97
"""Minimum share of a part that its nested parts make up for the part to have no rest of its own."""
LITTLE = 0.01
"""Minimum share of a step for a rest to be named."""
CONCURRENT = 1.05
"""Minimum ratio of the sum of phases to the step if phases run concurrently."""


class PhaseKind(StrEnum):
    """Kind of a phase: it explains why the phase may not get shorter on more workers."""

    GENERATION = "generation"
    LOG_PROBABILITIES = "log-probabilities"
    REWARD = "reward"
    WEIGHTS = "weights"
    UPDATE = "update"
    DATA = "data"
    COMMUNICATION = "communication"
    COMPUTING = "computing"
    OTHER = "other"


_KINDS = (
    (PhaseKind.WEIGHTS, r"refit|weight|broadcast|prepare_for_generation|reshard|move_model"),
    (PhaseKind.COMMUNICATION, r"all_?(reduce|gather|to_?all)|reduce|comms?\b|communication|pipe_|p2p|nccl|gather"),
    (PhaseKind.DATA, r"^(batch_)?(data|reader|loader|load|input)(_(time|cost|loading|loader|processing|preprocess))?$|"
     r"batch_(input|generator)|dataload"),
    (PhaseKind.LOG_PROBABILITIES, r"log_?_?p(rob)?s?\b|logprob|per_token_logps|^ref(_|$)|^values?$|ref_policy"),
    (PhaseKind.REWARD, r"reward|judge|verif|^adv|score"),
    (PhaseKind.GENERATION, r"gen\b|generat|rollout|sampl|train_wait|make_experience|prepare_inputs|inference"),
    (PhaseKind.UPDATE, r"update|policy_train|train|optim|_?step_?$|loss|actor|critic|learn"),
    (PhaseKind.COMPUTING, r"forward|backward|fwd|bwd|comput"),
)  # fmt: skip


def kind_of_phase(name: str) -> PhaseKind:
    """Return the kind of a phase, by its name."""
    text = plain_name(name)
    return next((kind for kind, pattern in _KINDS if re.search(pattern, text)), PhaseKind.OTHER)


def plain_name(name: str) -> str:
    """Return a phase's name in lower case without its unit: ``Policy training (s)`` is ``policy_training``."""
    text = re.sub(r"[(\[].*?[)\]]", "", name[:LONGEST]).strip(" *`_:").lower()
    text = re.sub(r"[\s-]+", "_", text)
    text = re.sub(r"^fwd(?=_|$)", "forward", re.sub(r"^bwd(?=_|$)", "backward", text))
    text = re.sub(r"_(time_?s?|seconds|secs?|microstep)$", "", text)
    return re.sub(r"_(m?s)$", "", text)


@dataclass(frozen=True)
class PhasedSteps:
    """The steps of one run."""

    program: str
    setup: str
    """What distinguishes this run from others: model, backend, program."""
    total: Sequence[float]
    """Seconds of each step."""
    phases: Mapping[str, Sequence[float]]
    """Seconds of each phase in these steps; no second is in two phases."""
    workers: int | None = None
    nodes: int | None = None
    batch: float | None = None
    answer: float | None = None
    """Mean length of generated answers, tokens."""
    complete: bool = True
    """Whether the phases cover the complete step; otherwise only some, such as the wait for data."""
    rounded: float = 0.0
    """Unit to which the times are rounded, s."""
    notes: Sequence[str] = field(default=())

    @property
    def concurrent(self) -> bool:
        """Whether phases run concurrently: their sum is longer than the step."""
        return sum(map(fmean, self.phases.values())) > CONCURRENT * fmean(self.total)

    def share(self, name: str) -> float:
        """Return the fraction of all steps' time that a phase takes."""
        return sum(self.phases[name]) / sum(self.total)


def phases_of(steps: Sequence[Mapping[str, float]]) -> tuple[list[float], dict[str, list[float]], list[str]]:
    """Return the seconds of each step, the seconds of each phase, and notes, from parts by their printed names."""
    known = [{plain_name(name): value for name, value in step.items()} for step in steps]
    usual = {name for step in known for name in step}
    totals = [name for name in usual if TOTAL.fullmatch(name)]
    optimizer = "step" if "forward" in usual and "backward" in usual else ""
    total = next((name for name in sorted(totals, key=len, reverse=True) if name != optimizer), "")
    if total:
        known = [step for step in known if step.get(total, 0) > 0]
    names = [
        name
        for name in dict.fromkeys(name for step in known for name in step)
        if name not in totals or name == optimizer
    ]
    parts = _parts(known, names, optimizer)
    found: dict[str, list[float]] = {name: [_signed_sum(step, of) for step in known] for name, of in parts.items()}
    seconds = [step[total] if total else sum(_signed_sum(step, of) for of in parts.values()) for step in known]
    out = [name for name in found if _OCCASIONAL.fullmatch(name)]
    for name in out:
        seconds = [max(one - part, 1e-9) for one, part in zip(seconds, found.pop(name), strict=True)]
    found = {name: values for name, values in found.items() if sum(values) >= LITTLE / 10 * sum(seconds)}
    rest = [one - sum(values[index] for values in found.values()) for index, one in enumerate(seconds)]
    if sum(rest) > LITTLE * sum(seconds):
        found["other"] = [max(one, 0.0) for one in rest]
    taken = [f"{name} of some steps is left out" for name in out if not name.endswith("profile")]
    return seconds, found, taken


def _signed_sum(step: Mapping[str, float], of: Mapping[str, float]) -> float:
    """Return the signed sum of parts of a step, s, at least 0."""
    return max(sum(sign * step.get(name, 0.0) for name, sign in of.items()), 0.0)


def _parts(steps: Sequence[Mapping[str, float]], names: Sequence[str], optimizer: str) -> dict[str, dict[str, float]]:
    """Return the outermost (or replacing) parts, each as a signed sum of printed names."""
    kept = [name for name in names if name != "comms"]
    inside: dict[str, list[str]] = {}
    for name in kept:
        parent = name.partition("/")[0] if "/" in name and not name.endswith("/total") else ""
        for pattern, of in _NESTED:
            if re.fullmatch(pattern, name):
                parent = optimizer if of == "step_" else of
        if parent and (parent in kept or f"{parent}/total" in kept):
            inside.setdefault(parent, []).append(name)
    children = {name for found in inside.values() for name in found}
    parts: dict[str, dict[str, float]] = {}
    for name in kept:
        plain = name.removesuffix("/total")
        if name in children:
            continue
        own = inside.get(name, []) if name in _SPLIT else []
        if not own:
            parts[plain] = {name: 1.0}
            continue
        for child in own:
            parts[child] = {child: 1.0}
        mean = sum(step.get(name, 0) for step in steps)
        if sum(step.get(child, 0) for step in steps for child in own) < ALMOST_ALL * mean:
            parts[f"other {name.strip('_')}"] = {name: 1.0, **dict.fromkeys(own, -1.0)}
    return parts
