"""Write docs/storage-volume.md and its picture: where training data lay, and what that did, on a parallel file system.

usage: document_storage.py RESULTS > docs/storage-volume.md (RESULTS: the folder of the study's results)
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from stallpoint.conclusions.details import saturation_in_words
from stallpoint.conclusions.words import markdown_table
from stallpoint.models.answers.feeding import BUSY
from stallpoint.numerals import interval
from stallpoint.origins import in_words

STUDY = Path("benchmarks/storage_volume.yaml")
PICTURE = Path("docs/images/storage-volume-fig-13.svg")
CURVE = ["network", "storage", "sync", "prefetch", "batch"]
HEAD = """# Where training data lies

A run of `benchmarks/storage_volume.yaml` (November 2026) on the [test cluster](reliability.md) with its storage node:
four Slurm nodes, and a fifth that serves a GlusterFS volume, each in its own network namespace, **all links shaped to
200 Mbit/s** (25 MB/s). Gradients and training data share a node's link. All nodes share one machine of two cores, so
beyond two nodes they also share its processors: iterations then take longer, and waiting for data is less of them.

```
python benchmarks/run.py storage-volume       # the run: about a quarter of an hour
python scripts/document_storage.py results/storage-volume > docs/storage-volume.md
```

The same samples lie in several places and formats: *local* on a disk that every node has, on the *volume*, and
*staged*, copied from the volume to each node's own disk at the beginning of a job; as JPEG files (jpeg) and as decoded
arrays (raw). Numbers are medians with 90 % intervals.
"""


def lines(results: Path) -> Iterator[str]:
    """The whole page; copies the picture."""
    tables = {name: pd.read_parquet(results / f"models/{name}.parquet") for name in TABLES}
    formats = {name: entry["format"] for name, entry in yaml.safe_load(STUDY.read_text())["storage"].items()}
    yield HEAD
    yield from _rates(tables["storage_rates"], formats)
    yield from _fed(tables["feeding"])
    yield from _starving(tables["feeding"], tables["saturation"])
    yield from _break_even(tables["break_even"])
    shutil.copyfile(results / "papers/keuper-2016/fig-13.svg", PICTURE)
    yield "## Keuper & Pfreundt's Fig. 13\n"
    yield "A panel for each storage: shares of layer types and data in the time that communication does not take."
    yield "In the paper's figure compute units idle while data is read from Lustre.\n"
    yield f"![Share of the data layer, by storage](images/{PICTURE.name})"


TABLES = ("storage_rates", "feeding", "saturation", "break_even")


def _estimate(row: Any, name: str, scale: float = 1.0, unit: str = "") -> str:
    ends = zip(("value", "low", "high"), (getattr(row, name + end) for end in ("", "_low", "_high")), strict=True)
    estimate = {end: None if pd.isna(value) else float(value) for end, value in ends}
    return "" if estimate["value"] is None else interval(estimate, scale, unit)


def _rates(rates: pd.DataFrame, formats: dict[str, str]) -> Iterator[str]:
    yield "## How fast is it read, and from where?\n"
    yield "All nodes read at once, each its own samples, in random order; cold: nothing of them is in a page cache.\n"
    cold = rates[(rates["order"] == "shuffled") & (rates["cache"] == "cold")].sort_values(["storage", "nodes"])
    yield markdown_table(
        ["storage", "format", "nodes", "samples/s", "MB/s", "the bytes came", "file system"],
        (
            [
                row.storage, formats[row.storage], str(row.nodes), _estimate(row, "samples_per_second"),
                _estimate(row, "bytes_per_second", 1e-6), in_words(row.origin, row.server_cache),
                f"{row.filesystem}, {row.locality}",
            ]
            for row in cold.itertuples()
        ),
    )  # fmt: skip
    yield ""


def _fed(feeding: pd.DataFrame) -> Iterator[str]:
    yield "## Which training is fed, by how many readers?\n"
    yield (
        "Utilisation is the part of an iteration in which workers do not wait for data; predicted without the curve's "
        "own cells at that node count. So many readers as are needed, reading ahead, keep a worker busy.\n"
    )
    measured = feeding[feeding["basis"] == "measured"].sort_values([*CURVE, "nodes"])
    yield markdown_table(
        ["network", "storage", "sync", "prefetch", "nodes", "b", "utilisation, %", "predicted, %", "readers needed"],
        (
            [
                row.network, row.storage, row.sync, str(row.prefetch), str(row.nodes), str(row.worker_batch),
                _estimate(row, "utilisation", 100), _estimate(row, "predicted_utilisation", 100),
                _estimate(row, "readers_needed"),
            ]
            for row in measured.itertuples()
        ),
    )  # fmt: skip
    yield ""
    several = measured[measured["ranks"] > 1].dropna(subset=["predicted_utilisation"])
    apart = 100 * (several["predicted_utilisation"] - several["utilisation"]).abs()
    yield (
        f"On several nodes predicted and measured are {apart.median():.1f} points apart in the median, "
        f"{apart.quantile(0.9):.1f} in nine of ten, {apart.max():.1f} at most ({len(apart)} places).\n"
    )


def _starving(feeding: pd.DataFrame, saturation: pd.DataFrame) -> Iterator[str]:
    yield "## From which node count on does training starve?\n"
    yield (
        "The first node count, measured or predicted, at which workers surely wait more than a tenth of an iteration "
        "for data; then from how many workers on the storage itself gives no more.\n"
    )
    rows = []
    for curve, at in feeding.sort_values("nodes").groupby(CURVE, sort=True):
        starved = at[at["utilisation_high"] < BUSY]
        first = starved.iloc[0] if len(starved) else None
        where = "not up to " + str(at["nodes"].max()) if first is None else f"{first['nodes']} ({first['basis']})"
        rows.append([*map(str, curve), where])
    yield markdown_table(["network", "storage", "sync", "prefetch", "mini-batch", "starves from, nodes"], rows)
    yield ""
    yield markdown_table(
        ["storage", "verdict, in workers that read at once", "saturates at, workers"],
        (
            [
                row.storage, saturation_in_words({"verdict": row.verdict, "verdict_ranks": row.verdict_ranks}),
                _estimate(row, "saturation_ranks") or f"not up to {row.largest_considered}",
            ]
            for row in saturation.sort_values("storage").itertuples()
        ),
    )  # fmt: skip
    yield ""


def _break_even(rows: pd.DataFrame) -> Iterator[str]:
    yield "## Does staging or packing pay, and after how many epochs?\n"
    yield markdown_table(
        [
            "network", "storage", "remedy", "instead of", "sync", "prefetch", "nodes", "takes, s",
            "wait in an epoch before, s", "after, s", "verdict", "after epochs",
        ],
        (
            [
                row.network, row.storage, row.remedy, row.before, row.sync, str(row.prefetch), str(row.nodes),
                *(_estimate(row, name) for name in ("seconds", "wait_before", "wait_after")), row.verdict,
                _estimate(row, "epochs") or "–",
            ]
            for row in rows.sort_values(["remedy", "storage", "before", "sync", "prefetch", "nodes"]).itertuples()
        ),
    )  # fmt: skip
    yield ""


if __name__ == "__main__":
    print("\n".join(lines(Path(sys.argv[1]))).rstrip())
