import base64
import gzip
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_samples import Tables, of_two_charts
from table_vi import TABLE_VI

from stallpoint.archive.importing import describe_traced
from stallpoint.base.section import GROUPS, Absence, Finding, Section, TextTable, first
from stallpoint.networks import find_network
from stallpoint.networks.description import describe
from stallpoint.report.charts import CHARTS
from stallpoint.report.charts.render import spec
from stallpoint.report.html import MAX_ROWS, MAX_UNFOLDED_ROWS, cards, first_screen, part, table
from stallpoint.report.report import write_report
from stallpoint.report.sections.data_section import networks, raw_tables
from stallpoint.report.sections.why_section import cut_rows


def words(page: str) -> str:
    """What a reader sees: the text without scripts, styles and tags."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", bare)))


@pytest.fixture(scope="module")
def text(report: Path) -> str:
    """The page without its contents, which have the titles too."""
    return words(report.read_text(encoding="utf-8").split("</nav>")[1])


# --- what is said ---------------------------------------------------------------------------------


def test_the_page_says_the_answer_why_what_would_help_how_sure_then_data(text: str, said: list[Section]) -> None:
    titles = [f"{network} on {hardware}" for network in ("alexnet", "googlenet") for hardware in ("cpu", "gpu")]
    titles += ["Time to accuracy", "Every curve", CHARTS["critical-path"].title, CHARTS["speedup"].title]
    titles += [CHARTS["what-if"].title, "Remedies", "How sure this is"]
    titles += ["What the timing of layers costs", "Could not run", "Excluded from the matrix", "Raw tables"]
    places = [text.index(f" {title} ", 0 if place < 4 else text.index("googlenet on gpu"))
              for place, title in enumerate(titles)]  # fmt: skip
    assert places[4:] == sorted(places[4:])
    assert {chart.title for chart in CHARTS.values() if f" {chart.title} " not in text} == set()
    assert {one.group for one in said} <= set(GROUPS)


def test_everything_that_is_said_stands_on_the_page(text: str, said: list[Section]) -> None:
    for section in said:
        for one in section.findings:
            assert one.sentence in text or one.words[1:] in text, one
        for row in (row for grid in section.grids for row in grid.rows[:MAX_ROWS]):
            assert all(" ".join(cell.split()) in text for cell in row), row
    for one in first(said):
        assert one.sentence in text or one.words[1:] in text


def test_what_is_not_answered_is_named_with_the_reason(text: str, said: list[Section]) -> None:
    absent = [one for one in said if one.absence]
    assert {one.name for one in absent} >= {"cost-and-failures", "claims"}
    for one in absent:
        assert f"{one.title}: {one.text}" in text


ONE = Finding(
    "rates", "alexnet on cpu, strong scaling", "still gets faster at 2 nodes", "scales", fits="10 -> 18 samples/s",
    beyond="2 nodes: withheld: the model is 57 % off", evidence="measured; model 5.7 % off", first=True,
    about={"network": "alexnet", "hardware": "cpu", "card": "alexnet on cpu"},
)  # fmt: skip
ANSWER = Section("answer", "Answer", "Answer", "Intervals cover 90 %.", (ONE,), cards=True)


def test_a_card_says_what_was_measured_and_apart_what_is_predicted() -> None:
    text = words(first_screen(ANSWER, []).html)
    order = ["alexnet on cpu: still gets faster at 2 nodes.", "Still gets faster at 2 nodes measured",
             "10 -> 18 samples/s", "beyond 2 nodes: withheld: the model is 57 % off", "model 5.7 % off"]  # fmt: skip
    places = [text.rindex(part) for part in order]
    assert places == sorted(places)


def test_a_withheld_answer_is_not_called_measured() -> None:
    withheld = replace(ONE, verdict="withheld", words="withheld, as cells that do the same differ")
    text = words(first_screen(replace(ANSWER, findings=(withheld,)), []).html)
    assert "Withheld, as cells that do the same differ" in text
    assert "differ measured" not in text


def test_further_answers_of_a_card_take_a_line_each() -> None:
    other = replace(ONE, subject="alexnet on cpu, weak scaling", words="undecided beyond 2 nodes", verdict="undecided")
    section = replace(ANSWER, findings=(ONE, other))
    assert list(cards(section)) == ["alexnet on cpu"]
    html = first_screen(section, []).html
    assert html.count("<article") == 1
    assert "alexnet on cpu, weak scaling undecided beyond 2 nodes" in words(html)


def test_what_qualifies_the_answers_stands_above_them_with_a_link_to_more() -> None:
    sure = Section("sure", "How sure", "How sure", findings=(
        Finding("trust", "cpu", "cells differ", "warning", first=True), Finding("trust", "cpu", "7 cells, 25 visits"),
    ))  # fmt: skip
    targets = Section("targets", "Time to accuracy", "Answer", findings=(
        Finding("time to target", "alexnet", "reached by wfbp", first=True, about={"network": "alexnet"}),
    ))  # fmt: skip
    html = first_screen(ANSWER, [sure, targets]).html
    assert '<a href="#sure">cpu: cells differ</a>' in html
    assert "25 visits" not in html
    assert (
        '<a href="#targets">Time to accuracy</a>: <span data-network="alexnet">alexnet: reached by wfbp.</span>' in html
    )


def test_a_table_unfolds_by_its_title_and_belongs_to_what_its_rows_do() -> None:
    about = ({"network": "a"}, {"network": "b"})
    mixed = part(Section("s", "S", "Why", grids=(TextTable(("x",), (("1",), ("2",)), "T", about=about),))).html
    assert "<details open><summary>T</summary>" in mixed
    assert '<tr data-network="b"><th scope="row">2<' in mixed
    long = TextTable(("x",), (("1",),) * (MAX_UNFOLDED_ROWS + 1), "T", about=about[:1] * (MAX_UNFOLDED_ROWS + 1))
    assert '<details data-network="a"><summary>' in part(Section("s", "S", "Why", grids=(long,))).html


def test_networks_stand_with_their_size() -> None:
    html = networks({"network_layers": pd.DataFrame(describe(find_network("alexnet")))}).html
    assert "alexnet 24 60,965,224 244 MB 0.724 billion 7 relu, 5 convolution" in words(html)
    assert html.count('<tr data-network="alexnet">') == 1


def test_what_traces_do_not_tell_of_a_network_is_a_dash() -> None:
    known = pd.DataFrame(describe(find_network("alexnet")))
    traced = pd.DataFrame(describe_traced("nobodys", [str(TABLE_VI)]))
    found = words(networks({"network_layers": pd.concat([known, traced])}).html)
    assert "alexnet 24 60,965,224 244 MB 0.724 billion" in found
    assert "nobodys 21 - 244 MB - " in found


def test_captions_are_those_of_the_registry(text: str) -> None:
    for chart in CHARTS.values():
        assert chart.caption in text


def test_a_study_that_measured_nothing_has_a_page_that_says_so(tmp_path: Path) -> None:
    nothing = Section(
        "answer", "Answer", "Answer", "No scaling curve was measured.", absence=Absence.NOT_MEASURED, cards=True
    )
    write_report([nothing], {}, tmp_path / "report.html")
    text = words((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "No scaling curve was measured" in text
    assert "No network was described" in text
    assert "No job recorded its environment" in text


# --- the page as a file ---------------------------------------------------------------------------


def test_half_a_page_is_never_there(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_report([ANSWER], {}, tmp_path / "report.html", study="half a character: \ud83d")
    assert not list(tmp_path.iterdir())


def test_names_cannot_break_the_page(tables: Tables, tmp_path: Path) -> None:
    evil = '"></script><script>alert(1)</script>'
    named = {name: frame.replace("cpu", evil) for name, frame in of_two_charts(tables).items()}
    one = replace(ONE, subject=evil, words=evil, about={**ONE.about, "hardware": evil, "card": evil})
    grid = TextTable((evil, evil), ((evil, evil),), evil, evil, ({"hardware": evil},), code=evil)
    hostile = Section("s", evil, "Why", evil, (one,), (grid,))
    write_report([replace(ANSWER, findings=(one,)), hostile], named, tmp_path / "report.html", study=evil)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert '=""></script' not in page


def test_the_page_is_one_small_file(report: Path) -> None:
    """That it is the same twice is tests/workflow/test_run_archive.py's to find."""
    assert report.stat().st_size < 1e6
    assert list(report.parent.iterdir()) == [report]


def data_of(page: Path, name: str) -> Any:
    packed = re.search(rf'id="{name}">([^<]*)<', page.read_text(encoding="utf-8"))
    assert packed
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))


def test_charts_that_were_drawn_already_are_on_the_page_as_they_are(tables: Tables, tmp_path: Path) -> None:
    before = {"speedup": {**spec("speedup", tables), "description": "drawn before"}}
    write_report([], of_two_charts(tables), tmp_path / "report.html", made_specs=before)
    found = data_of(tmp_path / "report.html", "charts")
    assert found.keys() > {"speedup"}
    assert found["speedup"]["description"] == "drawn before"
    ((columns,), (rows,)) = (of["speedup"]["datasets"].values() for of in (found, before))
    assert [{name: of[at] for name, of in columns.items() if of[at] is not None} for at in range(len(rows))] == rows


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
    chart, left_out = cut_rows({"datasets": {"a": rows, "b": rows[:1]}}, max_rows=200)
    kept = pd.DataFrame(chart["datasets"]["a"])
    assert kept.groupby("panel").size().eq(10).all()
    assert kept.groupby("network")["panel"].nunique().tolist() == [10, 9]
    assert left_out == 100 - 19
    assert cut_rows({"datasets": {"a": rows}}, max_rows=1000) == ({"datasets": {"a": rows}}, 0)


def test_one_panel_that_is_too_large_stays() -> None:
    chart = {"datasets": {"a": [{"panel": "only", "nodes": n} for n in range(10)]}}
    assert cut_rows(chart, max_rows=5) == (chart, 0)


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
