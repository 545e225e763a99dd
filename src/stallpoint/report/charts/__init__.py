"""Registry of charts. Their modules draw them from model tables with Altair; a module has one chart or several.

Importing the registry is cheap, so that a Snakefile can list the names: Altair is imported when a chart is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

Tables: TypeAlias = "Mapping[str, pd.DataFrame]"
"""Model tables (and tidy tables where a chart asks for them) by name, with the columns of `records.tables`."""


class NoData(LookupError):
    """Error that there is nothing to draw; the message names the missing cells of the study."""


@dataclass(frozen=True)
class Drawing:
    """A chart in a module of several charts: the functions that draw it and return its finding."""

    draw: Callable[[Tables], alt.TopLevelMixin]
    finding: Callable[[Tables], str] | None = None


@dataclass(frozen=True)
class Chart:
    """An entry of the registry. The module ``<name>_chart`` has the functions ``draw`` and ``finding`` of the chart.

    If `drawn_by` is set, the module ``<drawn_by>_chart`` draws several charts. It has a `Drawing` of each chart's name.
    """

    name: str
    title: str
    tables: tuple[str, ...]
    """Names of the tables that the chart is drawn from."""
    text: str
    """Contents and reading; plain text that is also valid reStructuredText."""
    source: str = ""
    """Corresponding figures of the papers; empty where there is none."""
    drawn_by: str = ""

    @property
    def caption(self) -> str:
        """Return the caption: what the chart shows, how to read it, and which figure of a paper it follows."""
        return f"{self.text} After {self.source}." if self.source else self.text

    @property
    def topic(self) -> str:
        """Return the topic of a study's chart."""
        return next(topic for topic, charts in TOPICS.items() if self in charts)

    @property
    def module(self) -> str:
        """Return the name of the module that draws the chart."""
        return f"{__name__}.{self.drawn_by or self._stem}_chart"

    @property
    def _stem(self) -> str:
        return self.name.replace("-", "_")

    @property
    def _drawing(self) -> Any:
        module = import_module(self.module)
        return getattr(module, self._stem) if self.drawn_by else module

    def finding(self, tables: Tables) -> str:
        """Return the finding, the chart's title: what the `tables` show, in words; empty if the chart has none."""
        finding = getattr(self._drawing, "finding", None)
        try:
            return str(finding(tables)) if finding else ""
        except NoData:
            return ""

    def draw(self, tables: Tables) -> alt.TopLevelMixin:
        """Return the chart without theme; raise `NoData` if the tables have nothing to draw."""
        chart: alt.TopLevelMixin = self._drawing.draw(tables)
        return chart


TOPICS: dict[str, tuple[Chart, ...]] = {
    "Where scaling stalls": (
        Chart(
            "critical-path", "Where the time goes", ("critical_path", "predictions", "stalling"),
            "What is on the critical path of an iteration, in seconds and per cent, by workers: only what nothing "
            "else hides, so the parts add up to the iteration time. Latency and bandwidth divide the exposed "
            "communication as the fit of its messages says. Lines at the upper end of a part are its 90 % interval. "
            "Hatched bars are predicted, for counts nobody ran.",
            drawn_by="iteration",
        ),
        Chart(
            "causes", "What costs the time", ("causes", "predictions", "stalling"),
            "Share of each iteration lost to each cause, with its 90 % interval, by workers; the rest, up to "
            "100 %, is what ideal scaling would take. Bars below zero are gains. Hatched bars are predicted, for "
            "counts nobody ran.",
            drawn_by="iteration",
        ),
        Chart(
            "speedup", "Speedup against workers", ("predictions", "stalling"),
            "Speedup relative to the fewest workers: points with 90 % intervals are measured, dashed lines with "
            "bands are predicted by the DAG model, the grey line is ideal. Triangles on the axis mark the stalling "
            "point: from there on, doubling the workers gains less than the threshold.",
            source="Keuper & Pfreundt (2016), Fig. 1, and Shi et al. (2018), Figs. 2 to 4",
        ),
        Chart(
            "throughput", "Throughput, efficiency and cost", ("predictions", "stalling"),
            "The fastest curve of each network: samples per second, the speedup relative to the smallest node count "
            "as a part of the ideal one, and the node-hours that training on a million samples takes. Points with "
            "90 % intervals are measured, dashed lines with bands are predicted.",
            drawn_by="throughput",
        ),
        Chart(
            "costs", "Time against cost", ("costs", "predictions", "stalling"),
            "The fastest curve of each network: the time of an epoch against its price, or its node-hours where a "
            "hardware entry has no price_per_node_hour; each point is a number of nodes. Down and to the left is "
            "better; a line that turns up to the right pays more for no less time. Points with 90 % intervals of the "
            "time are measured, dashed lines with bands are predicted.",
            drawn_by="throughput",
        ),
        Chart(
            "utilisation", "Use of devices and link", ("utilisation", "predictions", "stalling"),
            "The fastest curve of each network: a worker's FLOP/s, counting only operations that the network needs, "
            "and the bandwidth of its gradients, their bytes over the time of communication between nodes. In percent "
            "of what the hardware is rated for, where the study says that (rated_tflops, rated_gbits). Points with "
            "90 % intervals are measured.",
            source="Shi et al. (2018), section V-C2", drawn_by="throughput",
        ),
    ),
    "Communication of gradients": (
        Chart(
            "communication", "Compute against communication time", ("predictions", "stalling"),
            "Seconds of one iteration spent computing (forward, backward, update), beside those with an all-reduce "
            "under way: hidden behind the backward pass, or exposed after it. Hatched bars are predicted. A triangle "
            "marks the fewest workers at which communication takes longer than compute: training is communication "
            "bound there.",
            source="Keuper & Pfreundt (2016), Fig. 3", drawn_by="iteration",
        ),
        Chart(
            "all-reduce", "Time and rate of an all-reduce", ("communication", "collectives", "contention"),
            "Time of one all-reduce by message size, and below it the rate, on idle workers and while they compute: "
            "points are medians over repeated calls of the slowest rank, with the middle 90 % of them; dashed lines "
            "are the fit alpha + beta · bytes for each node count, in pieces where one line does not hold for all "
            "sizes. The flat part is latency, the rising part bandwidth.",
            source="Shi et al. (2018), Table V",
        ),
        Chart(
            "overlap", "One iteration: computing and communicating side by side",
            ("median_iterations", "median_layers", "hidden_communication", "layer_times"),
            "One real iteration, that whose wall time is the median of its cell's, with all its ranks (of more than "
            "16, the slowest) and times as recorded: above what the rank computed (layers of the backward pass last "
            "first), below its messages. The last row has passes and messages as the DAG model predicts them without "
            "these cells. Communication right of the upright mark, the end of the backward pass, is exposed. What lies "
            "left of it may still cost time, as it slows the pass down: where training without communication was "
            "measured, the heading says what communicating costs, and what the same messages take alone.",
            source="Shi et al. (2018), section IV",
        ),
    ),
    "Compute": (
        Chart(
            "free-communication", "Speedup if communication were free", ("layer_scaling",),
            "Compute time of one worker at the largest mini-batch over that at smaller ones, with 90 % intervals: the "
            "speedup that splitting the mini-batch could reach at best. Below the grey line, smaller mini-batches are "
            "computed less efficiently. A red ring marks points of which many iterations were disturbed.",
            source="Keuper & Pfreundt (2016), Fig. 4", drawn_by="layers",
        ),
        Chart(
            "layer-share", "Share of each layer type", ("layer_scaling",),
            "Share of each layer type in the compute time of one iteration on one worker, by mini-batch. A share that "
            "grows to the right belongs to a layer type that does not get faster with a smaller mini-batch. Types "
            "with less than 2 % everywhere are drawn together, as other.",
            source="Keuper & Pfreundt (2016), Figs. 5 and 6", drawn_by="layers",
        ),
        Chart(
            "layer-speedup", "Speedup of each layer type", ("layer_scaling",),
            "Compute time of each layer type at the largest mini-batch over that at smaller ones, on one worker, with "
            "90 % intervals. The wider a line, the more of the time it takes: wide lines far below the grey one limit "
            "the speedup of the whole.",
            source="Keuper & Pfreundt (2016), Figs. 7 and 8", drawn_by="layers",
        ),
        Chart(
            "sgemm", "Speedup of matrix products", ("sgemm_speedup",),
            "Time of single-precision matrix products (sgemm) at the largest mini-batch over that at smaller ones: "
            "the median of the network's layers, a band with 80 % of them, thin lines with names for outliers (or for "
            "each of a few layers), and the reference product, b x 4096 by 4096 x 9216 unless given, with its 90 % "
            "interval.",
            source="Keuper & Pfreundt (2016), Fig. 9",
        ),
        Chart(
            "roofline", "Roofline of layers", ("layer_times", "network_layers", "sgemm", "runs"),
            "Rate of each layer with matrix products in training, on one worker at the largest b, against its "
            "operations for each byte of weights; the larger a point, the more time it takes. The grey line is the "
            "ceiling by the measured memory bandwidth and peak of matrix products; convolutions that need fewer "
            "multiplications than counted stand above it. Bytes of activations are not recorded: layers stand further "
            "right than they would with them.",
        ),
        Chart(
            "amdahl", "Amdahl's law", ("amdahl", "layer_scaling"),
            "Speedup by Amdahl's law with the serial fractions fitted to compute time at falling mini-batch (by layer "
            "type, and with the 90 % interval for all layers) and to measured strong scaling (dotted). Each curve "
            "levels off at 1 over its serial fraction. Curves end where each worker has one sample.",
            source="Keuper & Pfreundt (2016), Fig. 12",
        ),
        Chart(
            "memory", "Memory of training", ("memory", "largest_batch"),
            "Most memory that a worker needed to train, by its mini-batch: points with 90 % intervals are measured, "
            "dashed lines are fixed + slope · b, up to the largest b that fits or four times the largest that was "
            "measured. The grey line is what a worker may use. Pointing at a point shows what takes it.",
            source="Keuper & Pfreundt (2016), footnote 10",
        ),
    ),
    "Training data": (
        Chart(
            "storage", "Reading the training set", ("storage_rates",),
            "Rate at which all nodes together read samples, with 90 % intervals, by storage, order and state of the "
            "page cache, the fastest on top. A rate that does not rise with the nodes is the limit of a shared "
            "storage. Hollow points are no storage's speed: a cache gave the bytes, or may have. Pointing at a point "
            "shows from where they came and what a single sample takes.",
            source="Keuper & Pfreundt (2016), section IV",
        ),
        Chart(
            "data-share", "Wait for training data", ("feeding",),
            "Share of an iteration in which workers wait for training data, by storage. Points with 90 % intervals "
            "are measured; dashed lines are predicted, where it was measured without the point's own cells. Above the "
            "grey line, at 10 %, workers starve: MLPerf Storage asks that they are busy for 90 % of the time.",
            source="Keuper & Pfreundt (2016), Fig. 13", drawn_by="feeding",
        ),
        Chart(
            "readers", "Readers that keep a worker busy", ("feeding",),
            "Threads that read ahead as fast as a worker computes: the predicted time in which one of them reads and "
            "decodes a mini-batch over the iteration without its wait for data. Points with 90 % intervals are of "
            "measured iterations, dashed lines go on where iterations are predicted; the grey line is the number that "
            "a worker has; without prefetch it has none and reads in line. With strong scaling b falls with the "
            "workers: pointing at a point shows it.",
            drawn_by="feeding",
        ),
    ),
    "What if": (
        Chart(
            "what-if", "What if", ("what_if", "predictions", "stalling"),
            "Samples per second over those of the measured cluster on as many nodes, if its links, compute units, "
            "gradients, mini-batch or preset were different: points with 90 % intervals, the largest gain on top. "
            "Both are predicted by the DAG model. At 1 nothing is gained.",
        ),
    ),
    "Accuracy of the DAG model": (
        Chart(
            "prediction", "Predicted against measured iteration time", ("predictions",),
            "One point for each measured combination, predicted without its own cells, with 90 % intervals. On the "
            "grey line prediction and measurement agree, the band around it is 10 % wide on both sides; points below "
            "it ran slower than the DAG model says. Points more than 25 % off are named.",
            source="Shi et al. (2018), Fig. 4", drawn_by="agreement",
        ),
        Chart(
            "validation", "Larger node counts predicted from smaller ones", ("validation",),
            "One point for each combination on more nodes than those whose training the prediction knows, with 90 % "
            "intervals. On the grey line prediction and measurement agree. The title of a panel says how many "
            "intervals hold the measured time, 90 % of which should, and the median error.",
            source="Shi et al. (2018), Fig. 4", drawn_by="agreement",
        ),
    ),
    "Scaling laws": (
        Chart(
            "extrapolation", "Extrapolated against measured throughput", ("law_validation",),
            "One point for each worker count that was held out: its rate, in samples per second, predicted by scaling "
            "laws from up to a quarter of the largest count of the series, with the 90 % interval. On the grey line "
            "prediction and measurement agree. The title of a panel says how many intervals hold the measured rate, "
            "90 % of which should, and the median error.",
            drawn_by="agreement",
        ),
    ),
    "Training to a target": (
        Chart(
            "time-to-target", "Time to the target", ("target_times", "time_to_accuracy"),
            "Seconds of training until a network is as good as its target, by workers: a line for each preset, with "
            "the recipe and mini-batch that are fastest at that place. Points with 90 % intervals over seeds are "
            "trained, dashed lines with bands are steps times iteration time, also where nobody trained. Pointing at "
            "a point says what a slower one owes to more steps, and what to longer ones.",
            drawn_by="time_to_target",
        ),
        Chart(
            "time-to-accuracy", "Time to the target against throughput",
            ("time_to_accuracy", "predictions", "stalling"),
            "What more workers gain on each scaling curve: in throughput, and in time to the target, steps times "
            "iteration time, each relative to the fewest workers. Where the mini-batch grows with the workers (weak "
            "scaling), the gap is what larger mini-batches cost in samples. Points rest on measured iteration times, "
            "dashed lines on predicted ones.",
            drawn_by="time_to_target",
        ),
        Chart(
            "steps-to-target", "Steps to the target", ("steps_to_target", "critical_batches"),
            "Steps to the target by mini-batch B, of the best trial at each: points with 90 % intervals over seeds, "
            "the dashed line is the fit S(B) = S_min + E_min/B. On the grey line doubling B halves the steps. Behind "
            "them the three regimes by the fit: where doubling B nearly halves the steps, where it saves less, where "
            "it saves next to nothing.",
            source="Shallue et al. (2019), Fig. 1", drawn_by="critical_batch",
        ),
        Chart(
            "noise-scale", "Noise scale of the gradients", ("noise_scale", "critical_batches"),
            "The noise scale from the gradients of workers, by quarters of the training: points with 90 % intervals "
            "over seeds. The dashed line with its band is the critical mini-batch that steps to the target tell. Both "
            "estimate up to which mini-batch larger ones pay; they agree where all directions are about equally "
            "curved.",
            source="McCandlish et al. (2018), Fig. 5", drawn_by="critical_batch",
        ),
        Chart(
            "convergence", "Accuracy during training", ("convergence",),
            "Validation accuracy of networks that were trained to a target, a line for each run, against the training "
            "samples that it has seen and against the time that it has trained; of several trials of a recipe the "
            "best one is shown. Lines of one colour differ in their seed alone.",
            source="Keuper & Pfreundt (2016), Fig. 10",
        ),
        Chart(
            "staleness", "Staleness of gradients", ("staleness_shares",),
            "Of all gradients that servers applied, how many were so stale: as many updates of the weights lay "
            "between the moment their worker took these and the update with them. Of n equally fast workers most are "
            "n - 1; a tail to the right is of slow ones.",
        ),
    ),
    "How it was measured": (
        Chart(
            "visits", "Interleaved visits", ("visits", "disturbances"),
            "The whole time of the study: each bar is a visit to a cell, from top to bottom follow the sentinel and "
            "what disturbed iterations. The sentinel, always the same matrix products, is measured before and after "
            "each visit; its points are the median rank (bars: all ranks) over the median of the study, and the grey "
            "line is the usual speed. Where it rises, the machine was slower for all cells.",
        ),
    ),
}  # fmt: skip
"""Charts of a study by topic, in the order of the argument: the answer, each cause, how good the model is."""

_PAPERS = (
    Chart(
        "paper-times", "Compute against communication time, from published parameters", ("paper_figures",),
        "Time of one iteration on the paper's compute units, computed from its model sizes, iteration times and FDR "
        "InfiniBand: compute in proportion to the worker's mini-batch, gradients up a binary tree and down again. "
        "Training becomes communication bound where the blue line rises above a compute line.",
        source="Keuper & Pfreundt (2016), Fig. 3", drawn_by="paper",
    ),
    Chart(
        "paper-speedup", "Limits of the speedup, from published parameters", ("paper_figures",),
        "Speedup with free communication where compute units get no faster below 32 samples, at the default and at "
        "larger mini-batches, and by Amdahl's law for the published shares of the non-scaling layers.",
        source="Keuper & Pfreundt (2016), Figs. 4, 11 and 12", drawn_by="paper",
    ),
)  # fmt: skip

PAPERS: dict[str, Chart] = {chart.name: chart for chart in _PAPERS}
"""Charts that need no study: figures of a paper, from the parameters that the paper states."""
CHARTS: dict[str, Chart] = {chart.name: chart for charts in TOPICS.values() for chart in charts}
"""Every chart of a study by name."""
ALL = {**CHARTS, **PAPERS}
