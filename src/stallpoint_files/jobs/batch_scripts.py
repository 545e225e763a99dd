"""Slurm batch scripts: requested resources, and the commands that start training."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from stallpoint.inputs.documents import SEARCHED_SIZE, Document
from stallpoint_files.sentences.unwrapped import is_prose
from stallpoint_files.texts.yaml_tables import yaml_table

_FILE = Path(__file__).with_name("starters.yaml")
_DIRECTIVE = re.compile(r"^\s*#SBATCH\s+(.*)")
_LONG = {
    "-N": "--nodes",
    "-n": "--ntasks",
    "-c": "--cpus-per-task",
    "-G": "--gpus",
    "-t": "--time",
    "-p": "--partition",
    "--tasks-per-node": "--ntasks-per-node",
}
_FROM_SLURM = {
    "SLURM_NNODES": "--nodes",
    "SLURM_JOB_NUM_NODES": "--nodes",
    "SLURM_NTASKS": "--ntasks",
    "SLURM_NTASKS_PER_NODE": "--ntasks-per-node",
    "SLURM_CPUS_PER_TASK": "--cpus-per-task",
}


@dataclass(frozen=True)
class Starter:
    """A program that starts another program, given after its own options."""

    flags: str = ""
    """The starter's options that take no value."""
    operands: int = 0
    """Number of words between the options and the started program, such as an image's name."""
    launches: bool = False
    """Whether it starts several processes."""
    shell: bool = False
    """Whether it starts what the word after ``-c`` says."""


@cache
def starters() -> dict[str, Starter]:
    """Return the starters (``starters.yaml``) by their command words; other programs are not understood."""
    return {name: Starter(**of) for name, of in yaml_table(_FILE)["starters"].items()}


_ALIASES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
}
_TOOLS = """source . cd export set unset module ml conda echo true test [ [[ mkdir cp mv rm ls tar rsync hostname date
    sleep nvidia-smi rocm-smi free df"""
_UNKNOWN = re.compile(r"\$\{?[\w@*]+(?:\[.*\])?\}?")
"""A word that the shell may expand to any number of words."""
_MAX_STARTS = 20
"""Maximum length of a chain of programs that start one another."""


@dataclass(frozen=True)
class Start:
    """A call of a starter, with its own options."""

    name: str
    words: Sequence[str]

    def option(self, *names: str) -> str | None:
        """Return the value of the first option with one of these names (may be empty); None if none is given."""
        return next((value for name, value in options(self.words) if name in names), None)


@dataclass(frozen=True)
class Command:
    """A command of the script, with variables replaced by their values."""

    line: int
    words: Sequence[str]
    starts: Sequence[Start] = ()
    """Starters in the order in which they start one another."""
    program: Sequence[str] = ()
    """The program started last, with its arguments."""

    @property
    def launchers(self) -> list[str]:
        """Names of those `starts` that start several processes."""
        return [one.name for one in self.starts if starters()[one.name].launches]

    @property
    def understood(self) -> bool:
        """Whether it is known which processes are started: by Python, or by a launcher other than ``srun`` alone."""
        if not self.starts or not self.program or _UNKNOWN.fullmatch(self.program[0]) or self.of_own:
            return False
        last = self.starts[-1].name
        return last == "python" or (starters()[last].launches and last != "srun")

    @property
    def of_own(self) -> bool:
        """Whether the program is a shell script of the user's, which may start anything."""
        return bool(self.program) and self.program[0].endswith(".sh")

    @property
    def prepares(self) -> bool:
        """Whether the command only prepares: a shell builtin, a usual small program, ``python -c``."""
        if not self.program:
            return not self.starts or not starters()[self.starts[-1].name].operands
        return self.program[0] in _TOOLS.split()

    @property
    def step(self) -> Start | None:
        """The ``srun`` with which the command begins, if any."""
        return self.starts[0] if self.starts and self.starts[0].name == "srun" else None


@dataclass
class BatchScript:
    """A batch script as Slurm reads it."""

    asked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Value and line of each ``#SBATCH`` option, by its long name."""
    set: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Value and line of each variable that the script sets, by name."""
    commands: list[Command] = field(default_factory=list)
    local_ranks: bool = False
    """Whether the script names each task's local rank, by which its program may choose a GPU."""

    def number(self, name: str) -> int | None:
        """Return the number that an ``#SBATCH`` option requests (4 for ``gpu:a100:4``); None without the option."""
        return _number(self.asked[name][0]) if name in self.asked else None

    def nodes(self, step: Start | None) -> int | None:
        """Return the number of nodes of a step, or else of the job; None if unknown."""
        if step and (stated := step.option("--nodes")) is not None:
            return _number(stated)
        if step and step.option("--ntasks") == "1":
            return 1
        return self.number("--nodes") or 1

    def tasks_per_node(self, step: Start | None) -> int | None:
        """Return the number of tasks that a step starts on a node; None if unknown."""
        if {"--ntasks-per-gpu", "--ntasks-per-socket", "--ntasks-per-core"} & set(self.asked):
            return None
        each, total, nodes = None, None, self.nodes(step)
        if step:
            each, total = step.option("--ntasks-per-node"), step.option("--ntasks")
        if each is None and total is None:
            each, total = (self.asked.get(name, (None, 0))[0] for name in ("--ntasks-per-node", "--ntasks"))
        if each is not None:
            return _number(each)
        tasks = _number(total) if total is not None else nodes
        return -(-tasks // nodes) if tasks and nodes else None


def options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the long names and values of the options in a command's words."""
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) and not words[place + 1].startswith("-") else ""
        if word.startswith("--"):
            name, equal, value = word.partition("=")
            name = name.replace("_", "-")
            yield _LONG.get(name, name), value if equal else following
        elif short := re.match(r"(-[A-Za-z]+)(.*)", word):
            yield _LONG.get(short[1], short[1]), short[2] or following


def recognised(document: Document) -> bool:
    """Return whether a text is a batch script: with ``#SBATCH`` lines, in sentences only beside a launcher, or a shell
    script that starts one."""
    if any(map(_DIRECTIVE.match, document.raw_lines)):
        return not is_prose(document.raw_lines) or _launches(document.text)
    if document.text.startswith(("export ", "srun ")):  # a log may be below the command
        return _launches(document.text.replace("\\\n", " ").strip().rpartition("\n")[2])
    return document.text.startswith("#!") and _launches(document.text)


def _launches(text: str) -> bool:
    names = {name.split()[0] for name, starter in starters().items() if starter.launches} | set(_ALIASES)
    return bool(re.search(rf"(?:^|\s)(?:{'|'.join(map(re.escape, names))})(?:\s|$)", text))


def read(document: Document) -> BatchScript:
    """Return the script's requests and commands."""
    script = BatchScript(local_ranks="SLURM_LOCALID" in document.text)
    for number, line in enumerate(document.raw_lines, start=1):
        if directive := _DIRECTIVE.match(line):
            for name, value in options(_words(directive[1].partition(" #")[0])):
                script.asked[name] = value, number
    shell = _Shell({name: script.asked[option][0] for name, option in _FROM_SLURM.items() if option in script.asked})
    for number, text in _statements("\n".join(document.raw_lines)):
        text = shell.run(text)
        for name, value in re.findall(r"(?:^|\s)([A-Z][A-Z0-9_]+)=(\S*)", text):
            script.set[name] = value.strip("\"';"), number
        script.commands.extend(_commands(number, text, shell, ()))
    return script


# --- statements and variables of a shell script ---------------------------------------------------

_SUBSTITUTED = r"\$\((?>(?:[^()]|\((?>(?:[^()]|\([^()]*+\))*)\))*)\)|`[^`]*`"
_QUOTED = rf"""'[^']*'|"(?>(?:\\.|{_SUBSTITUTED}|[^"\\])*)\""""
_REMARK = r"(?<![^\s;])\#[^\n]*"
_ARRAY = rf"\((?>(?:{_REMARK}|{_QUOTED}|{_SUBSTITUTED}|[^()])*)\)"
_PIECE = re.compile(
    rf"""(?P<dropped>{_REMARK}
        | <<<\s*(?:{_QUOTED}|\S+)
        | <<-?\s*["']?(?P<mark>\w+)["']?[^\n]*\n(?:.{{0,50000}}?\n)?\s*(?P=mark)(?=\n|\Z)    # a document in the script
        | (?:\d|&)?>>?&?[ ]*[^\s;&|]+)
    | \w+\+?={_ARRAY}|{_QUOTED}|{_SUBSTITUTED}|\\.|[\w./:=,@%+-]+
    | (?P<end>&&|\|\||[;\n|&])
    | .""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS = re.compile(r"\A(?:(?:then|do|else|if|elif|while|until|time|exec|!|\{|\()\s+)+")
_OPENS, _CLOSES = ("if ", "for ", "while ", "until ", "case ", "select "), ("fi", "done", "esac", "}")
_VARIABLE = re.compile(
    r"""(?<!\\)(?:"\$\{(?P<quoted>\w+)\[[@*]\]\}"|\$\{(?P<array>\w+)\[[@*]\]\}
    |\$\{(?P<braced>\w+)(?::?(?P<set>[-=])(?P<default>[^{}]*))?\}|\$(?P<plain>\w+))""",
    re.VERBOSE,
)
_DECLARES = re.compile(r"(?:export|declare|local|readonly|typeset)\s+(?:-\w+\s+)*")
_ASSIGNED = re.compile(rf"(\w+)(\+?)=({_ARRAY}|(?>(?:{_QUOTED}|\\.|{_SUBSTITUTED}|[^\s])*))\s*", re.DOTALL)
_LONGEST = 20_000
"""Maximum length of a variable's value: repeated doubling must not fill memory."""


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the simple commands of a script with their lines, without comments, redirections and here-documents."""
    line, start, held = 1, 0, ""
    for piece in _PIECE.finditer(text + "\n"):
        if piece["end"]:
            if held:
                yield start, held.rstrip()
            held = ""
        elif not piece["dropped"] and (held or not piece[0].isspace()):
            start = start if held else line
            held += piece[0].replace("\\\n", " ")
        line += piece[0].count("\n")


class _Shell:
    """Shell variables, as far as the script sets them; None for a variable with several possible values."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables: dict[str, str | None] = dict(variables)
        self.depth = 0

    def run(self, text: str) -> str:
        """Return the statement with variables replaced by their values, and remember its assignments."""
        if text.startswith(_OPENS) or text.endswith("{"):
            self.depth += 1
        elif text in _CLOSES:
            self.depth -= 1
        text = self.filled(_KEYWORDS.sub("", text))
        place = found.end() if (found := _DECLARES.match(text)) else 0
        while found := _ASSIGNED.match(text, place):
            place = found.end()
            self.assign(*found.groups())
        return text

    def assign(self, name: str, more: str, value: str) -> None:
        """Remember a variable's value; in a condition or loop, a second value makes the variable unknown."""
        value = re.sub(r"(?<=\s)#[^\n]*", "", value[1:-1]) if value.startswith("(") else re.sub("[\"']", "", value)
        before = self.variables.get(name, "")
        several = self.depth > 0 and before not in ("", value)
        if more:
            value = f"{before} {value}"
        unknown = several or (more and before is None) or len(value) > _LONGEST
        self.variables[name] = None if unknown else value

    def filled(self, text: str) -> str:
        """Return the text with variables replaced by their values; command substitutions become the word ``$_``."""

        def value(found: re.Match[str]) -> str:
            name = found["quoted"] or found["array"] or found["braced"] or found["plain"]
            if name not in self.variables and found["set"]:
                if found["set"] == "=":
                    self.variables[name] = found["default"]
                return found["default"]
            known = self.variables.get(name)
            return found[0] if known is None else known

        return _VARIABLE.sub(value, re.sub(_SUBSTITUTED, "$_", text))[: 10 * _LONGEST]


def _commands(line: int, text: str, shell: _Shell, outer: Sequence[Start]) -> Iterator[Command]:
    """Yield the commands of a statement, including those inside ``bash -c '...'``."""
    words = _words(text)
    starts: list[Start] = list(outer)
    program: Sequence[str] = words
    while True:
        while program and re.match(r"\w+=", program[0]):
            program = program[1:]
        if not program:
            break
        name = re.sub(r"^python3?[\d.]*$", "python", program[0].rsplit("/", 1)[-1])
        name = _ALIASES.get(name, name)
        name = next((one for one in (name, " ".join([name, *program[1:2]])) if one in starters()), "")
        if not name or len(starts) == _MAX_STARTS:
            break
        own, program = _split_options(starters()[name], program[1 + name.count(" ") :])
        starts.append(Start(name, own))
        if starters()[name].shell and len(own) > 1 and re.fullmatch(r"-\w*c", own[-2]):
            for _, inner in _statements(own[-1]):
                yield from _commands(line, shell.run(inner), shell, starts)
            return
    yield Command(line, words, starts, program)


def _split_options(starter: Starter, words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return a starter's own options, and the words of the program that it starts."""
    flags, place = starter.flags.split(), 0
    while place < len(words) and words[place].startswith("-"):
        word = words[place]
        place += 1
        if word == "--":
            break
        alone = word in flags or "=" in word or re.match(r"-[A-Za-z][^A-Za-z]", word)
        if not alone and place < len(words) and not words[place].startswith("-"):
            place += 2 if word.lstrip("-") == "mca" else 1
    return words[:place], words[place + starter.operands :]


def _words(text: str) -> list[str]:
    if len(text) > SEARCHED_SIZE:  # shlex takes quadratic time in a word's length
        return text.split()
    try:
        return shlex.split(text)
    except ValueError:  # a quote without an end
        return text.split()


def _number(text: str) -> int | None:
    """Return the number in an option's value: ``gpu:a100:4`` and ``gpu:4(S:0-1),nvme:100`` are 4."""
    parts = text.split(",")
    found = re.search(r"(?:^|:)(\d{1,9})(?:$|[(-])", next((one for one in parts if one.startswith("gpu")), parts[0]))
    return int(found[1]) if found else None
