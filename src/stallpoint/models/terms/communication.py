"""Time of a collective by message size: fitted at each placement, and by one law to all placements.

A placement is a number of nodes and of workers on each. The time of m bytes is α + β·m, in several segments if the
measured sizes need them (`piecewise_line`). Across placements α and β grow by the law of the reduction scheme
(`reductions`). The law of a library is estimated, and departures from it at measured placements apply to other
placements too (`all_reduce_law`). Links have two levels: inside a node, fitted to all-reduces among the workers of one
node, and between nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.base.frames import refuse_wrong_rows
from stallpoint.base.measured import kept
from stallpoint.base.statistics import (
    REPLICATES,
    VISIT_PRIOR,
    Ensemble,
    Reals,
    bootstrap,
    columns,
    generator,
    groups,
    scatter,
    visits_of,
)
from stallpoint.models.terms import all_reduce_law, piecewise_line
from stallpoint.models.terms.all_reduce_law import Departures, TimedCalls
from stallpoint.models.terms.data import Traffic
from stallpoint.models.terms.piecewise_line import PiecewiseLine, Samples
from stallpoint.models.terms.reductions import HIERARCHICAL, Laws, law_of
from stallpoint.strategies.options import ALL_REDUCE
from stallpoint.strategies.presets import Preset
from stallpoint.study.workers import Placement

Scheme = tuple[str, str, str, str]
"""Hardware, backend, reduction scheme and collective operation of one set of fits."""


def scheme_of(hardware: str, preset: Preset, operation: str = ALL_REDUCE) -> Scheme:
    """Return the scheme of a preset's messages."""
    return hardware, preset.communicator, preset.scheme, operation


def law_name(scheme: Scheme) -> str:
    """Return the name of a scheme's law in `reductions`: for all-reduces the reduction scheme, else the operation."""
    return scheme[2] if scheme[3] == ALL_REDUCE else scheme[3]


_SCHEME = ["hardware", "backend", "reduction", "operation"]
_MESSAGE_KEY = [*_SCHEME, "nodes", "ranks", "message_bytes"]
_CALL_KEY = [*_MESSAGE_KEY, "cell", "repeat", "visit", "sample"]


MIN_CO_RUN_SHARE = 1e-3
"""Smallest share of a message's time above noise, by which the message and computing slow each other down."""
MIN_SHARE_BETWEEN_NODES = 0.2
"""Part of a message's time spent between nodes above which it shows their links."""
MAX_RESIDUAL = np.log(2.0)
"""Largest \\|log\\| of a line's residual that is used."""


@dataclass(frozen=True)
class Fit:
    """Seconds of an all-reduce: α and β·m, each multiplied by its law."""

    laws: Laws
    """One of `REDUCTION_LAWS` for all sizes, or the candidates of a library."""
    nodes: int
    """Nodes of the fitted placement; if there are several, of the placement with the most workers."""
    ranks: int
    line: PiecewiseLine
    points: int
    """Number of message sizes fitted (over all placements)."""
    residual: float
    """Median of \\|fit - measured\\| / measured."""
    inside: InsideNode | None = None
    """Part inside a node, before messages between nodes; None unless each node counts as one rank."""
    size_residuals: Departures | None = None
    """Residuals of measured bandwidth terms from the line, which has fewer segments than sizes; None for a law over
    placements."""
    departures: Departures | None = None
    """Residuals of the law at measured placements, and beyond them; None for one placement, and where unknown."""
    rival_fit: Fit | None = None
    """The alternative, flat or by node, if no placement separates them: every second replicate follows it."""

    @property
    def alpha(self) -> Ensemble:
        """Return the latency, s."""
        return self.line.alpha

    @property
    def beta(self) -> Ensemble:
        """Return β of the largest messages: the seconds for each further byte."""
        return self.line.betas[:, -1]

    @property
    def workers_per_node(self) -> int:
        """Return the ranks on each node."""
        return max(1, self.ranks // self.nodes)

    @property
    def level(self) -> str:
        """Return which links the times are of: ``inside`` a node, ``between`` nodes, or ``both`` as one."""
        if self.nodes == 1 and self.ranks > 1:
            return "inside"
        return "between" if self.inside is not None or self.workers_per_node == 1 else "both"

    def at(self, per_node: int) -> Fit:
        """Return the same law with `per_node` workers on each node."""
        return self if self.inside is None else replace(self, ranks=self.nodes * per_node)

    def changed(self, *, latency: float, bandwidth: float) -> Fit:
        """Return the fit with its latency multiplied by `latency`, and its bandwidth by `bandwidth`."""
        betas = self.line.betas / bandwidth
        latency_terms = {name: getattr(self.line, name) * latency for name in ("alpha", "floor", "constant")}
        line = replace(self.line, betas=betas, **latency_terms)
        inside = self.inside and self.inside.changed(latency=latency, bandwidth=bandwidth)
        changed_rival = self.rival_fit and self.rival_fit.changed(latency=latency, bandwidth=bandwidth)
        return replace(self, line=line, inside=inside, rival_fit=changed_rival)


@dataclass(frozen=True)
class InsideNode:
    """All-reduces among the workers of one node."""

    fits_by_workers: Mapping[int, Fit]
    fit_over_workers: Fit

    def at(self, workers: int) -> Fit:
        """Return the fit for this number of `workers`; if it was not measured, the fit over all numbers of workers."""
        return self.fits_by_workers.get(workers, self.fit_over_workers)

    def changed(self, *, latency: float, bandwidth: float) -> InsideNode:
        """Return the fits with changed latency and bandwidth, as `Fit.changed`."""
        factors = {"latency": latency, "bandwidth": bandwidth}
        fits_by_workers = {workers: fit.changed(**factors) for workers, fit in self.fits_by_workers.items()}
        return InsideNode(fits_by_workers, self.fit_over_workers.changed(**factors))


@dataclass(frozen=True)
class Communication:
    """All fits of one scheme."""

    fits_by_placement: Mapping[Placement, Fit]
    inside: InsideNode | None
    """Within one node; None where not measured."""
    over_nodes: Fit | None
    """Fit over the placements on several nodes; None without any, as links inside a node show nothing of others."""
    while_computing: MutualSlowdown | None = None
    """Slowdown of all-reduces and computing by each other; None where not measured."""

    def at(self, nodes: int, per_node: int = 1) -> Fit | None:
        """Return the fit for `nodes` with `per_node` workers each: to this placement if measured, else to all by a law.

        None if the links that this placement uses, inside a node or between nodes, were not measured.
        """
        if (nodes, per_node) in self.fits_by_placement:
            return self.fits_by_placement[nodes, per_node]
        if nodes == 1 and self.inside is not None:
            return self.inside.at(per_node)
        return self.over_nodes and self.over_nodes.at(per_node)

    def changed(self, *, latency: float, bandwidth: float) -> Communication:
        """Return the links with latency multiplied by `latency`, and bandwidth by `bandwidth`."""
        factors = {"latency": latency, "bandwidth": bandwidth}
        fits_by_placement = {placement: fit.changed(**factors) for placement, fit in self.fits_by_placement.items()}
        inside = self.inside and self.inside.changed(**factors)
        over_nodes = self.over_nodes and self.over_nodes.changed(**factors)
        return replace(self, fits_by_placement=fits_by_placement, inside=inside, over_nodes=over_nodes)


@dataclass(frozen=True)
class MutualSlowdown:
    """Mutual slowdown of all-reduces and computing while every rank computes; not a property of the link."""

    longer: Communication
    """Time that each all-reduce takes beyond its time on idle ranks, s."""
    work: Communication
    """Time that computing takes longer per all-reduce, s."""


def nominal(scheme: str, *, latency: float, bandwidth: float) -> Communication:
    """Return links from published figures: `latency` [s] of a step and `bandwidth` [B/s].

    Libraries are assumed to reduce around a ring.
    """
    alpha, beta = (np.full(1 + REPLICATES, value) for value in (latency, 1 / bandwidth))
    line = PiecewiseLine(np.zeros(1), alpha, beta[:, None])
    laws = Laws.only(scheme if law_of(scheme) else "ring")
    return Communication({}, None, Fit(laws, 1, 1, line, points=0, residual=0.0))


def all_reduce_seconds(fit: Fit, ranks: int, sizes: npt.ArrayLike) -> Ensemble:
    """Return the seconds of messages of `sizes` bytes [...] among `ranks`, as `fit` predicts, [1 + REPLICATES, ...].

    They are 0 for a single rank or an empty buffer, and NaN if `fit` is to one message size, which does not separate
    latency from bandwidth. If `fit` counts each node as one rank, nodes have as many workers as in `fit`.
    """
    latency, bandwidth = all_reduce_parts(fit, ranks, sizes)
    return latency + bandwidth


def all_reduce_parts(fit: Fit, ranks: int, sizes: npt.ArrayLike) -> tuple[Ensemble, Ensemble]:
    """Return the latency part and the bandwidth part of `all_reduce_seconds`; fewer bytes shorten only the latter."""
    sizes = np.asarray(sizes, dtype=np.float64)
    latency = bandwidth = np.zeros((len(fit.alpha), *sizes.shape))
    if ranks <= 1:
        return latency, bandwidth
    if fit.inside is not None:
        workers = min(ranks, fit.workers_per_node)
        latency, bandwidth = all_reduce_parts(fit.inside.at(workers), workers, sizes)
    participants = -(-ranks // fit.workers_per_node) if fit.inside is not None else ranks
    if participants > 1:
        more_latency, more_bandwidth = fit.line.parts(sizes, *fit.laws.factors(participants, sizes))
        if fit.size_residuals is not None:
            more_bandwidth = more_bandwidth * fit.size_residuals(participants, sizes)
        if fit.departures is not None:
            factor = fit.departures(participants, sizes)
            more_latency, more_bandwidth = more_latency * factor, more_bandwidth * factor
        latency, bandwidth = latency + more_latency, bandwidth + more_bandwidth
    if fit.rival_fit is not None:
        follows_fit = np.reshape(np.arange(len(latency)) % 2 == 0, (-1, *([1] * sizes.ndim)))
        others = all_reduce_parts(fit.rival_fit, ranks, sizes)
        latency, bandwidth = (np.where(follows_fit, *both) for both in zip((latency, bandwidth), others, strict=True))
    return np.where(sizes > 0, latency, 0.0), np.where(sizes > 0, bandwidth, 0.0)


def traffic(fit: Fit, ranks: int, sizes: npt.ArrayLike) -> Traffic:
    """Return the traffic of messages of `sizes` bytes on one node's link. The `fit` must be over several node
    counts, so that its β is that of a link."""
    sizes = np.atleast_1d(np.asarray(sizes, dtype=np.float64))
    participants = -(-ranks // fit.workers_per_node) if fit.inside is not None else ranks
    _, factor = fit.laws.factors(max(2, participants), sizes)
    with np.errstate(divide="ignore"):
        bandwidth = 1 / fit.beta
    return Traffic(bandwidth, factor @ sizes)


def fit(collectives: pd.DataFrame, seed: int, contention: pd.DataFrame | None = None) -> dict[Scheme, Communication]:
    """Return the fits of each scheme, from the tables ``collectives`` and ``contention``.

    A single rank communicates nothing and is excluded. Raises `InputError` for a time that is not above 0.
    """
    calls = message_seconds(collectives, "collectives")
    idle_fits = _scheme_fits(calls, seed)
    busy = {} if contention is None or contention.empty else _mutual_slowdowns(contention, calls, idle_fits, seed)
    return {scheme: replace(links, while_computing=busy.get(scheme)) for scheme, links in idle_fits.items()}


def message_seconds(frame: pd.DataFrame, name: str) -> pd.Series[float]:
    """Return the seconds of each message in `frame`, the table `name`, on the message's slowest rank.

    The index holds scheme, node count, size, cell and sample. Rows of a single rank are excluded. Raises `InputError`
    for a time that is not above 0.
    """
    return _slowest(_rows_of_several_ranks(frame, name, "seconds", "calls"))


def _slowest(frame: pd.DataFrame) -> pd.Series[float]:
    return (frame["seconds"] / frame["calls"]).groupby([frame[column] for column in _CALL_KEY]).max()


def _mutual_slowdowns(
    contention: pd.DataFrame, isolated: pd.Series[float], idle_fits: Mapping[Scheme, Communication], seed: int
) -> dict[Scheme, MutualSlowdown]:
    """Return the mutual slowdowns, fitted to `contention` by the same laws as times on idle ranks (`idle_fits`).

    Message sizes without a time on idle ranks, in `isolated`, are left out.
    """
    frame = _rows_of_several_ranks(
        contention, "contention", "seconds", "calls", "computing", "isolated_computing", "isolated_operations"
    )
    unit_seconds = frame["isolated_computing"] / frame["isolated_operations"]
    work = (frame["computing"] - frame["operations"] * unit_seconds) / frame["calls"]
    calls = _slowest(frame).to_frame("seconds").assign(work=frame.assign(work=work).groupby(_CALL_KEY)["work"].mean())
    usual = isolated.groupby(_MESSAGE_KEY).median().rename("idle")
    calls = calls.join(usual, on=_MESSAGE_KEY, how="inner")
    sizes = calls.reset_index().groupby([*_SCHEME, "nodes", "ranks"])["message_bytes"].transform("nunique").to_numpy()
    calls = calls[sizes > 1]  # times at a single size do not identify those at other sizes
    least = MIN_CO_RUN_SHARE * calls["seconds"]
    rank_laws = {scheme: laws for scheme, links in idle_fits.items() if (laws := _rank_laws(links)) is not None}
    longer = _scheme_fits((calls["seconds"] - calls["idle"]).clip(lower=least), seed, rank_laws)
    lost_work = _scheme_fits(calls["work"].clip(lower=least), seed, rank_laws)
    return {scheme: MutualSlowdown(longer[scheme], lost_work[scheme]) for scheme in longer}


def _rank_laws(links: Communication) -> Laws | None:
    """Return the laws of messages between ranks; None if each node counts as one rank."""
    if links.over_nodes is None:
        return links.inside.fit_over_workers.laws if links.inside else None
    return links.over_nodes.laws if links.over_nodes.inside is None else None


def _rows_of_several_ranks(frame: pd.DataFrame, name: str, *times: str) -> pd.DataFrame:
    """Return the rows of several ranks without warm-up; raise `InputError` for a size or time that is not above 0."""
    frame = kept(frame)
    frame = frame[frame["ranks"] > 1]
    refuse_wrong_rows(frame, name, [*times, "message_bytes"], above_zero=True)
    return frame


def _scheme_fits(
    calls: pd.Series[float], seed: int, known: Mapping[Scheme, Laws] | None = None
) -> dict[Scheme, Communication]:
    """Return the fits of each scheme to its `calls` (index `_CALL_KEY`), by the scheme's `known` laws if given."""
    frame, departs = calls.rename("seconds").reset_index(), known is None
    return {key: _fit_scheme(key, rows, seed, (known or {}).get(key), departs) for key, rows in groups(frame, _SCHEME)}


def table(fits: Mapping[Scheme, Communication]) -> list[dict[str, object]]:
    """Return the rows of the communication table, one for each piece of each fit."""
    return [row for scheme, here in fits.items() for fit in _all_fits(here) for row in _rows(scheme, fit)]


def _all_fits(communication: Communication) -> Iterable[Fit]:
    yield from communication.fits_by_placement.values()
    if communication.inside:
        yield communication.inside.fit_over_workers
    if communication.over_nodes:
        yield from filter(None, (communication.over_nodes, communication.over_nodes.rival_fit))


def _rows(scheme: Scheme, fit: Fit) -> Iterable[dict[str, object]]:
    labels: dict[str, object] = dict(zip(_SCHEME, scheme, strict=True))
    labels |= {"fit": fit.laws.name, "level": fit.level, "nodes": fit.nodes, "ranks": fit.ranks}
    rest = {"points": fit.points, "residual": fit.residual}
    for piece, start in enumerate(fit.line.starts):
        quantities = columns("alpha", fit.alpha) | columns("beta", fit.line.betas[:, piece])
        yield {**labels, "piece": piece, "from_bytes": float(start), **quantities, **rest}


_Key = tuple[int, int, int]
"""Nodes, ranks, message size."""


def _fit_scheme(scheme: Scheme, calls: pd.DataFrame, seed: int, known: Laws | None, may_depart: bool) -> Communication:
    """Fit one scheme by its `known` laws, or else by chosen laws (`_LawChoice`, which takes `may_depart`)."""
    samples: dict[_Key, Ensemble] = {}
    usual = scatter(calls, ["nodes", "ranks", "message_bytes"], "seconds")
    for (nodes, ranks, size), rows in groups(calls, ["nodes", "ranks", "message_bytes"]):
        # All operations and sizes have the same random draws, as a slow visit slows all of them down.
        random = generator(seed, "collectives", *scheme[:3], nodes, ranks)
        visits = visits_of(rows)
        # A single visit gets the prior scatter, as it may be an outlier even if visits of other cells agree.
        visit_scatter = usual if visits.nunique() > 1 else VISIT_PRIOR
        samples[nodes, ranks, size] = bootstrap(rows["seconds"], visits, random, prior=visit_scatter)
    laws = known or _LawChoice(law_name(scheme), (seed, "laws", *scheme[:3]), may_depart)
    placements = sorted({(nodes, ranks) for nodes, ranks, _ in samples})
    one = Laws.only("place")
    samples_by_placement = {
        placement: {key: of for key, of in samples.items() if key[:2] == placement} for placement in placements
    }
    fits_by_placement = {(nodes, ranks // nodes): _fit(one, of) for (nodes, ranks), of in samples_by_placement.items()}
    within, between = (
        {key: seconds for key, seconds in samples.items() if (key[0] == 1) == inside} for inside in (True, False)
    )
    inside = None
    if within:
        fits_by_workers = {workers: fit for (nodes, workers), fit in fits_by_placement.items() if nodes == 1}
        inside = InsideNode(fits_by_workers, _fit(laws, within))
    return Communication(fits_by_placement, inside, _fit_over_nodes(laws, between, inside) if between else None)


@dataclass(frozen=True)
class _LawChoice:
    """Choice of the laws for timed messages: forms of the scheme's `law`, or of all laws if a library chooses."""

    law: str
    key: tuple[int, *tuple[str, ...]]
    """Seed of the draws."""
    may_depart: bool
    """Whether times may depart from the laws; slowdowns, which are no times of messages, may not."""

    def __call__(self, timed: TimedCalls) -> tuple[Laws, Departures | None]:
        """Return the laws, and the factors by which the times depart from the laws."""
        laws, departures = all_reduce_law.choose_laws(self.law, timed, generator(*self.key))
        return laws, departures if self.may_depart else None


def _fit_over_nodes(laws: Laws | _LawChoice, samples: Mapping[_Key, Ensemble], inside: InsideNode | None) -> Fit:
    """Fit all placements on several nodes.

    A library may count each worker as a rank, or each node. Of these two fits, the one that better predicts the
    placement with the most workers from the others is taken. With a single placement, both are equally likely.
    """
    rank_fit = _fit(laws, samples)
    if inside is None:
        return rank_fit
    one_rank_per_node = all(nodes == ranks for nodes, ranks, _ in samples)
    node_laws = (
        laws
        if one_rank_per_node
        else replace(laws, law=HIERARCHICAL)
        if isinstance(laws, _LawChoice)
        else Laws.only(HIERARCHICAL)
    )
    node_fit = _fit(node_laws, samples, inside)
    largest_placement = max((ranks, nodes) for nodes, ranks, _ in samples)[::-1]
    smaller, largest = (
        {key: of for key, of in samples.items() if (key[:2] == largest_placement) == last} for last in (False, True)
    )
    if one_rank_per_node or not smaller:
        return replace(node_fit, rival_fit=rank_fit)
    node_wins = _error(_fit(node_fit.laws, smaller, inside), largest) < _error(_fit(rank_fit.laws, smaller), largest)
    return node_fit if node_wins else rank_fit


def _error(fit: Fit, samples: Mapping[_Key, Ensemble]) -> float:
    """Return the mean \\|log(predicted / measured)\\| over `samples`."""
    errors = [
        np.abs(np.log(all_reduce_seconds(fit.at(ranks // nodes), ranks, size)[0] / seconds[0]))
        for (nodes, ranks, size), seconds in samples.items()
    ]
    return float(np.mean(errors))


def _sample_axes(samples: Mapping[_Key, Ensemble]) -> tuple[Reals, Reals, Reals]:
    """Return the nodes, ranks and sizes of the samples, [samples] each."""
    nodes, ranks, sizes = np.array(list(samples), dtype=np.float64).T
    return nodes, ranks, sizes


def _fit(laws: Laws | _LawChoice, samples: Mapping[_Key, Ensemble], inside: InsideNode | None = None) -> Fit:
    nodes, ranks, sizes = _sample_axes(samples)
    observed = np.stack(list(samples.values()), axis=-1)
    if inside is not None:
        workers_of_nodes = [int(workers) for workers in ranks // nodes]
        spent = [all_reduce_seconds(inside.at(k), k, size) for k, size in zip(workers_of_nodes, sizes, strict=True)]
        seconds_between_nodes = observed - np.stack(spent, axis=-1)
        # Messages with nearly all their time inside a node are excluded, as the rest of their time is noise.
        mostly_between_nodes = seconds_between_nodes[0] > MIN_SHARE_BETWEEN_NODES * observed[0]
        if len(np.unique(sizes[mostly_between_nodes])) > 1:
            nodes, ranks, sizes, seconds_between_nodes, observed = (
                of[..., mostly_between_nodes] for of in (nodes, ranks, sizes, seconds_between_nodes, observed)
            )
        observed = np.maximum(seconds_between_nodes, 1e-3 * observed)
    timed = TimedCalls(nodes if inside is not None else ranks, sizes, observed)
    departures = None
    if isinstance(laws, _LawChoice):
        laws, departures = laws(timed)
    points = timed.with_factors(laws.value)
    if departures is not None:
        timed = replace(timed, seconds=observed / departures(timed.participants, sizes))
    line = all_reduce_law.line(timed, laws)
    return Fit(
        laws=laws,
        nodes=int(nodes[ranks.argmax()]),
        ranks=int(ranks.max()),
        line=line,
        points=len(sizes),
        residual=piecewise_line.residual(line, points),
        inside=inside,
        size_residuals=_size_residuals(points, line) if laws.value.laws == ("place",) else None,
        departures=departures,
    )


def _size_residuals(points: Samples, line: PiecewiseLine) -> Departures:
    latency, bandwidth = line.parts(points.sizes, points.latency, points.bandwidth)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log((points.seconds - latency) / bandwidth)
    # Where latency dominates, the residual of the bandwidth part is noise and is set to 0.
    known = np.where(np.isfinite(ratio) & (bandwidth > latency), np.clip(ratio, -MAX_RESIDUAL, MAX_RESIDUAL), 0.0)
    order = np.argsort(points.sizes)
    return Departures(np.zeros(1), points.sizes[order], known[:, None, order])
