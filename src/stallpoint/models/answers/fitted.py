"""What questions ask: the records of a study, and what is fitted to them when it is first asked for.

A `Question` is a table of answers and the function that makes its rows. It stands in the file of its question, beside
what it computes; `models.fitting` walks over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from stallpoint.models.answers import median_iterations, trust
from stallpoint.models.answers.median_iterations import MedianIteration
from stallpoint.models.answers.variants import Variant, variants
from stallpoint.models.base.frames import Rows, of_types
from stallpoint.models.base.measured import Measured, composed, measured, over_ranks, point_key, presets, trained
from stallpoint.models.base.statistics import Ensemble, groups
from stallpoint.models.convergence import noise_scale, steps
from stallpoint.models.convergence.steps import Steps
from stallpoint.models.iteration.cluster import SCALINGS, Cluster
from stallpoint.models.iteration.curve import ScalingCurve
from stallpoint.models.iteration.prediction import DagModel, learning
from stallpoint.models.iteration.scenarios import Scenario
from stallpoint.models.terms import communication, data, matrix_products, pace, peaks
from stallpoint.models.terms.compute import Compute
from stallpoint.models.terms.trainings import COLUMNS, Trainings, joined, trainings
from stallpoint.records import disturbances
from stallpoint.records.tables import TABLES, Table
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.presets import PRESETS, Preset, preset_from

IMAGENET = 1_281_167
"""Training images of ILSVRC-2012."""
T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """A table of answers."""

    table: Table
    rows: Callable[[FittedStudy], Rows]


@dataclass(frozen=True)
class Asked:
    """What a study asks of its records."""

    nodes: Sequence[int]
    """Node counts to predict beside the measured ones."""
    threshold: float = 0.10
    """A curve stalls where doubling the workers gains less than that in throughput."""
    efficiency: float = 0.5
    """Workers are worthwhile while a sample costs at most 1/`efficiency` as much as on the fewest."""
    shared_links: Collection[str | tuple[str, str]] = ()
    """Storages that are reached over the link that carries the gradients."""
    scenarios: Sequence[Scenario] = ()
    """What-ifs."""
    known_presets: Mapping[str, Preset] = field(
        default_factory=lambda: {name: known.preset for name, known in PRESETS.items()}
    )
    """Presets that what-ifs may name."""
    available: Mapping[str, int] = field(default_factory=dict)
    """Nodes that a hardware entry has."""
    calibration_nodes: Collection[int] = ()
    """What trained on more nodes (on more workers than the fewest two counts, unless given) is predicted from the rest
    alone for validation."""
    multiply_adds: Mapping[str, float] = field(default_factory=dict)
    """Of a sample's forward pass, by network."""
    cuts: Mapping[str, Cuts] = field(default_factory=dict)
    """Where each network can be cut into the stages of a pipeline, or split by outputs."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """What a sample of a network is made of, where it is made of any."""
    rated: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By hardware, as `utilisation` names the quantities."""
    epoch_samples: int = IMAGENET
    seed: int = 0


def _noise_scales(fitted: FittedStudy) -> Callable[[Steps], Ensemble]:
    return cache(partial(noise_scale.of_training, gradient_noise=fitted.norms, seed=fitted.asked.seed))


class FittedStudy:
    """Records of a study, and what several questions are made of; each part is found when it is first asked for."""

    def __init__(
        self, tidy: Mapping[str, pd.DataFrame], parts: Iterable[Mapping[str, pd.DataFrame]] | None, asked: Asked
    ) -> None:
        """`tidy` and `parts` as `fitting.fit` takes them."""
        self.asked = asked
        self.tidy = _typed(tidy)
        self.tidy["sgemm"] = matrix_products.in_precision(self.tidy["sgemm"], self.tidy["runs"])
        self._parts = [self.tidy] if parts is None else map(_typed, parts)
        self._answered: dict[Callable[[FittedStudy], Any], Any] = {}

    def once(self, answer: Callable[[FittedStudy], T]) -> T:
        """`answer` of this study, computed once: what several questions share."""
        if answer not in self._answered:
            self._answered[answer] = answer(self)
        found: T = self._answered[answer]
        return found

    # --- of each kind of record ---

    @cached_property
    def reduced(self) -> _Reduced:
        """What trained, reduced over ranks."""
        return _reduced(self._parts, self.tidy["visits"], self.tidy["runs"])

    @cached_property
    def points(self) -> list[Measured]:
        """Every point that trained, composed of layers' times where nobody measured its iterations."""
        return measured(self.reduced.trainings.steps, self.asked.seed, composed=composed(self.tidy["runs"]))

    @cached_property
    def seen(self) -> list[Measured]:
        """Points whose iterations somebody measured, and did not compose of layers."""
        return [one for one in self.points if not one.composed]

    @cached_property
    def doubtful(self) -> set[tuple[object, ...]]:
        """Points whose statistics are those of disturbed iterations."""
        cells, kept = trained(self.tidy["runs"]) if self.reduced.kept else {}, self.reduced.kept
        return {point_key(cells[path]) for path in kept if path in cells}

    @cached_property
    def shown(self) -> tuple[Rows, ...]:
        """Rows of the tables median_iterations and median_layers."""
        return median_iterations.tables(self.reduced.shown)

    @cached_property
    def links(self) -> dict[communication.Scheme, communication.Communication]:
        """The fits of collectives."""
        return communication.fit(self.tidy["collectives"], self.asked.seed, self.tidy["contention"])

    @cached_property
    def libraries(self) -> dict[str, matrix_products.Library]:
        """What matrix products take on each hardware."""
        return matrix_products.libraries(self.tidy["sgemm"], self.asked.seed)

    @cached_property
    def products(self) -> dict[tuple[str, str], list[matrix_products.Shape]]:
        """Matrix products by network and hardware."""
        return matrix_products.products(self.tidy["sgemm"], self.asked.seed)

    @cached_property
    def norms(self) -> pd.DataFrame:
        """Gradient norms of training that did not diverge."""
        return noise_scale.without_diverged(self.tidy["gradient_noise"], self.tidy["convergence_runs"])

    @cached_property
    def memory(self) -> list[peaks.Peaks]:
        """Peaks of memory."""
        return peaks.fit(self.tidy["peak_memory"], self.tidy["runs"], self.asked.seed)

    # --- presets ---

    @cached_property
    def used(self) -> dict[str, Preset]:
        """Presets that the study trained with."""
        return presets(self.tidy["runs"])

    @cached_property
    def varied(self) -> dict[str, Variant]:
        """Variants of these that remedies try."""
        return variants(self.used, taken={*self.asked.known_presets, *self.used})

    @cached_property
    def presets(self) -> dict[str, Preset]:
        """All of them by name."""
        return {
            **self.asked.known_presets,
            **self.used,
            **{name: variant.preset for name, variant in self.varied.items()},
        }

    # --- the cluster, and curves there ---

    @cached_property
    def compute(self) -> Compute:
        """Times of layers on one worker."""
        return self._compute(self.reduced.trainings)

    def _compute(self, seen: Trainings) -> Compute:
        return Compute(
            seen, self.asked.seed, {hardware: library.kernel for hardware, library in self.libraries.items()}
        )

    @cached_property
    def reading(self) -> data.TrainingData:
        """Times to read mini-batches."""
        return self._reading(self.reduced.trainings)

    def _reading(self, seen: Trainings) -> data.TrainingData:
        return data.TrainingData(
            self.tidy["runs"], seen.steps, self.tidy["storage_reads"], self.asked.seed, self.asked.shared_links
        )

    @cached_property
    def cluster(self) -> Cluster:
        """What is known of the cluster."""
        return self._cluster(self.reduced.trainings, self.points, self.compute, self.reading)

    def cluster_of(self, seen: Trainings, points: Sequence[Measured]) -> Cluster:
        """What is known of the cluster once `seen` was measured, `points` among them."""
        return self._cluster(seen, points, self._compute(seen), self._reading(seen))

    def _cluster(
        self, seen: Trainings, points: Sequence[Measured], compute: Compute, reading: data.TrainingData
    ) -> Cluster:
        known = Cluster(compute, self.links, reading, self.presets, cuts=self.asked.cuts)
        return learning(known, points, seen, pace.fit(self.tidy["contention"], self.asked.seed), self.asked.seed)

    @cached_property
    def curves(self) -> list[ScalingCurve]:
        """Every scaling curve, measured and predicted."""
        return trust.shown(DagModel(self.cluster).curves(self.points, self.asked.nodes), self.compute)

    @cached_property
    def training(self) -> list[ScalingCurve]:
        """Without communication ranks train nothing together: such a curve explains others and answers nothing."""
        return [curve for curve in self.curves if self.cluster.communicates(curve.origin)]

    @cached_property
    def communicating(self) -> list[Measured]:
        """Measured points that do not train with communication left out."""
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

    # --- training to a target ---

    @cached_property
    def to_target(self) -> list[steps.Steps]:
        """Steps that each training to a target takes."""
        return steps.steps_of(self.tidy["convergence_runs"], self.presets, self.asked.seed)

    def noise(self, steps: Steps) -> Ensemble:
        """The noise scale of a training."""
        return self.once(_noise_scales)(steps)


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
