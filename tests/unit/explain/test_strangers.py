"""What strangers bring: the right answer, or one good question; never "measured, sure" and wrong."""

from __future__ import annotations

from strangers import STRANGERS


def test_forms_are_many_and_most_are_those_of_others() -> None:
    others = [one for one in STRANGERS if one.source != "written for this test"]
    assert len(STRANGERS) >= 100
    assert len(others) >= 50
    assert len({one.form for one in STRANGERS}) == len(STRANGERS)
    assert all(one.files and one.right and one.by for one in STRANGERS)
