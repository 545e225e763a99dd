"""The documentation: the site builds, links lead somewhere, and commands and paths that are named exist."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from pages import PAGES, ROOT, anchors, blocks, links, prose, shown_commands
from playwright.sync_api import sync_playwright
from snakemake.cli import get_argument_parser

from stallpoint.records.tables import TABLES
from stallpoint.study.study import expand

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
PYTHON = [block for page in PAGES for block in blocks(page) if block.language == "python"]
SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())
PARSER = cache(get_argument_parser)
"""Snakemake's, which takes longer to build than all commands to be parsed."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 120_000
"""How long a busy machine may take to find something, ms."""
BUILT = {"results", "logs", ".venv", ".snakemake", "site"}
"""Folders that only exist once something ran."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site: a page that is missing, a link or an anchor that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    assert "threads_per_worker" in (site / "configuration.html").read_text()


def test_llms_txt_lists_every_page_once(site: Path) -> None:
    listed = re.findall(r"^- \[[^\]]+\]\((.*)\)$", (site / "llms.txt").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(site)) for page in site.rglob("*.html") if page.stem != "404")


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")
    found = {tag for page in site.rglob("*.html") for tag in loaded.findall(page.read_text())}
    assert not found


def test_the_first_tab_has_few_entries_and_the_home_page_a_first_answer(site: Path) -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert next(iter(nav[1])) == "Start"
    assert len(nav[1]["Start"]) <= 6
    home = (ROOT / "docs/index.md").read_text()
    assert home.index("pip install") < home.index("stallpoint explain") < home.index("](images/")


@pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason="needs a browser: the package chromium")
def test_pages_are_found_by_their_words_from_disk(site: Path) -> None:
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for page in ("index.html", "symptoms/hang.html"):
            tab = browser.new_page(viewport={"width": 1280, "height": 800})
            tab.set_default_timeout(PATIENCE)
            tab.on("request", lambda request: asked.append(request.url))
            tab.goto((site / page).as_uri())
            tab.locator("input.md-search__input").press_sequentially("interleaved schedule")
            found = tab.locator(".md-search-result__link").first
            found.wait_for()
            link = str(found.get_attribute("href"))
            assert "interleaved schedule" in Path(unquote(urlsplit(link).path)).read_text()
    assert [url for url in asked if not url.startswith("file:")] == []


def test_setting_up_says_what_is_installed(tmp_path: Path) -> None:
    python = tmp_path / "python"  # makes an empty folder of an environment
    python.write_text('#!/bin/sh\nfor last; do :; done\ntest "$2" != venv || mkdir "$last"\n')
    python.chmod(0o755)
    given = (f"VENV={tmp_path / 'venv'}", "PIP=true", "UV=true", f"PYTHON={python}")
    command = ["make", "--no-print-directory", "setup", *given]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    first, *parts = made.stdout.splitlines()
    assert first.startswith("Installing into ")
    assert parts == ["  PyTorch and numpy ...", "  stallpoint with workflow,openmpi: what requirements.lock names ..."]


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_the_first_page_says_first_where_it_runs(name: str) -> None:
    title, _, first = (ROOT / name).read_text().splitlines()[:3]
    assert (title, first.split(",")[0].rstrip(".")) == ("# stallpoint", "Linux only")


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_and_headings_that_exist(name: str) -> None:
    page = ROOT / name
    for link in links(page):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name}: {link}"
        if heading:
            assert heading in anchors(target), f"{name}: {link}; there are {sorted(anchors(target))}"


@pytest.mark.parametrize("name", NAMES)
def test_commands_are_understood(name: str) -> None:
    parser = PARSER()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for program, *arguments in shown_commands(ROOT / name):
        if program == "make":
            assert {word for word in arguments if "=" not in word} <= targets, arguments
        else:
            parser.parse_args([word for word in arguments if word != "..."])


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_named_exist(name: str) -> None:
    """Paths in the text below the repository's own folders, and those that commands are given."""
    page = ROOT / name
    own = {block.title for other in PAGES for block in blocks(other)}
    named = re.findall(r"`([\w.-]+/[\w./-]+)`", prose(page))
    named += [word for command in shown_commands(page) for word in command if "/" in word]
    top = {path.name for path in ROOT.iterdir()} - BUILT
    for path in named:
        if path.split("/")[0] in top and path not in own:
            assert (ROOT / path).exists(), f"{name}: {path}"


def test_the_tutorial_shows_the_plan_of_the_default_study_and_with_a_node_count_more() -> None:
    tutorial = (ROOT / "docs/tutorial.md").read_text()
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    before = expand(config, SCHEMA)
    assert before.plan() in tutorial
    config["matrix"][0]["nodes"].append(4)
    config["hardware"]["local"]["nodes"] = 4
    after = expand(config, SCHEMA)
    assert after.plan() in tutorial
    assert before.cells.items() <= after.cells.items(), "no cell becomes stale"


def test_the_tutorial_shows_the_plan_of_a_paper() -> None:
    tutorial = (ROOT / "docs/tutorial.md").read_text()
    plan = expand(yaml.safe_load((ROOT / "config/studies/keuper-2016.yaml").read_text()), SCHEMA).plan()
    shown = tutorial[tutorial.index("study keuper-2016") :].split("```")[0]
    assert set(shown.splitlines()) - {"  ..."} <= set(plan.splitlines())


def test_the_page_about_scripts_shows_the_plan_of_its_study() -> None:
    config = yaml.safe_load((ROOT / "config/studies/own-script.yaml").read_text())
    assert expand(config, SCHEMA).plan() in (ROOT / "docs/your-script.md").read_text()


def test_studies_shown_for_a_cluster_are_valid() -> None:
    """Those of docs/extending are run (tests/workflow/test_docs_examples.py)."""
    shown = [block for block in blocks(ROOT / "docs/cluster.md") if block.title]
    assert shown
    for block in shown:
        assert expand(yaml.safe_load(block.text), SCHEMA).cells


def test_generated_parts_are_up_to_date() -> None:
    hooks = runpy.run_path(str(ROOT / "docs/hooks.py"))
    pages = {page.resolve().relative_to(ROOT).as_posix(): page.read_text() for page in hooks["pages"]()}
    assert {"config/README.md", "docs/records.md", "docs/networks.md", "docs/extending/storage.md"} < set(pages)
    assert [page for page, text in pages.items() if hooks["filled"](text) != text] == []
    used = {part for text in pages.values() for _, part, *_ in hooks["MARKED"].findall(text)}
    assert used == set(hooks["PARTS"])
    assert hooks["filled"]("<!-- generated: alike -->\n\nold\n\n<!-- end -->") in pages["docs/presets.md"]


def test_every_table_is_on_the_page_about_records() -> None:
    page = (ROOT / "docs/records.md").read_text()
    assert set(re.findall(r"^### (\w+)", page, re.MULTILINE)) == set(TABLES)


def test_records_name_rules_that_exist() -> None:
    rules = set()
    for file in (ROOT / "workflow/rules").glob("*.smk"):
        rules |= set(re.findall(r"^ *rule (\w+):", file.read_text(), re.MULTILINE))
    named = re.findall(r"[Ww]ritten by the rule `(\w+)`", (ROOT / "docs/records.md").read_text())
    assert len(named) >= 5
    assert set(named) <= rules


@pytest.mark.parametrize("page", sorted((ROOT / "docs/models").glob("[!i]*.md")), ids=lambda page: page.stem)
def test_a_model_says_its_formula_source_assumptions_and_where_it_fails(page: Path) -> None:
    headings = "\n".join(re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE))
    for part in ("Formula", "Source", "Assumptions, and where it fails"):
        assert part in headings, f"{page.name}: no section on {part}"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_the_text_is_taken_for_html(name: str) -> None:
    """<study> outside of code would not be shown."""
    text = re.sub(r"`[^`]*`", "", prose(ROOT / name))
    assert not re.findall(r"<(?!https?:)/?[A-Za-z][^>\n]*>", text)


def test_python_that_is_shown_is_as_tidy_as_our_own(tmp_path: Path) -> None:
    for number, block in enumerate(PYTHON):
        file = tmp_path / str(number) / (block.title or "shown.py")
        file.parent.mkdir(parents=True)
        file.write_text(block.text)
    for check in (["check", "--select=E,F,I"], ["format", "--diff"]):
        command = [sys.executable, "-m", "ruff", *check, "--config", "pyproject.toml", "--no-cache", str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_a_page_is_older_than_its_code_once_that_differs_in_more_than_words(tmp_path: Path) -> None:
    older = runpy.run_path(str(ROOT / "docs/older.py"))["older"]
    older.__globals__["ROOT"] = tmp_path
    page, library = Path("docs/page.md"), tmp_path / "src/stallpoint"

    def commit(file: Path, text: str) -> str | None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", file.name)):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)
        said: str | None = older(page)
        return said

    (tmp_path / "docs/images").mkdir(parents=True)
    (tmp_path / page).write_text("```\npython scripts/draw.py\n```\n![](images/a.svg)\n")
    commit(tmp_path / "scripts/draw.py", "from stallpoint.lines import line\n")
    commit(library / "__init__.py", "")
    commit(library / "lines.py", "def line(): ...\n")
    assert commit(tmp_path / "docs/images/a.svg", "<svg/>") is None
    assert commit(library / "lines.py", '# One.\ndef line():\n    """Draw it."""\n    ...\n') is None
    said = commit(library / "lines.py", "def line(): return 1\n")
    assert said is not None
    assert said.endswith("1 of 3 files differ since (lines.py 1)")
    assert "docs/page.md: made 2" in said
    assert commit(tmp_path / "docs/images/a.svg", "<svg></svg>") is None
