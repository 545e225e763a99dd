"""Programs that are killed, or refused by the file system, lose nothing: some points here, more by make chaos."""

import pytest
from planted_defects import ROOT, defects
from tally import tallies


@pytest.mark.parametrize(
    ("program", "every"),
    [("job: train", 40), ("job: cannot run", 20), ("copy of a record", 20), ("storage, again", 60), ("collect", 150)],
)
def test_a_program_that_is_killed_or_refused_loses_nothing(program: str, every: int) -> None:
    found = list(tallies("crash_points", program, "--every", str(every), "--faults", "kill -9", "ENOSPC"))
    assert [tally["fault"] for tally in found] == ["kill -9", "ENOSPC"]
    assert all(tally["trials"] > 0 for tally in found)
    assert [line for tally in found for line in tally["red"]] == []


def test_whatever_happens_every_cell_is_recorded_once() -> None:
    found = list(tallies("histories", "--examples", "30"))
    assert sum(tally["trials"] for tally in found) >= 30
    assert [line for tally in found for line in tally["red"]] == []


def test_defects_can_be_planted() -> None:
    # Whether each is found takes minutes: make chaos.
    assert len(defects()) >= 20
    for defect in defects():
        assert (ROOT / defect.file).read_text().count(defect.was) == 1, defect.name
