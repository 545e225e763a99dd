"""The report: one web page with the answer, the charts in the order of the argument, and what was not measured.

The page opens from disk without network: libraries, data and style are in it. Each group of its menu has a module of
sections, of which `write_report` lists the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.records.atomic import atomic
from stallpoint.report.charts import Tables
from stallpoint.report.sections.answer_section import answer, curves, remedies, targets
from stallpoint.report.sections.data_section import environment, networks, not_measured, raw_tables
from stallpoint.report.sections.page import filters, page
from stallpoint.report.sections.papers_section import claims_section, papers_section
from stallpoint.report.sections.sure_section import sure, timing, validation
from stallpoint.report.sections.why_section import evidence, intervened, sliders, storages
from stallpoint.study.study import Excluded


def write_report(
    conclusions: Conclusions,
    tables: Tables,
    path: Path,
    *,
    study: str = "study",
    excluded: Sequence[Excluded] = (),
    papers: Sequence[Path] = (),
) -> None:
    """Write the page to `path`, whole or not at all.

    `conclusions` is from `conclude.conclude`; `tables` are by name the model tables, the tidy tables
    ``runs``, ``environments``, ``collectives``, ``contention`` and ``visits``, and ``network_layers`` and
    ``published``; `study` is its name and `excluded` what it does not run, `papers` are folders of the papers'
    exhibits, below that of `path`.
    """
    first, verdicts = answer(conclusions, tables)
    topics, charts = evidence(tables)
    moved, curves_of_sliders = sliders(tables)
    last, rows = raw_tables(tables)
    sections = [
        first,
        *targets(conclusions, tables),
        remedies(conclusions),
        sure(conclusions),
        *([claims_section(conclusions["claims"])] if conclusions["claims"] else []),
        *topics[:1],
        *moved,
        *topics[1:],
        *storages(conclusions),
        curves(conclusions),
        intervened(conclusions),
        validation(tables),
        networks(tables),
        papers_section(papers, path.parent),
        timing(conclusions["instrumentation"]),
        not_measured(conclusions, excluded),
        environment(tables),
        last,
    ]
    data = {"charts": {**verdicts, **charts}, "tables": rows, "sliders-data": curves_of_sliders}
    text = page(study, _lead(study, conclusions), filters(tables), sections, **data)
    with atomic(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def _lead(study: str, conclusions: Conclusions) -> str:
    covered, threshold = 100 * conclusions["interval"], 100 * conclusions["threshold"]
    return (
        f"Study {study}. In parentheses: {covered:.0f} % confidence intervals. Training stalls where doubling the "
        f"workers gains less than {threshold:.0f} % in throughput."
    )
