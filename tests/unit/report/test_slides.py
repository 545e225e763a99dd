"""Answers as slides."""

from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from stallpoint.report.slides import slide, write_slides


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
