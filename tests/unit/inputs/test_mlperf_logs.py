"""Result logs of MLPerf Training, in the form in which mlcommons/logging writes them and submissions quote them."""

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from stallpoint.errors import InputError
from stallpoint_files import readers
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options
from stallpoint_files.targets import mlperf_logs, target_answers
from stallpoint_files.targets.mlperf_logs import MlperfRun

STEP = 3.4


def line(key: str, value: object, at: float, kind: str = "POINT_IN_TIME", **metadata: object) -> str:
    """One event, as `mllog` prints it."""
    event = {
        "namespace": "", "time_ms": round(1000 * at), "event_type": kind, "key": key, "value": value,
        "metadata": {"file": "train.py", "lineno": 480, **metadata},
    }  # fmt: skip
    return f":::MLLOG {json.dumps(event)}"


def result(
    samples: int = 3072,
    batch: int = 8,
    step: float = STEP,
    prefix: str = "0: ",
    status: str = "success",
    begin: float = 1060.0,
) -> str:
    """A run of `samples`, which starts in 60 s and evaluates for 30."""
    end = begin + samples / batch * step + 30
    events = [
        line("cache_clear", True, 1000),
        line("submission_benchmark", "llama2_70b_lora", 1000),
        line("submission_platform", "2xNVIDIA GB200", 1000),
        line("global_batch_size", batch, 1001),
        line("train_samples", 3901, 1001),
        line("run_start", None, begin, "INTERVAL_START"),
        *(line("tracked_stats", {"train_step_time": 9.0 if one < 2 else step}, 1070, step=one) for one in range(8)),
        line("eval_start", None, end - 30, "INTERVAL_START", samples_count=samples),
        line("eval_stop", None, end, "INTERVAL_END", samples_count=samples),
        line("eval_accuracy", 0.92, end, samples_count=samples),
        line("run_stop", None, end, "INTERVAL_END", samples_count=samples, status=status),
    ]
    return "".join(f"{prefix}{one}\n" for one in ["+ srun hostname", *events])


def read(path: Path, text: str) -> MlperfRun:
    path.write_text(text)
    ((name, runs),) = readers.read(path).items()
    assert name == "mlperf"
    (run,) = runs
    assert isinstance(run, MlperfRun)
    return run


@pytest.mark.parametrize("prefix", ["", "0: ", " 0: ", "[0] ", "ray-training  | [0] "])
def test_a_run_is_read_behind_any_prefix(tmp_path: Path, prefix: str) -> None:
    run = read(tmp_path / "result_0.txt", result(prefix=prefix))
    assert (run.benchmark, run.batch, run.samples, run.workers) == ("llama2_70b_lora", 8, 3072, None)
    assert run.seconds == pytest.approx(3072 / 8 * STEP + 30)
    assert run.working_seconds == pytest.approx(3072 / 8 * STEP)
    assert (run.warm_up, run.evaluation) == (60, 30)


def test_published_lines_are_read(tmp_path: Path) -> None:
    """Lines of a BERT run on MI325X that its submitter quotes: epoch_num counts samples."""
    quoted = """0: :::MLLOG {"namespace": "", "time_ms": 1744838717800, "event_type": "INTERVAL_START", "key": "run_start", "value": null, "metadata": {"file": "run_pretraining.py", "lineno": 1706}}
0: :::MLLOG {"namespace": "", "time_ms": 1744839180558, "event_type": "POINT_IN_TIME", "key": "eval_accuracy", "value": 0.7209873199462891, "metadata": {"file": "run_pretraining.py", "lineno": 1984, "epoch_num": 2320253}}
0: :::MLLOG {"namespace": "", "time_ms": 1744839180559, "event_type": "INTERVAL_END", "key": "run_stop", "value": null, "metadata": {"file": "run_pretraining.py", "lineno": 2102, "status": "success"}}
"""  # noqa: E501
    run = read(tmp_path / "result_0.txt", quoted)
    assert run.samples == 2320253
    assert run.seconds == pytest.approx(462.759)


@pytest.mark.parametrize(
    ("benchmark", "train", "batch", "metadata", "samples"),
    [
        ("resnet", 1281167, 3200, {"epoch_num": 35}, 35 * 1281167),
        ("ssd", 4572, 256, {"epoch_num": 4}, 4 * 4572 * 256),
        ("ssd", 117266, 1024, {"epoch_num": 50}, 50 * 117266),
        ("unet3d", 168, 56, {"epoch_num": 342720}, 342720),
        ("gnn", 10, 4, {"step_num": 100}, 400),
        ("minigo", None, None, {"iteration": 40}, None),
    ],
)
def test_progress_becomes_samples(
    tmp_path: Path, benchmark: str, train: int | None, batch: int | None, metadata: dict, samples: int | None
) -> None:
    events = [
        line("submission_benchmark", benchmark, 0), line("global_batch_size", batch, 0),
        line("train_samples", train, 0), line("run_start", None, 1), line("eval_accuracy", 0.9, 50, **metadata),
        line("run_stop", None, 61, status="success"),
    ]  # fmt: skip
    run = read(tmp_path / "result_0.txt", "\n".join(events))
    assert (run.samples, run.seconds) == (samples, 60)


def submission(folder: Path, submitter: str, chip: str, steps: dict[int, float]) -> Path:
    """Two equal runs on each count, as submissions lay them out."""
    for nodes, step in steps.items():
        system = f"{submitter.lower()}_n{nodes}"
        place = folder / submitter / "results" / system / "llama2_70b_lora"
        place.mkdir(parents=True)
        for repeat in range(2):
            (place / f"result_{repeat}.txt").write_text(result(3072 + 192 * repeat, step=step))
        systems = folder / submitter / "systems"
        systems.mkdir(exist_ok=True)
        names = {"submitter": submitter, "number_of_nodes": f"{nodes}", "accelerators_per_node": 8}
        (systems / f"{system}.json").write_text(json.dumps({**names, "accelerator_model_name": chip}))
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_systems_of_a_folder_are_apart_and_repeats_together(tmp_path: Path, zipped: bool) -> None:
    folder = submission(tmp_path / "all", "Ash", "H100", {1: 3.4, 2: 1.8, 4: 1.0})
    submission(folder, "Birch", "H100", {1: 4.0, 2: 2.6})
    path = folder
    if zipped:
        path = tmp_path / "all.zip"
        with ZipFile(path, "w") as file:
            for one in sorted(folder.rglob("*")):
                file.write(one, one.relative_to(folder))
    found = explain_files([str(path)], Options())
    assert {one.recognised for one in found.inputs} == {("mlperf",)}
    ash, birch = found.answers
    assert [point["workers"] for point in ash.points if "minutes" in point] == [8, 16, 32]
    assert [point["workers"] for point in birch.points if "minutes" in point] == [8, 16]
    assert ash.subject.startswith("llama2_70b_lora Ash H100, 8-32 accelerators")
    assert ash.points[0]["minutes"] == pytest.approx((396 * 3.4 + 30) / 60)


@pytest.mark.parametrize("status", ["success", "aborted"])
def test_runs_one_after_another_in_a_log_are_apart(tmp_path: Path, status: str) -> None:
    """Of a log that several runs were appended to, each has its own clock; settings that are logged once stay."""
    first, second = result(status=status, prefix=""), result(3264, prefix="", begin=9000.0)
    second = "\n".join(one for one in second.splitlines() if "global_batch_size" not in one)
    (tmp_path / "all.log").write_text(first + second)
    runs = readers.read(tmp_path / "all.log")["mlperf"]
    seconds = [round(samples / 8 * STEP + 30, 1) for samples in (3072, 3264)]
    assert [run.seconds for run in runs] == [seconds[0] if status == "success" else None, seconds[1]]
    assert [run.batch for run in runs] == [8, 8]
    (found,) = explain_files([str(tmp_path / "all.log")], Options(workers=(8,))).answers
    median = sum(seconds) / 2 if status == "success" else seconds[1]
    assert found.value == pytest.approx(median / 60)


def test_processors_count_where_there_are_no_accelerators(tmp_path: Path) -> None:
    folder = submission(tmp_path, "Ash", "", {1: 3.4, 2: 1.8})
    for path in folder.rglob("*.json"):
        system = json.loads(path.read_text()) | {"accelerators_per_node": 0, "host_processors_per_node": "2"}
        path.write_text(json.dumps(system | {"host_processor_model_name": "Xeon"}))
    (found,) = explain_files([str(folder)], Options()).answers
    assert found.subject.startswith("llama2_70b_lora Ash Xeon, 2-4 ")


def test_without_a_system_the_count_is_asked_for(tmp_path: Path) -> None:
    files = []
    for count, step in ((8, 3.4), (16, 1.8), (32, 1.0)):
        files.append(str(tmp_path / f"{count}.txt"))
        Path(files[-1]).write_text(result(step=step))
    (asked,) = explain_files(files, Options()).answers
    assert asked.verdict == "undecided"
    assert "2xNVIDIA GB200" in asked.ask[0]
    (given,) = explain_files(files, Options(workers=(8, 16, 32))).answers
    assert given.verdict == "scales"
    with pytest.raises(InputError, match="2 counts for 3 result logs"):
        explain_files(files, Options(workers=(8, 16)))


def test_time_that_steps_do_not_explain_is_told(tmp_path: Path) -> None:
    """Of the shortest run 30 s of evaluation are over 5 %, of the longest they are not."""
    runs = [read(tmp_path / f"{name}.txt", result(step=step)) for name, step in (("long", 6.0), ("short", 0.5))]
    table = mlperf_logs.target_runs(runs, (8, 64))
    assert [(one.workers, one.needed) for one in table.runs] == [(8, runs[0].samples), (64, runs[1].samples)]
    (found,) = target_answers.answers(table, Options())
    (differs,) = [note for note in found.notes if "logged rate" in note]
    assert differs.startswith("64: samples at the logged rate would take 0.86 times the minutes")


def test_runs_that_failed_are_left_out(tmp_path: Path) -> None:
    run = read(tmp_path / "a.txt", result(status="aborted"))
    assert run.seconds is None
    table = mlperf_logs.target_runs([run], (8,))
    assert table.notes[0].startswith("1 of 1 runs did not reach")
    with pytest.raises(InputError, match="without run_start"):
        read(tmp_path / "b.txt", line("cache_clear", True, 0))
