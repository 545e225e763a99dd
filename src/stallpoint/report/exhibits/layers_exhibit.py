"""Layer types at falling mini-batch, by device (Keuper & Pfreundt, Figs. 5 to 8, 14 and 15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd

from stallpoint.report.charts import layer_share_chart, layer_speedup_chart
from stallpoint.report.exhibits import Made, Material, Missing
from stallpoint.report.exhibits.study_material import (
    BY_BATCH,
    KEUPER_NETWORKS,
    StudyMachine,
    lacking,
    machines,
    rows,
    with_published,
)
from stallpoint.text import listed

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
        """Return the charts of the layers there, one below the other."""
        chosen = self.choose(machines(material))
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
    return layer_share_chart.draw({"layer_scaling": frame})


def _speedup(frame: pd.DataFrame, exhibit: str, material: Material) -> alt.FacetChart:
    chart = layer_speedup_chart.draw({"layer_scaling": frame})
    return with_published(material, exhibit, chart, BY_BATCH, "speedup over the largest b")


def _cpus(found: Mapping[str, StudyMachine]) -> list[StudyMachine]:
    return [machine for machine in found.values() if machine.device == "cpu" and machine.tuned]


def _other_cpus(found: Mapping[str, StudyMachine]) -> list[StudyMachine]:
    """Return many-core CPUs, or else all that differ from the first."""
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
