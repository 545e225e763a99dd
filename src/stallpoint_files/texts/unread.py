"""Formats that are recognised but not read: their names, and which file to give instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from stallpoint.errors import InputError
from stallpoint.inputs.documents import head
from stallpoint_files.texts import event_files


@dataclass(frozen=True)
class Unread:
    """A format that is recognised but not read."""

    what: str
    pattern: re.Pattern[bytes]
    """Pattern that occurs in the first bytes of the file."""
    give: str
    """File to give instead."""
    pasted: bool = False
    """Whether it is often pasted below sentences, which are read instead."""


_LOG = "the training's own log, or its rates on several worker counts"
_TRACE = "a trace of one slow step (torch.profiler, prof.export_chrome_trace)"
UNREAD = (
    Unread("a job script of LSF", re.compile(rb"(?m)^#BSUB\s"), _LOG),
    Unread("a manifest of Kubernetes", re.compile(rb"(?m)^apiVersion: \S"), _LOG),
    Unread("a py-spy dump", re.compile(rb"(?m)^Process \d+: .*\n(?:.*\n)?\s*Thread \S+ \((?:active|idle)"), _TRACE),
    Unread(
        "a flight recorder's dump",
        re.compile(rb"(?s)\A\s*(?:\x80.{0,40}|\{)\W{0,8}version.{0,2000}?(?:pg_config|nccl_version|entries)"),
        "its text by torchfrtrace, to find a hang; for slow steps " + _TRACE,
    ),
    Unread(
        "an event file of TensorBoard without rates or times of steps",
        event_files.BEGIN,
        "that of the process that logs them, or the training's log",
    ),
    Unread(
        "trainer_state.json of transformers without a time",
        re.compile(rb'(?s)\A\s*\{.*"log_history": \[.*"global_step"|\A\s*\{.*"global_step".*"log_history": \['),
        "train_results.json, or that of the end of the training (train_samples_per_second), or its log",
    ),
    Unread("a file of W&B", re.compile(rb"\A:W&B"), "the run's metrics as CSV (wandb.Api().run(...).history())"),
    Unread(
        "nvidia-smi topo",
        re.compile(rb"(?m)^\s*GPU0\s.*(?:CPU Affinity|NIC0|mlx)"),
        "the start of the run with NCCL_DEBUG=INFO",
    ),
    Unread(
        "nvidia-smi", re.compile(rb"(?m)\| NVIDIA-SMI \d|^# gpu +(?:pwr|sm|idx)|utilization\.gpu \[%\]"), _LOG, True
    ),
    Unread(
        "a summary of nsys stats",
        re.compile(rb"(?m)^ *\*\* .{1,60} Summary \(\w+\):\s*$"),
        "the .nsys-rep or its SQLite file",
    ),
    Unread("a log of MLPerf", re.compile(rb"(?m)^(?:\d+: ?)?:::MLLOG "), "a table of its minutes and worker counts"),
    Unread(
        "a collective that timed out",
        re.compile(
            rb"Watchdog caught collective operation timeout|Timed out waiting \d+ms for (?:recv|send) operation"
        ),
        "the records of a probe in the script, or py-spy dump of every rank: the one in no collective is the cause",
    ),
    Unread(
        "what a link or a collective carries, in words",
        re.compile(
            rb"(?is)\A(?!.*\b(?:train|fine-?tun|epoch|fsdp|ddp|zero|deepspeed|horovod|(?:img|images?|samples?|tok\w*|it)/s))"
            rb"(?=.*(?:bandwidth|\b(?:bus|alg) ?bw\b|"
            rb"nccl[-_ ]tests?|(?:reduce|sendrecv|gather)_perf|ib_\w+_bw|iperf|perftest|osu_\w+))"
            rb".*\d ?[GMT]i?b(?:it)?s?(?: ?/ ?s|ps)"
        ),
        "the output of all_reduce_perf, ib_write_bw or iperf3 as it was printed",
    ),
    Unread(
        "a log of losses without a rate or a time of a step",
        re.compile(rb"(?i)(?:loss\W{1,4}\d[^\n]{0,400}\n[^\n]{0,400}?){3}loss\W{1,4}\d"),
        "lines of it with the seconds of a step, on two counts of workers",
        True,
    ),
    Unread("a traceback", re.compile(rb"(?m)^Traceback \(most recent call last\):"), _LOG),
)
"""Formats in the order in which they are tried if no reader knows a text."""


def unread(path: Path) -> Unread | None:
    """Return the unread format of a file; None for other files."""
    begin = head(path)
    return next((one for one in UNREAD if one.pattern.search(begin)), None)


def refused(path: Path, one: Unread) -> InputError:
    """Return the error that names the file's format and what to give instead."""
    return InputError(f"{path}: {one.what}, which is not read; give {one.give}")
