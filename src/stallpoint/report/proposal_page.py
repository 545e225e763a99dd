"""One page for a proposal for compute time: of each curve a paragraph, the figure and the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

import pandas as pd

from stallpoint.findings.proposal import HEAD, ScalingRates, Training, paragraph, rows
from stallpoint.report.answer_page import rates_chart
from stallpoint.report.charts.render import Spec
from stallpoint.report.charts.web_page import grid, page

TITLE = "Scaling and requested compute time"


def to_html(proposed: Iterable[tuple[ScalingRates, Training]]) -> str:
    """Return the page, which opens from disk and loads nothing."""
    return page(TITLE, _parts(proposed))


def _parts(proposed: Iterable[tuple[ScalingRates, Training]]) -> Iterator[str | Spec]:
    for curve, training in proposed:
        scaling = f", {curve.scaling} scaling" if curve.scaling else ""
        yield f"<h2>{escape(curve.subject + scaling)}</h2><p>{escape(paragraph(curve, training))}</p>"
        rates = [{"workers": at.workers, "basis": at.basis, **at.rate._asdict()} for at in curve.rates]
        yield rates_chart(pd.DataFrame(rates), f"throughput [{curve.unit}]", curve.unit)
        yield (
            "<p class='soft'>Points with 90 % intervals, where runs were repeated, are measured; dashed lines with "
            "bands are predicted; the grey line is ideal.</p>"
        )
        yield grid(HEAD, rows(curve, training))
