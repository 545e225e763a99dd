"""Whether one-node cells may be visited side by side, which of them, and real visits side by side under mpirun."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from launching import VISITING, copied
from little import NETWORK
from visiting_cells import agenda, collectives, sgemm, train

from stallpoint.records import disturbances
from stallpoint.records.parquet import read
from stallpoint.records.tables import ITERATIONS, VISITS
from stallpoint.schedule import session
from stallpoint.schedule.next_visit import VisitedCell, due_cells
from stallpoint.schedule.session import TRIALS, SideBySide, measure_cells
from stallpoint.storage import Storage
from stallpoint.storage.generate import write_synthetic

pytestmark = pytest.mark.ranks


def many(count: int, *, visits: int = 4) -> list[VisitedCell]:
    return [VisitedCell(replace(train(visits=visits), batch=2 + number)) for number in range(count)]


def tried(*disturbances: float, spread: float = 0.002) -> SideBySide:
    company, noise = SideBySide(4, 1), random.Random(1)
    for disturbance in disturbances:
        alone = [noise.gauss(0, spread) for _ in range(4)]
        company.add([math.log1p(disturbance) + noise.gauss(0, spread) for _ in alone], alone)
    return company


def test_side_by_side_goes_on_where_it_disturbs_nothing() -> None:
    company = tried(*[0.0] * TRIALS)
    assert company.allowed
    assert "one-node cells go on side by side: with 3 others a cell takes" in company.found


@pytest.mark.parametrize("disturbance", [0.04, -0.04, 1.0])
def test_what_disturbs_is_not_done(disturbance: float) -> None:
    company = tried(*[disturbance] * TRIALS)
    assert company.allowed is False
    assert company.found.startswith("one-node cells go on one after the other: with 3 others a cell takes ")


def test_too_little_learned_is_no_permission() -> None:
    assert tried(*[0.0] * (TRIALS - 1)).allowed is None
    assert tried(0.05, -0.05, 0.06, -0.06, 0.05, -0.05).allowed is False


def test_a_disturbance_at_the_limit_passes_seldom() -> None:
    passed = 0
    for seed in range(400):
        noise, company = random.Random(seed), SideBySide(2, 1)
        for _ in range(TRIALS):
            company.add([math.log1p(session.MARGIN) + noise.gauss(0, 0.01)], [0.0])
        passed += bool(company.allowed)
    assert passed <= 0.08 * 400


def test_visits_that_fail_side_by_side_alone_end_the_trial() -> None:
    company = SideBySide(2, 1)
    company.add([None, None], [None, None])
    assert company.trial, "a cell that fails either way says nothing"
    company.add([0.0, None], [0.0, 0.0])
    assert company.allowed is False
    assert "failed" in company.found


def test_a_trial_is_made_where_it_pays() -> None:
    few, enough = many(9), many(10)
    assert SideBySide(4, 1).group(few, due_cells(few, 1)[0]) == [due_cells(few, 1)[0]]
    assert SideBySide(4, 1).group(enough, due_cells(enough, 1)[0]) == due_cells(enough, 1)[:4]
    assert SideBySide(1, 1).group(enough, 0) == [0]


def test_only_one_node_training_cells_of_one_set_of_processes_are_together() -> None:
    ring = train()
    ring = replace(ring, preset={**ring.preset, "reduction": "ring"})
    cells = [train(), replace(train(), batch=4), ring, train(2), sgemm(), collectives()]
    visited = [VisitedCell(cell) for cell in cells]
    company = SideBySide(4, 1, allowed=True)
    assert set(company.group(visited, 0)) == {0, 1}
    for place in (2, 3, 4, 5):
        assert company.group(visited, place) == [place]
    visited[1].durations.append(1.0)
    assert company.group(visited, 0) == [0], "the other one has had its visit of this round"
    assert SideBySide(4, 1, allowed=False).group(visited, 0) == [0]


def test_cells_move_from_node_to_node() -> None:
    company = SideBySide(4, 1)
    places = {tuple(company.on_nodes(2, number)) for number in range(50)}
    assert len(places) == 12
    assert all(len(set(nodes)) == 2 for nodes in places)


@pytest.mark.parametrize("within", [math.inf, pytest.param(0.0, marks=pytest.mark.night)])
def test_a_session_visits_side_by_side_what_its_trial_allows(
    within: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "TRIALS", 2)
    monkeypatch.setattr(session, "MARGIN", within)
    for name, value in {**VISITING, **copied()}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(disturbances, "MIN_SLOWDOWN", math.inf)  # what is measured so quickly is told from nothing
    Path("nets.py").write_text(NETWORK)
    write_synthetic(Storage("local", tmp_path / "images", "files"), 16, seed=1)
    entry = {"build": "nets.py:build", "image_size": 8}
    small = [replace(train(visits=4, network="own"), own_network=entry, batch=2 + number) for number in range(4)]
    cells = [*small, replace(train(2, visits=1, network="own"), own_network=entry)]
    ordered = agenda(cells, tmp_path / "visits")
    log = tmp_path / "turns.log"
    measure_cells(ordered, launcher="mpirun --oversubscribe  --bind-to none -n {ranks}", log=log)
    company = []
    for measurement in ordered.measurements():
        assert {path.name for path in measurement.folder.iterdir()} == {"record", measurement.done.name}
        rows = read(VISITS, measurement.folder / "record" / "visits.parquet").to_pandas()
        assert len(rows) >= measurement.cell.visits * measurement.cell.ranks
        if measurement.cell.nodes == 1:
            company += rows["concurrent"].tolist()
            iterations = read(ITERATIONS, measurement.folder / "record" / "iterations.parquet").to_pandas()
            assert iterations["iteration"].tolist() == list(range(len(rows))), "no visit of the trial is among them"
        else:
            assert (rows["concurrent"] == 0).all()
    assert company.count(0) >= 4, "two trials of two cells each, alone"
    assert company.count(1) >= 8 if within else set(company) == {0}
    verdict = "side by side" if within else "one after the other"
    assert f"one-node cells go on {verdict}: with 1 other a cell takes" in log.read_text()
