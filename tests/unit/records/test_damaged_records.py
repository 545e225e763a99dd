"""A record is what was written, to the last bit, or it is named and not used."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import read, write
from stallpoint.records.tables import LAYERS
from stallpoint.study.collect import collect

ROWS = pa.Table.from_pandas(synthetic.study()["layers"], schema=LAYERS.schema, preserve_index=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cell")
    write(LAYERS, ROWS, folder / "layers.parquet")
    return folder


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_changes_no_number(folder: Path, place: float, bit: int) -> None:
    file = folder / "layers.parquet"
    whole = file.read_bytes()
    damaged = np.frombuffer(whole, np.uint8).copy()
    damaged[int(place * len(damaged))] ^= 1 << bit
    file.write_bytes(damaged.tobytes())
    try:
        for look in (lambda: read(LAYERS, file), lambda: _collected(folder)):
            found = _rows_or_message(look)
            assert str(file) in found if isinstance(found, str) else found.equals(ROWS)
    finally:
        file.write_bytes(whole)


@given(bit=st.integers(0, 8 * 4000 - 1))
def test_a_flipped_bit_in_the_footer_is_found(folder: Path, bit: int) -> None:
    # Unchecked, Arrow ends the whole process for some, and takes other numbers of rows for granted.
    damaged = bytearray((folder / "layers.parquet").read_bytes())
    damaged[-1 - bit // 8] ^= 1 << bit % 8
    target = folder / "damaged" / "layers.parquet"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(damaged)
    with pytest.raises(InputError, match=str(target)):
        read(LAYERS, target)


def test_any_program_reads_records(folder: Path) -> None:
    assert pl.read_parquet(folder / "layers.parquet").to_arrow().cast(LAYERS.schema).equals(ROWS)
    assert pq.read_table(folder / "layers.parquet").equals(ROWS)


def test_records_of_other_programs_are_read(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "layers.parquet")
    assert read(LAYERS, tmp_path / "layers.parquet").equals(ROWS)


def _rows_or_message(look: Callable[[], pa.Table]) -> pa.Table | str:
    try:
        return look()
    except InputError as error:
        return str(error)


def _collected(folder: Path) -> pa.Table:
    collect(LAYERS, [folder], folder / "all" / "layers.parquet")
    return read(LAYERS, folder / "all" / "layers.parquet")


REFUSED = {28: "no space left", 122: "the quota is used up", 30: "read-only", 13: "no permission", 36: "longer than",
           5: "the storage fails", 116: "the storage is gone"}  # fmt: skip


@pytest.mark.parametrize(("number", "why"), REFUSED.items())
def test_what_the_file_system_refuses_names_the_file(tmp_path: Path, number: int, why: str) -> None:
    target = tmp_path / "records" / "runs.parquet"
    with pytest.raises(InputError, match=why) as error, atomic(target):
        raise OSError(number, "as the system says it")
    assert str(target) in str(error.value)
    assert not list(target.parent.iterdir()), "nothing half-written"


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="something else"), atomic(tmp_path / "file"):
        raise OSError(9, "something else")


def test_a_name_that_is_too_long_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="longer than the file system takes"), atomic(tmp_path / ("a" * 300)):
        pass


def test_what_was_written_is_renamed_and_not_copied(tmp_path: Path) -> None:
    with atomic(tmp_path / "file") as scratch:
        scratch.write_text("whole")
        written = scratch.stat().st_ino
    assert (tmp_path / "file").stat().st_ino == written


def test_a_folder_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, rename = tmp_path / "cell", os.rename
    target.mkdir()
    (target / "rows").write_text("before")

    def refused(source: Path, to: Path) -> None:
        if to == target and (source / "rows").read_text() == "after":
            raise OSError(errno.EDQUOT, "as the system says it")
        rename(source, to)

    def replace() -> None:
        with atomic(target) as scratch:
            scratch.mkdir()
            (scratch / "rows").write_text("after")

    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(InputError, match="the quota is used up; nothing was written"):
        replace()
    assert [(file.name, file.read_text()) for file in target.iterdir()] == [("rows", "before")]
    assert list(tmp_path.iterdir()) == [target]
