"""One model over all layouts of a training: throughput and memory by parallel degrees, micro-batch and accumulation.

A step of ``a`` micro-batches through ``p`` pipeline stages lasts ``a + p - 1`` micro-steps (Narayanan et al. 2021,
*Efficient Large-Scale Language Model Training on GPU Clusters*, section 2.2) and what comes once: reducing gradients
and updating weights. A micro-step lasts as long as its device's work or as its host needs to start it, whichever is
longer. Each is a sum of terms with one cost for all layouts, at least 0: sums over ranks cost apart inside a node and
across nodes. Ranks of a tensor group are neighbours, then those of data parallelism, then stages.

Of runs of one cluster some are many times as slow as their layout explains. The fit takes each for a clean or a
disturbed run by its residual (a mixture, fitted by expectation maximisation), and its costs are those of clean ones.
Where most runs near a layout are disturbed, its micro-steps are taken to stall as long as theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from stallpoint.base.statistics import INTERVAL, Reals, generator
from stallpoint_files.rates.layout_tables import LayoutRow

Moments = npt.NDArray[np.bool_]
NODE = 8.0
"""Workers of a node where the table does not say it."""
FURTHEST = 4
"""Maximum worker count that is predicted, over the largest measured one."""
FEWEST_LAYOUTS = 12
"""Minimum number of measured layouts for a fit."""
DISTURBED = 1.5
"""Factor over the fitted time from which on a run is disturbed."""
GOOD = 0.8
"""Part of the best predicted rate from which on a layout seems good."""
USABLE = 0.5
"""Part of the best predicted rate from which on anybody would run a layout: the errors of others are larger."""
NEAR = 0.05
"""A choice is right whose rate is within this fraction of the best measured one."""
RIGHT = 0.7
"""Fraction of rehearsed choices that have to be right for a choice to be stated."""
SHORTLIST = 10
"""Candidates of a rehearsed choice."""
MIN_CHOICES = 10
"""Minimum number of rehearsed choices that tell how many are right."""
_REHEARSALS = 40
_LIMITS = (0.5, 0.6, 0.7, 0.8, 0.9)
_DRAWS = 300
_FOLDS = 5
_ROUNDS = 12
_HOST_BOUND = (0.0, 0.13, 0.26, 0.51)
"""Micro-batch over tensor degree up to which the host is taken for the limit at the start of a fit, one start each."""


@dataclass(frozen=True)
class Layouts:
    """Configurations of a training; [layouts] each."""

    data: Reals
    pipeline: Reals
    tensor: Reals
    expert: Reals
    """Ranks among which the experts are spread, of those of data parallelism."""
    zero: Reals
    """ZeRO stage, 0 to 3."""
    micro_batch: Reals
    accumulation: Reals
    """Micro-batches of a step."""
    per_node: Reals

    @classmethod
    def of(cls, rows: Sequence[LayoutRow]) -> Layouts:
        """Return the layouts of a table's rows."""
        found = cls(*(np.array([getattr(row, of.name) or 0 for row in rows], float) for of in fields(cls)))
        return replace(found, per_node=np.where(found.per_node > 0, found.per_node, NODE))

    def __len__(self) -> int:
        return len(self.data)

    def at(self, places: npt.NDArray[np.int64] | Moments) -> Layouts:
        """Return the layouts at some places."""
        return Layouts(*(getattr(self, of.name)[places] for of in fields(self)))

    @property
    def workers(self) -> Reals:
        """Number of workers."""
        return self.data * self.pipeline * self.tensor

    @property
    def batch(self) -> Reals:
        """Samples of a step."""
        return self.data * self.micro_batch * self.accumulation

    @property
    def steps(self) -> Reals:
        """Micro-steps of a step."""
        return self.accumulation + self.pipeline - 1

    @property
    def family(self) -> Reals:
        """What layouts of one family share: all but data parallelism and accumulation; [layouts, 5]."""
        return np.stack([self.pipeline, self.tensor, self.expert, self.zero, self.micro_batch], -1)

    @cached_property
    def terms(self) -> tuple[Reals, Reals, Reals]:
        """Factors of the costs of the device's and the host's micro-steps, and of what comes once in a step."""
        d, p, t, e, b = self.data, self.pipeline, self.tensor, self.expert, self.micro_batch
        steps, part = self.steps, 1 / (p * t)
        tensor, data, stages = t > self.per_node, t * d > self.per_node, (p > 1) & (t * d >= self.per_node)
        experts, reduced = t * e > self.per_node, part * (d - 1) / d
        device = [
            steps * b * part, steps * b / t, steps / p,
            *_apart(steps * b / p * (t - 1) / t, tensor), *_apart(steps / p * (t - 1), tensor),
            *_apart(steps * b / t * (p > 1), stages), *_apart(steps * (p > 1.0), stages),
            *_apart(steps * b / p * (e - 1) / e, experts), *_apart(steps * reduced * (self.zero > 2), data),
        ]  # fmt: skip
        host = [steps / p, steps / p * (t > 1), steps]
        once = [
            *_apart(reduced, data), *_apart(reduced * (self.zero > 0), data), (d - 1) * data,
            part / np.where(self.zero > 0, d, 1), np.ones_like(d),
        ]  # fmt: skip
        return np.stack(device, -1), np.stack(host, -1), np.stack(once, -1)

    @property
    def memory_terms(self) -> Reals:
        """Factors of a worker's memory: weights, states of the optimiser, activations under way; [layouts, terms].

        Each of the first two is of layers, which stages share, and of the embedding, which one stage has.
        """
        p, t = self.pipeline, self.tensor
        states = np.where(self.zero > 0, self.data, 1) * t
        weights = np.where(self.zero > 2, self.data, 1) * t
        under_way = self.micro_batch * np.minimum(self.accumulation, p) / p
        terms = [1 / (weights * p), 1 / weights, 1 / (weights * p * self.expert), 1 / (states * p), 1 / states,
                 under_way / t, under_way, self.micro_batch / t, np.ones_like(t)]  # fmt: skip
        return np.stack(terms, -1)


def _apart(values: Reals, across: Moments) -> tuple[Reals, Reals]:
    """Return values inside a node and across nodes, 0 elsewhere."""
    return values * ~across, values * across


@dataclass(frozen=True)
class LayoutModel:
    """Costs of the terms of a step, fitted to measured layouts."""

    layouts: Layouts
    costs: tuple[Reals, Reals, Reals]
    """As `Layouts.terms`."""
    clean: Reals
    """Probability that a run was not disturbed, [layouts]."""
    residuals: Reals
    """Logarithm of measured over fitted seconds, [layouts]."""
    scatter: float
    """Standard deviation of the residuals of clean runs."""
    likelihood: float

    @classmethod
    def fit(cls, layouts: Layouts, seconds: Reals) -> LayoutModel:
        """Return the likeliest fit from several starts."""
        relative = layouts.micro_batch / layouts.tensor
        return max((_fit(layouts, seconds, relative > limit) for limit in _HOST_BOUND), key=lambda one: one.likelihood)

    @property
    def undisturbed(self) -> Moments:
        """Whether a run took less than `DISTURBED` times what its layout explains, [layouts]."""
        return np.asarray((self.clean >= 0.5) | (self.residuals < np.log(DISTURBED)))

    def seconds(self, layouts: Layouts) -> Reals:
        """Return the duration of a step, with what the nearest runs of the same family took beyond their costs, or if
        most runs near it are disturbed, with their stalls."""
        own, other = self.layouts.family, layouts.family
        offset = np.zeros(len(layouts))
        for one in np.unique(other, axis=0):
            mine, known = (np.flatnonzero((of == one).all(-1)) for of in (other, own))
            if not len(known):
                continue
            apart = np.abs(np.log(layouts.data[mine, None] / self.layouts.data[known]))
            near = apart <= apart.min(1, keepdims=True) + 1e-9
            for place, which in zip(mine, near, strict=True):
                count = which.sum()
                offset[place] = np.median(self.residuals[known[which]]) * count / (count + _OWN)
        fitted = _total(self.costs, layouts)[0]
        return np.asarray(np.where(self._disturbed(layouts), fitted + self._stalled(layouts), fitted * np.exp(offset)))

    def _near(self, layouts: Layouts) -> npt.NDArray[np.int64]:
        """Return the indices of the runs nearest to each layout, by factors of two; [layouts, _NEAREST]."""
        own, other = (
            np.column_stack([*np.log2([of.data, of.pipeline, of.tensor, of.micro_batch]), of.zero])
            for of in (self.layouts, layouts)
        )
        return np.argsort(np.abs(other[:, None] - own).sum(-1), axis=1, kind="stable")[:, :_NEAREST]

    def _disturbed(self, layouts: Layouts) -> Moments:
        """Return whether most runs near a layout are disturbed; [layouts]."""
        return np.asarray(np.median(self.residuals[self._near(layouts)], axis=1) > np.log(DISTURBED))

    def _stalled(self, layouts: Layouts) -> Reals:
        """Time that layouts lose if each micro-step stalls as long as those of the nearest runs, s; [layouts]."""
        stalls = _total(self.costs, self.layouts)[0] * np.expm1(self.residuals) / self.layouts.steps
        return np.asarray(np.median(stalls[self._near(layouts)], axis=1) * layouts.steps)

    def identifiable(self, layouts: Layouts) -> Moments:
        """Return whether each term of a layout was in a measured one; [layouts]."""
        pairs = zip(self.layouts.terms, layouts.terms, strict=True)
        return np.asarray(~np.concatenate([(new > 0) & ~(own > 0).any(0) for own, new in pairs], -1).any(-1))


_NEAREST = 3
"""Runs near a layout."""
_OWN = 0.5
"""Runs whose weight the costs of all layouts have beside runs of the layout's own family."""


def _total(costs: Sequence[Reals], layouts: Layouts) -> tuple[Reals, Moments]:
    device, host, once = (terms @ cost for terms, cost in zip(layouts.terms, costs, strict=True))
    return np.maximum(device, host) + once, device >= host


def _fit(layouts: Layouts, seconds: Reals, on_device: Moments) -> LayoutModel:
    """Return the fit, alternating between costs, each layout's limiting part, and disturbed runs."""
    device, host, once = layouts.terms
    first, second = device.shape[1], device.shape[1] + host.shape[1]
    clean, disturbed, slower, deviation, likelihood = np.ones(len(seconds)), 0.2, 1.0, 1.0, -np.inf
    costs: tuple[Reals, Reals, Reals] = (device[0], host[0], once[0])
    residuals = np.zeros(len(seconds))
    for index in range(_ROUNDS):
        design = np.concatenate([device * on_device[:, None], host * ~on_device[:, None], once], 1)
        weights = np.sqrt(clean)
        found = nnls(design * (weights / seconds)[:, None], weights)[0]
        costs = found[:first], found[first:second], found[second:]
        fitted, on_device = _total(costs, layouts)
        residuals = np.log(seconds / np.maximum(fitted, 1e-300))
        if index < _STEADY:
            deviation = max(1.48 * float(np.median(np.abs(residuals))), _LEAST_SCATTER)
            clean = 1 / (1 + (residuals / deviation) ** 2 / 2)
        else:
            usual = (1 - disturbed) / deviation * np.exp(-0.5 * (residuals / deviation) ** 2) / np.sqrt(2 * np.pi)
            odd = disturbed * np.where(residuals > 0, np.exp(-np.maximum(residuals, 0) / slower) / slower, _FASTER)
            clean, likelihood = usual / (usual + odd), float(np.log(usual + odd).sum())
        off = 1 - clean
        deviation = max(float(np.sqrt((clean * residuals**2).sum() / clean.sum())), _LEAST_SCATTER)
        disturbed = float(np.clip(off.mean(), 0.01, 0.9))
        slower = max(float((off * np.abs(residuals)).sum() / max(off.sum(), 1e-9)), 0.2)
    return LayoutModel(layouts, costs, clean, residuals, deviation, likelihood)


_STEADY, _LEAST_SCATTER, _FASTER = 2, 0.02, 0.02
"""Rounds before the mixture; minimum scatter of clean runs; density of disturbed runs that are faster than expected."""


def fit_memory(layouts: Layouts, gigabytes: Reals) -> Reals:
    """Return the costs of `Layouts.memory_terms`, at least 0, by weights that leave outliers aside."""
    design, weights = layouts.memory_terms / gigabytes[:, None], np.ones(len(gigabytes))
    costs = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        costs = nnls(design * weights[:, None], weights)[0]
        off = design @ costs - 1
        deviation = max(1.48 * float(np.median(np.abs(off))), _LEAST_SCATTER)
        weights = np.sqrt(3 / (2 + (off / deviation) ** 2))
    return costs


def held_out(layouts: Layouts) -> Iterator[Moments]:
    """Yield the layouts to exclude from each fit: those of a fifth of all parallel degrees, then of another fifth."""
    degrees = np.stack([layouts.data, layouts.pipeline, layouts.tensor, layouts.expert], -1)
    names, of = np.unique(degrees, axis=0, return_inverse=True)
    fold = generator(0, "layouts", len(names)).permutation(len(names)) % _FOLDS
    yield from (fold[of.ravel()] == index for index in range(min(_FOLDS, len(names))))


@dataclass(frozen=True)
class LayoutChoice:
    """The predicted order of some layouts."""

    order: list[int]
    """Indices by predicted rate, the fastest first."""
    sure: float
    """Probability that the first is within `NEAR` of the best, by the scatter of clean runs alone."""

    @property
    def best(self) -> int:
        """Index of the fastest."""
        return self.order[0]


def choose(model: LayoutModel, layouts: Layouts) -> LayoutChoice:
    """Return the order of layouts by their predicted rates."""
    rates = np.log(layouts.batch / model.seconds(layouts))
    order = np.argsort(-rates, kind="stable").tolist()
    drawn = rates + max(model.scatter, NEAR) * generator(0, "choice").standard_normal((_DRAWS, len(rates)))
    return LayoutChoice(order, float((drawn[:, order[0]] >= drawn.max(1) + np.log(1 - NEAR)).mean()))


@dataclass(frozen=True)
class Rehearsal:
    """Predictions of larger worker counts of a table from its smaller ones, as those of counts beyond it."""

    errors: Reals
    """Logarithm of measured over predicted seconds, of layouts that a fit has not seen; [layouts]."""
    usable: Moments
    """Whether their predicted rates are `USABLE`, [layouts]."""
    group: npt.NDArray[np.int64]
    """Number of the fit that has not seen them: first those that lacked a worker count, then those that lacked degrees;
    [layouts]."""
    counts: int
    """Number of fits that lacked a worker count."""
    sure: Reals
    """`LayoutChoice.sure` for each shortlist."""
    right: Moments
    """Whether the choice of each shortlist of undisturbed runs was within `NEAR` of the best."""
    steady: float
    """Fraction of runs that are not disturbed, of layouts that seem good."""

    def factors(self, *, usable: bool = True) -> tuple[float, float]:
        """Ends of the interval of a rate over the predicted one, of `usable` layouts or of others.

        Errors of each fit weigh the same. The next worker count differs from those rehearsed as these differ from one
        another (Student's t), with one more difference as prior: the scatter of layouts within a fit.
        """
        like = self.usable == usable
        if like.sum() < MIN_CHOICES:
            like = np.ones(len(like), np.bool_)
        numbers = np.unique(self.group[like])
        fits = [self.errors[like & (self.group == one)] for one in numbers]
        middles = np.array([np.median(of) for of in fits])
        within = 1.48 * float(np.median(np.abs(np.concatenate([of - np.median(of) for of in fits]))))
        counts = middles[numbers < self.counts]
        freedom = max(1, len(counts))
        squares = within**2 + (np.square(counts - counts.mean()).sum() if len(counts) else 0.0)
        apart = np.sqrt(squares * (1 + 1 / freedom) / freedom)
        random = generator(0, "rehearsed", len(self.errors))
        drawn = np.concatenate([random.choice(of, _DRAWS) for of in fits])
        drawn = drawn + apart * random.standard_t(freedom, len(drawn))
        low, high = np.quantile(-drawn, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2])
        return float(np.exp(low)), float(np.exp(high))

    def right_if(self, sure: float) -> float:
        """Return the fraction right of the choices at least as `sure`; 0 of fewer than `MIN_CHOICES`."""
        chosen = self.right[self.sure >= sure]
        return self.steady * float(chosen.mean()) if len(chosen) >= MIN_CHOICES else 0.0

    def limit(self, choice: LayoutChoice) -> float:
        """Return the limit of sureness, no larger than that of `choice`, above which most choices are right."""
        return max((limit for limit in _LIMITS if limit <= choice.sure), key=self.right_if, default=0.0)

    def allows(self, choice: LayoutChoice) -> bool:
        """Return whether `RIGHT` of the choices above that limit are right."""
        return self.right_if(self.limit(choice)) >= RIGHT and choice.sure >= _LIMITS[0]


def rehearse(layouts: Layouts, seconds: Reals, ratio: float, size: int = SHORTLIST) -> Rehearsal:
    """Return predictions of each count from those of at most a `ratio`-th, and choices among `size` candidates."""
    errors: list[Reals] = []
    usable: list[Moments] = []
    sure, right, steady = [], [], []
    undisturbed = LayoutModel.fit(layouts, seconds).undisturbed

    def predicted(model: LayoutModel, asked: npt.NDArray[np.int64]) -> Reals:
        """Return the predicted rates over the best one of as many workers, and keep how far they are off."""
        there, workers = layouts.at(asked), layouts.workers[asked]
        took = model.seconds(there)
        rates = there.batch / took
        rates = rates / np.array([rates[workers == count].max() for count in workers])
        errors.append(np.log(seconds[asked] / took))
        usable.append(rates >= USABLE)
        return np.asarray(rates)

    for count in np.unique(layouts.workers):
        known, asked = layouts.workers <= count / ratio, np.flatnonzero(layouts.workers == count)
        if known.sum() < FEWEST_LAYOUTS:
            continue
        model = LayoutModel.fit(layouts.at(known), seconds[known])
        asked = asked[model.identifiable(layouts.at(asked))]
        if len(asked) < 2:
            continue
        steady.append(undisturbed[asked][predicted(model, asked) >= GOOD])
        asked = asked[undisturbed[asked]]
        for shortlist in shortlists(len(asked), min(size, max(SHORTLIST, len(asked) // 2))) if len(asked) > 1 else ():
            own = asked[shortlist]
            choice, rates = choose(model, layouts.at(own)), layouts.batch[own] / seconds[own]
            sure.append(choice.sure)
            right.append(bool(rates[choice.best] >= (1 - NEAR) * rates.max()))
    counts = len(errors)
    for out in held_out(layouts) if counts else ():
        predicted(LayoutModel.fit(layouts.at(~out), seconds[~out]), np.flatnonzero(out))
    empty = [np.empty(0)]
    return Rehearsal(
        np.concatenate(errors or empty), np.concatenate(usable or empty).astype(np.bool_),
        np.repeat(np.arange(len(errors)), list(map(len, errors))), counts, np.array(sure), np.array(right, np.bool_),
        float(np.concatenate(steady).mean()) if steady else 0.0,
    )  # fmt: skip


def shortlists(count: int, size: int = SHORTLIST) -> Iterator[npt.NDArray[np.int64]]:
    """Yield random shortlists of `count` candidates."""
    random = generator(0, "shortlists", count, size)
    for _ in range(_REHEARSALS):
        yield random.choice(count, min(size, count), replace=False)


def candidates(layouts: Layouts, workers: int) -> Layouts:
    """Return the layouts of `workers` with measured degrees and micro-batches, and the batch that most runs have."""
    batches, times = np.unique(layouts.batch, return_counts=True)
    batch = batches[times.argmax()]
    family = np.unique(np.column_stack([layouts.family, layouts.per_node]), axis=0)
    p, t, e, zero, b, per_node = family.T
    data = workers / (p * t)
    accumulation = batch / (data * b)
    some = (data >= 1) & (data % 1 == 0) & (accumulation >= 1) & (accumulation % 1 == 0) & (data % e == 0)
    found = Layouts(data, p, t, e, np.where(data > 1, zero, 0), b, accumulation, per_node).at(some)
    _, first = np.unique(np.column_stack([found.family, found.data]), axis=0, return_index=True)
    return found.at(first)
