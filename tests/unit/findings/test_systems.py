"""Answers for others: a row for each system, and slides."""

import csv
import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from stallpoint.findings.conclusions.systems import systems
from stallpoint.report.slides import slide, write_slides


def test_each_answer_has_a_row(conclusions: dict[str, Any], tables: dict[str, pd.DataFrame]) -> None:
    rows = list(csv.DictReader(io.StringIO(systems(conclusions, tables["runs"], tables["environments"]))))
    assert [row["network"] for row in rows] == [answer["network"] for answer in conclusions["answers"]]
    for row, answer in zip(rows, conclusions["answers"], strict=True):
        at = answer["at"] or answer["base"]
        assert (row["system"], row["verdict"], int(row["nodes"])) == (answer["hardware"], answer["state"], at["nodes"])
        assert float(row["samples_per_second"]) == pytest.approx(at["samples_per_second"]["value"], rel=1e-3)
        assert float(row["efficiency"]) == pytest.approx(at["efficiency"]["value"], rel=1e-3)
        assert "PyTorch" in row["software"]
        assert "visits" in row["evidence"]


def test_each_card_is_a_slide(conclusions: dict[str, Any], tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    write_slides(conclusions, tables, tmp_path)
    drawn = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.png")}
    assert drawn == {f"{answer['hardware']}/{answer['network']}.png" for answer in conclusions["answers"]}
    for name in drawn:
        assert Image.open(tmp_path / name).size == (1280, 720)


def test_a_slide_says_the_answer_and_what_it_rests_on(
    conclusions: dict[str, Any], tables: dict[str, pd.DataFrame]
) -> None:
    answer = conclusions["answers"][0]
    title = slide(answer, conclusions, tables)["title"]
    assert answer["network"] in title["text"]
    assert any("samples/s" in line for line in title["subtitle"])
    assert any(line.startswith("trust: ") for line in title["subtitle"])
