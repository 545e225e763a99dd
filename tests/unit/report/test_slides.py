"""Answers as slides."""

from pathlib import Path

import pandas as pd
from PIL import Image

from stallpoint.base.section import Section
from stallpoint.report.html import cards
from stallpoint.report.slides import slide, write_slides


def test_each_card_is_a_slide(said: list[Section], tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    write_slides(said, tables, tmp_path)
    drawn = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.png")}
    abouts = [found[0].about for found in cards(said[0]).values()]
    assert drawn == {f"{about['hardware']}/{about['network']}.png" for about in abouts}
    assert len(drawn) == 4
    for name in drawn:
        assert Image.open(tmp_path / name).size == (1280, 720)


def test_a_slide_says_the_answer_and_what_it_rests_on(said: list[Section], tables: dict[str, pd.DataFrame]) -> None:
    ((title, (one, *_)), *_) = cards(said[0]).items()
    text = slide(title, one, tables)["title"]
    assert text["text"] == f"{title}: {one.words}"
    assert any("samples/s" in line for line in text["subtitle"])
    assert any(line.startswith("measured; speedup known to ") for line in text["subtitle"])
