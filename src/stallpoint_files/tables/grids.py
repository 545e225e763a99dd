"""Tables in a text: the cells of each row with its line, in any way of writing.

A text is parsed in every way in which a table may be written (JSON, HTML, LaTeX, Markdown, separators, aligned columns,
sentences); the way that gives most rows with numbers below a row of headings is taken. Another row of headings begins
another table.
"""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files.sentences.rates_in_sentences import in_sentences
from stallpoint_files.tables.objects import objects
from stallpoint_files.texts.counts import COUNT_AHEAD, COUNT_ALONE, COUNTED, WORD, counted_in_digits
from stallpoint_files.texts.headings import BRACKETS, COUNTS, ColumnKind, kind_of
from stallpoint_files.texts.languages import in_english

MAX_ROWS = 200_000
MAX_COLUMNS = 5_000
"""Maximum number of cells in a row of a table."""
_SEARCHED_ROWS = 40
"""Number of rows that are searched for the first headings."""
_PREFIX = 1000
"""Number of first lines that decide whether a long text is a table whose columns are separated by blanks."""
_PRODUCT = re.compile(r"n?(\d+)\s*[x×*g]\s*(\d+)\b.*|\((\d+), ?(\d+)\)")
"""Counts such as ``2x8`` and ``n2g8``: nodes times workers of each; ``(2, 4)`` is a grid of ranks."""
_OF_CHIP = re.compile(
    r"(?:(?P<nodes>\d+)\s*[x×*]\s*)?(?P<count>\d+)\s*[x×*]\s*"
    r"(?P<chip>(?!gpus?\b|nodes?\b|workers?\b)[A-Za-z][\w .+-]*?)\s*(?:\(.*\))?",
    re.IGNORECASE,
)
"""Counts with the name of the chip: ``8xA100``, ``2x8xH100 SXM``."""
_SLICE = re.compile(
    r"(?:(?P<slices>\d+)\s*[x×*]\s*)?(?P<chip>(?:tpu ?)?(?:v\d[ep]?|v5lite(?:pod)?))-(?P<size>\d{1,5})(?:-\w+)?",
    re.IGNORECASE,
)
"""Slices of TPUs, such as ``32x v5e-256``; for v2, v3, v4 and v5p the number counts cores, two to a chip."""
_IN_CORES = re.compile(r"v(?:[234]|5p)$", re.IGNORECASE)
_MACHINES = re.compile(r"config|set-?up|layout|hardware|cluster|system|scale", re.IGNORECASE)
_RULE = re.compile(r"[\s:=+|-]*")
_BOXES = str.maketrans(dict.fromkeys("│┃║├┤┌┐└┘┏┓┗┛╞╡┡┩┠┨╔╗╚╝╠╣┼╇╪┬┴┳╥┷╤", "|") | dict.fromkeys("─━═", "-"))
"""Bars and rules of tables drawn with box characters, and their ASCII forms."""
_OPTION = re.compile(r"\.\. |\s+:(?!header:)[\w-]+:")
_CELL = re.compile(r"\S++(?: \S++)*+")
_WITH_UNIT = re.compile(r"\W{0,4}[\d.,]+ ?([A-Za-zµμ×][\w/ ]{0,20}?)\W{0,4}")
_LONG_TIME = re.compile(r"~?\d+ ?(?:d|days?|h|hrs?|hours?),? ?\d+ ?(?:h|hrs?|hours?|m|mins?|minutes?)", re.IGNORECASE)
"""Times such as ``9d 18h``, which are not step times."""
_PICTURES = re.compile("[\u2600-\u27bf\u2b50\ufe0f\U0001f000-\U0001faff]+")
"""Pictographs next to a number, such as medals and lamps."""
_PAIR = re.compile(r"\s*(~?[\d.,]+\s*[kKM]?)\s*/\s*(~?[\d.,]+\s*[kKM]?)\s*")

_COUNT_BEHIND = re.compile(
    rf"(?P<what>.*[A-Za-z)/])[_ ]?[(\[@]? ?(?:on |at |with )?(?P<counted>\d{{1,6}} ?[x×]? ?{WORD})[)\]]?", re.IGNORECASE
)
"""Headings such as ``images/sec(4gpu)``."""
_AMOUNTS = (ColumnKind.RATE, ColumnKind.EPOCH, ColumnKind.ITERATION)
_LISTED = re.compile(r"[^:,|\d]{1,40}:\s*~?\d[^,:]{0,20}(?:,\s*~?[^,:]{1,20})+$")
"""Lines such as ``GPUs: 1, 2, 4``."""

IsHead = Callable[[Sequence[str]], bool]


@dataclass(frozen=True)
class Grid:
    """Cells of a table, each row with its line number; once the table is found, the first row holds the headings."""

    rows: Sequence[tuple[int, list[str]]]
    separator: str
    above: str = ""
    """The line of text above it."""


def tables(document: Document, is_head: IsHead) -> list[Grid]:
    """Return the tables of the text, each beginning with its headings; empty if no way of writing gives any."""
    best: list[Grid] = []
    most = 0
    if len(document.raw_lines) > MAX_ROWS + _PREFIX:
        # The text is too long for a table; its first lines show whether it is one, which is an error.
        begin = replace(document, text="\n".join(document.raw_lines[:_PREFIX]))
        if tables(begin, is_head):
            raise InputError(f"{document.path}: more than {MAX_ROWS:,} rows; give those of one study")
        return best
    for grids in _ways(document):
        found = [table for grid in grids for table in _tables_in(document, grid, is_head)]
        readable = sum(map(_readable, found))
        rows = sum(len(table.rows) - 1 for table in found)
        written = bool(found) and found[0].separator.strip() != ""
        if found and not best and written and readable <= rows / 2:
            best, most = found, readable  # a table without numbers is kept, so that its reader can report the error
        elif found and readable > most and (written or readable >= rows / 2):
            best, most = found, readable
    return best


def _readable(table: Grid) -> int:
    """Return the number of rows with two numbers and, if spaces separate cells, with as many cells as headings."""
    width = 0 if table.separator.strip() else len(table.rows[0][1])
    return sum(
        sum(bool(re.match(r"\W{0,3}\d", cell)) for cell in cells) > 1 and len(cells) in (width or len(cells), width + 1)
        for _, cells in table.rows[1:]
    )


def _tables_in(document: Document, grid: Grid, is_head: IsHead) -> Iterator[Grid]:
    """Yield the tables in a grid, in its original form or else in another (such as transposed)."""
    if any(len(cells) > MAX_COLUMNS for _, cells in grid.rows[:_SEARCHED_ROWS]):
        return
    grid = _joined_headings(grid, is_head)
    if len(grid.rows) > _PREFIX and not grid.separator.strip():
        forms = _forms(document, replace(grid, rows=grid.rows[:_PREFIX]))
        if not any(is_head(cells) for one in forms for _, cells in one.rows[:_SEARCHED_ROWS]):
            return
    for form in _forms(document, grid):
        heads = [place for place, (_, cells) in enumerate(form.rows[:_SEARCHED_ROWS]) if is_head(cells)][:1]
        if not heads:
            continue
        width = len(form.rows[heads[0]][1])
        heads += [
            place
            for place, (_, cells) in enumerate(form.rows[heads[0] + 1 :], start=heads[0] + 1)
            if len(cells) == width and not any(map(is_number, cells)) and is_head(cells)
        ]
        for begin, end in zip(heads, [*heads[1:], len(form.rows)], strict=True):
            rows = [row for row in form.rows[begin:end] if not _RULE.fullmatch("".join(row[1]))]
            if len(rows) == 1 and len(heads) > 1:
                continue  # LaTeX repeats headings for a table's further pages
            yield replace(form, rows=rows, above=_above(document, form.rows[begin][0]) or form.above)
        return


def _above(document: Document, line: int) -> str:
    """Return the nearest line of text above a line, without heading marks."""
    for text in reversed(document.raw_lines[max(line - 4, 0) : line - 1]):
        if text.strip() and not re.search(r"[|,;\t&<]", text):
            return text.strip(" #*_:`=-")
    return ""


# --- ways of writing a table ----------------------------------------------------------------------


RULED = re.compile(r"\s*\|?(?:\s*:?-{2,}:?\s*\|)+(?:\s*:?-{2,}:?)?\s*")
"""The line below the headings of Markdown's tables."""


@lru_cache(maxsize=2)
def _ways(document: Document) -> list[list[Grid]]:
    """Return the text's tables by way of writing; the readers of all kinds of tables share this result."""
    return list(_written(replace(document, text=in_english(document.text))))


def _written(document: Document) -> Iterator[list[Grid]]:
    if found := objects(document):
        heads = list(dict.fromkeys(head for _, one in found for head in one))
        rows = [(line, [str(one.get(head, "")) for head in heads]) for line, one in found]
        yield [Grid([(found[0][0], heads), *rows], ",")]
        return
    lines = [(number, line) for number, line in enumerate(document.raw_lines, start=1) if line.strip()]
    if ".. csv-table::" in document.text:
        lines = [(number, re.sub(r"\s*:header:", "", line)) for number, line in lines if not _OPTION.match(line)]
    if ".. list-table::" in document.text:
        yield list(_list_tables(lines))
    if "<tr" in document.text.lower():
        yield list(_html_tables(document.text))
    if "&" in document.text and "\\" in document.text:
        yield [Grid([(number, _latex(line)) for number, line in lines if "&" in line], "|")]
    yield list(_piped(lines))
    named = [(number, re.sub(r":\s*", ",", line, count=1)) for number, line in lines if _LISTED.match(line)]
    if len(named) > 1:
        yield [Grid(list(separated(named, ",")), ",")]
    for separator in ("\t", ";", ","):
        if sum(separator in line for _, line in lines) * 2 >= len(lines):
            yield [Grid(list(separated(lines, separator)), separator)]
    width = lines[0][1].count(",") + 1 if len(lines) > 1 else 1
    if width > 1 and all(len(line.split()) == width for _, line in lines[1:]):
        yield [Grid([*separated(lines[:1], ","), *((number, line.split()) for number, line in lines[1:])], ",")]
    yield from _counted_at_end(lines)
    yield list(_aligned(lines))
    yield [Grid([(number, re.split(r"\s{2,}|\t", line.strip())) for number, line in lines], "  ")]
    if any(RULED.fullmatch(line) for _, line in lines):  # Markdown's tables are not separated by blanks
        lines = [(number, line) for number, line in lines if not line.lstrip().startswith("|")]
    yield [Grid([(number, line.split()) for number, line in lines], " ")]
    yield [Grid(list(rows), ",") for rows in in_sentences(document)]


def _html_tables(text: str) -> Iterator[Grid]:
    """Yield the tables of HTML; a cell that spans columns is repeated in each of them."""
    for table in re.finditer(r"<table\b(.{0,1000000}?)(?:</table|\Z)", text, re.IGNORECASE | re.DOTALL):
        rows = []
        for row in re.finditer(r"<tr\b[^>]*>(.*?)(?=<tr\b|</tr|\Z)", table[1], re.IGNORECASE | re.DOTALL):
            cells = []
            for cell in re.finditer(r"<t[hd]\b([^>]*)>(.*?)(?=<t[hd]\b|</t|\Z)", row[1], re.IGNORECASE | re.DOTALL):
                span = re.search(r"colspan\D{0,3}(\d{1,2})", cell[1], re.IGNORECASE)
                plain = html.unescape(re.sub(r"<[^>]*>", "", cell[2])).strip()
                cells += [plain] * (int(span[1]) if span else 1)
            rows.append((text.count("\n", 0, table.start(1) + row.start()) + 1, cells))
        yield Grid(rows, "|")


def _latex(line: str) -> list[str]:
    """Return the cells of a row of LaTeX; a cell that spans columns is repeated in each of them."""
    cells: list[str] = []
    line = line.replace(r"\pm", "±").replace(r"\times", "×")
    for cell in re.split(r"(?<!\\)&", re.split(r"\\\\|\\tabularnewline", line)[0]):
        span = re.search(r"\\multicolumn\{(\d{1,2})\}\{[^{}]*\}\{(.*)\}", cell)
        text = re.sub(
            r"\\(?:footnote\w*|hline|toprule|midrule|bottomrule|cline\{[^{}]*\})", "", span[2] if span else cell
        )
        text = re.sub(r"\\[a-zA-Z]+\*?|[{}$]|\\", "", text).strip()
        cells += [text] * (int(span[1]) if span else 1)
    return cells


def _piped(lines: Sequence[tuple[int, str]]) -> Iterator[Grid]:
    """Yield the tables in consecutive lines with bars, as in Markdown or drawn with box characters (rich)."""
    rows: list[tuple[int, list[str]]] = []
    bounded = False
    least = 1 if any(RULED.fullmatch(line) and line.count("|") == 1 for _, line in lines) else 2
    for number, drawn in lines:
        text = drawn.translate(_BOXES)
        line = text.replace("||", "|") if text.startswith("||") else text  # Jira's headings have double bars
        bars = line.count("|") >= least or line.strip().startswith("|")
        if not bars and rows and not re.fullmatch(r"\s*[-+=]{3,}\s*", text):
            yield Grid(rows, "|")
            rows = []
        if bars:
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            if rows and len(cells) == len(rows[0][1]) - 1 and not bounded and line.lstrip().startswith("|"):
                cells.insert(0, "")
            bounded = bounded if rows else line.lstrip().startswith("|")
            cells = [_PICTURES.sub("", cell).strip() if re.search(r"\d", cell) else cell for cell in cells]
            behind = line.lstrip().startswith("|") and rows and 1 < len(rows[0][1]) == len(cells) - 1
            if behind and not re.search(r"\d", cells[-1]):  # Markdown ignores an additional last cell
                cells.pop()
            if not all(re.fullmatch(r":?\s*-*\s*:?", cell) for cell in cells):
                rows.append((number, cells))
    if rows:
        yield Grid(rows, "|")


def _list_tables(lines: Sequence[tuple[int, str]]) -> Iterator[Grid]:
    """Yield the list tables of reStructuredText: ``* -`` begins a row, ``-`` each other cell."""
    rows: list[tuple[int, list[str]]] = []
    for number, line in lines:
        if ".. list-table::" in line and rows:
            yield Grid(rows, "|")
            rows = []
        if begin := re.match(r"\s*\* -\s?(.*)", line):
            rows.append((number, [begin[1]]))
        elif rows and (cell := re.match(r"\s+-(?: (.*)|$)", line)):
            rows[-1][1].append(cell[1] or "")
    if rows:
        yield Grid(rows, "|")


def _counted_at_end(lines: Sequence[tuple[int, str]]) -> Iterator[list[Grid]]:
    """Yield rows whose last cells are below headings such as ``images/sec(4gpu)``; what is before them is one cell."""
    for place, (number, line) in enumerate(lines[:_SEARCHED_ROWS]):
        words = line.split()
        counted = len(list(takewhile(_COUNT_BEHIND.fullmatch, reversed(words)))) if "|" not in line else 0
        if 1 < counted < len(words):
            rows = [(n, one.rsplit(None, counted)) for n, one in lines[place + 1 :]]
            full = [row for row in rows if len(row[1]) > counted and all(re.match(r"\d", one) for one in row[1][1:])]
            yield [Grid([(number, ["setup", *words[-counted:]]), *full], "\t")]
            return


def _aligned(lines: Sequence[tuple[int, str]]) -> Iterator[Grid]:
    """Yield the table whose cells are aligned with their headings, if a blank separates them: ``Time (s) Val Loss``."""
    rows = [(number, line.expandtabs()) for number, line in lines[:MAX_ROWS] if len(_CELL.findall(line)) > 2]
    begins = {tuple(cell.start() for cell in _CELL.finditer(line)) for _, line in rows[1:]}
    if len(begins) != 1:
        return
    places, head = next(iter(begins)), rows[0][1]
    if all(head[place : place + 1].strip() and not head[max(place - 1, 0) : place].strip() for place in places):
        ends = (*places[1:], None)
        yield Grid(
            [
                (number, [line[begin:end].strip() for begin, end in zip(places, ends, strict=True)])
                for number, line in rows
            ],
            "  ",
        )


def separated(lines: Iterable[tuple[int, str]], separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line, with its number."""
    for number, line in lines:
        try:
            (row,) = csv.reader([line], delimiter=separator, skipinitialspace=True, strict=True)
        except (csv.Error, ValueError):
            row = line.split(separator)
        if any(cell.strip() for cell in row):
            yield number, [cell.strip() for cell in row]


# --- forms of a table -----------------------------------------------------------------------------


def product_in(cell: str) -> tuple[int, int] | None:
    """Return the factors of a count such as ``2x8``; 1 and the product for a grid of ranks, which has no nodes."""
    if not (found := _PRODUCT.fullmatch(cell)):
        return None
    return (int(found[1]), int(found[2])) if found[1] else (1, int(found[3]) * int(found[4]))


def is_number(cell: str) -> bool:
    """Return whether a cell is a number without a unit."""
    return re.fullmatch(r"[\d.,]+", cell) is not None


def numbered_headings(head: str, row: str) -> list[str]:
    """Return the headings of a row's numeric cells; empty for fewer than two, or if the numbers of cells differ."""
    heads, cells = ([cell.strip(" *`") for cell in re.split(r"[,;|\t]", line.strip())] for line in (head, row))
    names = [name for name, cell in zip(heads, cells, strict=False) if name and re.fullmatch(r"~?\d[\d.]*%?", cell)]
    return names if len(heads) == len(cells) and len(names) > 1 else []


def _joined_headings(grid: Grid, is_head: IsHead) -> Grid:
    """Return the table with two rows of headings, the upper one spanning columns, joined into one row."""
    for place, ((_, upper), (line, lower)) in enumerate(zip(grid.rows[:10], grid.rows[1:11], strict=False)):
        spans = sum(bool(cell) for cell in upper) >= 1 and len(set(upper)) < len(upper) and len(upper) > 2
        if len(upper) != len(lower) or not spans or any(map(is_number, upper)):
            continue
        filled: list[str] = []
        for cell in upper:
            filled.append(cell or (filled[-1] if filled else ""))
        counted = {top for top in filled if kind_of(top) in COUNTS}
        below = [cell for top, cell in zip(filled, lower, strict=True) if top in counted]
        if not is_head(lower) and not (len(below) > 1 and all(map(is_number, below))):
            continue
        plain = [kind_of(cell) in COUNTS or not top for top, cell in zip(filled, lower, strict=True)]
        joined = [
            cell if alone else f"{top} {cell}".strip() for top, cell, alone in zip(filled, lower, plain, strict=True)
        ]
        return replace(grid, rows=[(line, joined), *grid.rows[place + 2 :]])
    return grid


def _forms(document: Document, grid: Grid) -> Iterator[Grid]:
    """Yield a table in its possible forms, in which each count has a row: original, expanded or transposed."""
    yield from _with_chips(grid)
    yield _with_pairs(grid)
    yield from _with_a_column_for_each_count(document, grid)
    yield from _with_counts_in_a_row(grid)
    yield from _with_counts_in_words(grid)


def _with_chips(grid: Grid) -> Iterator[Grid]:
    """Yield a table with cells such as ``2x8xH100`` as one with columns for counts and chips."""
    if len(grid.rows) < 2:
        return
    for place in range(len(grid.rows[0][1])):
        texts = [row[place] if place < len(row) else "" for _, row in grid.rows[1:]]
        slices = [one for one in takewhile(bool, map(_SLICE.fullmatch, texts)) if one]
        if len(slices) == len(texts):
            chips = [
                int(one["slices"] or 1) * int(one["size"]) // (2 if _IN_CORES.search(one["chip"]) else 1)
                for one in slices
            ]
            of = [one["chip"] for one in slices]
            yield _replaced(
                grid, place, [["chips", "chip"], *([str(n), chip] for n, chip in zip(chips, of, strict=True))]
            )
            return
        found = [one for one in takewhile(bool, map(_OF_CHIP.fullmatch, texts)) if one]
        if len(found) == len(texts):
            nodes = any(one["nodes"] for one in found)
            cells = [
                [str(int(one["nodes"] or 1) * int(one["count"])), one["chip"], *([one["count"]] if nodes else [])]
                for one in found
            ]
            yield _replaced(grid, place, [["GPUs", "chip", *(["GPUs per node"] if nodes else [])], *cells])
            return


def _with_pairs(grid: Grid) -> Grid:
    """Return a table with cells ``1.0 / 1.3`` below a heading ``(a / b)`` with a column for each of a and b."""
    for place, head in enumerate(grid.rows[0][1] if grid.rows else ()):
        if not (names := re.search(r"[(\[]([^()/\[\]]+)/([^()/\[\]]+)[)\]]", head)):
            continue
        pairs = [_PAIR.fullmatch(row[place]) if place < len(row) else None for _, row in grid.rows[1:]]
        if pairs and all(pairs):
            plain = head.replace(names[0], "").strip()
            cells = [[one[1], one[2]] for one in pairs if one]
            return _with_pairs(
                _replaced(grid, place, [[f"{plain} {names[1].strip()}", f"{plain} {names[2].strip()}"], *cells])
            )
    return grid


def _with_a_column_for_each_count(document: Document, grid: Grid) -> Iterator[Grid]:
    """Yield a table with headings such as ``1 GPU`` and ``2 GPUs`` as one with a row for each count.

    The quantity of its numbers is given by the rows' names (rows of rates are preferred) or by a line of the text.
    """
    for index, (line, cells) in enumerate(grid.rows[:_SEARCHED_ROWS]):
        counts, nodes = _counts_by_column(cells), _nodes_by_column(cells)
        if len(counts) < 2:
            continue
        if len({(one[0], nodes.get(place)) for place, one in counts.items()}) < len(counts):
            if not grid.separator.strip(" "):
                return
            twice = f"one count has several columns among {', '.join(cells)[:80]}, and nothing says what each holds"
            raise document.error(line, f"{twice}; a unit says which, such as 8 GPUs (images/s)")
        others = [place for place in range(len(cells)) if place not in counts]
        body = [(number, row) for number, row in grid.rows[index + 1 :] if len(row) == len(cells)]
        kinds = {cell: kind_of(cell) for _, row in body for place in others for cell in (row[place],)}
        kind = next(
            (one for one in (ColumnKind.RATE, ColumnKind.EPOCH, ColumnKind.ITERATION) if one in kinds.values()), ""
        )
        _, of, what = next(iter(counts.values()))
        if kind:
            body = [(number, row) for number, row in body if kind in {kinds[row[place]] for place in others}]
            what = next(row[place] for _, row in body for place in others if kinds[row[place]] == kind)
        elif not what:
            around = [*reversed(document.raw_lines[:line]), *document.raw_lines[line:]]  # first, the nearest line above
            said = (text for text in around if kind_of(text) in _AMOUNTS)
            what = _common_unit(row[place] for _, row in body for place in counts) or next(said, "").strip()
        names = (BRACKETS.sub("", cells[place]).strip() or "series" for place in others)
        heads = [*names, of, what, *(["nodes"] if nodes else [])]
        if not what and not grid.separator.strip():
            return
        if not what:
            expected = "is expected in the heading or a line of its own: img/s, s/iteration, epoch time"
            what = f"a column for each count ({', '.join(cells)[:80]}); what its numbers are {expected}"
            raise document.error(line, what)
        rows = [
            (number, [*names, str(count), row[place], *([str(nodes.get(place, ""))] if nodes else [])])
            for number, row in body
            for names in ([BRACKETS.sub("", row[other]).strip() if kind else row[other] for other in others],)
            for place, (count, _, _) in counts.items()
        ]
        yield Grid([(line, heads), *rows], grid.separator)
        return


def _common_unit(cells: Iterable[str]) -> str:
    """Return the common unit of rates or times in cells (``speedup`` for factors); empty without one."""
    cells = list(cells)
    if cells and all(map(_LONG_TIME.fullmatch, cells)):
        return "training time"
    units = {found[1] for cell in cells if (found := _WITH_UNIT.fullmatch(cell))}
    if units and units <= {"x", "×"}:
        return "speedup"
    return "".join(units) if len(units) == 1 and kind_of("".join(units)) in _AMOUNTS else ""


def _count_first(head: str) -> str:
    """Return ``4gpu images/sec`` for ``images/sec(4gpu)``; other headings as they are."""
    found = _COUNT_BEHIND.fullmatch(head)
    return f"{found['counted']} {found['what'].rstrip('_ ')}" if found else head


_heading_in_digits = lru_cache(maxsize=4096)(counted_in_digits)
"""`counted_in_digits` of a heading, cached: several possible tables begin with the same heading."""


def _nodes_by_column(heads: Sequence[str]) -> dict[int, int]:
    """Return the number of nodes in headings such as ``2Ss-8GPUs``, by column."""
    found = ((place, COUNT_ALONE.fullmatch(_heading_in_digits(head))) for place, head in enumerate(heads))
    return {place: int(one["nodes"]) for place, one in found if one and one["nodes"]}


def _counts_by_column(heads: Sequence[str]) -> dict[int, tuple[int, str, str]]:
    """Return count, counted thing and quantity of headings such as ``2 GPUs (img/s)``, by column."""
    found: dict[int, tuple[int, str, str]] = {}
    nodes: dict[int, int] = {}
    chips: set[str] = set()
    for place, head in enumerate(map(_heading_in_digits, heads)):
        if count := COUNTED.fullmatch(head):
            found[place] = int(count["count"] or count["count_"]), count["of"] or count["of_"], ""
        elif (count := COUNT_ALONE.fullmatch(head)) and count["nodes"]:
            found[place] = int(count["count"]), count["of"], ""
        elif chip := _OF_CHIP.fullmatch(head):
            found[place] = int(chip["nodes"] or 1) * int(chip["count"]), "GPUs", ""
            chips.add(chip["chip"])
        elif count := COUNT_AHEAD.match(head) or COUNT_AHEAD.match(_count_first(head)):
            what = count.string[count.end() :].strip()
            if not re.search(r"\d", what) and kind_of(what) in _AMOUNTS:
                nodes[place] = int(count["before"] or 0)
                found[place] = int(count["count"]) * (nodes[place] if count["times"] else 1), count["of"], what
    if len({what for _, _, what in found.values()}) > 1 or len(chips) > 1:
        return {}
    if len(found) > 1 and len({count for count, _, _ in found.values()}) == 1 and all(nodes.values()):
        # Equal counts on different numbers of nodes are workers per node.
        return {place: (count * nodes[place], of, what) for place, (count, of, what) in found.items() if place in nodes}
    return found


def _with_counts_in_a_row(grid: Grid) -> Iterator[Grid]:
    """Yield a table whose first row is ``GPUs, 1, 2, 4`` as one with a row for each count."""
    texts = [cells for _, cells in grid.rows[:_SEARCHED_ROWS]]
    if len(texts) < 2 or len(texts[0]) < 3 or len(set(map(len, texts))) > 1:
        return
    heads, *columns = zip(*texts, strict=True)
    if kind_of(heads[0]) in COUNTS and all(is_number(column[0]) for column in columns):
        first, second = (line for line, _ in grid.rows[:2])
        yield Grid([(first, list(heads)), *((second, list(column)) for column in columns)], grid.separator)


def _with_counts_in_words(grid: Grid) -> Iterator[Grid]:
    """Yield a table with cells such as ``16 GPUs (2 nodes)`` or ``2x8`` below any heading as one with count columns."""
    alike = len(grid.rows) > 2 and len(grid.rows[0][1]) == len(grid.rows[1][1])
    pairs = zip(grid.rows[0][1], grid.rows[1][1], strict=True) if alike else ()
    for place, (head, first) in enumerate(pairs):
        if not (COUNT_ALONE.fullmatch(first) or product_in(first)):
            continue
        texts = [row[place] if place < len(row) else "" for _, row in grid.rows[1:]]
        if _MACHINES.search(head) and all(map(product_in, texts)):  # "2x8" below another heading may be an image's size
            yield _replaced(grid, place, [["workers"], *([text] for text in texts)])
        found = [one for one in takewhile(bool, map(COUNT_ALONE.fullmatch, texts)) if one]
        if len(found) == len(texts) and len({one["of"].lower().rstrip("s") for one in found}) == 1:
            nodes = "nodes" if all(one["nodes"] for one in found) else ""
            yield _replaced(
                grid, place, [[found[0]["of"], nodes], *([one["count"], one["nodes"] or ""] for one in found)]
            )


def _replaced(grid: Grid, place: int, cells: Sequence[Sequence[str]]) -> Grid:
    """Return the table with one column replaced by the `cells` of each row."""
    rows = [(line, [*row[:place], *new, *row[place + 1 :]]) for (line, row), new in zip(grid.rows, cells, strict=True)]
    return replace(grid, rows=rows)
