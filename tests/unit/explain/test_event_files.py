"""Event files that TensorBoard's writers wrote: their scalars as tables; files that are cut off or broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from strangers import STRANGERS

from stallpoint.errors import InputError
from stallpoint_files import readers
from stallpoint_files.texts import event_files


def written(folder: Path, by: str) -> Path:
    (one,) = [one for one in STRANGERS if one.form.startswith(f"TensorBoard's event file by {by}")]
    return Path(one.written(folder)[0])


def test_scalars_are_a_row_for_each_step_and_a_column_for_each_tag(tmp_path: Path) -> None:
    document = event_files.table(written(tmp_path, "torch.utils.tensorboard"))
    assert document
    assert document.raw_lines[:2] == [
        "Step,Wall time,loss_metrics/global_avg_loss,throughput(tps)",
        "10,1718000000.0,3.0999999,5100",
    ]
    assert len(document.text.splitlines()) == 7
    own = event_files.table(written(tmp_path, "tensorboard.summary.Writer"))
    assert own
    assert [line.split(",")[:2] for line in own.text.splitlines()[1:3]] == [
        ["10", "1718000000.0"],
        ["20", "1718000020.0"],
    ]


def test_a_file_that_is_still_written_is_read_up_to_its_last_whole_message(tmp_path: Path) -> None:
    path = written(tmp_path, "torch.utils.tensorboard")
    path.write_bytes(path.read_bytes()[:-10])
    document = event_files.table(path)
    assert document
    assert document.text.splitlines()[-1].startswith("60,")
    assert document.text.splitlines()[-1].endswith(",")


def test_a_message_that_is_none_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "torch.utils.tensorboard")
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[:8], "little")
    begin = 12 + length + 4 + 12
    content[begin : begin + 12] = b"\xff" * 12
    path.write_bytes(content)
    with pytest.raises(InputError, match="a broken event file of TensorBoard"):
        readers.read(path)


def test_rates_of_all_workers_beside_those_of_each_say_how_many_there_are(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(
        "Step,eval/samples_per_sec,throughput/tokens_per_sec,throughput/device/tokens_per_sec\n"
        + "".join(f"{step},900,{80_000 + step},{10_000 + step / 8}\n" for step in range(10, 60, 10))
    )
    (rate,) = readers.read(path)["training-log"]
    assert (rate.workers, rate.unit, rate.of) == (8, "tokens/s", "all")
    assert rate.value == pytest.approx(80_035, abs=20)
