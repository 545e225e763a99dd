"""A finished study archived, unpacked elsewhere and drawn again without measuring; and beside another study."""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from pathlib import Path

import pytest
from checkout import Checkout
from kills import called, processes_of
from rocrate_community import problems

from stallpoint.archive.making import find_words, texts
from stallpoint.records.parquet import read, read_frames
from stallpoint.records.tables import ENVIRONMENTS, MODEL_TABLES, TABLES, TIDY_TABLES
from stallpoint.report.charts import CHARTS
from stallpoint.report.charts.render import FORMATS, render

FIGURE = "results/tiny/figures/causes.svg"
DRAWN = [
    *(f"results/tiny/tables/{table.name}.parquet" for table in TIDY_TABLES),
    *(f"results/tiny/models/{table.name}.parquet" for table in MODEL_TABLES),
    "results/tiny/conclusions.md",
    "results/tiny/conclusions.json",
    FIGURE,
    "results/tiny/report.html",
]


@pytest.fixture(scope="module")
def unpacked(archive: Path, new_checkout: Callable[..., Checkout]) -> Checkout:
    """The archive on another machine, as it were, with nothing that could measure."""
    elsewhere = new_checkout()
    for part in sorted(elsewhere.folder.rglob("*"), reverse=True):
        part.rmdir() if part.is_dir() and not part.is_symlink() else part.unlink()
    with zipfile.ZipFile(archive) as file:
        file.extractall(elsewhere.folder)
    (elsewhere.folder / "scripts/measure.py").write_text("raise SystemExit('nothing is measured here')\n")
    return elsewhere


@pytest.mark.night
@pytest.mark.usefixtures("archive")
def test_a_run_says_where_the_archive_is(finished: Checkout) -> None:
    finished.write_study()
    assert finished.snakemake("archive").text.splitlines()[-1] == "Archive: archives/tiny.zip"


DRAWING = (
    "collect",
    "fit",
    "extrapolate_study",
    "draw",
    "papers",
    "conclude",
    "typeset",
    "slides",
    "report_page",
    "archive",
)
"""Scripts of the rules between the records and the archive."""


@pytest.mark.night
def test_equal_records_give_equal_bytes_whatever_was_killed(archive: Path, finished: Checkout, tmp_path: Path) -> None:
    """Everything behind the records is drawn again, and all processes are killed while each rule runs."""
    killed = copy(finished)
    killed.folder = Path(shutil.copytree(finished.folder, tmp_path / "killed", symlinks=True))
    for name in ("tables", "models", "figures", "papers", "typeset", "slides"):
        shutil.rmtree(killed.results(name))
    for name in ("claims.parquet", "conclusions.json", "conclusions.md", "report.html", "../../archives/tiny.zip"):
        killed.results(name).unlink()
    left, delays = set(DRAWING), random.Random(6129)
    while killed_one := _kill_at_one_of(killed, left, delays.uniform(0, 1)):
        left.remove(killed_one)
    assert left == set()
    ran = killed.snakemake("--logger-stallpoint-plain", "archive")
    assert (ran.status, "Traceback" in ran.text) == (0, False), ran.text
    whole, again = (_members(zipfile.ZipFile(one)) for one in (archive, killed.folder / "archives/tiny.zip"))
    assert {name for name in whole | again if whole.get(name) != again.get(name)} == set()
    assert archive.read_bytes() == (killed.folder / "archives/tiny.zip").read_bytes()


def _kill_at_one_of(study: Checkout, scripts: set[str], delay: float) -> str | None:
    """Run the study to its archive, and kill all its processes `delay` s after one of the scripts began; return which,
    None if the run ended before."""
    run = study.start_snakemake("archive", said=subprocess.DEVNULL, own_session=True)
    while run.poll() is None:
        processes = processes_of(run.pid)
        if found := next((name for name in DRAWING if name in scripts and called(f".{name}.py", processes)), None):
            time.sleep(delay)
            while processes := processes_of(run.pid):
                for process in processes:
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
            run.wait()
            return found
        time.sleep(0.02)
    return None


def _members(file: zipfile.ZipFile) -> dict[str, int]:
    return {one.filename: one.CRC for one in file.infolist()}


def test_it_validates(archive: Path, tmp_path: Path) -> None:
    assert problems(archive, tmp_path / "cache") == []


def test_it_names_neither_host_nor_place(unpacked: Checkout, finished: Checkout) -> None:
    results = [str(file.relative_to(unpacked.folder)) for file in unpacked.results().rglob("*") if file.is_file()]
    own = [*results, "config/config.yaml", "README.md", "CITATION.cff", "archive.json", "ro-crate-metadata.json"]
    assert find_words([socket.gethostname()], unpacked.folder, own) == {}
    for file in filter(Path.is_file, unpacked.folder.rglob("*")):
        said = "\n".join(texts(file)) + file.read_bytes().decode(errors="replace")
        assert str(finished.folder) not in said, file
    nodes = read(ENVIRONMENTS, unpacked.results("tables/environments.parquet"))["node"].to_pylist()
    assert set(nodes) == {"node1"}


def test_it_is_drawn_again_byte_by_byte_without_measuring(unpacked: Checkout) -> None:
    archived = {name: (unpacked.folder / name).read_bytes() for name in DRAWN}
    for name in DRAWN:
        (unpacked.folder / name).unlink()
    planned = unpacked.snakemake("-n").jobs
    assert {"collect", "fit", "draw", "conclude", "report_page"} <= planned.keys()
    assert not planned.keys() & {"train", "sgemm", "collectives", "storage", "prepare_storage", "describe_network"}
    ran = unpacked.snakemake("--", "results/tiny/conclusions.md")
    assert ran.status == 0, ran.text
    draw_again(unpacked.folder / FIGURE)
    ran = unpacked.snakemake("--allowed-rules", "report_page", "--", "results/tiny/report.html")
    assert ran.status == 0, ran.text
    assert [name for name in DRAWN if (unpacked.folder / name).read_bytes() != archived[name]] == []


def draw_again(figure: Path) -> None:
    """Draw one chart of a study, in all formats, from the tables that are there."""
    results, chart = figure.parents[1], CHARTS[figure.stem]
    files = {file.stem: file for folder in ("tables", "models") for file in (results / folder).glob("*.parquet")}
    tables = read_frames([TABLES[name] for name in chart.tables], files)
    render(figure.stem, tables, {format: figure.with_suffix(f".{format}") for format in FORMATS})
