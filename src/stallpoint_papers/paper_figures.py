"""Figures of Keuper & Pfreundt (2016), predicted for their cluster from their published parameters only.

Model and scenarios are those of a measured cluster; only the model's inputs come from the paper
(``resources/published``), which is read as follows:

- Fig. 3: compute time in proportion to b ("expecting linear speedups at the compute side"), communication after the
  backward pass, up a binary tree and down again.
- Figs. 4 and 11: communication is free, and compute units get no faster below b = `least_batch`.
- Fig. 12: Amdahl's law: communication is free and the non-scaling layers take the same time at any b.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stallpoint.base.measured import Measured, Parts, Point
from stallpoint.base.statistics import REPLICATES, Ensemble
from stallpoint.errors import InputError
from stallpoint.models.answers.stalling import communication_ratio, crossing
from stallpoint.models.iteration.cluster import Cluster, LocalData
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted
from stallpoint.models.iteration.prediction import DagModel
from stallpoint.models.iteration.scenarios import PublishedLink, Scenario, predict
from stallpoint.models.terms.communication import Communication, Scheme, nominal, scheme_of
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.training_cells import Layers
from stallpoint.strategies.presets import PRESETS

FREE = Scenario(link=PublishedLink(latency=0.0, bandwidth=np.inf))
"""Free communication."""


def figures(paper: Mapping[str, Any], threshold: float = 0.10) -> list[dict[str, object]]:
    """Return rows of table paper_figures from a file of ``resources/published``; `InputError` names a missing entry."""
    try:
        return [row for figure, entry in paper["figures"].items() for row in _figure(paper, figure, entry, threshold)]
    except KeyError as missing:
        raise InputError(f"published parameters: no entry {missing}") from None


def _figure(
    paper: Mapping[str, Any], figure: int, entry: Mapping[str, Any], threshold: float
) -> Iterator[dict[str, object]]:
    for network, units in paper["iteration_seconds"].items():
        for hardware in units:
            for batch in entry["batches"][network]:
                cluster, curve, usual = _cluster(paper, network, hardware, figure, batch)
                scenario = replace(Scenario() if figure == 3 else FREE, batch=batch / usual)
                found = predict(cluster, curve, scenario, paper["nodes"]["value"])
                if found is None:
                    raise InputError(f"published parameters: figures.{figure}.batches: {batch} is no whole mini-batch")
                labels = {"paper": paper["paper"], "figure": figure, "network": network, "hardware": hardware}
                yield from (labels | row for row in _rows(found, threshold))


def _cluster(
    paper: Mapping[str, Any], network: str, hardware: str, figure: int, batch: int
) -> tuple[Cluster, CurvePoints, int]:
    """Return the published cluster, the curve from one of its nodes, and its mini-batch.

    The mini-batch is the network's default, except for Fig. 12: a serial fraction belongs to the mini-batch `batch`
    itself.
    """
    sizes, link = paper["networks"][network], paper["link"]
    usual = batch if figure == 12 else int(sizes["batch"]["value"])
    compute = PublishedCompute(
        network=network,
        gradient_bytes=int(sizes["gradient_bytes"]["value"]),
        batch=usual,
        seconds=paper["iteration_seconds"][network][hardware]["value"],
        least_batch=paper["least_batch"]["value"] if figure in (4, 11) else 1,
        serial=sizes["serial_fraction"]["value"] if figure == 12 else 0.0,
    )
    sync = paper["preset"]["value"]
    preset = PRESETS[sync].preset
    scheme = scheme_of(hardware, preset)
    links: dict[Scheme, Communication] = {
        scheme: nominal(preset.scheme, latency=link["latency"]["value"], bandwidth=link["bandwidth"]["value"])
    }
    cluster = Cluster(compute, links, LocalData(), {sync: preset})
    point = Point(network, hardware, "", "strong", sync, 0, usual, 1, 1, 1, usual, usual)
    one = Measured(point, (), Parts(iteration_time=np.full(1 + REPLICATES, compute.seconds)))
    curve = DagModel(cluster).curve([one], paper["nodes"]["value"])
    return cluster, curve, usual


@dataclass(frozen=True)
class PublishedCompute:
    """Compute times of a network, from the published time of one iteration."""

    network: str
    gradient_bytes: int
    batch: int
    """Mini-batch of the published iteration, samples."""
    seconds: float
    """Time of the published iteration, s."""
    least_batch: int
    """b below which the time is constant."""
    serial: float
    """Fraction of the iteration that does not depend on b."""

    @property
    def layers(self) -> Mapping[str, Layers]:
        """Two layers: one with gradients whose time scales with b, one without gradients whose time is constant."""
        types = np.array(["convolution", "other"])
        return {
            self.network: Layers(("scaling layers", "non-scaling layers"), types, np.array([self.gradient_bytes, 0]))
        }

    def times(
        self, network: str, hardware: str, batch: int, *, prefetch: int, without: Collection[str] = ()
    ) -> Times | None:
        """Split the time evenly into forward and backward (section II: "practically cutting the overlay times by
        half")."""
        scaling = (1 - self.serial) * max(batch, self.least_batch) / self.batch
        half: Ensemble = np.tile(np.array([scaling, self.serial]) * self.seconds / 2, (1 + REPLICATES, 1))
        nothing = np.zeros(1 + REPLICATES)
        return Times(half, half, half.sum(-1), half.sum(-1), nothing, nothing, "published")


def _rows(curve: CurvePoints, threshold: float) -> Iterator[dict[str, object]]:
    known = curve.model.counts
    stall = replace(curve.model, threshold=threshold).stall
    ratio = np.stack([communication_ratio(curve.predicted[nodes]) for nodes in known], axis=-1)
    crossed = float(crossing(known, ratio)[0])
    for nodes in known:
        point: Predicted = curve.predicted[nodes]
        yield {
            "global_batch": point.point.global_batch,
            "nodes": nodes,
            "worker_batch": point.point.worker_batch,
            "compute": float(point.parts.compute[0]),
            "communication": float(point.parts.communication[0]),
            "iteration_time": float(point.parts.iteration_time[0]),
            "speedup": float(curve.model.speedup(nodes)[0]),
            "crossing_ranks": crossed,
            "stall_ranks": float(stall.ranks) if stall.reached else np.inf,
        }
