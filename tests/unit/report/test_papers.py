"""The papers' exhibits: all are there, hold what they say, and name the cells that are missing."""

import json
import math
import os
import pickle
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import synthetic
from once import Once

from stallpoint.models import fitting
from stallpoint.records.tables import NETWORK_LAYERS, TABLES
from stallpoint.report.charts import NoData
from stallpoint.report.charts.render import FORMATS, Spec, to_spec
from stallpoint.report.typeset import Typeset
from stallpoint_papers import exhibits as papers
from stallpoint_papers.exhibits import PAPERS, Exhibit, Made, Material, Missing
from stallpoint_papers.exhibits.job_graph_exhibit import numbered
from stallpoint_papers.exhibits.study_material import GUIDE_NETWORKS
from stallpoint_papers.make import make, published
from stallpoint_papers.paper_figures import figures
from stallpoint_papers.papers_section import papers_section

ROOT = Path(__file__).parents[3]
PUBLISHED = published(ROOT / "resources/published" / file for paper in PAPERS.values() for file in paper.files)
KEUPER, SHI, GUIDE = PAPERS["keuper-2016"], PAPERS["shi-2018"], PAPERS["guide"]
EVERY = [(paper.name, exhibit.name) for paper in PAPERS.values() for exhibit in paper.exhibits]


def measured() -> dict[str, pd.DataFrame]:
    tidy = synthetic.study(networks=("alexnet", "googlenet"), syncs=("wfbp",), repeats=1, iterations=3)
    layers = pd.DataFrame([
        {"network": network, "layer_index": i, "layer": layer.name, "layer_type": layer.type, "parameters": 10,
         "gradient_bytes": 40, "multiply_adds": 5}
        for network in tidy["iterations"]["network"].unique() for i, layer in enumerate(synthetic.NETWORK)
    ])  # fmt: skip
    fitted = fitting.fit(tidy, nodes=[8])
    read = {name for paper in PAPERS.values() for exhibit in paper.exhibits for name in exhibit.tables} & set(fitted)
    theirs = pd.DataFrame(figures(PUBLISHED["keuper-2016"]))
    return {**tidy, **{name: fitted[name] for name in read}, NETWORK_LAYERS.name: layers, "paper_figures": theirs}


@pytest.fixture(scope="module")
def material(once: Once) -> Material:
    return Material(once(measured), PUBLISHED)


@pytest.fixture(scope="module")
def nothing() -> Material:
    empty = {name: pd.DataFrame(columns=table.names) for name, table in TABLES.items()}
    return Material({**empty, "paper_figures": pd.DataFrame(figures(PUBLISHED["keuper-2016"]))}, PUBLISHED)


def of(paper: papers.Paper, name: str) -> Exhibit:
    return next(exhibit for exhibit in paper.exhibits if exhibit.name == name)


def drawn(made: Made) -> tuple[Spec, pd.DataFrame]:
    """The chart and the rows it is drawn from."""
    assert not isinstance(made.content, Typeset)
    chart = to_spec(made.content)
    return chart, pd.DataFrame([row for rows in chart["datasets"].values() for row in rows])


def table(made: Made) -> pd.DataFrame:
    assert isinstance(made.content, Typeset)
    return made.content.frame


# --- the registry ---------------------------------------------------------------------------------


def test_every_exhibit_that_the_papers_have_is_there() -> None:
    assert [e.number for e in KEUPER.exhibits] == [
        *(f"Table {n}" for n in ("I", "II", "III", "IV")),
        *(f"Fig. {n}" for n in range(1, 16)),
    ]
    assert [e.number for e in SHI.exhibits] == [
        *(f"Table {n}" for n in ("I", "II", "III", "IV", "V", "VI")), *(f"Fig. {n}" for n in range(1, 5))
    ]  # fmt: skip
    assert [e.number for e in GUIDE.exhibits] == ["Fig. 1"]


def test_every_exhibit_names_tables_that_are_and_what_differs() -> None:
    for paper in PAPERS.values():
        for exhibit in paper.exhibits:
            assert set(exhibit.tables) <= set(TABLES)
            assert exhibit.differs.endswith(".")


def test_every_published_text_belongs_to_an_exhibit_and_names_its_source() -> None:
    for paper in PAPERS.values():
        said = PUBLISHED[paper.statements_file]["exhibits"]
        assert set(said) <= {exhibit.name for exhibit in paper.exhibits}
        for entry in (entry for entries in said.values() for entry in entries):
            assert entry["says"]
            assert re.match("(section|caption|Table|Fig)", entry["source"]), entry


def test_published_tables_agree_with_each_other() -> None:
    """Table I and Table II of Keuper & Pfreundt stand in two files."""
    for network, entry in PUBLISHED["keuper-2016-exhibits"]["convergence"]["networks"].items():
        seconds = PUBLISHED["keuper-2016"]["iteration_seconds"][network]
        assert entry["batch"] == PUBLISHED["keuper-2016"]["networks"][network]["batch"]["value"]
        for unit, hours in entry["hours"].items():
            assert entry["iterations"] * seconds[unit]["value"] / 3600 == pytest.approx(hours, rel=0.01)


# --- a study without data -------------------------------------------------------------------------


@pytest.mark.parametrize(("paper", "name"), EVERY)
def test_without_data_the_missing_cells_are_named(paper: str, name: str, nothing: Material) -> None:
    exhibit = of(PAPERS[paper], name)
    if (paper, name) in {("keuper-2016", "fig-03"), ("keuper-2016", "fig-12"), ("shi-2018", "fig-01")}:
        made = exhibit.make(nothing)  # from published parameters, from the model itself
        assert all("cells" in text for text in made.missing)
        assert drawn(made)[1].size
        return
    if (paper, name) == ("shi-2018", "table-1"):
        assert len(table(exhibit.make(nothing))) == 16  # symbols alone
        return
    with pytest.raises((Missing, NoData)) as raised:
        exhibit.make(nothing)
    assert re.search("cells|until convergence", str(raised.value)), raised.value


def test_what_is_missing_of_a_part_is_named(material: Material) -> None:
    scaling = material.tables["layer_scaling"].query("network == 'alexnet'")
    only = Material({**material.tables, "layer_scaling": scaling}, PUBLISHED)
    assert of(KEUPER, "fig-05").make(only).missing == ("no train cells with scaling: compute on cpu of googlenet",)
    with pytest.raises(Missing, match="compute of alexnet and googlenet on hardware with device: cuda"):
        of(KEUPER, "fig-06").make(only)


# --- figures --------------------------------------------------------------------------------------


def test_free_communication_stands_over_nodes(material: Material) -> None:
    _, rows = drawn(of(KEUPER, "fig-04").make(material))
    rows = rows[rows["basis"] == "measured"]
    assert (rows["nodes"] * rows["worker_batch"] == 64).all()
    times = material.tables["layer_scaling"].query("layer_type == 'all'").set_index(["network", "worker_batch"])
    for row in rows.to_dict("records"):
        ratio = times.at[(row["panel"], 64), "seconds"] / times.at[(row["panel"], row["worker_batch"]), "seconds"]
        assert row["value"] == pytest.approx(ratio, rel=1e-4)


def test_larger_batches_are_compared_with_themselves(material: Material) -> None:
    _, rows = drawn(of(KEUPER, "fig-11").make(material))
    rows = rows[rows["basis"] == "measured"]
    assert set(rows["global_batch"]) == {64, 32, 16}
    assert (rows.loc[rows["nodes"] == 1, "value"] == 1).all()
    times = material.tables["layer_scaling"].query("layer_type == 'all'").set_index(["network", "worker_batch"])
    one = rows.query("network == 'googlenet' and global_batch == 32 and nodes == 4").iloc[0]
    assert one["value"] == pytest.approx(
        times.at[("googlenet", 32), "seconds"] / times.at[("googlenet", 8), "seconds"], rel=1e-4
    )


def test_amdahl_holds_their_serial_fraction_and_ours(material: Material) -> None:
    made = of(KEUPER, "fig-12").make(material)
    _, rows = drawn(made)
    for network, fraction in (("alexnet", 0.001), ("googlenet", 0.003)):
        at = rows.query(f"basis == 'published' and network == '{network}' and nodes == 256")
        assert at["value"].item() == pytest.approx(1 / (fraction + (1 - fraction) / 256), rel=1e-3)
    # relu1, pool1 and loss: what does not fall with b (forward, and twice that backward), over all at b = 64
    truth = synthetic.NETWORK
    fixed = sum(layer.fixed for layer in truth if layer.name in ("relu1", "pool1", "loss"))
    whole = sum(layer.fixed + 64 * layer.each for layer in truth)
    ours = rows.query("basis == 'measured' and network == 'alexnet' and nodes == 256")["value"].item()
    assert ours == pytest.approx(1 / (fixed / whole + (1 - fixed / whole) / 256), rel=0.05)


def test_the_data_layer_is_a_share_of_compute_and_data(material: Material) -> None:
    made = of(KEUPER, "fig-13").make(material)
    _, rows = drawn(made)
    assert set(rows["panel"].str.split("\n").str[1]) == {"local", "shared"}
    np.testing.assert_allclose(rows.groupby(["panel", "worker_batch"])["value"].sum(), 100, rtol=1e-3)
    data = rows[rows["layer_type"] == "data"].set_index(["panel", "worker_batch"])["value"]
    # four nodes that read at once take longer on the shared storage
    assert data["alexnet · cpu\nshared", 16] > data["alexnet · cpu\nlocal", 16] > 0
    assert "prefetch 0" in made.shown


def renamed(material: Material, **hardware: dict[str, str]) -> Material:
    """The study with its hardware once for each name, after replacing texts in what is known of it."""
    tables = dict(material.tables)
    for name in ("runs", "environments", "layer_scaling"):
        copies = []
        for entry, texts in hardware.items():
            copy = tables[name].replace({"made-up CPU": texts.get("cpu", "made-up CPU")})
            if "settings" in copy:
                copy["settings"] = copy["settings"].str.replace('"device":"cpu"', f'"device":"{texts["device"]}"')
            if "gpu_model" in copy:
                copy["gpu_model"] = texts.get("gpu", "")
                copy["cudnn_in_force"] = texts["device"] == "cuda" and "without" not in texts
                copy["onednn_in_force"] = texts["device"] == "cpu" and "without" not in texts
            if "cell" in copy:
                copy["cell"] = entry + "/" + copy["cell"]
            copies.append(copy.assign(hardware=entry) if "hardware" in copy else copy)
        tables[name] = pd.concat(copies, ignore_index=True)
    return Material(tables, PUBLISHED)


def test_a_second_cpu_and_a_gpu_have_figures_of_their_own(material: Material) -> None:
    several = renamed(
        material,
        cpu={"device": "cpu"},
        phi={"device": "cpu", "cpu": "Intel Xeon Phi 7210"},
        gpu={"device": "cuda", "gpu": "Tesla K80"},
    )
    shown = {name: of(KEUPER, name).make(several).shown for name in ("fig-05", "fig-06", "fig-14")}
    assert shown == {"fig-05": "cpu: made-up CPU", "fig-06": "gpu: Tesla K80", "fig-14": "phi: Intel Xeon Phi 7210"}


def test_hardware_that_timed_no_layers_takes_no_place_in_a_figure_of_layers(material: Material) -> None:
    both = renamed(material, accuracy={"device": "cpu"}, cpu={"device": "cpu"})
    layers = both.tables["layer_scaling"]
    both.tables["layer_scaling"] = layers[layers["hardware"] == "cpu"]
    assert of(KEUPER, "fig-05").make(both).shown == "cpu: made-up CPU"


def test_software_is_that_of_the_records(material: Material) -> None:
    """Shi et al., Table III."""
    several = renamed(material, cpu={"device": "cpu"}, plain={"device": "cpu", "without": "oneDNN"})
    rows = table(of(SHI, "table-3").make(several)).set_index("software")
    assert rows.loc["operating system"].tolist() == ["CentOS 7.2", "CentOS 7.3", "Linux", "Linux"]
    assert rows.loc["CNTK"].tolist() == ["2.3", "2.4", "–", "–"]
    assert rows.loc["PyTorch"].tolist() == ["–", "–", "2.6", "2.6"]
    assert rows.loc["oneDNN"].tolist() == ["–", "–", "3.5.3", "3.5.3 (off)"]


def test_what_computes_without_its_library_is_told_apart_by_the_record_of_it(material: Material) -> None:
    gpu = {"device": "cuda", "gpu": "Tesla K80"}
    plain = {"device": "cpu", "without": "oneDNN"}
    several = renamed(material, cpu={"device": "cpu"}, plain=plain, gpu=gpu, bare={**gpu, "without": "cuDNN"})
    shown = {name: of(KEUPER, name).make(several).shown for name in ("fig-05", "fig-06", "fig-15")}
    assert shown == {"fig-05": "cpu: made-up CPU", "fig-06": "gpu: Tesla K80", "fig-15": "bare: Tesla K80"}
    assert of(KEUPER, "fig-15").make(renamed(material, plain=plain)).shown == "plain: made-up CPU"
    with pytest.raises(Missing, match="onednn: false"):
        of(KEUPER, "fig-15").make(renamed(material, cpu={"device": "cpu"}))


def test_workers_of_one_machine_are_compared(material: Material) -> None:
    one = material.tables["predictions"].query("scaling == 'weak' and nodes == 1 and network == 'alexnet'")
    speedups = {1: (1.0, 1.0), 2: (1.6, 4 / 3), 4: (2.0, 4 / 3)}
    rows = pd.concat([
        one.assign(workers_per_node=4, ranks=n, **{
            f"{basis}_speedup{end}": factor * value
            for basis, value in zip(("measured", "predicted"), both, strict=True)
            for end, factor in (("", 1.0), ("_low", 0.5), ("_high", 2.0))
        })
        for n, both in speedups.items()
    ])  # fmt: skip
    beyond = rows[rows["ranks"] == 4].assign(nodes=2, ranks=8)
    made = of(SHI, "fig-02").make(Material({**material.tables, "predictions": pd.concat([rows, beyond])}, PUBLISHED))
    _, found = drawn(made)
    predicted = found[found["basis"] == "predicted"].sort_values("ranks")["value"]
    assert predicted.tolist() == pytest.approx([1, 4 / 3, 4 / 3], rel=1e-4)
    found = found[found["basis"] == "measured"].sort_values("ranks")
    assert found["ranks"].tolist() == [1, 2, 4]
    assert found["value"].tolist() == [1, 1.6, 2]
    assert found["high"].iloc[1] == 3.2
    assert [text.rpartition(" ")[2] for text in made.missing] == ["googlenet", "resnet50"]


def test_presets_that_do_the_same_on_a_cpu_are_named_beside_the_figure(material: Material) -> None:
    def shown(device: str) -> str:
        tables = dict(material.tables)
        runs, points = tables["runs"], tables["predictions"]
        (sync,) = set(points.query("scaling == 'weak' and network == 'alexnet'")["sync"]) - {"none"}
        as_other = {f'"sync":"{sync}"': '"sync":"twin"', '"device_prefetch":false': '"device_prefetch":true'}
        other = runs.copy()
        for old, new in as_other.items():
            other["settings"] = other["settings"].str.replace(old, new, regex=False)
        runs = pd.concat([runs, other])
        runs["settings"] = runs["settings"].str.replace('"device":"cpu"', f'"device":"{device}"', regex=False)
        tables |= {"runs": runs, "predictions": pd.concat([points, points[points["sync"] == sync].assign(sync="twin")])}
        return of(SHI, "fig-03").make(Material(tables, PUBLISHED)).shown

    assert shown("cpu").endswith("is chance: twin and wfbp")
    assert shown("cuda") == "", "a GPU reads ahead into its own memory, or not"


def test_weak_scaling_over_machines_and_its_prediction(material: Material) -> None:
    predictions = material.tables["predictions"].query("scaling == 'weak' and network == 'alexnet'")
    for name, basis in (("fig-03", "measured"), ("fig-04", "predicted")):
        _, rows = drawn(of(SHI, name).make(material))
        known = rows[(rows["basis"] == basis) & rows["panel"].str.startswith("alexnet")].set_index("ranks")["value"]
        theirs = predictions[predictions["measured_speedup"].notna()].set_index("ranks")[f"{basis}_speedup"]
        assert known.sort_index().to_dict() == pytest.approx(theirs.sort_index().to_dict(), rel=1e-4)
    assert "theirs 9.4 %" in of(SHI, "fig-04").make(material).shown


@pytest.mark.parametrize(("network", "missing"), [("resnet101", ["inception-v3"]), ("alexnet", [*GUIDE_NETWORKS])])
def test_the_rate_of_many_workers_stands_below_that_of_one_times_their_number(
    network: str, missing: list[str], material: Material
) -> None:
    predictions = material.tables["predictions"]
    predictions = predictions.replace({"network": {"alexnet": network}}).query("sync == 'wfbp'")
    made = of(GUIDE, "fig-01").make(Material({**material.tables, "predictions": predictions}, PUBLISHED))
    assert [text.rpartition(" ")[2] for text in made.missing] == missing
    _, rows = drawn(made)
    rows = rows[rows["panel"].str.startswith(f"{network} ")]
    measured, ideal = (rows[rows["basis"] == basis].set_index("ranks")["value"] for basis in ("measured", "ideal"))
    theirs = predictions.query("network == @network and scaling == 'weak'").dropna(subset="measured_iteration")
    rates = (theirs["global_batch"] / theirs["measured_iteration"]).set_axis(theirs["ranks"])
    assert measured.sort_index().to_dict() == pytest.approx(rates.sort_index().to_dict(), rel=1e-4)
    assert ideal.to_dict() == pytest.approx({ranks: ranks * rates[1] for ranks in measured.index}, rel=1e-4)
    assert (measured.drop(1) < ideal[measured.drop(1).index]).all()


def test_the_dag_of_three_layers_on_four_gpus(nothing: Material) -> None:
    chart, _ = drawn(of(SHI, "fig-01").make(nothing))
    bars, edges = (pd.DataFrame(chart["datasets"][layer["data"]["name"]]) for layer in chart["layer"][:2])
    assert set(bars["task"]) == {f"T{n}" for n in range(44)} == set(numbered().values())
    # in a GPU 7 each, gradients 4 x 3, update 3; the next mini-batch: read after read, copy after read and update
    assert len(edges) == 7 * 4 + 12 + 3 + 4 + 4 + 4
    assert (edges["from"] <= edges["to"]).all()
    communicating = {f"T{n}" for n in (*range(8), 32, 33, 34, *range(36, 44))}
    assert set(bars.loc[bars["kind"] == "communication task", "task"]) == communicating


def test_the_scheme_of_sgd_has_the_workers_and_times_of_the_study(material: Material) -> None:
    made = of(KEUPER, "fig-02").make(material)
    assert "alexnet on cpu" in made.shown
    _, found = drawn(made)
    boxes = found[found["above"].notna()]
    cell = material.tables["predictions"].query("scaling == 'strong' and network == 'alexnet' and ranks == 4")
    (batch,) = cell["global_batch"].unique()
    assert boxes.loc[boxes["column"] == "mini-batch", "below"].tolist() == [f"B = {batch}"]
    assert boxes.loc[boxes["column"] == "samples", "below"].tolist() == [f"b = {batch // 4}"] * 4
    arrows = found[found["from"].notna()]
    assert len(arrows) == 3 * 4 + 1
    assert (arrows["from"] < arrows["to"]).all()


def test_published_places_are_drawn_in_every_panel(material: Material) -> None:
    chart = to_spec(of(KEUPER, "fig-07").make(material).content)  # type: ignore[arg-type]  # a chart, not a table
    (place,) = (layer for layer in chart["spec"]["layer"] if layer["mark"].get("style") == "published")
    (row,) = chart["datasets"][place["data"]["name"]]
    assert row["worker_batch"] == 64
    assert place["encoding"]["x"]["field"] == "worker_batch"


# --- tables ---------------------------------------------------------------------------------------


def test_compute_times_until_convergence_are_for_as_many_samples(material: Material) -> None:
    rows = table(of(KEUPER, "table-1").make(material)).set_index(["network", "from"])
    theirs = rows.loc[("alexnet", "published")]
    assert theirs["iteration"].tolist() == [2.0, 0.9, 0.2, 0.6]
    assert theirs["convergence"].tolist() == [250, 112, 25, 75]
    assert theirs["samples"].eq(450_000 * 256).all()
    ours = rows.loc[("alexnet", "this study")].squeeze()
    assert ours["convergence"] == pytest.approx(ours["samples"] / ours["batch"] * ours["iteration"] / 3600)
    assert ours["iteration_low"] <= ours["iteration"] <= ours["iteration_high"]


@pytest.mark.parametrize(("took", "samples"), [([np.nan], 450_000 * 256), ([4e6, 6e6, np.nan], 5e6)])
def test_convergence_takes_the_samples_of_the_studys_own_runs_to_their_target(
    material: Material, took: list[float], samples: float
) -> None:
    run = material.tables["convergence_runs"].iloc[:1].assign(network="alexnet", batch=128)
    runs = pd.concat([run.assign(samples_to_target=one) for one in took])
    others = run.assign(batch=16, samples_to_target=9e6 if len(took) > 1 else np.nan)
    tables = {**material.tables, "convergence_runs": pd.concat([runs, others])}
    rows = table(of(KEUPER, "table-1").make(Material(tables, PUBLISHED))).set_index(["network", "from"])
    assert rows.loc[("alexnet", "this study"), "samples"] == samples


def test_gap_and_sharpness_stand_beside_the_accuracy_where_runs_have_them(material: Material) -> None:
    runs = material.tables["convergence_runs"]

    def ours(runs: pd.DataFrame) -> pd.DataFrame:
        rows = table(of(KEUPER, "table-4").make(Material({**material.tables, "convergence_runs": runs}, PUBLISHED)))
        return rows[rows["from"] == "this study"]

    known = ours(runs)
    assert known["sharpness"].tolist() == pytest.approx(4 * np.log2(known["batch"].astype(float)).to_numpy())
    assert (known["accuracy_gap"].round(9) == 2).all()
    assert (known["sharpness_low"] <= known["sharpness"]).all(), "an interval over seeds"
    unknown = runs.assign(accuracy_gap=np.nan, sharpness=np.nan)
    assert list(ours(unknown)) == [name for name in known if not name.startswith(("accuracy_gap", "sharpness"))]


def test_a_run_that_diverged_is_no_accuracy_and_no_speedup(material: Material) -> None:
    runs, evaluated = material.tables["convergence_runs"], material.tables["convergence"]
    large = runs["batch"] == runs["batch"].max()
    one = large & (runs["seed"] == runs.loc[large, "seed"].min())
    made = []
    for diverged in (pd.Series(False, index=runs.index), one, large):
        ended = runs.assign(ended=runs["ended"].mask(diverged, "diverged"))
        ended["best_accuracy"] = ended["best_accuracy"].mask(diverged, 0.1)
        early = evaluated["cell"].isin(runs.loc[diverged, "cell"]) & (evaluated["step"] > 0)
        tables = {**material.tables, "convergence_runs": ended, "convergence": evaluated[~early]}
        rows = table(of(KEUPER, "table-4").make(Material(tables, PUBLISHED)))
        made.append(rows[(rows["from"] == "this study") & (rows["batch"] == runs["batch"].max())].iloc[0])
    whole, few, none = made
    assert few["ended"] == f"1 diverged, {whole['runs'] - 1} max steps"
    assert few["speedup"] == pytest.approx(whole["speedup"])
    assert few["accuracy"] == pytest.approx(whole["accuracy"], abs=1)
    assert none[["accuracy", "speedup", "difference"]].isna().all()
    assert none["ended"] == f"{whole['runs']} diverged"


def test_what_does_not_communicate_is_no_point_of_a_mean_and_no_panel(material: Material) -> None:
    """Keuper & Pfreundt, Fig. 3; Shi et al., Fig. 4."""
    predictions = material.tables["predictions"]
    silent = {f"{basis}_communication": 0.0 for basis in ("measured", "predicted")}
    alone = predictions.assign(sync="none", error=0.0, **silent)
    several = (predictions["ranks"] > 1) & predictions["error"].notna()
    predictions = predictions.assign(error=predictions["error"].where(several, 0.0))
    both = Material({**material.tables, "predictions": pd.concat([predictions, alone])}, PUBLISHED)
    made = of(SHI, "fig-04").make(both)
    assert "none" not in set(drawn(made)[1]["series"])
    errors = predictions[several & (predictions["sync"] != "none") & predictions["measured_speedup"].notna()]
    for network, of_network in errors.groupby("network"):
        mean, points = 100 * of_network["error"].abs().mean(), len(of_network)
        assert f"{network} {mean:.1f} % over {points} points" in made.shown
    _, rows = drawn(of(KEUPER, "fig-03").make(both))
    rows = rows[rows["panel"].notna() & rows["basis"].isin(["measured", "predicted"])]
    assert all("communication" in set(panel["time"]) for _, panel in rows.groupby("panel"))


def test_the_trace_stands_beside_theirs_by_layer(material: Material) -> None:
    rows = table(of(SHI, "table-6").make(material)).set_index("name")
    assert rows.at["fc6", "published size"] == 151011328
    assert rows.at["fc6", "ours size"] == 30_000_000
    assert rows.at["conv1", "published forward"] == pytest.approx(3.27e6)
    # two workers, weak scaling at b = 16: 0.2 ms + 16 · 0.4 ms, in microseconds
    assert rows.at["conv1", "ours forward"] == pytest.approx(200 + 16 * 400, rel=0.1)
    assert math.isnan(rows.at["conv3", "ours forward"])
    assert list(rows.index)[:4] == ["data", "conv1", "relu1", "pool1"]


@pytest.mark.parametrize(("paper", "name"), EVERY)
def test_no_exhibit_is_made_with_an_empty_column_of_ours(paper: str, name: str, material: Material) -> None:
    """Also where no run of several workers communicates (preset none), or nothing was measured, or predicted."""
    exhibit = of(PAPERS[paper], name)
    known = {table: material.tables[table] for table in exhibit.tables if table in material.tables}
    changed: list[dict[str, pd.DataFrame]] = [{}]
    changed += [{table: rows[rows["sync"] == "none"] for table, rows in known.items()
                 if "sync" in rows and "recipe" not in rows}]  # fmt: skip
    if "layer_times" in known:
        silent = {"sync": "none", "all_reduce_start": np.nan, "all_reduce_end": np.nan}
        changed += [{"layer_times": known["layer_times"].assign(**silent)}]
    for kind in ("measured_", "predicted_"):
        columns = {table: [one for one in rows if one.startswith(kind)] for table, rows in known.items()}
        changed += [{table: known[table].assign(**dict.fromkeys(of, np.nan)) for table, of in columns.items() if of}]
    for tables in [{**material.tables, **one} for place, one in enumerate(changed) if one or place == 0]:
        try:
            made = exhibit.make(Material(tables, PUBLISHED))
        except (Missing, NoData):
            continue
        if made.missing:
            continue
        if isinstance(made.content, Typeset):
            frame = made.content.frame
            columns = [name for name in frame if str(name).startswith(("ours", "predicted_communication"))]
            assert all((frame[column].fillna(0) != 0).any() for column in columns)
        else:
            chart = to_spec(made.content)
            for rows, field, panel in placed(chart):
                panels: defaultdict[object, list[object]] = defaultdict(list)
                for row in chart["datasets"][rows]:
                    panels[row.get(panel)].append(row.get(field))
                assert all(any(one is not None for one in values) for values in panels.values()), (field, panel)


def placed(chart: Spec, rows: str = "", panel: str = "") -> Iterator[tuple[str, str, str]]:
    """The data of each layer of a chart, the fields by which it places its marks, and that of its panels."""
    rows = chart.get("data", {}).get("name", rows)
    panel = chart.get("facet", {}).get("field", panel)
    for axis in ("x", "y") if "mark" in chart else ():
        if "field" in (encoding := chart.get("encoding", {}).get(axis, {})):
            yield rows, encoding["field"], panel
    parts = [
        chart.get("spec"),
        *(part for kind in ("layer", "hconcat", "vconcat", "concat") for part in chart.get(kind, [])),
    ]
    for part in filter(None, parts):
        yield from placed(part, rows, panel)


def test_the_fewest_workers_of_table_v_communicate(material: Material) -> None:
    predictions = material.tables["predictions"]
    silent = predictions.assign(sync="none", predicted_communication=0.0, measured_communication=0.0)
    both = {**material.tables, "predictions": pd.concat([predictions, silent])}
    assert "none" not in set(table(of(SHI, "table-5").make(Material(both, PUBLISHED)))["sync"])
    with pytest.raises(Missing, match="that communicate"):
        of(SHI, "table-5").make(Material({**both, "predictions": silent}, PUBLISHED))


def test_the_trace_of_a_run_that_nothing_predicts_is_the_same(material: Material) -> None:
    """As of imported runs alone; only the wait for data is told by the predictions."""
    tables = {**material.tables, "predictions": material.tables["predictions"].iloc[:0]}
    alone, beside = (table(of(SHI, "table-6").make(m)) for m in (Material(tables, PUBLISHED), material))
    pd.testing.assert_frame_equal(alone.iloc[1:], beside.iloc[1:])


def test_symbols_stand_beside_columns_that_are(nothing: Material) -> None:
    rows = table(of(SHI, "table-1").make(nothing))
    assert rows["symbol"].is_unique
    for row in rows.to_dict("records"):
        assert set(row["columns"].split(", ")) <= set(TABLES[row["table"]].names)


def test_hardware_speeds_are_those_that_were_measured(material: Material) -> None:
    rows = table(of(SHI, "table-2").make(material)).set_index("hardware")
    assert rows.at["GPU", "Cluster 1"] == "Tesla K80 (4)"
    assert rows.at["CPU", "cpu"] == "made-up CPU, 1 cores"
    triad = re.fullmatch(r"9 GB \((\S+) GB/s\)", rows.at["Memory", "cpu"])
    assert triad
    assert float(triad[1]) == pytest.approx(20, rel=0.05)
    # two nodes, ring: 2 (n - 1) / n · beta for each byte
    speed = re.search(r"2 workers, nodes: 2 \((\S+) GB/s\)", rows.at["Network", "cpu"])
    assert speed
    assert float(speed[1]) == pytest.approx(1 / synthetic.Truth().beta / 1e9, rel=0.1)


def test_measurements_of_the_dag_model(material: Material) -> None:
    rows = table(of(SHI, "table-5").make(material))
    assert set(rows["network"]) == {"alexnet", "googlenet"}
    assert (rows["nodes"] == 2).all()
    assert rows["predicted_forward"].gt(0).all()
    sizes = rows["data_bytes"] / rows["worker_batch"]
    assert sizes.round(3).nunique() == 1, "bytes of a sample"


def test_the_papers_z_stands_beside_the_pixels_that_are_computed(material: Material) -> None:
    sgemm = material.tables["sgemm"].query("network == 'alexnet'")
    both = pd.concat([sgemm, sgemm.replace({"layer": {"fc7": "conv1"}})])
    made = of(KEUPER, "table-3").make(Material({**material.tables, "sgemm": both}, PUBLISHED))
    rows = table(made).set_index("layer")
    assert rows.at["conv1", "printed_z"] == (227 - 5) ** 2
    assert rows.at["fc7", "printed_z"] is pd.NA


def test_softmax_takes_what_the_last_fully_connected_layer_gives(material: Material) -> None:
    """Of the made-up networks that is fc7, 4096 values."""
    rows = table(of(KEUPER, "table-3").make(material)).query("layer_type == 'softmax'")
    assert rows["network"].is_unique
    assert set(rows["published"]) == {"b × (I × 1 · 1 × 1)"}
    assert rows[["operations", "m", "k", "n"]].drop_duplicates().to_numpy().tolist() == [[64, 4096, 1, 1]]


# --- files ----------------------------------------------------------------------------------------

SUBSET = ("table-1", "fig-06", "fig-12")


def test_equal_records_give_equal_files_in_another_process(material: Material, tmp_path: Path) -> None:
    (tmp_path / "material").write_bytes(pickle.dumps((dict(material.tables), PUBLISHED)))
    program = (
        "import dataclasses, pickle, sys; from pathlib import Path\n"
        "from stallpoint_papers.exhibits import PAPERS, Material; from stallpoint_papers.make import make\n"
        "folder = Path(sys.argv[1]); tables, published = pickle.loads((folder.parent / 'material').read_bytes())\n"
        "paper = PAPERS['keuper-2016']\n"
        f"few = tuple(e for e in paper.exhibits if e.name in {SUBSET})\n"
        "make(dataclasses.replace(paper, exhibits=few), Material(tables, published), folder)\n"
    )
    make(replace(KEUPER, exhibits=tuple(of(KEUPER, name) for name in SUBSET)), material, tmp_path / "1")
    environment = {**os.environ, "PYTHONHASHSEED": "2"}
    subprocess.run([sys.executable, "-c", program, tmp_path / "2"], env=environment, check=True)
    names = sorted(file.name for file in (tmp_path / "1").iterdir())
    assert names == [
        *(f"fig-12.{kind}" for kind in sorted(FORMATS)), "index.json", "index.md",
        *(f"table-1.{kind}" for kind in ("csv", "md", "tex")),
    ]  # fmt: skip
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name
    assert b"CreationDate" not in (tmp_path / "1/fig-12.pdf").read_bytes()
    index: Mapping[str, Any] = json.loads((tmp_path / "1/index.json").read_text())
    states = {entry["name"]: entry["status"] for entry in index["exhibits"]}
    assert states == {"table-1": "made", "fig-06": "missing", "fig-12": "made"}
    assert "- Missing: no train cells with scaling: compute of alexnet" in (tmp_path / "1/index.md").read_text()
    page = papers_section([tmp_path / "1"], tmp_path).html
    assert "Keuper &amp; Pfreundt (2016): 2 of 3 exhibits from this study" in page
    assert "device: cuda</li>" in page
    assert page.count("data:image/svg+xml;base64,") == 1
    assert '<a href="1/fig-12.pdf">fig-12.pdf</a>' in page
    assert not re.search(r'src="(?!data:)', page)
    assert "&lt;" not in page


def test_a_table_with_an_empty_column_is_not_whole(material: Material, tmp_path: Path) -> None:
    paper = replace(SHI, exhibits=(of(SHI, "table-5"),))
    for name, tables in (
        ("all", material.tables), ("few", {**material.tables, "storage_rates": material.tables["storage_rates"][:0]})
    ):  # fmt: skip
        make(paper, Material(tables, PUBLISHED), tmp_path / name)
    entries = [json.loads((tmp_path / name / "index.json").read_text())["exhibits"][0] for name in ("all", "few")]
    assert [entry["status"] for entry in entries] == ["partly", "partly"]
    assert set(entries[1]["missing"]) - set(entries[0]["missing"]) >= {"no value in column bandwidth_io"}


def test_a_network_that_the_paper_calls_otherwise_stands_for_the_papers() -> None:
    times = pd.DataFrame({"network": ["alexnet", "alexnet-no-lrn", "lenet"], "value": [1, 2, 3]})
    found = Material({"a": times, "b": times[:1], "c": pd.DataFrame({"value": [4]})}, {}).renamed(papers.SHI.networks)
    assert found.tables["a"].to_dict("list") == {"network": ["alexnet", "lenet"], "value": [2, 3]}
    assert found.tables["b"]["value"].tolist() == [1], "where the study has no other"
