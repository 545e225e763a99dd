import json
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html import escape
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import altair as alt
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import synthetic
import vl_convert as vlc
import yaml
from altair.utils.schemapi import validate_jsonschema
from hypothesis import given
from hypothesis import strategies as st
from once import Once

from stallpoint.models import fitting
from stallpoint.models.iteration.scenarios import scenarios
from stallpoint.models.scaling.extrapolation import OWN_RATES, extrapolated
from stallpoint.records.tables import EXTRAPOLATED_TABLES, MODEL_TABLES, TABLES
from stallpoint.report.charts import CHARTS, PAPERS, axes, journal, theme, web_page
from stallpoint.report.charts import labels as frames
from stallpoint.report.charts import render as rendering
from stallpoint.report.charts.render import FORMATS, Spec, missing_reason, render, spec
from stallpoint.report.charts.web_page import VEGA_LITE
from stallpoint.strategies.presets import PRESETS
from stallpoint_papers.paper_figures import figures

Tables: TypeAlias = dict[str, pd.DataFrame]

SVG = "{http://www.w3.org/2000/svg}"


def tables_of(**study: Any) -> Tables:
    tidy = synthetic.study(**study)
    work = {"alexnet": 7e8, "googlenet": 16e8}
    fitted = fitting.fit(tidy, nodes=[8], scenarios=scenarios([{"bandwidth": [2, 10]}]), multiply_adds=work)
    drawn = {name for chart in CHARTS.values() for name in chart.tables} & set(fitted)
    return {
        **tidy,
        "network_layers": synthetic.network_layers(tidy["layers"]),
        **{name: fitted[name] for name in drawn},
        **extrapolated({OWN_RATES: fitted["rates"], "elsewhere": synthetic.external_rates()}),
    }


@pytest.fixture(scope="module")
def tables(once: Once) -> Tables:
    return once(lambda: tables_of(iterations=3, repeats=1))


@pytest.fixture(scope="module")
def specs(tables: Tables) -> dict[str, Spec]:
    return {name: spec(name, tables) for name in CHARTS}


@pytest.fixture(scope="module")
def svgs(specs: dict[str, Spec], once: Once) -> dict[str, Element]:
    drawn = once(lambda: {name: svg_text(chart) for name, chart in specs.items()})
    return {name: ElementTree.fromstring(text) for name, text in drawn.items()}


def svg_text(chart: Spec) -> str:
    return str(vlc.vegalite_to_svg({**chart, "config": theme.config()}, vl_version=VEGA_LITE))


def svg_of(chart: Spec) -> Element:
    return ElementTree.fromstring(svg_text(chart))


def marks(svg: Element) -> Counter[str]:
    """How many marks of each type are drawn as data (legends, axes and what only shows tooltips are not)."""
    counts: Counter[str] = Counter()
    for group in svg.iter(f"{SVG}g"):
        kind, _, role = group.get("class", "").partition(" ")
        if kind.startswith("mark-") and role.startswith("role-mark"):
            counts[kind.removeprefix("mark-")] += sum(
                (child.get("d") is not None or child.tag == f"{SVG}line") and child.get("opacity") != "0"
                for child in group
            )
    return counts


def texts(svg: Element, role: str) -> set[str]:
    return {
        "".join(group.itertext())
        for group in svg.iter(f"{SVG}g")
        if group.get("class", "").startswith(f"mark-text role-{role}")
    }


# --- what is drawn --------------------------------------------------------------------------------


DRAWN = {
    "critical-path": "432 rect, 144 rule",  # parts that are predicted twice: as a bar and as its hatching
    "causes": "252 rect, 198 rule",
    "speedup": "35 symbol, 35 rule, 23 line, 9 area",  # nine curves in five panels; eight of them reach a stall
    "throughput": "9 symbol, 9 rule, 6 line, 3 area",
    "costs": "3 symbol, 3 rule, 2 line, 1 area",
    "utilisation": "5 symbol, 5 rule, 2 line",  # on 1, 2 and 4 nodes, of which one sends nothing
    "communication": "101 rect",
    "all-reduce": "20 symbol, 20 rule, 4 line",  # five sizes on two counts, as times and as rates
    "overlap": "72 rect",  # four ranks and the prediction; the loss is too short for a bar
    "free-communication": "5 symbol, 2 line, 1 area",
    "layer-share": "20 rect",
    "layer-speedup": "15 symbol, 15 rule, 3 trail, 1 line",
    "sgemm": "3 symbol, 3 line, 1 area",
    "roofline": "4 symbol",
    "amdahl": "15 symbol, 15 line, 1 area",
    "memory": "17 symbol, 19 rule, 5 line",
    "storage": "36 symbol, 36 rule",
    "data-share": "27 symbol, 32 rule, 9 line",
    "readers": "27 symbol, 30 rule, 9 line",
    "what-if": "54 symbol, 63 rule",  # two scenarios of each curve on 2, 4 and 8 nodes, and a line at 1 in each panel
    "prediction": "27 symbol, 54 rule, 1 line, 1 area",
    "validation": "9 symbol, 18 rule, 1 line, 1 area",
    "extrapolation": "4 symbol, 4 rule, 1 line, 1 area",
    "time-to-target": "2 symbol, 2 rule, 6 line, 4 area",
    "time-to-accuracy": "12 symbol, 12 rule, 5 line, 2 area",
    "steps-to-target": "4 symbol, 4 rule, 4 line",
    "noise-scale": "32 symbol, 34 rule, 8 line, 2 rect",
    "convergence": "112 symbol, 32 line",
    "staleness": "2 symbol, 1 line",  # a first update that nobody was before, and others after one of the other worker
    "visits": "42 rect, 84 symbol, 85 rule",  # a bar for each visit, the sentinel at its ends, and the usual speed
}
"""Marks of each chart of the made-up study: every row of its tables once, as point, bar or line, with its interval."""


@pytest.mark.parametrize("name", CHARTS)
def test_every_row_is_drawn_once(name: str, svgs: dict[str, Element]) -> None:
    drawn = {kind: count for kind, count in marks(svgs[name]).items() if count}
    assert drawn == {kind: int(count) for count, kind in (one.split() for one in DRAWN[name].split(", "))}


@pytest.mark.parametrize("name", ["speedup", "communication", "data-share"])
def test_node_axes_have_integer_ticks_at_the_node_counts(name: str, svgs: dict[str, Element]) -> None:
    nodes = [text for text in re.findall(r"[^<>]+", vlc_labels(svgs[name], "nodes")) if text]
    assert set(nodes) <= {"1", "2", "4", "8"}
    assert {"1", "2", "4"} <= set(nodes)


def vlc_labels(svg: Element, title: str) -> str:
    """Labels of the axes with this title, each in angle brackets."""
    found = ""
    for axis in svg.iter(f"{SVG}g"):
        if axis.get("class", "") == "mark-group role-axis" and title in texts(axis, "axis-title"):
            for group in axis.iter(f"{SVG}g"):
                if "role-axis-label" in group.get("class", ""):
                    found += "".join(f"<{text.text}>" for text in group.iter(f"{SVG}text"))
    return found


def test_the_ideal_line_and_the_stalling_point_stand_where_they_should(tables: Tables) -> None:
    rows = data_of(spec("speedup", tables))
    ideal = rows[rows["basis"] == "ideal"]
    assert (ideal["value"] == ideal["ranks"]).all()
    stalls = rows[rows["basis"] == "stall"]
    reached = tables["stalling"][tables["stalling"]["reached"]]
    assert sorted(stalls["ranks"]) == sorted(reached["stall_ranks"])


def test_intervals_are_drawn_as_the_tables_have_them(tables: Tables) -> None:
    rows = data_of(spec("free-communication", tables))
    measured = rows[rows["basis"] == "measured"].sort_values("worker_batch")
    table = tables["layer_scaling"].query("layer_type == 'all'").sort_values("worker_batch")
    for drawn, column in (("value", "speedup"), ("low", "speedup_low"), ("high", "speedup_high")):
        np.testing.assert_allclose(measured[drawn], table[column], rtol=1e-4)


def test_shares_of_layer_types_add_up(tables: Tables) -> None:
    rows = data_of(spec("layer-share", tables))
    np.testing.assert_allclose(rows.groupby("worker_batch")["value"].sum(), 100, rtol=0.02)


def test_the_parts_of_an_iteration_fill_it(tables: Tables) -> None:
    rows = data_of(spec("critical-path", tables))
    np.testing.assert_allclose(rows.groupby(["panel", "ranks"])["percent"].sum(), 100, rtol=1e-3)


def test_a_papers_figures_are_drawn_from_its_parameters() -> None:
    paper = yaml.safe_load((Path(__file__).parents[3] / "resources/published/keuper-2016.yaml").read_text())
    table = pd.DataFrame(figures(paper))
    times, speedup = (svg_of(spec(name, {"paper_figures": table})) for name in PAPERS)
    # four compute units for alexnet at three mini-batches, three for googlenet at four; communication in each panel
    assert marks(times)["line"] == 4 * (3 + 1) + 3 * (4 + 1)
    assert texts(times, "axis-title") == {"nodes", "time in one iteration [s]"}
    # networks and mini-batches of Figs. 4, 11 and 12, and the ideal line of each
    assert marks(speedup)["line"] == (1 + 2) + (5 + 6) + 2 + 3
    assert texts(speedup, "axis-title") == {"nodes", "speedup over one node"}
    assert texts(svg_of(spec("paper-times", {})), "axis-title") == set()


def data_of(chart: Spec) -> pd.DataFrame:
    return pd.DataFrame([row for rows in chart["datasets"].values() for row in rows])


def test_all_reduces_while_computing_have_a_panel_beside_those_on_idle_ranks(tables: Tables) -> None:
    busy = tables["collectives"].assign(calls=12, seconds=lambda rows: 12 * rows["seconds"])
    rows = data_of(spec("all-reduce", {**tables, "contention": busy})).query("basis == 'measured'")
    rows = rows[~rows["shown"].str.endswith("GB/s")]
    idle_panel, busy_panel = rows["panel"].unique()
    assert busy_panel.startswith(f"{idle_panel}, while computing (points only")
    idle, busy = (
        rows[rows["panel"] == panel].set_index(["nodes", "message_bytes"]) for panel in (idle_panel, busy_panel)
    )
    assert (busy["value"] / idle["value"]).to_numpy() == pytest.approx(3, rel=1e-3)


def test_an_unbounded_interval_ends_with_the_axis(tables: Tables) -> None:
    stalling = tables["stalling"].assign(stall_ranks_high=np.inf)
    rows = data_of(spec("speedup", {**tables, "stalling": stalling}))
    assert rows.loc[rows["basis"] == "stall", "high"].between(8, 16).all()


def test_the_time_line_is_one_iteration_as_recorded(tables: Tables) -> None:
    rows = data_of(spec("overlap", tables))
    rows = rows[rows["panel"] == rows["panel"].iloc[0]]
    said = re.search(r"iteration (\d+) of visit (\d+): ([\d.]+) ms, the median of (\d+)", rows["panel"].iloc[0])
    assert said
    iterations = tables["iterations"].query("sync == 'wfbp' and nodes == 4 and not warmup")
    chosen = iterations[(iterations["iteration"] == int(said[1])) & (iterations["visit"] == int(said[2]))]
    walls = iterations.groupby(["cell", "visit", "iteration"])["iteration_time"].max()
    wall = float(said[3]) / 1e3
    assert wall in [pytest.approx(one, rel=1e-2) for one in chosen.groupby("cell")["iteration_time"].max()]
    assert (walls <= wall * 1.01).sum() >= len(walls) / 4  # of several curves, one's median
    assert set(rows["rank"]) == {"predicted", *(f"rank {rank}" for rank in range(4))}
    ends = rows.groupby(["rank", "task"])["end"].max().unstack("rank")
    assert (ends["predicted"] / ends["rank 0"]).dropna().to_numpy() == pytest.approx(1, abs=0.1)
    sent = rows[rows["task"] == "all-reduce"].groupby("rank")["what"].apply(list)
    assert all(set(names) == {"fc7", "fc6", "conv2", "conv1"} for names in sent)
    computed = rows[rows["lane"] == "computing"].sort_values(["rank", "start"])
    assert (computed["start"] >= computed.groupby("rank")["end"].shift().fillna(0) - 0.01).all()  # never two at once


def test_overlap_offers_every_network_and_starts_with_wait_free_back_propagation() -> None:
    options: dict[str, Any] = {"prefetches": (0,), "weak": False, "repeats": 1, "iterations": 3}
    fitted = fitting.fit(synthetic.study(networks=("alexnet", "googlenet"), **options), nodes=[])
    chart = spec("overlap", {name: fitted[name] for name in CHARTS["overlap"].tables})
    (menu,) = (parameter for parameter in chart["params"] if parameter["name"] == "overlap_run")
    assert len(menu["bind"]["options"]) == 4  # two networks, two ways of synchronising
    assert menu["value"].startswith("alexnet · cpu: ")
    assert "wfbp" in menu["value"]
    assert "4 nodes\n" in menu["value"]


def test_turns_show_when_the_machine_was_slower_and_what_disturbed_which_visit(tables: Tables) -> None:
    visits = tables["visits"].copy()
    slow = (visits["rank"] == 1) & (visits["position"] == visits.loc[visits["rank"] == 1, "position"].iloc[0])
    visits.loc[slow, "product_after"] *= 4
    cell, visit, began = visits.loc[slow, ["cell", "visit", "started"]].iloc[0]
    reasons = ["steal", "another process, steal", "steal"]
    disturbed = pd.DataFrame(
        {"cell": cell, "hardware": "cpu", "visit": visit, "iteration": range(3), "reason": reasons}
    )
    rows = data_of(spec("visits", {"visits": visits, "disturbances": disturbed}))
    usual = rows.loc[rows["basis"] == "usual", "place"].item()
    slowest = rows.loc[rows["at_high"].idxmax()]
    assert slowest["shown"].endswith("(1 to 4 over ranks)")
    assert (rows.loc[rows["basis"] == "sentinel", "at_low"] == usual).all()
    ticks = rows[rows["basis"] == "disturbed"].set_index("reason")
    assert ticks["iterations"].to_dict() == {"another process": 1, "steal": 3}
    middle = (began - visits["started"].min()).total_seconds() / 60 + 2 / 60
    assert ticks["start"].to_numpy() == pytest.approx(middle, rel=1e-3)


def test_pauses_between_jobs_are_left_out(tables: Tables) -> None:
    visits = tables["visits"].copy()
    later = visits["position"] > visits["position"].median()
    visits.loc[later, "started"] += pd.Timedelta(days=1)
    rows = data_of(spec("visits", {"visits": visits}))
    ended = visits.loc[~later, "started"].max() + pd.Timedelta(seconds=4)
    assert rows["end"].max() < ((ended - visits["started"].min()).total_seconds() + len(visits) * 4) / 60
    assert rows["end"].max() < 24 * 60


# --- size, sameness, missing data -----------------------------------------------------------------


def test_charts_are_valid_vega_lite(specs: dict[str, Spec]) -> None:
    schema = alt.load_schema()
    for chart in specs.values():
        validate_jsonschema({**chart, "datasets": {}}, schema)


def test_charts_do_not_grow_with_raw_rows(tables: Tables, specs: dict[str, Spec]) -> None:
    raw = {"collectives", "sgemm"}
    more = {**tables, **{name: pd.concat([tables[name]] * 4) for name in raw}}
    drawn = {name for name, chart in CHARTS.items() if raw & set(chart.tables)}
    assert drawn == {"all-reduce", "roofline"}  # others have model tables, and `turns` a bar for each visit
    for name in drawn:
        assert len(json.dumps(spec(name, more))) < 1.05 * len(json.dumps(specs[name]))


@pytest.mark.night
def test_model_tables_do_not_grow_with_raw_rows(tables: Tables, specs: dict[str, Spec]) -> None:
    more = tables_of(iterations=12, repeats=4)
    assert len(more["iterations"]) > 3 * len(tables["iterations"])
    for name in set(CHARTS) - {"visits"}:
        assert len(json.dumps(spec(name, more))) < 1.05 * len(json.dumps(specs[name]))


def test_a_large_study_is_drawn_whole(tables: Tables) -> None:
    causes = pd.concat([tables["causes"].assign(network=f"network{i}") for i in range(40)])
    assert len(causes) > 5000  # where Altair gives up unless told otherwise
    assert len(data_of(spec("causes", {"causes": causes}))) == len(causes)


def test_all_charts_are_drawn_in_one_process_and_equal_tables_give_equal_files_in_another(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ("speedup", "overlap")
    monkeypatch.setattr(rendering, "CHARTS", {name: CHARTS[name] for name in ("speedup", "visits", "overlap")})
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    rendering.render_all({**tables, "visits": tables["visits"].drop(columns="started")}, here)
    said = (here / "visits.error").read_text(encoding="utf-8")
    assert said.startswith("Traceback")
    assert said.endswith("\nerror: chart visits cannot be drawn: KeyError: 'started'\n")
    (here / "visits.error").unlink()
    (tmp_path / "tables").write_bytes(pickle.dumps(tables))
    program = (
        "import pickle, sys; from pathlib import Path; from stallpoint.report.charts.render import FORMATS, render\n"
        "folder = Path(sys.argv[1]); tables = pickle.loads((folder.parent / 'tables').read_bytes())\n"
        "for name in sys.argv[2:]:\n"
        "    render(name, tables, {format: folder / f'{name}.{format}' for format in FORMATS})\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    subprocess.run([sys.executable, "-c", program, there, *reversed(whole)], env=environment, check=True)
    assert {file.name for file in here.iterdir()} == {f"{name}.{format}" for name in whole for format in FORMATS}
    for file in here.iterdir():
        assert file.read_bytes() == (there / file.name).read_bytes(), file.name


def test_pictures_have_the_leading_panels_alone() -> None:
    rows = [{"panel": "a", "lead": True}, {"panel": "b", "lead": False}]
    found = rendering.leading_panels({"datasets": {"d": rows}, "facet": {"sort": ["b", "a"]}})
    assert found == {"datasets": {"d": rows[:1]}, "facet": {"sort": ["a"]}}


def test_a_folder_that_cannot_be_written_to_is_the_fault_of_no_chart(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        rendering.render_all(tables, tmp_path / "file")


EMPTY = {
    table.name: pd.DataFrame(columns=table.names)
    for table in (*MODEL_TABLES, *EXTRAPOLATED_TABLES, TABLES["collectives"])
}


@pytest.mark.parametrize("name", CHARTS)
def test_without_data_a_chart_says_which_cells_are_missing(name: str) -> None:
    assert re.match("no .*cells", missing_reason(spec(name, EMPTY)))


def test_the_files_of_a_chart_of_nothing_say_so(tmp_path: Path) -> None:
    files = {kind: tmp_path / f"speedup.{kind}" for kind in FORMATS}
    render("speedup", EMPTY, files)
    assert "Nothing to draw: no " in " ".join(ElementTree.parse(files["svg"]).getroot().itertext())
    assert "Nothing to draw: no " in files["html"].read_text(encoding="utf-8")
    assert files["png"].read_bytes().startswith(b"\x89PNG")


def test_a_table_that_was_not_given_counts_as_empty() -> None:
    assert "sgemm cells" in json.dumps(spec("sgemm", {}))


def test_html_loads_nothing(specs: dict[str, Spec]) -> None:
    page = web_page.page("A chart", [specs["storage"]])
    assert "vegaEmbed" in page
    assert not re.search(r"""\b(src|href)\s*=\s*["']?(https?:)?//""", page)


def test_pages_can_be_read_without_scripts_and_by_keys(specs: dict[str, Spec]) -> None:
    parts = [specs["storage"], specs["speedup"], web_page.grid(["", "a"], [["1", "<b>"]])]
    body = web_page.page("Two charts", parts).partition("<body>")[2]
    assert body.count("<main>") == body.count("</main>") == 1
    pictures = re.findall(r"<noscript>(<div.*?</svg></div>)</noscript>", body, re.DOTALL)
    assert len(pictures) == 2
    named = [set(re.findall(r'\bid="(.*?)"', picture)) for picture in pictures]
    assert not named[0] & named[1]
    for picture, name in zip(pictures, ("storage", "speedup"), strict=True):
        assert f'aria-label="{escape(specs[name]["description"])}' in picture
    assert body.count('<div class="wide" tabindex="0"') == 3
    assert '<td></td><th scope="col">a</th>' in body


def test_libraries_that_were_kept_are_those_made_where_nothing_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    for place in (folder, folder, tmp_path / "no folder"):
        (tmp_path / "no folder").write_text("")
        monkeypatch.setattr(web_page, "_CACHE_FOLDER", place)
        assert web_page.libraries.__wrapped__() == web_page.libraries()
    (kept,) = folder.iterdir()
    assert kept.read_text(encoding="utf-8") == web_page.libraries()


def test_texts_cannot_end_the_script_of_a_page() -> None:
    evil = "</script><script>alert(1)</script><!-- <script>"
    text = web_page.page(evil, [{"description": evil, "mark": "point", "data": {"values": []}}])
    assert text.count("<script>") == text.count("</script>") == 2
    (specs_text,) = re.findall(r"Object.entries\((.*)\)\) \{", text)
    assert json.loads(specs_text)["chart-0"]["description"] == evil


# --- registry, theme, labels ----------------------------------------------------------------------


def test_captions_are_short_plain_sentences() -> None:
    for chart in CHARTS.values():
        assert set(chart.tables) <= set(TABLES)
        assert 2 <= len(re.findall(r"\.(?: |$)", chart.caption)) <= 6, chart.caption
        assert not re.search(r"[*`|]|\w_(\W|$)", chart.caption), "not valid as plain reStructuredText"


def test_every_chart_of_the_workflow_report_uses_the_one_caption() -> None:
    rst = Path(__file__).parents[3] / "workflow/report/chart.rst"
    assert rst.read_text(encoding="utf-8") == "{{ snakemake.params.caption }}\n"


def seen(colour: str, vision: list[list[float]]) -> npt.NDArray[np.float64]:
    """CIE L*a*b* of a colour as seen with a kind of colour vision (Machado, Oliveira and Fernandes, 2009)."""
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(vision) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ linear / (0.9505, 1, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


VISIONS = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
PALETTES = {kind: tuple(dict.fromkeys(named.values())) for kind, named in theme.COLOURS.items()}
PALETTES["without a fixed colour"] = theme.OTHER_COLOURS


def apart(one: str, other: str, vision: str) -> float:
    return float(np.linalg.norm(seen(one, VISIONS[vision]) - seen(other, VISIONS[vision])))


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("kind", PALETTES)
def test_colours_stay_apart_for_every_reader(kind: str, vision: str) -> None:
    # 2.3 is just noticeable side by side; lines apart from one another need several times that.
    for one, other in combinations(PALETTES[kind], 2):
        assert apart(one, other, vision) > 15, (one, other)


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return float(np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize("page", [theme.LIGHT_THEME, theme.DARK_THEME], ids=["light", "dark"])
def test_lines_and_marks_stand_out_from_the_page(page: dict[str, str]) -> None:
    drawn = {colour for palette in PALETTES.values() for colour in palette} | {
        page[ink] for ink in ("ink", "soft", "ideal")
    }
    for colour in drawn:
        dark, light = sorted((luminance(colour), luminance(page["page"])))
        assert (light + 0.05) / (dark + 0.05) >= 3, colour


def test_every_preset_has_a_look_of_its_own_that_nothing_changes(tables: Tables) -> None:
    looks = {name: theme.preset(name) for name in PRESETS}
    assert set(theme.PRESETS) == set(PRESETS)
    assert len(set(looks.values())) == len(PRESETS)
    assert theme.preset("a preset of a study") == theme.preset("a preset of a study")
    alone = spec("speedup", {**tables, "predictions": tables["predictions"].query("sync == 'wfbp'")})
    for chart in (spec("speedup", tables), alone):
        (scale,) = {
            (tuple(encoding["color"]["scale"]["domain"]), tuple(encoding["color"]["scale"]["range"]))
            for kind, encoding in encodings(chart)
            if kind == "line" and "color" in encoding
        }
        assert dict(zip(*scale, strict=True)) == {name: looks[name][0] for name in scale[0]}


def test_curves_of_one_preset_in_one_panel_have_its_colour_and_shapes_of_their_own() -> None:
    presets = {"wfbp · prefetch 2": "wfbp", "naive": "naive", "wfbp · no prefetch": "wfbp", "mine": "mine"}
    colours, shapes = theme.preset_scales(presets)
    for name, colour, shape in zip(colours["domain"], colours["range"], shapes["range"], strict=True):
        assert colour == theme.preset(presets[name])[0]
        assert shape == theme.preset(presets[name])[1] or name == "wfbp · prefetch 2"
    assert len(set(zip(colours["range"], shapes["range"], strict=True))) == len(presets)
    assert colours["domain"][-1] == "mine"


def encodings(part: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mark with its encoding, in all layers and panels."""
    if isinstance(part, dict):
        if "mark" in part:
            yield part["mark"]["type"], part.get("encoding", {})
        for inner in part.values():
            yield from encodings(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from encodings(inner)


@pytest.mark.parametrize("name", CHARTS)
def test_curves_are_told_apart_by_more_than_colour(name: str, specs: dict[str, Spec]) -> None:
    """Wherever lines of several colours are drawn, the same values have shapes (or dashes) of their own."""
    found = list(encodings(specs[name]))

    def fields(channels: tuple[str, ...], kinds: tuple[str, ...]) -> set[str]:
        used = [encoding.get(channel, {}) for kind, encoding in found if kind in kinds for channel in channels]
        return {channel["field"] for channel in used if len(channel.get("scale", {}).get("domain", ())) > 1}

    assert fields(("color",), ("line",)) <= fields(("shape", "strokeDash"), ("line", "point"))


# --- on paper -------------------------------------------------------------------------------------


WIDTHS = {"speedup": 7.0, "layer-share": 3.3, "storage": 3.3, "amdahl": 3.3}


@pytest.mark.parametrize(("name", "inches"), WIDTHS.items())
def test_static_charts_have_the_size_of_a_journal(name: str, inches: float, specs: dict[str, Spec]) -> None:
    drawn = journal.svg(specs[name], VEGA_LITE)
    root = ElementTree.fromstring(journal.in_points(drawn))
    assert float(root.get("width", "").removesuffix("pt")) == pytest.approx(72 * inches, abs=1)
    units = float(root.get("viewBox", "").split()[2])
    assert units == pytest.approx(72 * inches, rel=0.04), "a unit of the drawing is a point, or a little less"
    sizes = {text.get("font-size") for text in root.iter(f"{SVG}text") if text.text}
    assert sizes == {"8px"}
    box = re.search(rb"/MediaBox \[0 0 ([\d.]+)", vlc.svg_to_pdf(drawn))
    assert box
    assert float(box[1]) == pytest.approx(72 * inches, abs=1)


def test_names_of_panels_are_no_longer_than_the_panels(tables: Tables) -> None:
    assert journal._lines("strong scaling · jpeg · B = 16 · prefetch 1 · wfbp", 30) == [
        "strong scaling · jpeg", "B = 16 · prefetch 1 · wfbp",
    ]  # fmt: skip
    assert journal._lines("a-very-long-name", 8) == ["a-very-l", "ong-name"]


def test_a_thing_has_one_colour_whatever_else_is_present() -> None:
    alone, among = theme.colours("layer_type", ["lrn"]), theme.colours("layer_type", ["relu", "lrn", "mystery"])
    colour = dict(zip(among["domain"], among["range"], strict=True))
    assert alone["range"] == [colour["lrn"]]
    assert len(set(colour.values())) == 3
    assert among["domain"] == ["relu", "lrn", "mystery"]


def test_numbers_in_labels_sort_as_numbers() -> None:
    assert theme.colours("nodes", ["16", "4"])["domain"] == ["4", "16"]


def combined(**values: list[Any]) -> pd.DataFrame:
    columns = {
        "network": ["alexnet"], "hardware": ["cpu"], "storage": ["local"], "scaling": ["strong"], "sync": ["wfbp"],
        "prefetch": [0], "batch": [256], "workers_per_node": [1], "ranks": [1, 2],
    }  # fmt: skip
    index = pd.MultiIndex.from_product((columns | values).values(), names=list(columns))
    return index.to_frame(index=False)


def test_colours_are_for_presets_and_panels_for_what_else_varies() -> None:
    arranged = frames.arrange(combined(sync=["naive", "wfbp"], prefetch=[0, 2]))
    assert set(arranged["panel"]) == {
        f"alexnet · cpu\nstrong scaling · {ahead}" for ahead in ("no prefetch", "prefetch 2")
    }
    assert set(arranged["series"]) == {"naive", "wfbp"}


@pytest.mark.parametrize("single", [True, False])
def test_no_two_curves_are_taken_for_one(single: bool) -> None:
    frame = combined(storage=["a", "b", "c"], sync=["naive", "wfbp"], prefetch=[0, 1, 2], batch=[64, 256])
    arranged = frames.arrange(frame, own_panel=single)
    assert arranged.groupby("panel")["series"].nunique().max() == (1 if single else 2)
    assert (arranged.groupby(["panel", "series", "ranks"]).size() == 1).all()


@given(st.floats(1e-9, 1e9), st.floats(1, 1e6))
def test_logarithmic_axes_have_ticks_inside(least: float, factor: float) -> None:
    domain = axes.log_domain([least, least * factor])
    assert axes.log_domain([0.0, least, float("inf"), least * factor, -1.0]) == domain
    assert domain[0] < least
    assert least * factor < domain[1]
    for ticks in (axes.log2_ticks(domain), axes.log10_ticks(domain)):
        assert ticks
        assert all(domain[0] <= tick <= domain[1] for tick in ticks)


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [((0.6, 1.9), [0.7, 1, 1.5, 2]), ((1, 7), [1, 2, 4, 8]), ((0.9, 3.4), [1, 1.5, 2, 3, 4])],
)
def test_ticks_of_a_speedup_are_round(ends: tuple[float, float], ticks: list[float]) -> None:
    assert axes.log2_ticks(axes.log_domain(ends)) == ticks


def test_the_fastest_curves_of_each_verdict_lead_and_what_stalls_comes_first() -> None:
    curves = combined(batch=[2, 4, 16])
    curves = curves[curves["ranks"] == curves["ranks"].min()]
    verdicts = {2: "stalls", 4: "scales", 16: "scales"}
    tables = {
        "stalling": curves.assign(verdict=curves["batch"].map(verdicts), one_machine=True),
        "predictions": curves.assign(
            global_batch=curves["batch"], measured_iteration=1.0, predicted_iteration=float("nan")
        ),
    }
    found = frames.sort_by_lead(curves, tables)
    assert list(zip(found["batch"], found["lead"], strict=True)) == [(2, True), (16, True), (4, False)]
    assert axes.unit(found) == "processes"
    assert axes.unit(found.assign(one_machine=[True, False, True])) == "nodes"
    assert axes.unit(curves) == "nodes"
