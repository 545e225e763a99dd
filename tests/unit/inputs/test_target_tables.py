"""Tables of trainings to a target: each form of heading is read, and other tables stay other tables."""

from pathlib import Path

import pytest

from stallpoint.errors import InputError
from stallpoint_files import readers
from stallpoint_files.targets.target_tables import TargetTable


def read(folder: Path, content: str) -> TargetTable:
    path = folder / "runs.csv"
    path.write_text(content)
    ((name, (table,)),) = readers.read(path).items()
    assert name == "targets"
    assert isinstance(table, TargetTable)
    return table


@pytest.mark.parametrize(
    ("content", "needed", "seconds"),
    [
        ("gpus,global_batch,samples_to_target,minutes_to_target\n8,8,3072,27.2\n64,8,3072,5.09\n", 3072, 1632),
        ("gpus,gbs,steps to target,TTT (min)\n8,8,384,27.2\n64,8,384,5.09\n", 3072, 1632),
        ("nodes;gpus_per_node;batch;samples to target;hours to target\n1;8;8;3072;0,5\n8;8;8;3072;0,1\n", 3072, 1800),
        ("gpus,global batch,samples_to_target,samples/s\n8,8,3072,2\n64,8,3072,12\n", 3072, 1536),
        ("gpus,global batch,steps_to_target,s/iteration\n8,8,384,4\n64,8,384,1\n", 3072, 1536),
        ("gpus,batch per gpu,samples_to_target,time to train\n8,1,3072,27.2\n64,1,3072,5.09\n", 3072, 1632),
        ("gpus,epochs_to_target,minutes\n8,35,13.3\n64,35,2.51\n", 35, 798),
        ("gpus,global_batch,minutes\n8,8,27.2\n64,8,5.09\n", None, 1632),
    ],
)
def test_each_heading_is_read(tmp_path: Path, content: str, needed: float | None, seconds: float) -> None:
    first, second = read(tmp_path, content).runs
    assert (first.workers, second.workers) == (8, 64)
    assert first.needed == needed
    assert first.seconds == pytest.approx(seconds)
    assert first.series == "runs"


def test_minutes_are_compared_with_samples_at_the_rate(tmp_path: Path) -> None:
    head = "gpus,global_batch,samples_to_target,minutes_to_target,samples/s\n"
    first, _ = read(tmp_path, f"{head}8,8,3072,27.2,1.885\n64,8,3072,5.09,10.3\n").runs
    assert first.working_seconds == pytest.approx(3072 / 1.885)


def test_names_of_systems_are_no_series(tmp_path: Path) -> None:
    """A word that stands on one count alone names a system; one that stands on several names a series."""
    rows = ("a,x1,8,8,10", "a,x8,64,8,2", "b,y1,8,8,12", "b,y8,64,8,3")
    table = read(tmp_path, "\n".join(("model,system,gpus,global_batch,minutes", *rows)) + "\n")
    assert [run.series for run in table.runs] == ["a", "a", "b", "b"]


def test_units_that_are_missing_are_told(tmp_path: Path) -> None:
    table = read(tmp_path, "gpus,batch,time to target\n8,8,27.2\n64,8,5.09\n")
    assert table.runs[0].seconds == pytest.approx(27.2 * 60)
    assert [note.partition(" ")[0] for note in table.notes] == ["batch", "time"]


def test_wrong_cells_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 3: global_batch is -8"):
        read(tmp_path, "gpus,global_batch,minutes_to_target\n8,8,27\n64,-8,5\n")
    with pytest.raises(InputError, match="no row has a time to the target"):
        read(tmp_path, "gpus,global_batch,minutes_to_target\n8,8,-\n64,8,OOM\n")


@pytest.mark.parametrize("head", ["gpus,minutes", "gpus,time to train (hours)", "gpus,global_batch,samples/s"])
def test_other_tables_stay_tables_of_rates(tmp_path: Path, head: str) -> None:
    path = tmp_path / "rates.csv"
    path.write_text(f"{head}\n" + "\n".join(",".join((str(n), *["9"] * head.count(","))) for n in (1, 2, 4)) + "\n")
    assert list(readers.read(path)) == ["rates"]
