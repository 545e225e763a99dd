import json
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import synthetic
import vl_convert as vlc
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stallpoint import models
from stallpoint.charts import CHARTS, PAPERS, axes, frames, theme
from stallpoint.charts.render import VEGA_LITE, Spec, render, spec
from stallpoint.models.paper_figures import figures
from stallpoint.models.scaling.tables import MEASURED, extrapolated
from stallpoint.models.what_if import scenarios
from stallpoint.records import EXTRAPOLATED_TABLES, MODEL_TABLES, TABLES

Tables: TypeAlias = dict[str, pd.DataFrame]

SVG = "{http://www.w3.org/2000/svg}"


def tables_of(**study: Any) -> Tables:
    tidy = synthetic.study(**study)
    fitted = models.fit(tidy, nodes=[8], scenarios=scenarios([{"bandwidth": [2, 10]}]))
    return {**tidy, **fitted, **extrapolated({MEASURED: fitted["rates"], "elsewhere": synthetic.external_rates()})}


@pytest.fixture(scope="module")
def tables() -> Tables:
    return tables_of()


@pytest.fixture(scope="module")
def svgs(tables: Tables) -> dict[str, Element]:
    return {name: svg_of(spec(name, tables)) for name in CHARTS}


def svg_of(chart: Spec) -> Element:
    return ElementTree.fromstring(vlc.vegalite_to_svg({**chart, "config": theme.config()}, vl_version=VEGA_LITE))


def marks(svg: Element) -> Counter[str]:
    """How many marks of each type are drawn as data (legends, axes and grids are not)."""
    counts: Counter[str] = Counter()
    for group in svg.iter(f"{SVG}g"):
        kind, _, role = group.get("class", "").partition(" ")
        if kind.startswith("mark-") and role.startswith("role-mark"):
            counts[kind.removeprefix("mark-")] += sum(
                1 for child in group if child.get("d") or child.tag == f"{SVG}line"
            )
    return counts


def texts(svg: Element, role: str) -> set[str]:
    return {
        "".join(group.itertext())
        for group in svg.iter(f"{SVG}g")
        if group.get("class", "").startswith(f"mark-text role-{role}")
    }


# --- what is drawn --------------------------------------------------------------------------------


def expected_marks(name: str, tables: Tables) -> dict[str, int]:
    predictions, layers, amdahl = tables["predictions"], tables["layer_scaling"], tables["amdahl"]
    scaling = predictions[predictions["scaling"] != "compute"]
    curves = scaling.groupby(["storage", "scaling", "sync", "prefetch"]).ngroups
    types = layers["layer_type"].nunique() - 1
    batches = layers["worker_batch"].nunique()
    panels = 3  # strong on local, strong on shared, weak
    return {
        # measured points, and a triangle for each stalling point
        "speedup": {
            "symbol": scaling["measured_speedup"].notna().sum() + tables["stalling"]["reached"].sum(),
            "line": 2 * curves + panels,
        },
        # the parts that ever take time: nothing is copied to a device here
        "critical-path": {"rect": (tables["critical_path"]["part"] != "host-to-device").sum()},
        "causes": {"rect": len(tables["causes"])},
        # three scenarios of each curve, and a triangle for each that stalls
        "what-if": {
            "line": 3 * curves,
            "symbol": tables["what_if"].query("reached and nodes == stall_nodes").shape[0],
        },
        # compute, communication and exposed, measured and predicted; naive, wfbp, weak
        "communication": {"line": 3 * 2 * 3},
        "all-reduce": {"symbol": 5 * 2, "line": 2},
        # two tasks, measured and predicted, of the four layers that learn
        "overlap": {"rect": 2 * 2 * 4, "rule": 1},
        "free-communication": {"symbol": batches, "line": 2, "area": 1},
        "layer-share": {"rect": types * batches},
        "layer-speedup": {"symbol": types * batches, "line": types + 1, "rule": types * batches},
        # the reference, fc7, ideal
        "sgemm": {"symbol": 4, "line": 3, "area": 1},
        "amdahl": {"line": amdahl["serial_fraction"].notna().sum() + 1, "area": 1},
        "data-share": {"symbol": (tables["data_share"]["scaling"] != "compute").sum()},
        "storage": {"symbol": 2 * len(tables["storage_rates"])},
        "prediction": {"symbol": predictions["error"].notna().sum(), "line": 1},
        "validation": {"symbol": len(tables["validation"]), "line": 1},
        "scaling-laws": {"symbol": scaling["measured_speedup"].notna().sum(), "line": 3 * curves, "area": curves},
        "extrapolation": {"symbol": 2 * 2, "rule": 2 * 2, "line": 1},
    }[name]


@pytest.mark.parametrize("name", CHARTS)
def test_every_row_is_drawn_once(name: str, tables: Tables, svgs: dict[str, Element]) -> None:
    drawn = marks(svgs[name])
    assert {kind: drawn[kind] for kind in expected_marks(name, tables)} == expected_marks(name, tables)


AXIS_TITLES = {
    "speedup": {"nodes", "speedup over the fewest nodes"},
    "causes": {"nodes", "time lost [% of iteration]"},
    "critical-path": {"nodes", "time [% of iteration]"},
    "what-if": {"nodes", "speedup over the measured cluster"},
    "communication": {"nodes", "time in one iteration [s]"},
    "all-reduce": {"message size [bytes]", "time of one all-reduce [s]"},
    "overlap": {"time since the start of the backward pass [ms]"},
    "free-communication": {"mini-batch of one worker, b [samples]", "speedup over the largest b"},
    "layer-share": {"mini-batch of one worker, b [samples]", "share of compute time [%]"},
    "layer-speedup": {"mini-batch of one worker, b [samples]", "speedup over the largest b"},
    "sgemm": {"mini-batch of one worker, b [samples]", "speedup over the largest b"},
    "amdahl": {"nodes", "speedup by Amdahl's law"},
    "data-share": {"nodes", "data wait [% of iteration]"},
    "storage": {"nodes", "reading rate [samples/s]", "time to read a sample [ms]"},
    "prediction": {"measured iteration [s]", "predicted iteration [s]"},
    "validation": {"measured iteration [s]", "predicted iteration [s]"},
    "scaling-laws": {"nodes", "throughput [samples/s]"},
    "extrapolation": {"measured [samples/s]", "predicted [samples/s]"},
}


@pytest.mark.parametrize("name", CHARTS)
def test_axis_titles_say_the_unit(name: str, svgs: dict[str, Element]) -> None:
    assert texts(svgs[name], "axis-title") == AXIS_TITLES[name]


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
    assert (ideal["value"] == ideal["nodes"]).all()
    stalls = rows[rows["basis"] == "stall"]
    reached = tables["stalling"][tables["stalling"]["reached"]]
    assert sorted(stalls["nodes"]) == sorted(reached["stall_nodes"])


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
    np.testing.assert_allclose(rows.groupby(["panel", "nodes"])["percent"].sum(), 100, rtol=1e-3)


def test_a_papers_figures_are_drawn_from_its_parameters() -> None:
    paper = yaml.safe_load((Path(__file__).parents[2] / "resources/published/keuper-2016.yaml").read_text())
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


def test_an_unbounded_interval_ends_with_the_axis(tables: Tables) -> None:
    stalling = tables["stalling"].assign(stall_nodes_high=np.inf)
    rows = data_of(spec("speedup", {**tables, "stalling": stalling}))
    assert rows.loc[rows["basis"] == "stall", "high"].between(8, 16).all()


def test_overlap_names_every_layer_that_learns_last_first(svgs: dict[str, Element]) -> None:
    labels = [
        "".join(group.itertext())
        for group in svgs["overlap"].iter(f"{SVG}g")
        if "role-axis-label" in group.get("class", "")
    ]
    assert "fc7fc6conv2conv1" in labels


def test_overlap_offers_every_network_and_starts_with_wait_free_back_propagation() -> None:
    chart = spec("overlap", tables_of(networks=("alexnet", "googlenet"), compute_batches=(64, 16), repeats=1))
    (menu,) = (parameter for parameter in chart["params"] if parameter["name"] == "overlap_run")
    assert len(menu["bind"]["options"]) == 4  # two networks, two ways of synchronising
    assert menu["value"].startswith("alexnet · cpu: ")
    assert "wfbp" in menu["value"]
    assert menu["value"].endswith("4 nodes")


# --- size, sameness, missing data -----------------------------------------------------------------


def test_specs_do_not_grow_with_raw_rows(tables: Tables) -> None:
    more = tables_of(iterations=12, repeats=4)
    assert len(more["iterations"]) > 3 * len(tables["iterations"])
    for name in CHARTS:
        assert len(json.dumps(spec(name, more))) < 1.05 * len(json.dumps(spec(name, tables)))


def test_a_large_study_is_drawn_whole(tables: Tables) -> None:
    causes = pd.concat([tables["causes"].assign(network=f"network{i}") for i in range(40)])
    assert len(causes) > 5000  # where Altair gives up unless told otherwise
    assert len(data_of(spec("causes", {"causes": causes}))) == len(causes)


def test_equal_tables_give_equal_files_in_another_process(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "tables").write_bytes(pickle.dumps(tables))
    program = (
        "import pickle, sys; from pathlib import Path; from stallpoint.charts.render import render\n"
        "folder = Path(sys.argv[1]); tables = pickle.loads((folder.parent / 'tables').read_bytes())\n"
        "for name in ('speedup', 'overlap'):\n"
        "    render(name, tables, folder / f'{name}.html', folder / f'{name}.svg', folder / f'{name}.png')\n"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", program, tmp_path / seed], env=environment, check=True)
    names = sorted(file.name for file in (tmp_path / "1").iterdir())
    assert len(names) == 6  # and nothing else: no scratch files are left
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


@pytest.mark.parametrize("name", CHARTS)
def test_without_data_the_files_say_which_cells_are_missing(name: str, tmp_path: Path) -> None:
    empty = {
        table.name: pd.DataFrame(columns=[column.name for column in table.columns])
        for table in (*MODEL_TABLES, *EXTRAPOLATED_TABLES, TABLES["collectives"])
    }
    files = [tmp_path / f"{name}.{kind}" for kind in ("html", "svg", "png")]
    render(name, empty, *files)
    text = " ".join(ElementTree.parse(files[1]).getroot().itertext())
    assert "Nothing to draw: no " in text
    assert "cells" in text
    assert files[2].read_bytes().startswith(b"\x89PNG")


def test_a_table_that_was_not_given_counts_as_empty() -> None:
    assert "sgemm cells" in json.dumps(spec("sgemm", {}))


def test_html_loads_nothing(tables: Tables, tmp_path: Path) -> None:
    files = [tmp_path / f"chart.{kind}" for kind in ("html", "svg", "png")]
    render("storage", tables, *files)
    page = files[0].read_text(encoding="utf-8")
    assert "vegaEmbed" in page
    assert not re.search(r"""\b(src|href)\s*=\s*["']?(https?:)?//""", page)


# --- registry, theme, labels ----------------------------------------------------------------------


def test_the_registry_is_cheap_to_import() -> None:
    program = "import sys, stallpoint.charts; print({'altair', 'pandas', 'numpy', 'vl_convert'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_captions_are_short_plain_sentences() -> None:
    for chart in CHARTS.values():
        assert set(chart.tables) <= set(TABLES)
        assert 2 <= len(re.findall(r"\.(?: |$)", chart.caption)) <= 6, chart.caption
        assert not re.search(r"[*`|]|\w_(\W|$)", chart.caption), "not valid as plain reStructuredText"


def test_every_chart_of_the_workflow_report_uses_the_one_caption() -> None:
    rst = Path(__file__).parents[2] / "workflow/report/chart.rst"
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
}


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("kind", theme.COLOURS)
def test_colours_stay_apart_for_every_reader(kind: str, vision: str) -> None:
    # 2.3 is just noticeable side by side; lines apart from one another need several times that.
    for one, other in combinations(set(theme.COLOURS[kind].values()), 2):
        assert np.linalg.norm(seen(one, VISIONS[vision]) - seen(other, VISIONS[vision])) > 10, (one, other)


def test_a_thing_has_one_colour_whatever_else_is_present() -> None:
    alone, among = theme.colours("layer_type", ["lrn"]), theme.colours("layer_type", ["relu", "lrn", "mystery"])
    colour = dict(zip(among["domain"], among["range"], strict=True))
    assert alone["range"] == [colour["lrn"]]
    assert len(set(colour.values())) == 3
    assert among["domain"] == ["relu", "lrn", "mystery"]


def test_numbers_in_labels_sort_as_numbers() -> None:
    assert theme.colours("series", ["B = 256", "B = 64"])["domain"] == ["B = 64", "B = 256"]


def combined(**values: list[Any]) -> pd.DataFrame:
    columns = {
        "network": ["alexnet"], "hardware": ["cpu"], "storage": ["local"], "scaling": ["strong"], "sync": ["wfbp"],
        "prefetch": [0], "batch": [256], "nodes": [1, 2],
    }  # fmt: skip
    index = pd.MultiIndex.from_product((columns | values).values(), names=list(columns))
    return index.to_frame(index=False)


def test_a_series_is_named_by_what_varies() -> None:
    arranged = frames.arrange(combined(sync=["naive", "wfbp"], prefetch=[0, 2]))
    assert set(arranged["panel"]) == {"alexnet · cpu\nstrong scaling"}
    assert set(arranged["series"]) == {
        f"{sync} · {ahead}" for sync in ("naive", "wfbp") for ahead in ("no prefetch", "prefetch 2")
    }


@pytest.mark.parametrize("most", [1, 6])
def test_no_panel_is_crowded_and_no_two_curves_are_taken_for_one(most: int) -> None:
    frame = combined(storage=["a", "b", "c"], sync=["naive", "wfbp"], prefetch=[0, 1, 2], batch=[64, 256])
    arranged = frames.arrange(frame, most=most)
    assert arranged.groupby("panel")["series"].nunique().max() <= most
    assert (arranged.groupby(["panel", "series", "nodes"]).size() == 1).all()


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.8349, "1.83"), (0.01236, "0.0124"), (1234.5, "1230"), (2.5e-7, "2.5e-07"), (0, "0"), (float("inf"), "∞"),
     (float("nan"), "not known")],
)  # fmt: skip
def test_number(value: float, text: str) -> None:
    assert frames.number(value) == text


@given(st.floats(1e-9, 1e9), st.floats(1, 1e6))
def test_logarithmic_axes_have_ticks_inside(least: float, factor: float) -> None:
    domain = axes.log_domain([least, least * factor])
    assert domain[0] < least
    assert least * factor < domain[1]
    for ticks in (axes.log2_ticks(domain), axes.log10_ticks(domain)):
        assert ticks
        assert all(domain[0] <= tick <= domain[1] for tick in ticks)
