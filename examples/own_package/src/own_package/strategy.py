"""A strategy: a pipeline without overlap, in which a micro-batch begins when the one before has ended."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from stallpoint.strategies.families.pipeline_family import BACKWARD, FORWARD, Pass, Pipeline
from stallpoint.strategies.strategy import PresetEntry


class OneByOne(Pipeline):
    """Forward and backward with each micro-batch."""

    value = "stages-one-by-one"
    meaning = "the same stages, and one micro-batch at a time"
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "one-by-one": PresetEntry(
            "a pipeline in which one stage computes at a time",
            "this example",
            {"start": "after-backward", "micro_batches": 4},
            look=("lime", "cross"),
        ),
    }

    @override
    def schedule(self, stage: int, depth: int) -> Sequence[Pass]:
        """Return both passes of one micro-batch, then of the next."""
        parts = range(1, self.micro_batches + 1)
        return [turn for part in parts for turn in ((FORWARD, part), (BACKWARD, part))]
