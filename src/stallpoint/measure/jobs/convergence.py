"""Training to a target accuracy, with evaluations.

The samples of a step depend only on the seed, the step and the global mini-batch B, so that the number of workers
changes nothing but rounding. Each evaluation writes a checkpoint with all records so far, from which an interrupted run
continues.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from stallpoint.errors import CannotRun
from stallpoint.measure import resident
from stallpoint.measure.device import device_of
from stallpoint.measure.jobs.train import Trainer, on_device
from stallpoint.measure.mpi import MPI
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.training import allocator, evaluation
from stallpoint.measure.training.evaluation import (
    MAX_BATCH,
    MIN_BATCH,
    Classes,
    Evaluation,
    OnePassOrder,
    check_labels,
    sharpness,
)
from stallpoint.measure.training.gradient_norms import GradientNorms
from stallpoint.measure.training.input_pipeline import InputPipeline, SampleOrder
from stallpoint.measure.training.optimisers import RecipeOptimiser
from stallpoint.measure.training.precision import loss_scale
from stallpoint.measure.world import World
from stallpoint.networks import network_of
from stallpoint.networks.inputs import Images
from stallpoint.networks.layers import layers
from stallpoint.records.tables import CONVERGENCE, CONVERGENCE_RUNS, GRADIENT_NOISE, STALENESS
from stallpoint.storage import Storage
from stallpoint.strategies.presets import preset_from
from stallpoint.study.kinds.convergence_kind import DIVERGED, ConvergenceCell, EvaluationRow, ended, outcome
from stallpoint.study.recipes import StepSizeSchedule, recipe_from
from stallpoint.text import Progress

SPLIT = 0x5B117
"""Seed of the split into training and validation samples, the same for runs of all seeds."""
Indices = npt.NDArray[np.int64]
_NO_MINIMUM: dict[str, float | None] = dict.fromkeys(("loss_gap", "accuracy_gap", "sharpness"))


@dataclass
class RunState:
    """Progress of a run, which its checkpoint keeps so that an interrupted run can continue."""

    step: int = 0
    seconds: float = 0.0
    """Training time of this rank, s."""
    losses: float = 0.0
    """Sum of the worker's training losses since the last evaluation."""
    losses_of: int = 0
    """Number of steps summed in `losses`."""
    evaluations: list[EvaluationRow] = field(default_factory=list)
    noise: list[dict[str, float]] = field(default_factory=list)
    """Rows of `tables.GRADIENT_NOISE`."""


@dataclass(frozen=True)
class ChosenOrder:
    """Order of reading some samples of a storage: `order` gives positions in `chosen`, which has their indices."""

    order: SampleOrder
    chosen: Indices

    def indices(self, iteration: int) -> list[int]:
        """Return the indices of this worker's samples in an iteration."""
        return [int(self.chosen[position]) for position in self.order.indices(iteration)]


def split(samples: int, share: float) -> tuple[Indices, Indices]:
    """Return the indices of training samples and of validation samples; `share` is the share of validation samples."""
    permutation = np.random.default_rng([SPLIT, samples]).permutation(samples)
    count = max(1, round(share * samples))
    return np.sort(permutation[count:]), np.sort(permutation[:count])


def measure(cell: ConvergenceCell, world: World, recorder: Recorder) -> None:
    """Train to the end of the run and record every evaluation. Continue from the checkpoint, if there is one."""
    allocator.keep_freed()
    description, device, preset = network_of(cell.network, cell.own_network), device_of(cell), preset_from(cell.preset)
    training, validation, labels = _samples(cell)
    if cell.batch > len(training):
        raise CannotRun(
            f"B = {cell.batch}, but storage {cell.storage} has {len(training)} training samples; a batch of at most "
            "that is needed"
        )
    recipe = recipe_from(cell.settings)
    steps = max(1, round(cell.max_epochs * len(training) / cell.batch))
    schedule = StepSizeSchedule(recipe, cell.batch, len(training), steps)
    interval = max(1, round(cell.evaluation_epochs * len(training) / cell.batch))
    network = resident.network(description, cell.seed, device)

    def optimiser(parameters: list[nn.Parameter], *, loss_scale: float) -> RecipeOptimiser:
        return RecipeOptimiser(recipe, parameters, schedule.step_size, loss_scale=loss_scale)

    norms = GradientNorms(layers(network), world, loss_scale(cell.precision))
    noise_steps = cell.noise_steps if GradientNorms.known(preset, world.size) else None
    with ExitStack() as stack:
        classes = stack.enter_context(Classes(cell.network, network))
        trainer = stack.enter_context(
            Trainer(network, world, preset, device, precision=cell.precision, optimiser=optimiser, norms=norms)
        )
        run = _restored_run(cell, world, recorder, network, trainer)
        if isinstance(description.takes, Images):
            with trainer.for_evaluation() as evaluated:
                check_labels(classes, evaluated, description, device, labels, cell.storage)
        validation_storage = Storage(cell.validation_storage, Path(cell.validation_path), cell.validation_format)
        pipeline_and_count = _share_pipeline(cell, world.rank, world.size, validation_storage, validation)
        evaluation = stack.enter_context(closing(Evaluation(classes, world, device, *pipeline_and_count)))
        pipeline = stack.enter_context(_training_pipeline(cell, world, device, training, run.step))
        recorder.excluded_samples = pipeline.excluded
        use_prefetch = preset.device_prefetch and cell.prefetch > 0
        next_batch = stack.enter_context(on_device(pipeline, use_prefetch=use_prefetch, device=device))
        progress = Progress("step", [1.0] * steps, silent=world.rank > 0)
        world.comm.Barrier()
        recorder.begin()
        if not run.evaluations:
            _evaluate(run, cell, world, evaluation, trainer)
        reason = ""
        while not (reason := reason or world.comm.bcast(_ended(run, cell, steps))):
            for step in range(run.step, min(run.step + interval, steps)):
                # Dropout differs between workers, and does not depend on whether the run was interrupted.
                torch.manual_seed((cell.seed << 40) + step * world.size + world.rank)
                trainer.begin(step)
                norms.active = noise_steps is not None and step % noise_steps == 0
                phases = trainer.step(next_batch).phases
                if norms.active:
                    small, large = norms.take()
                    run.noise.append({"step": step, "small": small, "large": large})
                run.step, run.seconds = step + 1, run.seconds + phases["iteration_time"]
                run.losses, run.losses_of = run.losses + phases["loss"], run.losses_of + 1
                recorder.measuring += phases["iteration_time"]
                progress.tell(run.step)
            _evaluate(run, cell, world, evaluation, trainer)
            if recorder.checkpoint and not world.comm.bcast(_ended(run, cell, steps)):
                worker = _worker_state(network, trainer)
                workers = [worker] if preset.synchronous else world.comm.gather(worker) or []
                if world.rank == 0:
                    _save(recorder.checkpoint, cell, run, workers)
        sharpness_columns = _NO_MINIMUM
        if reason != DIVERGED:  # weights of a diverged run may be NaN
            if cell.sharpness_samples:
                sharpness_columns = _sharpness_columns(run, cell, world, trainer, classes, training)
            if preset.synchronous:
                trainer.check_weights()
        recorder.add(STALENESS, **trainer.staleness())
    if world.rank == 0:
        _record(run, cell, recorder, schedule, reason, sharpness_columns)


def _samples(cell: ConvergenceCell) -> tuple[Indices, Indices, int]:
    """Return indices of the training and the validation samples in their storages, and the number of classes."""
    with closing(Storage(cell.storage, Path(cell.storage_path), cell.storage_format).open()) as training:
        if cell.validation_share:
            return *split(training.samples, cell.validation_share), training.classes
        storage = Storage(cell.validation_storage, Path(cell.validation_path), cell.validation_format)
        with closing(storage.open()) as validation:
            return np.arange(training.samples), np.arange(validation.samples), max(training.classes, validation.classes)


def _training_pipeline(
    cell: ConvergenceCell, world: World, device: torch.device, chosen: Indices, begin: int
) -> InputPipeline:
    order = SampleOrder(len(chosen), batch=cell.worker_batch, rank=world.rank, ranks=world.size, seed=cell.seed)
    return InputPipeline(
        Storage(cell.storage, Path(cell.storage_path), cell.storage_format),
        takes=network_of(cell.network, cell.own_network).takes,
        batch=cell.worker_batch, rank=world.rank, ranks=world.size,
        prefetch=cell.prefetch, readers=cell.readers, seed=cell.seed, begin=begin, pinned=device.type == "cuda",
        order=ChosenOrder(order, chosen),
    )  # fmt: skip


def _share_pipeline(
    cell: ConvergenceCell, rank: int, ranks: int, storage: Storage, chosen: Indices
) -> tuple[InputPipeline, int]:
    """Return the pipeline that reads a rank's share of the samples `chosen`, and the share's number of mini-batches."""
    batch = min(max(cell.worker_batch, MIN_BATCH), MAX_BATCH)
    order = OnePassOrder(chosen, batch, rank, ranks)
    pipeline = InputPipeline(
        storage,
        takes=network_of(cell.network, cell.own_network).takes,
        batch=batch, rank=rank, ranks=ranks, prefetch=cell.prefetch,
        readers=cell.readers, seed=cell.seed, order=order,
    )  # fmt: skip
    return pipeline, order.batches


def _sharpness_columns(
    run: RunState, cell: ConvergenceCell, world: World, trainer: Trainer, classes: Classes, training: Indices
) -> dict[str, float | None]:
    """Return generalisation gap and sharpness at the end of the run; called on all ranks, computed on rank 0."""
    chosen = np.random.default_rng([SPLIT, len(training)]).permutation(training)[: cell.sharpness_samples]
    with trainer.for_evaluation() as network:
        if world.rank > 0:
            return _NO_MINIMUM
        device, last_evaluation = device_of(cell), run.evaluations[-1]
        storage = Storage(cell.storage, Path(cell.storage_path), cell.storage_format)
        pipeline, count = _share_pipeline(cell, 0, 1, storage, chosen)
        with closing(pipeline):
            mini_batches = (pipeline.next_batch() for _ in range(count))
            batches = [tuple(part.to(device, copy=True) for part in (one.inputs, one.labels)) for one in mini_batches]
        scores = [classes.scores(network, *batch) for batch in batches]
        total, correct, predictions = map(sum, zip(*scores, strict=True))

        def loss() -> Iterator[torch.Tensor]:
            for inputs, labels in batches:
                yield len(labels) / len(chosen) * network(inputs, labels)

        # float32: half precision cannot resolve the small box around the weights that `sharpness` searches
        with torch.enable_grad(), torch.autocast(device.type, enabled=False):
            weights = [values for values in network.parameters() if values.requires_grad]
            return {
                "loss_gap": last_evaluation["validation_loss"] - total / predictions,
                "accuracy_gap": correct / predictions - last_evaluation["validation_accuracy"],
                "sharpness": sharpness(weights, loss),
            }


def _ended(run: RunState, cell: ConvergenceCell, steps: int) -> str:
    return ended(run.evaluations, target=cell.target, steps=steps, patience=cell.patience, max_minutes=cell.max_minutes)


def _evaluate(run: RunState, cell: ConvergenceCell, world: World, evaluation: Evaluation, trainer: Trainer) -> None:
    """Evaluate the network, and add the result to `run.evaluations`; the result is equal on all ranks."""
    with trainer.for_evaluation() as network:
        loss, accuracy = evaluation.run(network)
    sums = np.array([run.losses, run.losses_of, run.seconds])
    world.comm.Allreduce(MPI.IN_PLACE, sums)
    losses, losses_of, seconds = sums
    run.evaluations.append({
        "step": run.step,
        "samples": run.step * cell.batch,
        "seconds": float(seconds / world.size),
        "train_loss": float(losses / losses_of) if losses_of else None,
        "validation_loss": loss,
        "validation_accuracy": accuracy,
    })  # fmt: skip
    run.losses, run.losses_of = 0.0, 0


def _worker_state(network: nn.Module, trainer: Trainer) -> dict[str, Any]:
    return {
        "weights": {name: values.detach().cpu() for name, values in resident.state(network)},
        "trainer": trainer.state(),
    }


def _save(file: Path, cell: ConvergenceCell, run: RunState, workers: Sequence[dict[str, Any]]) -> None:
    """Write a checkpoint of a run. `workers` holds each worker's state, or one state if all are equal."""
    evaluation.write(file, cell, {"run": vars(run), "workers": workers})


def _restored_run(
    cell: ConvergenceCell,
    world: World,
    recorder: Recorder,
    network: nn.Module,
    trainer: Trainer,
) -> RunState:
    """Return a new run, or, if there is a checkpoint, the interrupted run, with network and trainer restored."""
    content: dict[str, Any] | None = evaluation.read(recorder.checkpoint, cell, world) if recorder.checkpoint else None
    if content is None:
        return RunState()
    worker_state = content["workers"][min(world.rank, len(content["workers"]) - 1)]
    with torch.no_grad():
        for name, values in resident.state(network):
            values.copy_(worker_state["weights"][name])
    trainer.restore(worker_state["trainer"])
    return RunState(**content["run"])


def _record(
    run: RunState,
    cell: ConvergenceCell,
    recorder: Recorder,
    schedule: StepSizeSchedule,
    reason: str,
    sharpness_columns: dict[str, float | None],
) -> None:
    for evaluated in run.evaluations:
        recorder.add(CONVERGENCE, **evaluated)
    recipe = schedule.recipe
    recorder.add(
        CONVERGENCE_RUNS,
        **outcome(run.evaluations, cell.target, reason),
        **sharpness_columns,
        step_size=recipe.peak(cell.batch),
        momentum=0.0 if recipe.optimiser == "sgd" else recipe.momentum,
        warmup_steps=schedule.warmup_steps,
        settings=json.dumps(cell.settings, separators=(",", ":")),
    )
    for row in run.noise:
        recorder.add(GRADIENT_NOISE, worker_batch=cell.worker_batch, **row)
