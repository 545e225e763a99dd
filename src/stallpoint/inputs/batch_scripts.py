"""Batch scripts of Slurm: what they ask for, and how they start the training."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stallpoint.inputs.documents import Document

_DIRECTIVE = re.compile(r"^\s*#SBATCH\s+(.*)")
_SHORT = {
    "-N": "--nodes",
    "-n": "--ntasks",
    "-c": "--cpus-per-task",
    "-G": "--gpus",
    "-t": "--time",
    "-p": "--partition",
}
LAUNCHERS = (
    "srun",
    "torchrun",
    "mpirun",
    "mpiexec",
    "deepspeed",
    "accelerate",
    "horovodrun",
    "torch.distributed.run",
    "torch.distributed.launch",
)


@dataclass(frozen=True)
class Command:
    """A command of the script, its continued lines joined."""

    line: int
    text: str
    words: Sequence[str]

    @property
    def launchers(self) -> list[str]:
        """Launchers in the order in which they start each other."""
        found = []
        for word in self.words:
            name = word.rsplit("/", 1)[-1]
            if name in LAUNCHERS:
                found.append("torchrun" if name.startswith("torch.") else name)
        return found

    def option(self, *names: str) -> str | None:
        """Return the value of the first such option, empty where it has none; None where it is not there."""
        return next((value for name, value in options(self.words) if name in names), None)


@dataclass
class BatchScript:
    """A script as Slurm gets it."""

    asked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Options of ``#SBATCH`` by their long names: value and line."""
    set: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Variables of the environment: value and line."""
    commands: list[Command] = field(default_factory=list)

    def number(self, name: str) -> int | None:
        """Return what an option asks for as a number, the last one in its value: ``gpu:a100:4`` is 4."""
        found = re.search(r"(\d+)\D*$", self.asked[name][0]) if name in self.asked else None
        return int(found[1]) if found and len(found[1]) < 10 else None


def options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options among words with their values."""
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, equal, value = word.partition("=")
            following = words[place + 1] if place + 1 < len(words) and not words[place + 1].startswith("-") else ""
            yield name.replace("_", "-"), value if equal else following
        elif short := re.match(r"(-[A-Za-z])(.*)", word):
            following = words[place + 1] if place + 1 < len(words) and not words[place + 1].startswith("-") else ""
            yield _SHORT.get(short[1], short[1]), short[2] or following


def recognised(document: Document) -> bool:
    """Return whether it is a script: it asks Slurm for something, or begins as one and starts a launcher."""
    if any(_DIRECTIVE.match(line) for line in document.raw_lines):
        return True
    return document.text.startswith("#!") and any(
        re.search(rf"(^|\s)({'|'.join(map(re.escape, LAUNCHERS))})(\s|$)", line) for line in document.raw_lines
    )


def read(document: Document) -> BatchScript:
    """Return what the script asks for and starts."""
    script = BatchScript()
    for number, line in _joined(document.raw_lines):
        if directive := _DIRECTIVE.match(line):
            for name, value in options(_words(directive[1].partition(" #")[0])):
                script.asked[name] = value, number
        elif line.strip() and not line.lstrip().startswith("#"):
            for name, value in re.findall(r"(?:^|\bexport\s+|;\s*|\benv\s+|\s)([A-Z][A-Z0-9_]+)=(\S*)", line):
                script.set[name] = value.strip("\"';"), number
            script.commands.append(Command(number, line.strip(), _words(line)))
    return script


def _joined(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with those that continue them, each with the number of its first."""
    held, start = "", 0
    for number, line in enumerate(lines, start=1):
        start = start if held else number
        if line.endswith("\\") and not line.lstrip().startswith("#SBATCH"):
            held += line[:-1] + " "
            continue
        yield start, held + line
        held = ""
    if held:
        yield start, held


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quotation that ends on another line
        return text.split()
