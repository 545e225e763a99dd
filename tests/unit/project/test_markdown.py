"""Text of others inside Markdown: it is shown as it is, whatever it says, in each page that is written."""

import html
import tempfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from stallpoint.archive.comparison.changes import Comparison
from stallpoint.archive.comparison.compared_results import Results
from stallpoint.archive.comparison.comparison_words import to_markdown
from stallpoint.archive.making import write_guide
from stallpoint.base.frames import frame
from stallpoint.base.measured import SERIES
from stallpoint.base.section import GROUPS, Absence, Cause, Finding, Section
from stallpoint.base.section_texts import in_markdown
from stallpoint.records.tables import COMPARISON, RUNS
from stallpoint.report import typeset
from stallpoint.report.typeset import Typeset
from stallpoint.text import for_terminal, quote
from stallpoint_papers import make
from stallpoint_papers.exhibits import PAPERS

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = st.text(st.sampled_from("ab1 _*`<>|[]()!\\/\n#&;~+-=.:@\x1b\u202e"), min_size=1, max_size=30)


def shape(page: str) -> tuple[list[str], str]:
    """Return the elements of a page, and its text without spaces."""
    kinds, texts = [], []
    for token in PARSER.parse(page):
        kinds.append(token.type)
        for inner in token.children or [token] * (token.type in ("fence", "html_block")):
            texts.append(html.unescape(inner.content) if inner.type == "html_inline" else inner.content)
            if inner.type not in ("text", "text_special", "softbreak"):
                kinds.append(inner.type)
    return kinds, "".join("".join(texts).split())


def conclusions(text: str) -> str:
    one = Finding(
        "kind", text, text, evidence=text, causes=(Cause("c", text, evidence=text),), ask=(text,), notes=(text,)
    )
    failed = Section("failed", text, GROUPS[0], text, absence=Absence.FAILED)
    return in_markdown(
        text, [Section("s", text, GROUPS[0], text, (one,), cards=cards) for cards in (True, False)] + [failed]
    )


def comparison(text: str) -> str:
    runs = {RUNS.name: pd.DataFrame({"started": [pd.Timestamp("2026-11-29")]})}
    axes = {**dict.fromkeys(SERIES, text), "prefetch": 0, "batch": 8, "workers_per_node": 1, "ranks": 2}
    numbers = {"old": 1.0, "new": 2.0, "ratio": 2.0, "ratio_low": 1.9, "ratio_high": 2.1, "points": 1}
    point = {**axes, **numbers, "subject": "point", "change": "slower"}
    rows = frame(COMPARISON, [point, {**point, "network": "b"}, {**point, "subject": "hardware"}])
    verdict = {**axes, "old": text, "new": text, "moved": True}
    setting = dict.fromkeys(("hardware", "what", "old", "new"), text)
    old, new = (Results(text, runs) for _ in range(2))
    return to_markdown(Comparison(old, new, 0.0, rows, [verdict], [setting], {"old": 1}, text, [text]))


def table(text: str) -> str:
    rows = pd.DataFrame({"same": [text, text], text + "!": [text, "x"]})
    return typeset.to_markdown(Typeset(rows, text, "tab:t", {text + "!": text}, notes=[text], folded=True))


def papers(text: str) -> str:
    said = {"missing": [text], "shown": text, "differs": text, "published": [{"says": text, "source": text}]}
    return make._markdown(
        PAPERS["guide"],
        [{**said, "number": "Fig. 1", "name": "f", "title": "T", "kind": "figure", "files": ["f.svg"]}],
    )


def guide(text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        write_guide(Path(folder), title=text, study="s", version="1", licence="MIT", names="")
        return Path(folder, "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [conclusions, comparison, table, papers, guide])
@given(text=HOSTILE.filter(lambda text: text.strip()))
@example(text="a | b\n| c")
@example(text="<img src=x onerror=alert(1)>")
@example(text="[click](javascript:alert(1))")
@example(text="[x]: /url")
@example(text="__init__ and ```sh")
@example(text="# 1. > - x")
def test_no_page_is_formed_by_the_texts_of_others(page: Callable[[str], str], text: str) -> None:
    kinds, shown = shape(page(text))
    assert kinds == shape(page("word"))[0]
    assert "".join(for_terminal(text).split()) in shown


@pytest.mark.parametrize("text", ["layer_scaling of k80-4gpu: 4.2 [3.9, 4.6], predicted", "n = 8; b ≥ 64, -5 %"])
def test_what_means_nothing_stays(text: str) -> None:
    assert quote(text) == text
