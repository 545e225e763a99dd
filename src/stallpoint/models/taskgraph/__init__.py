"""The DAG model of synchronous SGD (Shi et al. 2018, section IV): one road from a preset to a prediction.

`builders` and `sharded` write the task graph of a preset's iteration, `tasks` says when each task runs. See
docs/models/dag.md and docs/models/sharding.md.
"""

from stallpoint.models.taskgraph.builders import Costs, Message, equation, gradients_ready, iteration_tasks
from stallpoint.models.taskgraph.sharded import ShardedCosts, runs_of, sharded_tasks
from stallpoint.models.taskgraph.tasks import Kind, Schedule, Task, schedule

__all__ = [
    "Costs", "Kind", "Message", "Schedule", "ShardedCosts", "Task", "equation", "gradients_ready", "iteration_tasks",
    "runs_of", "schedule", "sharded_tasks",
]  # fmt: skip
