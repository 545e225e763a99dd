import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.text import interval, number, read_number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.8349, "1.83"), (0.9, "0.9"), (0.01236, "0.0124"), (-0.00012345, "-0.000123"), (2.5e-7, "2.5e-07"), (0, "0"),
        (999.9, "1000"), (1234.5, "1230"), (1024.0, "1024"), (12345.6, "12,300"), (4194304.0, "4,194,304"),
        (12345678, "12,300,000"), (2.5e13, "2.5e+13"), (math.inf, "∞"), (-math.inf, "−∞"), (math.nan, "not known"),
        (None, "not known"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits_unless_they_are_counts(value: float | None, text: str) -> None:
    assert number(value) == text


@given(st.floats(-1e15, 1e15, allow_subnormal=False))
def test_what_is_shown_is_near_the_value(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30))
def test_what_python_writes_is_read(value: float) -> None:
    assert read_number(repr(value)) == float(value)


@pytest.mark.parametrize(
    "text", ["1_0", "１０", "٣", "1e1_0", " 1", "1\n", "0x1p3", "inf", "nan", "", ".", "e3", "1e", "--1"]
)
def test_what_no_program_writes_is_no_number(text: str) -> None:
    assert math.isnan(read_number(text))


def test_an_end_without_a_number_is_unbounded() -> None:
    assert interval((0.0183, 0.0171, math.nan), 100, " %") == "1.8 % (1.7–∞)"
    assert interval((0.5, -0.25, 1234.5), unit=" ms") == "0.50 ms (-0.25 to 1200)"
    assert interval((4, 4, 128)) == "4 (4–128)"
    assert interval((1.8, 1.7, 2)) == "1.8 (1.7–2.0)"
    assert interval((0.9997, 0.991, 1.0), 100, " %") == "100 % (99–100)"
    assert interval((5.7, 2.1e-14, 8.3)) == "5.7 (0–8.3)"
    assert interval((3.9, -5.5e-15, 6.1), unit=" %") == "3.9 % (0–6.1)"
    assert interval(None) == "not known"
