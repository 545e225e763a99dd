import os
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import TypeAlias

import pandas as pd
import pytest
import synthetic

from stallpoint import models
from stallpoint.charts import CHARTS
from stallpoint.charts.render import render
from stallpoint.conclusions.numbers import Conclusions, conclude
from stallpoint.models.scaling.tables import extrapolated
from stallpoint.models.what_if import scenarios
from stallpoint.networks import find
from stallpoint.networks.description import describe
from stallpoint.published import compare
from stallpoint.report import write_report
from stallpoint.study import LeftOut

Tables: TypeAlias = dict[str, pd.DataFrame]

LEFT_OUT = [
    LeftOut({"network": "alexnet", "nodes": nodes, "batch": 64}, "B is not divisible by the ranks") for nodes in (3, 5)
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"),
    reason="needs a browser: install the package chromium (`make test` does so as root)",
)


@pytest.fixture(scope="module")
def tables() -> Tables:
    tidy = synthetic.study(networks=("alexnet", "googlenet"), storages=("local",), repeats=1)
    fitted = models.fit(tidy, nodes=[8], scenarios=scenarios([{"bandwidth": 10}]))
    return {**tidy, **fitted, **extrapolated({"elsewhere": synthetic.external_rates()})}


@pytest.fixture(scope="module")
def conclusions(tables: Tables) -> Conclusions:
    return conclude(tables)


@pytest.fixture(scope="module")
def report(tables: Tables, conclusions: Conclusions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(conclusions, tables, path, study="laptop", left_out=LEFT_OUT)
    return path


def words(page: str) -> str:
    """What a reader sees: the text without scripts, styles and tags."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", bare)))


def test_the_answer_comes_first_then_charts_in_order_then_the_rest(report: Path) -> None:
    text = words(report.read_text(encoding="utf-8"))
    titles = ["alexnet on cpu", "googlenet on cpu", *(chart.title for chart in CHARTS.values())]
    titles += ["What the timing of layers costs", "Could not run", "Left out of the matrix", "made-up CPU"]
    places = [text.index(f" {title} ") for title in titles]
    assert places == sorted(places)


def test_each_curve_stands_with_its_interval_and_cause(report: Path, conclusions: Conclusions) -> None:
    text = words(report.read_text(encoding="utf-8"))
    for curve in conclusions["curves"]:
        speedup = curve["best_speedup"]
        assert f"{speedup['value']:.3g} [{speedup['low']:.3g}, {speedup['high']:.3g}]" in text
        assert curve["dominant_cause"] in text
    assert "not up to 8, measured up to 4" in text  # weak scaling does not stall


def test_networks_stand_with_their_size_and_the_published_values(
    tables: Tables, conclusions: Conclusions, tmp_path: Path
) -> None:
    layers = pd.DataFrame(describe(find("alexnet")))
    cell = {"published": 6, "digits": 1, "differs": "They <err>."}
    table = {"source": "A & B", "rows": [{"property": "convolutional layers", "alexnet": cell}]}
    published = pd.DataFrame(compare(table, layers, {}))
    write_report(conclusions, {**tables, "network_layers": layers, "published": published}, tmp_path / "report.html")
    text = words((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "alexnet 24 60,965,224 244 MB 0.724 billion 7 relu, 5 convolution" in text
    assert "A & B, beside ours" in text
    assert "convolutional layers alexnet 6 5 They <err>." in text


def test_captions_are_those_of_the_registry(report: Path) -> None:
    text = words(report.read_text(encoding="utf-8"))
    for chart in CHARTS.values():
        assert chart.caption in text


def test_what_was_not_measured_is_said_with_the_reason(report: Path) -> None:
    text = words(report.read_text(encoding="utf-8"))
    assert "nodes~8" in text
    assert "out of memory on rank 0" in text
    assert "B is not divisible by the ranks 2 network alexnet, nodes 3, batch 64" in text


def test_the_cost_of_timing_and_the_closure_stand_there_with_warnings(
    report: Path, tables: Tables, conclusions: Conclusions, tmp_path: Path
) -> None:
    text = words(report.read_text(encoding="utf-8"))
    entry, _ = conclusions["instrumentation"]
    assert f"alexnet cpu {entry['cells']} 3 µs 0.1 % 99.9 % 100.0 %" in text
    assert "warning" not in text
    wrong = {**entry, "forward_closure": 0.9, "warnings": ["layers add up to 90.0 % of the forward pass"]}
    write_report({**conclusions, "instrumentation": [wrong]}, tables, tmp_path / "report.html")
    text = words((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "warning: alexnet on cpu: layers add up to 90.0 % of the forward pass" in text


def test_an_unbounded_interval_is_infinite(tables: Tables, conclusions: Conclusions, tmp_path: Path) -> None:
    curve = {**conclusions["curves"][0], "reached": True, "stall_nodes": {"value": 4.0, "low": 2.0, "high": None}}
    write_report({**conclusions, "curves": [curve]}, tables, tmp_path / "report.html")
    assert "4 [2, ∞]" in words((tmp_path / "report.html").read_text(encoding="utf-8"))


def test_a_study_that_measured_nothing_has_a_page_that_says_so(tmp_path: Path) -> None:
    lists = ("curves", "dag_errors", "instrumentation", "imported", "failed")
    nothing = {"interval": 0.9, "threshold": 0.1, **{name: [] for name in lists}}
    write_report(nothing, {}, tmp_path / "report.html")
    text = words((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "No scaling curve was measured" in text
    assert "every cell of the study ran" in text
    assert "No training job ran" in text
    assert "No job recorded its environment" in text


def test_names_cannot_break_the_page(tables: Tables, conclusions: Conclusions, tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    named = {name: frame.replace("cpu", evil) for name, frame in tables.items()}
    curves = [{**curve, "hardware": evil} for curve in conclusions["curves"]]
    write_report({**conclusions, "curves": curves}, named, tmp_path / "report.html", study=evil)
    assert "<script>alert" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_page_is_one_small_file_and_the_same_twice(report: Path, tables: Tables, conclusions: Conclusions) -> None:
    again = report.with_name("again.html")
    write_report(conclusions, tables, again, study="laptop", left_out=LEFT_OUT)
    assert again.read_bytes() == report.read_bytes()
    assert report.stat().st_size < 5e6
    assert sorted(file.name for file in report.parent.iterdir()) == ["again.html", "report.html"]


def test_the_page_loads_nothing(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert not re.search(r"""\b(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert "default-src 'none'" in page


# --- in a real browser ----------------------------------------------------------------------------


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., tuple[str, list[str]]]:
    """Opens a page without network: the document after its scripts ran, and what they said on the console."""

    def open_page(page: Path, *options: str) -> tuple[str, list[str]]:
        assert CHROMIUM, "no Chromium found; install it (Debian and Ubuntu: apt-get install chromium)"
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=20000",
            *options, "--dump-dom", page.as_uri(),
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return result.stdout, [line for line in result.stderr.splitlines() if "CONSOLE" in line]

    return open_page


def drawn_marks(document: str, name: str) -> int:
    """Paths and lines drawn as data in the chart `name`."""
    chart = document.split(f'id="chart-{name}"')[1].split("</figure>")[0]
    return sum(
        len(re.findall(r"<(?:path|line)\b", group))
        for group in re.findall(r'<g class="mark-[a-z]+ role-mark[^"]*".*?</g>', chart, flags=re.DOTALL)
    )


@needs_chromium
@pytest.mark.parametrize(
    "options",
    [("--window-size=1280,3000",), ("--window-size=500,3000", "--blink-settings=preferredColorScheme=0")],
    ids=["wide and light", "narrow and dark"],
)
def test_every_chart_is_drawn_in_a_browser_without_network(
    report: Path, browse: Callable[..., tuple[str, list[str]]], options: tuple[str, ...]
) -> None:
    document, console = browse(report, *options)
    assert console == []
    assert f'data-drawn="{len(CHARTS)}"' in document
    for name in CHARTS:
        assert drawn_marks(document, name) > 0, name


@needs_chromium
def test_a_chart_of_its_own_is_drawn_in_a_browser_without_network(
    tables: Tables, browse: Callable[..., tuple[str, list[str]]], tmp_path: Path
) -> None:
    page = tmp_path / "chart.html"
    render("overlap", tables, {"html": page, **{kind: tmp_path / f"chart.{kind}" for kind in ("svg", "pdf", "png")}})
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'"
    strict = f'<head><meta http-equiv="Content-Security-Policy" content="{policy}">'
    # Under this policy any attempt to load something is an error on the console.
    page.write_text(page.read_text(encoding="utf-8").replace("<head>", strict, 1), encoding="utf-8")
    assert page.read_text(encoding="utf-8").index(policy) < 200
    document, console = browse(page)
    assert console == []
    assert "role-mark" in document or "<canvas" in document
    assert "<select" in document  # the menu of runs
