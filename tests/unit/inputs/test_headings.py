"""The list of headings: each entry's examples are found by it, and by none before it."""

import pytest

from stallpoint_files.texts.headings import HEADINGS, LONGEST, kind_of


@pytest.mark.parametrize(("kind", "example"), [(one.kind, example) for one in HEADINGS for example in one.examples])
def test_each_entry_says_what_its_examples_are(kind: str, example: str) -> None:
    assert kind_of(example) == kind


@pytest.mark.parametrize("heading", ["ResNet50", "FP32", "value", "iRTF", "comment", "x" * (LONGEST + 1)])
def test_words_that_say_nothing_have_no_kind(heading: str) -> None:
    assert kind_of(heading) == ""
