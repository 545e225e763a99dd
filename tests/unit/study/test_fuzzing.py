"""Files of others that were changed at random are taken or refused in words: some here, more in the night."""

import pytest
from fuzzing import KINDS
from tally import tallies


def test_changed_files_are_taken_or_refused_in_words() -> None:
    found = list(tallies("fuzzing", "--trials", "2"))  # in a process of its own: its memory is measured
    assert [tally["fault"] for tally in found] == list(KINDS)
    for tally in found:
        assert tally["red"] == []
        assert tally["trials"] >= 2
        assert tally["clear"] == tally["refused"]
    assert any(tally["refused"] for tally in found)


@pytest.mark.night
@pytest.mark.parametrize("kind", KINDS)
def test_many_changed_files_are_taken_or_refused_in_words(kind: str) -> None:
    (tally,) = tallies("fuzzing", kind, "--trials", "300")
    assert tally["red"] == []
    assert tally["trials"] >= 300
    assert 0 < tally["clear"] == tally["refused"]  # of an archive every change may be found: it has checksums
