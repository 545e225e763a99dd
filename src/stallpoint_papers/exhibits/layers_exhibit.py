"""Layer types at decreasing mini-batch by device, and with the data layer by storage (Keuper & Pfreundt)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd

from stallpoint.records.tables import SERIES
from stallpoint.report.charts import layers_chart, marks, theme
from stallpoint.text import listed, number
from stallpoint_papers.exhibits import Made, Material, Missing
from stallpoint_papers.exhibits.study_material import (
    BY_BATCH,
    KEUPER_NETWORKS,
    StudyMachine,
    lacking,
    machines,
    rows,
    with_published,
)

CELLS = "train cells with scaling: compute"
MANY_CORE = ("xeon phi", "knl")


Choice = Callable[[Mapping[str, StudyMachine]], list[StudyMachine]]
Drawing = Callable[[pd.DataFrame, str, Material], alt.FacetChart]


@dataclass(frozen=True)
class Figure:
    """A figure of layer types on some of the study's hardware."""

    exhibit: str
    choose: Choice
    wanted: str
    """The hardware that it shows, in words."""
    drawings: Sequence[Drawing]
    networks: Sequence[str] = KEUPER_NETWORKS

    def __call__(self, material: Material) -> Made:
        """Return the charts of layers on the chosen hardware, one below the other."""
        # Hardware without timed layers, such as hardware only used for training to a target, is not shown.
        timed = set(material.tables["layer_scaling"]["hardware"])
        found = machines(material)
        chosen = self.choose({name: machine for name, machine in found.items() if name in timed} or found)
        if not chosen:
            raise Missing(f"no {CELLS} of {' and '.join(self.networks)} on {self.wanted}")
        names = [machine.hardware for machine in chosen]
        cells = f"{CELLS} on {listed(names)}"
        frame = rows(material, "layer_scaling", self.networks, cells, keep={"hardware": names})
        charts = [draw(frame, self.exhibit, material) for draw in self.drawings]
        content = alt.vconcat(*charts, spacing=24) if len(charts) > 1 else charts[0]
        processors = dict.fromkeys(f"{machine.hardware}: {machine.processor}" for machine in chosen)
        return Made(content, lacking(frame, self.networks, cells), "; ".join(processors))


def _share(frame: pd.DataFrame, exhibit: str, material: Material) -> alt.FacetChart:
    return layers_chart.draw_shares({"layer_scaling": frame})


def _speedup(frame: pd.DataFrame, exhibit: str, material: Material) -> alt.FacetChart:
    chart = layers_chart.draw_speedups({"layer_scaling": frame})
    return with_published(material, exhibit, chart, BY_BATCH, "speedup over the largest b")


def _cpus(found: Mapping[str, StudyMachine]) -> list[StudyMachine]:
    return [machine for machine in found.values() if machine.device == "cpu" and machine.tuned]


def _other_cpus(found: Mapping[str, StudyMachine]) -> list[StudyMachine]:
    """Return the many-core CPUs, or else all CPUs but the first."""
    cpus = _cpus(found)
    many = [machine for machine in cpus if any(word in machine.processor.lower() for word in MANY_CORE)]
    return many or cpus[1:]


def _first_cpu(found: Mapping[str, StudyMachine]) -> list[StudyMachine]:
    others = _other_cpus(found)
    return [machine for machine in _cpus(found) if machine not in others]


def _gpus(found: Mapping[str, StudyMachine]) -> list[StudyMachine]:
    return [machine for machine in found.values() if machine.device == "cuda" and machine.tuned]


def _untuned(found: Mapping[str, StudyMachine]) -> list[StudyMachine]:
    """Return GPUs without cuDNN, or else CPUs without oneDNN."""
    untuned = [machine for machine in found.values() if not machine.tuned]
    return [machine for machine in untuned if machine.device == "cuda"] or untuned


share_cpu = Figure("fig-05", _first_cpu, "hardware with device: cpu", [_share])
share_gpu = Figure("fig-06", _gpus, "hardware with device: cuda", [_share])
speedup_cpu = Figure("fig-07", _first_cpu, "hardware with device: cpu", [_speedup])
speedup_gpu = Figure("fig-08", _gpus, "hardware with device: cuda", [_speedup])
other_cpu = Figure("fig-14", _other_cpus, "a second hardware entry with device: cpu", [_share, _speedup], ("alexnet",))
without_cudnn = Figure(
    "fig-15", _untuned, "hardware with cudnn: false, or on a CPU onednn: false", [_share, _speedup], ("googlenet",)
)


# --- Fig. 13: shares with the data layer, by storage ----------------------------------------------

DATA = "data"
STORED = "train cells with scaling: strong and one batch, on two storages"
POINT = [*(column.name for column in SERIES), "nodes", "ranks"]


def with_data(material: Material) -> Made:
    """Return stacked shares by mini-batch, largest left; a panel for each network, hardware and storage.

    Of several presets and prefetch depths, all storages show the one with the fewest prefetched mini-batches, where the
    data layer is most visible.
    """
    layers = rows(material, "layer_times", KEUPER_NETWORKS, STORED, keep={"scaling": "strong"})
    chosen = _comparable(layers[layers["forward"].notna()])
    if chosen.empty:
        raise Missing(f"no {STORED}, of {' or '.join(KEUPER_NETWORKS)}")
    seconds = chosen["forward"] + chosen["backward"]
    types = chosen.assign(seconds=seconds).groupby([*POINT, "layer_type"], as_index=False)["seconds"].sum()
    points = material.tables["predictions"]
    waits = chosen[POINT].drop_duplicates().merge(points[[*POINT, "worker_batch", "measured_data"]], on=POINT)
    data = waits.assign(layer_type=DATA, seconds=waits["measured_data"]).drop(columns="measured_data")
    types = types.merge(waits[[*POINT, "worker_batch"]], on=POINT)
    frame = pd.concat([data, types]).sort_values(POINT, kind="stable")
    frame["value"] = 100 * frame["seconds"] / frame.groupby(POINT)["seconds"].transform("sum")
    frame["panel"] = frame["network"] + " · " + frame["hardware"] + "\n" + frame["storage"]
    frame["shown"] = [f"{number(value)} s" for value in frame["seconds"]]
    shown = frame.drop_duplicates(["network", "sync", "prefetch", "batch"])
    texts = [f"{r.network}: B = {r.batch}, {r.sync}, prefetch {r.prefetch}" for r in shown.itertuples()]
    return Made(_bars(frame), lacking(frame, KEUPER_NETWORKS, STORED), "; ".join(texts))


def _comparable(layers: pd.DataFrame) -> pd.DataFrame:
    """Return the preset, prefetch depth and B measured with most storages, by network and hardware."""
    same = ["network", "hardware", "prefetch", "sync", "batch"]
    counts = layers.groupby(same)["storage"].nunique().rename("storages").reset_index()
    counts = counts[counts["storages"] > 1].sort_values(
        ["network", "hardware", "storages", "prefetch", "sync", "batch"],
        ascending=[True, True, False, True, True, False],
    )
    best = counts.drop_duplicates(["network", "hardware"])[same]
    return layers.merge(best, on=same)


def _bars(frame: pd.DataFrame) -> alt.FacetChart:
    """Return stacked bars with the data layer first, in grey."""
    colour = marks.colour(frame, "layer_type")
    known = dict(zip(colour["scale"]["domain"], colour["scale"]["range"], strict=True))
    colour_of = {DATA: theme.GREY, **{name: known[name] for name in known if name != DATA}}
    colour["scale"] = alt.Scale(domain=list(colour_of), range=list(colour_of.values()))
    tips = {"layer_type": "layer type", "worker_batch": "b [samples]", "shown": "time"}
    return layers_chart.shares(frame, "share of compute and data [%]", colour, tips)
