"""One iteration of each run in full, whatever was measured beside it."""

import numpy as np
import pandas as pd
from synthetic import Truth, study

from stallpoint.base.measured import kept
from stallpoint.models.answers.fitted import MAX_RANKS, cells_of_runs, median_iterations, median_tables

OPTIONS = {"storages": ("local",), "prefetches": (0,)}


def test_runs_are_those_on_most_nodes_that_ended_well() -> None:
    runs = study(nodes=(1, 2, 4), syncs=("naive", "wfbp"), repeats=2, **OPTIONS)["runs"]
    chosen = runs.set_index("cell").loc[sorted(cells_of_runs(runs))]
    assert set(chosen["nodes"]) == {4}
    assert sorted(path.split("/sync~")[1].split("/")[0] for path in chosen.index) == ["naive"] * 2 + ["wfbp"] * 2
    failed = runs.assign(status=np.where(runs["nodes"] > 2, "failed", "ok"))
    assert set(runs.set_index("cell").loc[sorted(cells_of_runs(failed)), "nodes"]) == {2}
    assert not cells_of_runs(runs[runs["ranks"] == 1])


def test_the_median_by_the_slowest_rank_with_its_slowest_ranks() -> None:
    measured = study(Truth(noise=0.1), nodes=(1, 20), syncs=("naive",), batch=320, repeats=1, **OPTIONS)
    cells = cells_of_runs(measured["runs"])
    (found,) = median_iterations(cells, measured["iterations"])
    for piece in np.array_split(np.arange(len(measured["layers"])), 3):
        found.add(measured["layers"].iloc[piece])
    (cell,) = cells
    iterations = kept(measured["iterations"]).query(f"cell == '{cell}'")
    walls = iterations.groupby("iteration")["iteration_time"].max()
    assert found.ranks["wall"].unique().tolist() == [np.quantile(walls, 0.5, method="lower")]
    assert found.ranks["iterations"].unique().tolist() == [len(walls)]
    every = iterations[iterations["iteration"] == found.ranks["iteration"].iloc[0]]
    assert len(every) == 20
    assert set(found.ranks["rank"]) == set(every.nlargest(MAX_RANKS, "iteration_time")["rank"])
    assert np.allclose(
        found.ranks["start"], every.set_index("rank")["start"][found.ranks["rank"]] - every["start"].min()
    )
    assert set(found.layers["rank"]) == set(found.ranks["rank"])
    assert found.layers.groupby("rank").size().nunique() == 1


def test_of_several_repeats_the_middle_one_and_nothing_of_nothing() -> None:
    measured = study(nodes=(1, 2), syncs=("naive",), repeats=3, **OPTIONS)
    found = median_iterations(cells_of_runs(measured["runs"]), measured["iterations"])
    for one in found:
        one.add(measured["layers"])
    ranks, layers = map(pd.DataFrame, median_tables(found))
    assert ranks["wall"].unique().tolist() == [sorted(one.ranks["wall"].iloc[0] for one in found)[1]]
    assert set(layers["cell"]) == set(ranks["cell"])
    assert [len(table) for table in median_tables([])] == [0, 0]
