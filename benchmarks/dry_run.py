"""Planning a study of 10,000 cells, against the least that Snakemake needs for as many jobs."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml
from paired import Figure, Timing, report, rounds

ROOT = Path(__file__).parents[1]
CELLS = 10_000
BARE = f"""
rule all:
    input: expand("{{i}}.txt", i=range({CELLS}))
rule one:
    output: "{{i}}.txt"
    shell: "touch {{output}}"
"""


def study() -> dict:
    """10,000 training cells: 2 networks x 5 batches x 2 storages x 2 scalings x 2 syncs x 125 repeats."""
    return {
        "study": "large",
        "hardware": {"nodes": {"device": "cpu", "nodes": 8}},
        "storage": {name: {"path": f"images/{name}", "format": "files", "generate": 8} for name in ("a", "b")},
        "matrix": [
            {
                "network": ["alexnet", "googlenet"],
                "hardware": "nodes",
                "nodes": 4,
                "batch": [16, 32, 64, 128, 256],
                "storage": ["a", "b"],
                "scaling": ["strong", "weak"],
                "sync": ["naive", "wfbp"],
            }
        ],
        "repeats": CELLS // 80,
    }


def benchmark(scratch: Path, count: int) -> tuple[list[Timing | Figure], list[str]]:
    """Timings and lines to print."""
    scratch.mkdir(exist_ok=True)
    (scratch / "bare").write_text(BARE)
    (scratch / "study.yaml").write_text(yaml.safe_dump(study()))
    snakemake = [str(Path(sys.executable).with_name("snakemake")), "-n", "--directory", str(scratch)]
    commands = {
        "stallpoint": [*snakemake, "-s", str(ROOT / "Snakefile"), "--configfile", str(scratch / "study.yaml")],
        "bare Snakemake": [*snakemake, "-s", str(scratch / "bare")],
    }
    timings = rounds(f"dry run of {CELLS:,} cells", commands, count, folder=scratch)
    figures, lines = report(timings, "stallpoint", "bare Snakemake", "<= 1.2")
    return [*timings, *figures], lines
