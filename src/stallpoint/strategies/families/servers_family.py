"""Workers and servers that answer each worker separately: elastic averaging, asynchronous SGD and Downpour SGD."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.strategies.one_message import OneMessage, PeriodOptions
from stallpoint.strategies.options import FamilyOptions, StepOptions, check_minimum
from stallpoint.strategies.strategy import PresetEntry

if TYPE_CHECKING:
    from stallpoint.strategies.buckets import Reals


class Served(OneMessage):
    """Base of strategies whose servers answer each worker separately."""

    answered_separately = True

    @override
    def check(self) -> None:
        super().check()
        options = self.options
        if options.reduction not in ("parameter-server", "sharded-servers"):
            raise InputError(
                f"reduction: algorithm {self.value} has servers: parameter-server (one) or sharded-servers, not "
                f"{options.reduction}"
            )
        if options.backend != "mpi" or options.segment_bytes:
            raise InputError(
                f"backend: the servers of algorithm {self.value} use sockets, without segments; leave it out"
            )

    @property
    @override
    def waits(self) -> bool:
        return False

    @override
    def exchanged(self, latency: Reals, transfer: Reals, ranks: int, computing: Reals) -> tuple[Reals, Reals]:
        """Return the mean latency and transfer time of a worker's push and pull, per iteration, s.

        Each server exchanges gradients and weights with p - 1 of the p workers; one worker is in the server's process.
        Servers answer other workers while a worker computes. If the answers take longer than computing, workers wait.
        """
        import numpy as np

        total, servers = latency + transfer, self.options.servers_among(ranks)
        remote_workers = ranks if servers > 1 else ranks - 1  # a single server shares the process of a worker
        unhidden_time = (latency + servers * transfer) / remote_workers
        visible_time = np.maximum(unhidden_time, total - np.reshape(computing, (-1, 1)) / self.frequency)
        waited_share = remote_workers / ranks * np.divide(visible_time, total, out=np.ones_like(total), where=total > 0)
        return super().exchanged(latency * waited_share, transfer * waited_share, ranks, computing)


@dataclass(frozen=True)
class ElasticOptions(PeriodOptions):
    """Options of elastic averaging."""

    elasticity: float = 0.9
    """Share of the distance between weights and centre that both move in an exchange, times the number of workers."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.elasticity <= 1:
            raise InputError(f"elasticity: {self.elasticity} is not above 0 and at most 1")


class Elastic(Served):
    """Elastic averaging."""

    value = "elastic"
    meaning = (
        "each worker updates its own weights; every period iterations these and the server's centre move "
        "towards each other"
    )
    own = ElasticOptions
    training = "measure.synchronisation.served:Elastic.begin"
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "elastic-averaging": PresetEntry(
            "after every 10 iterations a worker's weights and the server's centre move towards each other, by 0.9/n "
            "of their distance; the centre is what is trained",
            "Zhang, Choromanska & LeCun (2015), algorithm 1 (asynchronous EASGD)",
            {"reduction": "parameter-server", "start": "after-backward", "period": 10},
            look=("sky", "square"),
        ),
    }


@dataclass(frozen=True)
class AsynchronousOptions(FamilyOptions):
    """Options of asynchronous SGD."""

    gradients_per_update: int = 1
    """Number of gradients that a server collects for an update; 0: as many as there are workers."""
    staleness_bound: int | None = None
    """Maximum number of iterations by which a worker may be ahead of the slowest worker; None: no bound."""
    server_optimiser: str = "recipe"

    def __post_init__(self) -> None:
        gradients, bound = self.gradients_per_update, self.staleness_bound
        if gradients < 0:
            raise InputError(f"gradients_per_update: {gradients} is below 0; 0 is as many as workers")
        if bound is not None and bound < 0:
            raise InputError(f"staleness_bound: {bound} is below 0; 0 is synchronous, and without it there is none")
        if bound is not None and gradients != 1:
            raise InputError("staleness_bound: counts updates of single gradients, so gradients_per_update is 1")


class Asynchronous(Served):
    """Asynchronous SGD."""

    value = "asynchronous"
    meaning = "each worker sends its gradient to a server, which updates, and gets the server's weights"
    own = AsynchronousOptions
    updates_on_server = True
    training = "measure.synchronisation.served:Asynchronous.begin"
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "asynchronous": PresetEntry(
            "a server updates with each gradient as it arrives, and answers with its weights; nobody waits for "
            "another. Losses are divided by n, which is the step size over the usual staleness",
            "Zhang et al. (2016), Staleness-aware async-SGD, section 3; Gupta, Zhang & Wang (2016)",
            {"reduction": "parameter-server", "start": "after-backward"},
            look=("orange", "circle"),
        ),
        "soft-synchronous": PresetEntry(
            "the same, but the server updates when it has as many gradients as there are workers, whoever sent them",
            "Gupta, Zhang & Wang (2016), 1-softsync",
            {"reduction": "parameter-server", "start": "after-backward", "gradients_per_update": 0},
            look=("vermilion", "diamond"),
        ),
        "stale-synchronous": PresetEntry(
            "asynchronous, but nobody gets more than 3 iterations ahead of the slowest worker",
            "Ho et al. (2013), Stale Synchronous Parallel",
            {"reduction": "parameter-server", "start": "after-backward", "staleness_bound": 3},
            look=("red", "triangle-right"),
        ),
        "dist-async": PresetEntry(
            "asynchronous, with a server beside every worker, each for an equal share of the weights, as MXNet's "
            "dist_async has them (there array by array, and losses are not divided by n)",
            "Chen et al. (2015), MXNet; Serebryakov (2017)",
            {"reduction": "sharded-servers", "start": "after-backward"},
            look=("violet", "circle"),
        ),
    }

    @property
    @override
    def frequency(self) -> float:
        return 1.0

    @property
    @override
    def waits(self) -> bool:
        """Return whether staleness is bounded: only then workers wait for each other."""
        return self.options.family(AsynchronousOptions).staleness_bound is not None


_DOWNPOUR_OPTIONS = {
    "reduction": "sharded-servers", "servers": 2, "start": "after-backward", "period": 5, "pull_period": 5,
    "server_optimiser": "adagrad",
}  # fmt: skip


@dataclass(frozen=True)
class DownpourOptions(PeriodOptions):
    """Options of Downpour SGD."""

    pull_period: int = 1
    """Number of iterations from one pull to the next."""
    lost_after: int = 0
    """Number of iterations after which the last worker is disconnected from the servers; 0: never."""
    server_optimiser: str = "recipe"

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum(self, 1, "pull_period")
        check_minimum(self, 0, "lost_after")

    @property
    @override
    def rounds(self) -> int:
        return math.lcm(self.period, self.pull_period)


class Downpour(Served):
    """Downpour SGD."""

    value = "downpour"
    meaning = (
        "each worker updates its own weights; every period iterations it sends the sum of its gradients to the "
        "servers, and every pull_period it takes their weights"
    )
    own = DownpourOptions
    updates_on_server = True
    training = "measure.synchronisation.served:Downpour.begin"
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "downpour": PresetEntry(
            "replicas train by themselves, send the sum of their gradients and take the weights every 5 iterations; 2 "
            "servers update with Adagrad, each its own share. The paper's replicas do not wait for a pull",
            "Dean et al. (2012), Downpour SGD, algorithm 1.1",
            _DOWNPOUR_OPTIONS,
            look=("blue", "triangle-left"),
        ),
        "downpour-with-loss": PresetEntry(
            "the same, but the last worker's connections to the servers break in the middle of a push after 20 "
            "iterations, as they do when its process is killed. Its rank, which MPI needs, computes on for itself",
            "Dean et al. (2012), section 4.1: robustness to machine failures",
            {**_DOWNPOUR_OPTIONS, "lost_after": 20},
            look=("grey", "triangle-left"),
        ),
    }

    @property
    @override
    def frequency(self) -> float:
        """Return the mean of two numbers: pushes per iteration and pulls per iteration."""
        own = self.options.family(DownpourOptions)
        return (1 / own.period + 1 / own.pull_period) / 2


def server_optimiser(options: StepOptions) -> str:
    """Return the servers' optimiser, one of the values in `presets.CHOICES`."""
    own = options.own
    return own.server_optimiser if isinstance(own, AsynchronousOptions | DownpourOptions) else "recipe"
