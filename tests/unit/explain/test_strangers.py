"""What strangers bring: the right answer, or one good question; never "measured, sure" and wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from strangers import STRANGERS, Stranger, judged

from stallpoint_files.rates import rate_answers

each = pytest.mark.parametrize("one", STRANGERS, ids=lambda one: f"{one.kind}: {one.form}")


def test_forms_are_many_and_most_are_those_of_others() -> None:
    others = [one for one in STRANGERS if one.source != "written for this test"]
    assert len(STRANGERS) >= 100
    assert len(others) >= 50
    assert len({one.form for one in STRANGERS}) == len(STRANGERS)
    assert all(one.files and one.right and one.by for one in STRANGERS)


@each
def test_what_strangers_bring_is_answered_rightly_or_asked_rightly(
    one: Stranger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws are fitted only where they decide what is asked: they take most of the time, and read nothing."""
    monkeypatch.setattr(rate_answers, "MAX_FITTED", 0)
    found, said = judged(one, tmp_path)
    if found != "right":
        monkeypatch.undo()
        found, said = judged(one, tmp_path)
    assert found == "right", said


@pytest.mark.night
@each
def test_laws_make_no_answer_wrong(one: Stranger, tmp_path: Path) -> None:
    found, said = judged(one, tmp_path)
    assert found == "right", said
