"""What to measure next: the cell that is expected to narrow the interval of the stalling point most per node-hour.

Preposterior analysis (Raiffa & Schlaifer 1961, chapter 5): the ensembles are samples of possible truths. Each sample
implies a time of a candidate cell, and a stalling point. A measurement of the cell leaves only samples that agree with
its time. The mean width of their stalling points is the expected width of the interval.

Ensembles contain the uncertainty of measurements, but not that of the model. Away from measured worker counts the model
therefore gets a further error: a random walk over the doublings of n. The step of the walk is estimated from the
differences of predictions and measurements at measured counts, with `STEP_ERROR` as the prior.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint.base.measured import PLACELESS_AXES
from stallpoint.base.statistics import NORMAL_INTERVAL, Reals, generator
from stallpoint.loops import rows_of_each
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.iteration.curve_points import CurvePoints
from stallpoint.models.terms.communication import Communication, Scheme, scheme_of
from stallpoint.records.tables import NEXT_CELLS
from stallpoint.strategies.presets import Preset
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.collectives_kind import CollectivesCell
from stallpoint.study.kinds.intervention_kind import InterventionCell
from stallpoint.study.kinds.train_kind import TrainCell

STEP_ERROR = 0.07
"""Prior relative model error per doubling: Shi et al. (2018, section V-D) report 4.6 to 9.4 %."""
DRAWS_PER_REPLICATE = 20
"""Model errors drawn for each bootstrap replicate."""
GROUP_COUNT = 20
"""Groups of samples with similar measurements."""
MIN_NARROWING = 0.02
"""Relative narrowing below which it is sampling noise and counts as none."""


@dataclass(frozen=True)
class CurveSamples:
    """Samples of possible true curves, drawn from the ensembles and from the model's error."""

    ranks: Sequence[int]
    """Known worker counts, rising."""
    seconds: Reals
    """Logarithm of the iteration time at each count, [samples, len(ranks)]."""
    replicates: npt.NDArray[np.int64]
    """Replicate of the ensembles that a sample belongs to, [samples]."""
    noise: float


@dataclass(frozen=True)
class CandidateCell:
    """A cell that could be run."""

    kind: str
    nodes: int
    ranks: int
    worker_batch: int
    log_times: Reals
    """Logarithm of the measured time, [samples], without noise."""
    node_hours: float


def interval_width(values: Reals) -> float:
    """Return the length of the 90 % interval of a normal variable with the scatter of `values`.

    The distance between quantiles of `values` would jump, since a curve may never stall.
    """
    return NORMAL_INTERVAL * float(np.std(values))


def expected_width(values: Reals, measurement: Reals) -> float:
    """Return the expected `interval_width` of `values` once `measurement` is known; both have an entry for each sample.

    The remaining variance is the residual of linear fits within `GROUP_COUNT` groups of similar measurements.
    """
    order, starts = np.argsort(measurement, kind="stable"), np.arange(GROUP_COUNT) * len(values) // GROUP_COUNT
    sizes = np.diff(starts, append=len(values))

    def means(of: Reals) -> Reals:
        return np.asarray(np.add.reduceat(of, starts) / sizes)

    value, by = (of[order] - np.repeat(means(of[order]), sizes) for of in (values, measurement))
    scatter = means(by * by)
    explained_variances = np.divide(means(value * by) ** 2, scatter, out=np.zeros(GROUP_COUNT), where=scatter > 0)
    return NORMAL_INTERVAL * float(np.sqrt(np.mean(means(value * value) - explained_variances)))


def stall_position(ranks: Sequence[int], log_rates: Reals, threshold: float) -> Reals:
    """Return log2 of the worker count at which doubling first gains less than `threshold`, [samples].

    `log_rates` is the logarithm of the throughput, [samples, len(ranks)]. Gains are interpolated linearly in log2 n, so
    that a sample may stall between two counts. If every doubling gains enough, the result is for the largest count.
    """
    counts = list(ranks)
    doubled = [n for n in counts if 2 * n in counts]
    stall_positions = np.full(len(log_rates), np.log2(counts[-1]))
    for n in reversed(doubled):
        excess_gain = log_rates[:, counts.index(2 * n)] - log_rates[:, counts.index(n)] - np.log1p(threshold)
        placement = np.full(len(log_rates), np.log2(n))
        if n % 2 == 0 and n // 2 in doubled:
            before = log_rates[:, counts.index(n)] - log_rates[:, counts.index(n // 2)] - np.log1p(threshold)
            with np.errstate(divide="ignore", invalid="ignore"):
                part = np.where(before > 0, before / (before - excess_gain), 0.0)
            placement = np.log2(n // 2) + part
        stall_positions = np.where(excess_gain < 0, placement, stall_positions)
    return stall_positions


def walk_covariance(positions: Reals, fixed_indices: Sequence[int]) -> Reals:
    """Return the covariance of a random walk at `positions`, given that it is 0 at the `fixed_indices`.

    The walk has unit variance. It starts at the first fixed position, in both directions (two-sided Brownian motion).
    """
    first, *others = fixed_indices
    offsets = positions - positions[first]
    covariance = (np.abs(offsets)[:, None] + np.abs(offsets)[None, :] - np.abs(offsets[:, None] - offsets[None, :])) / 2
    cross_terms = covariance[:, others]
    posterior: Reals = covariance - cross_terms @ np.linalg.solve(covariance[np.ix_(others, others)], cross_terms.T)
    return posterior


def table(fitted: FittedStudy) -> list[dict[str, object]]:
    """Return the rows of the next_cells table."""
    asked = fitted.asked
    inputs = CandidateInputs(fitted.once(jobs), fitted.links, fitted.presets, asked.available)
    # Predictions exclude the model's error. `draw` adds this error to the samples, as further cells would narrow it.
    curves = [curve.uncorrected_curve for curve in fitted.training_curves if curve.measured]
    return rows_of_each(lambda curve: _rows(curve, inputs, asked.threshold, asked.seed), curves)


def _rows(curve: CurvePoints, inputs: CandidateInputs, threshold: float, seed: int) -> Iterator[dict[str, object]]:
    base = curve.origin
    random = generator(seed, "next cells", *base.series)
    samples = draw(curve, random)
    if samples is None:
        return
    batches = np.log([curve.at(ranks).point.global_batch for ranks in samples.ranks])
    positions = stall_position(samples.ranks, batches - samples.seconds, threshold)
    now = interval_width(positions)
    found = []
    for candidate in _candidates(curve, samples, inputs):
        noise = samples.noise * random.standard_normal(len(positions))
        narrowing = now - expected_width(positions, candidate.log_times + noise)
        found.append((candidate, narrowing if narrowing > MIN_NARROWING * now else 0.0))
    found.sort(key=lambda entry: (-entry[1] / entry[0].node_hours, entry[0].node_hours))
    for rank, (candidate, narrowing) in enumerate(found, start=1):
        yield {
            **base.labels(),
            "kind": candidate.kind,
            "nodes": candidate.nodes,
            "ranks": candidate.ranks,
            "worker_batch": candidate.worker_batch,
            "width": now,
            "expected_width": now - narrowing,
            "narrowing": narrowing,
            "node_hours": candidate.node_hours,
            "narrowing_per_node_hour": narrowing / candidate.node_hours,
            "rank_in_curve": rank,
        }


def _candidates(curve: CurvePoints, samples: CurveSamples, inputs: CandidateInputs) -> list[CandidateCell]:
    """Return every cell that could be run, with a duration above 0."""
    base = curve.origin
    max_nodes = inputs.available.get(base.hardware, max(curve.at(ranks).point.nodes for ranks in samples.ranks))
    preset = inputs.presets[base.sync]
    scheme = scheme_of(base.hardware, preset)
    found = [
        *_training_cells(curve, samples, inputs.jobs, max_nodes),
        *_collectives_cells(curve, samples, inputs.jobs, max_nodes, scheme, inputs.fits.get(scheme)),
        *_compute_cells(curve, samples, inputs.jobs),
    ]
    return [candidate for candidate in found if candidate.node_hours > 0]


def draw(curve: CurvePoints, random: np.random.Generator) -> CurveSamples | None:
    """Draw samples of a curve's iteration times; None if no doubling is known."""
    ranks = curve.known.counts
    if not any(2 * n in ranks for n in ranks):
        return None
    measured = [index for index, n in enumerate(ranks) if curve.basis(n) == "measured"]
    positions = np.log2(ranks)
    errors = {n: _log_error(curve, n) for n in (ranks[index] for index in measured)}
    usual = np.array([_expected_log_time(curve, n, errors) for n in ranks]).T
    replicates = np.repeat(np.arange(1, len(usual)), DRAWS_PER_REPLICATE)
    walk = random.multivariate_normal(np.zeros(len(ranks)), walk_covariance(positions, measured), len(replicates))
    return CurveSamples(ranks, usual[replicates] + step_error(errors) * walk, replicates, _job_noise(curve))


def _log_error(curve: CurvePoints, ranks: int) -> Reals:
    """Return the logarithm of measured over predicted iteration time, [1 + REPLICATES]."""
    predicted_seconds = curve.held_out[ranks].parts.iteration_time
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(curve.measured[ranks].parts.iteration_time / predicted_seconds))


def _expected_log_time(curve: CurvePoints, ranks: int, errors: Mapping[int, Reals]) -> Reals:
    """Return the logarithm of the iteration time; a prediction is corrected by the nearest measured count's error."""
    seconds = np.log(curve.at(ranks).parts.iteration_time)
    comparable_counts = [n for n, error in errors.items() if np.isfinite(error).all()]
    if curve.basis(ranks) == "measured" or not comparable_counts:
        return np.asarray(seconds)
    return np.asarray(seconds + errors[min(comparable_counts, key=lambda n: abs(np.log2(n / ranks)))])


def step_error(errors: Mapping[int, Reals]) -> float:
    """Return the standard deviation of the model's additional error per doubling, from `errors` by measured count.

    The variance is the mean square of the steps between measured counts; `STEP_ERROR` counts as one further step.
    """
    known = {n: float(error[0]) for n, error in sorted(errors.items()) if np.isfinite(error).all()}
    counts, values = np.array(list(known), dtype=np.float64), np.array(list(known.values()))
    steps = np.diff(values) ** 2 / np.diff(np.log2(counts))
    return float(np.sqrt((STEP_ERROR**2 + steps.sum()) / (1 + len(steps))))


def _job_noise(curve: CurvePoints) -> float:
    """Return the standard deviation of the logarithm of a job's time, from the scatter of medians over several jobs."""
    job_deviations = [
        float(np.log(measured.parts.iteration_time[1:]).std() * np.sqrt(len(measured.cells)))
        for ranks, measured in curve.measured.items()
        if ranks in curve.known.rates
    ]
    return float(np.median(job_deviations))


@dataclass(frozen=True)
class Jobs:
    """Durations of the study's jobs, and the cells that failed."""

    training: Mapping[str, tuple[TrainCell, float]]
    """Cell and duration [s] by path."""
    collectives: Mapping[tuple[str, str], float]
    """Median duration [s] by hardware and backend."""
    failed: frozenset[tuple[str | int, ...]]
    """Cells that could not run: series and placement of training, scheme and placement of collectives."""


@dataclass(frozen=True)
class CandidateInputs:
    """What is needed to find the candidate cells of any curve."""

    jobs: Jobs
    fits: Mapping[Scheme, Communication]
    presets: Mapping[str, Preset]
    available: Mapping[str, int]
    """Nodes of each hardware entry."""


def jobs(fitted: FittedStudy) -> Jobs:
    """Return the durations of a study's jobs, and the cells that failed."""
    runs = fitted.tidy["runs"]
    training: dict[str, tuple[TrainCell, float]] = {}
    collectives: dict[tuple[str, str], list[float]] = {}
    failed: set[tuple[str | int, ...]] = set()
    for path, status, duration, settings in runs[["cell", "status", "duration", "settings"]].to_numpy():
        cell = cell_from_json(settings)
        if isinstance(cell, InterventionCell):
            continue
        if status != "ok":
            names = PLACELESS_AXES if isinstance(cell, TrainCell) else ("hardware", "backend", "reduction")
            failed.add((*(getattr(cell, name, "") for name in names), *cell.placement))
        elif isinstance(cell, TrainCell):
            training[path] = cell, float(duration)
        elif isinstance(cell, CollectivesCell):
            collectives.setdefault((cell.hardware, cell.backend), []).append(float(duration))
    medians = {key: float(np.median(seconds)) for key, seconds in collectives.items()}
    return Jobs(training, medians, frozenset(failed))


def train_seconds(curve: CurvePoints, jobs: Jobs, iteration: float) -> float:
    """Return the seconds of a training job on the curve: measured overhead, and iterations of `iteration` s each."""
    found = [
        (cell.iterations + cell.warmup, duration, float(measured.parts.iteration_time[0]))
        for measured in curve.measured.values()
        for cell, duration in (jobs.training[name] for name in measured.cells if name in jobs.training)
    ]
    count = max((count for count, _, _ in found), default=1)
    overheads = [max(0.0, duration - count * seconds) for count, duration, seconds in found]
    return float(np.median(overheads or [0.0])) + count * iteration


def _training_cells(curve: CurvePoints, samples: CurveSamples, jobs: Jobs, max_nodes: int) -> Iterator[CandidateCell]:
    """Yield a training cell at each worker count; at a measured count it is a further repeat."""
    for index, ranks in enumerate(samples.ranks):
        point = curve.at(ranks).point
        if point.nodes <= max_nodes and (*point.without_placement, *point.placement) not in jobs.failed:
            seconds = train_seconds(curve, jobs, float(np.exp(np.median(samples.seconds[:, index]))))
            node_hours = point.nodes * seconds / 3600
            yield CandidateCell("train", point.nodes, ranks, point.worker_batch, samples.seconds[:, index], node_hours)


def _collectives_cells(
    curve: CurvePoints, samples: CurveSamples, jobs: Jobs, max_nodes: int, scheme: Scheme, fit: Communication | None
) -> Iterator[CandidateCell]:
    """Yield collectives cells for placements whose messages are known only from a fit over several placements."""
    hardware, backend, *_ = scheme
    if fit is None or (hardware, backend) not in jobs.collectives:
        return
    for ranks, predicted in curve.predicted.items():
        nodes, _ = placement = predicted.point.placement
        known = ranks in samples.ranks and nodes <= max_nodes
        if not known or placement in fit.fits_by_placement or (*scheme[:3], *placement) in jobs.failed:
            continue
        seconds = predicted.parts.communication
        if (seconds > 0).all():
            node_hours = nodes * jobs.collectives[hardware, backend] / 3600
            log_times = np.log(seconds)[samples.replicates]
            yield CandidateCell("collectives", nodes, ranks, 0, log_times, node_hours)


def _compute_cells(curve: CurvePoints, samples: CurveSamples, jobs: Jobs) -> Iterator[CandidateCell]:
    """Yield compute cells, on one isolated worker, at every b whose times were interpolated or extrapolated."""
    seen_batches = set()
    for ranks in samples.ranks:
        predicted_point = curve.predicted.get(ranks)
        if predicted_point is None or predicted_point.point.worker_batch in seen_batches:
            continue
        seconds = predicted_point.parts.forward + predicted_point.parts.backward
        if "measured" not in predicted_point.compute_source and (seconds > 0).all():
            seen_batches.add(predicted_point.point.worker_batch)
            isolated = float((seconds + predicted_point.parts.update)[0])
            node_hours = train_seconds(curve, jobs, isolated) / 3600
            log_times = np.log(seconds)[samples.replicates]
            yield CandidateCell("compute", 1, 1, predicted_point.point.worker_batch, log_times, node_hours)


QUESTIONS = (Question(NEXT_CELLS, table),)
