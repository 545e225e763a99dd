"""Headings of charts say what is drawn, of measured points alone."""

import pandas as pd
import pytest
import synthetic

from stallpoint import models
from stallpoint.charts import CHARTS
from stallpoint.charts.findings import finding
from stallpoint.charts.render import spec
from stallpoint.models.answers.what_if import scenarios


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return models.fit(synthetic.study(), nodes=[8], scenarios=scenarios([{"bandwidth": [2, 10]}]))


def test_the_fastest_measured_preset_leads(tables: dict[str, pd.DataFrame]) -> None:
    predictions = tables["predictions"]
    largest = predictions[predictions["measured_iteration"].notna() & (predictions["ranks"] > 1)]
    said = finding("speedup", tables)
    assert said.startswith("alexnet is ")
    assert f"on {largest['ranks'].max()} workers" in said
    assert "on 8 workers" not in said, "nobody measured 8"
    known = predictions["measured_iteration"].notna()
    for preset, seconds in (("wfbp", 1e-9), ("naive", 1e9)):
        planted = (predictions["sync"] == preset) & known
        changed = predictions.assign(measured_iteration=predictions["measured_iteration"].mask(planted, seconds))
        assert "(wfbp)" in finding("speedup", tables | {"predictions": changed})


def test_the_largest_part_is_named_with_its_share(tables: dict[str, pd.DataFrame]) -> None:
    path = tables["critical_path"]
    planted = path.assign(share=path["share"].where(path["part"] != "update", 0.93))
    assert "93% of an iteration is update" in finding("critical-path", tables | {"critical_path": planted})


def test_a_cause_is_named_only_where_it_stands_out(tables: dict[str, pd.DataFrame]) -> None:
    causes = tables["causes"].assign(verdict="not distinguishable")
    assert finding("causes", tables | {"causes": causes}).startswith("What costs most on ")
    planted = causes.assign(verdict=causes["verdict"].where(causes["cause"] != "straggling", "dominant"))
    assert "loses most to straggling" in finding("causes", tables | {"causes": planted})


def test_nothing_is_said_without_measurements() -> None:
    assert {finding(name, {}) for name in CHARTS} == {""}
    empty = {"predictions": pd.DataFrame(), "causes": pd.DataFrame()}
    assert finding("causes", empty) == ""


def test_every_sentence_is_of_a_chart_that_is_drawn(tables: dict[str, pd.DataFrame]) -> None:
    said = {name: finding(name, tables) for name in CHARTS}
    assert all(said[name] for name in ("speedup", "critical-path", "causes", "what-if", "free-communication"))
    for name, sentence in said.items():
        if sentence:
            assert "Nothing to draw" not in str(spec(name, tables))
