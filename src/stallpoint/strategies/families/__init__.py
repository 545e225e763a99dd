"""The registry of strategies and their presets.

To add a strategy, add a subclass of `strategy.Strategy` to `_CORE_STRATEGIES` (docs/extending/strategy.md).
"""

from stallpoint.extras import with_others
from stallpoint.strategies.families import (
    averaging_family,
    data_parallel_family,
    one_forward_one_backward_family,
    pipeline_family,
    servers_family,
    sharded_family,
    split_outputs_family,
)
from stallpoint.strategies.strategy import Strategy

_CORE_STRATEGIES: tuple[type[Strategy], ...] = (
    data_parallel_family.DataParallel,
    sharded_family.ShardedOptimiser,
    sharded_family.Sharded,
    sharded_family.HybridSharded,
    averaging_family.Averaging,
    averaging_family.Gossip,
    servers_family.Elastic,
    servers_family.Asynchronous,
    servers_family.Downpour,
    pipeline_family.Pipeline,
    one_forward_one_backward_family.OneForwardOneBackward,
    split_outputs_family.SplitOutputs,
)
STRATEGIES = tuple(with_others("strategies", {one.value: one for one in _CORE_STRATEGIES}).values())
"""Strategies in the order of tables and documentation, then those of other packages (``stallpoint.strategies``)."""
PREDICTING_MODULES = sorted({f"stallpoint.{one.iteration.partition(':')[0]}" for one in STRATEGIES})
"""Modules that predict the strategies, loaded by name."""
