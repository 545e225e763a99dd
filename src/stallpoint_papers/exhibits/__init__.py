"""The papers' figures and tables, regenerated from a study: a registry of exhibits.

Importing the registry is cheap; an exhibit's module is imported when it is made. What the papers say in words and
numbers of an exhibit is data (``resources/published/*-exhibits.yaml``); docs/papers.md is the list for readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from stallpoint.report.typeset import Typeset


class Missing(LookupError):
    """Error that a study lacks the data of an exhibit; the message names the missing cells."""


@dataclass(frozen=True)
class Material:
    """Data from which exhibits are made."""

    tables: Mapping[str, pd.DataFrame]
    """Model tables and tidy tables by name, with the columns of `stallpoint.records.tables`."""
    published: Mapping[str, Any]
    """The files of ``resources/published`` that `Paper.files` names, by their stem."""

    def renamed(self, networks: Mapping[str, str]) -> Material:
        """Return the material with networks renamed; rows of networks that already have a new name are dropped."""

        def table(frame: pd.DataFrame) -> pd.DataFrame:
            present = [name for name in networks if "network" in frame and (frame["network"] == name).any()]
            kept = frame[~frame["network"].isin([networks[name] for name in present])] if present else frame
            return kept.assign(network=kept["network"].replace(networks)) if present else frame

        return Material({name: table(frame) for name, frame in self.tables.items()}, self.published)


@dataclass(frozen=True)
class Made:
    """An exhibit made from this study."""

    content: alt.TopLevelMixin | Typeset
    missing: tuple[str, ...] = ()
    """Cells that the study lacks for parts of the original exhibit."""
    shown: str = ""
    """Part of the study that is shown, if there was a choice."""


@dataclass(frozen=True)
class Exhibit:
    """A figure or table of a paper."""

    number: str
    """Number in the paper: ``Fig. 3``, ``Table II``."""
    name: str
    """Stem of its files: ``fig-03``, ``table-2``."""
    title: str
    """Title in our words."""
    maker: str
    """``module.function`` of this package that makes the exhibit."""
    tables: tuple[str, ...]
    """Names of the tables that the exhibit needs."""
    differs: str
    """Differences from the original."""

    @property
    def module(self) -> str:
        """Return the name of the module that makes the exhibit."""
        return f"{__name__}.{self.maker.rpartition('.')[0]}_exhibit"

    @property
    def kind(self) -> Literal["figure", "table"]:
        """Return ``figure`` (pictures) or ``table`` (texts)."""
        return "figure" if self.number.startswith("Fig") else "table"

    def make(self, material: Material) -> Made:
        """Return the exhibit made from a study; raise `Missing` (or `charts.NoData`) if there is nothing to show."""
        made: Made = getattr(import_module(self.module), self.maker.rpartition(".")[2])(material)
        return made


@dataclass(frozen=True)
class Paper:
    """A paper and its exhibits, in the paper's order."""

    name: str
    authors: str
    files: tuple[str, ...]
    """Files of ``resources/published`` with the paper's numbers; the first holds its statements on exhibits."""
    exhibits: tuple[Exhibit, ...]
    networks: Mapping[str, str] = field(default_factory=dict)
    """The paper's name of a network by the study's name, where the two differ."""

    @property
    def statements_file(self) -> str:
        """Return the stem of the file with the paper's statements on exhibits."""
        return self.files[0].partition(".")[0]

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the names of the modules that make the exhibits."""
        return tuple(dict.fromkeys(exhibit.module for exhibit in self.exhibits))

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of all tables that the exhibits need."""
        return tuple(dict.fromkeys(table for exhibit in self.exhibits for table in exhibit.tables))


_CONVERGENCE = "Where AlexNet was not trained to its end, the networks that were stand in its place."
_ONE_PANEL = "The original draws networks into one panel; here each network and hardware has its own."
_SHARES = "The data layer and the model update are excluded: ours are times of the network's own layers."

_LRN = (
    "LRN is PyTorch's, which is not fused as cuDNN's is: on an H100 it takes 26 % of AlexNet's layers and 17 % of "
    "GoogLeNet's."
)
_EQUAL_PRESETS = "Frameworks are the presets that do what they do; which of them are equal on a CPU is said below."

KEUPER = Paper(
    "keuper-2016",
    "Keuper & Pfreundt (2016)",
    ("keuper-2016-exhibits.yaml", "keuper-2016.yaml", "keuper-2016-table-ii.yaml"),
    (
        Exhibit(
            "Table I", "table-1", "Time of an iteration, and until convergence", "compute_times.table",
            ("predictions", "runs", "environments", "convergence_runs"),
            "Ours are for the mini-batch of the study that is nearest to theirs; until convergence means as many "
            "samples as the study's runs took to their target, or else as theirs, at that speed.",
        ),
        Exhibit(
            "Table II", "table-2", "Properties of the networks", "networks.keuper",
            ("network_layers", "predictions", "convergence_runs"),
            "Every difference is explained beside its number.",
        ),
        Exhibit(
            "Table III", "table-3", "Number and sizes of the matrix products of a forward pass", "products.table",
            ("sgemm",),
            "Ours are the products of each layer as PyTorch computes them, with their numbers, at the largest b.",
        ),
        Exhibit(
            "Table IV", "table-4", "Accuracy with larger steps and mini-batches", "convergence.table",
            ("convergence", "convergence_runs"),
            f"{_CONVERGENCE} Ours are means over seeds; a difference within seeds is not distinguishable.",
        ),
        Exhibit(
            "Fig. 1", "fig-01", "Strong scaling", "scaling.strong", ("predictions",),
            f"{_ONE_PANEL} Predicted speedup (dashed) stands beside the measured one.",
        ),
        Exhibit(
            "Fig. 2", "fig-02", "Data-parallel SGD", "data_parallel.figure", ("predictions",),
            "The same scheme with the numbers of one cell of the study, of four workers at most where it has them.",
        ),
        Exhibit(
            "Fig. 3", "fig-03", "Compute against communication time", "communication.figure",
            ("predictions", "paper_figures"),
            f"{_ONE_PANEL} Below ours: the same from the paper's own parameters, on the hardware of its cluster.",
        ),
        Exhibit(
            "Fig. 4", "fig-04", "Speedup if communication were free", "limits.default_batch",
            ("layer_scaling",),
            "A panel for each network, a line for each hardware. The nodes are n = B/b, B the largest mini-batch "
            "measured.",
        ),
        Exhibit(
            "Fig. 5", "fig-05", "Share of each layer type, on a CPU", "layers.share_cpu",
            ("layer_scaling", "runs", "environments"), _SHARES,
        ),
        Exhibit(
            "Fig. 6", "fig-06", "Share of each layer type, on a GPU", "layers.share_gpu",
            ("layer_scaling", "runs", "environments"), f"{_SHARES} {_LRN}",
        ),
        Exhibit(
            "Fig. 7", "fig-07", "Speedup of each layer type at smaller mini-batches, on a CPU", "layers.speedup_cpu",
            ("layer_scaling", "runs", "environments"), "None but the 90 % intervals.",
        ),
        Exhibit(
            "Fig. 8", "fig-08", "Speedup of each layer type at smaller mini-batches, on a GPU", "layers.speedup_gpu",
            ("layer_scaling", "runs", "environments"), f"The 90 % intervals. {_LRN}",
        ),
        Exhibit(
            "Fig. 9", "fig-09", "Speedup of sgemm at smaller mini-batches", "products.figure", ("sgemm_speedup",),
            "Our reference product is the study's: b x 4096 by 4096 x 9216, the product of AlexNet's fc6 the other way "
            "round, unless `sgemm.reference` is the paper's 4096 x 9192, which no layer has.",
        ),
        Exhibit(
            "Fig. 10", "fig-10", "Accuracy during training at large mini-batches", "convergence.figure",
            ("convergence",), f"{_CONVERGENCE} Of theirs the ends are drawn, as Table IV has them.",
        ),
        Exhibit(
            "Fig. 11", "fig-11", "Speedup of enlarged mini-batches if communication were free",
            "limits.larger_batches", ("layer_scaling",),
            "Each measured mini-batch is a B in its turn, written at the end of its line. Networks have the colours "
            "of our other charts, linear speedup is grey.",
        ),
        Exhibit(
            "Fig. 12", "fig-12", "What non-scaling layers leave of the speedup, by Amdahl's law", "limits.amdahl",
            ("amdahl", "layer_scaling", "paper_figures"),
            "Dashed: from the paper's serial fractions. Ours is the part of the time that does not fall with b, in all "
            "layers without matrix products; the paper takes the whole time of dropout, pooling and LRN.",
        ),
        Exhibit(
            "Fig. 13", "fig-13", "Share of the data layer, by storage", "layers.with_data",
            ("layer_times", "predictions"),
            "A panel for each storage, the local one beside the shared one. Layer types are medians of rank 0.",
        ),
        Exhibit(
            "Fig. 14", "fig-14", "Shares and speedups on another CPU, AlexNet", "layers.other_cpu",
            ("layer_scaling", "runs", "environments"),
            "In place of the Xeon Phi (KNL): a CPU whose name says so, or else every one but the study's first.",
        ),
        Exhibit(
            "Fig. 15", "fig-15", "Shares and speedups without cuDNN, GoogLeNet", "layers.without_cudnn",
            ("layer_scaling", "runs", "environments"),
            "Where there is no GPU, a CPU without oneDNN stands in.",
        ),
    ),
)  # fmt: skip

SHI = Paper(
    "shi-2018",
    "Shi et al. (2018)",
    ("shi-2018-exhibits.yaml", "shi-2018-table-iv.yaml", "shi-2018-table-vi.txt"),
    (
        Exhibit(
            "Table I", "table-1", "Notation", "measurements.notation", (),
            "Beside each symbol stands where this project has its values.",
        ),
        Exhibit(
            "Table II", "table-2", "Hardware", "machines.hardware",
            ("runs", "environments", "communication", "storage_rates", "sgemm", "copy_rates"),
            "Speeds of ours are measured in place of dd and p2pBandwidthLatencyTest: the network by all-reduce (1/beta "
            "of its largest messages), the storage by reading samples from a cold page cache where that could be.",
        ),
        Exhibit(
            "Table III", "table-3", "Software", "machines.software", ("runs", "environments"),
            "Presets stand in for the frameworks; libraries are added, as far as jobs find their versions.",
        ),
        Exhibit(
            "Table IV", "table-4", "Networks", "networks.shi",
            ("network_layers", "predictions", "convergence_runs"),
            "Every difference is explained beside its number.",
        ),
        Exhibit(
            "Table V", "table-5", "Measurements that the DAG model predicts from", "measurements.inputs",
            ("predictions", "critical_path", "storage_rates"),
            "The paper says how each is measured; ours are the values, on the fewest workers that communicate.",
        ),
        Exhibit(
            "Table VI", "table-6", "Trace of one iteration of AlexNet", "measurements.trace",
            ("layer_times", "predictions"),
            "Ours are means over the iterations of rank 0; layers that one of both networks lacks stay empty.",
        ),
        Exhibit(
            "Fig. 1", "fig-01", "The DAG of three layers on four GPUs", "job_graph.figure", (),
            "The same tasks and edges, as our model builds them, drawn along time; durations are made up.",
        ),
        Exhibit(
            "Fig. 2", "fig-02", "Weak scaling within one machine", "scaling.one_machine",
            ("predictions", "runs"),
            f"{_EQUAL_PRESETS} What is predicted (dashed) stands beside what was measured.",
        ),
        Exhibit(
            "Fig. 3", "fig-03", "Weak scaling over machines", "scaling.several_machines", ("predictions", "runs"),
            _EQUAL_PRESETS,
        ),
        Exhibit(
            "Fig. 4", "fig-04", "Speedup by the DAG model and as measured", "scaling.predicted", ("predictions",),
            "All presets stand in for Caffe-MPI. Strong scaling is shown where the study has no weak scaling; the "
            "paper's is weak.",
        ),
    ),
    {"alexnet-no-lrn": "alexnet"},
)  # fmt: skip

GUIDE = Paper(
    "guide",
    "An introductory guide on distributed training of neural networks",
    ("guide-exhibits.yaml",),
    (
        Exhibit(
            "Fig. 1", "fig-01", "Throughput over workers, and the ideal", "scaling.ideal", ("predictions",),
            "A panel for each network and hardware. The ideal (grey) is the rate on the fewest workers in proportion. "
            "Where neither Inception-v3 nor ResNet-101 was trained, the networks that were stand in their place.",
        ),
    ),
)  # fmt: skip

PAPERS: dict[str, Paper] = {paper.name: paper for paper in (KEUPER, SHI, GUIDE)}
