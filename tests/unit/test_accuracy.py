import pandas as pd

from stallpoint.accuracy import HEAD, rows


def test_each_network_and_preset_then_networks_then_all() -> None:
    validation = pd.DataFrame(
        {
            "network": ["a", "a", "a", "b"],
            "sync": ["wfbp", "wfbp", "naive", "naive"],
            "nodes": [4, 8, 4, 4],
            "error": [0.1, -0.2, 0.0, 0.04],
            "covered": [True, False, True, True],
        }
    )
    found = rows(validation)
    assert [row[:2] for row in found] == [
        ["a", "naive"],
        ["a", "wfbp"],
        ["b", "naive"],
        ["a", "all"],
        ["b", "all"],
        ["all", "all"],
    ]
    assert {len(row) for row in found} == {len(HEAD)}
    assert found[1][2:] == ["4, 8", "1.10, 0.80", "15.0%", "19.0%", "1 of 2"]
    assert found[-1][4:] == ["7.0%", "17.0%", "3 of 4"]


def test_nothing_validated_has_no_rows() -> None:
    assert rows(pd.DataFrame(columns=["network", "sync", "nodes", "error", "covered"])) == []
