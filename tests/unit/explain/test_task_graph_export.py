"""Task graphs of runs: the tasks and edges of the preset, with the times of the records."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import synthetic
from test_export_trace import cell_of

from stallpoint.archive.exporting import export_task_graph, tasks, train_records
from stallpoint.errors import InputError
from stallpoint.strategies.presets import PRESETS, to_values

RANKS, LAYERS = 4, len(synthetic.NETWORK)


@pytest.fixture(scope="module")
def tidy() -> dict[str, pd.DataFrame]:
    return synthetic.study(storages=("local",), repeats=1)


def graph(tidy: dict[str, pd.DataFrame], folder: Path, sync: str) -> str:
    cell = cell_of(tidy, "nodes~4", "scaling~strong", f"sync~{sync}", "prefetch~0")
    synthetic.write_raw({name: frame[frame["cell"] == cell] for name, frame in tidy.items()}, cell, folder / "raw")
    export_task_graph(folder / "raw", folder / "graph.dot")
    return (folder / "graph.dot").read_text()


@pytest.mark.parametrize("sync", ["wfbp", "naive"])
def test_messages_go_when_the_preset_sends_them(tidy: dict[str, pd.DataFrame], sync: str, tmp_path: Path) -> None:
    text = graph(tidy, tmp_path, sync)
    edges = set(re.findall(r'^  "(.*)" -> "(.*)";$', text, re.MULTILINE))
    nodes = dict(re.findall(r'^  "([^"]*)" \[label="[^"]*\\n[^"]*", fillcolor=(\w+)\];$', text, re.MULTILINE))
    assert {name for edge in edges for name in edge} <= set(nodes)
    assert sum(name.endswith(f"of 0 on {RANKS - 1}") for name in nodes) == 2 * LAYERS + 2
    sent = [name for name in nodes if name.startswith("all-reduce") and name.endswith("of 0")]
    assert sent
    for message in sent:
        needed = message.removeprefix("all-reduce ") if sync == "wfbp" else "1 of 0"
        assert {before for before, after in edges if after == message} == {
            f"backward {needed} on {rank}" for rank in range(RANKS)
        }
        assert (message, "update of 0") in edges
        assert nodes[message] != nodes["update of 0"]


def test_times_are_the_means_of_the_records(tidy: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    text = graph(tidy, tmp_path, "wfbp")
    run = train_records(tmp_path / "raw")
    layers = run.layers.query("rank == 0 and layer_index == 0 and not warmup")
    begin, end = map(float, re.findall(r'label="forward 1 of 0 on 0\\n(\S+) to (\S+) ms"', text)[0])
    assert end - begin == pytest.approx(1e3 * layers["forward"].mean(), rel=1e-3)


def test_graphviz_reads_it_where_it_is_installed(tidy: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    text = graph(tidy, tmp_path, "wfbp")
    assert text.startswith('digraph "train/')
    assert text.count("{") == text.count("}") == 1
    if dot := shutil.which("dot"):
        subprocess.run([dot, "-Tcanon", tmp_path / "graph.dot"], check=True, capture_output=True)


def test_a_step_of_another_kind_is_refused(tidy: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    graph(tidy, tmp_path, "wfbp")
    run = train_records(tmp_path / "raw")
    gossip = to_values(PRESETS["gossip"].preset)
    with pytest.raises(InputError, match="synchronous data-parallel steps alone"):
        tasks(replace(run, cell=replace(run.cell, preset=gossip)))
