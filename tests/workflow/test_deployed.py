"""The workflow in a folder that has none of its files, as it is deployed from the workflow catalog."""

import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from checkout import ELSEWHERE, ROOT, TINY

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


def snakemake(folder: Path, *targets: str) -> None:
    command = [str(Path(sys.executable).with_name("snakemake")), "--nocolor", *targets]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_an_empty_folder_gets_its_report(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    for folder in ("config", "workflow"):
        (tmp_path / folder).mkdir()
    study = {**TINY, "matrix": [{**TINY["matrix"][0], "scaling": "strong"}], "claims": ["papers"]}
    (tmp_path / "config/config.yaml").write_text(yaml.safe_dump(study))
    (tmp_path / "workflow/Snakefile").write_text(DEPLOYED.format(root=ROOT))
    (tmp_path / "elsewhere.csv").write_text(ELSEWHERE)
    snakemake(tmp_path, "results/tiny/report.html")
    assert (tmp_path / "results/tiny/report.html").stat().st_size > 0
    assert (tmp_path / "results/tiny/turns/local.json").exists(), "what the module does before jobs start"


def test_the_catalog_finds_what_it_asks_for() -> None:
    shown = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())
    assert set(shown["usage"]) == {"mandatory-flags", "software-stack-deployment", "report"}
    assert (ROOT / "workflow/Snakefile").exists()
    assert (ROOT / "config/README.md").exists()
