"""Files that are damaged at random: each is answered, or refused in one sentence; never a traceback, never silence."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from all_reduce_samples import nccl_tests, osu
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nightly import examples

from stallpoint.cli import main

TABLE = "series,gpus,gpus_per_node,img/s\nnet,8,16,532\nnet,16,16,710\nnet,32,16,879\nnet,64,16,OOM\n"
SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --cpus-per-task=8\nsrun python train.py --data ~/imagenet\n"
NCCL = (
    "n01:41:41 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.11<0>\n"
    "n01:41:41 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n"
    "n01:41:41 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.11<0>\n"
    "n01:41:90 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank 0 nranks 8 cudaDev 0 - Init START\n"
)
LOG = "\n".join(
    f" iteration {step}/ 500 | elapsed time per iteration (ms): 1850.{step} | global batch size: 512 | lm loss: 2.1"
    for step in range(10, 40)
)
LAYOUTS = "model,nodes,dp,tp,mbs,gbs,tokens/s,memory_gb\n" + "\n".join(
    f"7B,{nodes},{8 * nodes // tp},{tp},{batch},64,{1000 * nodes / tp},{60 / tp}"
    for nodes in (1, 2, 4) for tp in (1, 2, 4) for batch in (1, 2)
)  # fmt: skip
TIMES = "gpus,gpus/node,epoch time,global batch\n1,1,1h 20m,256\n2,2,42m30s,256\n2,1,50 min,256\n4,2,0:22:30,256\n"
HOURS = "nodes,gpus_per_node,time to train (hours)\n1,1,20\n1,4,6.5 ± 0.2\n2,4,3.6 ± 0.1\n4,4,2.1\n"
WIDE = "epoch time\nmodel,1 GPU,2 GPUs,4 GPUs\nnet,1:40,50,27\nvgg,90 s,OOM,40\n"
ROWS = "GPUs,1,2,4,8\nms/iter,250,260,300,420\n"
SENTENCES = "- on 2 GPUs: 1200.5 img/s\n- on 4 GPUs only 2,300 images/sec\n- 8 GPUs (2 nodes): 2400 img/s\nWhy?\n"
SAMPLES = (
    TABLE,
    TIMES,
    HOURS,
    WIDE,
    ROWS,
    SENTENCES,
    LAYOUTS,
    TABLE.replace(",", " | "),
    "gpus;s/iter\n1;1,5\n2;0,8\n4;0,45\n",
    "Why?\n1 GPU: 410 img/s\n8 GPUs: 2510 img/s\n16 GPUs (2 nodes): 2630 img/s\n",
    '{"step": 1, "tokens_per_sec": "1.9K", "world_size": 2}\n{"step": 2, "tokens_per_sec": 1950.5, "world_size": 2}\n',
    SCRIPT,
    NCCL,
    LOG,
    nccl_tests(),
    osu(),
    '{"findings": [], "answers": []}',
    '{"results": [{"size": 1, "in_place": {"time": 2.5}}], "devices": []}',
    "#SBATCH --gres=gpu:4\n#SBATCH -c 8\nsrun python 'train.py' --data ~/x\n",
    "step: 1  loss: 2  tps: 1,234\nworld_size=8\n",
    "Name    Self CPU    # of Calls\naten::mm    1.5ms    3\n",
    "# Benchmarking Allreduce\n# #processes = 4\n#bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
    "8 9 1 2 3\n",
    "",
)
PIECES = (
    *(one.encode() for one in ("\0", "１２", *',|;\t"-', "nan", "inf", "1e999", "9" * 5000)), b"\xff\xfe",
)  # fmt: skip


def cut(data: bytes, at: int, _: bytes) -> bytes:
    return data[:at]


def behead(data: bytes, at: int, _: bytes) -> bytes:
    return data[at:]


def insert(data: bytes, at: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at:]


def replace(data: bytes, at: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at + len(piece) :]


def double(data: bytes, at: int, _: bytes) -> bytes:
    return data + data[:at]


def encode(data: bytes, at: int, _: bytes) -> bytes:
    return data.decode(errors="replace").encode(("utf-16", "utf-16-be", "cp1252")[at % 3], "replace")


def turn(data: bytes, at: int, _: bytes) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join(lines[at % len(lines) :] + lines[: at % len(lines)])


CHANGES: tuple[Callable[[bytes, int, bytes], bytes], ...] = (cut, behead, insert, replace, double, encode, turn)
changes = st.lists(
    st.tuples(st.sampled_from(CHANGES), st.integers(0, 3000), st.sampled_from(PIECES)), min_size=1, max_size=3
)


@settings(examples(100, 450), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sample=st.sampled_from(SAMPLES), changed=changes)
def test_a_damaged_file_is_answered_or_refused_in_a_sentence(
    sample: str, changed: list[tuple[Callable[[bytes, int, bytes], bytes], int, bytes]], tmp_path: Path
) -> None:
    data = sample.encode()
    for change, at, piece in changed:
        data = change(data, at % (len(data) + 1), piece)
    file = tmp_path / "file"
    file.write_bytes(data)
    said, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
        try:
            code = main(["explain", str(file)])
        except SystemExit as end:
            code = int(end.code or 0)
    assert code in (0, 1, 2, 3), wrong.getvalue()
    if code == 2:
        assert wrong.getvalue().startswith(f"error: {file}")
        assert wrong.getvalue().count("\n") <= 3
    else:
        assert said.getvalue().strip()
        assert said.getvalue().count("\n") <= 20
        assert not wrong.getvalue()


@pytest.mark.parametrize("count", ["1e999", "9" * 400, "inf", "nan", "-1", "1.5"])
def test_counts_that_are_none_are_named_by_their_line(count: str, tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(TABLE.replace("16,16,710", f"{count},16,710"))
    wrong = io.StringIO()
    with contextlib.redirect_stderr(wrong), pytest.raises(SystemExit) as end:
        main(["explain", str(file)])
    assert end.value.code == 2
    assert f"{file}, line 3: gpus is {count[:40]}" in wrong.getvalue()


def test_digits_that_are_no_number_are_named_by_their_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(LOG.replace("size: 512", "size: " + "5" * 5000, 3))
    wrong = io.StringIO()
    with contextlib.redirect_stderr(wrong), pytest.raises(SystemExit) as end:
        main(["explain", str(file)])
    assert end.value.code == 2
    assert wrong.getvalue().startswith(f"error: {file}, line 1: a number of 5,000 digits")
    file.write_text(LOG.replace("size: 512", "size: " + "5" * 500))
    assert main(["explain", str(file)]) == 3
