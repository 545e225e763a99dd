"""Records of a study and the models fitted to them, computed on first use and shared by all questions.

A `Question` is a table of answers and the function that makes its rows. The module that computes the answer defines it;
`models.fitting` collects all questions.

*Median iteration*: the iteration of a cell with the median wall time, which is the time of the slowest rank. One is
kept for each run: a run has the cells at the largest worker count of a network, hardware entry and preset. Only layers
of median iterations are kept, so that charts do not grow with the study.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from stallpoint.base.frames import Rows, typed
from stallpoint.base.measured import (
    SERIES,
    Measured,
    Point,
    composed,
    kept,
    measured,
    point_key,
    presets,
    step_rows,
    trained,
    with_mean_communication,
)
from stallpoint.base.statistics import Ensemble, groups
from stallpoint.models.answers import trust
from stallpoint.models.convergence import noise_scale, steps
from stallpoint.models.convergence.steps import Steps
from stallpoint.models.iteration.cluster import SCALINGS, Cluster
from stallpoint.models.iteration.curve_points import CurvePoints
from stallpoint.models.iteration.placements import PlacementScatter
from stallpoint.models.iteration.prediction import DagModel, calibrated
from stallpoint.models.iteration.scenarios import Scenario, Variant, variants
from stallpoint.models.terms import communication, data, effects, matrix_products, peaks
from stallpoint.models.terms.compute import Compute
from stallpoint.models.terms.training_cells import COLUMNS, PART_KEYS, TrainingCells, joined, reduced_cells
from stallpoint.records import disturbances
from stallpoint.records.tables import LAYERS, TABLES, Table
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.presets import NONE, PRESETS, Preset, preset_from
from stallpoint.text import listed

IMAGENET = 1_281_167
"""Training images of ILSVRC-2012."""
T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """A table of answers and the function that makes its rows."""

    table: Table
    rows: Callable[[FittedStudy], Rows]


@dataclass(frozen=True)
class QuestionSettings:
    """Settings of a study that questions depend on."""

    nodes: Sequence[int]
    """Node counts to predict in addition to the measured ones."""
    threshold: float = 0.10
    """A curve stalls where doubling the workers raises throughput by less than this."""
    efficiency: float = 0.5
    """Workers are cost-efficient while a sample costs at most 1/`efficiency` of its cost at the smallest worker
    count."""
    shared_links: Collection[str | tuple[str, str]] = ()
    """Storages reached over the link that carries the gradients."""
    scenarios: Sequence[Scenario] = ()
    """What-ifs."""
    known_presets: Mapping[str, Preset] = field(
        default_factory=lambda: {name: known.preset for name, known in PRESETS.items()}
    )
    """Presets that what-if scenarios may name."""
    available: Mapping[str, int] = field(default_factory=dict)
    """Nodes of each hardware entry."""
    calibration_nodes: Collection[int] = ()
    """Node counts to calibrate on. For validation, training on more nodes (by default: on more than the two smallest
    worker counts) is predicted from the rest."""
    multiply_adds: Mapping[str, float] = field(default_factory=dict)
    """Multiply-adds of a sample's forward pass, by network."""
    cuts: Mapping[str, Cuts] = field(default_factory=dict)
    """Layers at which each network can be cut into pipeline stages, or split by outputs."""
    rated: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Rated quantities, as `utilisation` and `costs` name them, by hardware."""
    failures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Entries ``failures``, by hardware."""
    training_epochs: float = 1.0
    deadline_hours: float | None = None
    """Deadline of the epochs, or of a target."""
    budget: float | None = None
    """Largest price of the epochs, or of a target, in the unit of prices."""
    epoch_samples: int = IMAGENET
    seed: int = 0


def _noise_scales(fitted: FittedStudy) -> Callable[[Steps], Ensemble]:
    return cache(partial(noise_scale.noise_scale_of_training, gradient_noise=fitted.grad_norms, seed=fitted.asked.seed))


class FittedStudy:
    """Records of a study, and the models that several questions share; each is fitted on first use."""

    def __init__(
        self, tidy: Mapping[str, pd.DataFrame], parts: Iterable[Mapping[str, Any]] | None, asked: QuestionSettings
    ) -> None:
        """Take `tidy` and `parts` as `fitting.fit` does."""
        self.asked = asked
        self.tidy = {name: typed(TABLES[name], rows) for name, rows in tidy.items()}
        self.slow_visits = disturbances.slow_visits(disturbances.with_sentinel(self.tidy["visits"]))
        for name in ("collectives", "contention", "storage_reads"):
            self.tidy[name] = disturbances.without_slow_visits(self.tidy[name], self.slow_visits)
        self.tidy["sgemm"] = matrix_products.with_value_bytes(self.tidy["sgemm"], self.tidy["runs"])
        if parts is None:
            parts = [self.tidy | {table.name: [self.tidy[table.name]] for table in PART_KEYS}]
        self._parts = parts
        self._answered: dict[Callable[[FittedStudy], Any], Any] = {}

    def once(self, answer: Callable[[FittedStudy], T]) -> T:
        """Return the result of the function `answer` for this study; it is called only once."""
        if answer not in self._answered:
            self._answered[answer] = answer(self)
        found: T = self._answered[answer]
        return found

    @cached_property
    def reduced(self) -> _ReducedRecords:
        """Training records, reduced over ranks."""
        return _reduced_records(self._parts, self.tidy["visits"], self.tidy["runs"])

    @cached_property
    def points(self) -> list[Measured]:
        """All training points; an iteration that was not measured is composed of layer times."""
        return [self.placements.widened_point(one) for one in self._points_before_widening]

    @cached_property
    def _points_before_widening(self) -> list[Measured]:
        return measured(self.reduced.training_cells.steps, self.asked.seed, composed=composed(self.tidy["runs"]))

    @cached_property
    def placements(self) -> PlacementScatter:
        """Placements of training cells, and the scatter between placements."""
        return PlacementScatter.of(self.tidy["environments"], self._points_before_widening)

    @cached_property
    def measured(self) -> list[Measured]:
        """Points with measured iterations."""
        return [one for one in self.points if not one.composed]

    @cached_property
    def disturbed_keys(self) -> set[tuple[object, ...]]:
        """Keys (`point_key`) of points whose statistics come from disturbed iterations."""
        cells, kept = trained(self.tidy["runs"]) if self.reduced.kept else {}, self.reduced.kept
        return {point_key(cells[path]) for path in kept if path in cells}

    @property
    def disturbed(self) -> pd.DataFrame:
        """Rows of the disturbances table."""
        return pd.concat([self.reduced.disturbed, self.slow_visits], ignore_index=True)

    def doubt_of_links(self, point: Point) -> str:
        """Return the reason if predictions may not use a point's links, as every visit was slow; else an empty text."""
        scheme = communication.scheme_of(point.hardware, self.presets[point.sync])
        counts = listed([str(ranks) for ranks in self._slow_link_counts.get(scheme[:3], [])])
        return f"the machine was slow in every visit to the messages on n = {counts}" if counts else ""

    @cached_property
    def _slow_link_counts(self) -> dict[tuple[str, ...], list[int]]:
        """Worker counts at which every visit to collectives was slow, by hardware, backend and reduction."""
        rows = self.tidy["collectives"]
        kept_cells = self.slow_visits.loc[~self.slow_visits["excluded"], "cell"]
        kept = rows[rows["cell"].isin(kept_cells) & (rows["ranks"] > 1)]
        return {key: sorted(of["ranks"].unique()) for key, of in groups(kept, ["hardware", "backend", "reduction"])}

    @cached_property
    def median_rows(self) -> tuple[Rows, ...]:
        """Rows of the tables median_iterations and median_layers."""
        return median_tables(self.reduced.shown)

    @cached_property
    def links(self) -> dict[communication.Scheme, communication.Communication]:
        """Fits of collectives, by hardware, backend, reduction scheme and operation."""
        return communication.fit(self.tidy["collectives"], self.asked.seed, self.tidy["contention"])

    @cached_property
    def libraries(self) -> dict[str, matrix_products.MachineProducts]:
        """Kernel models of matrix products, by hardware."""
        return matrix_products.libraries(self.tidy["sgemm"], self.asked.seed)

    @cached_property
    def products(self) -> dict[tuple[str, str], list[matrix_products.ShapeTimes]]:
        """Matrix products by network and hardware."""
        return matrix_products.products(self.tidy["sgemm"], self.asked.seed)

    @cached_property
    def memory_rates(self) -> dict[str, Ensemble]:
        """Rate of memory traffic by hardware, B/s."""
        return data.memory_rates(self.tidy["copies"], self.asked.seed)

    @cached_property
    def grad_norms(self) -> pd.DataFrame:
        """Gradient norms of training that did not diverge."""
        return noise_scale.rows_without_divergence(self.tidy["gradient_noise"], self.tidy["convergence_runs"])

    @cached_property
    def memory(self) -> list[peaks.Peaks]:
        """Peaks of workers' memory use."""
        return peaks.fit(self.tidy["peak_memory"], self.tidy["runs"], self.asked.seed)

    @cached_property
    def used_presets(self) -> dict[str, Preset]:
        """Presets that the study trained with."""
        return presets(self.tidy["runs"])

    @cached_property
    def preset_variants(self) -> dict[str, Variant]:
        """Variants of the used presets, for remedies."""
        return variants(self.used_presets, taken={*self.asked.known_presets, *self.used_presets})

    @cached_property
    def presets(self) -> dict[str, Preset]:
        """Presets by name: known ones, used ones, and variants of used ones."""
        return {
            **self.asked.known_presets,
            **self.used_presets,
            **{name: variant.preset for name, variant in self.preset_variants.items()},
        }

    # --- cluster and curves ---

    @cached_property
    def compute(self) -> Compute:
        """Layer times on one worker."""
        return self._fit_compute(self.reduced.training_cells)

    def _fit_compute(self, cells: TrainingCells) -> Compute:
        return Compute(
            cells, self.asked.seed, {hardware: library.kernel for hardware, library in self.libraries.items()}
        )

    @cached_property
    def reading(self) -> data.TrainingData:
        """Times to read mini-batches."""
        return self._fit_reading(self.reduced.training_cells)

    def _fit_reading(self, cells: TrainingCells) -> data.TrainingData:
        return data.TrainingData(
            self.tidy["runs"], cells.steps, self.tidy["storage_reads"], self.asked.seed, self.asked.shared_links
        )

    @cached_property
    def cluster(self) -> Cluster:
        """Cluster with costs fitted to all training cells."""
        return self._fit_cluster(self.reduced.training_cells, self.points, self.compute, self.reading)

    def cluster_of_cells(self, cells: TrainingCells, points: Sequence[Measured]) -> Cluster:
        """Return the cluster with costs fitted only to `cells`, which contain `points`."""
        return self._fit_cluster(cells, points, self._fit_compute(cells), self._fit_reading(cells))

    def _fit_cluster(
        self, cells: TrainingCells, points: Sequence[Measured], compute: Compute, reading: data.TrainingData
    ) -> Cluster:
        costs = Cluster(
            compute, self.links, reading, self.presets, cuts=self.asked.cuts, memory_rates=self.memory_rates
        )
        return calibrated(costs, points, cells, effects.fit(self.tidy["contention"], self.asked.seed), self.asked.seed)

    @cached_property
    def curves(self) -> list[CurvePoints]:
        """Every scaling curve, measured and predicted."""
        curves = DagModel(self.cluster).curves(self.points, self.asked.nodes)
        return trust.shown(curves, self.compute, self.doubt_of_links)

    @cached_property
    def training_curves(self) -> list[CurvePoints]:
        """Curves whose ranks communicate: answers are about these; curves without communication only explain them."""
        return [curve for curve in self.curves if self.cluster.communicates(curve.origin)]

    @cached_property
    def communicating(self) -> list[Measured]:
        """Measured points whose ranks communicate."""
        return [one for one in self.measured if self.cluster.communicates(one.point)]

    @cached_property
    def points_by_curve(self) -> list[Measured]:
        """Points with measured iterations; a point of several training curves is repeated for each of them."""
        return [
            *(
                one
                for one in self.measured
                if one.point.scaling not in SCALINGS or not self.cluster.communicates(one.point)
            ),
            *(at for curve in self.training_curves for at in curve.measured.values()),
        ]

    # --- training to a target ---

    @cached_property
    def to_target(self) -> list[steps.Steps]:
        """Steps of each training to its target."""
        return steps.steps_of(self.tidy["convergence_runs"], self.presets, self.asked.seed)

    def noise_scale_of(self, steps: Steps) -> Ensemble:
        """Return the noise scale of a training."""
        return self.once(_noise_scales)(steps)


class _ReducedRecords(NamedTuple):
    training_cells: TrainingCells
    """Without disturbed iterations."""
    disturbed: pd.DataFrame
    """Rows of the disturbances table."""
    intervened: pd.DataFrame
    """Steps of intervened iterations, with the column intervention."""
    counts: pd.DataFrame
    """Rows of `disturbances.counts`: a point has one for each part that was read."""
    kept: Collection[str]
    """Result of `disturbances.mostly_disturbed`."""
    shown: Sequence[MedianIteration]
    """One complete iteration of each cell that represents a run."""


def _reduced_records(parts: Iterable[Mapping[str, Any]], visits: pd.DataFrame, runs: pd.DataFrame) -> _ReducedRecords:
    """Return the records reduced from all `parts` of the tables in `COLUMNS`; `visits` and `runs` are complete."""
    visits = disturbances.with_sentinel(visits)
    cells_to_show = cells_of_runs(runs)
    # Cells with several passes per mini-batch record sums over passes, not isolated layer times.
    multi_pass_cells = frozenset(path for path, cell in trained(runs).items() if not preset_from(cell.preset).one_pass)
    server_presets = frozenset(name for name, preset in presets(runs).items() if preset.strategy.answered_separately)
    reduced_parts, found, intervened, counts, kept, shown = zip(
        *(_reduced_part(part, visits, cells_to_show, multi_pass_cells, server_presets) for part in parts), strict=True
    )
    return _ReducedRecords(
        joined(reduced_parts),
        pd.concat(found),
        pd.concat(intervened),
        pd.concat(counts),
        frozenset().union(*kept),
        list(chain.from_iterable(shown)),
    )


def _reduced_part(
    part: Mapping[str, Any],
    visits: pd.DataFrame,
    cells_to_show: frozenset[str],
    multi_pass_cells: frozenset[str],
    server_presets: frozenset[str],
) -> _ReducedRecords:
    iterations, intervened = (typed(table, part[table.name]) for table in COLUMNS if table not in PART_KEYS)
    cell_rows = [rows for rows in (iterations, intervened) if len(rows)] or [iterations]
    found = disturbances.table(pd.concat(cell_rows), visits)
    undisturbed_rows, kept_rows = (disturbances.without(rows, found) for rows in (iterations, intervened))
    median_by_cell = {one.ranks["cell"].iloc[0]: one for one in median_iterations(cells_to_show, undisturbed_rows)}

    def layers() -> Iterator[pd.DataFrame]:
        for piece in part[LAYERS.name]:
            rows = disturbances.without(piece, found)
            for cell, own in groups(rows[rows["cell"].isin(list(median_by_cell))], "cell"):
                median_by_cell[cell].add(own)
            yield rows

    cells = reduced_cells(undisturbed_rows, layers(), server_presets)
    no_layers = LAYERS.schema.empty_table().to_pandas()
    kept_rows = with_mean_communication(kept_rows, server_presets)
    steps = [step_rows(rows, no_layers).assign(intervention=name) for name, rows in groups(kept_rows, "intervention")]
    return _ReducedRecords(
        replace(cells, isolated={name: cell for name, cell in cells.isolated.items() if name not in multi_pass_cells}),
        found,
        pd.concat(steps) if steps else kept_rows.iloc[:0],
        disturbances.counts(iterations, found),
        disturbances.mostly_disturbed(iterations, found),
        list(median_by_cell.values()),
    )


# --- the median iteration of each run -------------------------------------------------------------

MEDIAN_RUN = ("network", "hardware", "sync")
MAX_RANKS = 16
"""Number of ranks to keep; of more ranks, the slowest are kept."""


@dataclass
class MedianIteration:
    """The median iteration of a cell, with its layers."""

    ranks: pd.DataFrame
    """A row for each rank, with the columns of the table median_iterations."""
    parts: list[pd.DataFrame] = field(default_factory=list)
    """Layers of these ranks that were read so far."""

    @property
    def layers(self) -> pd.DataFrame:
        """A row for each layer of each of the `ranks`; no rows if layers were not recorded."""
        return pd.concat(self.parts) if self.parts else typed(LAYERS, LAYERS.schema.empty_table().to_pandas())

    def add(self, layers: pd.DataFrame) -> None:
        """Keep the rows of `layers` that belong to this iteration."""
        cell, iteration = self.ranks.iloc[0][["cell", "iteration"]]
        is_own = (layers["iteration"] == iteration) & layers["rank"].isin(self.ranks["rank"])
        rows = layers[is_own]
        self.parts.append(typed(LAYERS, rows[rows["cell"] == cell]))


def cells_of_runs(runs: pd.DataFrame) -> frozenset[str]:
    """Return for each run all repeats of a cell at the largest worker count; iterations must not be composed."""
    cells_by_run: dict[tuple[object, ...], dict[tuple[object, ...], list[str]]] = {}
    parts = composed(runs)
    for path, cell in trained(runs[runs["status"] == "ok"]).items():
        if cell.ranks > 1 and cell.sync != NONE and path not in parts:
            run = tuple(getattr(cell, name) for name in MEDIAN_RUN)
            order = (-cell.ranks, *(getattr(cell, name) for name in SERIES))
            cells_by_run.setdefault(run, {}).setdefault(order, []).append(path)
    return frozenset(path for places in cells_by_run.values() for path in places[min(places)])


def median_iterations(cells: frozenset[str], iterations: pd.DataFrame) -> list[MedianIteration]:
    """Return the median iterations of `cells` in the table `iterations`, which holds complete cells."""
    counted = kept(iterations)
    return [_median_of(rows) for _, rows in groups(counted[counted["cell"].isin(list(cells))], "cell")]


def _median_of(iterations: pd.DataFrame) -> MedianIteration:
    wall_times = iterations.groupby("iteration")["iteration_time"].max().sort_values(kind="stable")
    number = int(wall_times.index[(len(wall_times) - 1) // 2])
    ranks = iterations[iterations["iteration"] == number]
    first = ranks["start"].min()
    slowest = ranks.nlargest(MAX_RANKS, "iteration_time").sort_values("rank")
    return MedianIteration(
        slowest.assign(start=slowest["start"] - first, wall=wall_times.loc[number], iterations=len(wall_times))
    )


def median_tables(found: Iterable[MedianIteration]) -> tuple[pd.DataFrame | Sequence[dict[str, object]], ...]:
    """Return the tables median_iterations and median_layers; each run is shown by its repeat of median wall time."""
    runs: dict[tuple[str, ...], list[MedianIteration]] = {}
    for one in found:
        runs.setdefault(tuple(one.ranks.iloc[0][list(MEDIAN_RUN)]), []).append(one)
    if not runs:
        return [], []
    median_repeats = [
        sorted(of, key=lambda one: one.ranks["wall"].iloc[0])[(len(of) - 1) // 2] for _, of in sorted(runs.items())
    ]
    return tuple(
        pd.concat(frames, ignore_index=True)
        for frames in ([one.ranks for one in median_repeats], [one.layers for one in median_repeats])
    )
