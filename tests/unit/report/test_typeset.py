"""Typeset tables: nothing is lost in CSV, LaTeX stays LaTeX whatever a text holds, numbers are rounded as known."""

import io
import math
import re
import string
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.records.tables import AMDAHL, MODEL_TABLES
from stallpoint.report import typeset
from stallpoint.report.typeset import ROWS, Typeset, escape, estimate, to_csv, to_latex, to_markdown, typeset_records
from stallpoint.text import quote

REVERSED = {shown: character for character, shown in typeset._ESCAPES.items()}
TOKEN = re.compile("|".join(map(re.escape, sorted(REVERSED, key=len, reverse=True))) + r"|[^\\{}$&#%_^~]", re.DOTALL)


@given(st.text(alphabet=string.printable.replace("'", "").replace("-", "")))
def test_escaped_text_reads_as_it_was(text: str) -> None:
    shown = escape(text)
    tokens = TOKEN.findall(shown)
    assert "".join(tokens) == shown, "a character that LaTeX would take for a command"
    assert "".join(REVERSED.get(token, token) for token in tokens) == text


def check_latex(text: str) -> list[int]:
    """Assert what LaTeX would: braces and environments close, rows have as many cells as the table has columns.

    Returns the number of rows of each tabular.
    """
    lines = [re.sub(r"(?<!\\)%.*", "", line) for line in text.splitlines()]
    code = "\n".join(lines)
    assert code.count("$") - code.count(r"\$") == 2 * len(re.findall(r"(?<!\\)\$[^$\n]*(?<!\\)\$", code))
    unescaped = re.sub(r"\\[{}]", "", code)
    depth = 0
    for character in unescaped:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    opened: list[str] = []
    rows: list[int] = []
    columns = 0
    for line in lines:
        for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", line):
            if kind == "begin":
                opened.append(name)
            else:
                assert opened.pop() == name
        if found := re.search(r"\\begin\{tabular\}\{([lr]+)\}", line):
            columns = len(found[1])
            rows.append(-1)  # the head
        elif line.endswith(r"\\"):
            assert len(re.findall(r"(?<!\\)&", line)) == columns - 1, line
            rows[-1] += 1
    assert not opened
    outside = re.sub(r"\\label\{[^}]*\}|(?<!\\)\$[^$\n]*(?<!\\)\$", "", code)
    assert not re.search(r"(?<!\\)[#_^]", outside)
    assert text.isascii()
    return rows


HOSTILE = r"50 % of a_b & c#1 {x} ~ ^2 \cmd $5 a|b <1> [0]"


def amdahl(rows: int) -> pd.DataFrame:
    ends = {"low": 0.9, "high": 1.2}
    values = {
        column.name: [ends.get(column.name.rpartition("_")[2], 1.0) * (0.5 + 0.001 * i) for i in range(rows)]
        for column in AMDAHL.columns
    }
    texts = {name: [f"{name} {i}" for i in range(rows)] for name in ("layer_type", "series", "note")}
    same = {"network": "alexnet", "hardware": HOSTILE, "basis": "x"}
    return pd.DataFrame({**values, **texts, **same, "points": range(rows)})


def test_a_table_of_records_is_valid_latex() -> None:
    text = to_latex(typeset_records(AMDAHL, amdahl(3)))
    assert check_latex(text) == [3]
    assert r"50 \% of a\_b \& c\#1 \{x\} \textasciitilde{} \textasciicircum{}2 \textbackslash{}cmd \$5" in text
    assert text.count(r"\label{tab:amdahl}") == 1
    assert r"\resizebox{\linewidth}{!}{%" in text, "its columns are wider than a line"


def test_a_long_table_is_divided_and_has_one_label() -> None:
    text = to_latex(typeset_records(AMDAHL, amdahl(2 * ROWS + 1)))
    assert check_latex(text) == [ROWS, ROWS, 1]
    assert text.count(r"\label") == 1
    assert "Part 3 of 3." in text


@pytest.mark.parametrize("table", MODEL_TABLES, ids=lambda table: table.name)
def test_empty_tables_are_tables(table: typeset.Table) -> None:
    whole = typeset_records(table, pd.DataFrame(columns=table.names))
    assert check_latex(to_latex(whole)) == [0]
    assert to_csv(whole).count("\n") == 1
    assert to_markdown(whole).count("\n|") == 2


def test_csv_holds_every_digit_and_the_units() -> None:
    frame = amdahl(4).assign(serial_fraction=[math.pi / 7, math.inf, math.nan, 1e-300])
    read = pd.read_csv(io.StringIO(to_csv(typeset_records(AMDAHL, frame))))
    pd.testing.assert_frame_equal(read, frame[list(read.columns)], check_dtype=False, check_exact=True)
    table = Typeset(pd.DataFrame({"t": [0.1], "t_low": [0.1], "t_high": [0.2], "n": [1]}), "c", "l", {"t": "s"})
    assert to_csv(table).splitlines() == ["t [s],t_low [s],t_high [s],n", "0.1,0.1,0.2,1"]


def test_what_all_rows_share_stands_in_the_caption() -> None:
    page = to_markdown(typeset_records(AMDAHL, amdahl(3)))
    caption, _, head, *_ = page.splitlines()
    assert caption.endswith(f"In all rows: network: alexnet; hardware: {quote(HOSTILE)}; basis: x.")
    assert "network" not in head
    assert "| serial fraction |" in head
    assert "serial fraction low" not in head


def test_texts_are_no_formulas() -> None:
    names = ["=HYPERLINK(1)", "@a", "-rm", "-4.5", "<script>", "a"]
    table = Typeset(pd.DataFrame({"name": names, "x": [-1.5, *range(5)]}), "c", "tab:c", {})
    cells = [line.partition(",")[0] for line in to_csv(table).splitlines()[1:]]
    assert cells == ["'=HYPERLINK(1)", "'@a", "'-rm", "-4.5", "<script>", "a"]
    assert to_csv(table).splitlines()[1].endswith(",-1.5")


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (1.8349, 1.71, 1.95, "1.83 [1.71, 1.95]"),
        (0.0703315, 0.0693, 0.0739, "0.0703 [0.0693, 0.0739]"),
        (1234567, 1200000, 1300000, "1235000 [1200000, 1300000]"),
        (1.234e-6, 1.1e-6, 1.4e-6, "1.23 [1.10, 1.40] × 10^-6"),
        (2.0, 1.0, math.inf, "2 [1, ∞]"),
        (2.0, 2.0, 2.0, "2"),
        (0.25, math.nan, math.nan, "0.25"),
        (math.nan, 1.0, 2.0, "–"),
    ],
)
def test_estimates_are_rounded_where_their_interval_begins(value: float, low: float, high: float, text: str) -> None:
    assert estimate(value, low, high) == text


@given(st.floats(1e-12, 1e12), st.floats(1e-3, 1))
def test_a_rounded_estimate_stays_near(value: float, width: float) -> None:
    low, high = value * (1 - width / 2), value * (1 + width / 2)
    shown = estimate(value, low, high)
    scale = 10.0 ** int(found[1]) if (found := re.search(r"10\^(-?\d+)", shown)) else 1.0
    first = [float(part) * scale for part in re.findall(r"-?\d+(?:\.\d+)?", shown.partition(" × ")[0])]
    assert first == pytest.approx([value, low, high], abs=0.06 * (high - low) / 2)


def test_powers_of_ten_are_formulas_in_latex() -> None:
    frame = pd.DataFrame({"a": [2.5e-7, 1.0], "b": [1.2e-6, 1], "b_low": [1.1e-6, 1], "b_high": [1.3e-6, 1]})
    text = to_latex(Typeset(frame, "c", "tab:l", {}))
    assert r"2.5 $\times 10^{-7}$ & 1.20 [1.10, 1.30] $\times 10^{-6}$" in text
    check_latex(text)


def test_files_are_written_whole(tmp_path: Path) -> None:
    files = {name: tmp_path / f"amdahl.{name}" for name in typeset.FORMATS}
    typeset.write(typeset_records(AMDAHL, amdahl(2)), files)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["amdahl.csv", "amdahl.md", "amdahl.tex"]
