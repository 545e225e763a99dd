"""What ended the processes of a visit, by what the launcher, the scheduler and the kernel say of it.

An end is a result of the cell (it cannot run here) only where there is evidence: a node that was lost, a cancelled job
or a time limit are none, and processes that died without a word are started once more (`session.Pool`).
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from stallpoint.errors import EXIT_BAD_INPUT

_SIGNALS = {signal.strsignal(number): int(number) for number in signal.Signals}
"""Numbers of signals by the words that Slurm's srun has for them: those of the C library."""
_NAMED = (
    r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on\s+signal (?P<signal>\d+)",
    rf"task (?P<rank>\d+): (?P<words>{'|'.join(map(re.escape, filter(None, _SIGNALS)))})",
)
"""How Open MPI's mpirun and Slurm's srun name a rank that a signal ended."""
_LEFT = re.compile(r"due to process rank (\d+) with PID \d+ on node \S+\s+exiting\s+improperly")
"""How mpirun names a rank that ended in the middle of it all, as if it had nothing more to do."""
_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals by which somebody asks processes to end."""
_OUT_OF_MEMORY = re.compile(r"oom[-_ ]kill|out[-_ ]of[-_ ]memory|exceeded (job|step) memory limit", re.IGNORECASE)
_NODE_LOST = re.compile(r"node[-_ ]fail|launch failed|error: node \S+ .*(down|not responding)", re.IGNORECASE)
_CANCELLED = ("CANCELLED", "TIME LIMIT", "interrupted by SIG")


@dataclass(frozen=True)
class End:
    """How the processes of one visit ended."""

    exit_code: int
    text: str
    """What they and their launcher said during the visit."""
    oom_kills: int = 0
    """Processes that the kernel of this node killed meanwhile for want of memory."""

    @property
    def died(self) -> str:
        """How the processes died: ``rank 3 was killed (signal 9)``, ``ended with exit status 1``.

        Empty if a node was lost, if somebody ended the processes, and if they reported invalid input.
        """
        if _NODE_LOST.search(self.text) or self.refused:
            return ""
        if named := self._rank:
            return f"rank {named[0]} {_by(named[1])}"
        if left := _LEFT.search(self.text):
            return f"rank {left[1]} left"
        number = self.exit_code - 128 if self.exit_code > 128 else -self.exit_code
        if any(words in self.text for words in _CANCELLED) or number in _ASKED:
            return ""
        return _by(number) if number > 0 else f"ended with exit status {self.exit_code}"

    @property
    def killed(self) -> bool:
        """Whether signal 9 ended the processes, and nobody asked for that."""
        return self.died.endswith(_by(signal.SIGKILL))

    @property
    def out_of_memory(self) -> str:
        """Why the cell cannot run here, if they were killed for want of memory; else nothing."""
        if not self.killed:
            return ""
        said = _OUT_OF_MEMORY.search(self.text)
        evidence = f"the log says {said[0]!r}" if said else "the kernel says so" if self.oom_kills > 0 else ""
        return f"{self.died}: out of memory, {evidence}" if evidence else ""

    @property
    def refused(self) -> str:
        """What they were given wrong, as they said it last; nothing where they ended otherwise."""
        errors = re.findall("^error: (.*)$", self.text, re.MULTILINE)
        return errors[-1] if errors and self.exit_code == EXIT_BAD_INPUT else ""

    @property
    def _rank(self) -> tuple[str, int] | None:
        """The rank that ended first and by which signal, if the launcher names one.

        The launcher then interrupts the others, and ends as they do. What was cancelled before, or says itself that it
        was interrupted, was killed later, for not ending in time.
        """
        for found in chain(*(re.finditer(pattern, self.text) for pattern in _NAMED)):
            groups = found.groupdict()
            number = int(groups.get("signal") or _SIGNALS[groups.get("words")])
            interrupted = re.search(rf"interrupted by SIG\w+: the rows of rank {found['rank']} ", self.text)
            if number not in _ASKED and not interrupted:
                return (found["rank"], number) if "CANCELLED" not in self.text[: found.start()] else None
        return None


def _by(number: int) -> str:
    """How a process ended that a signal ended."""
    how = "was killed" if number == signal.SIGKILL else f"crashed: {signal.strsignal(number) or 'unknown'}"
    return f"{how} (signal {number:d})"


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int:
    """Processes that the kernel of this node has killed for want of memory, anybody's; 0 where it does not say."""
    try:
        found = re.search(r"^oom_kill (\d+)$", vmstat.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
