"""The workflow in a folder that has none of its files, as it is deployed from the workflow catalog."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import forked
import yaml
from checkout import ROOT, Checkout

DEPLOYED = """from snakemake.utils import min_version

min_version("6.10.0")


configfile: "config/config.yaml"


module stallpoint:
    snakefile:
        "{root}/workflow/Snakefile"
    config:
        config


use rule * from stallpoint
"""
"""What ``snakedeploy deploy-workflow`` writes; of a repository on this machine it leaves the folder out."""


REMADE = ("conclusions.*", "papers/shi-2018")
"""What the workflow makes there of the tables of a study that was finished elsewhere."""
TARGETS = ("results/tiny/conclusions.md", "results/tiny/papers/shi-2018")


def snakemake(folder: Path, *arguments: str) -> None:
    command = [str(Path(sys.executable).with_name("snakemake")), "--nocolor", *arguments]
    environment = {**os.environ, **forked.environment(str(ROOT / "src"))}
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_an_empty_folder_measures_and_gets_its_answers(finished: Checkout, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    for name in ("config", "images", "results"):
        shutil.copytree(finished.folder / name, tmp_path / name)
    for name in ("elsewhere.csv", "claims.yaml"):
        shutil.copy2(finished.folder / name, tmp_path)  # as old as it is: what was drawn of it stays
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow/Snakefile").write_text(DEPLOYED.format(root=ROOT))
    results = tmp_path / "results/tiny"
    for pattern in REMADE:
        for path in results.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    snakemake(tmp_path, "--rerun-triggers", "mtime", "--", *TARGETS)
    assert all((tmp_path / target).stat().st_size > 0 for target in TARGETS)

    (results / "schedule/local.json").unlink()
    cell = next((results / "raw/storage").rglob("repeat~1")).relative_to(tmp_path)
    snakemake(tmp_path, "--rerun-triggers", "mtime", "--force", "--", str(cell))
    assert (results / "schedule/local.json").exists(), "what the module does before jobs start"
    assert (tmp_path / cell / "runs.parquet").stat().st_mtime > (tmp_path / TARGETS[0]).stat().st_mtime


def test_the_catalog_finds_what_it_asks_for() -> None:
    shown = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())
    assert set(shown["usage"]) == {"mandatory-flags", "software-stack-deployment"}
    assert shown["usage"]["software-stack-deployment"]["report"] is True
    assert (ROOT / "workflow/Snakefile").exists()
    assert (ROOT / "config/README.md").exists()
