"""Interventions, from the study to the table: sleeps that were planted into training are found, under their names."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from planted_training import measured, near
from synthetic import Truth, study
from visiting_cells import train

from stallpoint.base.section import Absence
from stallpoint.measure.training.input_pipeline import FixedMiniBatch, InputPipeline, SyntheticData
from stallpoint.models.answers.causes import PART_CAUSES
from stallpoint.models.fitting import fit
from stallpoint.networks import find_network
from stallpoint.questions.interventions_question import section
from stallpoint.questions.study_tables import StudyTables
from stallpoint.schedule.next_visit import series_of
from stallpoint.storage import Storage
from stallpoint.storage.generate import write_synthetic
from stallpoint.strategies.presets import PRESETS, to_values
from stallpoint.study.kinds.intervention_kind import INTERVENTIONS, InterventionCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.matrix import intervention_cells

pytestmark = pytest.mark.ranks

SLEEP = 60.0
"""Virtual s: a thousand times what other programs on the machine take from an iteration."""
PLANTED = f"""
from functools import partial

from torch import nn
from virtual_time import sleep

from stallpoint.measure.mpi import MPI
from stallpoint.measure.training.optimisers import Sgd
from stallpoint.measure.training.input_pipeline import InputPipeline
from stallpoint.measure.synchronisation.mpi_communicator import MpiCommunicator


def planted(place, function):
    def slower(*arguments):
        if Sgd.sleeps == place:
            sleep({SLEEP})
        return function(*arguments)

    return slower


if not hasattr(Sgd, "sleeps"):  # this file is run again for each network
    Sgd.sleeps = ""  # where the network that trains now does
    InputPipeline._load = planted("loader", InputPipeline._load)
    MpiCommunicator.all_reduce = planted("send", MpiCommunicator.all_reduce)
    Sgd.step = planted("update", Sgd.step)


class Network(nn.Module):
    def __init__(self, place):
        super().__init__()
        self.pool, self.fc, self.place = nn.AvgPool2d(2), nn.Linear(3 * 4 * 4, 10), place
        self.pool.forward = planted("layer", self.pool.forward)

    def forward(self, images):
        Sgd.sleeps = self.place
        if self.place == "rank" and MPI.COMM_WORLD.rank == 1:
            sleep({2 * SLEEP})
        return self.fc(self.pool(images).flatten(1))


globals().update({{place: partial(Network, place) for place in ("loader", "layer", "send", "update", "rank")}})
"""


def cell(place: str, *, nodes: int = 2, scaling: str = "strong") -> TrainCell:
    """Training that sleeps in one place: from its first forward pass on, which follows the first mini-batch."""
    one = replace(
        train(nodes, network=place, scaling=scaling),
        own_network={"build": f"planted.py:{place}", "image_size": 8}, iterations=2, warmup=1,
    )  # fmt: skip
    if scaling == "compute":
        return replace(one, sync="none", batch=1, worker_batch=1)
    return replace(one, sync="naive", preset=to_values(PRESETS["naive"].preset))


def interventions(one: TrainCell, *names: str) -> list[TrainCell]:
    return [one, *intervention_cells(one, names)]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Model tables of all that, measured in turns by two ranks."""
    place = tmp_path_factory.mktemp("planted")
    cells = [
        *interventions(cell("loader"), "synthetic-data", "fixed-mini-batch"),
        *interventions(cell("send"), "no-communication"),
        *interventions(cell("update"), "no-update"),
        *interventions(cell("rank"), "no-communication", "empty-messages"),
        cell("layer", nodes=1), cell("layer"), cell("layer", nodes=1, scaling="compute"),
    ]  # fmt: skip
    return fit(measured(cells, place, PLANTED, samples=8), nodes=[])


@pytest.mark.parametrize(
    ("place", "intervention", "cause", "seconds"),
    [
        ("loader", "synthetic-data", "training data", SLEEP),  # one sample
        ("loader", "fixed-mini-batch", "training data", SLEEP),
        ("send", "no-communication", "communication", SLEEP),  # one message
        ("update", "no-update", "model update", SLEEP),
        ("rank", "no-communication", "straggling", 2 * SLEEP),  # on one rank, for which the other waits
    ],
)
def test_what_was_planted_is_found_by_leaving_it_out_and_on_the_critical_path(
    fitted: dict[str, pd.DataFrame], place: str, intervention: str, cause: str, seconds: float
) -> None:
    (row,) = at(fitted["interventions"], place).query(f"intervention == '{intervention}'").to_dict("records")
    assert near((row["saved_low"], row["saved_high"]), seconds)
    assert near((row["expected_low"], row["expected_high"]), seconds)
    assert cause in {PART_CAUSES[part] for part in row["parts"].split("; ")}
    path = at(fitted["critical_path"], place).groupby("cause")[["seconds", "seconds_low", "seconds_high"]].sum()
    assert near(path.loc[cause, ["seconds_low", "seconds_high"]], seconds)
    others = path.drop([cause, *(["compute, undivided"] if place == "rank" else [])])
    assert others["seconds_low"].max() < 0.1 * SLEEP
    assert others["seconds"].max() < path.loc[cause, "seconds"]


def test_messages_without_gradients_keep_ranks_waiting_for_each_other(fitted: dict[str, pd.DataFrame]) -> None:
    rows = at(fitted["interventions"], "rank").set_index("intervention")
    saved = rows.loc["empty-messages"]
    assert saved["saved_low"] < 0.5 * 2 * SLEEP
    assert saved["saved_high"] > -0.5 * 2 * SLEEP


def test_a_slow_layer_is_found_in_its_layers_and_scales_as_it_does_alone(fitted: dict[str, pd.DataFrame]) -> None:
    path = at(fitted["critical_path"], "layer").set_index("part")
    assert near(path.loc["non-scaling layers", ["seconds_low", "seconds_high"]], SLEEP)
    lost = at(fitted["causes"], "layer").set_index("cause")
    assert near(lost.loc["non-scaling layers", ["lost_low", "lost_high"]], SLEEP / 2)
    assert lost.index[lost["verdict"] == "dominant"].tolist() == ["non-scaling layers"]


def at(table: pd.DataFrame, place: str) -> pd.DataFrame:
    return table[(table["network"] == place) & (table["nodes"] == 2)]


def test_interventions_are_no_points_of_any_curve(fitted: dict[str, pd.DataFrame]) -> None:
    predictions = fitted["predictions"].query("nodes == 2")
    assert sorted(predictions["network"]) == ["layer", "loader", "rank", "rank", "send", "send", "update"]
    assert set(predictions.query("sync == 'none'")["network"]) == {"rank", "send"}
    assert all(series_of(one) == () for one in interventions(cell("update"), *INTERVENTIONS)[1:] if one.sync != "none")


# --- which there are ------------------------------------------------------------------------------


def test_each_cell_gets_the_interventions_that_are_possible_there() -> None:
    def found(preset: str, nodes: int = 2) -> set[str]:
        one = replace(cell("update", nodes=nodes), sync=preset, preset=to_values(PRESETS[preset].preset))
        cells = intervention_cells(one, INTERVENTIONS)
        return {each.intervention if isinstance(each, InterventionCell) else each.sync for each in cells}

    data = {"synthetic-data", "fixed-mini-batch"}
    assert found("wfbp") == {"none", "empty-messages", "no-update", *data}
    assert found("wfbp", nodes=1) == found("none") == {"no-update", *data}
    assert found("ddp") == {"none", "no-update", *data}
    assert found("parameter-server") == {"none", "empty-messages", *data}
    assert found("pipeline") == found("one-weird-trick") == {"no-update", *data}
    assert found("caffe-mpi") == {"empty-messages", "no-update", *data}
    assert list(intervention_cells(cell("update", nodes=1, scaling="compute"), INTERVENTIONS)) == []


def test_a_study_names_the_interventions_that_there_are() -> None:
    schema = yaml.safe_load((Path(__file__).parents[3] / "workflow/schemas/study.schema.yaml").read_text())
    assert schema["$defs"]["interventions"]["items"]["enum"] == list(INTERVENTIONS)
    named = {part for known in INTERVENTIONS.values() for part in known.parts}
    assert named <= set(PART_CAUSES)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_substitutes_give_the_same_kind_of_mini_batches(prefetch: int, tmp_path: Path) -> None:
    storage = Storage("local", tmp_path / "images", "files")
    write_synthetic(storage, 8, seed=1)
    settings: dict[str, Any] = {"takes": find_network("alexnet").takes, "batch": 2, "rank": 0, "ranks": 1}
    settings |= {"prefetch": prefetch, "readers": 1, "seed": 1}
    found = {}
    for kind in (InputPipeline, SyntheticData, FixedMiniBatch):
        with kind(storage, **settings) as pipeline:
            batches = [pipeline.next_batch() for _ in range(4)]
            found[kind] = [(one.inputs.clone(), one.labels.clone(), one.read, one.decode) for one in batches[-1:]]
    (ordinary,), (synthetic,), (fixed,) = found.values()
    for inputs, labels, read_seconds, _ in (synthetic, fixed):
        assert inputs.shape == ordinary[0].shape
        assert labels.shape == ordinary[1].shape
        assert inputs.isfinite().all()
        assert read_seconds == 0
    assert (synthetic[0][0] == synthetic[0][1]).all(), "one sample throughout"
    assert (fixed[0][0] != fixed[0][1]).any()
    assert fixed[3] == 0


# --- what the table says --------------------------------------------------------------------------


def test_the_table_says_whether_both_ways_agree() -> None:
    records = study(Truth(noise=0.005), nodes=(1, 2), storages=("local",), syncs=("naive",), prefetches=(0,))
    whole = records["iterations"].query("scaling == 'strong' and ranks == 2")
    for name, part, error in (("no-update", "update", 0.0), ("synthetic-data", "data_wait", 20e-3)):
        less = whole["iteration_time"] - whole[part] + error
        rows = whole.assign(intervention=name, iteration_time=less, cell=whole["cell"] + name)
        records["intervened"] = pd.concat([records["intervened"], rows]) if len(records["intervened"]) else rows
    found = fit(records, nodes=[])["interventions"].set_index("intervention")
    assert found["parts"].to_dict() == {"synthetic-data": "data", "no-update": "update"}
    assert found["agrees"].to_dict() == {"synthetic-data": False, "no-update": True}
    assert found.loc["no-update", "saved"] == pytest.approx(Truth().update, rel=0.02)
    assert (found["saved_low"] < found["saved"]).all()


def test_what_is_said_has_both_ways() -> None:
    row = {
        "network": "alexnet", "hardware": "cpu", "storage": "local", "scaling": "strong", "sync": "naive",
        "prefetch": 0, "batch": 64, "workers_per_node": 1, "nodes": 2, "ranks": 2,
        "intervention": "no-update", "parts": "update", "agrees": False, "saved": 0.01, "saved_low": 0.008,
        "saved_high": 0.012, "expected": 0.02, "expected_low": 0.019, "expected_high": 0.021,
    }  # fmt: skip
    (grid,) = section(StudyTables({"interventions": pd.DataFrame([row])})).grids
    assert grid.rows[0][1:] == ("no-update", "10 ms (8–12)", "update", "20 ms (19–21)", "no")
    assert section(StudyTables({"interventions": pd.DataFrame([row])[:0]})).absence == Absence.NOT_MEASURED
