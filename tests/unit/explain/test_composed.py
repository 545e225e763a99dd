"""Runs of which files say what layers took: what nobody measured is predicted, from their own messages, and no more."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_study import SCHEMA

from stallpoint.archive.importing import import_cell
from stallpoint.inputs.layer_trace import TracedIteration, TracedLayer, to_text
from stallpoint.models import fitting
from stallpoint.questions.answer_question import beyond_in_words, sentence
from stallpoint.questions.answers import answers
from stallpoint.questions.claims.claim_files import claim_files, read_claims
from stallpoint.questions.claims.facts import facts
from stallpoint.questions.claims.judge import UNTESTED, judge
from stallpoint.questions.claims.quantity import Evidence
from stallpoint.questions.curves_question import verdict_in_words
from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.trust_question import model_errors
from stallpoint.records.parquet import read_frames
from stallpoint.records.tables import (
    CONVERGENCE_RUNS,
    EXTRAPOLATED_TABLES,
    INSTRUMENTATION,
    MODEL_TABLES,
    NETWORK_LAYERS,
    TIDY_TABLES,
)
from stallpoint.study.collect import collect_all
from stallpoint.study.configuration import PAPERS
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell, ImportedTrainCell
from stallpoint.study.study import expand

ALPHA, BETA = 150e-6, 1.2e-9
"""Of a round of a ring, s, and of a byte, s/B."""
LAYERS = {"conv1": (6e-3, 140_000), "conv2": (9e-3, 1_230_000), "fc6": (4e-3, 30_000_000), "fc7": (2e-3, 12_000_000)}
"""Forward pass of each layer, s, of which the backward pass takes twice as long, and bytes of its gradients."""
LOADING, UPDATE = 3e-3, 5e-3
TRACED, UNSEEN = (1, 2, 4, 8), 16
SHIPPED = sorted(map(str, (Path(__file__).parents[3] / "resources/claims").glob("*.yaml")))


def message(workers: int, size: int) -> float:
    """A ring all-reduce, s."""
    return 2 * (workers - 1) * ALPHA + 2 * (workers - 1) / workers * BETA * size


def iteration(workers: int) -> float:
    """Each layer's gradients go as soon as they are ready and no others go: weak scaling, s."""
    ready = done = 0.0
    for forward, size in reversed(LAYERS.values()):
        ready += 2 * forward
        done = max(done, ready) + (message(workers, size) if workers > 1 else 0.0)
    return LOADING + sum(forward for forward, _ in LAYERS.values()) + max(ready, done) + UPDATE


def trace(workers: int) -> str:
    layers = [
        TracedLayer(name, forward, 2 * forward, message(workers, size) if workers > 1 else 0.0, size)
        for name, (forward, size) in LAYERS.items()
    ]
    return to_text([TracedIteration(LOADING, layers)] * 3)


def study(folder: Path, took: Mapping[int, float] | None = None, traced: tuple[int, ...] = TRACED) -> dict[str, Any]:
    """A study of traces on so many workers and nothing else; iterations `took` so long, where that was measured."""
    traces = []
    for workers in traced:
        file = folder / f"on{workers}.txt"
        file.write_text(trace(workers))
        entry = {"files": str(file), "network": "alexnet", "nodes": workers, "batch": 32, "storage": "nfs"}
        entry |= {"scaling": "weak", "prefetch": 0, "update": UPDATE, "iterations": 3}
        traces.append(entry | ({"iteration_time": took[workers]} if took else {}))
    return {"study": "s", "hardware": {"k80": {"device": "cuda", "nodes": max(traced), "traces": traces}}}


def tables(folder: Path, **changes: Any) -> dict[str, pd.DataFrame]:
    """All tables of such a study, imported, collected and fitted."""
    cells = expand(study(folder, **changes), SCHEMA).cells.values()
    for cell in cells:
        assert isinstance(cell, ImportedTrainCell | ImportedCollectivesCell)
        import_cell(cell, folder / cell.path)
    files = {table.name: folder / f"{table.name}.parquet" for table in TIDY_TABLES}
    collect_all([folder / cell.path for cell in cells], files)
    tidy = read_frames(TIDY_TABLES, files)
    fitted = fitting.fit(tidy, nodes=[UNSEEN])
    return {**tidy, **{table.name: fitted[table.name] for table in MODEL_TABLES}}


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    return tables(tmp_path_factory.mktemp("composed"))


def test_four_traces_predict_more_workers_from_their_own_messages(composed: dict[str, pd.DataFrame]) -> None:
    found = composed["predictions"].set_index("ranks")
    assert list(found.index) == [*TRACED, UNSEEN]
    for workers in found.index:
        assert found["predicted_iteration"][workers] == pytest.approx(iteration(workers), rel=0.01)
        assert (
            found["predicted_iteration_low"][workers]
            <= iteration(workers)
            <= found["predicted_iteration_high"][workers]
        )
    law = composed["communication"].query("fit == 'place' and ranks > 1")
    assert sorted(law["ranks"]) == [2, 4, 8]


def test_a_trace_of_several_workers_alone_predicts_the_others(tmp_path: Path) -> None:
    found = tables(tmp_path, traced=(4,))["predictions"].set_index("ranks")
    assert found["predicted_iteration"][4] == pytest.approx(iteration(4), rel=0.01)
    assert found["predicted_iteration_low"][UNSEEN] <= iteration(UNSEEN) <= found["predicted_iteration_high"][UNSEEN]


def test_what_is_composed_is_not_measured(composed: dict[str, pd.DataFrame]) -> None:
    predictions = composed["predictions"]
    of_measured = [name for name in predictions if name.startswith("measured_") or name == "error"]
    assert predictions[of_measured].isna().all(axis=None)
    assert predictions["extrapolated"].all()
    for name in ("validation", "controls", "comparisons", "hidden_communication", "rates", "utilisation", "data_share",
                 "median_iterations"):  # fmt: skip
        assert composed[name].empty, name
    assert set(composed["critical_path"]["basis"]) == {"predicted"}
    (row,) = composed["stalling"].to_dict("records")
    assert (row["verdict"], row["verdict_ranks"], row["largest_measured"], row["basis"]) == (
        "undecided",
        0,
        0,
        "predicted",
    )
    assert len(composed["layer_times"]), "what the files say was measured, of the layers"


def test_no_claim_is_decided_by_what_is_composed(composed: dict[str, pd.DataFrame]) -> None:
    others = [*EXTRAPOLATED_TABLES, INSTRUMENTATION, CONVERGENCE_RUNS, NETWORK_LAYERS]
    empty = {table.name: pd.DataFrame(columns=table.names) for table in others}
    claims = read_claims(claim_files([PAPERS], SHIPPED))
    judged = {one.claim.id: one for one in judge(claims, Evidence({**empty, **composed}, facts(composed["runs"])))}
    of_errors = [judged[f"dag-error-{network}"].verdict for network in ("alexnet", "googlenet", "resnet50")]
    assert {*of_errors, judged["dag-describes-every-implementation"].verdict} == {UNTESTED}
    told = [
        (one.claim.id, entry.number.basis)
        for one in judged.values()
        for entry in one.combinations
        if not entry.number.missing
    ]
    assert all("measured" not in basis for _, basis in told), told


def test_what_is_said_says_that_nothing_was_measured(composed: dict[str, pd.DataFrame]) -> None:
    study = StudyTables(composed)
    (curve,), (found,) = study.curves, answers(study.curves)
    assert (curve.measured, model_errors(study)) == ([], {})
    assert verdict_in_words(curve) == (
        "undecided: no iteration was measured: they are composed of the times of their layers"
    )
    assert sentence(found).startswith("undecided, as no iteration was measured")
    assert beyond_in_words(found).startswith("no count was measured: predicted to ")


def test_measured_iterations_beside_layers_show_the_error_of_the_model(tmp_path: Path) -> None:
    """Twice as long as their layers make them on the most workers: the model is half of it off, only there."""
    took = {workers: iteration(workers) * (2 if workers == max(TRACED) else 1) for workers in TRACED}
    found = tables(tmp_path, took=took)
    errors = found["validation"].set_index("ranks")["error"]
    assert list(errors.index) == [4, 8]
    assert errors[4] == pytest.approx(0, abs=0.02)
    assert errors[8] == pytest.approx(-0.5, abs=0.02)
    measured = found["predictions"].set_index("ranks")["measured_iteration"]
    np.testing.assert_allclose(measured[list(TRACED)], list(took.values()), rtol=1e-6)
    (row,) = found["stalling"].to_dict("records")
    assert row["largest_measured"] == max(TRACED)
