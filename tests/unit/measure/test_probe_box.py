"""What a probe says at the end of a script: the rank, the phase and the layer where a wait was planted."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import planted_waits
import pytest
from launching import as_torchrun
from nightly import first_by_day

from stallpoint.measure.probe.probe_box import Diagnosis, last_diagnosis
from stallpoint.measure.probe.probe_box import diagnose as diagnose_runs
from stallpoint.measure.probe.probe_files import RankRecords, script_table
from stallpoint.measure.probe.probe_parts import RunPart, partial_costs
from stallpoint.measure.probe.probe_runs import RankRun, run_of
from stallpoint.measure.probe.probe_words import lines, summary
from stallpoint.measure.probe.probe_words import texts as texts_of_box
from stallpoint.records.parquet import to_arrow, write
from stallpoint.records.tables import ITERATIONS, LAYERS, PHASES, PROBES
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options

STEPS = 30
BUSY = {"data_wait": 1.0, "host_to_device": 0.2, "forward": 6.0, "backward": 12.0, "update": 0.8}
"""What a rank does in an iteration, ms."""
SENDING = 2.0
"""What the communication of an iteration takes beyond the backward pass, ms."""
NAMES = ("conv", "fc")


def diagnose(ranks: Mapping[int, RankRecords], fewer: RankRecords | None = None) -> Diagnosis | None:
    """The diagnosis of records in memory."""
    return diagnose_runs({rank: run_of(one) for rank, one in ranks.items()}, fewer and run_of(fewer))


def made(
    workers: int, seconds: Mapping[str, float], layers: Mapping[str, float], *, waits: float, late: float
) -> RankRecords:
    """The records of a rank: phases and layers as given, in ms, with a scatter of 2 %."""
    random = np.random.default_rng(len(seconds))
    scatter = 1e-3 * np.exp(0.02 * random.standard_normal(STEPS))
    phases = {phase: scatter * seconds.get(phase, waits) for phase in PHASES}
    iterations: dict[str, Any] = {column.name: [None] * STEPS for column in script_table(ITERATIONS).columns}
    iterations |= phases | {"iteration": np.arange(STEPS), "warmup": np.arange(STEPS) == 0, "rank": [0] * STEPS}
    empty = {column.name: [None] * STEPS * len(NAMES) for column in script_table(LAYERS).columns}
    of_layers = empty | {
        "rank": [0] * STEPS * 2, "iteration": np.repeat(np.arange(STEPS), 2), "warmup": [False] * STEPS * 2,
        "layer_index": [0, 1] * STEPS, "layer": list(NAMES) * STEPS, "layer_type": ["linear"] * STEPS * 2,
        "forward": np.outer(scatter, [layers["conv"] / 3, layers["fc"] / 3]).ravel(),
        "backward": np.outer(scatter, [layers["conv"], layers["fc"]]).ravel(),
        "gradient_ready": [0.018, 0.012] * STEPS, "all_reduce_start": [0.018 + 1e-3 * late] * STEPS * 2,
        "all_reduce_end": [0.02] * STEPS * 2, "gradient_bytes": [2**20] * STEPS * 2, "bucket": [0] * STEPS * 2,
        "bucket_bytes": [2**20] * STEPS * 2,
    }  # fmt: skip
    probe = {"script_ranks": workers, "layers": 2, "iterations": STEPS, "ended": "complete"}
    tables = ((ITERATIONS, iterations), (LAYERS, of_layers))
    return RankRecords(probe, {table.name: to_arrow(script_table(table), rows) for table, rows in tables})


def ranks(workers: int, slow: int | None, phase: str, wait: float = 50.0) -> dict[int, RankRecords]:
    """All ranks, with `wait` ms planted in the phase of one rank, or of all of them."""
    found = {}
    for rank in range(workers):
        here = slow in (rank, None)
        seconds, layers = dict(BUSY), {"conv": 4.0, "fc": 8.0}
        sends = phase == "exposed_communication"
        if here and not sends:
            seconds[phase] += wait
        if here and phase == "backward":
            layers["conv"] += wait
        if here and phase == "forward":
            layers["conv"] += 3 * wait
        waits = SENDING + wait * (sends or (slow is not None and not here))
        found[rank] = made(workers, seconds, layers, waits=waits, late=wait * (sends and here))
    return found


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("slow", [0, 1, None])
@pytest.mark.parametrize("phase", PHASES)
def test_the_rank_and_the_phase_of_a_wait_are_named(workers: int, slow: int | None, phase: str) -> None:
    found = diagnose(ranks(workers, slow, phase))
    assert found is not None
    assert (found.rank, found.phase) == (slow, phase)
    assert found.layer == ("conv" if phase in ("forward", "backward") else "")
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert (found.shares["waiting"] > 0.5) == (slow is not None)
    assert len(lines(found)) <= 6
    assert all(len(line) <= 140 for line in lines(found))


def test_ranks_that_differ_by_less_than_a_tenth_hold_nobody_up() -> None:
    found = diagnose(ranks(4, 2, "backward", wait=1.0))
    assert found is not None
    assert (found.rank, found.phase) == (None, "backward")


def test_a_layer_that_takes_little_of_the_wait_is_not_named() -> None:
    found = ranks(2, 1, "forward")
    quiet = made(2, BUSY | {"forward": 56.0}, {"conv": 4.0, "fc": 8.0}, waits=SENDING, late=0.0)
    said = diagnose({0: found[0], 1: quiet})
    assert said is not None
    assert (said.rank, said.phase, said.layer) == (1, "forward", "")


def test_ranks_without_records_are_counted_and_few_iterations_say_nothing() -> None:
    found = ranks(4, 1, "forward")
    said = diagnose({rank: found[rank] for rank in (0, 1, 2)})
    assert said is not None
    assert said.missing_ranks == 1
    short = {
        rank: RankRecords(one.probe, {**one.tables, "iterations": one.tables["iterations"][:4]})
        for rank, one in found.items()
    }
    assert diagnose(short) is None


@pytest.mark.parametrize(("batch", "high"), [(1.0, 2.0), (0.5, 2.0)], ids=["weak", "strong"])
def test_a_doubling_is_between_a_ring_and_communication_that_grows(batch: float, high: float) -> None:
    whole = sum(BUSY.values())
    before = made(
        2, {name: value / batch for name, value in BUSY.items()}, {"conv": 4.0, "fc": 8.0}, waits=2.0, late=0.0
    )
    now = {0: made(4, BUSY, {"conv": 4.0, "fc": 8.0}, waits=5.0, late=0.0)}
    found = diagnose(now, before)
    assert found is not None
    assert found.doubling is not None
    assert (found.doubling.fewer, found.doubling.workers) == (2, 4)
    ring = (whole + 5) / (whole * batch + 5) * (2 if batch == 1 else 1)
    grown = (whole + 5) / (whole * batch + 5 + 6) * (2 if batch == 1 else 1)
    assert found.doubling.high == pytest.approx(ring, rel=0.02)
    assert found.doubling.low == pytest.approx(grown, rel=0.02)
    assert found.doubling.high <= high


@pytest.mark.parametrize("named", ["", "rank~1", "rank~0/20260101/probes.parquet"])
def test_records_that_are_brought_are_explained_as_the_box_says(named: str, tmp_path: Path) -> None:
    planted = ranks(2, 1, "backward")
    for rank, found in planted.items():
        folder = tmp_path / f"rank~{rank}/20260101"
        row = {column.name: None for column in script_table(PROBES).columns}
        texts = {"parallelism": "ddp", "model": "Net", "cpus": "0-1", "unseen": ""}
        records = [{**row, **texts, **found.probe, "rank": rank, "threads": 1}]
        write(script_table(PROBES), records, folder / "probes.parquet")
        for table in (ITERATIONS, LAYERS):
            write(script_table(table), found.tables[table.name], folder / f"{table.name}~000000.parquet")
    explained = explain_files([str(tmp_path / named), str(tmp_path)], Options())
    assert [(one.file, one.recognised) for one in explained.inputs] == [(str(tmp_path), ("probe",))]
    (one,) = explained.answers
    expected = diagnose(planted)
    assert expected is not None
    said = texts_of_box(expected)
    assert (one.words, one.causes[0].words, one.ask) == (said["verdict"], said["why"], (said["next"],))
    assert one.words == "rank 1 holds the others up: the backward pass, layer conv"
    assert one.is_bad


def run(seed: int, iterations: int = 200) -> Any:
    """Two ranks' own work and times of steady iterations, [ranks, iterations, phases] in s."""
    random = np.random.default_rng(seed)
    usual = 1e-3 * np.array([BUSY.get(phase, SENDING) for phase in PHASES])
    return usual * np.exp(0.02 * random.standard_normal((2, iterations, len(PHASES))))


@pytest.mark.parametrize("who", [0, 1, slice(None)])
@pytest.mark.parametrize("phase", ["update", "data_wait"])
def test_rare_long_iterations_are_named_with_period_phase_and_rank(phase: str, who: int | slice) -> None:
    own = run(62)
    own[who, 19::20, PHASES.index(phase)] += 1.0
    (found,) = partial_costs([0, 1], own, own)
    assert (found.part, found.phase, found.period) == (RunPart.RARE, phase, 20)
    assert found.ranks == (() if who == slice(None) else (who,))
    assert found.more == pytest.approx(1.0, rel=0.01)


def test_a_rank_that_holds_others_up_by_less_than_they_send_is_said_beside_it() -> None:
    own = run(66, 100)
    own[..., PHASES.index("exposed_communication")] += 0.1
    own[0, :, PHASES.index("exposed_communication")] += 0.02
    own[1, :, PHASES.index("forward")] += 0.02
    one = replace(run_of(ranks(2, None, "forward")[0]), steps=np.arange(100), start=np.arange(100.0), states=[])
    found = found_of({rank: replace(one, phases=own[rank], entering=np.zeros(100)) for rank in range(2)})
    assert (found.phase, found.rank, found.behind) == ("exposed_communication", None, (1, "forward"))
    assert texts_of_box(found)["also"] == "rank 1 holds the others up: the forward pass"


@pytest.mark.parametrize("seed", range(8))
def test_other_work_on_the_machine_hides_no_period_and_makes_none(seed: int) -> None:
    """Every 16th iteration takes 1 s longer, and 5 of 101 at random up to 0.2 s; alone, these have no period."""
    own, random = run(seed, 101), np.random.default_rng(seed)
    other = random.choice(101, 5, replace=False)
    own[0, other, PHASES.index("forward")] += random.uniform(0.05, 0.2, 5)
    alone = [one.period for one in partial_costs([0, 1], own, own)]
    assert not any(alone), alone
    own[1, 15::16, PHASES.index("data_wait")] += 1.0
    found = partial_costs([0, 1], own, own)[0]
    assert (found.part, found.phase, found.ranks, found.period) == (RunPart.RARE, "data_wait", (1,), 16)


@pytest.mark.parametrize("part", [slice(0, 130), slice(60, 200), slice(50, 150)])
def test_a_rank_that_is_slow_in_a_part_of_the_run_is_named_with_its_begin_and_end(part: slice) -> None:
    own = run(63)
    own[1, part, PHASES.index("backward")] += 0.03
    times = own.copy()
    times[0, part, PHASES.index("exposed_communication")] += 0.03
    found = partial_costs([0, 1], own, times)[0]
    assert (found.part, found.phase, found.ranks) == (RunPart.HELD, "backward", (1,))
    assert abs(found.first - part.start) <= 2
    assert abs(found.last - part.stop) <= 2


def test_a_slow_begin_is_named_and_equal_iterations_have_no_parts() -> None:
    own = run(64)
    assert partial_costs([0, 1], own, own) == []
    own[:, :70, PHASES.index("data_wait")] += 0.02
    (found,) = partial_costs([0, 1], own, own)
    assert (found.part, found.phase, found.ranks) == (RunPart.FIRST, "data_wait", ())
    assert abs(found.last - 70) <= 2


def test_iterations_that_grow_over_the_run_are_a_decay_and_a_clock_that_fell_is_said() -> None:
    own = run(65)
    own[:, :, PHASES.index("forward")] *= np.linspace(1.0, 3.0, own.shape[1])
    (found,) = partial_costs([0, 1], own, own)
    assert (found.part, found.phase, found.ranks) == (RunPart.DECAY, "forward", ())
    none = dict.fromkeys(("frequency", "gpu_clock", "temperature", "memory", "device_memory"))
    clocks = [{**none, "backend": "gloo", "samples": None, "frequency": hertz} for hertz in (3e9, 1.5e9)]
    whole = run_of(ranks(1, None, "forward")[0])
    slower = replace(
        whole, steps=np.arange(200), start=np.arange(200.0), phases=own[0], entering=np.zeros(200), states=clocks
    )
    said = texts_of_box(found_of({0: slower}))
    assert "slower and slower" in said["verdict"]
    assert "clock of the CPUs 3 -> 1.5 GHz" in said["why"]


def test_ranks_are_alike_only_if_they_are() -> None:
    """Communication of two ranks, one of which has half as much again: neither waits for the other's own work."""
    own = {rank: run_of(one) for rank, one in ranks(2, None, "exposed_communication").items()}
    assert texts_of_box(found_of(own))["verdict"] == "mostly communication, on every rank alike"
    more = own[1].phases * [3 / 2 if phase == "exposed_communication" else 1 for phase in PHASES]
    assert texts_of_box(found_of({0: own[0], 1: replace(own[1], phases=more)}))["verdict"] == (
        "mostly communication, 51.7 ms on rank 0 to 77.6 ms on rank 1"
    )


@pytest.mark.parametrize("more", [1.0, 2.0])
def test_a_rank_with_more_samples_is_called_that_if_its_passes_are_longer_in_proportion(more: float) -> None:
    many = BUSY | {"forward": 2 * BUSY["forward"], "backward": 2 * BUSY["backward"]}
    slow = made(2, many, {"conv": 8.0, "fc": 16.0}, waits=SENDING, late=0.0)
    fast = made(2, BUSY, {"conv": 4.0, "fc": 8.0}, waits=SENDING + 18, late=0.0)
    states = [{"backend": "gloo", "samples": 8 * part} for part in (1.0, more)]
    runs = {
        rank: replace(run_of(one), states=[state])
        for rank, one, state in zip((0, 1), (fast, slow), states, strict=True)
    }
    said = texts_of_box(found_of(runs))
    assert said["verdict"].startswith("rank 1 holds the others up")
    assert ("2 times as many samples" in said["verdict"]) == (more == 2)
    assert ("as many samples for rank 1" in said["next"]) == (more == 2)


@pytest.mark.parametrize(
    ("backend", "words", "never"),
    [("nccl", "all_reduce_perf -b 2M -e 2M", "Gloo"), ("gloo", "over gloo (torch.distributed", "all_reduce_perf")],
)
def test_advice_fits_what_carries_the_messages(backend: str, words: str, never: str) -> None:
    runs = {
        rank: replace(run_of(one), states=[{"backend": backend, "samples": None}])
        for rank, one in ranks(2, None, "exposed_communication").items()
    }
    said = texts_of_box(found_of(runs))["next"]
    assert words in said
    assert "2.1 MB" in said
    assert never not in said


def found_of(runs: Mapping[int, RankRun]) -> Diagnosis:
    """The diagnosis of runs that are long enough for one."""
    found = diagnose_runs(runs)
    assert found is not None
    return found


PLANTED = [f"{where}:0.2:{who}" for where in planted_waits.WHERE for who in ("last", "all")]
PHASE_OF = dict(zip(planted_waits.WHERE, ("data_wait", "forward", "backward", "exposed_communication"), strict=True))


@pytest.fixture(scope="module", params=first_by_day([2, 4]))
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path, str]:
    """Workers, the folder of their records, and what rank 0 printed, of training with a wait planted in each case."""
    workers: int = request.param
    folder = tmp_path_factory.mktemp(f"planted{workers}")
    cases = [case.replace("last", str(workers - 1)) for case in PLANTED]
    variables = {"STALLPOINT_PROBE_BOX": "1", "PLANTED_WIDTH": "32"}
    said = as_torchrun(workers, planted_waits.__file__, "probe", 8, folder, *cases, **variables)
    assert not any("verdict" in text for text in said[1:]), "rank 0 speaks for all"
    return workers, folder, said[0]


@pytest.mark.ranks
@pytest.mark.parametrize("case", PLANTED)
def test_a_wait_in_real_training_is_found(case: str, trained: tuple[int, Path, str]) -> None:
    workers, folder, said = trained
    where, _, who = case.replace("last", str(workers - 1)).split(":")
    of_case = folder / case.replace("last", str(workers - 1))
    found = last_diagnosis(of_case)
    assert found is not None
    assert (found.phase, found.rank) == (PHASE_OF[where], None if who == "all" else int(who))
    assert found.layer == (planted_waits.PLANTED if where in ("forward", "backward") else "")
    shown = summary(of_case, workers)
    assert 4 <= len(shown) <= 7
    assert all(line in said for line in shown)
