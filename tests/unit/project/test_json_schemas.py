"""What programs print as JSON, against docs/schemas."""

import json
from pathlib import Path

import pytest
from house import ROOT
from jsonschema import Draft202012Validator

from stallpoint import cli

RATES = "workers,images/s\n" + "".join(f"{n},{rate}\n" for n, rate in ((1, 100), (2, 190), (4, 340), (8, 342)))
NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#  Rank  0 Group  0 Pid 1 on a device  0 [0x07] NVIDIA A100
#  Rank  1 Group  0 Pid 2 on b device  0 [0x07] NVIDIA A100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    120.5    8.70    8.70      0    119.9    8.75    8.75      0
   134217728      33554432     float     sum      -1   6021.3   22.29   22.29      0   6019.2   22.30   22.30      0
"""


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    capsys.readouterr()
    cli.main(words)
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def validate(name: str, found: dict[str, object]) -> None:
    Draft202012Validator(json.loads((ROOT / f"docs/schemas/{name}.schema.json").read_text())).validate(found)


@pytest.mark.parametrize("text", [RATES, NCCL, "8 GPUs do 1.2 s/it, 16 GPUs do 1.1 s/it\n"])
def test_answers_are_of_the_documented_form(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "given.txt").write_text(text)
    validate("explain", printed(capsys, "explain", "--json", str(tmp_path / "given.txt")))


def test_a_comparison_is_of_the_documented_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for state, rate in (("old", 100), ("new", 90)):
        lines = "".join(f"1,{rate + repeat}\n2,{2 * rate + repeat}\n" for repeat in range(5))
        (tmp_path / f"{state}.csv").write_text(f"workers,images/s\n{lines}")
    found = printed(capsys, "compare", "--json", str(tmp_path / "old.csv"), str(tmp_path / "new.csv"))
    validate("compare", found)
    assert found["moved"] == ["slower"]


def test_the_check_of_a_node_is_of_the_documented_form(capsys: pytest.CaptureFixture[str]) -> None:
    validate("check", printed(capsys, "check", "--json"))
