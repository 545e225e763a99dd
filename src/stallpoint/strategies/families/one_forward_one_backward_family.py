"""The 1F1B pipeline: alternating forward and backward passes, so that few micro-batches are in flight.

The bubble is that of GPipe, as the pipeline fills and drains in the same time. A GPipe stage keeps the activations of
all micro-batches. In 1F1B the last stage keeps those of one micro-batch, the stage before it those of two, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from stallpoint.strategies.families.pipeline_family import BACKWARD, FORWARD, Pass, Pipeline
from stallpoint.strategies.strategy import Placement, PresetEntry


class OneForwardOneBackward(Pipeline):
    """PipeDream-Flush: synchronous 1F1B."""

    value = "stages-1f1b"
    meaning = (
        "the same stages; one that has as many micro-batches under way as there are stages from it to the last does a "
        "backward pass before each further forward pass"
    )
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "pipeline-1f1b": PresetEntry(
            "pipeline, but with one forward and one backward pass in turn as soon as each stage has work: it waits as "
            "long, and keeps the activations of as many micro-batches as there are stages at most",
            "Narayanan et al. (2021), Memory-Efficient Pipeline-Parallel DNN Training, PipeDream-Flush; Narayanan et "
            "al. (2021), Megatron-LM, section 2.2.1",
            {"start": "after-backward", "micro_batches": 4},
            look=("lime", "circle"),
        ),
    }

    @override
    def schedule(self, stage: int, depth: int) -> Sequence[Pass]:
        """Return a stage's passes: a forward pass for each later stage, both passes in turn, then backward passes."""
        count = self.micro_batches
        lead = min(depth - stage, count)
        first_passes = [(FORWARD, part) for part in range(1, lead + 1)]
        pairs = [turn for part in range(1, count - lead + 1) for turn in ((FORWARD, part + lead), (BACKWARD, part))]
        return [*first_passes, *pairs, *((BACKWARD, part) for part in range(count - lead + 1, count + 1))]

    @override
    def kept(self, placement: Placement) -> float:
        """Return the share of samples whose activations the first stage keeps; later stages keep fewer."""
        depth, count = placement[0] * placement[1], self.micro_batches
        return min(depth, count) / count if depth > 1 else 1.0

    @override
    def equation(self, *, prefetch: bool) -> str:
        return "pipeline, 1F1B"
