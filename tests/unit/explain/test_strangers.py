"""What strangers bring: the right answer, or one good question; never "measured, sure" and wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from strangers import STRANGERS, Stranger, judged


def test_forms_are_many_and_most_are_those_of_others() -> None:
    others = [one for one in STRANGERS if one.source != "written for this test"]
    assert len(STRANGERS) >= 100
    assert len(others) >= 50
    assert len({one.form for one in STRANGERS}) == len(STRANGERS)
    assert all(one.files and one.right and one.by for one in STRANGERS)


@pytest.mark.parametrize("one", STRANGERS, ids=lambda one: f"{one.kind}: {one.form}")
def test_what_strangers_bring_is_answered_rightly_or_asked_rightly(one: Stranger, tmp_path: Path) -> None:
    assert judged(one, tmp_path)[0] == "right", judged(one, tmp_path)[1]
