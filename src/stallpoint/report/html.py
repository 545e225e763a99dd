"""Render sections as HTML; every text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from stallpoint.base.section import FILTERS, WARNING, Finding, Section, TextTable, first
from stallpoint.base.stall import Verdict
from stallpoint.report.charts.speedup_chart import MAX_CURVES

MAX_ROWS = 500
"""Maximum number of rows shown of each table, which bounds the size of the page."""
MAX_UNFOLDED_ROWS = 10
"""Maximum number of rows of a table that is shown unfolded."""
KEY = (
    '<p class="key"><span class="measured">measured</span><span class="predicted">predicted, nobody measured it</span>'
    '<span class="ideal">ideal</span><span class="stall">stalling point with its 90 % interval</span></p>'
)


@dataclass(frozen=True)
class PagePart:
    """A part of the page: anchor (an ``id``), title, group in the menu, and HTML."""

    id: str
    title: str
    group: str
    html: str


def part(section: Section) -> PagePart:
    """Return a section as a part of the page."""
    findings = "".join(f"<li{owner_data(one.about)}>{_finding_html(one)}</li>" for one in section.findings)
    bullets = f"<ul>{findings}</ul>" if findings else ""
    text = paragraph(section.text) if section.text else ""
    return PagePart(section.name, section.title, section.group, text + bullets + "".join(map(grid, section.grids)))


def _finding_html(one: Finding) -> str:
    is_warning = one.verdict == WARNING
    words = escape(one.sentence)
    parts = "".join(f"<br>{_labelled_html(label, text)}" for label, text in one.parts)
    return (f"<strong>{words}</strong>" if is_warning else words) + parts


def _labelled_html(label: str, text: str) -> str:
    return escape(text) if label in ("note", "fits") else f"<b>{escape(label)}</b> {escape(text)}"


# --- cards ----------------------------------------------------------------------------------------


def cards(section: Section) -> dict[str, list[Finding]]:
    """Return the findings of each card, keyed by the card's title."""
    found: dict[str, list[Finding]] = {}
    for one in section.findings:
        if card := one.about.get("card"):
            found.setdefault(card, []).append(one)
    return found


def first_screen(section: Section, others: Sequence[Section]) -> PagePart:
    """Return the top of the page: the leading findings of all sections, then the cards of `section`."""
    shown = cards(section)
    answers = "".join(f"<span{_card_filter(found[0])}>{escape(f'{title}: {found[0].words}')}.</span> "
                    for title, found in shown.items())  # fmt: skip
    lead = f'<p class="lead">{answers}<em>And more below.</em></p>' if answers else paragraph(section.text)
    cards_html = "".join(_card(f"verdict-{place}", *one) for place, one in enumerate(shown.items()))
    text = f'{KEY}<div class="cards">{cards_html}</div><p class="soft">{escape(section.text)}</p>' if cards_html else ""
    html = f"{lead}{''.join(_leading_findings(section, others))}{text}"
    return PagePart(section.name, section.title, section.group, html)


def _leading_findings(section: Section, others: Sequence[Section]) -> Iterator[str]:
    """Yield the findings above the cards, each with a link to its section. Findings that qualify answers come before
    the leading findings of `others`."""
    for one in section.findings:
        if not one.about.get("card"):
            yield _warning(one, "environment")
    chosen = [(other, list(first([other]))) for other in others]
    for other, found in chosen:
        yield from (_warning(one, other.name) for one in found if one.qualifies)
    for other, found in chosen:
        other_findings = [one for one in found if not one.qualifies]
        texts = " ".join(f"<span{owner_data(one.about)}>{escape(one.sentence)}.</span>" for one in other_findings)
        count = f" (one of {len(other_findings)})" if len(other_findings) > 1 else ""
        if texts:
            yield f'<p class="target"><a href="#{other.name}">{escape(other.title)}</a>{count}: {texts}</p>'


def _warning(one: Finding, anchor: str) -> str:
    return f'<p class="warning"><a href="#{anchor}">{escape(one.sentence)}</a></p>'


def _card(name: str, title: str, found: Sequence[Finding]) -> str:
    leading, *others = found
    other_verdicts = "".join(
        f'<div class="verdict {escape(one.verdict)}"{owner_data(one.about)}><p><b>{escape(one.subject)}</b> '
        f"{escape(one.words)}</p></div>"
        for one in others
    )
    return (
        f'<article class="card"{_card_filter(leading)}><h3>{escape(title)}</h3>{_answer(leading)}'
        f'<div class="chart" id="chart-{name}" data-title="{escape(title)}"></div>'
        f'<p class="beside"><span class="soft">speedup over workers, {MAX_CURVES} curves at most</span>'
        f"{downloads(name)}</p>{other_verdicts}"
        f'<p class="trust"><a href="#sure">{escape(leading.evidence)}</a></p></article>'
    )


def _answer(one: Finding) -> str:
    certainty = "; ".join(one.evidence.split("; ")[:2])
    tag = "" if one.verdict == Verdict.WITHHELD else f' <span class="tag">{escape(certainty)}</span>'
    headline = f'<p class="headline">{escape(one.words[:1].upper() + one.words[1:])}{tag}</p>'
    lines = "".join(f"<p>{_labelled_html(label, text)}</p>" for label, text in one.parts)
    return f'<div class="verdict {escape(one.verdict)}"{owner_data(one.about)}>{headline}{lines}</div>'


def _card_filter(one: Finding) -> str:
    return owner_data({**one.about, "storage": ""})


# --- elements of the page -------------------------------------------------------------------------


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def owner_data(owner: Mapping[str, object]) -> str:
    """Return the HTML attributes by which an element belongs to the network, hardware and storage in `owner`.

    The page shows the element only while all of them are selected.
    """
    return "".join(f' data-{name}="{escape(str(owner[name]))}"' for name in FILTERS if owner.get(name))


def grid(one: TextTable) -> str:
    """Return a table with its title, text and code. A long table is folded, and opens by a click on its title."""
    if not one.rows:
        return ""
    code = f'<pre tabindex="0">{escape(one.code)}</pre>' if one.code else ""
    has_one_owner = bool(one.title and one.about) and all(row == one.about[0] for row in one.about)
    rows = table(one.head, one.rows, () if has_one_owner else one.about, file=one.file) + code
    text = paragraph(one.text) if one.text else ""
    if not one.title:
        return text + rows
    is_open = " open" if len(one.rows) <= MAX_UNFOLDED_ROWS and not one.folded else ""
    about = owner_data(one.about[0]) if has_one_owner else ""
    return f"<details{is_open}{about}><summary>{escape(one.title)}</summary>{text}{rows}</details>"


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], about: Iterable[Mapping[str, str]] = (), *, file: str = ""
) -> str:
    """Return a table whose first column names the rows.

    `about` holds each row's network, hardware and storage (see `owner_data`). At most `MAX_ROWS` rows are shown; `file`
    names the file with all rows. A cell in the column *chart* links to the chart that it names.
    """
    headings = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    lines = [
        _row(head, row, owner_data(what))
        for row, what in zip(rows[:MAX_ROWS], list(about)[:MAX_ROWS] or [{}] * len(rows), strict=False)
    ]
    note = f"The first {MAX_ROWS} of {len(rows):,} rows; {file or 'a file'} has all." if len(rows) > MAX_ROWS else ""
    table_html = f"<table><thead><tr>{headings}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table_html}</div>' + (f'<p class="soft">{note}</p>' if note else "")


def _row(head: Sequence[str], row: Sequence[str], mark: str) -> str:
    # HTML does not need end tags of cells and rows. A large page would have ten thousand.
    first, *others = row
    cells = "".join(f"<td>{_cell(name, text)}" for name, text in zip(head[1:], others, strict=True))
    return f'<tr{mark}><th scope="row">{escape(first)}{cells}'


def _cell(name: str, text: str) -> str:
    return f'<a href="#{escape(text)}">{escape(text)}</a>' if name == "chart" and text else escape(text)


def downloads(chart: str) -> str:
    """Return the element in which the page's script puts buttons that save a chart's data and picture."""
    return f'<span class="tools" data-saves="{escape(chart)}"></span>'
