"""The probe as a callback of Lightning: ``Trainer(callbacks=[ProbeCallback()])``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from stallpoint.measure.probe.probe import Probe


class ProbeCallback(Callback):
    """Callback that records training; an iteration is an update, which may accumulate several mini-batches.

    Iterations with validation are marked like warm-up.
    """

    def __init__(self, *, folder: str | Path | None = None, layers: bool = True) -> None:
        self._options: dict[str, Any] = {"folder": folder, "layers": layers}
        self._probe: Probe | None = None
        self._updates = 0

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        optimizer = trainer.optimizers[0] if trainer.optimizers else None
        model = trainer.strategy.model or pl_module  # for several workers, the strategy wraps the module in a model
        self._updates = trainer.global_step
        self._probe = Probe(model, optimizer, **self._options).__enter__()

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self._probe:  # the module's forward hook does not suffice: a training step may call only parts of the module
            self._probe.called()

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self._probe and trainer.global_step > self._updates:
            self._updates = trainer.global_step
            trainer.should_stop |= self._probe.stepped()

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._probe:
            self._probe.mark_as_warmup()

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close(None)

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close(exception)

    def _close(self, error: BaseException | None) -> None:
        if self._probe:
            self._probe.__exit__(type(error) if error else None, error, None)
            self._probe = None
