"""What was planned beside what was used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stallpoint.planning.durations import Sitting

if TYPE_CHECKING:
    import pandas as pd

BESIDE_VISITS = "beside visits"
"""Kind of the row with what was used, or planned, for starting processes and between visits."""
COLUMNS = (
    "plan", "kind", "hardware", "nodes", "planned_seconds", "planned_low", "planned_high", "used_seconds",
    "planned_node_hours", "used_node_hours",
)  # fmt: skip


def accounts(
    plans: Sequence[Mapping[str, Any]], visits: pd.DataFrame, sittings: Sequence[Sitting] = ()
) -> pd.DataFrame:
    """A row for each plan (from 1), kind, hardware and node count: wall time and node-hours planned and used.

    `plans` are those that were kept (`plan.read`), `visits` are records (`records.VISITS`), each of which belongs to
    the last plan before it began. Node-hours are those of the whole job, which has the nodes of its largest cell. With
    `sittings` (`durations`), a row of kind `BESIDE_VISITS` for each plan says what was no visit, nor planned as one.
    """
    import pandas as pd

    if not plans:
        return pd.DataFrame(columns=list(COLUMNS))
    keys = ["plan", "kind", "hardware", "nodes"]
    used = visits.groupby(["cell", "kind", "hardware", "nodes", "visit"], as_index=False).agg(
        began=("began", "min"), used_seconds=("duration", "max")
    )
    used = used.assign(plan=[_belongs_to(plans, began) for began in used["began"]]).query("plan > 0")
    sums = used.groupby(keys)["used_seconds"].sum().reset_index()
    planned = pd.DataFrame(
        [
            {
                "plan": number,
                "kind": row["kind"],
                "hardware": row["hardware"],
                "nodes": row["nodes"],
                **dict(zip(("planned_low", "planned_seconds", "planned_high"), row["seconds"], strict=True)),
                "planned_node_hours": row["node_hours"][1],
            }
            for number, plan in enumerate(plans, start=1)
            for row in plan["rows"]
        ]
    )
    table = planned.merge(sums, on=keys, how="outer")
    table["used_node_hours"] = table["used_seconds"] * table.apply(
        lambda row: _job_nodes(plans[int(row["plan"]) - 1], row["hardware"], row["nodes"]) / 3600, axis=1
    )
    if sittings:
        table = pd.concat([table, pd.DataFrame(_beside(plans, sittings))], ignore_index=True)
    numbers = [column for column in COLUMNS if column not in keys]
    table[numbers] = table[numbers].fillna(0.0)
    return table[list(COLUMNS)].sort_values(keys, ignore_index=True)


def _belongs_to(plans: Sequence[Mapping[str, Any]], began: datetime) -> int:
    """Number of the last plan before; 0 for none."""
    aware = began if began.tzinfo else began.replace(tzinfo=UTC)
    return sum(datetime.fromisoformat(plan["time"]) <= aware for plan in plans)


def _job_nodes(plan: Mapping[str, Any], hardware: str, nodes: int) -> int:
    """Nodes that a job of this hardware entry had."""
    own = [
        job["nodes"] for job in plan["jobs"] if job["name"] == hardware or job["name"].startswith(f"{hardware}.repeat")
    ]
    return max(own, default=nodes)


def _beside(plans: Sequence[Mapping[str, Any]], sittings: Sequence[Sitting]) -> list[dict[str, Any]]:
    rows = []
    for number, plan in enumerate(plans, start=1):
        own = [one for one in sittings if _belongs_to(plans, datetime.fromisoformat(one.began)) == number]
        ends = [sum(job["seconds"][place] for job in plan["jobs"]) for place in range(3)]
        less = [sum(row["seconds"][place] for row in plan["rows"]) for place in range(3)]
        low, typical, high = (max(0.0, end - visits) for end, visits in zip(ends, less, strict=True))
        hours = sum(job["node_hours"][1] for job in plan["jobs"]) - sum(row["node_hours"][1] for row in plan["rows"])
        rows.append(
            {
                "plan": number,
                "kind": BESIDE_VISITS,
                "hardware": "",
                "nodes": 0,
                "planned_low": low,
                "planned_seconds": typical,
                "planned_high": high,
                "planned_node_hours": max(0.0, hours),
                "used_seconds": sum(one.wall - one.visiting for one in own),
                "used_node_hours": sum((one.wall - one.visiting) * one.nodes for one in own) / 3600,
            }
        )
    return rows
