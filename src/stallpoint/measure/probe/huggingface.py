"""The probe in a `Trainer` of Hugging Face's transformers, also under accelerate: one line in a script.

::

    trainer = Trainer(model=..., args=..., ...)
    stallpoint.measure.probe.huggingface.probe(trainer)
    trainer.train()
"""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback
from typing_extensions import override

from stallpoint.measure.probe.probe import Probe


def probe(trainer: Trainer, *, folder: str | Path | None = None, layers: bool = True) -> None:
    """Record the training of `trainer`; an iteration is an update, which may accumulate several mini-batches."""
    trainer.add_callback(_Callback(trainer, folder=folder, layers=layers))


class _Callback(TrainerCallback):
    """Callback that opens the probe when training begins, steps the probe at each update, and closes it at the end."""

    def __init__(self, trainer: Trainer, **options: Any) -> None:
        self._trainer, self._options = trainer, options
        self._probe: Probe | None = None

    @override
    def on_step_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        # The probe is opened only at the first step: before it, the model is not complete.
        if self._probe is None:
            trainer = self._trainer
            self._probe = Probe(trainer.model_wrapped, trainer.optimizer, **self._options).__enter__()
            atexit.register(self._probe.write)  # callbacks are not called if training fails

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if self._probe and self._probe.stepped():
            control.should_training_stop = True

    @override
    def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if self._probe:
            atexit.unregister(self._probe.write)
            self._probe.__exit__(None, None, None)
            self._probe = None
