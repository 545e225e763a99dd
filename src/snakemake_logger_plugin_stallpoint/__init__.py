"""Snakemake's terminal output for studies: progress, warnings, the answer (`stallpoint.schedule.terminal`).

``--logger stallpoint`` selects it, as the profile in profiles/default does. Dry runs, ``--quiet``, ``--verbose``, other
options on output and ``--logger-stallpoint-plain`` get Snakemake's own output.
"""

import argparse
import json
import logging
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from snakemake.logging import ColorizingTextHandler
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase
from typing_extensions import override

from stallpoint.errors import CAUSES_KEY, InputError
from stallpoint.schedule import terminal, without_home
from stallpoint.slurm import accounting, slurm_queue
from stallpoint.slurm.asking import on_clusters, output_of

# set here, as Snakemake loads plugins before it makes its cache, also in processes of jobs
without_home.keep_caches(Path("results", ".cache"))

ENDING = signal.SIGUSR1
"""Signal that ends the run as Ctrl-C does: SIGINT itself is ignored if a shell started Snakemake in the background."""
LOOK_INTERVAL, ASK_INTERVAL = 1.0, 20.0
"""Time between two looks at the logs of measuring jobs, and at Slurm's queue, s."""
_UNSHOWN = "the progress is not shown"
OLDER = "The answer and the report are older than these records: `snakemake` makes them again."
"""Printed in place of an answer from earlier records."""
_NOT_CANCELLED = "Unable to cancel jobs"
_SUBMITTED = re.compile(r"Job (\d+) has been submitted with SLURM jobid (\S+) ")


def check_configuration_files(arguments: list[str]) -> None:
    """Exit with one sentence, not Snakemake's traceback, if a configuration file of the command line is unreadable."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)  # `--config` is another option
    parser.add_argument("--configfile", "--configfiles", nargs="+", default=[])
    if files := parser.parse_known_args(arguments)[0].configfile:
        from stallpoint.study.configuration import check_keys  # a late import: it takes a third of a second

        for file in files:
            try:
                check_keys(Path(file))
            except InputError as error:
                sys.exit(f"The study is not valid.\n{error}")


# No ``from __future__ import annotations``, as Snakemake calls the types of the settings' fields.


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Options of the command line."""

    plain: bool = field(default=False, metadata={"help": "Print what Snakemake prints without this logger."})
    patience: int = field(
        default=60,
        metadata={"help": "Seconds after which a job is cancelled of which Slurm says that it can never start."},
    )


class LogHandler(LogHandlerBase):
    """Handler that prints Snakemake's events by `stallpoint.schedule.terminal`."""

    settings: LogHandlerSettings

    @override
    def __post_init__(self) -> None:
        check_configuration_files(sys.argv[1:])
        asked = self.common_settings
        options = (asked.dryrun, asked.verbose, asked.quiet, asked.printshellcmds, asked.debug_dag, self.settings.plain)
        self.stream: TextIO = sys.stdout if asked.stdout else sys.stderr
        self.snakemakes = ColorizingTextHandler(nocolor=asked.nocolor, stream=self.stream) if any(options) else None
        self.began = time.monotonic()
        self.facts: dict[str, Any] = {}
        self.measuring = terminal.Measuring({})
        self.logs: dict[Path, int] = {}
        self.begun: set[Path] = set()
        self.phases: set[str] = set()
        self.failed = self.interrupted = self.finished = self.idle = self.full = False
        self.rules: dict[int, str] = {}
        self.queue = slurm_queue.Queue()
        self.clusters: dict[int, str] = {}
        self.nodes: dict[int, int] = {}
        self.slurm_ids: dict[int, str] = {}
        self.printed_at = 0.0
        self.measuring_since = 0.0
        self.drawn = False
        self.looking = threading.Event()
        self.busy = threading.Lock()
        self.errors: set[str] = set()
        os.environ[CAUSES_KEY] = "" if self.snakemakes else "log"
        if not self.snakemakes:
            logging.raiseExceptions = False  # Snakemake's own log on a full disk: else a traceback for each line of it
            signal.signal(ENDING, signal.default_int_handler)
            # Snakemake warns so of a resource that depends on the size of future inputs: nobody can act on it.
            warnings.filterwarnings("ignore", "coroutine 'InputFiles.*was never awaited", RuntimeWarning)
            threading.Thread(target=self._watch, daemon=True).start()

    # --- events of Snakemake ------------------------------------------------------------------------

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Handle an event."""
        if self.snakemakes:
            if not hasattr(record, "stallpoint") or record.getMessage():
                self.snakemakes.setFormatter(self.formatter)
                self.snakemakes.emit(record)
            return
        with self.busy:
            try:
                self._handle(record)
            except Exception:  # an error in the output stops no study
                self.handleError(record)

    def _handle(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if self.interrupted and not record.getMessage().startswith(_NOT_CANCELLED):
            return
        if hasattr(record, "stallpoint"):
            self.facts |= record.stallpoint
        elif event == LogEvent.RUN_INFO:
            self._print_opening(record.stats)  # type: ignore[attr-defined]
        elif event == LogEvent.JOB_INFO:
            self._job_started(record)
        elif event == LogEvent.JOB_FINISHED:
            self.queue.ended(self.slurm_ids.pop(record.job_id, ""))  # type: ignore[attr-defined]
        elif event == LogEvent.JOB_ERROR:
            self.queue.ended(self.slurm_ids.pop(record.jobid, ""))  # type: ignore[attr-defined]
            self._job_failed(record)
        elif event == LogEvent.PROGRESS:
            self.finished = record.done == record.total  # type: ignore[attr-defined]
        elif event is None and record.levelno < logging.WARNING:
            self._handle_message(record.getMessage())
        elif record.levelno >= logging.WARNING and not terminal.is_noise(message := record.getMessage()):
            self.failed |= record.levelno >= logging.ERROR
            if not terminal.is_of_full_disk(message):
                self._print(message)
            elif not self.full:
                self.full = True
                self._print(terminal.DISK_FULL)

    def _print_opening(self, jobs: dict[str, int]) -> None:
        """Print the study's opening lines, if this run measures."""
        if self.facts.get("wanted") and any(rule.startswith("measure_") for rule in jobs):
            self.measuring = terminal.Measuring(self.facts["wanted"])
            names = ("study", "wanted", "seconds", "excluded", "results", "warnings")
            for line in terminal.opening_lines(**{name: self.facts[name] for name in names if name in self.facts}):
                self._print(line)

    def _job_started(self, record: logging.LogRecord) -> None:
        rule, logs = record.rule_name, record.log  # type: ignore[attr-defined]
        self.rules[record.jobid] = rule  # type: ignore[attr-defined]
        resources = record.resources  # type: ignore[attr-defined]
        self.nodes[record.jobid] = resources.get("nodes", 1)  # type: ignore[attr-defined]
        named = (resources.get(name) for name in ("cluster", "clusters", "slurm_cluster"))
        self.clusters[record.jobid] = next((str(name) for name in named if name), "")  # type: ignore[attr-defined]
        if rule.startswith("measure_"):
            self.measuring_since = self.measuring_since or time.time()
            self.logs |= dict.fromkeys(map(Path, logs), 0)
        elif rule in terminal.PHASES and rule not in self.phases:
            self.phases.add(rule)
            self._print(f"{terminal.PHASES[rule]} ...")

    def _job_failed(self, record: logging.LogRecord) -> None:
        self.failed = True
        logs = record.log  # type: ignore[attr-defined]
        text = "\n".join(Path(log).read_text(errors="replace") for log in logs if Path(log).is_file())
        for line in terminal.failure(record.rule_name, logs, text, record.rule_msg or ""):  # type: ignore[attr-defined]
            self._print(line)

    def _handle_message(self, message: str) -> None:
        if message.startswith("Terminating processes on user request"):
            self.interrupted = True
            self._print("\n".join(terminal.stopping_lines(self.queue.jobs)))
        elif message.startswith("Nothing to be done"):
            self.finished = self.idle = True
        elif submitted := _SUBMITTED.match(message):
            number, slurm_id = int(submitted[1]), submitted[2]
            self.slurm_ids[number] = slurm_id
            rule, nodes = self.rules.get(number, "a job"), self.nodes.get(number, 1)
            self._print(f"job {slurm_id} ({rule}, {nodes} node{'' if nodes == 1 else 's'}) submitted")
            self.queue.add_submitted(slurm_id, rule, self.clusters.get(number, ""))
        elif message.startswith("Complete log") and self.failed:
            self._print(message.replace("Complete log(s)", "Complete output of Snakemake"))

    # --- logs of measuring jobs ---------------------------------------------------------------------

    def _watch(self) -> None:
        asked = time.monotonic()
        while not self.looking.wait(LOOK_INTERVAL):
            with self._surviving_errors(_UNSHOWN), self.busy:
                self._print_news()
            if self.queue.jobs and time.monotonic() - asked >= min(ASK_INTERVAL, self.settings.patience):
                with self._surviving_errors("Slurm's queue is not watched"):
                    self._watch_queue()
                asked = time.monotonic()

    @contextmanager
    def _surviving_errors(self, what: str) -> Iterator[None]:
        """Keep errors in the block from the thread that supervises the run; print `what` and the reason once."""
        try:
            yield
        except Exception as error:
            if what not in self.errors:
                self.errors.add(what)
                with suppress(OSError), self.busy:
                    self._print(f"! {what} ({type(error).__name__}: {error}); the run goes on")

    def _watch_queue(self) -> None:
        """Print reasons for waiting; cancel jobs that will never start; end a run whose jobs are all gone.

        Snakemake's executor loses all jobs if Slurm's controller was away for long enough, and then waits for ever.
        """
        answer = output_of(self.queue.command, ASK_INTERVAL)
        now = time.monotonic()
        clusters = self.queue.clusters
        with self.busy:
            for line in self.queue.read(answer, now):
                self._print(line)
            for job, reason in self.queue.hopeless_jobs(now, self.settings.patience).items():
                self._print(f"! job {job} will never start ({reason}): cancelled")
                self.queue.ended(job)
                output_of(["scancel", *on_clusters([clusters[job]] if job in clusters else []), job], ASK_INTERVAL)
            gone = self.queue.gone_jobs(now)
            if self.interrupted or not gone or len(gone) < len(self.queue.jobs):
                return
            if not accounting.active(output_of(accounting.states_command(gone, set(clusters.values())), ASK_INTERVAL)):
                self._print(
                    f"! job {', '.join(gone)} has left Slurm's queue, and Snakemake has lost it: ending this run."
                )
                os.kill(os.getpid(), ENDING)
                self.queue.jobs.clear()

    def _print_news(self) -> None:
        """Print the news of the measuring jobs' logs."""
        before = self.measuring.made.total()
        for log, read in self.logs.items():
            if not self._is_of_this_run(log):
                continue
            if log not in self.begun:
                self.begun.add(log)
                self._print(f"Measuring on {log.stem} ...")
            for line in self._new_lines(log, read):
                for words in self.measuring.read(line):
                    self._print(words)
                if line and line == self.measuring.ended:
                    self._print(f"Measured {self.measuring.made.total()} visits: {line}.")
        if self.measuring.made.total() > before and not self.measuring.ended:
            self._draw()

    def _is_of_this_run(self, log: Path) -> bool:
        """Return whether the log is of this run: a job empties an earlier run's log when it begins."""
        return log.exists() and log.stat().st_mtime >= self.measuring_since - LOOK_INTERVAL

    def _new_lines(self, log: Path, read: int) -> list[str]:
        """Return the complete lines that the log has after its first `read` bytes."""
        with log.open("rb") as file:
            file.seek(read if log.stat().st_size >= read else 0)
            new = file.read()
            complete = new.rfind(b"\n") + 1
            self.logs[log] = file.tell() - len(new) + complete
        return new[:complete].decode(errors="replace").splitlines()

    # --- output -------------------------------------------------------------------------------------

    def _draw(self) -> None:
        """Redraw the progress bar; if lines cannot be redrawn, print it at milestones."""
        done = self.measuring.done
        took = time.time() - self.measuring_since
        bar = self.measuring.bar(self.measuring.slowdown(took), limit=max(0.0, self.facts["limit"] - took))
        if self.stream.isatty():
            self.stream.write(f"\r{bar}\x1b[K")
            self.stream.flush()
            self.drawn = True
        elif done >= self.printed_at + terminal.MILESTONE_FRACTION:
            self.printed_at = done
            self._print(bar)

    def _print(self, text: str) -> None:
        start = "\r\x1b[K" if self.drawn else ""
        self.drawn = False
        self.stream.write(f"{start}{text}\n")
        self.stream.flush()

    @override
    def close(self) -> None:
        """Print how the run ended; Snakemake may call this twice."""
        ended = self.looking.is_set()
        self.looking.set()
        if not (ended or self.snakemakes or self.interrupted):
            with self._surviving_errors(_UNSHOWN), self.busy:
                self._print_news()
            with self.busy:
                for line in self.measuring.more_warnings():
                    self._print(line)
                if self.finished and not self.failed:
                    took = None if self.idle else time.monotonic() - self.began
                    for line in terminal.closing_lines(took, *self._answer(), self.facts.get("archive", "")):
                        self._print(line)
        super().close()

    def _answer(self) -> tuple[list[str], str]:
        """Return the answer and the report's path if this run made them; `OLDER` if this run only measured."""
        if self.measuring_since and not self.phases & {"collect", "report_page"}:
            return [OLDER], ""
        results = self.facts.get("results", "")
        conclusions, report = (Path(results, name) for name in ("conclusions.json", "report.html"))
        elsewhere = self.phases and "report_page" not in self.phases
        if elsewhere or not results or not (conclusions.exists() and report.exists()):
            return [], ""
        # a late import, as every job loads this module
        from stallpoint.base.section_texts import sections_from_json, summary

        try:
            sections = sections_from_json(json.loads(conclusions.read_text()))
        except ValueError:  # another version's results, not made by this run
            sections = []
        return list(summary(sections)), str(report)

    @property
    @override
    def writes_to_stream(self) -> bool:
        """Return True, as the handler prints to the terminal."""
        return True

    @property
    @override
    def writes_to_file(self) -> bool:
        """Return False, as Snakemake's own log file stays as it is."""
        return False

    @property
    @override
    def has_filter(self) -> bool:
        """Return whether the handler filters events itself; plain output has Snakemake's filter."""
        return self.snakemakes is None

    @property
    @override
    def has_formatter(self) -> bool:
        """Return whether the handler formats events itself; plain output has Snakemake's formatter."""
        return self.snakemakes is None

    @property
    @override
    def needs_rulegraph(self) -> bool:
        """Return False, as the handler does not use the graph of rules."""
        return False
