"""Records in and out by Snakemake: a study of imported files alone, and runs exported."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from all_reduce_samples import nccl_tests, osu
from checkout import TINY, Checkout
from table_vi import table_vi
from trace_events import check_nesting, lanes

from stallpoint.base.section_texts import sections_from_json
from stallpoint.inputs.layer_trace import TracedIteration, TracedLayer, from_text, to_text
from stallpoint.records.parquet import read, read_frames
from stallpoint.records.tables import ENVIRONMENTS, MODEL_TABLES, NETWORK_LAYERS, RUNS, TABLES
from stallpoint.report.report import write_report


def trace(share: float) -> str:
    """Three iterations like that of Table VI, with a share of its communication."""
    iteration = table_vi()
    layers = [
        TracedLayer(layer.name, layer.forward, layer.backward, share * layer.communication, layer.gradient_bytes)
        for layer in iteration.layers
    ]
    return to_text([TracedIteration(iteration.data_wait, layers)] * 3)


def entry(name: str, **axes: Any) -> dict[str, Any]:
    common = {"network": "alexnet", "batch": 1024, "storage": "nfs", "read": 0.4, "update": 0.01, "iterations": 3}
    return {"files": f"{name}.txt", "scaling": "weak", **common, **axes}


@pytest.fixture(scope="module")
def imported(new_checkout: Callable[..., Checkout]) -> Checkout:
    """A study that measures nothing, run to the conclusions."""
    checkout = new_checkout()
    checkout.study = {
        "study": "old",
        "hardware": {
            "k80": {
                "device": "cuda",
                "nodes": 4,
                "traces": [
                    entry("one", nodes=1, scaling="compute"),
                    *(entry(f"on{n}", nodes=n) for n in (1, 2, 4)),
                    entry("nobodys", nodes=1, scaling="compute", network="nobodys"),
                ],
                "collectives": [
                    {"file": "osu.txt", "nodes": 2, "format": "osu"},
                    {"file": "nccl.txt", "nodes": 4, "format": "nccl-tests"},
                ],
            },
        },
        "models": {"nodes": [8]},
    }
    checkout.write_study()
    for name, share in (("one", 0.0), ("on1", 0.0), ("on2", 1.0), ("on4", 1.5)):
        (checkout.folder / f"{name}.txt").write_text(trace(share))
    (checkout.folder / "nobodys.txt").write_text(trace(0.0).replace("conv", "nobody"))
    (checkout.folder / "osu.txt").write_text(osu())
    (checkout.folder / "nccl.txt").write_text(nccl_tests(4))
    ran = checkout.snakemake("--logger-stallpoint-plain", "--", "results/old/conclusions.md")
    assert ran.status == 0, ran.text
    assert "imported-train" in ran.text
    return checkout


@pytest.fixture(scope="module")
def report(imported: Checkout) -> str:
    """The report's page without charts, which are drawn in the night."""
    files = {table.name: imported.results(f"tables/{table.name}.parquet") for table in (RUNS, ENVIRONMENTS)}
    conclusions = json.loads(imported.results("conclusions.json").read_text())
    page = imported.folder / "page.html"
    write_report(sections_from_json(conclusions), read_frames((RUNS, ENVIRONMENTS), files), page)
    return page.read_text()


def test_imported_files_alone_make_a_report(imported: Checkout, report: str) -> None:
    runs = read(RUNS, imported.results("tables/runs.parquet")).to_pandas()
    assert runs.groupby("kind").size().to_dict() == {"imported-train": 5, "imported-collectives": 2}
    for table in MODEL_TABLES:
        read(table, imported.results(f"models/{table.name}.parquet"))
    predictions = read(TABLES["predictions"], imported.results("models/predictions.parquet")).to_pandas()
    weak = predictions[(predictions["scaling"] == "weak") & (predictions["hardware"] == "k80")].set_index("nodes")
    assert list(weak.index) == [1, 2, 4, 8]
    assert weak["predicted_iteration"].notna().all()
    assert weak["extrapolated"].all(), "composed of layers: nobody measured an iteration"
    assert weak["measured_iteration"].isna().all()
    described = read(NETWORK_LAYERS, imported.results("networks/nobodys.parquet")).to_pandas()
    assert list(described["layer"])[:2] == ["nobody1", "relu1"]
    assert "on4.txt (SHA-256 " in report


@pytest.mark.night
def test_all_charts_of_imported_files_are_drawn(imported: Checkout) -> None:
    ran = imported.snakemake("--", "all")
    assert ran.status == 0, ran.text
    assert "on4.txt (SHA-256 " in imported.results("report.html").read_text()


def test_a_changed_file_is_imported_again(imported: Checkout) -> None:
    (imported.folder / "on4.txt").write_text(trace(1.6).replace("conv2", "conv2 oops", 1))
    ran = imported.snakemake("--logger-stallpoint-plain", "--until", "imported_train")
    assert ran.status != 0
    assert ran.jobs["imported_train"] == 1
    assert "error: on4.txt, line 6: 7 columns, expected are 6: Id, Name, Forward, Backward, Comm., Size" in ran.text
    assert "Traceback" not in ran.text[: ran.text.index("error: on4.txt")]


def test_a_measured_run_is_exported_as_traces_and_timeline(finished: Checkout) -> None:
    cell = next(finished.results("raw/train").rglob("nodes~2/**/repeat~1")).relative_to(finished.results("raw"))
    traces = finished.results("traces", str(cell)).relative_to(finished.folder)
    ran = finished.snakemake(str(traces / "timeline.json"), str(traces / "layers"))
    assert ran.status == 0, ran.text
    folder = finished.folder / traces
    events = json.loads((folder / "timeline.json").read_text())["traceEvents"]
    check_nesting(events)
    assert {lane for _, lane in lanes(events)} == {"iterations", "data", "compute", "communication"}
    assert len({process for process, _ in lanes(events)}) == 2
    for rank in range(2):
        path = folder / f"layers/rank{rank}.txt"
        iterations = from_text(path.read_text(), str(path))
        assert len(iterations) == TINY["iterations"], "warm-up left out"
        assert sum(layer.gradient_bytes for layer in iterations[0].layers) == 4 * 60_965_224
        assert all(layer.communication > 0 for layer in iterations[0].layers if layer.gradient_bytes)
    check_that_it_can_be_imported(finished, traces / "layers/study.yaml")


def check_that_it_can_be_imported(checkout: Checkout, study: Path) -> None:
    assert yaml.safe_load((checkout.folder / study).read_text())["study"] == "local-imported"
    ran = checkout.snakemake("--configfile", str(study), "--until", "imported_train")
    assert ran.status == 0, ran.text
    (record,) = (checkout.folder / "results/local-imported/raw").rglob("nodes~2/**/iterations.parquet")
    iterations = read(TABLES["iterations"], record).to_pandas()
    assert sorted(zip(iterations["rank"], iterations["iteration"], strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
