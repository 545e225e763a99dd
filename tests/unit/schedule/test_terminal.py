"""What is said while a study runs: how far it is, what to act on, and how it ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.schedule import terminal
from stallpoint.schedule.terminal import Measuring, cell_in_words, failure, opening_lines
from stallpoint.text import in_round_words, in_seconds, in_words

NAIVE = (
    "train/network~alexnet/hardware~cpu/nodes~2/workers_per_node~1/batch~16/storage~jpeg/"
    "scaling~strong/sync~naive/prefetch~1/repeat~1"
)
ALONE = (
    "train/network~alexnet/hardware~cpu/nodes~1/workers_per_node~1/batch~4/storage~jpeg/"
    "scaling~compute/sync~none/prefetch~1/repeat~1"
)
SGEMM = "sgemm/network~alexnet/hardware~cpu/repeat~1"


def measuring() -> Measuring:
    """Four visits of 10 s to one cell, two of 5 s to another."""
    return Measuring({NAIVE: {"visits": 4, "seconds": 10}, SGEMM: {"visits": 2, "seconds": 5}})


def visited(found: Measuring, *paths: str, seconds: float | None = None) -> Measuring:
    """After a visit to each of the paths, as long as expected unless `seconds` says otherwise."""
    for number, path in enumerate(paths, 1):
        took = in_words(found.wanted[path]["seconds"] if seconds is None else seconds)
        assert list(found.read(f"visit {number}: {path} in {took}")) == []
    return found


@given(st.floats(0, 1e6))
def test_durations_are_read_as_they_are_said(seconds: float) -> None:
    told = in_seconds(in_words(seconds))
    assert told == pytest.approx(seconds, rel=0.01, abs=0.06)


def test_one_visit_to_a_cell_tells_how_long_the_next_ones_take() -> None:
    found = visited(measuring(), NAIVE, seconds=30)
    assert found.seconds_to_go == pytest.approx(3 * 30 + 2 * 15), "and of others that they take three times as long too"
    visited(found, SGEMM, seconds=4)
    assert found.seconds_to_go == pytest.approx(3 * 30 + 4)
    assert found.done == pytest.approx(34 / 128)


def test_what_is_left_is_what_visits_to_come_are_expected_to_take() -> None:
    found = visited(measuring(), NAIVE, SGEMM)
    assert found.seconds_to_go == 35
    assert found.done == pytest.approx(15 / 50)
    assert found.bar() == "[######--------------] 2 of 6 visits, ~35 s left: sgemm alexnet, 1 node"
    assert found.bar(slowdown=4) == "[######--------------] 2 of 6 visits, ~2 min left: sgemm alexnet, 1 node"
    assert found.bar(slowdown=4, limit=20) == "[###############-----] 2 of 6 visits, ~20 s left: sgemm alexnet, 1 node"
    assert Measuring(found.wanted).bar(limit=0).startswith("[--------------------] 0 of 6 visits")


def test_visits_beyond_those_that_were_expected_leave_the_bar_full() -> None:
    found = visited(measuring(), *[NAIVE] * 6, SGEMM, SGEMM)
    assert found.done == 1
    assert "] 8 visits, more where precision asks for them" in found.bar()


def test_more_visits_to_one_cell_do_not_stand_for_those_to_another() -> None:
    assert visited(measuring(), *[NAIVE] * 20).seconds_to_go == 10


def test_the_end_is_what_the_turns_say_whatever_was_expected() -> None:
    found = visited(measuring(), NAIVE)
    line = "the precision is reached; speedups to within 8.9% in the median, 9.1% at most"
    assert list(found.read(line)) == []
    assert (found.ended, found.done) == (line, 1)


def test_nothing_to_measure_has_no_time_left() -> None:
    assert (Measuring({}).done, Measuring({}).seconds_to_go) == (1, 0)


CELLS = [NAIVE.replace("batch~16", f"batch~{batch}") for batch in range(1, 10)]


def test_disturbed_cells_are_one_line_and_lost_visits_another() -> None:
    found = Measuring({})
    lines = [f"disturbed: {path}: visited again" for path in CELLS] + [f"disturbed: {CELLS[2]}: not visited again"]
    assert [words for line in lines for words in found.read(line)] == []
    again, lost = found.more_warnings()
    assert again.endswith(", visited again: alexnet naive, B = 1, 2 nodes and 7 more")
    assert lost.endswith(", not visited again: alexnet naive, B = 3, 2 nodes")
    assert (again.startswith("!"), lost.startswith("!")) == (False, True)


def test_a_reason_why_cells_cannot_run_is_said_once_and_others_by_number() -> None:
    found = Measuring({})
    said = [words for path in CELLS for words in found.read(f"cannot run: {path}: no CUDA device")]
    assert said == ["! alexnet naive, B = 1, 2 nodes cannot run here: no CUDA device"]
    assert list(found.more_warnings()) == ["! 8 more cells cannot run here"]
    found = Measuring({})
    many = [words for number, path in enumerate(CELLS) for words in found.read(f"cannot run: {path}: reason {number}")]
    assert len(many) == terminal.MAX_WARNINGS
    assert list(found.more_warnings()) == ["! 4 more cells cannot run here"]


def test_a_cell_that_cannot_run_says_why() -> None:
    (said,) = Measuring({}).read(f"cannot run: {NAIVE}: no CUDA device: 0 of 1")
    assert said == "! alexnet naive, B = 16, 2 nodes cannot run here: no CUDA device: 0 of 1"


def test_visits_that_cannot_run_do_not_count() -> None:
    found = visited(measuring(), SGEMM, NAIVE)
    visited(found, SGEMM, seconds=0)
    assert len(list(found.read(f"cannot run: {SGEMM}: no memory"))) == 1
    assert (found.made.total(), found.total, found.seconds_to_go, found.done) == (2, 5, 30, 15 / 45)


def test_progress_is_told_if_the_first_cells_cannot_run() -> None:
    found = visited(measuring(), SGEMM, NAIVE, seconds=0)
    assert found.slowdown(elapsed_seconds=7) == 1
    for path in (SGEMM, NAIVE):
        list(found.read(f"cannot run: {path}: no memory"))
    assert (found.made.total(), found.total, found.slowdown(elapsed_seconds=7)) == (0, 0, 1)
    assert visited(measuring(), NAIVE, seconds=20).slowdown(elapsed_seconds=60) == 3


def test_what_is_known_so_far_names_its_cell_in_words() -> None:
    (said,) = Measuring({}).read(f"so far: {NAIVE}: 1.30 times as fast as on 1 node (± 8 %)")
    assert said == "so far: alexnet naive, B = 16, 2 nodes: 1.30 times as fast as on 1 node (± 8 %)"


@pytest.mark.parametrize("line", ["", "iteration 1/3 after 0.8 s, about 1.6 s left", "Traceback", "visit x: y in z"])
def test_other_lines_say_nothing(line: str) -> None:
    found = measuring()
    assert list(found.read(line)) == []
    assert found.made.total() == 0


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (NAIVE, "alexnet naive, B = 16, 2 nodes"),
        (NAIVE.replace("strong", "weak"), "alexnet naive, b = 16, 2 nodes"),
        (ALONE, "alexnet computing, b = 4, 1 node"),
        (SGEMM, "sgemm alexnet, 1 node"),
        ("storage/storage~jpeg/hardware~cpu/nodes~2/repeat~1", "storage jpeg, 2 nodes"),
        (
            "collectives/hardware~cpu/nodes~4/workers_per_node~1/backend~mpi/reduction~library/repeat~1",
            "collectives, 4 nodes",
        ),
    ],
)
def test_cells_in_words(path: str, words: str) -> None:
    assert cell_in_words(path) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.3, "5 s"), (12, "10 s"), (54, "55 s"), (57, "1 min"), (200, "3 min"), (3570, "1 h 0 min"), (7500, "2 h 5 min")],
)
def test_times_left_have_no_more_digits_than_they_carry(seconds: float, words: str) -> None:
    assert in_round_words(seconds) == words


def test_the_opening_says_what_is_measured_how_long_and_that_it_can_be_stopped() -> None:
    wanted = measuring().wanted
    first, last = opening_lines("mine", wanted, (240, 480, 900), results="results/mine")
    assert first == "Study mine: 2 cells to measure, about 8 min (4 min to 15 min)."
    assert "Ctrl-C is safe" in last
    assert last.endswith("results/mine")


def test_the_warnings_of_the_plan_are_said_as_the_run_begins() -> None:
    _, *warned, _ = opening_lines("mine", measuring().wanted, (1, 2, 3), warnings=["cores: 4 threads on 2"])
    assert warned == ["! cores: 4 threads on 2"]


def test_what_is_left_out_is_said_but_not_at_any_length() -> None:
    _, *why, _ = opening_lines("mine", measuring().wanted, (1, 2, 3), [f"{count} × too large" for count in range(1, 9)])
    assert why[0] == "! excluded: 1 × too large"
    assert len(why) == terminal.MAX_WARNINGS + 1
    assert why[-1] == "! excluded for 3 more reasons: see snakemake -n"


def test_a_failed_job_shows_its_errors_and_its_log() -> None:
    log = "Traceback\n\nerror: no GPU on node2\nmore\n"
    assert list(failure("measure_k80", ["logs/k80.log"], log, "")) == [
        "! measure_k80 failed", "    error: no GPU on node2", "    log: logs/k80.log",
    ]  # fmt: skip
    ended = (
        "error: processes could not be started (exit status 7); logs/k80.log ends with\nno such host\nfirst: check\n"
    )
    assert list(failure("measure_k80", [], f"no such host\n{ended}", ""))[2:] == [
        "    no such host",
        "    first: check",
    ]
    said = list(failure("fit", ["logs/fit.log"], "\n".join(f"line {number}" for number in range(20)), "out of memory"))
    assert said[0] == "! fit failed: out of memory"
    assert said[1:-1] == [f"    line {number}" for number in range(14, 20)]
