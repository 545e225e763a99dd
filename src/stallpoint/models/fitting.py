"""All model tables from all tidy tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import chain
from typing import NamedTuple

import pandas as pd

from stallpoint.models.answers import (
    amdahl,
    attribution,
    break_even,
    comparisons,
    controls,
    critical_path,
    curve_distances,
    feeding,
    fits,
    grid,
    halvings,
    hidden_communication,
    intervention_savings,
    largest_batch,
    median_iterations,
    next_cells,
    remedies,
    saturation,
    staleness,
    stalling,
    target_times,
    time_to_accuracy,
    traffic,
    trust,
    utilisation,
    validation,
    what_if,
)
from stallpoint.models.answers.median_iterations import MedianIteration
from stallpoint.models.answers.what_if import Scenario
from stallpoint.models.base.frames import Rows, Tables, of_types
from stallpoint.models.base.measured import Measured, composed, measured, over_ranks, point_key, presets, trained
from stallpoint.models.base.statistics import groups
from stallpoint.models.convergence import early_stopping, noise_scale, steps
from stallpoint.models.iteration import prediction_tables
from stallpoint.models.iteration.cluster import SCALINGS, Cluster
from stallpoint.models.iteration.curve import ScalingCurve
from stallpoint.models.iteration.prediction import DagModel, learning
from stallpoint.models.scaling import study_curves
from stallpoint.models.terms import communication, copy_rates, data, matrix_products, pace, peaks, storage_rates
from stallpoint.models.terms.compute import Compute, layer_scaling
from stallpoint.models.terms.trainings import COLUMNS, Trainings, joined, trainings
from stallpoint.records import disturbances
from stallpoint.records.tables import MODEL_TABLES, TABLES
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.presets import PRESETS, Preset, preset_from


def fit(
    tidy: Mapping[str, pd.DataFrame],
    parts: Iterable[Mapping[str, pd.DataFrame]] | None = None,
    *,
    nodes: Sequence[int],
    threshold: float = 0.10,
    efficiency: float = 0.5,
    shared_links: Collection[str | tuple[str, str]] = (),
    scenarios: Sequence[Scenario] = (),
    known_presets: Mapping[str, Preset] | None = None,
    available: Mapping[str, int] | None = None,
    calibration_nodes: Collection[int] = (),
    multiply_adds: Mapping[str, float] | None = None,
    cuts: Mapping[str, Cuts] | None = None,
    tokens: Mapping[str, int] | None = None,
    rated: Mapping[str, Mapping[str, float]] | None = None,
    epoch_samples: int = utilisation.IMAGENET,
    seed: int = 0,
) -> Mapping[str, pd.DataFrame]:
    """All model tables, by name, with the columns of `records.MODEL_TABLES`; each is computed when it is first read.

    `tidy` holds every tidy table by name, empty ones included; those of `trainings.COLUMNS` may come as `parts`
    instead, with whole cells each, so that they need not fit into memory. `nodes` are the node counts to predict beside
    the measured ones; a curve stalls where doubling the workers gains less than `threshold` in throughput, and they are
    worthwhile while a sample costs at most 1/`efficiency` as much as on the fewest. Storages in `shared_links` are
    reached over the link that carries the gradients. `scenarios` are what-ifs, in which `known_presets` may be named
    (stallpoint's own, unless told otherwise); `available` says how many nodes a hardware entry has. What trained on
    more nodes than `calibration_nodes` (on more workers than the fewest two counts, unless given) is predicted from the
    rest alone for validation.
    `cuts` say of each network where it can be cut into the stages of a pipeline, or split by outputs.
    `multiply_adds`, `tokens`, `rated` and `epoch_samples` as `utilisation.table` takes them. The same records and
    `seed` give the same numbers.
    """
    tidy = _typed(tidy)
    tidy["sgemm"] = matrix_products.in_precision(tidy["sgemm"], tidy["runs"])
    reduced = _reduced([tidy] if parts is None else map(_typed, parts), tidy["visits"], tidy["runs"])
    named = known_presets or {name: known.preset for name, known in PRESETS.items()}
    known = _Known(tidy, reduced, nodes, shared_links, named, cuts or {}, seed)
    runs, seen = tidy["runs"], reduced.trainings
    gains = cache(stalling.gains)
    noise = cache(partial(noise_scale.of_training, gradient_noise=known.norms, seed=seed))
    stalls = cache(lambda: stalling.tables(known.training, threshold, efficiency, known.checked, gains, known.doubtful))
    times = cache(lambda: time_to_accuracy.tables(known.matched, gains, noise, threshold))
    tables: dict[str, Callable[[], Rows]] = {
        "layer_scaling": lambda: layer_scaling(known.compute, reduced.counts),
        "sgemm_speedup": lambda: matrix_products.sgemm_speedup(tidy["sgemm"], seed),
        "matrix_products": lambda: matrix_products.table(tidy["sgemm"], known.libraries, seed),
        "communication": lambda: communication.table(known.links),
        "predictions": lambda: prediction_tables.predictions(known.curves, seen.steps),
        "validation": lambda: validation.table(seen, known.points, calibration_nodes, known.cluster_of),
        "layer_predictions": lambda: prediction_tables.layer_predictions(known.curves, seen.first_ranks),
        "layer_times": lambda: prediction_tables.layer_times(seen.first_ranks),
        "median_iterations": lambda: known.shown[0],
        "median_layers": lambda: known.shown[1],
        "amdahl": lambda: amdahl.table(known.compute, known.training, threshold),
        "critical_path": lambda: critical_path.table(known.curves),
        "causes": lambda: attribution.causes(known.training),
        "controls": lambda: known.checked,
        "disturbances": lambda: reduced.disturbed,
        "stalling": lambda: stalls()[0],
        "stall_probabilities": lambda: stalls()[1],
        "what_if": lambda: what_if.table(known.cluster, known.training, scenarios, nodes, threshold),
        "what_if_grid": lambda: grid.table(known.cluster, known.training, nodes) if scenarios else [],
        "remedies": lambda: remedies.table(
            known.cluster, known.training, known.varied, runs, known.jobs, known.fitting
        ),
        "next_cells": lambda: next_cells.table(
            known.training, known.jobs, known.links, known.presets, threshold, available or {}, seed
        ),
        "storage_rates": lambda: storage_rates.storage_rates(tidy["storage_reads"], tidy["storage_passes"], seed),
        "storage_operation_rates": lambda: storage_rates.storage_operation_rates(tidy["storage_operations"], seed),
        "data_share": lambda: data.data_share(known.placed),
        "feeding": lambda: feeding.table(known.training, runs),
        "saturation": lambda: saturation.table(known.reading.together(), nodes, threshold),
        "rates": lambda: study_curves.rates(known.training),
        "scaling_laws": lambda: study_curves.scaling_laws(known.training),
        "halvings": lambda: halvings.table(known.compute, known.products),
        "curve_distances": lambda: curve_distances.table(known.compute, known.products),
        "hidden_communication": lambda: hidden_communication.table(known.curves, known.seen, known.presets),
        "interventions": lambda: intervention_savings.table(
            known.curves, known.seen, reduced.intervened, known.presets, seed
        ),
        "comparisons": lambda: comparisons.table(known.communicating),
        "traffic": lambda: traffic.table(known.placed, seen.networks, tidy["storage_reads"], epoch_samples),
        "break_even": lambda: break_even.table(known.seen, runs, tidy["staging"], tidy["conversions"], seed),
        "copy_rates": lambda: copy_rates.copy_rates(tidy["copies"], seed),
        "utilisation": lambda: utilisation.table(
            known.placed, seen.networks, multiply_adds or {}, tokens or {}, rated or {}, epoch_samples
        ),
        "memory": lambda: peaks.table(known.memory),
        "largest_batch": lambda: known.largest,
        "fits": lambda: fits.table(known.training, known.fitting),
        "steps_to_target": lambda: steps.table(known.to_target, threshold),
        "noise_scale": lambda: noise_scale.table(known.norms, seed),
        "critical_batches": lambda: noise_scale.critical_batches(known.to_target, noise, threshold),
        "time_to_accuracy": lambda: times()[0],
        "accuracy_stalling": lambda: times()[1],
        "staleness_shares": lambda: staleness.shares(tidy["staleness"]),
        "worker_staleness": lambda: staleness.workers(tidy["staleness"], seed),
        "target_times": lambda: target_times.table(known.to_targets),
        "target_stalling": lambda: target_times.stalling(known.to_targets, known.matched, threshold),
        "early_stopping": lambda: early_stopping.table(tidy["convergence"], tidy["convergence_runs"], seed),
    }
    return Tables(MODEL_TABLES, tables)


def _typed(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {name: of_types(TABLES[name], rows) for name, rows in tables.items()}


class _Reduced(NamedTuple):
    trainings: Trainings
    """Without their disturbed iterations."""
    disturbed: pd.DataFrame
    """Rows of the disturbances table."""
    intervened: pd.DataFrame
    """Steps with a thing left out, and the column intervention."""
    counts: pd.DataFrame
    """As `disturbances.counts`; a point may have several rows, as its cells are read apart."""
    kept: Collection[str]
    """As `disturbances.kept`."""
    shown: Sequence[MedianIteration]
    """One iteration in full of each cell that stands for a run."""


def _reduced(parts: Iterable[Mapping[str, pd.DataFrame]], visits: pd.DataFrame, runs: pd.DataFrame) -> _Reduced:
    """Reduce parts of the tables in `COLUMNS`; `visits` and `runs` are all there are."""
    visits = disturbances.with_sentinel(visits)
    in_full = median_iterations.cells_of_runs(runs)
    # Where parts of a mini-batch, or activations, are computed one after the other, layers have the times of all.
    apart = frozenset(path for path, cell in trained(runs).items() if not preset_from(cell.preset).one_pass)
    reduced, found, intervened, counts, kept, shown = zip(
        *(_part(part, visits, in_full, apart) for part in parts), strict=True
    )
    return _Reduced(
        joined(reduced),
        pd.concat(found),
        pd.concat(intervened),
        pd.concat(counts),
        frozenset().union(*kept),
        list(chain.from_iterable(shown)),
    )


def _part(
    part: Mapping[str, pd.DataFrame], visits: pd.DataFrame, in_full: frozenset[str], apart: frozenset[str]
) -> _Reduced:
    iterations, layers, intervened = (
        part[table.name] if names is None else part[table.name][list(names)] for table, names in COLUMNS.items()
    )
    of_cells = [rows for rows in (iterations, intervened) if len(rows)] or [iterations]
    found = disturbances.table(pd.concat(of_cells), visits)
    good, layers, left_out = (disturbances.without(rows, found) for rows in (iterations, layers, intervened))
    changed = [
        over_ranks(rows, layers.iloc[:0]).assign(intervention=name) for name, rows in groups(left_out, "intervention")
    ]
    known = trainings(good, layers)
    return _Reduced(
        replace(known, alone={name: cell for name, cell in known.alone.items() if name not in apart}),
        found,
        pd.concat(changed) if changed else left_out.iloc[:0],
        disturbances.counts(iterations, found),
        disturbances.kept(iterations, found),
        median_iterations.of_cells(in_full, good, layers),
    )


@dataclass(frozen=True)
class _Known:
    """What several tables are made of; each is found when a table first asks for it."""

    tidy: Mapping[str, pd.DataFrame]
    reduced: _Reduced
    nodes: Sequence[int]
    shared_links: Collection[str | tuple[str, str]]
    named: Mapping[str, Preset]
    """Presets that what-ifs may name."""
    cuts: Mapping[str, Cuts]
    seed: int

    # --- of each kind of record ---

    @cached_property
    def points(self) -> list[Measured]:
        return measured(self.reduced.trainings.steps, self.seed, composed=composed(self.tidy["runs"]))

    @cached_property
    def seen(self) -> list[Measured]:
        """Points whose iterations somebody measured, and did not compose of layers."""
        return [one for one in self.points if not one.composed]

    @cached_property
    def checked(self) -> list[dict[str, object]]:
        return controls.table(self.seen)

    @cached_property
    def doubtful(self) -> set[tuple[object, ...]]:
        """Points whose statistics are those of disturbed iterations."""
        cells, kept = trained(self.tidy["runs"]) if self.reduced.kept else {}, self.reduced.kept
        return {point_key(cells[path]) for path in kept if path in cells}

    @cached_property
    def shown(self) -> tuple[Rows, ...]:
        return median_iterations.tables(self.reduced.shown)

    @cached_property
    def links(self) -> dict[communication.Scheme, communication.Communication]:
        return communication.fit(self.tidy["collectives"], self.seed, self.tidy["contention"])

    @cached_property
    def libraries(self) -> dict[str, matrix_products.Library]:
        return matrix_products.libraries(self.tidy["sgemm"], self.seed)

    @cached_property
    def products(self) -> dict[tuple[str, str], list[matrix_products.Shape]]:
        return matrix_products.products(self.tidy["sgemm"], self.seed)

    @cached_property
    def norms(self) -> pd.DataFrame:
        return noise_scale.without_diverged(self.tidy["gradient_noise"], self.tidy["convergence_runs"])

    @cached_property
    def memory(self) -> list[peaks.Peaks]:
        return peaks.fit(self.tidy["peak_memory"], self.tidy["runs"], self.seed)

    @cached_property
    def largest(self) -> list[dict[str, object]]:
        return largest_batch.table(self.memory, self.tidy["runs"], self.tidy["environments"])

    # --- presets ---

    @cached_property
    def used(self) -> dict[str, Preset]:
        return presets(self.tidy["runs"])

    @cached_property
    def varied(self) -> dict[str, remedies.Variant]:
        return remedies.variants(self.used, taken={*self.named, *self.used})

    @cached_property
    def presets(self) -> dict[str, Preset]:
        return {**self.named, **self.used, **{name: variant.preset for name, variant in self.varied.items()}}

    # --- the cluster, and curves there ---

    @cached_property
    def compute(self) -> Compute:
        return self._compute(self.reduced.trainings)

    def _compute(self, seen: Trainings) -> Compute:
        return Compute(seen, self.seed, {hardware: library.kernel for hardware, library in self.libraries.items()})

    @cached_property
    def reading(self) -> data.TrainingData:
        return self._reading(self.reduced.trainings)

    def _reading(self, seen: Trainings) -> data.TrainingData:
        return data.TrainingData(
            self.tidy["runs"], seen.steps, self.tidy["storage_reads"], self.seed, self.shared_links
        )

    @cached_property
    def cluster(self) -> Cluster:
        return self._learning(self.reduced.trainings, self.points, self.compute, self.reading)

    def cluster_of(self, seen: Trainings, points: Sequence[Measured]) -> Cluster:
        """What is known of the cluster once `seen` was measured, `points` among them."""
        return self._learning(seen, points, self._compute(seen), self._reading(seen))

    def _learning(
        self, seen: Trainings, points: Sequence[Measured], compute: Compute, reading: data.TrainingData
    ) -> Cluster:
        known = Cluster(compute, self.links, reading, self.presets, cuts=self.cuts)
        return learning(known, points, seen, pace.fit(self.tidy["contention"], self.seed), self.seed)

    @cached_property
    def curves(self) -> list[ScalingCurve]:
        return trust.shown(DagModel(self.cluster).curves(self.points, self.nodes), self.compute)

    @cached_property
    def training(self) -> list[ScalingCurve]:
        """Without communication ranks train nothing together: such a curve explains others and answers nothing."""
        return [curve for curve in self.curves if self.cluster.communicates(curve.origin)]

    @cached_property
    def communicating(self) -> list[Measured]:
        return [one for one in self.seen if self.cluster.communicates(one.point)]

    @cached_property
    def placed(self) -> list[Measured]:
        """Each training point on every curve it is of, others for themselves."""
        return [
            *(
                one
                for one in self.seen
                if one.point.scaling not in SCALINGS or not self.cluster.communicates(one.point)
            ),
            *(at for curve in self.training for at in curve.measured.values()),
        ]

    # --- training to a target, and memory ---

    @cached_property
    def to_target(self) -> list[steps.Steps]:
        return steps.steps_of(self.tidy["convergence_runs"], self.presets, self.seed)

    @cached_property
    def matched(self) -> list[time_to_accuracy.Matched]:
        return time_to_accuracy.matched(self.training, self.to_target, self.presets)

    @cached_property
    def to_targets(self) -> list[target_times.Trained]:
        return target_times.runs_to_target(self.tidy["convergence_runs"], self.matched, self.seed)

    @cached_property
    def jobs(self) -> next_cells.Jobs:
        return next_cells.jobs_of(self.tidy["runs"])

    @cached_property
    def fitting(self) -> fits.Memory:
        return fits.Memory(
            self.memory, self.largest, self.reduced.trainings.networks, self.presets,
            self.tidy["peak_memory"], self.tidy["environments"], self.cuts,
        )  # fmt: skip
