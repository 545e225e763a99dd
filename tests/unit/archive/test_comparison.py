"""What changed between two studies, and over many: answers that are known, and how often a wrong one is given."""

import json
import re
import runpy
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nightly import first_by_day
from synthetic import Truth, study

from stallpoint.archive.comparison.change import (
    ERROR_RATE,
    FAMILIES,
    Change,
    changes,
    judge,
    pair_visits,
    pooled_change,
    relative_to_other_layers,
)
from stallpoint.archive.comparison.changes import CLEAR_CHANGES, FAIL_ON, compare, is_failure
from stallpoint.archive.comparison.compare_two import main
from stallpoint.archive.comparison.compared_results import COLUMNS, Results, read_results
from stallpoint.archive.comparison.comparison_data import write_comparison
from stallpoint.archive.comparison.comparison_files import FOLDERS, FORMATS
from stallpoint.archive.comparison.comparison_words import summary
from stallpoint.archive.comparison.history import NO_TREND, fit_line, history
from stallpoint.archive.comparison.history_page import to_html as history_html
from stallpoint.archive.comparison.history_words import to_json as history_json
from stallpoint.base.frames import frame, records
from stallpoint.base.measured import POINT, SERIES
from stallpoint.errors import InputError
from stallpoint.records.parquet import read, write
from stallpoint.records.tables import COMPARISON, DISTURBANCES, ENVIRONMENTS, STALLING
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.imported_kinds import ImportedTrainCell

ROOT = Path(__file__).parents[3]
LAYER = ("layer",)


@cache
def measured() -> dict[str, pd.DataFrame]:
    """A made-up study without scatter, of three node counts and two mini-batches on one worker."""
    return study(
        Truth(noise=1e-6), storages=("local",), syncs=("wfbp",), prefetches=(0,), compute_batches=(64, 16), repeats=1,
        iterations=2, visits=4,
    )  # fmt: skip


def results(
    seed: int,
    slower: float = 1.0,
    *,
    layer: float = 1.0,
    day: float = 0,
    verdict: str = "scales",
    scatter: float = 0.02,
) -> Results:
    """The study as it is measured again on some day: everything, or layer fc6 alone, takes so many times as long."""
    random = np.random.default_rng(seed)
    tidy = {name: rows.copy() for name, rows in measured().items()}
    visits = tidy["iterations"][["cell", "visit"]].drop_duplicates()
    visits = visits.assign(factor=slower * np.exp(scatter * random.standard_normal(len(visits))))
    for table, columns in (("iterations", ["iteration_time"]), ("layers", ["forward", "backward"])):
        rows = tidy[table].merge(visits, on=["cell", "visit"])
        if table == "layers":
            own = np.where(rows["layer"] == "fc6", layer, 1.0) * np.exp(0.01 * random.standard_normal(len(rows)))
            rows["factor"] *= own
        tidy[table] = rows.assign(**{name: rows[name] * rows["factor"] for name in columns}).drop(columns="factor")
    tidy["runs"] = tidy["runs"].assign(started=tidy["runs"]["started"] + timedelta(days=day))
    curve = tidy["iterations"].query("scaling == 'strong'").iloc[0]
    row = dict.fromkeys(STALLING.names, np.nan) | {
        **{name: curve[name] for name in SERIES}, "verdict": verdict, "verdict_ranks": 4, "reached": False,
    }  # fmt: skip
    tidy[STALLING.name] = pd.DataFrame([row])
    tidy[DISTURBANCES.name] = frame(DISTURBANCES, [])
    return Results(f"study {seed}", {table.name: tidy[table.name] for table in COLUMNS})


def only(one: Results, which: str, *tables: str) -> Results:
    """The study with some rows of some tables (iterations, unless named)."""
    return replace(
        one, tables={**one.tables, **{name: one.tables[name].query(which) for name in tables or ["iterations"]}}
    )


def words(rows: pd.DataFrame) -> list[str]:
    return list(rows["change"])


def test_what_takes_longer_is_slower_by_as_much() -> None:
    found = compare(results(1), results(2, 1.1))
    (machine,) = records(found.of("hardware"))
    assert machine["change"] == Change.SLOWER
    assert machine["ratio_low"] < 1.1 < machine["ratio_high"]
    assert machine["points"] == len(found.of("point")) == 8
    assert found.moved == {Change.SLOWER}, "speedups and layers beside each other are as before"
    assert summary(found)[0].startswith("cpu: iteration time changed by ")
    assert summary(found)[0].endswith("over 8 points: slower.")


def test_old_and_new_are_the_times_of_both() -> None:
    found = compare(results(1, scatter=0.0), results(1, 1.25, scatter=0.0)).of("point")
    assert list(found["new"] / found["old"]) == pytest.approx([1.25] * 8)
    assert list(found["ratio"]) == pytest.approx([1.25] * 8)
    one = found[(found["scaling"] == "compute") & (found["batch"] == 16)]["old"].item()
    times = measured()["iterations"].query("scaling == 'compute' and batch == 16 and not warmup")["iteration_time"]
    assert one == pytest.approx(times.mean(), rel=1e-4)


def test_two_studies_the_other_way_round_give_inverse_ratios() -> None:
    there, back = (compare(*pair) for pair in ((results(1), results(2, 1.1)), (results(2, 1.1), results(1))))
    ones = [1.0] * len(there.rows)
    assert list(there.rows["ratio"] * back.rows["ratio"]) == pytest.approx(ones)
    assert list(there.rows["ratio_low"] * back.rows["ratio_high"]) == pytest.approx(ones)
    assert list(there.rows["p"]) == pytest.approx(list(back.rows["p"]))
    assert back.moved == {Change.FASTER}
    assert (back.of("speedup")["old"] == there.of("speedup")["new"]).all()


def test_a_study_is_the_same_as_itself() -> None:
    found = compare(results(1, scatter=0.005), results(1, scatter=0.005))
    assert set(words(found.rows)) == {Change.SAME}
    assert list(found.rows["ratio"]) == pytest.approx([1.0] * len(found.rows))


@pytest.mark.night
def test_of_many_equal_pairs_hardly_any_raises_an_alarm() -> None:
    alarms = sum(bool(compare(results(2 * seed), results(2 * seed + 1)).moved) for seed in range(40))
    assert alarms <= 1  # 0.004 of them expected


def test_a_layer_that_is_slower_stands_out_although_the_machine_is_faster() -> None:
    found = compare(results(1), results(2, 0.9, layer=1.3)).of("layer")
    assert len(found) == 7
    slower = found[found["change"] == Change.SLOWER]
    assert list(slower["layer"]) == ["fc6"]
    assert slower["ratio"].item() == pytest.approx(1.3, rel=0.05), "beside the other layers"
    assert (slower["new"] / slower["old"]).item() == pytest.approx(1.3 * 0.9, rel=0.1)
    assert set(found["worker_batch"]) == {64}, "where it takes longest, on one worker"


def test_what_layers_share_in_a_visit_cancels() -> None:
    rows = [
        {"study": study, "visit": visit, "layer": layer, "cell": "one", "seconds": base * shared * own}
        for study, own_of in (("old", 1.0), ("new", 2.0))
        for visit, shared in enumerate((1.0, 5.0))
        for layer, base in (("a", 1.0), ("b", 2.0), ("c", 3.0))
        for own in [own_of if layer == "a" else 1.0]
    ]
    both = pd.DataFrame(rows).assign(log=lambda rows: np.log(rows["seconds"]))
    found = relative_to_other_layers(both, LAYER, ("cell",)).groupby(["layer", "study"])["log"].agg(["mean", "std"])
    apart = found["mean"].unstack("study")
    assert list(np.exp(apart["new"] - apart["old"])) == pytest.approx([2, 1, 1])
    assert found["std"].max() == pytest.approx(0, abs=1e-12)


def visited(rounds: Sequence[float], random: np.random.Generator) -> pd.DataFrame:
    """Visits to 14 points, whose logarithms differ by 1 %, and by `rounds` from one round to the next."""
    names = dict.fromkeys(POINT, 0)
    frames = [
        pd.DataFrame(
            {"visit": np.arange(len(rounds)), "seconds": np.exp(rounds + 0.01 * random.standard_normal(len(rounds)))}
        )
        for _ in range(14)
    ]
    return pd.concat([one.assign(**names | {"nodes": place}) for place, one in enumerate(frames)])


def test_rounds_that_differ_as_a_whole_widen_the_mean_over_points() -> None:
    errors = []
    for apart in (0.0, 0.05):
        random = np.random.default_rng(0)
        old, new = (visited(apart * random.standard_normal(6), random) for _ in range(2))
        both = pair_visits(old, new, POINT)
        errors.append(pooled_change(both, POINT, changes(both, POINT))["error"])
    assert errors[1] > 0.05 * np.sqrt(2 / 6) / 2
    assert errors[0] < errors[1] / 3


def test_what_lies_between_studies_widens_times_and_not_speedups() -> None:
    alone, apart = (compare(results(1), results(2, 1.1), study_deviation=between) for between in (0.0, 0.1))
    assert alone.moved == {Change.SLOWER}
    assert not apart.moved
    assert (apart.of("point")["ratio_high"] > alone.of("point")["ratio_high"]).all()
    assert (apart.of("speedup")["ratio_high"] == alone.of("speedup")["ratio_high"]).all()


def test_a_family_raises_an_alarm_as_seldom_as_its_part_of_the_level() -> None:
    random = np.random.default_rng(0)
    found = [
        judge(pd.DataFrame({"log": random.standard_normal(20), "error": 1.0, "freedom": 1e6}), FAMILIES["hardware"])
        for _ in range(600)
    ]
    alarms = np.mean([rows["change"].isin(CLEAR_CHANGES).any() for rows in found])
    assert alarms == pytest.approx(ERROR_RATE / 2, abs=0.003)


def test_a_verdict_moved_where_a_speedup_did() -> None:
    same = compare(results(1), results(2, verdict="stalls"))
    assert [(row["old"], row["new"], row["moved"]) for row in same.verdicts] == [("scales to 4", "stalls at 4", False)]
    slow = results(2, verdict="stalls")
    iterations = slow.tables["iterations"]
    iterations.loc[iterations["nodes"] == 4, "iteration_time"] *= 2
    moved = compare(results(1), slow)
    assert [row["moved"] for row in moved.verdicts] == [True]
    assert "lower" in words(moved.of("speedup"))
    assert any("scales to 4 before, now stalls at 4" in sentence for sentence in summary(moved))


def test_what_else_differs_is_listed() -> None:
    new = results(2)
    new.tables[ENVIRONMENTS.name]["torch"] = "2.9"
    assert compare(results(1), new).settings == [{"hardware": "cpu", "what": "torch", "old": "2.6", "new": "2.9"}]


def test_studies_without_a_common_point_are_refused_and_say_why() -> None:
    other = results(2)
    other.tables["iterations"]["hardware"] = "gpu"
    with pytest.raises(InputError, match="hardware cpu in study 1; hardware gpu in study 2"):
        compare(results(1), other)


def test_points_of_one_study_alone_are_counted() -> None:
    assert compare(results(1), only(results(2), "nodes < 4")).unmatched == {"old": 2, "new": 0}


def composed(one: Results, nodes: int) -> Results:
    """The study with iterations on so many nodes put together from the times of layers, which a file said."""
    runs = one.tables["runs"].copy()
    chosen = (runs["kind"] == "train") & (runs["nodes"] == nodes)
    parts = {"files": ["rank0.layers"], "read": 0.0, "host_to_device": 0.0, "update": 0.0}
    for row, text in runs.loc[chosen, "settings"].items():
        of_cell = asdict(cell_from_json(text)) | parts
        runs.loc[row, ["kind", "settings"]] = ImportedTrainCell.kind, ImportedTrainCell(**of_cell).to_json()
    return replace(one, tables={**one.tables, "runs": runs})


def test_composed_iterations_are_no_measurement() -> None:
    found = compare(results(1), composed(results(2), 4))
    assert found.unmatched == {"old": 2, "new": 0}
    assert 4 not in set(found.of("point")["nodes"])
    followed = history([results(1), composed(results(2), 4), results(3)])
    assert sorted(followed.rates.query("nodes == 4")["name"].unique()) == ["study 1", "study 3"]
    everywhere = results(2)
    for nodes in (1, 2, 4, 8):
        everywhere = composed(everywhere, nodes)
    with pytest.raises(InputError, match="study 2 measured no iteration: its own are composed of the times of layers"):
        compare(results(1), everywhere)


def test_without_layers_there_is_no_such_family() -> None:
    old, new = (only(results(seed), "rank < 0", "layers") for seed in (1, 2))
    assert compare(old, new).of("layer").empty


def test_one_visit_to_each_cell_decides_nothing() -> None:
    old, new = (only(one, "visit == 1", "iterations", "layers") for one in (results(1), results(2, 1.1)))
    assert not compare(old, new).moved


@pytest.mark.parametrize(
    ("moved", "fail_on", "status"),
    [
        ({Change.SLOWER}, "slower", True),
        ({Change.FASTER}, "slower", False),
        ({Change.LOWER}, "moved", True),
        ({Change.SLOWER}, None, False),
    ],
)
def test_programs_fail_on_what_they_are_told_to(moved: set[str], fail_on: str | None, status: bool) -> None:
    assert is_failure(moved, fail_on) is status


def test_an_unknown_reason_to_fail_is_named() -> None:
    with pytest.raises(InputError, match=f"fail_on: worse is not known; there are {', '.join(FAIL_ON)}"):
        is_failure(set(), "worse")


# --- files ----------------------------------------------------------------------------------------


def written(one: Results, folder: Path) -> Path:
    """The study as files, as the workflow writes them."""
    for table, kind in FOLDERS.items():
        rows = one.tables[table.name]
        rows = pa.Table.from_pandas(rows, table.schema, preserve_index=False)
        write(table, rows, folder / kind / f"{table.name}.parquet")
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two studies, of which the second is slower."""
    place = tmp_path_factory.mktemp("studies")
    one, two = (written(results(seed, slower), place / f"s{seed}") for seed, slower in ((1, 1.0), (2, 1.1)))
    return str(one), str(two)


def run(script: str, *arguments: str) -> int | str | None:
    """The status with which the program ends, run in this process."""
    with mock.patch.object(sys, "argv", [script, *arguments]):
        try:
            runpy.run_path(str(ROOT / "scripts" / script), run_name="__main__")
        except SystemExit as end:
            return end.code
    return 0


def test_the_program_writes_all_of_it_and_says_so_by_its_status(
    folders: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = folders
    assert main([old, new, "--out", str(tmp_path)]) == 1
    assert "over 8 points: slower." in capsys.readouterr().out
    assert {file.name for file in tmp_path.iterdir()} == {f"comparison.{name}" for name in FORMATS}
    data = json.loads((tmp_path / "comparison.json").read_text())
    assert data["moved"] == [Change.SLOWER]
    rows = read(COMPARISON, tmp_path / "comparison.parquet").to_pylist()
    assert rows == data["answers"]
    assert {row["subject"]: row["nodes"] is None for row in rows} == {
        "hardware": True, "point": False, "speedup": False, "layer": False,
    }  # fmt: skip
    assert main([new, old, "--out", str(tmp_path)]) == 0
    assert main([new, old, "--fail-on", "moved"]) == 1


def test_the_page_opens_without_a_network_and_its_titles_say_what_was_found(tmp_path: Path) -> None:
    comparison = compare(results(1), results(2, 1.5))
    write_comparison(comparison, {name: tmp_path / f"comparison.{name}" for name in FORMATS})
    page = (tmp_path / "comparison.html").read_text()
    assert '"title": "Points: 8 of 8 slower"' in page
    own = re.sub("<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall("src=|href=|<script", own)
    assert "| compute scaling" in (tmp_path / "comparison.md").read_text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nothing", "OLD: there is no study nothing"),
        ("nothing.zip", "OLD: there is no file nothing.zip"),
        ("half", "OLD: study half is not finished: it has no results/half/tables/environments.parquet"),
        ("broken", "OLD: tables/layers.parquet: truncated or not a Parquet file"),
    ],
)
def test_what_cannot_be_compared_is_named(
    given: str,
    message: str,
    folders: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folders[0], "results/broken")
    Path("results/broken/tables/layers.parquet").write_text("")
    Path("results/half/tables").mkdir(parents=True)
    Path("results/half/tables/runs.parquet").write_bytes(Path(folders[0], "tables/runs.parquet").read_bytes())
    assert main([given, folders[1]]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_studies_of_a_version_with_fewer_columns_are_read(tmp_path: Path) -> None:
    written(results(1), tmp_path)
    for table, kind in FOLDERS.items():
        file = tmp_path / kind / f"{table.name}.parquet"
        rows = pq.read_table(file)
        pq.write_table(rows.select(list(COLUMNS[table])), file)
    old = read_results(str(tmp_path), "old")
    assert not compare(old, results(2)).moved


def test_a_study_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(results(1), Path("results/mine"))
    assert read_results("mine", "old").name == "mine"


# --- over time ------------------------------------------------------------------------------------


def test_the_slope_of_a_line_without_scatter_is_found() -> None:
    found = fit_line(np.arange(5.0), 0.01 * np.arange(5.0), np.full(5, 0.02))
    assert found.value == pytest.approx(0.01)
    assert found.between == 0
    assert found.freedom == 3
    assert found.error == pytest.approx(0.02 / np.sqrt(10))


def test_scatter_between_studies_is_found_beside_that_of_visits() -> None:
    random = np.random.default_rng(0)
    found = [
        fit_line(
            np.arange(30.0), 0.03 * random.standard_normal(30) + 0.01 * random.standard_normal(30), np.full(30, 0.01)
        )
        for _ in range(40)
    ]
    assert np.mean([one.between for one in found]) == pytest.approx(0.03, rel=0.1)
    assert np.mean([one.interval[0] <= 0 <= one.interval[1] for one in found]) >= 0.8


def test_a_machine_that_gets_slower_is_called_so() -> None:
    found = history([results(seed, 1.03**seed, day=30.44 * seed) for seed in range(8)])
    (machine,) = found.machines
    assert machine.verdict == Change.SLOWER
    assert machine.trend is not None
    low, high = machine.trend.interval
    assert low < np.log(1.03) < high
    assert len(found.rates) == 8 * 8
    assert (found.rates["low"] < found.rates["value"]).all()


def test_a_step_is_found_where_it_is_in_whatever_order_studies_are_given() -> None:
    studies = [results(seed, 1.2 if seed >= 5 else 1.0, day=10 * seed) for seed in range(9)]
    (machine,) = history(studies[::-1]).machines
    assert machine.step is not None
    assert machine.step_at == "study 5"
    assert machine.step.value == pytest.approx(np.log(1.2), abs=0.03)


@pytest.mark.parametrize("first", first_by_day([0, 8]))
def test_a_steady_machine_has_neither_trend_nor_step(first: int) -> None:
    found = history([results(seed, day=10 * seed) for seed in range(first, first + 8)])
    (machine,) = found.machines
    assert (machine.verdict, machine.step) == (NO_TREND, None)
    assert json.loads(history_json(found))["machines"][0]["word"] == NO_TREND


def test_few_studies_have_no_trend_and_their_page_says_so() -> None:
    found = history([results(seed, day=seed) for seed in range(2)])
    assert found.machines[0].trend is None
    assert "2 studies; a trend needs 4" in history_html(found)


def test_more_than_two_studies_are_followed_over_time(
    folders: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*folders, folders[0], "--out", str(tmp_path)]) == 0
    assert {file.name for file in tmp_path.iterdir()} == {"history.html", "history.json"}
    assert "studies; a trend needs 4" in capsys.readouterr().out
    assert main([*folders, "nothing"]) == 2
    for name, folder in zip("abc", (*folders, folders[0]), strict=True):
        (tmp_path / "all" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "all" / name).symlink_to(folder)
    assert main([str(tmp_path / "all")]) == 0
    assert "3 studies; a trend needs 4" in capsys.readouterr().out
    (tmp_path / "all/b").unlink()
    (tmp_path / "all/c").unlink()
    assert main([str(tmp_path / "all")]) == 2
    assert "here are 1" in capsys.readouterr().err
