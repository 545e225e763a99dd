import re
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
from report_samples import LEFT_OUT, NOTHING, Tables

from stallpoint.charts import CHARTS
from stallpoint.conclusions.numbers import Conclusions
from stallpoint.networks import find
from stallpoint.networks.description import describe
from stallpoint.published import compare
from stallpoint.report import answer, curves, networks, not_measured, timing, write_report
from stallpoint.report.evidence import bounded
from stallpoint.report.html import MOST_ROWS, table
from stallpoint.report.raw_tables import raw_tables


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
    titles += [chart.title for chart in CHARTS.values()]
    titles += ["Every curve", "What the timing of layers costs", "Could not run", "Left out of the matrix"]
    titles += ["made-up CPU", "Raw tables"]
    places = [text.index(f" {title} ") for title in titles]
    assert places == sorted(places)


def test_each_curve_stands_with_its_interval_and_cause(text: str, conclusions: Conclusions) -> None:
    for curve in conclusions["curves"]:
        speedup = curve["best_speedup"]
        assert f"{speedup['value']:.3g} [{speedup['low']:.3g}, {speedup['high']:.3g}]" in text
        assert curve["dominant_cause"] in text
    assert "not up to 8, measured up to 4" in text  # weak scaling does not stall


def verdicts(conclusions: Conclusions, **changes: object) -> str:
    """The text of the cards of one curve, changed."""
    curve = {**conclusions["curves"][0], "note": "", "dominant_cause": "communication", **changes}
    return words(answer({**conclusions, "curves": [curve]}, {})[0].html)


SURE = {"reached": True, "stall_nodes": {"value": 4.0, "low": 2.0, "high": 4.0}, "largest_considered": 16}


def test_a_verdict_says_where_it_stalls_how_that_is_known_and_why(conclusions: Conclusions) -> None:
    found = verdicts(conclusions, **SURE, basis="predicted", best_speedup={"value": 3.1, "low": 2.9, "high": 3.4})
    assert (
        "Stalls at n = 4 [2, 4] predicted Strong scaling: because of communication; best speedup 3.1 [2.9, 3.4], n ≤ 16"
        in found
    )


def test_a_verdict_does_not_claim_what_the_interval_leaves_open(conclusions: Conclusions) -> None:
    open_to_all = {"value": 4.0, "low": 1.0, "high": None}
    found = verdicts(
        conclusions, reached=True, stall_nodes=open_to_all, basis="measured", dominant_cause="not distinguishable"
    )
    assert "May stall at n = 4 [1, ∞] measured" in found
    assert "the interval covers every node count; causes cannot be told apart" in found


def test_a_verdict_without_a_stall_says_how_far_was_looked(conclusions: Conclusions) -> None:
    reach = {"reached": False, "stall_nodes": None, "largest_measured": 4, "largest_considered": 16}
    assert "No stall up to n = 16 measured up to 4, then predicted" in verdicts(conclusions, **reach)
    assert "most time is lost to communication" in verdicts(conclusions, **reach)
    assert "No stall up to n = 16 measured Strong" in verdicts(conclusions, **{**reach, "largest_measured": 16})
    unknown = verdicts(conclusions, **{**reach, "note": "no cell on one node"})
    assert "Not known where it stalls Strong scaling: no cell on one node" in unknown


def test_the_verdict_of_several_curves_spans_them(conclusions: Conclusions) -> None:
    first = {**conclusions["curves"][0], "note": "", "dominant_cause": "communication", "basis": "measured", **SURE}
    second = {**first, "basis": "predicted", "stall_nodes": {"value": 8.0, "low": 4.0, "high": 16.0}}
    third = {**first, "reached": False, "stall_nodes": None}
    section, specs = answer({**conclusions, "curves": [first, second, third]}, {})
    assert "Stalls at n = 4 to 8 [2, 16] partly predicted Strong scaling: 2 of 3 curves" in words(section.html)
    assert list(specs) == ["verdict-0"]


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
    published = pd.DataFrame(compare(theirs, layers, {}))
    html = networks({"network_layers": layers, "published": published}).html
    assert "alexnet 24 60,965,224 244 MB 0.724 billion 7 relu, 5 convolution" in words(html)
    assert "A & B, beside ours" in words(html)
    assert "convolutional layers alexnet 6 5 They <err>." in words(html)
    assert html.count('<tr data-network="alexnet">') == 2


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
    curve = {**conclusions["curves"][0], "reached": True, "stall_nodes": {"value": 4.0, "low": 2.0, "high": None}}
    assert "4 [2, ∞]" in words(curves({**conclusions, "curves": [curve]}).html)


def test_a_study_that_measured_nothing_has_a_page_that_says_so(tmp_path: Path) -> None:
    write_report(NOTHING, {}, tmp_path / "report.html")
    text = words((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "No scaling curve was measured" in text
    assert "every cell of the study ran" in text
    assert "No training job ran" in text
    assert "No job recorded its environment" in text


# --- the page as a file ---------------------------------------------------------------------------


def test_names_cannot_break_the_page(tables: Tables, conclusions: Conclusions, tmp_path: Path) -> None:
    evil = '"></script><script>alert(1)</script>'
    named = {name: frame.replace("cpu", evil) for name, frame in tables.items()}
    renamed = [{**curve, "hardware": evil} for curve in conclusions["curves"]]
    write_report({**conclusions, "curves": renamed}, named, tmp_path / "report.html", study=evil)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert '=""></script' not in page


def test_the_page_is_one_small_file_and_the_same_twice(report: Path, tables: Tables, conclusions: Conclusions) -> None:
    again = report.with_name("again.html")
    write_report(conclusions, tables, again, study="laptop", left_out=LEFT_OUT)
    assert again.read_bytes() == report.read_bytes()
    assert report.stat().st_size < 2e6
    assert sorted(file.name for file in report.parent.iterdir()) == ["again.html", "report.html"]


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
    chart, left_out = bounded({"datasets": {"a": rows, "b": rows[:1]}}, most=200)
    kept = pd.DataFrame(chart["datasets"]["a"])
    assert kept.groupby("panel").size().eq(10).all()
    assert kept.groupby("network")["panel"].nunique().tolist() == [10, 9]
    assert left_out == 100 - 19
    assert bounded({"datasets": {"a": rows}}, most=1000) == ({"datasets": {"a": rows}}, 0)


def test_one_panel_that_is_too_large_stays() -> None:
    chart = {"datasets": {"a": [{"panel": "only", "nodes": n} for n in range(10)]}}
    assert bounded(chart, most=5) == (chart, 0)


def test_raw_tables_hold_some_rows_of_each_and_name_the_file(tables: Tables) -> None:
    many = pd.concat([tables["causes"].assign(network=f"network{i}") for i in range(100)], ignore_index=True)
    section, data = raw_tables({"causes": many})
    assert len(data["causes"]["rows"]) == MOST_ROWS
    assert {row[0] for row in data["causes"]["rows"]} == {f"network{i}" for i in range(100)}
    assert f"{MOST_ROWS} of {len(many):,} rows" in words(section.html)
    assert "models/causes.parquet" in section.html


def test_raw_tables_say_units_and_have_no_numbers_that_json_lacks(tables: Tables) -> None:
    frame = tables["stalling"].assign(crossing_nodes=float("inf"), worthwhile_nodes=float("nan"))
    _, data = raw_tables({"stalling": frame, "storage_rates": tables["storage_rates"]})
    names = [column["name"] for column in data["stalling"]["columns"]]
    first = dict(zip(names, data["stalling"]["rows"][0], strict=True))
    assert first["crossing_nodes"] == "∞"
    assert first["worthwhile_nodes"] is None
    units = {column["name"]: column["unit"] for column in data["storage_rates"]["columns"]}
    assert units["latency_p50"] == "s"


def test_a_long_table_is_cut_and_says_where_the_rest_is() -> None:
    html = table(["a", "b"], [[str(i), ""] for i in range(MOST_ROWS + 1)], file="there.json")
    assert html.count("<tr") == MOST_ROWS + 1
    assert f"The first {MOST_ROWS} of {MOST_ROWS + 1} rows; there.json has all." in words(html)
