"""One page for a proposal for compute time: of each curve a paragraph, the figure and the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

import pandas as pd

from stallpoint.findings.proposal import HEAD, ScalingRates, Training, paragraph, rows
from stallpoint.report.answer_page import HEIGHT, WIDTH
from stallpoint.report.charts import axes, shapes
from stallpoint.report.charts.render import Spec, to_spec
from stallpoint.report.charts.web_page import grid, page

TITLE = "Scaling and requested compute time"


def to_html(proposed: Iterable[tuple[ScalingRates, Training]]) -> str:
    """Return the page, which opens from disk and loads nothing."""
    return page(TITLE, _parts(proposed))


def _parts(proposed: Iterable[tuple[ScalingRates, Training]]) -> Iterator[str | Spec]:
    for curve, training in proposed:
        scaling = f", {curve.scaling} scaling" if curve.scaling else ""
        yield f"<h2>{escape(curve.subject + scaling)}</h2><p>{escape(paragraph(curve, training))}</p>"
        yield _figure(curve)
        yield (
            "<p class='soft'>Points with 90 % intervals, where runs were repeated, are measured; dashed lines with "
            "bands are predicted; the grey line is ideal.</p>"
        )
        yield grid(HEAD, rows(curve, training))


def _figure(curve: ScalingRates) -> Spec:
    frame = pd.DataFrame([{"workers": at.workers, "basis": at.basis, **at.rate._asdict()} for at in curve.rates])
    frame = frame.assign(low=frame["low"].fillna(frame["value"]), high=frame["high"].fillna(frame["value"]))
    # The prediction goes on from the last measured rate.
    last = frame[frame["basis"] == "measured"].tail(1).assign(basis="predicted")
    frame = pd.concat([frame, last]).sort_values("workers", kind="stable")
    y = axes.log10_y(axes.reach(frame), f"throughput [{curve.unit}]")
    tips = {"workers": "workers", "basis": "basis", "value": curve.unit}
    return to_spec(shapes.over_workers(frame, y, tips, width=WIDTH, height=HEIGHT))
