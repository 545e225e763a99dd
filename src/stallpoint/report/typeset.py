"""Publishable tables: CSV with all digits, LaTeX (booktabs) and Markdown with significant digits.

An estimate in columns ``x``, ``x_low`` and ``x_high`` becomes one column, ``1.83 [1.71, 1.95]``, rounded to the
precision of its interval. LaTeX needs the packages booktabs and graphicx. Wide tables are scaled, long ones split.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from stallpoint.base.section_texts import markdown_table
from stallpoint.records.atomic import atomic
from stallpoint.records.tables import Table
from stallpoint.text import number, quote, read_number

FORMATS = ("csv", "tex", "md")
"""File formats in which each table is written."""
ROWS = 45
"""Maximum number of rows of a LaTeX table; longer tables are split."""
MAX_WIDTH = 95
"""Maximum width of a LaTeX table, characters; wider tables are scaled to the width of the line."""
_ESCAPES = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    **{character: "\\" + character for character in "&%$#_{}"},
    # characters outside ASCII, which pdfLaTeX does not know
    "×": r"$\times$", "·": r"$\cdot$", "∞": r"$\infty$", "µ": r"$\mu$", "α": r"$\alpha$", "β": r"$\beta$",
    "λ": r"$\lambda$", "θ": r"$\theta$", "≥": r"$\geq$", "≤": r"$\leq$", "√": r"$\surd$", "−": r"$-$", "→": r"$\to$",
    "–": "--", "²": r"\textsuperscript{2}", "\N{NO-BREAK SPACE}": "~",
}  # fmt: skip


@dataclass(frozen=True)
class Typeset:
    """A table with its caption and notes."""

    frame: pd.DataFrame
    """Columns in the order of the table; an estimate has three columns: value, low and high."""
    caption: str
    label: str
    """LaTeX's label, e.g. ``tab:amdahl``."""
    units: Mapping[str, str]
    """Units of the columns that have one."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Headings of columns on paper; a column without a heading is headed by its name, without underscores."""
    notes: Sequence[str] = ()
    """Sentences below the table."""
    folded: bool = False
    """Whether columns that are constant over all rows move into the caption."""


def typeset_records(table: Table, frame: pd.DataFrame) -> Typeset:
    """Return the typeset form of a table of `stallpoint.records.tables`, with its description and units."""
    units = {column.name: column.unit for column in table.columns if column.unit}
    description = table.description[0].upper() + table.description[1:] + "."
    shown = frame[table.names]
    return Typeset(shown, description, f"tab:{table.name.replace('_', '-')}", units, folded=True)


def write(table: Typeset, files: Mapping[str, Path]) -> None:
    """Write `table` to the `files`, a path for each of `FORMATS`; equal tables give equal files."""
    content = {"csv": to_csv(table), "tex": to_latex(table), "md": to_markdown(table)}
    for name in FORMATS:
        with atomic(files[name]) as scratch:
            scratch.write_text(content[name], encoding="utf-8", newline="")


FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of texts that a spreadsheet would evaluate as formulas."""


def to_csv(table: Typeset) -> str:
    """Return the table as CSV, with all columns and digits. Missing values are empty; headings are like ``time [s]``.

    An apostrophe precedes texts that a spreadsheet would take for formulas.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_heading(name, _unit(table, name)) for name in table.frame.columns)
    for row in table.frame.itertuples(index=False):
        writer.writerow("" if _is_missing(value) else _exact_text(value) for value in row)
    return text.getvalue()


def to_markdown(table: Typeset) -> str:
    """Return a Markdown page: caption, table, notes."""
    head, rows, caption = printed(table)
    first, *others = [list(map(quote, row)) for row in (head, *rows)]
    blocks = (quote(caption), markdown_table(first, others), *map(quote, table.notes))
    return "\n\n".join(blocks).rstrip("\n") + "\n"


def to_latex(table: Typeset) -> str:
    """Return the table as a LaTeX float, or as several floats if it has more than `ROWS` rows."""
    head, rows, caption = printed(table)
    parts = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)] or [[]]
    comment = "% \\usepackage{booktabs,graphicx}"
    blocks = [
        "\n".join(_float_lines(table, head, part, _caption(caption, number, len(parts)), number))
        for number, part in enumerate(parts)
    ]
    return "\n".join([comment, "\n\\clearpage\n".join(blocks), ""])


def escape(text: str) -> str:
    """Return `text` escaped for LaTeX."""
    return "".join(_ESCAPES.get(character, character) for character in text)


# --- rounding of numbers --------------------------------------------------------------------------


def estimate(value: float, low: float, high: float) -> str:
    """Return a value with its interval, all rounded to two significant digits of the interval's half-width."""
    if _is_missing(value):
        return "–"
    ends = [low, high]
    if any(map(_is_missing, ends)) or low == high == value:
        return number(value)
    if not all(map(math.isfinite, (value, *ends))) or high <= low:
        return f"{number(value)} [{number(low)}, {number(high)}]"
    largest = max(abs(value), abs(low), abs(high))
    power, wide = math.floor(math.log10(largest)), math.floor(math.log10((high - low) / 2))
    decimals = min(1 - wide, 8 - power)
    if -4 <= power < 7:
        return f"{_decimals(value, decimals)} [{_decimals(low, decimals)}, {_decimals(high, decimals)}]"
    scaled = (f"{part / 10.0**power:.{max(decimals + power, 0)}f}" for part in (value, low, high))
    first, second, third = scaled
    return f"{first} [{second}, {third}] × 10^{power}"


def _decimals(value: float, decimals: int) -> str:
    """Return a number rounded to the given decimal places; negative `decimals` round to tens, hundreds, ..."""
    text = f"{round(value, decimals):.{max(decimals, 0)}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def _escape_powers(text: str) -> str:
    """Return a text escaped for LaTeX, with powers of ten set as formulas."""
    text = re.sub(r"× 10\^(-?\d+)", "\0times\\1\0", text)
    text = re.sub(r"(?<![\w.])(-?\d(?:\.\d+)?)e([+-]\d+)(?!\w)", lambda m: f"{m[1]} \0times{int(m[2])}\0", text)
    return re.sub("\0times(-?\\d+)\0", r"$\\times 10^{\1}$", escape(text))


# --- columns and cells on paper -------------------------------------------------------------------


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or value is pd.NaT or value is pd.NA


def _exact_text(value: object) -> str:
    text = repr(float(value)) if isinstance(value, float) else str(value)
    is_formula = isinstance(value, str) and text[:1] in FORMULA and math.isnan(read_number(text))
    return f"'{text}" if is_formula else text


def _shown_text(value: object) -> str:
    if _is_missing(value):
        return "–"
    if isinstance(value, float):
        return number(float(value))
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _unit(table: Typeset, column: str) -> str | None:
    """Return the unit of a column; the ends of an interval (``_low``, ``_high``) have the unit of their value."""
    return table.units.get(column) or table.units.get(re.sub("_(low|high)$", "", column))


def _heading(name: str, unit: str | None) -> str:
    return f"{name} [{unit}]" if unit else name


def printed(table: Typeset) -> tuple[list[str], list[list[str]], str]:
    """Return headings, rows and caption for paper. A folded table's constant columns are only in the caption."""
    columns = list(_columns(table))
    fixed = {name for name, texts in columns if len(texts) > 1 and len(set(texts)) == 1}
    shown_columns = [(name, texts) for name, texts in columns if name not in fixed]
    if not table.folded or not shown_columns:
        fixed, shown_columns = set(), columns
    facts = "; ".join(f"{name}: {texts[0] or 'none'}" for name, texts in columns if name in fixed and texts[0] != "–")
    caption = f"{table.caption} In all rows: {facts}." if facts else table.caption
    rows = [list(row) for row in zip(*(texts for _, texts in shown_columns), strict=True)]
    return [name for name, _ in shown_columns], rows, caption


def _columns(table: Typeset) -> Iterator[tuple[str, list[str]]]:
    """Yield the heading and the texts of each column on paper. An estimate with its interval is one column."""
    columns = list(table.frame.columns)
    for name in columns:
        value_name = re.sub("_(low|high)$", "", name)
        if value_name != name and value_name in columns:
            continue
        values = table.frame[name].tolist()
        if {f"{name}_low", f"{name}_high"} <= set(columns):
            ends = (table.frame[f"{name}_{end}"].tolist() for end in ("low", "high"))
            texts = [estimate(*row) for row in zip(values, *ends, strict=True)]
        else:
            texts = [_shown_text(value) for value in values]
        yield _heading(table.names.get(name, name.replace("_", " ")), _unit(table, name)), texts


def _caption(caption: str, part: int, parts: int) -> str:
    return f"{caption} Part {part + 1} of {parts}." if parts > 1 else caption


def _float_lines(
    table: Typeset, head: Sequence[str], rows: Sequence[Sequence[str]], caption: str, part: int
) -> Iterator[str]:
    """Yield the lines of one LaTeX float, with columns of numbers right-aligned."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    is_wide = sum(widths) + 2 * len(widths) > MAX_WIDTH
    alignment = "".join("r" if _is_numeric([row[i] for row in rows]) else "l" for i in range(len(head)))
    yield from ("\\begin{table}", "  \\centering\\small", f"  \\caption{{{_escape_powers(caption)}}}")
    if part == 0:
        yield f"  \\label{{{table.label}}}"
    if is_wide:
        yield "  \\resizebox{\\linewidth}{!}{%"
    yield f"  \\begin{{tabular}}{{{alignment}}}"
    yield "    \\toprule"
    yield "    " + " & ".join(map(_escape_powers, head)) + r" \\"
    yield "    \\midrule"
    for row in rows:
        yield "    " + " & ".join(map(_cell, row)) + r" \\"
    yield "    \\bottomrule"
    yield "  \\end{tabular}" + ("}" if is_wide else "")
    for note in table.notes:
        yield f"  \\par\\footnotesize {_escape_powers(note)}"
    yield "\\end{table}"


def _cell(text: str) -> str:
    """Return a cell in LaTeX. Before a bracket or asterisk, ``{}`` keeps the preceding line break from parsing it."""
    return f"{{}}{_escape_powers(text)}" if text.startswith(("[", "*")) else _escape_powers(text)


def _is_numeric(texts: Sequence[str]) -> bool:
    return all(re.match(r"[−–∞\d.-]", text) for text in texts) and any(re.match(r"-?\d", text) for text in texts)
