"""The report: one web page with the answer, the charts in the order of the argument, and what was not measured.

The page opens from disk without network: libraries, data and style are in it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd
import vl_convert as vlc

from stallpoint import accuracy
from stallpoint.charts import CHARTS, Chart, Tables, theme
from stallpoint.charts.frames import AXES, label, number
from stallpoint.charts.render import VEGA_LITE, spec
from stallpoint.conclusions.numbers import Conclusions, Estimate
from stallpoint.conclusions.words import (
    INSTRUMENTATION_CAPTION,
    INSTRUMENTATION_HEAD,
    crossing_in_words,
    instrumentation_rows,
    instrumentation_warnings,
    next_in_words,
    stall_in_words,
    summary,
    worthwhile_in_words,
)
from stallpoint.parquet import atomic
from stallpoint.published import HEAD, texts
from stallpoint.study import LeftOut

CURVE_AXES = [axis for axis in AXES if axis not in ("network", "hardware")]
ENVIRONMENT = {
    "node": "nodes",
    "cpu_model": "CPU",
    "gpu_model": "GPU",
    "cores_available": "cores",
    "threads": "threads of a worker",
    "memory_bytes": "memory",
    "kernel": "kernel",
    "python": "Python",
    "torch": "PyTorch",
    "mpi_library": "MPI",
    "mpi4py": "mpi4py",
    "stallpoint": "stallpoint",
    "git_commit": "commit of the workflow",
    "git_dirty": "uncommitted changes",
    "slurm_job_id": "Slurm jobs",
}
"""Columns of the table ``environments`` that the report sums up, and what it calls them."""
MOST_VALUES = 6
LIBRARIES = "window.vegaEmbed = vegaEmbed;"
"""What the embedded libraries give to the page."""


def write_report(
    conclusions: Conclusions, tables: Tables, path: Path, *, study: str = "study", left_out: Sequence[LeftOut] = ()
) -> None:
    """Write the page to `path`, whole or not at all.

    `conclusions` come from `stallpoint.conclusions.conclude`; `tables` are by name the model tables, the tidy tables
    ``runs``, ``environments`` and ``collectives``, and ``network_layers`` and ``published``; `study` is its name and
    `left_out` what it does not run.
    """
    page = Template(files("stallpoint").joinpath("report.html").read_text(encoding="utf-8")).substitute(
        study=escape(study),
        lead=escape(_lead(study, conclusions)),
        contents=_contents(),
        answer=_answer(conclusions),
        charts=_charts(),
        accuracy=_accuracy(tables),
        networks=_networks(tables),
        timing=_timing(conclusions["instrumentation"]),
        cells=_not_measured(conclusions, left_out),
        environment=_environment(tables),
        libraries=_libraries(),
        specs=_packed({name: spec(name, tables) for name in CHARTS}),
        themes=_packed({"light": theme.config(), "dark": theme.config(dark=True)}),
    )
    with atomic(path) as scratch:
        scratch.write_text(page, encoding="utf-8")


@cache
def _libraries() -> str:
    """Vega-Embed with all it needs, as one script."""
    bundle: str = vlc.javascript_bundle(LIBRARIES, VEGA_LITE)
    return bundle.replace("</script", "<\\/script")


def _packed(value: object) -> str:
    """JSON, compressed (a large study's charts repeat themselves twentyfold) and as base64, free of any tag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _lead(study: str, conclusions: Conclusions) -> str:
    covered, threshold = 100 * conclusions["interval"], 100 * conclusions["threshold"]
    return (
        f"Study {study}. Intervals, in brackets, cover {covered:.0f} %. A curve stalls at the node count n from which "
        f"doubling the nodes gains less than {threshold:.0f} % in throughput. Predicted means: by the DAG model, not "
        "measured."
    )


def _topics() -> Iterable[tuple[str, str, list[Chart]]]:
    """Topics of the charts in order: anchor, topic, its charts."""
    for topic, charts in groupby(CHARTS.values(), lambda chart: chart.topic):
        yield topic.lower().replace(" ", "-"), topic, list(charts)


def _contents() -> str:
    topics = [(anchor, topic) for anchor, topic, _ in _topics()]
    closing = [
        ("accuracy", "Validation"),
        ("networks", "Networks"),
        ("timing", "Timing"),
        ("cells", "Cells not measured"),
        ("environment", "Environment"),
    ]
    links = [*topics, *closing]
    return " ".join(f'<a href="#{anchor}">{escape(text)}</a>' for anchor, text in links)


def _charts() -> str:
    """A section for each topic; the specs are drawn into the empty places."""
    return "\n".join(
        f'<section id="{anchor}"><h2>{escape(topic)}</h2>\n' + "\n".join(map(_figure, charts)) + "\n</section>"
        for anchor, topic, charts in _topics()
    )


def _figure(chart: Chart) -> str:
    return (
        f'<figure id="{chart.name}"><h3>{escape(chart.title)}</h3>'
        f"<figcaption>{escape(chart.caption)}</figcaption>"
        f'<div class="chart" id="chart-{chart.name}"></div></figure>'
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column names the rows (narrow pages repeat the head in each cell); escapes the texts."""
    lines = [f"<tr>{''.join(f'<th>{escape(text)}</th>' for text in head)}</tr>"]
    for first, *others in rows:
        named = zip(head[1:], others, strict=True)
        cells = "".join(f'<td data-head="{escape(name)}">{escape(text)}</td>' for name, text in named)
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


# --- the answer -----------------------------------------------------------------------------------


def _answer(conclusions: Conclusions) -> str:
    """One card for each network and hardware: the answer in words, then each curve with its intervals."""
    curves = conclusions["curves"]
    if not curves:
        return "<p>No scaling curve was measured: the study has no train cell with scaling strong or weak that ran.</p>"
    places = dict.fromkeys((curve["network"], curve["hardware"]) for curve in curves)
    return "\n".join(
        _card(
            network, hardware, [c for c in curves if (c["network"], c["hardware"]) == (network, hardware)], conclusions
        )
        for network, hardware in places
    )


def _card(network: str, hardware: str, curves: list[dict[str, Any]], conclusions: Conclusions) -> str:
    others: Conclusions = {name: [] for name in ("dag_errors", "instrumentation", "imported", "failed")}
    words = summary({**conclusions, "curves": curves, **others})
    prefix = f"{network} on {hardware}, "
    points = "".join(f"<li>{escape(line.removeprefix(prefix))}</li>" for line in words)
    names = label(pd.DataFrame(curves), CURVE_AXES)
    rows = [
        [
            name, _stall(curve), curve["dominant_cause"], crossing_in_words(curve), worthwhile_in_words(curve),
            _interval(curve["best_speedup"]), _wait(curve["data_wait"]), next_in_words(curve),
        ]
        for name, curve in zip(names, curves, strict=True)
    ]  # fmt: skip
    head = [
        "curve", "stalls at n", "why there (or at the largest n)", "communication reaches compute at n",
        "worth paying for up to n", "best speedup", "waiting for data", "measure next",
    ]  # fmt: skip
    return (
        f'<div class="card"><h3>{escape(network)} on {escape(hardware)}</h3><ul>{points}</ul>{_table(head, rows)}</div>'
    )


def _interval(estimate: Estimate | None, scale: float = 1.0, unit: str = "") -> str:
    """``1.83 [1.71, 1.95]``; an end that is None is unbounded."""
    if estimate is None:
        return "not known"
    value, low, high = (
        "∞" if estimate[name] is None else number(float(estimate[name] or 0) * scale)
        for name in ("value", "low", "high")
    )
    return f"{value}{unit} [{low}, {high}]"


def _stall(curve: Mapping[str, Any]) -> str:
    if curve["reached"]:
        return f"{_interval(curve['stall_nodes'])}, {curve['basis']}"
    if curve["note"]:
        return stall_in_words(curve)
    return f"not up to {curve['largest_considered']}, measured up to {curve['largest_measured']}"


def _wait(wait: Mapping[str, Any]) -> str:
    return f"{_interval(wait['share'], 100, ' %')} at n = {wait['nodes']}"


# --- how well larger node counts were predicted ----------------------------------------------------


def _accuracy(tables: Tables) -> str:
    """Errors of the predictions from smaller node counts, beside published ones."""
    validation = tables.get("validation")
    if validation is None or validation.empty:
        return "<p>No training on more nodes than the fewest two was measured.</p>"
    known = ", ".join(sorted(set(validation["calibration"])))
    words = f"Predicted with the training on {known} nodes known, and nothing of the training on more."
    return f"<p>{escape(words)} {escape(accuracy.PUBLISHED)}.</p>" + _table(accuracy.HEAD, accuracy.rows(validation))


# --- the networks ---------------------------------------------------------------------------------


def _networks(tables: Tables) -> str:
    """What each network is made of, and what was published of it beside ours."""
    layers, published = tables.get("network_layers"), tables.get("published")
    if layers is None or layers.empty:
        return "<p>No network was described.</p>"
    head = ["network", "layers", "parameters", "gradients", "multiply-adds of a sample's forward pass", "layer types"]
    blocks = [_table(head, [_network(str(name), rows) for name, rows in layers.groupby("network", sort=False)])]
    if published is not None and not published.empty:
        blocks.append(f"<h3>{escape(published['source'].iloc[0])}, beside ours</h3>")
        blocks.append(_table(HEAD, texts(published)))
    return "\n".join(blocks)


def _network(name: str, layers: pd.DataFrame) -> list[str]:
    """One network's row."""
    parameters, size, work = (int(layers[column].sum()) for column in ("parameters", "gradient_bytes", "multiply_adds"))
    types = ", ".join(f"{count} {kind}" for kind, count in Counter(layers["layer_type"]).most_common(MOST_VALUES))
    return [
        name,
        str(len(layers)),
        f"{parameters:,}",
        f"{number(size / 1e6)} MB",
        f"{number(work / 1e9)} billion",
        types,
    ]


# --- how well it was measured, what was not, and where --------------------------------------------


def _timing(entries: Sequence[Mapping[str, Any]]) -> str:
    """What the timing cost and whether layers add up, with warnings first."""
    if not entries:
        return "<p>No training job ran.</p>"
    warnings = "".join(f"<p><strong>{escape(line)}</strong></p>" for line in instrumentation_warnings(entries))
    caption = f'<p class="soft">{escape(INSTRUMENTATION_CAPTION)}</p>'
    return warnings + caption + _table(INSTRUMENTATION_HEAD, instrumentation_rows(entries))


def _not_measured(conclusions: Conclusions, left_out: Sequence[LeftOut]) -> str:
    """Cells imported and cells that could not run, and combinations left out, by reason with one example each."""
    blocks = []
    if imported := conclusions["imported"]:
        blocks += [
            "<h3>Imported</h3>",
            "<p>Iteration times of imported training runs are composed of what their files say of its parts.</p>",
            _table(["cell", "files"], [[row["cell"], row["source"]] for row in imported]),
        ]
    if failed := conclusions["failed"]:
        blocks += [
            "<h3>Could not run</h3>",
            _table(["cell", "reason"], [[row["cell"], row["reason"]] for row in failed]),
        ]
    if left_out:
        examples = {entry.reason: entry.axes for entry in reversed(left_out)}
        rows = [
            [reason, str(count), ", ".join(f"{axis} {value}" for axis, value in examples[reason].items())]
            for reason, count in Counter(entry.reason for entry in left_out).items()
        ]
        blocks += ["<h3>Left out of the matrix</h3>", _table(["reason", "combinations", "such as"], rows)]
    return "\n".join(blocks) or "<p>None: every cell of the study ran, and nothing was left out.</p>"


def _environment(tables: Tables) -> str:
    """A column for each hardware entry, a row for each property, with every value that occurred."""
    runs, environments = tables.get("runs"), tables.get("environments")
    if runs is None or environments is None or environments.empty:
        return "<p>No job recorded its environment.</p>"
    known = environments.merge(runs[["cell", "hardware"]], on="cell")
    known = known.assign(memory_bytes=[f"{size / 2**30:.0f} GiB" for size in known["memory_bytes"]])
    hardware, frames = zip(*known.groupby("hardware"), strict=True)
    rows = [[name, *(_values(frame[column]) for frame in frames)] for column, name in ENVIRONMENT.items()]
    return _table(["", *map(str, hardware)], [row for row in rows if any(row[1:])])


def _values(values: pd.Series[Any]) -> str:
    texts = sorted({str(value) for value in values.dropna()} - {""}, key=theme.natural)
    more = f" and {len(texts) - MOST_VALUES} more" if len(texts) > MOST_VALUES else ""
    return ", ".join(texts[:MOST_VALUES]) + more
