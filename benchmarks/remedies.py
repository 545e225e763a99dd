"""Are remedies as good as predicted? A study, and then the cells of its curves and of its remedies, measured anew.

Printed for each remedy that a cell can measure: its gain, predicted by the first study, and measured by the second
between visits to the remedy's cell and to the curve's own; and how many lie inside the predicted interval.

``python benchmarks/remedies.py [--study FILE] [--cluster eight.toml] [--before RESULTS] [--most N] [--minutes M]``
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from slow_nodes import slow_nodes

from stallpoint.base.statistics import REPLICATES, Ensemble, estimate, generator
from stallpoint.study.configuration import load_file, load_study
from stallpoint.study.study import expand

ROOT = Path(__file__).parents[1]
SCHEMA = load_file(ROOT / "workflow/schemas/study.schema.yaml")
CURVE = ["network", "hardware", "batch", "storage", "scaling", "sync", "prefetch"]


def run(study: Mapping[str, Any], name: str, cluster: str | None, target: str) -> Path:
    """Run a study anew under a name, on this machine or on a `cluster` of tests/cluster; its results."""
    results = ROOT / "results" / name
    subprocess.run(["rm", "-rf", str(results)], check=True)
    file = ROOT / "results" / f"{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump({**study, "study": name}))
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    command = [snakemake, *(["--profile", "slurm"] if cluster else []), "--configfile", str(file)]
    with slow_nodes(cluster) if cluster else nullcontext(os.environ) as environment:
        subprocess.run([*command, "--", target], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=environment)
    return results


def with_cells(study: Mapping[str, Any], entries: Sequence[str]) -> dict[str, Any]:
    """The study with what remedies' cells need, and these under ``include``."""
    found: dict[str, Any] = {**study, "include": [*study.get("include", [])]}
    for entry in map(yaml.safe_load, entries):
        found["include"] += entry.pop("include")
        for section, values in entry.items():
            found[section] = {**found.get(section, {}), **values}
    return found


def path_of(study: Mapping[str, Any], entry: str) -> str:
    """The path of the cell that a remedy asks for, which comes before what that cell needs beside."""
    return next(iter(expand(with_cells({**study, "include": [], "matrix": []}, [entry]), SCHEMA).cells))


def rates(results: Path) -> dict[str, Ensemble]:
    """Samples per second of each cell: the estimate, and replicates over its visits."""
    rows = pd.read_parquet(results / "tables/iterations.parquet")
    rows = rows[~rows["warmup"]]
    of_visits = rows.groupby(["cell", "global_batch", "visit"])["iteration_time"].median()
    draw, found = generator(0, "remedies"), {}
    for (cell, batch), times in of_visits.groupby(["cell", "global_batch"]):
        values = times.to_numpy()
        drawn = np.median(draw.choice(values, (REPLICATES, len(values))), axis=1)
        found[str(cell)] = batch / np.append(np.median(values), drawn)
    return found


def compared(study: Mapping[str, Any], before: pd.DataFrame, after: Path) -> Iterator[dict[str, Any]]:
    """Rows of each remedy: its gain as predicted and as measured, and whether these agree."""
    measured = rates(after)
    for row in before.to_dict("records"):
        own = {name: row[name] for name in (*CURVE, "nodes")}
        plain = next(
            path
            for path in measured
            if all(f"/{name}~{value}/" in f"{path}/".replace("train/", "/", 1) for name, value in own.items())
        )
        value, low, high = estimate(measured[path_of(study, row["cell"])] / measured[plain])
        inside = row["gain_low"] <= value if not row["upper_bound"] else True
        yield {
            **{name: row[name] for name in ("network", "batch", "ranks", "remedy")},
            "predicted": row["gain"],
            "from": row["gain_low"],
            "to": row["gain_high"],
            "measured": value,
            "measured_from": low,
            "measured_to": high,
            "inside": inside and value <= row["gain_high"],
            "apart": high < row["gain_low"] * (not row["upper_bound"]) or low > row["gain_high"],
        }


def main() -> None:
    """Print the table and its counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=ROOT / "config/config.yaml")
    parser.add_argument("--cluster", help="a file of tests/cluster: the test cluster runs both")
    parser.add_argument("--before", type=Path, help="results of the study, where it has been run")
    parser.add_argument("--most", type=int, default=4, help="remedies of each curve that are measured (%(default)s)")
    parser.add_argument("--minutes", type=float, default=9.0, help="budget of the second study (%(default)s)")
    given = parser.parse_args()
    study = load_study(given.study)
    before = given.before or run(study, "remedies-before", given.cluster, "all")
    rows = pd.read_parquet(before / "models/remedies.parquet")
    rows = rows[rows["cell"].ne("") & rows["gain"].notna()].sort_values("rank_in_curve")
    cells = expand(study, SCHEMA).cells  # readers are no axis of these
    rows = rows[[path_of(study, entry) not in cells for entry in rows["cell"]]].groupby(CURVE).head(given.most)
    plain = rows[[*CURVE, "nodes"]].drop_duplicates().to_dict("records")
    again = with_cells({**study, "budget": {"minutes": given.minutes}, "matrix": plain}, list(rows["cell"]))
    found = pd.DataFrame(compared(again, rows, run(again, "remedies-after", given.cluster, "collect")))
    print(found.round(3).to_string(index=False))
    print(f"measured inside the predicted interval: {found['inside'].sum()} of {len(found)}; "
          f"intervals apart: {found['apart'].sum()}")  # fmt: skip


if __name__ == "__main__":
    main()
