"""The list of wordings of counts: each entry's example is read as it says."""

import pytest

from stallpoint_files.texts.counts import WORDINGS, Wording, counted_in_digits


@pytest.mark.parametrize("one", WORDINGS, ids=lambda one: one.example)
def test_a_count_in_other_words_is_read_in_digits(one: Wording) -> None:
    assert counted_in_digits(one.example) == one.read
