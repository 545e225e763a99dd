"""Networks of the user's own: how they are found, what they may look like, what is said of those that do not work."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import little
import pytest
import torch
from launching import run_job
from resident_ranks import Ranks
from sample_cells import SGEMM as SGEMM_CELL
from sample_cells import TRAIN

from stallpoint.errors import InputError
from stallpoint.measure.jobs import sgemm
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.networks.description import describe
from stallpoint.networks.inputs import Images, Tokens
from stallpoint.networks.layers import layers
from stallpoint.networks.own import own_network
from stallpoint.records.parquet import read
from stallpoint.records.tables import ITERATIONS, LAYERS, MACHINE, RUNS, SGEMM
from stallpoint.storage import Storage
from stallpoint.storage.generate import write_synthetic
from stallpoint.storage.tokens import Sequences
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.train_kind import TrainCell

pytestmark = pytest.mark.ranks

SOURCE = """
import torch
from torch import nn
from torch.nn import functional


def logits():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 10),
    )


class Text(nn.Module):
    '''Loss of its own; the embedding's weights are those of the output.'''

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 8)
        self.inner = nn.Linear(8, 8)
        self.output = nn.Linear(8, 100, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens, following):
        values = self.embedding(tokens)
        return functional.cross_entropy(self.output(values + self.inner(values)).transpose(1, 2), following)


class Counting(nn.Module):
    '''Looks at its values, which only a device with memory has.'''

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3 * 8 * 8, 10)

    def forward(self, images):
        bright = int((images > 0).sum().item())
        return self.fc(images.flatten(1)) * (1 + bright)


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 4, 3)

    def forward(self, images):
        return self.conv(images)


class Frozen(nn.Module):
    def forward(self, images):
        return images.flatten(1)


def leaves():
    raise SystemExit("no data")


def number():
    return 7


def needs_more(width):
    return nn.Linear(width, 10)


def maps():
    return nn.Conv2d(3, 4, 3)


nothing = None
"""
WRONG_LINE = SOURCE[: SOURCE.index("return self.conv(images)")].count("\n") + 1
IMAGES = {"image_size": 8}
TEXT = {"sequence_length": 6, "vocabulary": 100}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the user's networks as a file and in a package."""
    for file in ("nets/mine.py", "my_package/my_nets.py"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(SOURCE)
    (tmp_path / "my_package/__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("my_package")]:
        del sys.modules[name]


@pytest.mark.parametrize("source", ["nets/mine.py", "my_package.my_nets"])
def test_a_network_is_found_by_file_and_by_module_and_gets_a_loss(source: str) -> None:
    network = own_network("mine", {"build": f"{source}:logits", **IMAGES})
    assert network.takes == Images(8)
    built = network.build(seed=1)
    loss = built(torch.randn(3, 3, 8, 8), torch.tensor([1, 2, 3]))
    assert loss.shape == ()
    assert built.training
    assert [layer.type for layer in layers(built)] == [
        "convolution", "batch-norm", "gelu", layers(built)[3].type, "flatten", "fully-connected", "loss"
    ]  # fmt: skip


def test_a_network_with_a_loss_of_its_own_keeps_it_and_what_it_shares() -> None:
    network = own_network("text", {"build": "nets/mine.py:Text", **TEXT})
    assert network.takes == Tokens(6, 100)
    assert type(network.build(seed=1)).__name__ == "Text"
    rows = {row["layer"]: row for row in describe(network)}
    assert [rows[name]["parameters"] for name in ("embedding", "inner", "output")] == [800, 72, 0]
    assert rows["output"]["multiply_adds"] == 6 * 8 * 100


def test_the_same_seed_gives_the_same_weights_and_leaves_other_random_numbers_alone() -> None:
    network = own_network("mine", {"build": "nets/mine.py:logits", **IMAGES})
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = (network.build(seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected), "what workers drop out must differ, whatever the weights' seed"
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["network.0.weight"], other["network.0.weight"])


def test_a_network_that_needs_values_is_described_with_them() -> None:
    network = own_network("counting", {"build": "nets/mine.py:Counting", **IMAGES})
    assert {parameter.device.type for parameter in network.outline().parameters()} == {"cpu"}
    assert sum(row["multiply_adds"] for row in describe(network)) == 3 * 8 * 8 * 10


def test_others_are_described_without_values() -> None:
    network = own_network("mine", {"build": "nets/mine.py:logits", **IMAGES})
    assert {parameter.device.type for parameter in network.outline().parameters()} == {"meta"}


def test_a_sketch_is_not_run() -> None:
    sketch = own_network("mine", {"build": "nets/mine.py:Wrong", **IMAGES}).sketch()
    assert [(layer.type, layer.gradient_bytes) for layer in layers(sketch)] == [
        ("convolution", 4 * (5 * 4 * 9 + 4)), ("loss", 0),
    ]  # fmt: skip
    assert {parameter.device.type for parameter in sketch.parameters()} == {"meta"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"build": "mine"}, "networks.mine.build: 'mine' should be MODULE:FUNCTION or FILE.py:FUNCTION"),
        ({"build": "nets/none.py:logits"}, "networks.mine.build: there is no file nets/none.py"),
        ({"image_size": None}, "networks.mine: needs its input, image_size, or sequence_length"),
        ({"vocabulary": 5}, "but has image_size, vocabulary"),
        ({"build": "no_such.module:f"}, "importing no_such.module failed: ModuleNotFoundError: No module"),
        ({"build": "nets/mine.py:logit"}, "networks.mine.build: nets/mine.py has no function logit"),
        ({"build": "nets/mine.py:nothing"}, "nets/mine.py has no function nothing"),
        ({"build": "nets/mine.py:number"}, "number() returned int, not an nn.Module"),
        ({"build": "nets/mine.py:needs_more"}, "needs_more() failed: TypeError: needs_more() missing 1 required"),
        ({"build": "nets/mine.py:leaves"}, ": SystemExit: no data"),
        ({"build": "nets/mine.py:Wrong"}, f"forward failed at nets/mine.py:{WRONG_LINE}: RuntimeError:"),
        ({"build": "nets/mine.py:maps"}, "forward returns [2, 4, 6, 6] where logits [2, classes] are expected"),
        ({"build": "nets/mine.py:Frozen"}, "it has no parameters to learn"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_the_entry(entry: dict[str, Any], message: str) -> None:
    whole = {"build": "nets/mine.py:logits", **IMAGES, **entry}
    with pytest.raises(InputError) as error:
        own_network("mine", {key: value for key, value in whole.items() if value}).outline()
    assert message in str(error.value)
    assert str(error.value).startswith("networks.mine")


def test_labels_beyond_the_networks_classes_are_named() -> None:
    built = own_network("mine", {"build": "nets/mine.py:logits", **IMAGES}).build(seed=1)
    with pytest.raises(InputError, match="the network has 10 classes, the data has more: Target 10"):
        built(torch.randn(2, 3, 8, 8), torch.tensor([1, 10]))


def train_cell(folder: Path, ranks: int) -> TrainCell:
    return replace(
        TRAIN, nodes=ranks, visits=1, network="text", batch=2, worker_batch=2, scaling="weak", sync="wfbp", prefetch=1,
        iterations=2, storage="local", storage_path=str(folder), storage_format="tokens", preset={},
        own_network={"build": "nets/mine.py:Text", **TEXT},
    )  # fmt: skip


def test_two_workers_train_a_users_network_on_tokens_and_all_reduce_shared_weights_once(
    ranks: Ranks, here: Path
) -> None:
    write_synthetic(Storage("local", here / "text", "tokens"), 8, seed=1, shape=Sequences(6, 100))
    cell = train_cell(here / "text", 2)
    assert cell_from_json(cell.to_json()) == cell
    status, printed = run_job(ranks, cell, here / "cell")
    assert status == 0, printed
    rows = read(LAYERS, here / "cell/layers.parquet").to_pandas()
    sizes = rows.groupby("layer")["gradient_bytes"].first()
    assert (sizes["embedding"], sizes["output"]) == (4 * 800, 0)
    reduced = rows[rows["all_reduce_start"].notna()]
    assert sorted(set(reduced["layer"])) == ["embedding", "inner"]
    assert len(read(ITERATIONS, here / "cell/iterations.parquet")) == 2 * 3


def test_the_products_of_a_users_network_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    little.put(monkeypatch)
    own = {"build": "nets/mine.py:Text", **TEXT}
    cell = replace(SGEMM_CELL, visits=1, network="text", batches=[2], samples=1, own_network=own)
    kept = Recorder(cell, 0)
    sgemm.measure(cell, World.start(1), kept)
    rows = kept.arrow(SGEMM).to_pandas().set_index("layer")
    assert list(rows.index[rows["layer_type"] != MACHINE]) == ["reference", "inner", "output"]
    assert rows.loc["output", ["m", "k", "n", "operations"]].tolist() == [2 * 6, 8, 100, 1]


def test_a_storage_of_another_kind_is_refused(ranks: Ranks, here: Path) -> None:
    write_synthetic(Storage("local", here / "images", "files"), 4, seed=1)
    values = json.loads(train_cell(here / "images", 1).to_json())
    cell = cell_from_json(json.dumps({**values, "storage_format": "files"}))
    status, _ = run_job(ranks, cell, here / "cell")
    (run,) = read(RUNS, here / "cell/runs.parquet").to_pylist()
    assert (status, run["status"]) == (0, "failed")
    assert "holds images, but the network takes sequences of 6 tokens out of 100" in run["reason"]
