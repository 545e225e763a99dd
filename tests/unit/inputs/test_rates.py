from pathlib import Path

import numpy as np
import pytest

from stallpoint.errors import InputError
from stallpoint_files.rates.rates import _AT_ONCE, read_rates

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
        ("a,1e308,1,9", "workers is 1e308; a whole number from 1 on is expected, up to 1,000,000,000"),
        ("a,1,1,1e308", r"samples_per_second is 1e308; a positive number \(1e-15 to 1e\+15\)"),
        ("a,1,1e-300,9", r"workers_per_node is 1e-300; a positive number \(1e-15 to 1e\+15\)"),
        ("a,1_0,1,9", "workers is 1_0; a finite number"),
        ("a,１２,1,9", "workers is １２; a finite number"),
        ("a,1,1,0x10", "samples_per_second is 0x10; a finite number"),
    ],
)
def test_a_wrong_row_is_named_by_its_line(line: str, says: str, tmp_path: Path) -> None:
    # An empty line counts as a line of the file.
    with pytest.raises(InputError, match=f"line 4: {says}"):
        read_rates(written(tmp_path, "a,1,1,5", "", line))


def test_what_is_written_is_read_to_the_last_digit_and_line(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    count = int(2.5 * _AT_ONCE)
    written_rates = random.uniform(1, 2, count) * 10.0 ** random.integers(-9, 9, count)
    lines = [f"a,{place},,{rate!r}" for place, rate in enumerate(written_rates.tolist(), start=1)]
    rates = read_rates(written(tmp_path, *lines))
    assert rates["samples_per_second"].tolist() == written_rates.tolist()
    assert rates.index.tolist() == list(range(count))
    with pytest.raises(InputError, match=f"line {count + 2}: workers is 0"):
        read_rates(written(tmp_path, *lines, "a,0,1,1"))


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_rates(tmp_path)


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
