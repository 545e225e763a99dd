"""All model tables from all tidy tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
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
from stallpoint.models.answers import intervention_savings as interventions
from stallpoint.models.answers.median_iterations import MedianIteration
from stallpoint.models.answers.what_if import Scenario
from stallpoint.models.base.frames import Rows, Tables, of_types
from stallpoint.models.base.measured import Measured, composed, measured, over_ranks, point_key, presets, trained
from stallpoint.models.base.statistics import groups
from stallpoint.models.convergence import early_stopping, noise_scale, steps
from stallpoint.models.iteration import prediction_tables as predictions
from stallpoint.models.iteration.cluster import SCALINGS, Cluster
from stallpoint.models.iteration.prediction import DagModel, learning
from stallpoint.models.scaling import study_curves as scaling_curves
from stallpoint.models.terms import communication, data, matrix_products, pace, peaks, storage_rates
from stallpoint.models.terms import copy_rates as copies
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
    """All model tables, by name, with the columns of `tables.MODEL_TABLES`; each is computed when it is first read.

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
    runs = tidy["runs"]
    every = [tidy] if parts is None else map(_typed, parts)
    reduced, disturbed, intervened, counts, kept, shown = _reduced(every, tidy["visits"], runs)
    points = measured(reduced.steps, seed, composed=composed(runs))
    seen = [one for one in points if not one.composed]
    named = known_presets or {name: known.preset for name, known in PRESETS.items()}
    used = presets(runs)
    varied = remedies.variants(used, taken={*named, *used})
    links = communication.fit(tidy["collectives"], seed, tidy["contention"])
    paces = pace.fit(tidy["contention"], seed)
    libraries = matrix_products.libraries(tidy["sgemm"], seed)
    kernels = {hardware: library.kernel for hardware, library in libraries.items()}

    def data_of(seen: Trainings) -> data.TrainingData:
        return data.TrainingData(runs, seen.steps, tidy["storage_reads"], seed, shared_links)

    def cluster_of(
        seen: Trainings,
        points: Sequence[Measured],
        compute: Compute | None = None,
        reading: data.TrainingData | None = None,
    ) -> Cluster:
        """What is known of the cluster once `seen` was measured, of which `compute` and `reading` are known already."""
        known = Cluster(
            compute or Compute(seen, seed, kernels),
            links,
            reading or data_of(seen),
            {**named, **used, **{name: variant.preset for name, variant in varied.items()}},
            cuts=cuts or {},
        )
        return learning(known, points, seen, paces, seed)

    compute = Compute(reduced, seed, kernels)
    reading = data_of(reduced)
    cluster = cluster_of(reduced, points, compute, reading)
    curves = trust.shown(DagModel(cluster).curves(points, nodes), compute)
    # Without communication ranks train nothing together: such a curve explains others and answers nothing itself.
    training = [curve for curve in curves if cluster.communicates(curve.origin)]
    communicating = [measured for measured in seen if cluster.communicates(measured.point)]
    # Each training point on every curve it is of, others for themselves.
    placed = [
        *(one for one in seen if one.point.scaling not in SCALINGS or not cluster.communicates(one.point)),
        *(at for curve in training for at in curve.measured.values()),
    ]
    checked = controls.table(seen)
    gains = cache(stalling.gains)
    cells = trained(runs) if kept else {}
    doubtful = {point_key(cells[path]) for path in kept if path in cells}
    stalls = cache(lambda: stalling.tables(training, threshold, efficiency, checked, gains, doubtful))
    products = matrix_products.products(tidy["sgemm"], seed)
    to_target = steps.steps_of(tidy["convergence_runs"], cluster.presets, seed)
    norms = noise_scale.without_diverged(tidy["gradient_noise"], tidy["convergence_runs"])
    noise = cache(partial(noise_scale.of_training, gradient_noise=norms, seed=seed))
    matched = time_to_accuracy.matched(training, to_target, cluster.presets)
    times = cache(lambda: time_to_accuracy.tables(matched, gains, noise, threshold))
    to_targets = target_times.runs_to_target(tidy["convergence_runs"], matched, seed)
    memory = peaks.fit(tidy["peak_memory"], runs, seed)
    jobs = next_cells.jobs_of(runs)
    largest = largest_batch.table(memory, runs, tidy["environments"])
    fitting = fits.Memory(
        memory, largest, compute.layers, cluster.presets, tidy["peak_memory"], tidy["environments"], cuts
    )
    shown_ranks, shown_layers = median_iterations.tables(shown)
    tables: dict[str, Callable[[], Rows]] = {
        "layer_scaling": lambda: layer_scaling(compute, counts),
        "sgemm_speedup": lambda: matrix_products.sgemm_speedup(tidy["sgemm"], seed),
        "matrix_products": lambda: matrix_products.table(tidy["sgemm"], libraries, seed),
        "communication": lambda: communication.table(links),
        "predictions": lambda: predictions.predictions(curves, reduced.steps),
        "validation": lambda: validation.table(reduced, points, calibration_nodes, cluster_of),
        "layer_predictions": lambda: predictions.layer_predictions(curves, reduced.first_ranks),
        "layer_times": lambda: predictions.layer_times(reduced.first_ranks),
        "median_iterations": lambda: shown_ranks,
        "median_layers": lambda: shown_layers,
        "amdahl": lambda: amdahl.table(compute, training, threshold),
        "critical_path": lambda: critical_path.table(curves),
        "causes": lambda: attribution.causes(training),
        "controls": lambda: checked,
        "disturbances": lambda: disturbed,
        "stalling": lambda: stalls()[0],
        "stall_probabilities": lambda: stalls()[1],
        "what_if": lambda: what_if.table(cluster, training, scenarios, nodes, threshold),
        "what_if_grid": lambda: grid.table(cluster, training, nodes) if scenarios else [],
        "remedies": lambda: remedies.table(cluster, training, varied, runs, jobs, fitting),
        "next_cells": lambda: next_cells.table(
            training, jobs, links, cluster.presets, threshold, available or {}, seed
        ),
        "storage_rates": lambda: storage_rates.storage_rates(tidy["storage_reads"], tidy["storage_passes"], seed),
        "storage_operation_rates": lambda: storage_rates.storage_operation_rates(tidy["storage_operations"], seed),
        "data_share": lambda: data.data_share(placed),
        "feeding": lambda: feeding.table(training, runs),
        "saturation": lambda: saturation.table(reading.together(), nodes, threshold),
        "rates": lambda: scaling_curves.rates(training),
        "scaling_laws": lambda: scaling_curves.scaling_laws(training),
        "halvings": lambda: halvings.table(compute, products),
        "curve_distances": lambda: curve_distances.table(compute, products),
        "hidden_communication": lambda: hidden_communication.table(curves, seen, cluster.presets),
        "interventions": lambda: interventions.table(curves, seen, intervened, cluster.presets, seed),
        "comparisons": lambda: comparisons.table(communicating),
        "traffic": lambda: traffic.table(placed, compute.layers, tidy["storage_reads"], epoch_samples),
        "break_even": lambda: break_even.table(seen, runs, tidy["staging"], tidy["conversions"], seed),
        "copy_rates": lambda: copies.copy_rates(tidy["copies"], seed),
        "utilisation": lambda: utilisation.table(
            placed, compute.layers, multiply_adds or {}, tokens or {}, rated or {}, epoch_samples
        ),
        "memory": lambda: peaks.table(memory),
        "largest_batch": lambda: largest,
        "fits": lambda: fits.table(training, fitting),
        "steps_to_target": lambda: steps.table(to_target, threshold),
        "noise_scale": lambda: noise_scale.table(norms, seed),
        "critical_batches": lambda: noise_scale.critical_batches(to_target, noise, threshold),
        "time_to_accuracy": lambda: times()[0],
        "accuracy_stalling": lambda: times()[1],
        "staleness_shares": lambda: staleness.shares(tidy["staleness"]),
        "worker_staleness": lambda: staleness.workers(tidy["staleness"], seed),
        "target_times": lambda: target_times.table(to_targets),
        "target_stalling": lambda: target_times.stalling(to_targets, matched, threshold),
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
    iterations, layers, intervened = (part[table.name] for table in COLUMNS)
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
