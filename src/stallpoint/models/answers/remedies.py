"""Remedies: changes of the training or of the cluster, ranked by gain, each with the cell that would confirm it.

A remedy is a scenario of `what_if` at the largest measured worker count. Its gain is the ratio of throughputs if the
change saves the predicted time; the interval includes the model's error at that count. All settings are raised by the
same factor, `RAISE`, so that remedies are comparable.

*What if*: results of every scenario of a study for every curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import yaml

from stallpoint.base.curve import Curve
from stallpoint.base.measured import Point, trained
from stallpoint.base.statistics import (
    REPLICATES,
    SAME_WITHIN,
    Ensemble,
    columns,
    columns_of,
    estimate,
    generator,
    unknown_ensemble,
)
from stallpoint.loops import rows_of_each
from stallpoint.models.answers.controls import trusted_curves
from stallpoint.models.answers.fits import Fits, MemoryModel, memory
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.answers.next_cells import Jobs, jobs, train_seconds
from stallpoint.models.iteration.cluster import Cluster
from stallpoint.models.iteration.curve_points import CurvePoints
from stallpoint.models.iteration.scenarios import CHANGED_BY_FACTOR, RAISE, Scenario, Variant, changed_point, predict
from stallpoint.models.terms.communication import scheme_of
from stallpoint.records.tables import REMEDIES, WHAT_IF
from stallpoint.strategies.families.pipeline_family import PipelineOptions
from stallpoint.strategies.presets import Preset
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.intervention_kind import EMPTY_MESSAGES, NO_COMMUNICATION, possible
from stallpoint.study.kinds.train_kind import TrainCell

FASTER_LINK = 10.0
"""Factor on bandwidth and on 1/latency of links: about two generations of networks."""
LOSSY, LARGER = "gradients lose precision", "a target may take more samples"
UNKNOWN_ADDING = "a copies cell would say what adding gradients takes"
UNKNOWN_ROUNDING = "the cell would say what rounding takes"
TRAINS_OTHERWISE = (LOSSY, LARGER)
"""Side effects that change the trained result; named with the remedy."""
CELL_LIMIT = "; the cell says what it can gain at most"
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_LINE_WIDTH = 2**31 - 1
"""Width of a line of YAML, the largest that libyaml takes."""
SCRIPT_PLACEHOLDERS = {
    "mini-batch": "", "workers per node": "", "node": "",
    "readers": "{prefetch}", "storage": "{storage_path}", "staging": "{storage_path}",
}  # fmt: skip
"""Remedies that a cell with a user's script can confirm, and the placeholder its command needs for that."""


class RemedyVerdict(StrEnum):
    """Verdict on a remedy, in the order of the ranking."""

    HELPS = "helps"
    UNDECIDED = "undecided"
    TOO_LARGE = "does not fit"
    NO_GAIN = "no gain"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Remedy:
    """A change of what is trained, or of the cluster."""

    kind: str
    """What the remedy changes; answers name the best remedy of each kind."""
    words: str
    scenario: Scenario
    note: str = ""
    """Side effect or requirement."""
    upper_bound: bool = False
    """Whether the prediction is an upper bound: the changed part is assumed to cost nothing afterwards."""
    unmeasured: str = ""
    """Unmeasured cost of the change itself: the gain is an upper bound, and may be a loss."""
    entries: Mapping[str, Any] | None = None
    """Presets or storages to add to the study, by section."""
    settings: Mapping[str, Any] | None = None
    """Settings of the confirming cell, in addition to its axes."""
    runs: bool = True
    """Whether a cell can confirm the remedy."""


def table(fitted: FittedStudy) -> list[dict[str, object]]:
    """Return the rows of the remedies table: every curve whose predictions and verdict are not withheld."""
    cells = trained(fitted.tidy["runs"])
    durations, use = fitted.once(jobs), fitted.once(memory)
    study = _SharedInputs(fitted.cluster, fitted.preset_variants, cells, durations, use, _storages(cells.values()))
    known = (one.curve for one in fitted.once(trusted_curves) if not one.withheld)
    curves = [curve for curve in known if not curve.withheld and curve.known.rates]
    return rows_of_each(partial(_rows, study), curves)


class _SharedInputs(NamedTuple):
    """Inputs that the remedies of all curves share."""

    cluster: Cluster
    variants: Mapping[str, Variant]
    cells: Mapping[str, TrainCell]
    jobs: Jobs
    memory: MemoryModel
    storages: Mapping[tuple[str, str], Mapping[str, TrainCell]]
    """Result of `_storages`."""


def _remedies_at(study: _SharedInputs, point: Point, cell: TrainCell) -> Iterator[Remedy]:
    """Yield every remedy at `point`, which is on the curve whose smallest worker count `cell` measured."""
    if point.ranks > 1:
        yield from _preset_remedies(study, point)
        yield from _cluster_remedies(study.cluster.preset(point), point.ranks)
    yield Remedy("mini-batch", f"{RAISE} × the mini-batch", Scenario(batch=RAISE), LARGER)
    yield Remedy(
        "launches", "fewer kernels to start (torch.compile, CUDA graphs)", Scenario(launches=0.0), upper_bound=True,
        runs=False,
    )  # fmt: skip
    yield from _data_remedies(point, cell, study.storages.get((point.network, point.hardware), {}))
    if fewer := _fewer_workers(point):
        words = f"{fewer} worker{'s' if fewer > 1 else ''} on each node instead of {point.placement[1]}"
        yield Remedy("workers per node", words, Scenario(workers_per_node=fewer), "as many nodes, fewer workers")


def _preset_remedies(study: _SharedInputs, point: Point) -> Iterator[Remedy]:
    """Yield other presets with measured collectives, and variants of the point's preset."""
    presets, links = study.cluster.presets, study.cluster.communication
    seen_presets = [presets[point.sync]]
    for name, preset in presets.items():
        is_measured = all(scheme_of(point.hardware, preset, operation) in links for operation in preset.operations)
        # Asynchronous presets change the result, so are no remedy. Only training shows how long making factors takes.
        is_known = preset.communicates and preset.synchronous and is_measured
        if preset.factored:
            is_known = is_known and study.cluster.effects(replace(point, sync=name), False).factors is not None
        is_divisible = preset.strategy.divides(point.placement, study.cluster.cuts.get(point.network))
        if name not in study.variants and is_known and is_divisible and preset not in seen_presets:
            seen_presets.append(preset)
            note = "" if preset.lossless else LOSSY
            yield Remedy("preset", f"preset {name}", Scenario(sync=name), note)
    for name, variant in study.variants.items():
        if variant.like == point.sync and _splits_evenly(variant, point.global_batch):
            yield _variant_remedy(name, variant, known=point.hardware in study.cluster.memory_rates)


def _splits_evenly(variant: Variant, batch: int) -> bool:
    own = variant.preset.own
    return not isinstance(own, PipelineOptions) or batch % own.micro_batches == 0


def _variant_remedy(name: str, variant: Variant, *, known: bool) -> Remedy:
    """Return the remedy of a variant; `known` is whether the rate of adding gradients was measured."""
    changes, scenario = variant.changes, Scenario(sync=name)
    entries = {"presets": {name: {"like": variant.like, **changes}}}
    if "accumulate" in changes:
        return Remedy(
            "accumulation", f"{variant.preset.accumulate} mini-batches between two updates",
            replace(scenario, batch=RAISE), LARGER, unmeasured="" if known else UNKNOWN_ADDING, entries=entries,
        )  # fmt: skip
    if "micro_batches" in changes:
        return Remedy("micro-batches", f"{changes['micro_batches']} micro-batches", scenario, entries=entries)
    if "gradient_bits" in changes:
        words = "gradients sent in 16 bits"
        return Remedy("gradients", words, scenario, LOSSY, unmeasured=UNKNOWN_ROUNDING, entries=entries)
    return Remedy("bucket size", f"messages of {changes['fusion_bytes'] / 2**20:g} MiB", scenario, entries=entries)


def _cluster_remedies(preset: Preset, ranks: int) -> Iterator[Remedy]:
    """Yield faster links and the removal of a lagging node; a cell without communication bounds the gain of links."""
    silent_interventions = [name for name in (EMPTY_MESSAGES, NO_COMMUNICATION) if possible(name, preset, ranks)]
    settings = {"interventions": silent_interventions[:1]} if silent_interventions else None
    for words, scenario in (
        (f"links with {FASTER_LINK:g} × the bandwidth", Scenario(bandwidth=FASTER_LINK)),
        (f"links with 1/{FASTER_LINK:g} of the latency", Scenario(latency=1 / FASTER_LINK)),
    ):
        note = f"other hardware{CELL_LIMIT}"
        yield Remedy("link", words, scenario, note, settings=settings, runs=settings is not None)
    note = "leave the slow node out in the profile, then measure the cell again (-R train)"
    yield Remedy("node", "no node that lags behind the others", Scenario(straggling=0.0), note)


def _confirmable(remedy: Remedy, cell: TrainCell) -> Remedy:
    """Return the remedy, without a confirming cell if a study cannot apply the remedy to a user's script."""
    if not isinstance(cell, CommandCell):
        return remedy
    runs = remedy.runs and remedy.kind in SCRIPT_PLACEHOLDERS and SCRIPT_PLACEHOLDERS[remedy.kind] in cell.run
    return replace(remedy, runs=runs, note=remedy.note if runs else remedy.note.removesuffix(CELL_LIMIT))


def _data_remedies(point: Point, cell: TrainCell, storages: Iterable[str]) -> Iterator[Remedy]:
    if point.prefetch and isinstance(cell, CommandCell):
        pass  # a script's number of readers is unknown, and cannot be raised
    elif point.prefetch:
        readers = cell.readers * RAISE
        yield Remedy(
            "readers", f"{readers} readers for each worker instead of {cell.readers}", Scenario(readers=readers),
            "as many more cores", upper_bound=point.nodes > 1, settings={"readers": readers},
        )  # fmt: skip
    else:
        yield Remedy("readers", "mini-batches read ahead", Scenario(prefetch=1), "a core to read with")
    yield Remedy(
        "format", "samples stored decoded", Scenario(decoded=True), "more bytes to store and to read",
        upper_bound=True, runs=False,
    )  # fmt: skip
    for name in storages:
        if name == point.storage:
            continue
        yield Remedy("storage", f"data from storage {name}", Scenario(storage=name))
    if point.nodes > 1 and not cell.stage_to and cell.storage_path:
        name = f"{cell.storage}-staged"
        entry = {"path": cell.storage_path, "format": cell.storage_format, "stage": True}
        yield Remedy(
            "staging", "a copy of the data on each node", Scenario(staged=True), "the time to copy, see break_even",
            entries={"storage": {name: entry}}, settings={"storage": name},
        )  # fmt: skip


def _fewer_workers(point: Point) -> int | None:
    """Return the next smaller number of workers per node that divides the point's mini-batch; None if there is none."""
    nodes, workers = point.placement
    if point.scaling == "weak":
        return workers - 1 or None
    return next((n for n in range(workers - 1, 0, -1) if point.global_batch % (nodes * n) == 0), None)


def _storages(cells: Iterable[TrainCell]) -> dict[tuple[str, str], dict[str, TrainCell]]:
    """Return each storage with a one-worker cell that trained from it, by network and hardware."""
    found: dict[tuple[str, str], dict[str, TrainCell]] = {}
    for cell in cells:
        if cell.ranks == 1:
            found.setdefault((cell.network, cell.hardware), {}).setdefault(cell.storage, cell)
    return found


def _rows(study: _SharedInputs, curve: CurvePoints) -> list[dict[str, object]]:
    max_ranks = max(curve.points)
    here, before = curve.points[max_ranks].point, curve.model.rates
    cell = study.cells.get(curve.points[curve.base].cells[0])
    if max_ranks not in before or cell is None:
        return []
    few = replace(curve, points={n: curve.points[n] for n in (curve.base, max_ranks)})
    found = [_confirmable(remedy, cell) for remedy in _remedies_at(study, here, cell)]
    rows = [_row(study, few, here, remedy, before[max_ranks], cell) for remedy in found]
    verdict_order = [str(verdict) for verdict in RemedyVerdict]
    rows.sort(key=lambda row: (verdict_order.index(str(row["verdict"])), -np.nan_to_num(float(str(row["gain"])))))
    return [row | {"rank_in_curve": rank} for rank, row in enumerate(rows, start=1)]


def _row(
    study: _SharedInputs, curve: CurvePoints, here: Point, remedy: Remedy, before: Ensemble, cell: TrainCell
) -> dict[str, object]:
    point, gain, seconds = _predicted_change(study.cluster, curve, here, remedy.scenario, before)
    fit = study.memory(point, here)
    hours = point.nodes * train_seconds(curve, study.jobs, seconds) / 3600
    return {
        **here.labels(),
        "remedy": remedy.words,
        "changes": remedy.kind,
        "also": "; ".join(filter(None, (remedy.note, remedy.unmeasured))),
        **columns("gain", gain),
        "upper_bound": remedy.upper_bound or bool(remedy.unmeasured),
        **columns("memory", fit.peak),
        "fits": fit.fits,
        "verdict": RemedyVerdict.TOO_LARGE if fit.fits == Fits.NO else _verdict(gain, remedy.unmeasured),
        "cell": cell_in_yaml(point, remedy, cell.workers_per_node) if remedy.runs else "",
        "node_hours": hours if remedy.runs else np.nan,
    }


def _predicted_change(
    cluster: Cluster, curve: CurvePoints, here: Point, scenario: Scenario, before: Ensemble
) -> tuple[Point, Ensemble, float]:
    """Return the changed point, the gain in throughput over `before`, and the iteration time, s; NaN where unknown."""
    ranks = here.nodes * (scenario.workers_per_node or here.placement[1])
    unknown = unknown_ensemble()
    found = predict(cluster, curve, scenario, [here.nodes], only_ranks=ranks)
    if found is None or ranks not in found.predicted:
        return changed_point(here, replace(scenario, workers_per_node=None)) or here, unknown, np.nan
    prediction = found.predicted[ranks]
    rate = found.model.rates.get(ranks, unknown)
    return prediction.point, over_measured(curve, here.ranks, rate / before), float(prediction.parts.iteration_time[0])


def over_measured(curve: CurvePoints, ranks: int, gain: Ensemble) -> Ensemble:
    """Return the gain over measured throughput at `ranks`, from the `gain` over modelled throughput and its error.

    If an iteration takes longer than predicted, the change is assumed not to shorten the unexplained part.
    """
    error = curve.errors.get(ranks)
    if error is None:
        return np.asarray(gain)
    modelled_share = np.exp(-np.maximum(error, 0.0))
    normals = generator(0, "remedies", *curve.origin.series, ranks).standard_normal(REPLICATES)
    return np.asarray(np.exp(curve.error(ranks) * np.append(0.0, normals)) / (1 - modelled_share * (1 - 1 / gain)))


def _verdict(gain: Ensemble, unmeasured_cost: str = "") -> RemedyVerdict:
    """Return the verdict on a gain; a change with an `unmeasured_cost` is never said to help."""
    _, low, high = estimate(gain)
    if np.isnan(low):
        return RemedyVerdict.UNKNOWN
    if high <= 1 + SAME_WITHIN:
        return RemedyVerdict.NO_GAIN
    return RemedyVerdict.HELPS if not unmeasured_cost and low > 1 + SAME_WITHIN else RemedyVerdict.UNDECIDED


def cell_in_yaml(point: Point, remedy: Remedy, workers: int) -> str:
    """Return YAML sections to add to the study: entries that the remedy needs, and its cell under ``include``.

    `workers` is the number of workers per node in the hardware entry.
    """
    cell_axes = {
        "network": point.network,
        "hardware": point.hardware,
        "nodes": point.nodes,
        **({"workers_per_node": point.placement[1]} if max(workers, point.placement[1]) > 1 else {}),
        "batch": point.batch,
        "storage": point.storage,
        "scaling": point.scaling,
        "sync": point.sync,
        "prefetch": point.prefetch,
    }
    lines = []
    for section, entries in (remedy.entries or {}).items():
        lines += [f"{section}:", *(f"  {name}: {_yaml_line(entry)}" for name, entry in entries.items())]
    return "\n".join([*lines, "include:", f"  - {_yaml_line(cell_axes | dict(remedy.settings or {}))}"])


def _yaml_line(values: Mapping[str, object]) -> str:
    """Return the values in YAML's flow style, in one line."""
    return yaml.dump(dict(values), Dumper=_DUMPER, default_flow_style=True, sort_keys=False, width=_LINE_WIDTH).strip()


_TRAINING_CHANGES = ("batch", "prefetch", "storage", "workers_per_node", "sync")
"""Changes of the training, not of the cluster."""
QUANTITIES = ("iteration", "speedup", "gain", "stall_ranks")


def what_if(fitted: FittedStudy) -> list[dict[str, object]]:
    """Return the rows of the what_if table: every scenario for every curve at every worker count.

    Curves whose predictions are withheld have no rows. A single scenario gives no rows either.
    """
    scenarios = fitted.asked.scenarios
    if len(scenarios) < 2:
        return []
    shown_curves = [curve for curve in fitted.training_curves if not curve.withheld]
    return [row for curve in shown_curves for scenario in scenarios for row in _scenario_rows(fitted, curve, scenario)]


def _scenario_rows(fitted: FittedStudy, curve: CurvePoints, scenario: Scenario) -> Iterator[dict[str, object]]:
    measured, before = curve.origin, curve.model.rates
    unchanged_settings = {name: getattr(Scenario(), name) for name in _TRAINING_CHANGES}
    changes_training_only = replace(scenario, **unchanged_settings) == Scenario()
    if scenario != Scenario() and changes_training_only and changed_point(measured, scenario) == measured:
        return  # the scenario changes nothing on this curve
    prediction = predict(fitted.cluster, curve, scenario, fitted.asked.nodes)
    if prediction is None:
        yield _scenario_row(measured, measured, scenario) | {
            "note": "its mini-batch is no whole number for every worker"
        }
        return
    after = prediction.model.rates
    # A preset whose collectives were not measured is predicted on one worker only.
    if curve.base not in before or curve.base not in after or len(after) < 2:
        point = prediction.points[curve.base].point
        yield _scenario_row(measured, point, scenario) | {"note": "a part of the model was not measured for it"}
        return
    stall = Curve(after, threshold=fitted.asked.threshold).stall
    for n, rate in sorted(after.items()):
        quantities = {
            **columns("iteration", prediction.predicted[n].parts.iteration_time),
            **columns("speedup", rate / before[curve.base]),
            **(columns("gain", rate / before[n]) if n in before else {}),
            **stall.columns,
        }
        yield _scenario_row(measured, prediction.predicted[n].point, scenario) | quantities | {"reached": stall.reached}


def _scenario_row(measured: Point, point: Point, scenario: Scenario) -> dict[str, object]:
    """Return a row with unknown results for `point`, which is the point `measured` as changed by `scenario`."""
    return {
        **measured.labels(),
        "nodes": point.nodes,
        "ranks": point.ranks,
        "scenario": scenario.label,
        **{name: getattr(scenario, name) for name in CHANGED_BY_FACTOR if name != "batch"},
        "batch_factor": scenario.batch,
        **columns_of(dict.fromkeys(QUANTITIES, unknown_ensemble())),
        "reached": False,
        "note": "",
    }


QUESTIONS = (
    Question(REMEDIES, table),
    Question(WHAT_IF, what_if),
)
