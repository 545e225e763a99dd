"""A disk that is full ends a run in one sentence; with space again the same command goes on, and nothing is lost."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import BLOCK, OWN_NETWORK, TINY, Checkout, Ran

KIB = 1024
SIZE = 400 * KIB * KIB
"""Of the disk, on which the whole checkout is."""
STUDY = {
    "iterations": 1,
    "warmup": 0,
    "networks": OWN_NETWORK,
    "storage": {"jpeg": {"path": "images", "format": "files", "generate": 4}},
    "matrix": [{**BLOCK, "network": "mine", "nodes": 1, "scaling": "strong"}],
    "storage_reads": {"samples": 2},
    "external_tables": {},
    "claims": [],
}
TARGET = "results/tiny/tables/runs.parquet"


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Checkout]:
    """A checkout on a disk of its own, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if root := os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", folder], check=True)
    checkout = Checkout(folder, {**TINY, **STUDY})
    yield checkout
    if root:
        subprocess.run(["umount", "--lazy", folder], check=True)


def run(study: Checkout, left: int) -> Ran:
    """Run the study with so many KiB left; of each file, where no disk could be mounted."""
    if os.geteuid():
        snakemake = Path(sys.executable).with_name("snakemake")
        ran = subprocess.run(
            ["bash", "-c", f"ulimit -f {left // 50}; exec {snakemake} --nocolor {TARGET}"], cwd=study.folder,
            env={**os.environ, "PYTHONPATH": study.library}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        return Ran(ran.returncode, ran.stdout)
    filler, disk = study.folder / "filler", os.statvfs(study.folder)
    filler.write_bytes(bytes(disk.f_bavail * disk.f_frsize - left * KIB))
    ran = study.snakemake(TARGET)
    filler.unlink()
    return ran


def records(study: Checkout) -> dict[Path, bytes]:
    """Visits and records that are there."""
    return {file: file.read_bytes() for file in study.results("visits").rglob("*.parquet") if file.is_file()}


@pytest.mark.parametrize("left", [(4, 500, 650), pytest.param((0, 300, 350, 600, 800, 1000), marks=pytest.mark.night)])
def test_a_full_disk_is_said_in_a_sentence_and_the_same_command_goes_on(study: Checkout, left: tuple[int, ...]) -> None:
    measured: dict[Path, bytes] = {}
    for kib in left:
        ran = run(study, kib)
        if ran.status:
            assert "no space left on the device" in ran.text or "the disk is full" in ran.text, (kib, ran.text)
        assert "Traceback" not in ran.text, (kib, ran.text)
        assert "Logging error" not in ran.text, (kib, ran.text)
        assert ran.text.count("the disk is full") <= 1, (kib, ran.text)
        assert len(ran.text.splitlines()) <= 20, (kib, ran.text)
        found = records(study)
        whole = {file: data for file, data in measured.items() if file.parent.name == "record"}
        assert whole.items() <= found.items(), "what was recorded stays"
        measured = found
    again = study.snakemake(TARGET)
    assert again.status == 0, again.text
    kept = {file: data for file, data in measured.items() if file.parent.name == "record"}
    assert kept.items() <= records(study).items()
    assert len([*study.results("raw").rglob("runs.parquet")]) == 3
