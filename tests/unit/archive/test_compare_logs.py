"""Logs of training beside each other: equal runs are not called changed, planted changes are, and where they lie."""

import json
from pathlib import Path

import numpy as np
import pytest

from stallpoint.archive.comparison.changes import Comparison
from stallpoint.archive.comparison.compare_two import compare_two, main
from stallpoint.base.frames import records
from stallpoint.base.priors import EQUAL_RUN
from stallpoint.base.section import Change
from stallpoint.base.statistics import Reals
from stallpoint.errors import InputError
from stallpoint_files.compare_files import log_places
from stallpoint_files.log_comparison import USUAL, LogChanges, LoggedRun, compare_logs

ITERATIONS = 200
USUALLY, MEAN, SHORT, LONG = range(4)
"""Rows of points of a comparison of logs."""


def run(random: np.random.Generator, apart: float, slower: float = 1.0, within: float = 0.004) -> Reals:
    of_run = slower * np.exp(apart * random.standard_normal())
    return np.asarray(0.2 * of_run * np.exp(within * random.standard_normal(ITERATIONS)))


def compared(*states: list[Reals], between: float = 0.0) -> LogChanges:
    old, new = ([LoggedRun(seconds, {}) for seconds in state] for state in states)
    return compare_logs(old, new, log_places(1), between)


def words(found: LogChanges | Comparison) -> list[str]:
    return [str(row["change"]) for row in records(found.rows) if row["subject"] == "point"]


def moved(found: LogChanges) -> bool:
    return bool({Change.SLOWER, Change.FASTER} & set(found.rows["change"]))


def write(path: Path, seconds: Reals, line: str = "step {number} step_time {seconds:.6f} s") -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(line.format(number=number, seconds=one) for number, one in enumerate(seconds)) + "\n")
    return str(path)


def test_equal_runs_are_not_called_changed_and_3_percent_is_seen_as_often_as_said() -> None:
    random = np.random.default_rng(1)
    equal = [compared(*([run(random, EQUAL_RUN.deviation)] for _ in range(2))) for _ in range(12)]
    assert sum(map(moved, equal)) == 0
    slowed = [compared([run(random, EQUAL_RUN.deviation)], [run(random, EQUAL_RUN.deviation, 1.03)]) for _ in range(12)]
    found = np.mean([Change.SLOWER in set(one.rows["change"]) for one in slowed])
    said = np.mean([one.power for one in slowed])
    assert found == pytest.approx(said, abs=0.15)
    assert said > 0.8


def test_less_is_seen_of_runs_that_are_further_apart() -> None:
    random = np.random.default_rng(2)
    pair = [run(random, 0.0)], [run(random, 0.0)]
    powers = [compared(*pair, between=between).power for between in (0.001, 0.01, 0.05)]
    assert powers == sorted(powers, reverse=True)
    assert powers[0] > 0.95
    assert powers[-1] < 0.05


def test_groups_of_three_show_3_percent_beside_half_a_percent_between_runs() -> None:
    random = np.random.default_rng(3)
    pairs = [[[run(random, 0.005, slower) for _ in range(3)] for slower in (1.0, 1.03)] for _ in range(12)]
    assert np.mean([moved(compared(*pair)) for pair in pairs]) >= 0.8


def test_repeats_that_contradict_the_prior_count_alone() -> None:
    random = np.random.default_rng(4)
    far_apart = [compared(*([run(random, 0.05) for _ in range(3)] for _ in range(2))) for _ in range(12)]
    assert sum(map(moved, far_apart)) <= 1
    assert all("more than" in one.notes[0] for one in far_apart)
    near = compared(*([run(random, 0.002) for _ in range(3)] for _ in range(2)))
    assert "together with 0.22 %" in near.notes[0]


def test_rare_long_iterations_are_in_the_mean_and_not_in_the_usual_iteration() -> None:
    random = np.random.default_rng(5)
    old, new = run(random, 0.0), run(random, 0.0)
    new[::20] += 1.0
    found = words(compared([old], [new]))
    assert found[MEAN] == Change.SLOWER
    assert found[USUALLY] not in (Change.SLOWER, Change.FASTER)


def test_data_dependent_iterations_of_equal_mean_differ_by_their_extremes() -> None:
    random = np.random.default_rng(6)
    spread = np.asarray(0.2 * random.permutation(np.linspace(0.85, 1.15, ITERATIONS)))
    found = words(compared([run(random, 0.0)], [spread]))
    assert (found[SHORT], found[LONG]) == (Change.FASTER, Change.SLOWER)
    assert not {found[USUALLY], found[MEAN]} & {Change.SLOWER, Change.FASTER}


def test_the_same_samples_in_the_same_order_cancel() -> None:
    random = np.random.default_rng(7)
    orders = [np.exp(random.uniform(-0.15, 0.15, ITERATIONS)) for _ in range(2)]
    same, other = (
        compared([run(random, 0.0) * orders[0]], [run(random, 0.0, 1.04) * order]) for order in (orders[0], orders[1])
    )
    assert words(same)[USUALLY] == Change.SLOWER
    assert words(other)[USUALLY] not in (Change.SLOWER, Change.FASTER)
    assert same.power > other.power


def test_the_digits_of_a_log_are_no_difference() -> None:
    assert not moved(compared([np.full(ITERATIONS, 0.17)], [np.full(ITERATIONS, 0.18)]))


def test_folders_and_lists_of_logs_are_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(8)
    old = [write(tmp_path / "old" / f"{one}.log", run(random, 0.005)) for one in range(3)]
    for one in range(3):
        write(tmp_path / "new" / f"{one}.log", run(random, 0.005, 1.05))
    found = compare_two(",".join(old), str(tmp_path / "new"))
    assert set(found.rows["old_visits"]) == {3} == set(found.rows["new_visits"])
    assert main([str(tmp_path / "old"), str(tmp_path / "new"), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["summary"][: len(found.notes)] != list(found.notes) == data["summary"][-len(found.notes) :]
    assert [row["network"] for row in data["answers"] if row["subject"] == "hardware"] == [USUAL]


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("Epoch: [0]  [{number}/200]  eta: 0:01:00  time: {seconds:.6f}  data: {data:.6f}  max mem: 100", ""),
        ("step {number} data 0{data_ms:.3f} ms step_time {seconds:.6f} s", ""),
        ("{number} took {seconds:.6f} read {data:.6f}", r"took (?P<seconds>\S+) read (?P<data>\S+)"),
    ],
)
def test_the_phase_that_moved_is_named(tmp_path: Path, line: str, pattern: str) -> None:
    random = np.random.default_rng(9)
    for name, data in (("old", 0.02), ("new", 0.04)):
        lines = [
            line.format(number=number, seconds=one + data, data=data, data_ms=1e3 * data)
            for number, one in enumerate(run(random, 0.0))
        ]
        (tmp_path / name).write_text("\n".join(lines))
    found = compare_two(str(tmp_path / "old"), str(tmp_path / "new"), pattern=pattern)
    assert words(found)[USUALLY] == Change.SLOWER
    assert any("phase that moved is data: 0.02 s before, 0.04 s now" in note for note in found.notes)


def test_other_phases_are_not_blamed(tmp_path: Path) -> None:
    random = np.random.default_rng(10)
    line = "iter {number} data_time: 0.02 s step_time {seconds:.6f} s"
    old, new = (write(tmp_path / name, run(random, 0.0, slower), line) for name, slower in (("o", 1.0), ("n", 1.1)))
    assert any("None of the phases" in note for note in compare_two(old, new).notes)


def test_several_tables_to_a_state_are_refused(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("gpus,s/iter\n1,1.0\n1,1.1\n")
    one, other = str(tmp_path / "a.csv"), str(tmp_path / "b.csv")
    with pytest.raises(InputError, match="only logs of training are several"):
        compare_two(f"{one},{other}", one)
