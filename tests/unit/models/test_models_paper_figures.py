"""The figures of Keuper & Pfreundt (2016), held against what the paper's text says of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from stallpoint.errors import InputError
from stallpoint.models.answers.amdahl import speedup_limit
from stallpoint.records.parquet import read, write
from stallpoint.records.tables import PAPER_FIGURES
from stallpoint_papers.paper_figures import figures

PAPER: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[3] / "resources/published/keuper-2016.yaml").read_text(encoding="utf-8")
)
DEFAULTS = {"alexnet": 256, "googlenet": 32}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.DataFrame(figures(PAPER))


def of(table: pd.DataFrame, figure: int, network: str, batch: int, hardware: str = "k80") -> pd.DataFrame:
    at = (table["figure"] == figure) & (table["network"] == network) & (table["hardware"] == hardware)
    return table[at & (table["global_batch"] == batch)].set_index("nodes")


def test_every_published_value_names_its_source() -> None:
    def values(entry: Any) -> list[dict[str, Any]]:
        if isinstance(entry, dict) and ("value" in entry or "batches" in entry):
            return [entry]
        return [found for inner in entry.values() for found in values(inner)] if isinstance(entry, dict) else []

    found = values(PAPER)
    assert len(found) > 15
    assert all(entry["source"] for entry in found)
    assert PAPER["networks"]["alexnet"]["gradient_bytes"]["value"] == 250e6
    assert PAPER["networks"]["googlenet"]["gradient_bytes"]["value"] == 50e6


@pytest.mark.parametrize("network", DEFAULTS)
def test_communication_bound_after_scaling_to_only_4_to_8_nodes(table: pd.DataFrame, network: str) -> None:
    """Section II: "Depending on the model size, the training problem becomes communication bound after scaling to only
    4 to 8 nodes"; on the K80 of the paper's cluster."""
    figure = of(table, 3, network, DEFAULTS[network])
    assert 4 <= figure["crossing_ranks"].iloc[0] < 8.5
    assert figure.loc[4, "compute"] > figure.loc[4, "communication"]
    assert figure.loc[16, "compute"] < figure.loc[16, "communication"]
    assert figure["stall_ranks"].iloc[0] == 8


def test_faster_compute_units_are_communication_bound_sooner(table: pd.DataFrame) -> None:
    """Section II: "Ironically, faster compute units [...] increase the fundamental problem"."""
    crossings = [
        of(table, 3, "alexnet", 256, unit)["crossing_ranks"].iloc[0] for unit in ("cpu", "k80", "knl", "titanx")
    ]
    assert crossings == sorted(crossings, reverse=True)


def test_shallow_networks_scale_worse_than_deep_ones(table: pd.DataFrame) -> None:
    """Section II: "shallow networks with many neurons per layer (like AlexNet) scale worse than deep networks"."""
    for batch, unit in ((256, "k80"), (256, "cpu"), (1024, "k80")):
        alexnet, googlenet = (of(table, 3, network, batch, unit) for network in DEFAULTS)
        assert alexnet["crossing_ranks"].iloc[0] < googlenet["crossing_ranks"].iloc[0]


def test_the_tree_moves_the_crossing_by_a_small_factor_only(table: pd.DataFrame) -> None:
    """Section II-A: it "will only move the intersection of the communication/compute ratio by a small factor"."""
    only = {"batches": {network: [batch] for network, batch in DEFAULTS.items()}}
    server = pd.DataFrame(figures({**PAPER, "preset": {"value": "parameter-server"}, "figures": {3: only}}))
    for network, batch in DEFAULTS.items():
        tree, central = (of(found, 3, network, batch)["crossing_ranks"].iloc[0] for found in (table, server))
        assert 1 < tree / central < 2


def test_the_tree_sends_log2_n_models_up_and_down(table: pd.DataFrame) -> None:
    figure = of(table, 3, "alexnet", 256)
    link = PAPER["link"]
    once = link["latency"]["value"] + 250e6 / link["bandwidth"]["value"]
    n = figure.index.to_numpy()
    assert figure["communication"].to_numpy() == pytest.approx(2 * np.log2(n) * once)
    assert figure["compute"].to_numpy() == pytest.approx(0.9 / n)


@pytest.mark.parametrize("network", DEFAULTS)
def test_free_communication_stalls_beyond_8_nodes(table: pd.DataFrame, network: str) -> None:
    """Section III-C: "the stalling scalability beyond 8 nodes (or b < 32)"."""
    figure = of(table, 4, network, 256)
    assert (figure["communication"] == 0).all()
    assert figure["stall_ranks"].iloc[0] == 8
    assert figure.loc[figure["worker_batch"] >= 32, "speedup"].to_numpy() == pytest.approx([1, 2, 4, 8])
    assert (figure.loc[figure["worker_batch"] < 32, "speedup"] == 8).all()


def test_no_more_nodes_than_samples(table: pd.DataFrame) -> None:
    """Section III: "it is not possible to split the global batch into local batches b < 1"."""
    assert (table["worker_batch"] >= 1).all()
    assert of(table, 4, "googlenet", 32).index.max() == 32


def test_4096_samples_scale_almost_perfectly_up_to_128_nodes(table: pd.DataFrame) -> None:
    """Section III-C: "almost perfect linear speedup up to 128 nodes for a global batch size of 4096"."""
    for network in DEFAULTS:
        figure = of(table, 11, network, 4096)
        assert figure.loc[128, "speedup"] == pytest.approx(128, rel=0.01)
        assert figure["stall_ranks"].iloc[0] == 128


@pytest.mark.parametrize(("network", "serial"), [("alexnet", 0.001), ("googlenet", 0.003)])
def test_non_scaling_layers_begin_to_show_beyond_32_nodes(table: pd.DataFrame, network: str, serial: float) -> None:
    """Section III-D: 0.1 % and 0.3 %; by Amdahl's law "scalability begins to stall at n > 32"."""
    figure = of(table, 12, network, 256)
    n = figure.index.to_numpy()
    assert figure["speedup"].to_numpy() == pytest.approx(1 / (serial + (1 - serial) / n))
    efficiency = figure["speedup"] / n
    assert efficiency[32] > 0.9
    assert efficiency[256] < 0.8
    assert figure["speedup"].max() < speedup_limit(np.array(serial))


def test_the_table_can_be_written(table: pd.DataFrame, tmp_path: Path) -> None:
    write(PAPER_FIGURES, table, tmp_path / "published.parquet")
    assert read(PAPER_FIGURES, tmp_path / "published.parquet").num_rows == len(table)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(InputError, match="published parameters: no entry 'link'"):
        figures({name: entry for name, entry in PAPER.items() if name != "link"})
    odd = {**PAPER, "figures": {3: {"batches": {"alexnet": [0], "googlenet": [32]}}}}
    with pytest.raises(InputError, match=r"figures\.3\.batches: 0 is no whole mini-batch"):
        figures(odd)
