"""Expectation of an unmeasured training: the time of a step as a sum of uncertain parts.

A step of ``a`` mini-batches of each worker through ``p`` pipeline stages lasts ``a + p - 1`` times one mini-batch
(computing at a fraction of the data sheet's peak, all-reduces in tensor groups, the host's time), plus once per step:
gradients or parameters over the link between nodes, less what computing hides, and a start-up that grows with the
nodes. The fraction of the peak is that of published rates of similar models and chips; each input is drawn from its
spread.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property

import numpy as np

from stallpoint.base.statistics import INTERVAL, Reals, generator
from stallpoint.errors import InputError
from stallpoint_files.links.links import link_named
from stallpoint_files.rates.published_rates import every_rate
from stallpoint_files.setups.catalog import BYTES, DECODER, VISION, Chip, KnownModel
from stallpoint_files.setups.walls import GRADIENTS, traffic
from stallpoint_files.setups.words import GATHERS, Setup, Sharding, read_setup

DRAWS = 2000
NODE = 8
"""Assumed workers of a node, if not given."""
TOKENS = 4096
"""Assumed tokens of a sequence, if not given."""
BATCHES = {"vision": 32.0, "encoder": 32.0, DECODER: 2.0}
"""Assumed mini-batch of a worker, if not given: samples, or sequences of decoders."""
LARGE = 16
"""Ratio of a large mini-batch to that of `BATCHES`."""
WIDTH_PER_LAYER = 128
"""Ratio of a decoder's width to its number of layers (GPT-3: 12,288 to 96; Llama 3 8B: 4,096 to 32)."""
STATE_BYTES, FROZEN_BYTES = 16, 2
"""Bytes of a parameter with gradient and Adam's states in mixed precision (ZeRO, Rajbhandari et al. 2020, section 3.1),
and of a frozen parameter."""
FP8_PEAK_RATIO = 0.65
"""Ratio of the part of the peak that 8-bit products reach to that of wider ones (Llama 3 8B on H100: 21 % to 32 %)."""
MIN_NIC, MAX_NIC = 12.5e9, 100e9
"""Range of link rates, B/s, at which nodes often have one link for each GPU."""
LINK = "hdr"
"""Assumed link between nodes, if none is named: one adapter for each accelerator is usual."""


class Part(StrEnum):
    """A part of a step."""

    COMPUTING = "computing"
    TENSOR = "sums over tensor groups"
    BUBBLE = "waiting of pipeline stages"
    LINK = "communication"
    START = "what each step costs once, however little work it has"


@dataclass(frozen=True)
class Spread:
    """An uncertain number: its median, and the standard deviation of its logarithm."""

    median: float
    deviation: float


@dataclass(frozen=True)
class Spreads:
    """Constants for all trainings, chosen with the published rows in view (``benchmarks/expect.py``)."""

    peak: float = 0.41
    """Deviation of the logarithm of the fraction of the peak: the interval's ends are then a factor of four apart."""
    carried: Spread = Spread(0.7, 0.3)
    """Fraction of a link's rate that collectives reach."""
    start: Spread = Spread(0.0015, 0.7)
    """Fixed time of a step, s, once and for each doubling of the nodes."""
    host: Spread = Spread(0.02, 0.5)
    """Time of the host for a decoder's mini-batch, s; a tenth of it for other models."""
    host_of_layer: Spread = Spread(0.0045, 0.6)
    """Time of the host for each layer of a split model, forward and backward, s; this and the next two constants are
    fitted to published layouts of one model (1B)."""
    hop: Spread = Spread(3e-5, 0.7)
    """Latency of each ring step of an all-reduce in a tensor group on several nodes, s."""
    hop_of_stages: Spread = Spread(2e-4, 0.9)
    """The same latency if pipeline stages are on several nodes: the all-reduces wait for the stages' messages."""
    faster: float = 0.15
    """Exponent by which a faster chip reaches less of its peak: the fraction is proportional to peak^-faster."""
    near: float = 1.7
    """Distance of two chips, in logarithms of their peaks, at which a published rate has the weight 1/e."""


SPREADS = Spreads()


FEW = 16
"""Maximum worker count of published rates that represent computing; larger counts are used without such rates."""


@dataclass(frozen=True)
class Reached:
    """A published rate per worker, with its setup."""

    setup: Setup
    model: KnownModel
    chip: Chip
    workers: int
    batch: float | None
    """Global mini-batch, samples; None if not published."""
    rate: float
    source: str


@cache
def reached() -> tuple[Reached, ...]:
    """Return the published rates whose model and chip are known."""
    found = []
    for one in every_rate():
        setup = read_setup(one.words)
        if setup.model and setup.chip:
            in_bytes = one.batch and setup.model.kind == DECODER and "fp8" in setup.chip.peaks  # as MLPerf's decoders
            setup.precision = setup.precision or ("fp8" if in_bytes else "half")
            found.append(Reached(setup, setup.model, setup.chip, one.workers, one.batch, one.rate, one.source))
    return tuple(found)


@dataclass(frozen=True)
class Expectation:
    """Expectation of one setup."""

    setup: Setup
    model: KnownModel
    chip: Chip
    workers: int
    assumed: tuple[str, ...]
    """Assumptions for what the setup does not give."""
    published: Sequence[Reached]
    spreads: Spreads = SPREADS
    known: frozenset[str] = field(default=frozenset())
    """Names of inputs that count as measured: ``peak``, ``carried``, ``start``, ``host``."""

    def _drawn(self, name: str, spread: Spread) -> Reals:
        """Return draws of an input, [DRAWS]."""
        deviation = 0.1 * spread.deviation if name in self.known else spread.deviation
        return np.asarray(spread.median * np.exp(deviation * generator(0, "expect", name).standard_normal(DRAWS)))

    @property
    def precision(self) -> str:
        """Precision of matrix products."""
        return self.setup.precision or "half"

    @property
    def samples(self) -> float:
        """Samples of a replica's mini-batch (tokens, if the model's rate counts tokens)."""
        setup = self.setup
        if setup.global_batch:
            each = setup.global_batch / self.replicas / setup.accumulation
        else:
            each = setup.batch or setup.bare_batch or BATCHES[self.model.kind]
        return each * (setup.tokens or TOKENS if self.model.unit == "tokens/s" else 1)

    @property
    def split(self) -> int:
        """Workers over which the model is split: as stated, or as many as its bytes need."""
        said = self.setup.tensor * self.setup.pipeline * self.setup.context
        if said > 1 or self.setup.strategies:
            return said
        needed = math.ceil(math.log2(max(self._bytes / self.chip.memory, 1)))
        return min(int(2**needed), self.workers)

    @property
    def _bytes(self) -> float:
        """Bytes of weights, gradients and Adam's states on each worker, if the model is not split."""
        if self.setup.lora:
            return FROZEN_BYTES * self.model.parameters
        own = {Sharding.ZERO_1: 4, Sharding.ZERO_2: 2}.get(self.setup.strategy or Sharding.DDP, STATE_BYTES)
        return (own + (STATE_BYTES - own) / self.workers) * self.model.parameters

    @property
    def bytes_needed(self) -> float:
        """Bytes of weights, gradients and Adam's states on each worker."""
        return self._bytes / self.shards

    @property
    def shards(self) -> int:
        """Workers over which parameters are divided."""
        if self.setup.strategy in GATHERS:
            return self.workers
        setup = self.setup
        return self.per_node if setup.strategy == Sharding.HYBRID else self.split // setup.context * setup.experts

    @property
    def replicas(self) -> float:
        """Replicas of the model."""
        return max(self.workers / self.split, 1)

    @cached_property
    def parts(self) -> Mapping[Part, Reals]:
        """Seconds of a step by its parts, [DRAWS] each."""
        setup, chip, spreads = self.setup, self.chip, self.spreads
        peak = chip.peak(self.precision) * self._drawn("peak", self.part_of_peak)
        carried = np.minimum(self._drawn("carried", spreads.carried), 1.0)
        device = self.samples * self.model.flops / self.split / peak
        if self.laid_out:
            host = self._drawn("host", spreads.host_of_layer) * self._layers / setup.pipeline
        else:
            host = self._drawn("host", spreads.host) * (1 if self.model.kind == DECODER else 0.1)
        nodes = max(self.workers / self.per_node, 1)
        tensor = self._tensor_seconds(carried, nodes)
        micro = np.maximum(device, host) + tensor
        computing = setup.accumulation * np.maximum(device, host)
        return {
            Part.COMPUTING: computing,
            Part.TENSOR: setup.accumulation * tensor,
            Part.BUBBLE: (setup.pipeline - 1) / setup.interleaved * micro,
            Part.LINK: np.maximum(self._link_seconds() / carried - 0.5 * computing, 0.0),
            Part.START: self._drawn("start", spreads.start) * (1 + math.log2(nodes)),
        }

    @property
    def per_node(self) -> int:
        """Workers of a node."""
        return self.setup.per_node or min(NODE, self.workers)

    def _link_rate(self, across: bool) -> float:
        """Return bytes per second of one worker's link, across nodes or inside one."""
        inside = self.chip.inside
        if across or inside is None:
            link = self.setup.link
            return link.bytes_per_second / self.per_node if link else link_named(LINK).bytes_per_second
        return inside.bytes_per_second

    @property
    def laid_out(self) -> bool:
        """Whether the setup states how the model is split."""
        return self.setup.tensor * self.setup.pipeline > 1

    @property
    def _layers(self) -> float:
        """Number of layers of 12 width² weights each, if the width is `WIDTH_PER_LAYER` times the number of layers."""
        return float(np.cbrt(self.model.parameters / 12 / WIDTH_PER_LAYER**2))

    def _tensor_seconds(self, carried: Reals, nodes: float) -> Reals:
        """Return the time of a stage's all-reduces in its tensor group for a mini-batch, s: four rings for each layer,
        over all links of each node if the group spans nodes."""
        group, sums = self.setup.tensor, 4 * self._layers / self.setup.pipeline
        tokens = self.samples * (1 if self.model.unit == "tokens/s" else self.model.tokens) / self.setup.context
        across = group > self.per_node
        sent = sums * tokens * WIDTH_PER_LAYER * self._layers * 2 * 2 * (group - 1) / group
        link = self._link_rate(across) * (self.per_node if across else 1)
        seconds = sent / (link * carried)
        hops = 2 * sums * (group - 1)
        if self.setup.pipeline > 1 and nodes > 1:
            return np.asarray(seconds + hops * self._drawn("hop of stages", self.spreads.hop_of_stages))
        return np.asarray(seconds + hops * self._drawn("hop", self.spreads.hop) if across else seconds)

    def _link_seconds(self) -> float:
        """Return the time of gradients or parameters on the link at its full rate, s."""
        setup = self.setup
        nodes = math.ceil(self.workers / self.per_node)
        precision = self.precision if self.model.kind == DECODER else "half"
        sent = traffic(replace(setup, nodes=nodes, per_node=self.per_node, model=self.model, precision=precision))
        if sent is not None:
            link = setup.link.bytes_per_second if setup.link else self._link_rate(across=True) * self.per_node
            # A node's link carries the gradients of those parts of a split model that the node holds.
            part = min(self.per_node / self.split / setup.experts, 1) if sent.name == GRADIENTS else 1
            if self.laid_out and sent.name == GRADIENTS:
                part *= 2  # frameworks with split models (Megatron, nanotron) reduce gradients in 32 bits
            return sent.passed * sent.passes / link * part
        if self.workers < 2 or self.chip.inside is None:
            return 0.0
        return 2 * BYTES[precision] * self.model.parameters / self.chip.inside.bytes_per_second

    def _from_precision(self, one: Reached) -> float:
        """Return the factor from the part of the peak in a published precision to that in the setup's."""
        return FP8_PEAK_RATIO ** ((self.precision == "fp8") - (one.setup.precision == "fp8"))

    @cached_property
    def part_of_peak(self) -> Spread:
        """Fraction of the peak that published rates reach: of the same model if any; similar chips weigh more."""
        rows = [one for one in self.published if one.model.kind == self.model.kind]
        own = [one for one in rows if one.model.name.lower() == self.model.name.lower()]
        rows = [one for one in own or rows if one.setup.precision == self.precision] or own or rows
        rows = [one for one in rows if one.workers <= FEW] or rows
        away = [math.log(one.chip.peak("half") / self.chip.peak("half")) for one in rows]
        reached = [
            math.log(one.rate * one.model.flops / one.chip.peak(one.setup.precision) * self._from_precision(one))
            + self.spreads.faster * farther
            for one, farther in zip(rows, away, strict=True)
        ]
        weights = [math.exp(-abs(farther) / self.spreads.near) for farther in away]
        middle = float(np.average(reached, weights=weights))
        apart = float(np.sqrt(np.average((np.array(reached) - middle) ** 2, weights=weights))) if not own else 0.0
        return Spread(math.exp(middle), math.hypot(self.spreads.peak, apart))

    @cached_property
    def seconds(self) -> Reals:
        """Seconds of a step, [DRAWS]."""
        return np.asarray(sum(self.parts.values()))

    @property
    def step_samples(self) -> float:
        """Samples (or tokens) of a step."""
        return self.samples * self.setup.accumulation * self.replicas

    def interval(self, values: Reals) -> tuple[float, float, float]:
        """Return the lower end, the median and the upper end of draws."""
        low, middle, high = np.quantile(values, [(1 - INTERVAL) / 2, 0.5, (1 + INTERVAL) / 2])
        return float(low), float(middle), float(high)

    @property
    def rate(self) -> tuple[float, float, float]:
        """Samples (or tokens) per second: lower end, median, upper end."""
        return self.interval(self.step_samples / self.seconds)

    @property
    def wall(self) -> Part:
        """The part that takes most of a step."""
        return max(self.parts, key=lambda part: float(np.median(self.parts[part])))

    @cached_property
    def with_large_batch(self) -> Expectation | None:
        """The expectation for a `LARGE` mini-batch, if none is given and its rate is above the interval; else None."""
        setup = self.setup
        if setup.batch or setup.bare_batch or setup.global_batch:
            return None
        if self.split > 1:
            large = replace(setup, accumulation=LARGE * setup.accumulation)
        else:
            large = replace(setup, batch=LARGE * BATCHES[self.model.kind])
        other = replace(self, setup=large)
        return other if other.rate[1] > self.rate[2] else None

    def words_for(self, part: Part) -> str:
        """Return a part in words; communication also with its place, between or inside nodes."""
        if part != Part.LINK:
            return str(part)
        return f"{part} {'between nodes' if self.workers > self.per_node else 'inside the node'}"

    def decisive(self) -> tuple[str, float]:
        """Return the input whose measurement would narrow the interval most, and the ratio of new to old width."""
        low, _, high = self.rate
        widths = {}
        for name in ("peak", "carried", "start", "host"):
            low_, _, high_ = replace(self, known=frozenset({name})).rate
            widths[name] = math.log(high_ / low_) / math.log(high / low)
        best = min(widths, key=lambda name: widths[name])
        return best, widths[best]


def expectation(setup: Setup, *, spreads: Spreads = SPREADS, without: str = "") -> Expectation:
    """Return the expectation of a setup; `InputError` says what it lacks. Published rates whose source contains
    `without` are excluded."""
    model, chip = setup.model, setup.chip
    unknown = f" ({', '.join(setup.unknown)}: not known)" if setup.unknown else ""
    if model is None:
        raise InputError(f"no model is named{unknown}: one of those in the catalog, or its size (8b)")
    if chip is None:
        several = "several kinds of chips: give those of one"
        raise InputError(several if setup.chips else f"no chip is named{unknown}: h100, a100, mi300x, ...")
    if model.kind == VISION and any(re.match("cifar|mnist", word, re.IGNORECASE) for word in setup.unknown):
        raise InputError(
            f"{model.name}'s operations are known for large images ({model.source}), not for CIFAR's or MNIST's"
        )
    workers = setup.workers or 1
    if setup.batch_tokens:
        length = setup.tokens or (model.tokens if model.tokens > 1 else TOKENS)
        setup = replace(setup, global_batch=setup.batch_tokens / length)
    if setup.bare_batch and setup.tensor * setup.pipeline > 1:  # what splits models counts the batch of all
        setup = replace(setup, global_batch=setup.global_batch or setup.bare_batch, bare_batch=None)
    assumed = []
    if not (setup.batch or setup.bare_batch or setup.global_batch):
        unit = "sequences" if model.kind == DECODER else "samples"
        assumed.append(f"{BATCHES[model.kind]:g} {unit} in each worker's mini-batch")
    if model.unit == "tokens/s" and not setup.tokens:
        assumed.append(f"sequences of {TOKENS:,} tokens")
    if workers > (setup.per_node or NODE) and not setup.link:
        assumed.append("a link of 200 Gbit/s for each GPU between nodes")
    if setup.link and MIN_NIC <= setup.link.bytes_per_second < MAX_NIC and workers > (setup.per_node or NODE) > 1:
        assumed.append(f"one link of {setup.link.name} for each node (8xndr: one of NDR for each of 8 GPUs)")
    if not setup.precision:
        assumed.append("16 bits")
    rows = [one for one in reached() if not without or without not in one.source]
    one = Expectation(setup, model, chip, workers, tuple(assumed), rows, spreads)
    if setup.global_batch and setup.accumulation == 1 and (setup.batch or setup.pipeline > 1):
        # The global mini-batch is larger than the workers' mini-batches: the rest is gradient accumulation.
        each = (setup.batch or BATCHES[model.kind]) * one.replicas
        return replace(one, setup=replace(setup, accumulation=max(round(setup.global_batch / each), 1)))
    return one
