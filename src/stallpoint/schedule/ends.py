"""What ended the processes of a visit, by what the launcher, the scheduler and the kernel say of it.

An end is a result of the cell (it cannot run here) only where there is evidence: a node that was lost, a cancelled job
or a time limit are none, and processes that were killed without a word are started once more (`session.Pool`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from stallpoint.errors import EXIT_BAD_INPUT

_KILLED = (137, -9)
"""Exit statuses of a process ended by signal 9, as shells and launchers (128 + 9) and Python give them."""
_NAMED = (r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal 9", r"task (\d+): Killed")
"""How Open MPI's mpirun and Slurm's srun name a rank that was killed."""
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
    def killed(self) -> str:
        """``rank 3 was killed``, or just ``killed``, where they were ended by signal 9, and by nobody's wish."""
        if _NODE_LOST.search(self.text):
            return ""
        if (rank := self._rank) is not None:
            return f"rank {rank} was killed (signal 9)"
        asked = any(words in self.text for words in _CANCELLED)
        return "killed (signal 9)" if self.exit_code in _KILLED and not asked else ""

    @property
    def out_of_memory(self) -> str:
        """Why the cell cannot run here, if they were killed for want of memory; else nothing."""
        if not self.killed:
            return ""
        said = _OUT_OF_MEMORY.search(self.text)
        evidence = f"the log says {said[0]!r}" if said else "the kernel says so" if self.oom_kills > 0 else ""
        return f"{self.killed}: out of memory, {evidence}" if evidence else ""

    @property
    def refused(self) -> str:
        """What they were given wrong, as they said it last; nothing where they ended otherwise."""
        errors = re.findall("^error: (.*)$", self.text, re.MULTILINE)
        return errors[-1] if errors and self.exit_code == EXIT_BAD_INPUT else ""

    @property
    def _rank(self) -> str | None:
        """The rank that ended first and by signal 9, if the launcher names one.

        The launcher then interrupts the others, and ends as they do. What was cancelled before, or says itself that it
        was interrupted, was killed later, for not ending in time.
        """
        for pattern in _NAMED:
            found = re.search(pattern, self.text)
            if found and not re.search(rf"interrupted by SIG\w+: the rows of rank {found[1]} ", self.text):
                return found[1] if "CANCELLED" not in self.text[: found.start()] else None
        return None


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int:
    """Processes that the kernel of this node has killed for want of memory, anybody's; 0 where it does not say."""
    try:
        found = re.search(r"^oom_kill (\d+)$", vmstat.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
