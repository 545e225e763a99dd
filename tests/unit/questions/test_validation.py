import pandas as pd

from stallpoint.questions.validation_question import HEAD, repeatability, rows


def test_each_network_and_preset_then_networks_then_all() -> None:
    validation = pd.DataFrame(
        {
            "network": ["a", "a", "a", "b"],
            "sync": ["wfbp", "wfbp", "naive", "naive"],
            "ranks": [4, 8, 4, 4],
            "error": [0.1, -0.2, 0.0, 0.04],
            "error_computing": [0.03, -0.05, 0.0, 0.04],
            "error_communication": [0.05, -0.15, 0.0, 0.0],
            "covered": [True, False, True, True],
        }
    )
    found = list(rows(validation))
    assert [row[:2] for row in found] == [
        ["a", "naive"],
        ["a", "wfbp"],
        ["b", "naive"],
        ["a", "all"],
        ["b", "all"],
        ["all", "all"],
    ]
    assert {len(row) for row in found} == {len(HEAD)}
    assert found[1][2:] == ["4, 8", "1.10, 0.80", "15.0%", "19.0%", "-1.0% -5.0% +1.0%", "1 of 2"]
    assert found[-1][4:] == ["7.0%", "17.0%", "+0.5% -2.5% +0.5%", "3 of 4"]


def test_nothing_validated_has_no_rows() -> None:
    assert list(rows(pd.DataFrame(columns=["network", "sync", "nodes", "error", "covered"]))) == []


def test_what_differs_between_jobs_that_measured_the_same_is_said() -> None:
    differ = [0.02, 0.04, float("nan"), 0.12]
    said = repeatability(pd.DataFrame({"repeats_differ": differ, "repeats": [2, 2, 1, 2]}))
    assert "by 4.0% (median) and 10.4% (90th percentile; 3 of 4 combinations" in said
    assert said.endswith("about 2.0% and 5.2%."), "half, with two repeats"
    assert repeatability(pd.DataFrame({"repeats_differ": [float("nan")], "repeats": [1]})) == ""
