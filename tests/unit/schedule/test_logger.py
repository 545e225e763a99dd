"""The logger plugin: what it supervises goes on, whatever becomes of what it shows."""

import io
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from snakemake.settings.types import OutputSettings
from snakemake_interface_logger_plugins.common import LogEvent

import snakemake_logger_plugin_stallpoint as plugin
from stallpoint.errors import CAUSES_KEY

CELL = "sgemm/network~alexnet/hardware~cpu/repeat~1"


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[plugin.LogHandler]:
    """The plugin of a run, which looks at logs and asks Slurm all the time."""
    handler = signal.getsignal(plugin.ENDING)
    monkeypatch.setattr(sys, "argv", ["snakemake"])
    monkeypatch.setenv(CAUSES_KEY, os.environ.get(CAUSES_KEY, ""))
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    monkeypatch.setattr(plugin, "LOOK_INTERVAL", 0.01)
    made = plugin.LogHandler(OutputSettings(), plugin.LogHandlerSettings(patience=0))
    made.stream = io.StringIO()
    yield made
    made.looking.set()
    signal.signal(plugin.ENDING, handler)


def until(happened: Callable[[], bool]) -> None:
    for _ in range(3000):
        if happened():
            return
        time.sleep(0.01)
    pytest.fail("it does not happen")


def test_a_job_that_never_starts_is_cancelled_though_progress_cannot_be_drawn(
    logger: plugin.LogHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def slurm(command: list[str], _: float) -> str:
        asked.append(command)
        return "7|PENDING|run|rule_measure_cpu_wildcards_cpu|PartitionTimeLimit\n"

    def defect(*_: float, **__: float) -> str:
        raise ZeroDivisionError("a planted defect")

    monkeypatch.setattr(plugin, "output_of", slurm)
    monkeypatch.setattr(plugin.terminal.Measuring, "bar", defect)
    log = tmp_path / "cpu.log"
    log.write_text(f"visit 1: {CELL} in 4.0 s\n")
    logger.facts = {"limit": 3.0}
    logger.measuring = plugin.terminal.Measuring({CELL: {"visits": 2, "seconds": 5}})
    logger.logs = {log: 0}
    until(lambda: logger.logs[log] > 0)
    with log.open("a") as file:
        file.write(f"visit 2: {CELL} in 4.0 s\n")
    with logger.busy:
        logger.queue.add_submitted("7", "measure_cpu")
    until(lambda: ["scancel", "7"] in asked and not logger.queue.jobs)
    assert isinstance(logger.stream, io.StringIO)
    lines = logger.stream.getvalue().splitlines()
    assert lines[0] == "Measuring on cpu ..."
    assert lines[1] == "! the progress is not shown (ZeroDivisionError: a planted defect); the run goes on"
    assert lines[-1] == "! job 7 will never start (PartitionTimeLimit): cancelled"
    assert sum("not shown" in line for line in lines) == 1


def event(message: str = "", **facts: object) -> logging.LogRecord:
    """An event as Snakemake logs it."""
    return logging.makeLogRecord({"msg": message, "levelno": logging.INFO, **facts})


def test_a_job_is_said_when_submitted_and_that_it_measures_only_once_it_does(
    logger: plugin.LogHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "output_of", lambda *_: None)
    log = tmp_path / "cpu.log"
    for job, nodes, file in ((3, {"nodes": 4}, log), (5, {}, tmp_path / "gpu.log")):
        facts = {"jobid": job, "log": [str(file)], "resources": nodes}
        logger.emit(event(event=LogEvent.JOB_INFO, rule_name=f"measure_{file.stem}", **facts))
        logger.emit(event(f"Job {job} has been submitted with SLURM jobid {40 + job} (log: slurm.log)."))
    log.write_text("first line\n")
    until(lambda: logger.logs[log] > 0)
    assert isinstance(logger.stream, io.StringIO)
    assert logger.stream.getvalue().splitlines() == [
        "job 43 (measure_cpu, 4 nodes) submitted",
        "job 45 (measure_gpu, 1 node) submitted",
        "Measuring on cpu ...",
    ]


@pytest.mark.parametrize(
    ("rules", "last"), [(("measure_cpu",), plugin.OLDER), (("collect", "report_page"), "Report: ")]
)
def test_an_answer_from_earlier_records_is_not_shown_after_a_cell_alone(
    logger: plugin.LogHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: tuple[str, ...], last: str
) -> None:
    monkeypatch.setattr(plugin, "output_of", lambda *_: None)
    (tmp_path / "conclusions.json").write_text("{}")
    (tmp_path / "report.html").touch()
    for job, rule in enumerate(rules):
        logger.emit(event(event=LogEvent.JOB_INFO, rule_name=rule, jobid=job, log=[], resources={}))
    logger.facts = {"results": str(tmp_path)}
    logger.finished = True
    logger.close()
    assert isinstance(logger.stream, io.StringIO)
    assert logger.stream.getvalue().splitlines()[-1].startswith(last)
