"""Why visits ended, and what they took of what was planned: of cells that ended, by hand."""

import pandas as pd
import pytest

from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.trust_question import _ended_rows, planned_rows


def study() -> StudyTables:
    """Four cells, of which one never ended and one has no plan; b shared half of its time with another cell."""
    runs = pd.DataFrame({
        "cell": list("abcd"), "hardware": "cpu", "kind": "train", "nodes": [4, 1, 1, 1], "workers_per_node": 1,
        "ended": ["precise", "precise", None, ""], "planned": [100.0, 50.0, 70.0, float("nan")],
        "planned_low": [90.0, 10.0, 60.0, 0.0], "planned_high": [110.0, 30.0, 80.0, 0.0],
        "duration": [110.0, 40.0, 75.0, 1.0],
    })  # fmt: skip
    visits = pd.DataFrame({
        "cell": ["a", "a", "a", "b", "c"], "visit": [1, 1, 2, 1, 1], "rank": [0, 1, 0, 0, 0],
        "duration": [60.0, 60.0, 50.0, 40.0, 75.0], "concurrent": [0, 0, 0, 1, 0],
    })  # fmt: skip
    return StudyTables({"runs": runs, "visits": visits})


def test_cells_and_visits_are_counted_of_those_that_ended() -> None:
    (row,) = _ended_rows(study())
    assert (row["hardware"], row["ended"], row["cells"], row["visits"]) == ("cpu", "precise", 2, 3)


def test_node_hours_are_those_of_the_largest_cell_and_shared_time_is_shared() -> None:
    one, four = planned_rows(study())
    assert (four["nodes"], four["planned"], four["duration"], four["as_planned"]) == (4, 100, 110, 1)
    assert (four["used"], four["idle"]) == (pytest.approx(4 * 110 / 3600), 0)
    assert (one["nodes"], one["planned_low"], one["planned_high"], one["as_planned"]) == (1, 10, 30, 0)
    assert one["used"] == pytest.approx(4 * 40 / 2 / 3600)
    assert one["idle"] == pytest.approx((4 * 40 / 2 - 40) / 3600)
