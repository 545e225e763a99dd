"""The report in a real browser, without network."""

import csv
import io
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pytest
from nightly import by_day, first_by_day
from playwright.sync_api import Browser, Download, Page, sync_playwright
from report_samples import Tables, of_two_charts

from stallpoint.archive.comparison import comparison_page, history_page
from stallpoint.archive.comparison.changes import compare
from stallpoint.archive.comparison.compared_results import COLUMNS, Results
from stallpoint.archive.comparison.history import history
from stallpoint.base.frames import frame
from stallpoint.base.section import Section
from stallpoint.report.charts import CHARTS
from stallpoint.report.charts.render import FORMATS, render
from stallpoint.report.report import write_report
from stallpoint_files import answer_page
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"),
    reason="needs a browser: install the package chromium (`make test` does so as root)",
)
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 400, "height": 800}
PATIENCE = 120_000
"""How long a busy machine may take to draw the page, ms."""

Open: TypeAlias = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM, "no Chromium found; install it (Debian and Ubuntu: apt-get install chromium)"
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture(scope="module")
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a page and waits until it is drawn; in the end no page has complained or asked for anything."""
    trouble: list[str] = []

    def open_it(path: Path, hash: str = "", **context: Any) -> Page:
        page = browser.new_context(**{"viewport": WIDE, "color_scheme": "light", **context}).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: trouble.append(request.url) if remote(request.url) else None)
        page.goto(path.as_uri() + hash)
        drawn(page)
        return page

    yield open_it
    assert trouble == []


def remote(url: str) -> bool:
    return not url.startswith(("file:", "data:", "blob:"))


def drawn(page: Page) -> None:
    page.wait_for_selector("html[data-drawn]", state="attached")


@pytest.fixture(scope="module")
def wide(report: Path, open_page: Open) -> Page:
    """The report, shared by tests that leave it as they found it."""
    return open_page(report)


@pytest.fixture(scope="module")
def small(tables: Tables, said: list[Section], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report with two charts: drawn in no time."""
    path = tmp_path_factory.mktemp("small") / "report.html"
    write_report(said, of_two_charts(tables), path, study="laptop")
    return path


MARKS = """name => [...document.querySelectorAll(`#chart-${name} g[class*='role-mark'] > :is(path, line)`)]
    .filter(mark => mark.getAttribute('d') || mark.tagName === 'line').length"""


def marks(page: Page, name: str) -> int:
    """Paths and lines drawn as data in the chart `name`."""
    return int(page.evaluate(MARKS, name))


def shown(page: Page, selector: str) -> list[str]:
    return [text for text in page.locator(selector).filter(visible=True).all_inner_texts() if text]


# --- what is there --------------------------------------------------------------------------------


def test_every_chart_has_marks(wide: Page) -> None:
    names = [*CHARTS, *(f"verdict-{place}" for place in range(4))]
    assert {name for name in names if not marks(wide, name)} == set()


def test_the_verdicts_and_their_charts_are_on_the_first_screen(wide: Page) -> None:
    box = wide.locator(".card .chart").first.bounding_box()
    assert box
    assert box["y"] + box["height"] <= WIDE["height"]


def test_the_first_screen_answers_six_questions_with_numbers(wide: Page) -> None:
    card = wide.locator(".card").first
    questions = {
        "where": card.locator(".headline").get_by_text(re.compile(r"at \d+ nodes")),
        "why": card.locator("p", has_text=re.compile(r"^why most is lost to .+: \d+ ms")),
        "how much": card.locator("p", has_text=re.compile(r"\(\d.*\) times as fast as 1, \d+ % efficient")),
        "what helps": card.locator("p", has_text=re.compile(r"^would help: .+: \+\d+ %")),
        "how sure": card.locator(".tag", has_text=re.compile(r"speedup known to ± \d")),
        "what next": card.locator("p", has_text=re.compile(r"^next .+ \d+ nodes")),
    }
    for question, answer in questions.items():
        assert answer.count() == 1, question
        box = answer.bounding_box()
        assert box, question
        assert box["y"] + box["height"] <= WIDE["height"], question


def test_headings_are_in_order_and_everything_has_a_name(wide: Page) -> None:
    levels = wide.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    nameless = (
        "[...document.querySelectorAll('button, a, summary, svg[role]')].filter(e => !(e.ariaLabel || e.textContent))"
    )
    assert wide.evaluate(f"{nameless}.length") == 0
    assert wide.evaluate("new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size") == wide.evaluate(
        "document.querySelectorAll('[id]').length"
    )


TOOLTIPS = """name => {
  const box = document.getElementById("tooltip"), texts = new Set();
  for (const mark of document.querySelectorAll(`#chart-${name} g[class*='role-mark'] > :is(path, line)`)) {
    box.hidden = true;
    const {x, y} = mark.getBoundingClientRect();
    mark.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: x, clientY: y}));
    const lines = [...box.children].map(line => [line.firstChild.textContent, line.lastChild.textContent]);
    if (!box.hidden) texts.add(JSON.stringify(lines));
    mark.dispatchEvent(new PointerEvent("pointerout", {bubbles: true, clientX: x, clientY: y}));
  }
  return [...texts];
}"""
COUNTS = {
    *("rank", "B", "at", "staleness", "b [samples]", "layer", "nodes", "workers", "as on n nodes"),
    *("stalls at n (90 % interval)", "critical mini-batch (90 % interval)"),
}
WITHOUT_INTERVALS = {"communication", "convergence", "roofline", "staleness", "visits"}
"""Charts of times and counts that are taken as they are, and of ratios of medians."""
INTERVAL = re.compile(r"\([^()]*\d[^()]* to [^()]*\d[^()]*\)|[\d.]+ to [\d.]+ ms")


@pytest.mark.parametrize("name", [*CHARTS, "verdict-0"])
def test_hovering_says_n_and_the_interval(wide: Page, name: str) -> None:
    found = [dict(json.loads(text)) for text in wide.evaluate(TOOLTIPS, name)]
    assert found
    for tooltip in found:
        assert COUNTS & set(tooltip), tooltip
    if name not in WITHOUT_INTERVALS:
        assert any(INTERVAL.search(text) for tooltip in found for text in tooltip.values())


def test_the_mouse_brings_the_tooltip(wide: Page) -> None:
    wide.locator("#chart-speedup g.mark-symbol.role-mark path").first.hover(force=True)
    assert "speedup (90 % interval)" in wide.locator("#tooltip").inner_text()
    wide.mouse.move(1, 1)


# --- choosing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axis", "value", "unmoved"),
    first_by_day([
        # The turns are of all networks and storages.
        ("network", "googlenet", {"all-reduce", "storage", "visits", "extrapolation"}),
        ("hardware", "gpu", {"extrapolation", "steps-to-target", "noise-scale"}),
        # These are of all storages together, or of none.
        ("storage", "shared", {"roofline", "all-reduce", "free-communication", "layer-share", "layer-speedup", "sgemm",
                               "amdahl", "memory", "visits", "extrapolation", "staleness"}),
    ]),
)  # fmt: skip
def test_choosing_changes_cards_charts_and_tables_and_stays_in_the_address(
    wide: Page, axis: str, value: str, unmoved: set[str]
) -> None:
    page = wide
    everything = {name: marks(page, name) for name in CHARTS}
    assert shown(page, ".card h3") == [f"{n} on {h}" for n in ("alexnet", "googlenet") for h in ("cpu", "gpu")]
    page.get_by_text(value, exact=True).first.click()
    drawn(page)
    assert f"{axis}={value}" in page.url
    moved = {name for name in CHARTS if marks(page, name) < everything[name]}
    # The overlap shows one run at a time, and none of the second storage; throughput, costs and
    # utilisation only the fastest curves.
    # Of a storage without a fastest curve there are as many panels of others; and of one without weak scaling there
    # are no steps that more workers change.
    few = {"overlap", "throughput", "costs", "utilisation"} | (
        {"causes", "communication", "what-if", "time-to-accuracy"} if axis == "storage" else set()
    )
    assert moved | few == set(CHARTS) - unmoved | few
    assert all(marks(page, name) for name in moved - few)
    rows = page.locator("#curves tbody tr").filter(visible=True)
    assert rows.count() == page.locator(f"#curves tbody tr[data-{axis}='{value}']").count() > 0
    assert page.locator("#curves tbody tr").count() > rows.count()
    page.get_by_role("button", name="Show all").click()
    drawn(page)
    assert {name: marks(page, name) for name in CHARTS} == everything


def test_an_address_with_a_choice_opens_with_it(small: Path, open_page: Open) -> None:
    page = open_page(small, "#networks?network=googlenet&storage=shared&theme=dark")
    assert shown(page, ".card h3") == ["googlenet on cpu", "googlenet on gpu"]
    assert "shared" in page.locator(".verdict").filter(visible=True).first.inner_text()
    assert page.locator("#filters input:checked").count() == 2
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.get_by_role("link", name="Environment").click()
    page.wait_for_function("location.hash === '#environment?network=googlenet&storage=shared&theme=dark'")
    page.locator("summary", has_text="predictions").first.click()
    cells = page.locator("details[data-table=predictions] tbody tr td:first-child")
    cells.first.wait_for()
    assert set(cells.all_inner_texts()) == {"googlenet"}
    page.context.close()


def test_a_chart_of_many_panels_shows_some_at_a_time(tables: Tables, tmp_path: Path, open_page: Open) -> None:
    many = pd.concat([tables["causes"].assign(network=f"network{i}") for i in range(10)])
    write_report([], {"causes": many}, tmp_path / "report.html")
    page = open_page(tmp_path / "report.html")
    panels = page.locator("#chart-causes text")
    assert page.locator("#causes .pager output").inner_text() == "panels 1 to 12 of 20"
    page.get_by_role("button", name="Other curves too (40 more)").click()
    page.wait_for_function("document.querySelector('#causes .pager output').textContent === 'panels 1 to 12 of 60'")
    first = panels.all_text_contents()
    page.get_by_role("button", name="Next").filter(visible=True).click()
    page.wait_for_function("document.querySelector('#causes .pager output').textContent.startsWith('panels 13')")
    assert panels.all_text_contents() != first
    page.get_by_text("network7", exact=True).first.click()
    drawn(page)
    assert page.locator("#causes .pager").is_hidden()
    page.context.close()


def test_the_first_six_of_the_chosen_answers_are_sentences(
    said: list[Section], tmp_path: Path, open_page: Open
) -> None:
    one = said[0].findings[0]
    names = [f"network{i}" for i in range(8)]
    findings = (replace(one, about={**one.about, "network": name, "card": f"{name} on cpu"}) for name in names)
    answer = replace(said[0], findings=tuple(findings))
    write_report([answer], {}, tmp_path / "report.html")
    page = open_page(tmp_path / "report.html")
    lead = page.locator("#answer .lead")
    assert re.findall(r"network\d|more below", lead.inner_text()) == [*(f"network{i}" for i in range(6)), "more below"]
    page.evaluate("location.hash = '#?network=network7'")
    page.wait_for_function("!document.querySelector('#answer .lead').innerText.includes('network0')")
    assert re.findall(r"network\d|more below", lead.inner_text()) == ["network7"]
    page.context.close()


# --- taking along ---------------------------------------------------------------------------------


def saved(page: Page, button: str) -> Download:
    with page.expect_download() as download:
        page.get_by_role("button", name=button, exact=True).click()
    return download.value


def test_each_chart_saves_its_data_and_its_picture(wide: Page, tables: Tables) -> None:
    title = CHARTS["free-communication"].title
    file = saved(wide, f"{title}: save data as CSV")
    assert file.suggested_filename == "laptop-free-communication.csv"
    rows = list(csv.DictReader(io.StringIO(Path(file.path()).read_text(encoding="utf-8"))))
    measured = [row for row in rows if row["basis"] == "measured"]
    table = tables["layer_scaling"].query("layer_type == 'all'")
    assert len(measured) == len(table)
    assert sorted(float(row["value"]) for row in measured) == pytest.approx(sorted(table["speedup"]), rel=1e-4)
    picture = Path(saved(wide, f"{title}: save picture as SVG").path()).read_text(encoding="utf-8")
    assert title in picture
    assert "var(--" not in picture  # the colours of this page are not known elsewhere
    assert Path(saved(wide, f"{title}: save picture as PNG").path()).read_bytes().startswith(b"\x89PNG")
    for name in CHARTS:
        assert wide.locator(f"#{name} button[data-action=download]").count() == 3


def test_data_of_a_chart_can_be_read_beside_it(wide: Page) -> None:
    wide.locator("#data-share summary").click()
    assert {"panel", "network"} <= set(wide.locator("#data-share .data th").all_inner_texts())
    assert wide.locator("#data-share .data tbody tr").count() > 4
    wide.locator("#data-share summary").click()


# --- reading everywhere ---------------------------------------------------------------------------

CONTRASTS = """() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const linear = c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return luminance(colour);
    }
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest("script, style, option, button:disabled")) continue;
    const style = getComputedStyle(element);
    const text = luminance(channels(element.closest("svg") ? style.fill : style.color)), page = behind(element);
    const contrast = (Math.max(text, page) + .05) / (Math.min(text, page) + .05);
    if (contrast < 4.5) poor.push(`${element.textContent.trim()}: ${contrast.toFixed(2)}`);
  }
  return poor;
}"""


UNFOLD = "document.querySelectorAll('main > section > details').forEach(section => { section.open = true; })"


def opened(page: Page) -> list[str]:
    """Anchors of the open sections below the answer."""
    return page.evaluate("[...document.querySelectorAll('main > section:has(> details[open])')].map(one => one.id)")


def test_a_phone_shows_everything_without_scrolling_sideways_and_with_contrast(report: Path, open_page: Open) -> None:
    page = open_page(report, viewport=NARROW, color_scheme="dark")
    page.evaluate(UNFOLD)
    page.wait_for_function("[...document.querySelectorAll('.chart')].every(chart => chart.querySelector('svg'))")
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    wider = "[...document.querySelectorAll('.chart')].filter(c => c.scrollWidth > c.clientWidth + 60).map(c => c.id)"
    assert page.evaluate(wider) == []
    beyond = "cell => cell.getBoundingClientRect().right > innerWidth"
    assert page.evaluate(f"[...document.querySelectorAll('[data-head=verdict]')].filter({beyond}).length") == 0
    assert page.locator("[data-head=verdict]").count() > 0
    assert {name for name in CHARTS if not marks(page, name)} == set()
    assert page.evaluate(CONTRASTS) == []
    page.context.close()


def test_a_phone_starts_with_the_answer_and_opens_what_links_lead_to(small: Path, open_page: Open) -> None:
    page = open_page(small, viewport=NARROW)
    assert page.evaluate("document.documentElement.scrollHeight") < 12_000
    verdict = page.locator("#answer .lead").bounding_box()
    assert verdict
    assert verdict["y"] + verdict["height"] < NARROW["height"]
    assert opened(page) == []
    assert violations(page) == []
    page.locator(".trust a").first.click()
    assert opened(page) == ["sure"]
    page.evaluate("location.hash = '#speedup'")  # a figure inside a section
    page.wait_for_selector("#chart-speedup svg")
    in_sight = "Math.abs(document.getElementById('speedup').getBoundingClientRect().top) < innerHeight"
    page.wait_for_function(in_sight)
    topic = page.locator("main > section", has=page.locator("#speedup"))
    assert opened(page) == [topic.get_attribute("id"), "sure"]
    topic.locator("> details > summary").press("Enter")
    assert opened(page) == ["sure"]
    page.get_by_text("googlenet", exact=True).first.click()  # what is closed is drawn anew when it opens
    drawn(page)
    before = marks(page, "speedup")
    topic.locator("> details > summary").press("Enter")
    page.wait_for_selector("#chart-speedup svg")
    assert marks(page, "speedup") > before == 0
    assert "alexnet" not in page.locator("#chart-speedup").inner_text()
    page.pdf()
    assert opened(page) == [topic.get_attribute("id"), "sure"]
    page.set_viewport_size(WIDE)
    page.wait_for_function("document.querySelectorAll('main > section > details:not([open])').length === 0")
    page.context.close()
    page = open_page(small, "#environment", viewport=NARROW)
    assert opened(page) == ["environment"]
    page.context.close()


def test_without_scripts_every_section_opens_and_closes(small: Path, browser: Browser) -> None:
    page = browser.new_page(java_script_enabled=False, viewport=NARROW)
    page.goto(small.as_uri())
    row = page.locator("#environment tbody tr").first
    assert row.is_visible()
    page.locator("#environment > details > summary").click()
    assert not row.is_visible()
    page.close()


def test_the_embedded_font_is_the_one_of_texts_and_charts(wide: Page) -> None:
    assert wide.evaluate("[...document.fonts].map(font => [font.family, font.status])") == [["Inter", "loaded"]]
    for selector in ("h1", "#chart-speedup text"):
        family = wide.locator(selector).first.evaluate("element => getComputedStyle(element).fontFamily")
        assert family.startswith("Inter")


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(small: Path, open_page: Open) -> None:
    page = open_page(small)
    focus = "document.activeElement.textContent || document.activeElement.value"
    page.keyboard.press("Tab")
    assert page.evaluate(focus) == "Skip to the answer"
    seen = []
    for _ in range(200):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(f"document.activeElement.ariaLabel || {focus}"))
        if seen[-1] == f"{CHARTS['speedup'].title}: save picture as PNG":
            break
    order = ["Dark colours", "Answer", "alexnet", "cpu", "local", "alexnet on cpu: save data as CSV", "Data", seen[-1]]
    assert [seen.index(name) for name in order] == sorted(seen.index(name) for name in order)
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.locator("#filters input[value=googlenet]").focus()
    page.keyboard.press("Space")
    drawn(page)
    assert shown(page, ".card h3") == ["googlenet on cpu", "googlenet on gpu"]
    page.context.close()


def test_the_switch_changes_the_colours_and_a_print_has_pages_with_text_and_whole_charts(wide: Page) -> None:
    assert wide.evaluate(CONTRASTS) == []
    light = wide.evaluate("getComputedStyle(document.body).backgroundColor")
    wide.get_by_role("button", name="Dark colours").click()
    assert wide.evaluate("getComputedStyle(document.body).backgroundColor") != light
    assert wide.evaluate(CONTRASTS) == [], "every text stays readable"
    summary = wide.pdf(prefer_css_page_size=True)
    assert pages(summary) == 2
    drawings = b"".join(map(inflated, re.findall(rb"stream\r?\n(.*?)endstream", summary, re.DOTALL)))
    assert drawings.count(b" Tf") > 100  # text, and not pictures of it
    drawn(wide)
    wide.emulate_media(media="print")
    wide.evaluate("drawForPrint()")
    assert wide.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert wide.locator("#filters, button, #raw-tables, .data").filter(visible=True).count() == 0
    sizes = wide.evaluate("[...document.querySelectorAll('figure')].map(f => f.getBoundingClientRect().height)")
    assert max(sizes) < 267 * 96 / 25.4  # a page of A4 within its margins, mm to pixels
    wide.emulate_media(media="screen")
    wide.get_by_role("button", name="Light colours").click()
    assert wide.evaluate("getComputedStyle(document.body).backgroundColor") == light


def pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type /Page\b(?!s)", pdf))


def inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""


# --- a chart on its own ---------------------------------------------------------------------------


def test_a_chart_of_its_own_is_drawn_without_network(tables: Tables, browser: Browser, tmp_path: Path) -> None:
    render("overlap", tables, {kind: tmp_path / f"chart.{kind}" for kind in FORMATS})
    page = browser.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url) if remote(request.url) else None)
    page.goto((tmp_path / "chart.html").as_uri())
    page.wait_for_selector("select", timeout=PATIENCE)  # the menu of runs
    assert page.locator("canvas, svg").count() > 0
    assert requests == []


# --- for every reader -----------------------------------------------------------------------------

AXE = files("axe_playwright_python") / "axe.min.js"


@pytest.mark.night  # by day on a phone, above
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_no_violation(report: Path, open_page: Open, colours: str) -> None:
    page = open_page(report, "#answer?network=alexnet&hardware=cpu&storage=local", color_scheme=colours)
    page.evaluate("document.querySelectorAll('#claims details').forEach(details => { details.open = true; })")
    assert violations(page) == []
    page.context.close()


def violations(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds, each with elements that have it."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found]


@pytest.fixture(scope="module")
def others(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages whose charts Vega-Embed draws alone: an answer to a file, a comparison, a history."""
    folder = tmp_path_factory.mktemp("others")
    (folder / "rates.csv").write_text("gpus,img/s\n1,100\n2,190\n4,350\n8,600\n16,700\n32,710\n")
    needed = {table.name: tables.get(table.name, frame(table, [])) for table in COLUMNS}
    old, new = (Results(name, needed) for name in ("old", "new"))
    made = {
        "explain": answer_page.to_html(explain_files([str(folder / "rates.csv")], Options())),
        "comparison": comparison_page.to_html(compare(old, new)),
        "history": history_page.to_html(history([old, new])),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.mark.parametrize("size", by_day([WIDE, NARROW], NARROW.__eq__), ids=["desk", "phone"])
@pytest.mark.parametrize("name", ["explain", "comparison", "history"])
def test_pages_beside_the_report_fit_and_serve_every_reader(
    browser: Browser, others: dict[str, Path], name: str, size: dict[str, int]
) -> None:
    page = browser.new_page(viewport=size)
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.goto(others[name].as_uri())
    charts = page.locator("[id^=chart-]").count()
    assert charts
    for place in range(charts):
        page.locator(f"#chart-{place} summary[aria-label]").wait_for(state="attached", timeout=PATIENCE)
    assert trouble == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    page.locator("#chart-0 summary").click()
    menu = page.locator("#chart-0 .vega-actions a").last
    assert menu.evaluate(
        "one => { one.scrollIntoView(); const {x, y, width, height} = one.getBoundingClientRect();"
        " return document.elementFromPoint(x + width - 2, y + height - 2) === one; }"
    ), "the menu is whole"
    assert violations(page) == []
    page.close()


def test_a_chart_is_seen_without_scripts(browser: Browser, others: dict[str, Path]) -> None:
    page = browser.new_page(java_script_enabled=False, viewport=NARROW)
    page.goto(others["explain"].as_uri())
    box = page.locator("#chart-0 noscript svg").bounding_box()
    assert box
    assert box["height"] > 200
    page.close()
