"""Write the sections of docs/storage-volume.md, and its picture: storages of training data and their effects.

usage: document_storage.py RESULTS (the folder of the study's results)
"""

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles

import yaml

from stallpoint.base.section import TableRow, TextTable
from stallpoint.base.section_texts import markdown_table
from stallpoint.questions.data_question import break_even, rank_storages, saturation, source_in_words, starving_in_words
from stallpoint.questions.study_tables import CurveRows, StudyTables
from stallpoint.questions.study_words import percent
from stallpoint.records.parquet import read_frames
from stallpoint.records.tables import BREAK_EVEN, FEEDING, SATURATION, STALLING, STORAGE_RATES
from stallpoint.text import interval

STUDY = Path("benchmarks/storage_volume.yaml")
PICTURE = Path("docs/images/storage-volume-fig-13.svg")
CURVE = ("network", "storage", "sync", "prefetch", "batch")
PAGE = Path("docs/storage-volume.md")


def lines(results: Path) -> Iterator[str]:
    """Yield the lines of the page after its head; copy the picture."""
    tables = (BREAK_EVEN, FEEDING, SATURATION, STALLING, STORAGE_RATES)
    study = StudyTables(read_frames(tables, {one.name: results / f"models/{one.name}.parquet" for one in tables}))
    formats = {name: entry["format"] for name, entry in yaml.safe_load(STUDY.read_text())["storage"].items()}
    curves = sorted(study.curves, key=lambda curve: tuple(curve[name] for name in CURVE))
    yield PAGE.read_text().partition("\n## ")[0]
    yield from _rates(rank_storages(study), formats)
    yield from _fed(curves)
    yield "## From which node count on does training starve, and when does a storage give no more?\n"
    yield from _starving(curves)
    yield from _answered(saturation(study.rows("saturation")))
    yield "## Does staging or packing pay, and after how many epochs?\n"
    yield from _answered(break_even(study.rows("break_even")))
    shutil.copyfile(results / "papers/keuper-2016/fig-13.svg", PICTURE)
    yield "## Keuper & Pfreundt's Fig. 13\n"
    yield "A panel for each storage: shares of layer types and data in the time that communication does not take."
    yield "In the paper's figure compute units idle while data is read from Lustre.\n"
    yield f"![Share of the data layer, by storage](images/{PICTURE.name})"


def _answered(found: TextTable) -> Iterator[str]:
    yield f"{found.text}\n"
    yield from _table(found.head, found.rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table without its constant columns, and before it a line with their values."""
    columns = list(zip(head, zip(*rows, strict=True), strict=True))
    same = [f"{name}: {values[0]}" for name, values in columns if len(set(values)) == 1 < len(values)]
    if same:
        yield f"In all rows {', '.join(same)}.\n"
    shown = [(name, values) for name, values in columns if not len(set(values)) == 1 < len(values)]
    yield markdown_table([name for name, _ in shown], map(list, zip(*(values for _, values in shown), strict=True)))
    yield ""


def _rates(rates: Sequence[TableRow], formats: Mapping[str, str]) -> Iterator[str]:
    yield "## How fast is it read, and from where?\n"
    yield "All nodes read at once, each its own samples, in random order; cold: nothing of them is in a page cache.\n"
    cold = [row for row in rates if (row["order"], row["cache"]) == ("shuffled", "cold")]
    cold.sort(key=lambda row: (row["storage"], row["nodes"]))
    for origin in sorted({source_in_words(row) for row in cold}):
        names = dict.fromkeys(
            f"{row['storage']} ({formats[row['storage']]})" for row in cold if source_in_words(row) == origin
        )
        yield f"- {', '.join(names)}: {origin}"
    yield ""
    yield from _table(
        ["storage", "nodes", "samples/s", "MB/s"],
        [
            [
                row["storage"], str(row["nodes"]), interval(row.estimate("samples_per_second")),
                interval(row.estimate("bytes_per_second"), 1e-6),
            ]
            for row in cold
        ],
    )  # fmt: skip


def _fed(curves: Sequence[CurveRows]) -> Iterator[str]:
    yield "## Which training is fed, by how many readers?\n"
    yield (
        "Utilisation is the part of an iteration in which workers do not wait for data; predicted without the curve's "
        "own cells at that node count. So many readers as are needed, reading ahead, keep a worker busy.\n"
    )
    measured = [(curve, at) for curve in curves for at in curve.of("feeding") if at["basis"] == "measured"]
    yield from _table(
        ["network", "storage", "sync", "prefetch", "nodes", "b", "utilisation", "predicted", "readers needed"],
        [
            [
                *(str(curve[name]) for name in CURVE[:-1]), str(at["nodes"]), str(at["worker_batch"]),
                percent(at, "utilisation"), percent(at, "predicted_utilisation"),
                interval(at.estimate("readers_needed")),
            ]
            for curve, at in measured
        ],
    )  # fmt: skip
    apart = sorted(
        100 * abs(at["predicted_utilisation"] - at["utilisation"])
        for _, at in measured
        if at["ranks"] > 1 and at["predicted_utilisation"] == at["predicted_utilisation"]
    )
    yield (
        f"On several nodes predicted and measured are {median(apart):.1f} points apart in the median, "
        f"{quantiles(apart, n=10, method='inclusive')[-1]:.1f} in nine of ten, {apart[-1]:.1f} at most "
        f"({len(apart)} places).\n"
    )


def _starving(curves: Sequence[CurveRows]) -> Iterator[str]:
    yield (
        "The first node count, measured or predicted, at which workers surely wait more than a tenth of an iteration "
        "for data:\n"
    )
    yield from _table(
        ["network", "storage", "sync", "prefetch", "mini-batch", "starves from"],
        [[*(str(curve[name]) for name in CURVE), starving_in_words(curve.of("feeding"))] for curve in curves],
    )


if __name__ == "__main__":
    PAGE.write_text("\n".join(lines(Path(sys.argv[1]))).rstrip() + "\n")
