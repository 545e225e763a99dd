"""Expanding a study: what runs, what is excluded and why, and messages for wrong entries."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from small_study import BLOCK, CONFIG, ROOT, SCHEMA, study

from stallpoint.errors import InputError
from stallpoint.study.catalogue import REGISTRIES
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.collectives_kind import CollectivesCell
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell, ImportedTrainCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.study import Study, expand

TRACE = {
    "files": "trace.txt", "network": "own-network", "nodes": 2, "batch": 32, "storage": "nfs", "scaling": "weak",
    "read": 0.5,
}  # fmt: skip


def imported(**changes: Any) -> dict[str, Any]:
    """The hardware of `CONFIG` and another with one imported run, changed; None leaves a key out."""
    trace = {key: value for key, value in {**TRACE, **changes}.items() if value is not None}
    return {**CONFIG["hardware"], "old": {"device": "cuda", "nodes": 2, "traces": [trace]}}


def beside(**entry: Any) -> dict[str, Any]:
    """The storage of `CONFIG` and another one."""
    return {"storage": {**CONFIG["storage"], "b": entry}}


def converted(**changes: Any) -> dict[str, Any]:
    """The storage of `CONFIG` and one that is converted from it, changed."""
    return beside(**{"path": "b", "format": "tar", "convert_from": "disk", **changes})


def on_disk(**changes: Any) -> dict[str, Any]:
    """The storage of `CONFIG`, changed."""
    return {"storage": {"disk": {**CONFIG["storage"]["disk"], **changes}}}


def on_cpu(**changes: Any) -> dict[str, Any]:
    """The hardware of `CONFIG`, changed."""
    return {"hardware": {"cpu": {**CONFIG["hardware"]["cpu"], **changes}}}


def log(**changes: Any) -> dict[str, Any]:
    return {"file": "log.txt", "nodes": 2, "format": "osu", **changes}


def block(**changes: Any) -> dict[str, Any]:
    return {**BLOCK, **changes}


def train_cells(expanded: Study) -> list[TrainCell]:
    return [cell for cell in expanded.cells.values() if isinstance(cell, TrainCell)]


def cells_of_kind(expanded: Study, kind: str) -> list[Any]:
    """The cells of a kind, which have its fields."""
    return list(expanded.cells_of_kind(kind))


def reasons(expanded: Study) -> list[str]:
    return [entry.reason for entry in expanded.excluded]


def test_strong_scaling_splits_the_global_batch() -> None:
    cells = train_cells(study())
    assert [(cell.nodes, cell.worker_batch, cell.global_batch) for cell in cells] == [(1, 8, 8), (2, 4, 8), (4, 2, 8)]


def test_weak_scaling_keeps_the_worker_batch() -> None:
    cells = train_cells(study(matrix=[block(scaling="weak")]))
    assert [(cell.nodes, cell.worker_batch, cell.global_batch) for cell in cells] == [(1, 8, 8), (2, 8, 16), (4, 8, 32)]


def test_compute_cells_are_one_worker_at_the_batches_of_the_node_counts_even_beyond_the_hardware() -> None:
    cells = train_cells(study(matrix=[block(scaling="compute", nodes=[1, 8], sync=["naive", "wfbp"])]))
    assert [(cell.nodes, cell.ranks, cell.batch, cell.worker_batch, cell.sync) for cell in cells] == [
        (1, 1, 8, 8, "none"),
        (1, 1, 1, 1, "none"),
    ]


def test_workers_per_node_multiply_the_ranks() -> None:
    hardware = {"gpus": {"device": "cuda", "nodes": 2, "workers_per_node": 4}}
    cells = train_cells(study(hardware=hardware, matrix=[block(hardware="gpus", nodes=[1, 2])]))
    assert [(cell.ranks, cell.worker_batch) for cell in cells] == [(4, 2), (8, 1)]


def test_a_pipeline_sends_and_receives_among_as_many_stages_as_there_can_be() -> None:
    hardware = {"cpu": {"device": "cpu", "nodes": 4, "workers_per_node": 3}}
    expanded = study(
        hardware=hardware, collectives={},
        matrix=[block(nodes=[2, 3], batch=36, sync="pipeline"), block(nodes=3, batch=36, scaling="compute")],
    )  # fmt: skip
    assert reasons(expanded) == ["9 stages, but network alexnet can be cut into 8 at most"]
    (sent,) = cells_of_kind(expanded, "collectives")
    assert isinstance(sent, CollectivesCell)
    assert (sent.placement, sent.operations) == ((2, 3), ["all-reduce", "send-receive"])


def test_networks_without_outputs_to_split_are_left_out() -> None:
    expanded = study(
        collectives={},
        matrix=[block(network=["alexnet", "squeezenet"], nodes=[1, 2], batch=4, sync="one-weird-trick")],
    )
    assert reasons(expanded) == [
        "preset one-weird-trick splits fully-connected layers behind convolutions, and squeezenet has none"
    ]
    (sent,) = cells_of_kind(expanded, "collectives")
    assert isinstance(sent, CollectivesCell)
    assert sent.operations == ["all-reduce", "all-gather", "reduce-scatter"]


def test_workers_per_node_are_an_axis_up_to_those_of_the_hardware() -> None:
    hardware = {"gpus": {"device": "cuda", "nodes": 2, "workers_per_node": 4}}
    expanded = study(
        hardware=hardware,
        matrix=[
            block(hardware="gpus", nodes=1, workers_per_node=[1, 2, 4, 8]),
            block(hardware="gpus", nodes=2, workers_per_node=4),
        ],
        exclude=["workers_per_node == 2"],
        collectives={},
    )
    assert [(cell.nodes, cell.workers_per_node, cell.ranks) for cell in train_cells(expanded)] == [
        (1, 1, 1), (1, 4, 4), (2, 4, 8),
    ]  # fmt: skip
    assert reasons(expanded) == ["excluded: workers_per_node == 2", "8 workers on a node, but hardware gpus has 4"]
    assert {(cell.nodes, cell.workers_per_node) for cell in cells_of_kind(expanded, "collectives")} == {(1, 4), (2, 4)}
    assert all("/workers_per_node~" in cell.path for cell in train_cells(expanded))
    assert "2 × 4" in expanded.plan()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes": 8}, "8 nodes, but hardware cpu has 4"),
        ({"nodes": 4, "batch": 2}, "b < 1: batch 2 on 4 workers"),
        ({"nodes": 3, "batch": 8}, "batch 8 is not divisible by 3 workers"),
        (
            {"nodes": 2, "batch": 8, "sync": "thirds"},
            "b = 4 is not divisible by the 3 parts of preset thirds (accumulate)",
        ),
        (
            {"nodes": 2, "batch": 8, "sync": "hsdp"},
            "preset hsdp shards inside a node, which has one worker; fsdp shards over all",
        ),
        (
            {"nodes": 2, "batch": 6, "sync": "pipeline"},
            "B = 6 is not divisible by the 4 micro_batches of preset pipeline",
        ),
        (
            {"nodes": 2, "batch": 3, "scaling": "weak", "sync": "pipeline"},
            "B = 6 is not divisible by the 4 micro_batches of preset pipeline",
        ),
        (
            {"network": "inception-v3", "nodes": 2, "batch": 2},
            "b = 1, but network inception-v3 trains on 2 samples at least",
        ),
    ],
)
def test_impossible_combinations_are_left_out_with_the_reason(change: dict[str, Any], reason: str) -> None:
    presets = {"thirds": {"like": "wfbp", "accumulate": 3}}
    expanded = study(matrix=[block(nodes=1), block(**change)], presets=presets)
    assert reasons(expanded) == [reason]
    assert len(train_cells(expanded)) == 1
    assert reason in expanded.plan()


TEXT = {"path": "text", "format": "tokens", "generate": 4}


@pytest.mark.parametrize(
    ("network", "storage", "reason"),
    [
        ("gpt2-small", "disk", "network gpt2-small takes tokens, but storage disk holds images"),
        ("alexnet", "text", "network alexnet takes images, but storage text holds tokens"),
        (
            "gpt2-small",
            "short",
            "sequences of 1024 tokens out of 50257, but storage short holds sequences of 512",
        ),
        ("small", "text", "small takes sequences of 16 tokens out of 100, but storage text holds sequences of 1024"),
        ("inception-v3", "raw", "takes images of 299x299 pixels, but storage raw holds images of 256x256 pixels"),
    ],
)
def test_a_network_and_a_storage_that_do_not_fit_are_left_out(network: str, storage: str, reason: str) -> None:
    expanded = study(
        storage={
            **CONFIG["storage"],
            "text": TEXT,
            "short": {**TEXT, "path": "short", "sequence_length": 512},
            "raw": {"path": "raw", "format": "raw", "generate": 8},
        },
        networks={"small": {"build": "small:build", "sequence_length": 16, "vocabulary": 100}},
        matrix=[
            block(nodes=1),
            block(nodes=1, network="gpt2-small", storage="text"),
            block(network=network, storage=storage),
        ],
        sgemm={"batches": 1},
    )
    assert [(cell.network, cell.storage) for cell in train_cells(expanded)] == [
        ("alexnet", "disk"),
        ("gpt2-small", "text"),
    ]
    assert [cell.network for cell in cells_of_kind(expanded, "sgemm")] == ["alexnet", "gpt2-small"]
    assert len(expanded.excluded) == 3
    assert all(reason in text for text in reasons(expanded))


def test_cells_of_a_users_network_carry_its_entry_and_others_none() -> None:
    mine = {"build": "my_package.nets:build", "image_size": 64}
    expanded = study(networks={"mine": mine}, matrix=[block(network=["mine", "alexnet"])], sgemm={"batches": 1})
    for cell in [*train_cells(expanded), *cells_of_kind(expanded, "sgemm")]:
        assert cell.own_network == (mine if cell.network == "mine" else None)
        assert cell_from_json(cell.to_json()) == cell


def test_conditions_exclude_cells_of_the_matrix() -> None:
    expanded = study(exclude=["network == 'alexnet' and nodes > 1", "worker_batch < 3"])
    assert [cell.nodes for cell in train_cells(expanded)] == [1]
    assert reasons(expanded) == ["excluded: network == 'alexnet' and nodes > 1"] * 2


def test_an_included_cell_is_added_after_exclusion() -> None:
    entry = {key: BLOCK[key] for key in ("network", "hardware", "storage", "scaling")} | {"nodes": 2, "batch": 2}
    expanded = study(exclude=["nodes > 1"], include=[entry])
    assert [(cell.nodes, cell.batch) for cell in train_cells(expanded)] == [(1, 8), (2, 2)]


def test_an_included_cell_changes_the_settings_of_that_cell_alone() -> None:
    before = study(repeats=2)
    entry = block(nodes=2, iterations=99, repeats=1)
    after = study(repeats=2, include=[entry])
    changed = [path for path, cell in after.cells.items() if before.cells.get(path) != cell]
    assert len(changed) == 1
    (cell,) = (one for one in train_cells(after) if one.path == changed[0])
    assert cell.iterations == 99
    assert set(before.cells) - set(after.cells) == {changed[0].replace("repeat~1", "repeat~2")}


def test_a_block_has_a_number_of_visits_of_its_own_which_is_fixed() -> None:
    expanded = study(visits=6, matrix=[block(nodes=1), block(nodes=2, visits=3)])
    assert {(one.nodes, one.visits, one.visits_fixed) for one in train_cells(expanded)} == {
        (1, 6, False), (2, 3, True),
    }  # fmt: skip


def test_supporting_jobs_follow_from_the_training_cells() -> None:
    expanded = study(sgemm={"batches": [4, 1]}, collectives={"largest": 5000}, storage_reads={})
    (products,) = cells_of_kind(expanded, "sgemm")
    assert (products.batches, products.reference) == ([1, 4], None)
    (printed,) = cells_of_kind(study(sgemm={"batches": 1, "reference": [4096, 9192]}), "sgemm")
    assert printed.reference == [4096, 9192]
    assert [(cell.nodes, cell.message_bytes) for cell in cells_of_kind(expanded, "collectives")] == [
        (2, [1024, 4096, 5000]),
        (4, [1024, 4096, 5000]),
    ]
    assert [cell.nodes for cell in cells_of_kind(expanded, "storage")] == [1, 2, 4]


def test_a_folder_of_traces_is_its_files_by_rank(tmp_path: Path) -> None:
    for name in ("rank10.txt", "rank2.txt", "rank0.txt", "study.yaml", ".hidden"):
        (tmp_path / name).touch()
    expanded = study(hardware=imported(files=str(tmp_path), nodes=3))
    cell = next(cell for cell in expanded.cells.values() if isinstance(cell, ImportedTrainCell) and cell.ranks > 1)
    assert cell.files == [str(tmp_path / f"rank{rank}.txt") for rank in (0, 2, 10)]
    assert expanded.config["hardware"]["old"]["traces"][0]["files"] == cell.files
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"traces\[0\].files: .*empty is a folder; a file is expected"):
        study(hardware=imported(files=str(empty)))


def nested(depth: int) -> dict[str, Any]:
    """Mappings in each other, as only a program can make them: Snakemake's reader of files refuses them."""
    entry: dict[str, Any] = {}
    for _ in range(depth):
        entry = {"a": entry}
    return entry


def itself() -> list[Any]:
    """A list that contains itself, as an anchor in YAML can make it."""
    entry: list[Any] = []
    entry.append(entry)
    return entry


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"visits": 10**12}, "visits: 1000000000000 is more than 100000, the most allowed"),
        ({"seed": 10**400}, "is more than 9223372036854775807, the most allowed"),
        ({"study": "g" * 300}, "study: 300 characters; at most 100"),
        (
            {"storage": {"disk": {"path": "/dev/null", "format": "files", "generate": 8}}},
            "storage.disk.path: /dev/null is no folder, as format files has it",
        ),
        ({"matrix": [block(network="alexnett")]}, "matrix[0].network: unknown network 'alexnett'"),
        ({"matrix": [block(hardware="gpu")]}, "matrix[0].hardware: unknown hardware 'gpu'"),
        ({"matrix": [block(storage="dsk")]}, "matrix[0].storage: unknown storage 'dsk', did you mean 'disk'"),
        ({"matrix": [block(bacth=3)]}, "matrix[0]: unknown key 'bacth', did you mean 'batch'"),
        ({"matrix": [block(batch=-4)]}, "matrix[0].batch: -4 is less than 1"),
        ({"matrix": [block(sync="wfpb")]}, "matrix[0].sync: unknown preset 'wfpb', did you mean 'wfbp'?"),
        ({"storage": {"disk": {"format": "files"}}}, "storage.disk: missing path"),
        ({"exclude": ["nods > 1"]}, "exclude[0]: 'nods > 1'"),
        ({"exclude": ["prefetch"]}, "exclude[0]: 'prefetch': prefetch is neither true nor false"),
        ({"matrix": [block(nodes=2.0)]}, "matrix[0].nodes: 2.0 should be of type integer"),
        ({"repeats": 10**9}, "repeats: 1000000000 is more than 1000, the most allowed"),
        ({"matrix": [block(nodes=list(range(1, 1001)), batch=list(range(1, 2001)))]}, "matrix[0]: 2,000,000 training"),
        (
            {"what_if": [{"bandwidth": list(range(1, 101)), "latency": [one / 100 for one in range(1, 101)]}]},
            "what_if[0]: 10,000 scenarios; at most 1,000",
        ),
        ({"precision": float("nan")}, "precision: nan is not a number that can be used"),
        ({"hardware": {8: {"device": "cpu", "nodes": 1}}}, "hardware: key 8 is no text"),
        ({"hardware": {"a\n": {"device": "cpu", "nodes": 1}}}, "hardware"),
        ({"what_if": itself()}, "nested more than 50 levels deep, or an entry that contains itself"),
        ({"external_tables": nested(5000)}, "the study: nested more than 50 levels deep"),
        ({"archive": {"title": "a\x1b[2J"}}, "archive.title: 'a\\x1b[2J' has control characters"),
        ({"matrix": [block(nodes=8)]}, "no cell to run"),
        ({"what_if": [{"sync": "wfpb"}]}, "what_if[0].sync: unknown preset 'wfpb', did you mean 'wfbp'?"),
        ({"what_if": [{}, {"latency": 0}]}, "what_if[1].latency"),
        ({"what_if": [{"link": {"latency": 1e-6}}]}, "what_if[0].link: missing bandwidth"),
        ({"networks": {"mine": {"build": "a:b"}}}, "networks.mine: needs its input, image_size, or sequence_length"),
        (
            {"networks": {"alexnet": {"build": "a:b", "image_size": 8}}},
            "networks.alexnet: is a network of stallpoint already",
        ),
        (on_disk(vocabulary=9), "storage.disk.vocabulary: applies only to format tokens; leave it out"),
        (on_cpu(cudnn=False), "hardware.cpu.cudnn: only applies to what is measured here on device: cuda, but cpu has"),
        (beside(path="images", format="raw"), "storage.b.path: images already holds the files samples of storage.disk"),
        (beside(path="./x/../images/", format="raw"), "storage.b.path: ./x/../images/ already holds the files samples"),
        (
            beside(**{**CONFIG["storage"]["disk"], "generate": 17}),
            "storage.b.path: images already holds the samples that storage.disk generates, which are others",
        ),
        (on_disk(path=" "), "storage.disk.path: an empty path"),
        (converted(convert_from="dsk"), "storage.b.convert_from: unknown storage 'dsk', did you mean 'disk'?"),
        (converted(generate=3), "storage.b.convert_from: disk: its samples are those of disk or generated, not both"),
        (converted(format="tokens"), "storage.b.convert_from: disk: format tokens holds tokens, no images"),
        (converted(convert_from="b"), "storage.b.convert_from: b: b from b: they are converted from each other"),
        (converted(image_size=9), "storage.b.image_size: applies only to format raw, mapped; leave it out"),
        ({"external_tables": {"a": "x\0y.csv"}}, "external_tables.a: 'x\\x00y.csv' has control characters"),
        ({"external_tables": {"a": "/tmp"}}, "external_tables.a: /tmp is a folder; a file is expected"),
        ({"claims": ["papers", "/tmp"]}, "claims[1]: /tmp is a folder; a file is expected"),
        ({"claims": ["my{1}.yaml"]}, "claims[0]: my{1}.yaml has a brace, which the workflow takes for a wildcard"),
        ({"claims": ["x" * 300 + ".yaml"]}, f"claims[0]: {'x' * 80}... is longer than file systems take: 255 bytes"),
        ({"hardware": imported(files=["/tmp"])}, "hardware.old.traces[0].files: /tmp is a folder; a file is expected"),
        (
            {"hardware": {**CONFIG["hardware"], "old": {"device": "cuda", "nodes": 2, "collectives": [log(file="/")]}}},
            "hardware.old.collectives[0].file: / is a folder; a file is expected",
        ),
        ({"matrix": [], "storage": {}}, "no cell to run: matrix excludes every combination, and nothing is imported"),
        ({"hardware": imported(network=None)}, "hardware.old.traces[0]: missing network"),
        ({"hardware": imported(read=None)}, "hardware.old.traces[0]: missing read: with prefetch > 0 the files say"),
        ({"hardware": imported(files=["a", "b", "c"])}, "hardware.old.traces[0].files: 3 files, one for each rank"),
        ({"hardware": imported(scaling="strong", batch=33)}, "hardware.old.traces[0]: batch 33 is not divisible by 2"),
        ({"hardware": imported(warmup=100)}, "hardware.old.traces[0]: warmup: 100 leaves none of the 100 iterations"),
        (on_cpu(precision="fp16"), "hardware.cpu.precision: fp16 is only for CUDA devices; a CPU has float32 and bf16"),
        ({"hardware": imported(sync="ring")}, "hardware.old.traces[0].sync: unknown preset 'ring'; known: naive, wfbp"),
        ({"hardware": imported(sync="horovod")}, "hardware.old.traces[0].sync: the files say how long each layer"),
        (
            {"hardware": imported(), "matrix": [block(hardware=["cpu", "old"])]},
            "matrix[0].hardware: old is imported, its runs are those under hardware.old.traces",
        ),
        (on_cpu(collectives=[log(nodes=1)]), "hardware.cpu.collectives[0]: one worker has nothing to all-reduce"),
        (on_cpu(collectives=[log(format="ncc-test")]), "hardware.cpu.collectives[0].format: unknown format 'ncc-test'"),
        (
            on_cpu(collectives=[log(), log(reduction="rnig")]),
            "hardware.cpu.collectives[1].reduction: unknown reduction",
        ),
        (on_cpu(collectives=[log(backend="ddp")]), "hardware.cpu.collectives[0].backend: unknown backend 'ddp'"),
        (
            {"storage": {"disk": {"path": "images", "format": "file"}}},
            "storage.disk.format: unknown format 'file', did you mean 'files'?; known: files, idx, tar, lmdb,",
        ),
        (
            {"presets": {"mine": {"like": "wfbp", "grouping": "layers"}}},
            "presets.mine.grouping: unknown grouping 'layers', did you mean 'layer'?; known: layer, fused, merged",
        ),
        (
            {"presets": {"mine": {"like": "ddp", "backend": "ddp"}}},
            "presets.mine.backend: unknown backend 'ddp'; known: mpi, mpi-copied, torch",
        ),
        ({"include": [block(nodes=1, sync="wfpb")]}, "include[0].sync: unknown preset 'wfpb', did you mean 'wfbp'?"),
    ],
)
def test_wrong_entries_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        study(**changes)
    assert message in str(error.value)


def test_every_wrong_entry_is_listed_at_once() -> None:
    with pytest.raises(InputError) as error:
        study(seed=-1, matrix=[block(batch=0)])
    assert str(error.value).count("\n") == 1
    with pytest.raises(InputError) as error:
        study(matrix=[block(network=["alexnet", "alexnett"], hardware="gpu"), block(sync="wfpb")])
    assert str(error.value).count("\n") == 2
    with pytest.raises(InputError) as error:
        study(matrix=[block(sync=["wfpb", "horovodd"]) for _ in range(5)])
    first, second = str(error.value).split("\n")
    assert first.startswith("matrix[0].sync, matrix[1].sync, matrix[2].sync and 2 more: unknown preset 'wfpb', did you")
    assert second.endswith("and 2 more: unknown preset 'horovodd', did you mean 'horovod'?")


@given(
    nodes=st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True),
    batch=st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True),
    scaling=st.lists(st.sampled_from(["strong", "weak", "compute"]), min_size=1, max_size=3, unique=True),
)
def test_no_cell_is_ever_wrong_and_none_gets_lost(nodes: list[int], batch: list[int], scaling: list[str]) -> None:
    blocks = [block(nodes=nodes, batch=batch, scaling=scaling), block(nodes=1, scaling="weak")]
    expanded = study(matrix=blocks)
    for cell in train_cells(expanded):
        assert cell.worker_batch >= 1
        assert cell.nodes <= 4
        if cell.scaling == "strong":
            assert cell.global_batch == cell.batch
    distinct = {(n, b, s) for n in nodes for b in batch for s in scaling} | {(1, 8, "weak")}
    compute = {b // n for n, b, s in distinct if s == "compute" and b % n == 0}
    others = {(n, b, s) for n, b, s in distinct if s != "compute" and n <= 4 and (s == "weak" or b % n == 0)}
    assert len(train_cells(expanded)) == len(compute) + len(others)


def test_imported_runs_are_cells_and_the_same_axes_again_are_repeats() -> None:
    hardware = imported()
    hardware["old"]["traces"].append({**TRACE, "files": ["again0.txt", "again1.txt"]})
    expanded = expand({"study": "old", "hardware": hardware, "sgemm": {"batches": 1}, "collectives": {}}, SCHEMA)
    runs = [cell for cell in expanded.cells.values() if isinstance(cell, ImportedTrainCell)]
    first, second = (cell for cell in runs if cell.ranks > 1)
    assert (first.kind, first.ranks, first.repeat, second.repeat) == ("imported-train", 2, 1, 2)
    assert first.path == (
        "imported-train/network~own-network/hardware~old/nodes~2/workers_per_node~1/batch~32/storage~nfs/scaling~weak/sync~wfbp/"
        "prefetch~1/repeat~1"
    )
    assert (first.files, second.files) == (["trace.txt"], ["again0.txt", "again1.txt"])
    assert (first.worker_batch, first.global_batch, first.iterations) == (32, 64, 100)
    assert "imported-train" in expanded.plan()
    assert [cell_from_json(cell.to_json()) for cell in (first, second)] == [first, second]
    sent = [cell.files for cell in expanded.cells.values() if isinstance(cell, ImportedCollectivesCell)]
    computed = [cell.files for cell in runs if cell.isolated]
    assert sent == [first.files, second.files]
    assert computed == [["trace.txt"], ["again0.txt"], ["again1.txt"]]


def test_what_a_run_computed_counts_where_no_smaller_one_computed_as_much() -> None:
    hardware = imported()
    hardware["old"]["traces"] += [
        {**TRACE, "files": ["alone.txt"], "scaling": "compute"}, {**TRACE, "files": ["half.txt"], "batch": 16}
    ]  # fmt: skip
    cells = expand({"study": "old", "hardware": hardware}, SCHEMA).cells.values()
    isolated = [cell.files for cell in cells if isinstance(cell, ImportedTrainCell) and cell.isolated]
    assert isolated == [["half.txt"]]


def test_imported_all_reduces_take_the_place_of_the_job() -> None:
    hardware = {"cpu": {"device": "cpu", "nodes": 4, "collectives": [log(), log(nodes=8), log(file="again.txt")]}}
    expanded = study(hardware=hardware, collectives={}, repeats=2)
    cells = [cell for cell in expanded.cells.values() if not isinstance(cell, TrainCell)]
    measured = [(cell.nodes, cell.repeat) for cell in cells if isinstance(cell, CollectivesCell)]
    read = [(c.nodes, c.repeat, c.files) for c in cells if isinstance(c, ImportedCollectivesCell)]
    assert measured == [(4, 1), (4, 2)]
    assert read == [(2, 1, ["log.txt"]), (8, 1, ["log.txt"]), (2, 2, ["again.txt"])]


@pytest.mark.parametrize(
    "names",
    [
        ("config",), ("studies/keuper-2016",), ("studies/shi-2018",), ("studies/shi-2018-table-vi",),
        ("studies/guide-small",), ("studies/dlbs", "studies/dlbs-small"),
    ],
)  # fmt: skip
def test_shipped_studies_are_valid_and_cells_survive_json(names: tuple[str, ...]) -> None:
    """Of several files the later ones change entries of the first, as Snakemake merges them."""
    config: dict[str, Any] = {}
    for name in names:
        for key, entry in yaml.safe_load((ROOT / f"config/{name}.yaml").read_text()).items():
            config[key] = {**config[key], **entry} if isinstance(config.get(key), dict) else entry
    expanded = expand(config, SCHEMA)
    for path, cell in expanded.cells.items():
        assert cell_from_json(cell.to_json()) == cell
        assert cell.path == path


@pytest.mark.parametrize("key", REGISTRIES)
def test_the_schema_leaves_names_to_the_registries(key: str) -> None:
    part = SCHEMA
    for step in key.replace("[]", ".[]").split("."):
        into = {"[]": part.get("items"), "<name>": part.get("additionalProperties")}
        part = into[step] if step in into else part["properties"][step]
    assert part["type"] == "string"
    assert "enum" not in part


def test_cells_carry_what_their_preset_does() -> None:
    cells = train_cells(study(presets={"short": {"like": "wfbp", "gradient_bits": 8}}, matrix=[block(sync="short")]))
    assert {cell.sync for cell in cells} == {"short"}
    assert all(cell.preset["gradient_bits"] == 8 for cell in cells)


def test_collectives_are_timed_for_each_reduction_that_is_used() -> None:
    expanded = study(
        collectives={}, matrix=[block(nodes=[1, 2], sync=["naive", "wfbp", "horovod", "ddp"], scaling="strong")]
    )
    assert [(cell.nodes, cell.backend, cell.reduction) for cell in cells_of_kind(expanded, "collectives")] == [
        (2, "mpi", "library"),
        (2, "mpi", "ring"),
        (2, "torch", "library"),
    ]


def test_collectives_are_those_that_the_presets_send() -> None:
    expanded = study(
        hardware={"cpu": {"device": "cpu", "nodes": 2, "workers_per_node": 2}},
        collectives={"operations": "broadcast"}, matrix=[block(nodes=2, sync=["hsdp", "wfbp"], batch=8)],
    )  # fmt: skip
    both = ["all-reduce", "all-gather", "reduce-scatter", "broadcast"]
    assert [(cell.placement, cell.backend, cell.operations) for cell in cells_of_kind(expanded, "collectives")] == [
        ((1, 2), "torch", both),
        ((2, 1), "torch", ["all-reduce", "broadcast"]),
        ((2, 2), "mpi", ["all-reduce", "broadcast"]),
        ((2, 2), "torch", ["all-reduce", "broadcast"]),
    ]  # fmt: skip


def test_a_script_calls_for_what_its_preset_sends() -> None:
    config = yaml.safe_load((ROOT / "config/studies/own-script-fsdp.yaml").read_text())
    (cell,) = cells_of_kind(expand(config, SCHEMA), "collectives")
    assert (cell.placement, cell.operations) == ((2, 1), ["all-reduce", "all-gather", "reduce-scatter"])


def test_a_visit_holds_whole_periods_of_an_algorithm_that_does_not_change() -> None:
    for sync, iterations in (("local-sgd", 8), ("downpour", 5), ("gossip", 3), ("asynchronous", 1)):
        cells = train_cells(study(iterations=iterations, matrix=[block(nodes=2, sync=sync, scaling="strong")]))
        assert {cell.sync for cell in cells} == {sync}
    with pytest.raises(InputError, match="iterations: 6, but preset local-sgd does the same again after 4 iterations"):
        study(iterations=6, matrix=[block(sync="local-sgd")])
    with pytest.raises(InputError, match="sync: preset post-local-sgd changes in the course of training"):
        study(iterations=4, matrix=[block(sync="post-local-sgd")])
