"""What-if scenarios: the model of a cluster with other links, compute units, gradients, mini-batch, preset or data.

A scenario changes inputs of the model, never the model. Changed inputs are scaled from measured ones, so a scenario is
as accurate as other predictions: compare scenarios with the scenario ``as measured``, which is predicted too.

*Variants*: copies of a study's presets, each with one change that a remedy makes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint.base.measured import MATRIX_LAYERS, Point
from stallpoint.errors import InputError
from stallpoint.models.iteration.cluster import Cluster, ComputingTimes
from stallpoint.models.iteration.curve_points import CurvePoints
from stallpoint.models.iteration.prediction import DagModel
from stallpoint.models.terms.communication import law_name, nominal, scheme_of
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.effects import Effects
from stallpoint.models.terms.training_cells import Layers
from stallpoint.strategies.presets import Preset, with_options
from stallpoint.study.job_kind import as_list
from stallpoint.study.workers import counts

NO_CHANGE = "as measured"


@dataclass(frozen=True)
class PublishedLink:
    """A link known from published figures."""

    latency: float
    """Latency of one step of a reduction, s."""
    bandwidth: float
    """B/s."""


@dataclass(frozen=True)
class Scenario:
    """Differences from the measured cluster; numbers are factors on measured values."""

    bandwidth: float = 1.0
    latency: float = 1.0
    compute_speed: float = 1.0
    """Factor on the speed of forward pass, backward pass and update, not of the copy to the device."""
    gradient_bytes: float = 1.0
    batch: float = 1.0
    straggling: float = 1.0
    """Factor on the wait for the slowest worker; 0: a lagging worker becomes as fast as the others."""
    launches: float = 1.0
    """Factor on the time of a layer at the smallest mini-batch, as far as layers without matrix products show it too:
    kernel launches, which compiling or CUDA graphs avoid."""
    prefetch: int | None = None
    """Mini-batches read ahead; None: unchanged."""
    readers: int | None = None
    """Reader threads of a worker; None: unchanged."""
    storage: str | None = None
    """Storage; None: unchanged."""
    staged: bool = False
    """Each node reads its own copy, as fast as a single worker reads the storage."""
    decoded: bool = False
    """Samples are stored as training takes them: nothing is left to decode."""
    workers_per_node: int | None = None
    """Workers of a full node; None: unchanged."""
    sync: str | None = None
    """Preset; None: unchanged."""
    message_latency: float = 0.0
    """Additional latency of each message, s, as of a slower transport."""
    link: PublishedLink | None = None
    """Replaces the measured links, before the factors on bandwidth and latency."""

    @property
    def label(self) -> str:
        """Return the scenario in words."""
        link = self.link and f"link {1e6 * self.link.latency:g} µs, {self.link.bandwidth / 1e9:.3g} GB/s"
        factors = {name: getattr(self, name) for name in CHANGED_BY_FACTOR}
        changed = [f"{name.replace('_', ' ')} × {factor:g}" for name, factor in factors.items() if factor != 1]
        prefetch = "" if self.prefetch is None else f"prefetch {self.prefetch}" if self.prefetch else "no prefetch"
        readers = self.readers and f"{self.readers} reader{'s' if self.readers > 1 else ''}"
        copies = "staged copies" if self.staged else ""
        decoding = "decoded samples" if self.decoded else ""
        workers = self.workers_per_node and f"{self.workers_per_node} workers per node"
        delay = self.message_latency and f"{1e3 * self.message_latency:g} ms more for each message"
        names = (link, *changed, delay, prefetch, readers, self.storage, copies, decoding, workers, self.sync)
        return ", ".join(name for name in names if name) or NO_CHANGE


CHANGED_BY_FACTOR = ("bandwidth", "latency", "compute_speed", "gradient_bytes", "batch", "straggling", "launches")
CHANGES = (*CHANGED_BY_FACTOR, "prefetch", "readers", "storage", "sync", "message_latency", "link")
"""Keys of a study's ``what_if``."""


def scenarios(blocks: Iterable[Mapping[str, Any]]) -> list[Scenario]:
    """Return the scenarios of a study's ``what_if``: first ``as measured``, then all combinations of each block."""
    found = dict.fromkeys([Scenario()])
    for block in blocks:
        values = {name: as_list(block[name]) for name in CHANGES if name in block}
        for combination in product(*values.values()):
            changes = dict(zip(values, combination, strict=True))
            if isinstance(changes.get("link"), Mapping):
                changes["link"] = PublishedLink(**changes["link"])
            found[Scenario(**changes)] = None
    return list(found)


def changed(cluster: Cluster, scenario: Scenario, hardware: str) -> Cluster:
    """Return `cluster` under `scenario`, for curves on `hardware`."""
    changed_links = cluster.communication
    if scenario.link:
        measured, changed_links = changed_links, {}
        for preset in cluster.presets.values():
            for operation in preset.operations:
                scheme = scheme_of(hardware, preset, operation)
                known = measured.get(scheme)
                link = nominal(law_name(scheme), latency=scenario.link.latency, bandwidth=scenario.link.bandwidth)
                changed_links[scheme] = replace(link, while_computing=known.while_computing if known else None)
    if (scenario.latency, scenario.bandwidth) != (1, 1):
        changed_links = {
            scheme: link.changed(latency=scenario.latency, bandwidth=scenario.bandwidth)
            for scheme, link in changed_links.items()
        }
    compute = _ChangedComputing(cluster.compute, scenario.compute_speed, scenario.gradient_bytes, scenario.launches)
    reads_unchanged = scenario.readers is None and not scenario.staged and not scenario.decoded
    data_changes = (scenario.readers, scenario.staged, scenario.decoded)
    changed_data = cluster.data if reads_unchanged else cluster.data.changed(*data_changes)

    def effects(point: Point, held_out: bool) -> Effects:
        known = cluster.effects(point, held_out)
        made = known.factors and known.factors.with_making_times(1 / scenario.compute_speed)
        return replace(
            known,
            straggling=known.straggling * scenario.straggling,
            factors=made,
            after=known.after.with_delay(scenario.message_latency),
            co_running=known.co_running.with_delay(scenario.message_latency),
            gathering=known.gathering.with_delay(scenario.message_latency),
        )

    return replace(cluster, compute=compute, communication=changed_links, data=changed_data, effects=effects)


@dataclass(frozen=True)
class _ChangedComputing:
    """Computing times with factors on compute speed, gradient bytes and kernel launch times."""

    original: ComputingTimes
    speed: float
    gradient_bytes: float
    launches: float
    layers: Mapping[str, Layers] = field(init=False)

    def __post_init__(self) -> None:
        layers = self.original.layers
        if self.gradient_bytes != 1:
            layers = {name: self._layers(old) for name, old in layers.items()}
        object.__setattr__(self, "layers", layers)

    def _layers(self, old: Layers) -> Layers:
        # A layer with parameters keeps at least one byte, as layers without gradient bytes count as frozen.
        sizes = np.maximum(np.rint(old.gradient_bytes * self.gradient_bytes), old.gradient_bytes > 0)
        return replace(old, gradient_bytes=sizes.astype(np.int64))

    def times(
        self, network: str, hardware: str, batch: int, *, prefetch: int, without: Collection[str] = ()
    ) -> Times | None:
        found = self.original.times(network, hardware, batch, prefetch=prefetch, without=without)
        if found is not None and self.launches != 1:
            twice = self.original.times(network, hardware, 2 * batch, prefetch=prefetch, without=without)
            found = twice and _scale_launches(found, twice, self.original.layers[network].types, self.launches)
        return found and found.scaled(1 / self.speed)


def _scale_launches(times: Times, twice: Times, types: npt.NDArray[np.str_], factor: float) -> Times:
    """Return `times` with kernel launches `factor` times as long; `twice` are the times with twice the mini-batch.

    A part of a layer's time does not depend on the mini-batch: twice its time minus its time with twice the mini-batch.
    In layers without matrix products, this part is kernel launches. In other layers it may include reading weights, so
    it is limited by its median over layers without matrix products.
    """
    matrix = np.isin(types, MATRIX_LAYERS)
    layer_seconds, pass_seconds = {}, {}
    for name in ("forward", "backward"):
        here, larger = (getattr(at, f"layers_{name}") for at in (times, twice))
        constants = np.clip(2 * here - larger, 0.0, here)
        others = ~matrix & (here[0] > 0)
        usual = np.median(constants[:, others], axis=-1, keepdims=True) if others.any() else np.zeros((len(here), 1))
        saved_seconds = (1 - factor) * np.where(matrix, np.minimum(constants, usual), constants)
        layer_seconds[f"layers_{name}"] = here - saved_seconds
        # In disturbed records a pass may be shorter than the sum of its layers; the pass must not fall below 0.
        pass_seconds[name] = np.maximum(getattr(times, name) - saved_seconds.sum(-1), 0.0)
    return replace(times, **layer_seconds, **pass_seconds)


def predict(
    cluster: Cluster, curve: CurvePoints, scenario: Scenario, nodes: Iterable[int], *, only_ranks: int | None = None
) -> CurvePoints | None:
    """Return the curve predicted under `scenario`; None if its mini-batch on the fewest workers is no integer.

    With `only_ranks`, only this count is predicted. The ``points`` of the result are the measured points of `curve`
    with the labels of the scenario, but unchanged times. Beyond measured counts the model's error is that of `curve`.
    """
    points = {n: (measured, changed_point(measured.point, scenario)) for n, measured in curve.points.items()}
    relabelled = [replace(measured, point=point) for measured, point in points.values() if point is not None]
    if curve.base not in {measured.point.ranks for measured in relabelled}:
        return None
    other_cluster = changed(cluster, scenario, curve.origin.hardware)
    per_node = scenario.workers_per_node or curve.per_node
    found = DagModel(other_cluster).curve(relabelled, counts(nodes, per_node), held_out=False, only_ranks=only_ranks)
    return replace(found, predicted={n: one.times(curve.correction(n)) for n, one in found.predicted.items()})


def changed_point(point: Point, scenario: Scenario) -> Point | None:
    """Return `point` changed by `scenario`; None if its mini-batch is no integer, or its node has too many workers."""
    per_node = scenario.workers_per_node or point.workers_per_node
    if point.placement[1] > per_node:
        return None
    samples = point.global_batch if point.scaling == "strong" else point.worker_batch
    batch = samples * scenario.batch
    workers = point.ranks if point.scaling == "strong" else 1
    if batch < workers or batch != int(batch) or int(batch) % workers:
        return None
    worker_batch = int(batch) // workers
    return replace(
        point,
        batch=int(batch),
        global_batch=worker_batch * point.ranks,
        worker_batch=worker_batch,
        workers_per_node=per_node,
        prefetch=point.prefetch if scenario.prefetch is None else scenario.prefetch,
        storage=scenario.storage or point.storage,
        sync=scenario.sync or point.sync,
    )


# --- variants of presets --------------------------------------------------------------------------

RAISE = 4
"""Factor on settings that remedies raise: mini-batch, accumulated mini-batches, readers, bucket size."""
FUSED_BYTES = 25 * 2**20
"""Bucket size for presets without fusion: the default of DistributedDataParallel."""


@dataclass(frozen=True)
class Variant:
    """A preset with one change."""

    like: str
    changes: Mapping[str, Any]
    preset: Preset


def variants(used_presets: Mapping[str, Preset], taken: Collection[str]) -> dict[str, Variant]:
    """Return the variants of the `used_presets`, by names that are not `taken`."""
    return {
        name: Variant(like, changes, varied)
        for like, preset in used_presets.items()
        for suffix, changes in _preset_changes(preset)
        if (name := f"{like}-{suffix}") not in taken and (varied := _changed_preset(preset, changes))
    }


def _preset_changes(preset: Preset) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each change of a preset the suffix of the variant's name, and the changed fields."""
    if not (preset.communicates and preset.synchronous):
        return
    for changes in preset.strategy.variants(RAISE, FUSED_BYTES):
        yield _name_suffix(*list(changes.items())[-1]), dict(changes)


def _name_suffix(option: str, value: Any) -> str:
    """Return the suffix of a variant's name for the changed `option`."""
    if option == "gradient_bits":
        return f"{value}-bit"
    if option == "fusion_bytes":
        return f"{value / 2**20:g}-mib"
    return f"{option.replace('_', '-')}-{value}"


def _changed_preset(preset: Preset, changes: Mapping[str, Any]) -> Preset | None:
    try:
        return with_options(preset, changes)
    except InputError:
        return None
