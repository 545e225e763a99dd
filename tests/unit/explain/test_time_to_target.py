"""Time to a target: the halves of planted laws and of published runs, its verdict, and counts that were not run."""

import math
from pathlib import Path

import numpy as np
import pytest

from stallpoint.base.section import Finding
from stallpoint.cli import main
from stallpoint.models.convergence.steps import law
from stallpoint.models.convergence.time_to_target import RunsToTarget, seconds_to_target
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options
from stallpoint_files.targets import target_answers

HEAD = "series,gpus,global_batch,samples_to_target,minutes_to_target\n"
# MLPerf Training v4.0, closed, NVIDIA, H100-SXM5-80GB, Llama-2 70B LoRA: medians of ten runs (MLCommons,
# training_results_v4.0).
PUBLISHED = (
    HEAD + "llama2 70b lora,8,8,3072,27.2\nllama2 70b lora,64,8,3072,5.09\nllama2 70b lora,1024,128,11136,1.47\n"
)


def explained(folder: Path, content: str, **options: object) -> Finding:
    path = folder / "runs.csv"
    path.write_text(content)
    (finding,) = explain_files([str(path)], Options(**options)).answers  # type: ignore[arg-type]
    return finding


def planted(counts: tuple[int, ...], batches: tuple[float, ...], critical: float, overhead: float) -> str:
    """Runs whose samples follow the law of critical mini-batches; the overhead of steps grows with each doubling."""
    rows = []
    for n, batch in zip(counts, batches, strict=True):
        samples = 1e5 * float(law(np.ones(1), np.array([batch / critical]), np.ones(1))[0])
        seconds = samples / batch * (batch / n * 0.01 + overhead * math.log2(n))
        rows.append(f"{n},{batch:g},{samples:.6g},{seconds / 60:.6g}")
    return "gpus,global_batch,samples_to_target,minutes_to_target\n" + "\n".join(rows) + "\n"


def test_published_runs_lose_by_samples(tmp_path: Path) -> None:
    found = explained(tmp_path, PUBLISHED)
    assert (found.kind, found.verdict, found.unit) == ("time to target", "scales", "min")
    assert "from 64 to 1,024 each doubling needs 38 % more samples and loses 6 % of its rate" in found.words
    samples, seconds = found.causes
    assert (samples.name, seconds.name) == ("samples", "seconds")
    assert samples.share is not None
    assert seconds.share is not None
    # 16 times the GPUs are 3.46 times as fast.
    assert samples.share + seconds.share == pytest.approx(1 - 5.09 / 1.47 / 16, abs=0.01)
    assert samples.share > 4 * seconds.share
    assert any(note.startswith("worth it up to 64 GPUs: a doubling to 1,024 gains 36 %") for note in found.notes)


@pytest.mark.parametrize(
    ("critical", "overhead", "half"), [(100.0, 1e-4, "samples"), (1e6, 0.02, "seconds"), (3000.0, 0.05, "seconds")]
)
def test_the_half_that_loses_more_is_named(tmp_path: Path, critical: float, overhead: float, half: str) -> None:
    counts = (8, 16, 32, 64)
    found = explained(tmp_path, planted(counts, tuple(8.0 * n for n in counts), critical, overhead))
    assert found.causes[0].name == half
    assert found.causes[0].evidence == "loses more"
    assert f"{half} lose more" in found.words


def test_more_samples_than_workers_are_a_stall(tmp_path: Path) -> None:
    """Far above the critical mini-batch each doubling needs twice the samples."""
    counts = (8, 16, 32, 64)
    head, *rows = planted(counts, tuple(1000.0 * n for n in counts), 100.0, 0.0).splitlines()
    found = explained(tmp_path, "\n".join([head, *(5 * rows)]) + "\n")
    assert (found.verdict, found.is_bad) == ("stalls", True)
    assert "stops getting faster at 8 GPUs" in found.words
    assert main(["explain", str(tmp_path / "runs.csv")]) == 1


def test_ideal_workers_lose_nothing(tmp_path: Path) -> None:
    found = explained(tmp_path, planted((8, 16, 32), (64.0, 128.0, 256.0), 1e9, 0.0))
    assert (found.verdict, found.causes) == ("scales", ())
    assert found.notes[0].startswith("worth it up to 32 GPUs: each doubling gains half")


@pytest.mark.parametrize(("batch", "critical"), [(512.0, 5000.0), (2048.0, 1000.0)])
def test_minutes_of_a_count_are_in_their_interval(tmp_path: Path, batch: float, critical: float) -> None:
    counts = (8, 16, 32, 64, 128)
    content = planted(counts, (128.0, 128.0, 256.0, 256.0, batch), critical, 0.003)
    *rows, last = content.splitlines()
    truth = float(last.split(",")[-1])
    found = explained(tmp_path, "\n".join(rows) + "\n", at=(128,), at_batch=batch)
    (point,) = [one for one in found.points if "predicted" in one]
    assert point["workers"] == 128
    assert point["low"] < truth < point["high"] < 2.5 * point["low"]
    assert (found.value, found.low, found.high) == (point["predicted"], point["low"], point["high"])


def test_what_is_too_far_away_is_refused_with_what_would_tell(tmp_path: Path) -> None:
    first_two = "\n".join(PUBLISHED.splitlines()[:3]) + "\n"
    found = explained(tmp_path, first_two, at=(8192,), at_batch=1024.0)
    assert not any("predicted" in point for point in found.points)
    assert "not predicted" in found.beyond
    assert any("it would tell" in ask for ask in found.ask)


def test_a_known_benchmark_narrows_the_interval(tmp_path: Path) -> None:
    """Medians of MLPerf Training v2.0, A100-PCIe-80GB, H3C (MLCommons): 8 took 31.1 min."""
    head = "benchmark,accelerators,global_batch,samples_to_target,minutes_to_target"
    found = {}
    for name in ("resnet", "own"):
        content = f"{head}\n{name},1,1000,70464200,395.6\n{name},4,1632,44840800,60.7\n"
        one = explained(tmp_path, content, at=(8,), at_batch=3264.0)
        assert one.low is not None
        assert one.high is not None
        assert one.low < 31.1 < one.high
        found[name] = one.high / one.low
    assert found["resnet"] < 0.9 * found["own"]


@pytest.mark.parametrize("heading", ["Latency (in minutes)", "time_to_target_min", "TTT [min]"])
def test_published_minutes_are_times_to_a_target(tmp_path: Path, heading: str) -> None:
    found = explained(tmp_path, f"# of Accelerators,{heading}\n8,24.9\n16,14.8\n32,8.4\n")
    assert (found.kind, [point["minutes"] for point in found.points[:3]]) == ("time to target", [24.9, 14.8, 8.4])


@pytest.mark.parametrize(
    ("content", "series"),
    [
        ("benchmark,accelerator,gpus,global_batch,minutes_to_target\nflux1,B200,8,256,120\nflux1,B200,72,576,17\n"
         "flux1,GB300,72,576,14\nflux1,GB300,512,2048,5\n", [[120, 17], [14, 5]]),
        ("## rgat\n| GPUs | GBS | TTT (min) |\n|---|---|---|\n| 8 | 64 | 9 |\n| 16 | 64 | 5 |\n\n"
         "## bert\n| GPUs | GBS | TTT (min) |\n|---|---|---|\n| 8 | 64 | 6 |\n| 16 | 64 | 4 |\n", [[9, 5], [6, 4]]),
        ("gpus,global_batch,samples_to_target,ttt_minutes\n8,64,1e6,60\n16,128,1.1e6,33\n32,256,DNF,NC\n", [[60, 33]]),
        ("gpus,global_batch,epochs_to_target,epoch time (s)\n8,256,40,300\n32,1024,44,90\n", [[200, 66]]),
        ("TPU chips,global batch size,days_to_target\n256,4096,40\n512,4096,21\n", [[57600, 30240]]),
    ],
)  # fmt: skip
def test_series_of_tables_are_apart_and_times_are_minutes(
    tmp_path: Path, content: str, series: list[list[float]]
) -> None:
    path = tmp_path / "runs.md"
    path.write_text(content)
    found = explain_files([str(path)], Options()).answers
    minutes = [[point["minutes"] for point in one.points if "minutes" in point] for one in found]
    assert minutes == [pytest.approx(each) for each in series]


def test_unknown_samples_are_asked_for_and_no_cause_is_named(tmp_path: Path) -> None:
    """With a mini-batch that grows, lost minutes may be those of more samples."""
    found = explained(tmp_path, "gpus,global_batch,minutes_to_target\n8,64,120\n32,256,36\n128,1024,15\n")
    assert (found.causes, found.ask[0]) == ((), target_answers.NEEDED)


def test_one_count_and_no_run(tmp_path: Path) -> None:
    one = explained(tmp_path, HEAD + "a,8,8,3072,27.2\n")
    assert (one.verdict, one.value) == ("undecided", pytest.approx(27.2))
    path = tmp_path / "runs.csv"
    path.write_text(HEAD + "a,8,8,3072,27.2\na,16,8,3072,14\nb,8,8,3072,-\n")
    _, none = explain_files([str(path)], Options()).answers
    assert none.verdict == "withheld"


def test_repeats_are_the_noise_and_other_batches_no_repeats(tmp_path: Path) -> None:
    """Of a count with several mini-batches the fastest counts; runs with one mini-batch are repeats."""
    rows = ["8,64,1000,10", "8,64,1000,10.2", "16,64,1000,6", "16,128,1500,5", "32,128,1500,3"]
    found = explained(tmp_path, "gpus,global_batch,samples_to_target,minutes_to_target\n" + "\n".join(rows) + "\n")
    minutes = [point["minutes"] for point in found.points if "minutes" in point]
    assert minutes == pytest.approx([10.1, 5, 3])


def test_samples_follow_their_law_where_nothing_else_changes() -> None:
    """With workers as ideal as can be, minutes at a larger mini-batch are those of its samples."""
    batches = np.array([256.0, 512.0, 1024.0, 2048.0])
    samples = 1e5 * law(np.ones(4), batches / 500, np.ones(4))
    runs = RunsToTarget(batches / 8, batches, samples, samples / (batches / 8))
    needed = 1e5 * float(law(np.ones(1), np.array([8192 / 500]), np.ones(1))[0])
    low, high = np.quantile(seconds_to_target(runs, 1024, 8192.0), [0.05, 0.95])
    assert low < needed / 1024 < high
    assert high / low < 3
