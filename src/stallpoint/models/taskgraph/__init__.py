"""The DAG model of synchronous SGD (Shi et al. 2018, section IV): from a preset to a predicted iteration.

`builders` and `sharded` build the task graph of a preset's iteration, `tasks` schedules it.
See docs/models/dag.md, docs/models/sharding.md, docs/models/pipeline.md and docs/models/one-weird-trick.md.
"""

from stallpoint.models.taskgraph.builders import Costs, MessageTimes, gradients_ready, iteration_tasks
from stallpoint.models.taskgraph.sharded import ShardedCosts, StageCosts, pipeline_tasks, runs_of, sharded_tasks
from stallpoint.models.taskgraph.tasks import Kind, Task, TaskSchedule, schedule

__all__ = [
    "Costs",
    "Kind",
    "MessageTimes",
    "ShardedCosts",
    "StageCosts",
    "Task",
    "TaskSchedule",
    "gradients_ready",
    "iteration_tasks",
    "pipeline_tasks",
    "runs_of",
    "schedule",
    "sharded_tasks",
]  # fmt: skip
