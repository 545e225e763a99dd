import re
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
from report_samples import LEFT_OUT, NOTHING, Tables, of_two_charts
from table_vi import TABLE_VI

from stallpoint.explain.importing import describe_traced
from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.target_findings import lead
from stallpoint.networks import find
from stallpoint.networks.description import describe
from stallpoint.report.charts import CHARTS
from stallpoint.report.charts.labels import with_interval
from stallpoint.report.charts.time_to_target_chart import best
from stallpoint.report.exhibits.published import compare
from stallpoint.report.html import MAX_ROWS, table
from stallpoint.report.report import answer, curves, networks, not_measured, sure, timing, write_report
from stallpoint.report.sections.data_section import raw_tables
from stallpoint.report.sections.why_section import bounded
from stallpoint.text import interval


def words(page: str) -> str:
    """What a reader sees: the text without scripts, styles and tags."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", bare)))


@pytest.fixture(scope="module")
def text(report: Path) -> str:
    """The page without its contents, which have the titles too."""
    return words(report.read_text(encoding="utf-8").split("</nav>")[1])


# --- what is said ---------------------------------------------------------------------------------


def test_the_answer_comes_first_then_charts_in_order_then_the_rest(text: str) -> None:
    titles = [f"{network} on {hardware}" for network in ("alexnet", "googlenet") for hardware in ("cpu", "gpu")]
    titles += ["How sure this is", *(chart.title for chart in CHARTS.values())]
    titles += ["Every curve", "What the timing of layers costs", "Could not run", "Excluded from the matrix"]
    titles += ["made-up CPU", "Raw tables"]
    places = [text.index(f" {title} ") for title in titles]
    assert places == sorted(places)


def test_each_curve_stands_with_its_interval_and_cause(text: str, conclusions: Conclusions) -> None:
    for curve in conclusions["curves"]:
        speedup = curve["best_speedup"]
        assert interval(speedup) in text
        assert curve["dominant_cause"] in text
    assert "not reached up to n = 8 (beyond 4 predicted, not measured)" in text  # weak scaling does not stall


def test_each_target_stands_on_the_first_screen_and_with_all_that_reached_it(
    text: str, conclusions: Conclusions, tables: Tables
) -> None:
    assert len(conclusions["targets"]) == 8
    for target in conclusions["targets"]:
        assert text.count(lead(target)) == 2
    for told in with_interval(best(tables), "time", "s"):
        assert told in text


def card(conclusions: Conclusions, *changes: dict[str, object]) -> str:
    """The text of the card of one answer, or of several, changed."""
    found = [{**conclusions["answers"][0], **change} for change in changes]
    return words(answer({**conclusions, "answers": found}, {})[0].html)


def test_a_card_says_what_was_measured_and_apart_what_is_predicted(conclusions: Conclusions) -> None:
    first = conclusions["answers"][0]
    beyond = {"state": "gains", "from": 2, "to": 16, "stall_ranks": None, "probability": 0.95, "why": ""}
    text = card(conclusions, {"state": "scales", "ranks": 2, "beyond": beyond})
    assert "alexnet gains up to 2 nodes on cpu." in text
    order = [
        "Scales to 2 nodes measured",
        " samples/s ",
        " % efficient, ",
        "largest loss",
        "beyond 2 nodes predicted to",
    ]
    places = [text.index(part) for part in [*order, f"{first['scaling']} scaling, B = 64, wfbp"]]
    assert places == sorted(places)
    withheld = {**beyond, "state": "withheld", "why": "the model is 57 % off"}
    assert "beyond 2 nodes withheld: the model is 57 % off" in card(conclusions, {"beyond": withheld})


def test_a_withheld_answer_says_why_and_nothing_is_called_measured(conclusions: Conclusions) -> None:
    text = card(conclusions, {"state": "withheld", "why_withheld": "cells that do the same differ"})
    assert "Withheld " in text
    assert "cells that do the same differ" in text
    assert "Withheld measured" not in text


def test_further_answers_of_a_card_take_a_line_each(conclusions: Conclusions) -> None:
    text = card(conclusions, {}, {"scaling": "weak", "storage": "tar", "batch": 32})
    assert "weak scaling, b = 32, wfbp, tar Scales to 4 nodes: " in text


def test_how_sure_an_answer_is_stands_on_its_card(conclusions: Conclusions) -> None:
    assert "known to ± " in card(conclusions, {})
    of_two = {"median_error": {"value": 0.057}, "points": 2}
    assert "; model 5.7 % off (median of 2 measured points); " in card(conclusions, {"model_error": of_two})
    assert "; model not checked; " in card(conclusions, {"model_error": None})


SPEEDUP = {"value": 1.8, "low": 1.7, "high": 1.9}
CONTROL = {
    "hardware": "cpu", "network": "alexnet", "worker_batch": 64, "first": "compute", "second": "strong, wfbp",
    "agrees": True, "ratio": {"value": 1.02, "low": 0.98, "high": 1.05},
}  # fmt: skip
DISTURBED = {"hardware": "cpu", "reason": "steal", "iterations": 3, "cells": 2, "kept": 1}


PLANNED = {
    "hardware": "cpu", "kind": "train", "nodes": 4, "workers_per_node": 1, "cells": 3, "cells_as_planned": 2,
    "used_seconds": 45.0,
    "used_node_hours": 0.05, "idle_node_hours": 0.0, "planned_seconds": {"value": 60.0, "low": 30.0, "high": 120.0},
}  # fmt: skip


def test_how_sure_it_is_has_a_section(conclusions: Conclusions) -> None:
    points = [{"ranks": 1}, {"ranks": 2, "speedup": SPEEDUP, "half_width": 0.056}]
    curve = {**conclusions["curves"][0], "measured": points}
    ended = [{"hardware": "cpu", "ended": "budget", "cells": 7, "visits": 25}]
    found = {**conclusions, "curves": [curve], "ended": ended, "disturbances": [DISTURBED], "controls": [CONTROL]}
    found["planned"] = [PLANNED]
    text = words(sure(found).html)
    assert "cpu train 4 3 60 (30–120) 45 0.05 0 2" in text
    assert "cpu 7 25 budget used up" in text
    assert "2 1.8 (1.7–1.9) ± 5.6 %" in text
    assert "cpu steal 3 2 2 excluded, 1 kept for want of others" in text
    assert "cpu alexnet 64 compute strong, wfbp 1.0 (0.98–1.1) yes" in text
    assert "Verdicts on" not in text
    differing = {**found, "controls": [{**CONTROL, "agrees": False}]}
    assert "Verdicts on cpu are withheld: cells that do the same differ." in words(sure(differing).html)
    undisturbed = words(sure({**found, "disturbances": [], "controls": []}).html)
    assert "None were found." in undisturbed
    assert "no two cells on one worker do the same" in undisturbed
    assert "Nothing was visited" in sure(NOTHING).html


def test_what_makes_verdicts_unsure_is_said_above_them(conclusions: Conclusions) -> None:
    found = answer({**conclusions, "controls": [{**CONTROL, "agrees": False}], "disturbances": [DISTURBED]}, {})[0].html
    assert '<a href="#sure">cpu: verdicts are withheld, as cells that do the same differ</a>' in found
    assert '<a href="#sure">3 iterations disturbed, 1 of them count for want of others</a>' in found


def test_warnings_lead_to_what_is_behind_them(conclusions: Conclusions) -> None:
    entry, *_ = conclusions["instrumentation"]
    wrong = {**entry, "warnings": ["layers add up to 90.0 % of the forward pass"]}
    found = answer({**conclusions, "instrumentation": [wrong], "imported": [{}, {}]}, {})[0].html
    assert f'<a href="#cells">{len(conclusions["failed"])} cells could not run</a>' in found
    assert '<a href="#cells">2 cells imported, not measured here</a>' in found
    assert '<a href="#timing">alexnet on cpu: layers add up to 90.0 % of the forward pass</a>' in found


def test_networks_stand_with_their_size_and_the_published_values() -> None:
    layers = pd.DataFrame(describe(find("alexnet")))
    cell = {"published": 6, "digits": 1, "differs": "They <err>."}
    theirs = {"source": "A & B", "rows": [{"property": "convolutional layers", "alexnet": cell}]}
    published = pd.DataFrame(compare(theirs, layers, {}, pd.DataFrame({"network": []})))
    html = networks({"network_layers": layers, "published": published}).html
    assert "alexnet 24 60,965,224 244 MB 0.724 billion 7 relu, 5 convolution" in words(html)
    assert "A & B, beside ours" in words(html)
    assert "convolutional layers alexnet 6 5 They <err>." in words(html)
    assert html.count('<tr data-network="alexnet">') == 2


def test_what_traces_do_not_tell_of_a_network_is_a_dash() -> None:
    known = pd.DataFrame(describe(find("alexnet")))
    traced = pd.DataFrame(describe_traced("nobodys", [str(TABLE_VI)]))
    found = words(networks({"network_layers": pd.concat([known, traced])}).html)
    assert "alexnet 24 60,965,224 244 MB 0.724 billion" in found
    assert "nobodys 21 - 244 MB - " in found


def test_captions_are_those_of_the_registry(text: str) -> None:
    for chart in CHARTS.values():
        assert chart.caption in text


def test_what_was_not_measured_is_said_with_the_reason(conclusions: Conclusions) -> None:
    html = not_measured(conclusions, LEFT_OUT).html
    assert "out of memory on rank 0" in words(html)
    assert "B is not divisible by the ranks 2 network alexnet, nodes 3, batch 64" in words(html)
    assert '<tr data-network="alexnet" data-hardware="gpu" data-storage="local"><th scope="row">train/' in html


def test_the_cost_of_timing_and_the_closure_stand_there_with_warnings(conclusions: Conclusions) -> None:
    entries = conclusions["instrumentation"]
    entry = entries[0]
    found = words(timing(entries).html)
    assert f"alexnet cpu {entry['cells']} 3 µs 0.1 % 99.9 % 100.0 %" in found
    assert "warning" not in found
    wrong = {**entry, "forward_closure": 0.9, "warnings": ["layers add up to 90.0 % of the forward pass"]}
    assert "warning: alexnet on cpu: layers add up to 90.0 % of the forward pass" in words(timing([wrong]).html)


def test_an_unbounded_interval_is_infinite(conclusions: Conclusions) -> None:
    curve = {**conclusions["curves"][0], "reached": True, "stall_ranks": {"value": 4.0, "low": 2.0, "high": None}}
    assert "4 (2–∞)" in words(curves({**conclusions, "curves": [curve]}).html)


def test_a_study_that_measured_nothing_has_a_page_that_says_so(tmp_path: Path) -> None:
    write_report(NOTHING, {}, tmp_path / "report.html")
    text = words((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "No scaling curve was measured" in text
    assert "every cell of the study ran" in text
    assert "No training job ran" in text
    assert "No job recorded its environment" in text


# --- the page as a file ---------------------------------------------------------------------------


def test_half_a_page_is_never_there(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_report(NOTHING, {}, tmp_path / "report.html", study="half a character: \ud83d")
    assert not list(tmp_path.iterdir())


def test_names_cannot_break_the_page(tables: Tables, conclusions: Conclusions, tmp_path: Path) -> None:
    evil = '"></script><script>alert(1)</script>'
    named = {name: frame.replace("cpu", evil) for name, frame in of_two_charts(tables).items()}
    about_hardware = ("curves", "targets", "accuracy_stalling")
    renamed = {name: [{**one, "hardware": evil} for one in conclusions[name]] for name in about_hardware}
    write_report({**conclusions, **renamed}, named, tmp_path / "report.html", study=evil)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert '=""></script' not in page


def test_the_page_is_one_small_file_and_the_same_twice(
    report: Path, tables: Tables, conclusions: Conclusions, tmp_path: Path
) -> None:
    once, again = (tmp_path / name for name in ("once.html", "again.html"))
    of_one_answer: Conclusions = {**conclusions, "answers": conclusions["answers"][:1]}
    for path in (once, again):
        write_report(of_one_answer, of_two_charts(tables), path, study="laptop", excluded=LEFT_OUT)
    assert again.read_bytes() == once.read_bytes()
    assert report.stat().st_size < 2e6
    assert list(report.parent.iterdir()) == [report]


def test_the_page_loads_nothing(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert not re.search(r"""\b(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert "default-src 'none'" in page


# --- growing with the number of charts, not of rows -----------------------------------------------


def test_a_large_chart_keeps_whole_panels_of_everything_there_is_to_choose() -> None:
    rows = [
        {"panel": f"{network} {i}", "network": network, "nodes": n, "basis": "measured"}
        for network in ("alexnet", "googlenet") for i in range(50) for n in range(10)
    ]  # fmt: skip
    chart, left_out = bounded({"datasets": {"a": rows, "b": rows[:1]}}, max_rows=200)
    kept = pd.DataFrame(chart["datasets"]["a"])
    assert kept.groupby("panel").size().eq(10).all()
    assert kept.groupby("network")["panel"].nunique().tolist() == [10, 9]
    assert left_out == 100 - 19
    assert bounded({"datasets": {"a": rows}}, max_rows=1000) == ({"datasets": {"a": rows}}, 0)


def test_one_panel_that_is_too_large_stays() -> None:
    chart = {"datasets": {"a": [{"panel": "only", "nodes": n} for n in range(10)]}}
    assert bounded(chart, max_rows=5) == (chart, 0)


def test_raw_tables_hold_some_rows_of_each_and_name_the_file(tables: Tables) -> None:
    many = pd.concat([tables["causes"].assign(network=f"network{i}") for i in range(100)], ignore_index=True)
    section, data = raw_tables({"causes": many})
    assert len(data["causes"]["rows"]) == MAX_ROWS
    assert {row[0] for row in data["causes"]["rows"]} == {f"network{i}" for i in range(100)}
    assert f"{MAX_ROWS} of {len(many):,} rows" in words(section.html)
    assert "models/causes.parquet" in section.html


def test_raw_tables_say_units_and_have_no_numbers_that_json_lacks(tables: Tables) -> None:
    frame = tables["stalling"].assign(crossing_ranks=float("inf"), cost_efficient_ranks=float("nan"))
    _, data = raw_tables({"stalling": frame, "storage_rates": tables["storage_rates"]})
    names = [column["name"] for column in data["stalling"]["columns"]]
    first = dict(zip(names, data["stalling"]["rows"][0], strict=True))
    assert first["crossing_ranks"] == "∞"
    assert first["cost_efficient_ranks"] is None
    units = {column["name"]: column["unit"] for column in data["storage_rates"]["columns"]}
    assert units["latency_p50"] == "s"


def test_a_long_table_is_cut_and_says_where_the_rest_is() -> None:
    html = table(["a", "b"], [[str(i), ""] for i in range(MAX_ROWS + 1)], file="there.json")
    assert html.count("<tr") == MAX_ROWS + 1
    assert f"The first {MAX_ROWS} of {MAX_ROWS + 1} rows; there.json has all." in words(html)


def test_every_section_is_in_a_group_of_the_menu(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    menu = re.search(r'<nav aria-label="Contents">(.*?)</nav>', page, flags=re.DOTALL)
    assert menu
    assert set(re.findall(r'href="#([^"]+)"', menu[1])) == set(re.findall(r'<section id="([^"]+)"', page))
    assert menu[1].count("<b>") <= 5
