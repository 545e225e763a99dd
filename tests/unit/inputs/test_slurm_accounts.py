"""Slurm's accounts: how often nodes fail and what they draw, as planted."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import gamma

from stallpoint.errors import InputError
from stallpoint_files import readers
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options
from stallpoint_files.jobs.slurm_account_answers import count_interval
from stallpoint_files.jobs.slurm_accounts import SlurmAccounts

HEAD = "JobID|State|ElapsedRaw|NNodes|ConsumedEnergyRaw"
RATE, WATTS = 0.02, 450


def accounts(path: Path, jobs: int, seed: int) -> Path:
    """Jobs of one day on eight nodes; a step of each job, and a job that never ran, count for nothing."""
    failed = np.random.default_rng(seed).random(jobs) < 1 - np.exp(-8 * RATE)
    lines = [HEAD, "0|CANCELLED by 1000|0|8|0"]
    for job, state in enumerate(np.where(failed, "NODE_FAIL", "COMPLETED"), start=1):
        energy = WATTS * 8 * 86400 if job % 2 else 0
        lines += [f"{job}|{state}|86400|8|{energy}", f"{job}.batch|{state}|86400|1|{energy}"]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_planted_failures_and_watts_are_found(tmp_path: Path) -> None:
    path = accounts(tmp_path / "sacct.txt", 60, seed=0)
    (finding,) = explain_files([str(path)], Options()).answers
    failures = path.read_text().count(".batch|NODE_FAIL")
    assert finding.value == pytest.approx(failures / 480)
    assert (finding.low, finding.high) == pytest.approx(tuple(end / 480 for end in count_interval(failures)))
    assert "a node draws 450 W, of the 50 % of node-time" in finding.fits
    assert "node_watts: 450" in finding.ask[0]


def test_nine_of_ten_intervals_hold_the_mean_of_counts() -> None:
    failing = 1 - np.exp(-8 * RATE)  # of a job that fails, the whole day counts here
    intervals = map(count_interval, np.random.default_rng(0).binomial(60, failing, 1000))
    assert 0.85 <= np.mean([low <= 60 * failing <= high for low, high in intervals]) <= 0.97


def test_sums_are_those_of_jobs_alone(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(f"{HEAD}\n7|NODE_FAIL|100|4|18446744073709551614\n7.0|FAILED|100|4|5\n8|TIMEOUT|50|2|1000\n")
    assert readers.read(path) == {"slurm-accounts": SlurmAccounts(2, 1, 500.0, 1000.0, 100.0)}


def test_without_energy_the_answer_says_so(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("JobID|State|ElapsedRaw|NNodes\n7|COMPLETED|86400|10\n")
    (finding,) = explain_files([str(path)], Options()).answers
    assert (finding.value, finding.low) == (0, 0)
    assert not finding.ask
    assert any(note.startswith("no energy") for note in finding.notes)
    path.write_text("JobID|JobName|State\n7|train|COMPLETED\n")
    with pytest.raises(InputError, match=r"line 1: no ElapsedRaw, NNodes; they are printed by  sacct --parsable2"):
        explain_files([str(path)], Options())
    path.write_text("JobID|State|ElapsedRaw|NNodes\n7|CANCELLED|0|10\n")
    with pytest.raises(InputError, match="without a job that ran"):
        explain_files([str(path)], Options())


@pytest.mark.parametrize("count", [1, 5, 419])
def test_the_interval_of_a_count_is_jeffreys(count: int) -> None:
    assert count_interval(count) == pytest.approx(tuple(gamma(count + 0.5).ppf([0.05, 0.95])), rel=0.08)
