"""The DAG model of synchronous SGD (Shi et al. 2018, section IV): task graphs, their schedules and closed forms.

`graph` schedules any task graph, `template` an iteration that workers repeat, `what_if` one job under many
scenarios; `builders`, `transfers` and `by_transfer` make the jobs of the presets; `closed_forms` are eqs. (1)-(6),
which tests hold the engine to. `drawing` shows a schedule. See docs/models/dag.md.
"""

from stallpoint.models.dag.builders import Costs, Message, Stage, by_layer, s_sgd
from stallpoint.models.dag.closed_forms import (
    all_reduces,
    exposed_communication,
    gradients_ready,
    in_turn,
    input_overlapped_seconds,
    iteration_seconds,
    naive_seconds,
    sgd_seconds,
    speedup,
    wfbp_seconds,
    wfbp_seconds_by_start,
)
from stallpoint.models.dag.contended import Contended, contended
from stallpoint.models.dag.drawing import timeline
from stallpoint.models.dag.graph import Graph, Kind, Span, Task, Times, from_tasks, schedule, task_graph
from stallpoint.models.dag.template import Replicas, Template
from stallpoint.models.dag.what_if import Structure

__all__ = [
    "Contended", "Costs", "Graph", "Kind", "Message", "Replicas", "Span", "Stage", "Structure", "Task", "Template",
    "Times", "all_reduces", "by_layer", "contended", "exposed_communication", "from_tasks", "gradients_ready",
    "in_turn", "input_overlapped_seconds", "iteration_seconds", "naive_seconds", "s_sgd", "schedule", "sgd_seconds",
    "speedup", "task_graph", "timeline", "wfbp_seconds", "wfbp_seconds_by_start",
]  # fmt: skip
