"""Files of others that were changed at random are taken or refused in words: some here, more by make chaos."""

import pytest
from fuzzing import KINDS
from tally import tallies

TRIALS = 50


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_file_is_taken_or_refused_in_words(kind: str) -> None:
    (tally,) = tallies("fuzzing", kind, "--trials", str(TRIALS))  # in a process of its own: its memory is measured
    assert tally["red"] == []
    assert tally["trials"] == TRIALS
    assert 0 < tally["clear"] == tally["refused"]  # of an archive every change may be found: it has checksums
