"""Tests for sentences and configurations that people ask with, in words of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options

CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("sentences.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"].split("\n")[0][:50])
def test_a_sentence_has_its_answer(tmp_path: Path, case: dict[str, Any]) -> None:
    file = tmp_path / "sentence"
    file.write_text(case["text"], encoding="utf-8")
    found = explain_files([str(file)], Options())
    words = " ".join(found.in_words().split())
    names = {cause.name for answer in found.answers for cause in answer.causes}
    asks = " ".join(ask for answer in found.answers for ask in answer.ask)
    assert set(case.get("causes", ())) <= names, words
    assert [text for text in case.get("says", ()) if text not in words] == [], words
    assert [text for text in case.get("asks", ()) if text not in asks] == [], words
    assert [text for text in case.get("not", ()) if text in words] == [], words
