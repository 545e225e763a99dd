"""Conditions under ``exclude``: what they mean, and that nothing of them is ever run."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.study.matrix import COLUMNS, MAX_LENGTH, condition

ROW = {
    "network": "alexnet", "hardware": "k80", "nodes": 4, "batch": 64, "storage": "ssd", "scaling": "strong",
    "sync": "naive", "prefetch": 1, "worker_batch": 16, "ranks": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("nodes > 2", True),
        ("nodes > 4", False),
        ("2 < nodes <= 4", True),
        ("2 < nodes < 4", False),
        ("nodes == ranks", True),
        ("batch != 64", False),
        ("network == 'alexnet' and nodes > 8", False),
        ("network == 'alexnet' or nodes > 8", True),
        ("not network == 'alexnet'", False),
        ("not (network == 'alexnet' and nodes > 8)", True),
        ("sync in ['naive', 'wfbp']", True),
        ("sync not in ('naive', 'wfbp')", False),
        ("nodes in {1, 2}", False),
        ("prefetch > -1", True),
        ("worker_batch <= 16.5", True),
        ("\n nodes > 2 ", True),
    ],
)
def test_a_condition_means_what_it_says(text: str, met: bool) -> None:
    assert condition(text, COLUMNS)(ROW) is met


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nods > 1", "no column nods; columns are network, "),
        ("prefetch", "prefetch is neither true nor false"),
        ("nodes + 1", "neither true nor false"),
        ("nodes + 1 > 2", "neither a column nor a value"),
        ("True", "neither true nor false"),
        ("nodes == True", "neither a column nor a value"),
        ("nodes == 'two'", "nodes is a number, 'two' is a name: they are never equal"),
        ("network > 'a'", "network is a name"),
        ("network == alexnet", "no column alexnet"),
        ("nodes in 4", "4 is no list of values"),
        ("nodes in ['4']", "'4' is a name, which is compared with a number"),
        ("nodes is 4", "an unknown operator"),
        ("nodes > 2 & batch > 3", "neither a column nor a value"),
        ("nodes >", "not a condition"),
        ("", "not a condition"),
        ("nodes > 1; nodes < 3", "not a condition"),
        ("nodes\0 > 1", "not a condition"),
        ("9**9**9**9 > 1", "neither a column nor a value"),
        ("(" * 400 + "nodes" + ")" * 400 + " > 1", "not a condition"),
        ("nodes > 1 and " * 100 + "nodes > 1", "at most 1,000"),
        ("[n for n in [1]] == 1", "neither a column nor a value"),
        ("(lambda: 1)() == 1", "neither a column nor a value"),
        ("nodes.real > 1", "neither a column nor a value"),
        ("f'{nodes}' == '4'", "neither a column nor a value"),
    ],
)
def test_a_wrong_condition_is_refused_with_what_would_be_right(text: str, problem: str) -> None:
    with pytest.raises(InputError) as error:
        condition(text, COLUMNS)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "@pd.io.common.os.system('touch {}') == 0",
        "__import__('os').system('touch {}') == 0",
        "network == __import__('os').system('touch {}')",
        "nodes in [__import__('os').system('touch {}')]",
        "().__class__.__base__.__subclasses__() == open('{}', 'w')",
    ],
)
def test_nothing_is_run(text: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(InputError):
        condition(text.format(mark), COLUMNS)(ROW)
    assert not mark.exists()


@given(st.text(max_size=MAX_LENGTH + 10))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    try:
        met = condition(text, COLUMNS)
    except InputError:
        return
    assert met(ROW) in (True, False)


LANGUAGE = "nodes network 'alexnet' 4 == < in not and or ( ) [ ] , - 1e999 **"


@given(st.lists(st.sampled_from(LANGUAGE.split()), max_size=12).map(" ".join))
def test_any_words_of_the_language_are_a_condition_or_refused(text: str) -> None:
    test_any_text_is_a_condition_or_refused.hypothesis.inner_test(text)
