from pathlib import Path

import numpy as np
import pytest

from stallpoint.errors import InputError
from stallpoint.rates import read_rates

HEAD = "series,workers,workers_per_node,samples_per_second"


def written(folder: Path, *lines: str, head: str = HEAD) -> Path:
    path = folder / "table.csv"
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def test_a_table_is_read_whatever_else_it_has(tmp_path: Path) -> None:
    head = "series, note, workers, workers_per_node, samples_per_second, batch_per_worker, compute_seconds"
    rates = read_rates(written(tmp_path, "007,x,2,1.5,10.5,32,0.4", "", "b,,4,,,,", head=head))
    assert rates["series"].tolist() == ["007", "b"]
    assert rates["workers"].tolist() == [2, 4]
    assert np.array_equal(rates["workers_per_node"], [1.5, np.nan], equal_nan=True)
    assert np.array_equal(rates["samples_per_second"], [10.5, np.nan], equal_nan=True)
    assert np.array_equal(rates["batch_per_worker"], [32, np.nan], equal_nan=True)
    assert np.array_equal(rates["compute_seconds"], [0.4, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a,1,1,0", "samples_per_second is 0; a positive number"),
        ("a,1,1,-3", "samples_per_second is -3; a positive number"),
        ("a,1,1,inf", "samples_per_second is inf; a finite number"),
        ("a,1,1,fast", "samples_per_second is fast; a finite number"),
        ("a,2.5,1,9", "workers is 2.5; a whole number"),
        ("a,0,1,9", "workers is 0; a whole number"),
        ("a,,1,9", "workers is empty; a whole number"),
        ("a,1,0,9", "workers_per_node is 0; a positive number"),
        (",1,1,9", "series is empty; a name"),
    ],
)
def test_a_wrong_row_is_named_by_its_line(line: str, says: str, tmp_path: Path) -> None:
    # An empty line counts as a line of the file.
    with pytest.raises(InputError, match=f"line 4: {says}"):
        read_rates(written(tmp_path, "a,1,1,5", "", line))


def test_how_many_rows_are_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2: .* \(and 2 more such rows\)"):
        read_rates(written(tmp_path, *["a,1,1,0"] * 3))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a CSV table"),
        (HEAD + "\n", "no rows"),
        ("series,workers\na,1\n", "no column workers_per_node, samples_per_second"),
        (HEAD + "\na,1,1,5,6,7\n", "not a CSV table"),
    ],
)
def test_what_is_no_table_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_rates(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: no such table"):
        read_rates(tmp_path / "none.csv")
