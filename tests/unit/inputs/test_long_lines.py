"""Lines that are long, as writers of CSV and JSON without line ends make them: reading them takes steps in proportion
to their length."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from stallpoint.errors import InputError
from stallpoint.inputs.documents import SEARCHED_SIZE, Document
from stallpoint_files import readers
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options

# Of each the time grew with the square of its length.
_LONG = {
    "losses": "0.1," * 12_500,
    "numbers and a word": "1," * 12_500 + "x",
    "points": "1." * 12_500 + "x",
    "steps in JSON": json.dumps([{"step": step, "loss": 2.5} for step in range(5_000)]),
    "Megatron's beginning": "iteration 1/ 2 | " * 2_500,
    "torchtitan's beginning": "step: 1 " * 6_250,
    "steps": "step 1 of x " * 2_500,
    "MetricLogger's beginning": "eta: 1 time: 1 " * 2_500,
    "NCCL's beginning": "NCCL INFO " * 6_250,
    "capacities": "step 1: 5 tok/s " + "CUDA capacity: " * 2_500,
    "blanks": " " * 37_500 + "x",
    "brackets": "gpus," + "(" * 37_500 + "\n1,2\n",
    "marks of launchers": "1: " * 25_000,
    "headings": "gpus," + ",".join(f"a{place}" for place in range(2_000)) + "\n1" + ",1" * 2_000 + "\n",
    "blanks in a cell": "gpus,time\n1,5" + " " * 37_500 + "x\n2,3\n",
    "a key_averages heading": "Name  " + "Self CPU " * 6_250,
    "a word of a script": "#SBATCH -N 1\n" + "a" * 500_000,
}


@pytest.mark.parametrize("text", _LONG.values(), ids=_LONG)
def test_a_long_line_is_answered(text: str, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(text)
    with suppress(InputError):
        assert readers.read(path)


def test_what_is_not_searched_of_a_line_is_said(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    said = f"line 1 has 60,007 characters; only its first {SEARCHED_SIZE:,} are searched"
    path.write_text("x" * 60_000 + "\nstep 1".replace("\n", " "))
    with pytest.raises(InputError, match=f"{said}$"):
        readers.read(path)
    path.write_text(f"{'x' * 60_007}\nstep 1: 120 tok/s\nworld_size=8\n")
    (answer,) = explain_files([str(path)], Options()).answers
    assert answer.notes == (f"train.log, {said}",)
    assert Document(path, "x" * SEARCHED_SIZE).cut_remark == ""


@pytest.mark.parametrize(
    ("line", "program", "value"),
    [
        ("iteration 10/ 50 | elapsed time per iteration (ms): 250.5 | global batch size: 64 |", "Megatron", 0.2505),
        ("step: 10  loss: 8.1  memory: 1.5GiB  tps: 1,234  mfu: 40%", "torchtitan", 1234),
        ("Train: 0 [ 10/100] Loss: 6.9 Time: 0.5s,  512.5/s (0.5s, 512/s) LR: 1e-3", "timm", 512.5),
        ("Epoch: [0] [10/99] eta: 0:01 lr: 0.1 time: 0.5 (0.6) last_time: 0.4 data_time: 0.01", "MetricLogger", 0.5),
        ("global_batch_size: 64 x train_step_timing in s: 0.5 global_batch_size: 32", "NeMo", 0.5),
        ("step 5,loss x,200 tok/s", "steps", 200),
        ("epoch 1 step 7: 1,234.5 tokens/sec", "steps", 1234.5),
        ('{"step": 7, "samples/s": 12.5}', "steps", 12.5),
        ("5/5 [====] - 12s 110ms/step - loss: 2.5", "Keras", 0.11),
    ],
)
def test_rates_are_found_behind_what_begins_their_line(line: str, program: str, value: float) -> None:
    from stallpoint_files.training import training_logs

    (log,) = training_logs.read(Document(Path("log"), line))
    assert (log.program, log.value) == (program, pytest.approx(value))
