"""Finds out what ended the processes of a visit, from messages of the launcher, the scheduler and the kernel.

An end is a result of the cell (it cannot run here) only with evidence. A lost node, a cancelled job or a time limit is
none; processes that died without a message are started once more (`session.Pool`).
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from stallpoint.errors import EXIT_BAD_INPUT

_SIGNALS = {signal.strsignal(number): int(number) for number in signal.Signals}
"""Numbers of signals by their names in messages of Slurm's srun, which are those of the C library."""
_NAMED = (
    r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on\s+signal (?P<signal>\d+)",
    rf"task (?P<rank>\d+): (?P<words>{'|'.join(map(re.escape, filter(None, _SIGNALS)))})",
)
"""Messages of Open MPI's mpirun and Slurm's srun about a rank that a signal ended."""
_EXITED_EARLY = re.compile(r"due to process rank (\d+) with PID \d+ on node \S+\s+exiting\s+improperly")
"""Message of mpirun about a rank that exited before MPI was finalised."""
_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that request processes to end."""
_OUT_OF_MEMORY = re.compile(r"oom[-_ ]kill|out[-_ ]of[-_ ]memory|exceeded (job|step) memory limit", re.IGNORECASE)
_NODE_LOST = re.compile(r"node[-_ ]fail|launch failed|error: node \S+ .*(down|not responding)", re.IGNORECASE)
_CANCELLED = ("CANCELLED", "TIME LIMIT", "interrupted by SIG")


@dataclass(frozen=True)
class End:
    """End of the processes of one visit."""

    exit_code: int
    text: str
    """Messages of the processes and their launcher during the visit."""
    oom_kills: int = 0
    """Number of processes that this node's kernel killed for lack of memory during the visit."""

    @property
    def died(self) -> str:
        """Description of how the processes died: ``rank 3 was killed (signal 9)``, ``ended with exit status 1``.

        Empty if a node was lost, if somebody ended the processes, and if they reported invalid input.
        """
        if _NODE_LOST.search(self.text) or self.refused:
            return ""
        if named := self._rank:
            return f"rank {named[0]} {_by(named[1])}"
        if early := _EXITED_EARLY.search(self.text):
            return f"rank {early[1]} exited early"
        number = self.exit_code - 128 if self.exit_code > 128 else -self.exit_code
        if any(words in self.text for words in _CANCELLED) or number in _ASKED:
            return ""
        return _by(number) if number > 0 else f"ended with exit status {self.exit_code}"

    @property
    def killed(self) -> bool:
        """Whether signal 9 ended the processes without a request to end."""
        return self.died.endswith(_by(signal.SIGKILL))

    @property
    def out_of_memory(self) -> str:
        """Reason why the cell cannot run here, if its processes were killed for lack of memory; else empty."""
        if not self.killed:
            return ""
        found = _OUT_OF_MEMORY.search(self.text)
        evidence = f"the log says {found[0]!r}" if found else "the kernel says so" if self.oom_kills > 0 else ""
        return f"{self.died}: out of memory, {evidence}" if evidence else ""

    @property
    def refused(self) -> str:
        """Last error message of the processes about invalid input; empty for any other end."""
        errors = re.findall("^error: (.*)$", self.text, re.MULTILINE)
        return errors[-1] if errors and self.exit_code == EXIT_BAD_INPUT else ""

    @property
    def _rank(self) -> tuple[str, int] | None:
        """The rank that ended first and its signal, if the launcher names one.

        The launcher then interrupts the others, and ends as they do. A rank that was cancelled before, or reports that
        it was interrupted, was killed later, for not ending in time.
        """
        for found in chain(*(re.finditer(pattern, self.text) for pattern in _NAMED)):
            groups = found.groupdict()
            number = int(groups.get("signal") or _SIGNALS[groups.get("words")])
            interrupted = re.search(rf"interrupted by SIG\w+: the rows of rank {found['rank']} ", self.text)
            if number not in _ASKED and not interrupted:
                return (found["rank"], number) if "CANCELLED" not in self.text[: found.start()] else None
        return None


def _by(number: int) -> str:
    """Return the description of a process's end by a signal."""
    how = "was killed" if number == signal.SIGKILL else f"crashed: {signal.strsignal(number) or 'unknown'}"
    return f"{how} (signal {number:d})"


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int:
    """Return the number of any processes that this node's kernel killed for lack of memory; 0 if unknown."""
    try:
        found = re.search(r"^oom_kill (\d+)$", vmstat.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
