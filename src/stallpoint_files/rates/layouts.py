"""Model of throughput and memory over all layouts of a training: parallel degrees, micro-batch and accumulation.

A step of ``a`` micro-batches through ``p`` pipeline stages lasts ``a + p - 1`` micro-steps (Narayanan et al. 2021,
*Efficient Large-Scale Language Model Training on GPU Clusters*, section 2.2), plus once per step the reduction of
gradients and the update. A micro-step lasts as long as the device's work or the host's time to start it, whichever is
longer. Each is a sum of terms whose non-negative costs are common to all layouts; collectives have one cost within and
one across nodes. Ranks are placed by tensor group first, then data parallelism, then stages.

Some runs of a cluster are many times slower than their layout explains. The fit is a mixture of clean and disturbed
runs by their residuals (expectation maximisation); its costs are those of clean runs. If most runs near a layout are
disturbed, its micro-steps are assumed to stall as long as theirs.
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
"""Assumed workers of a node, if the table does not give them."""
FURTHEST = 4
"""Maximum ratio of a predicted worker count to the largest measured one."""
FEWEST_LAYOUTS = 12
"""Minimum number of measured layouts for a fit."""
DISTURBED = 1.5
"""Minimum ratio of a run's time to the fitted time for the run to be disturbed."""
GOOD = 0.8
"""Minimum fraction of the best predicted rate for a layout to count as good."""
USABLE = 0.5
"""Minimum fraction of the best predicted rate for a layout to be usable; predictions of others have larger errors."""
NEAR = 0.05
"""Maximum relative distance of a choice's rate from the best measured rate for the choice to be right."""
RIGHT = 0.7
"""Minimum fraction of right choices in rehearsals for a choice to be stated."""
SHORTLIST = 10
"""Number of candidates of a rehearsed choice."""
MIN_CHOICES = 10
"""Minimum number of rehearsed choices to estimate the fraction that is right."""
_REHEARSALS = 40
_LIMITS = (0.5, 0.6, 0.7, 0.8, 0.9)
_DRAWS = 300
_FOLDS = 5
_ROUNDS = 12
_HOST_BOUND = (0.0, 0.13, 0.26, 0.51)
"""Ratios of micro-batch to tensor degree up to which a fit first assumes the host as limit; one start for each."""


@dataclass(frozen=True)
class Layouts:
    """Configurations of a training; [layouts] each."""

    data: Reals
    pipeline: Reals
    tensor: Reals
    expert: Reals
    """Number of data-parallel ranks over which the experts are spread."""
    zero: Reals
    """ZeRO stage, 0 to 3."""
    micro_batch: Reals
    accumulation: Reals
    """Number of micro-batches of a step."""
    per_node: Reals

    @classmethod
    def of(cls, rows: Sequence[LayoutRow]) -> Layouts:
        """Return the layouts of a table's rows."""
        found = cls(*(np.array([getattr(row, of.name) or 0 for row in rows], float) for of in fields(cls)))
        return replace(found, per_node=np.where(found.per_node > 0, found.per_node, NODE))

    def __len__(self) -> int:
        return len(self.data)

    def at(self, places: npt.NDArray[np.int64] | Moments) -> Layouts:
        """Return the layouts at the given indices."""
        return Layouts(*(getattr(self, of.name)[places] for of in fields(self)))

    @property
    def workers(self) -> Reals:
        """Number of workers."""
        return self.data * self.pipeline * self.tensor

    @property
    def batch(self) -> Reals:
        """Global mini-batch, samples."""
        return self.data * self.micro_batch * self.accumulation

    @property
    def steps(self) -> Reals:
        """Number of micro-steps of a step."""
        return self.accumulation + self.pipeline - 1

    @property
    def family(self) -> Reals:
        """Columns that are equal in a family of layouts: all but data parallelism and accumulation; [layouts, 5]."""
        return np.stack([self.pipeline, self.tensor, self.expert, self.zero, self.micro_batch], -1)

    @cached_property
    def terms(self) -> tuple[Reals, Reals, Reals]:
        """Factors of the costs of the device's micro-steps, the host's micro-steps, and work once per step."""
        d, p, t, e, b = self.data, self.pipeline, self.tensor, self.expert, self.micro_batch
        steps, part = self.steps, 1 / (p * t)
        tensor, data, stages = t > self.per_node, t * d > self.per_node, (p > 1) & (t * d >= self.per_node)
        experts, reduced = t * e > self.per_node, part * (d - 1) / d
        device = [
            steps * b * part, steps * b / t, steps / p,
            *_by_place(steps * b / p * (t - 1) / t, tensor), *_by_place(steps / p * (t - 1), tensor),
            *_by_place(steps * b / t * (p > 1), stages), *_by_place(steps * (p > 1.0), stages),
            *_by_place(steps * b / p * (e - 1) / e, experts), *_by_place(steps * reduced * (self.zero > 2), data),
        ]  # fmt: skip
        host = [steps / p, steps / p * (t > 1), steps]
        once = [
            *_by_place(reduced, data), *_by_place(reduced * (self.zero > 0), data), (d - 1) * data,
            part / np.where(self.zero > 0, d, 1), np.ones_like(d),
        ]  # fmt: skip
        return np.stack(device, -1), np.stack(host, -1), np.stack(once, -1)

    @property
    def memory_terms(self) -> Reals:
        """Factors of a worker's memory: weights, optimiser states, live activations; [layouts, terms].

        Weights and states each have terms for layers, which stages divide, and for the embedding, which one stage has.
        """
        p, t = self.pipeline, self.tensor
        states = np.where(self.zero > 0, self.data, 1) * t
        weights = np.where(self.zero > 2, self.data, 1) * t
        under_way = self.micro_batch * np.minimum(self.accumulation, p) / p
        terms = [1 / (weights * p), 1 / weights, 1 / (weights * p * self.expert), 1 / (states * p), 1 / states,
                 under_way / t, under_way, self.micro_batch / t, np.ones_like(t)]  # fmt: skip
        return np.stack(terms, -1)


def _by_place(values: Reals, across: Moments) -> tuple[Reals, Reals]:
    """Return the values within a node (0 across nodes), and those across nodes (0 within)."""
    return values * ~across, values * across


@dataclass(frozen=True)
class LayoutModel:
    """Costs of a step's terms, fitted to measured layouts."""

    layouts: Layouts
    costs: tuple[Reals, Reals, Reals]
    """Costs in the order of `Layouts.terms`."""
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
        """Whether a run took less than `DISTURBED` times its fitted time, [layouts]."""
        return np.asarray((self.clean >= 0.5) | (self.residuals < np.log(DISTURBED)))

    def seconds(self, layouts: Layouts) -> Reals:
        """Return the duration of a step, s, corrected by the residuals of the nearest runs of the same family or, if
        most runs nearby are disturbed, by their stalls."""
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
                offset[place] = np.median(self.residuals[known[which]]) * count / (count + _COMMON_WEIGHT)
        fitted = _step_seconds(self.costs, layouts)[0]
        return np.asarray(np.where(self._disturbed(layouts), fitted + self._stalled(layouts), fitted * np.exp(offset)))

    def _near(self, layouts: Layouts) -> npt.NDArray[np.int64]:
        """Return the indices of the runs nearest to each layout, in powers of two; [layouts, _NEAREST]."""
        own, other = (
            np.column_stack([*np.log2([of.data, of.pipeline, of.tensor, of.micro_batch]), of.zero])
            for of in (self.layouts, layouts)
        )
        return np.argsort(np.abs(other[:, None] - own).sum(-1), axis=1, kind="stable")[:, :_NEAREST]

    def _disturbed(self, layouts: Layouts) -> Moments:
        """Return whether most runs near a layout are disturbed; [layouts]."""
        return np.asarray(np.median(self.residuals[self._near(layouts)], axis=1) > np.log(DISTURBED))

    def _stalled(self, layouts: Layouts) -> Reals:
        """Return the time lost if each micro-step stalls as long as in the nearest runs, s; [layouts]."""
        stalls = _step_seconds(self.costs, self.layouts)[0] * np.expm1(self.residuals) / self.layouts.steps
        return np.asarray(np.median(stalls[self._near(layouts)], axis=1) * layouts.steps)

    def identifiable(self, layouts: Layouts) -> Moments:
        """Return whether all terms of a layout occur in measured layouts; [layouts]."""
        pairs = zip(self.layouts.terms, layouts.terms, strict=True)
        return np.asarray(~np.concatenate([(new > 0) & ~(own > 0).any(0) for own, new in pairs], -1).any(-1))


_NEAREST = 3
"""Number of runs that count as near a layout."""
_COMMON_WEIGHT = 0.5
"""Weight of the common costs relative to runs of the layout's own family, in numbers of runs."""


def _step_seconds(costs: Sequence[Reals], layouts: Layouts) -> tuple[Reals, Moments]:
    device, host, once = (terms @ cost for terms, cost in zip(layouts.terms, costs, strict=True))
    return np.maximum(device, host) + once, device >= host


def _fit(layouts: Layouts, seconds: Reals, on_device: Moments) -> LayoutModel:
    """Return the fit, alternating between costs, each layout's limit (device or host), and disturbed runs."""
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
        fitted, on_device = _step_seconds(costs, layouts)
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
    """Return the costs of `Layouts.memory_terms`, at least 0, by a robust fit that down-weights outliers."""
    design, weights = layouts.memory_terms / gigabytes[:, None], np.ones(len(gigabytes))
    costs = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        costs = nnls(design * weights[:, None], weights)[0]
        off = design @ costs - 1
        deviation = max(1.48 * float(np.median(np.abs(off))), _LEAST_SCATTER)
        weights = np.sqrt(3 / (2 + (off / deviation) ** 2))
    return costs


def held_out(layouts: Layouts) -> Iterator[Moments]:
    """Yield the layouts to exclude from each of five cross-validation fits, a fifth of all parallel degrees each."""
    degrees = np.stack([layouts.data, layouts.pipeline, layouts.tensor, layouts.expert], -1)
    names, of = np.unique(degrees, axis=0, return_inverse=True)
    fold = generator(0, "layouts", len(names)).permutation(len(names)) % _FOLDS
    yield from (fold[of.ravel()] == index for index in range(min(_FOLDS, len(names))))


@dataclass(frozen=True)
class LayoutChoice:
    """Predicted order of candidate layouts."""

    order: list[int]
    """Indices by predicted rate, the fastest first."""
    sure: float
    """Probability that the first layout is within `NEAR` of the best, given only the scatter of clean runs."""

    @property
    def best(self) -> int:
        """Index of the fastest layout."""
        return self.order[0]


def choose(model: LayoutModel, layouts: Layouts) -> LayoutChoice:
    """Return the order of layouts by their predicted rates."""
    rates = np.log(layouts.batch / model.seconds(layouts))
    order = np.argsort(-rates, kind="stable").tolist()
    drawn = rates + max(model.scatter, NEAR) * generator(0, "choice").standard_normal((_DRAWS, len(rates)))
    return LayoutChoice(order, float((drawn[:, order[0]] >= drawn.max(1) + np.log(1 - NEAR)).mean()))


@dataclass(frozen=True)
class Rehearsal:
    """Rehearsal of predictions beyond a table: its larger worker counts, predicted from its smaller ones."""

    errors: Reals
    """Logarithm of measured over predicted seconds for layouts excluded from a fit; [layouts]."""
    usable: Moments
    """Whether the predicted rate of an excluded layout is `USABLE`, [layouts]."""
    group: npt.NDArray[np.int64]
    """Number of the fit that excludes a layout: first the fits without a worker count, then those without degrees;
    [layouts]."""
    counts: int
    """Number of fits without a worker count."""
    sure: Reals
    """`LayoutChoice.sure` for each shortlist."""
    right: Moments
    """Whether the choice of each shortlist of undisturbed runs was within `NEAR` of the best."""
    steady: float
    """Fraction of undisturbed runs among layouts predicted to be good."""

    def factors(self, *, usable: bool = True) -> tuple[float, float]:
        """Return the ends of the interval of true over predicted rate, for `usable` layouts or others.

        All fits have equal weight. The next worker count deviates from the rehearsed ones as these deviate from one
        another (Student's t), with the scatter of layouts within a fit as one more deviation (prior).
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
        """Return the fraction of right choices among those at least as `sure`; 0 for fewer than `MIN_CHOICES`."""
        chosen = self.right[self.sure >= sure]
        return self.steady * float(chosen.mean()) if len(chosen) >= MIN_CHOICES else 0.0

    def limit(self, choice: LayoutChoice) -> float:
        """Return the threshold of `sure`, at most that of `choice`, above which most choices are right."""
        return max((limit for limit in _LIMITS if limit <= choice.sure), key=self.right_if, default=0.0)

    def allows(self, choice: LayoutChoice) -> bool:
        """Return whether at least the fraction `RIGHT` of the choices above the limit for `choice` is right."""
        return self.right_if(self.limit(choice)) >= RIGHT and choice.sure >= _LIMITS[0]


def rehearse(layouts: Layouts, seconds: Reals, ratio: float, size: int = SHORTLIST) -> Rehearsal:
    """Return predictions of each count from counts smaller by `ratio` or more, and choices among `size` candidates."""
    errors: list[Reals] = []
    usable: list[Moments] = []
    sure, right, steady = [], [], []
    undisturbed = LayoutModel.fit(layouts, seconds).undisturbed

    def predicted(model: LayoutModel, asked: npt.NDArray[np.int64]) -> Reals:
        """Return the predicted rates relative to the best one at equal workers, and record their errors."""
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
    """Return the layouts on `workers` workers with measured degrees and micro-batches, and the most frequent batch."""
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
