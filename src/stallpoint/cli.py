"""The program ``stallpoint``: answers without a study. It needs neither Snakemake nor MPI.

Exit status: 0 if nothing is wrong; 1 if training stops getting faster, or something should be improved; 2 if a file or
option cannot be read; 3 if the files do not decide the question (the answer says which files would); 70 after a defect
of the program; 141 if the reader of the output closes it early.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict
from difflib import get_close_matches
from io import StringIO
from pathlib import Path

from stallpoint import __version__
from stallpoint.errors import EXIT_BAD_INPUT, EXIT_BAD_NEWS, InputError, program
from stallpoint.extras import load_named


def explain(arguments: Sequence[str]) -> int:
    """Say at how many workers training stops getting faster, and why, from files of any origin."""
    command: Callable[[Sequence[str]], int] = load_named("commands", "explain")
    return command(arguments)


def expect(arguments: Sequence[str]) -> int:
    """Predict the rate of a training from a description in words, and say which run would be informative."""
    command: Callable[[Sequence[str]], int] = load_named("commands", "expect")
    return command(arguments)


def compare(arguments: Sequence[str]) -> int:
    """Say what is slower than before: two archives, studies, tables of rates or logs that hold repeats."""
    from stallpoint.archive.comparison.compare_two import main

    return main(arguments)


def check(arguments: Sequence[str]) -> int:
    """Say what the node or allocation at hand gives a training job, and what to do where that is less than expected."""
    parser = argparse.ArgumentParser(
        prog="stallpoint check",
        description="Eleven lines about this node: cores, memory, MPI, Slurm, network, GPUs, NCCL, "
        "a two-second all-reduce, /dev/shm and home; started by srun or mpirun on several nodes, about all of them.",
        epilog="exit status: 0 nothing wrong, 1 something is to mend, 70 a defect of stallpoint",
    )
    parser.add_argument("--json", action="store_true", help="name, state, got, expected and advice of each")
    parser.add_argument("--cores", type=int, metavar="N", help="cores that each process is to have")
    options = parser.parse_args(arguments)
    from stallpoint.measure.machine.node_check import WRONG, check_node

    if options.cores is not None and options.cores < 1:
        raise InputError(f"--cores: {options.cores} is not a number above 0")
    found = check_node(options.cores)
    if options.json and found:
        print(json.dumps({"version": CHECK_VERSION, "checks": [asdict(one) for one in found]}, indent=1))
    elif found:
        print("\n".join(one.in_words() for one in found))
    return EXIT_BAD_NEWS if any(one.state == WRONG for one in found) else 0


CHECK_VERSION = 1
"""Version of the output format of ``check --json`` (docs/schemas/check.schema.json)."""
COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "explain": explain,
    "expect": expect,
    "compare": compare,
    "check": check,
}
"""Functions of the subcommands by name; each gets the further arguments and returns the exit status."""
EXAMPLES = (
    "  stallpoint explain rates.csv              where the rates stop, and why",
    "  stallpoint expect 'llama 3 8b bf16, zero 3, 2 x 8 a800, 10 GbE'",
    "  stallpoint compare before.log after.log   what is slower than before",
    "  stallpoint check                          what this node gives a job",
    "",
    '  eval "$(stallpoint --completion)"         completes in bash and zsh',
)


def completion() -> str:
    """Return shell code by which bash and zsh complete subcommands and options."""
    shell_cases = "".join(f'  {name}) words="{" ".join(_option_names(name))}";;\n' for name in COMMANDS)
    return f"""[ -n "$ZSH_VERSION" ] && autoload -U +X bashcompinit && bashcompinit
_stallpoint() {{
  local words="{" ".join(COMMANDS)}"
  [ "$COMP_CWORD" -gt 1 ] && case "${{COMP_WORDS[1]}}" in
{shell_cases}  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _stallpoint stallpoint
"""


def _option_names(name: str) -> list[str]:
    """Return the options in the help text of a subcommand."""
    with redirect_stdout(StringIO()) as text, suppress(SystemExit):
        COMMANDS[name](["--help"])
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text.getvalue())))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; return its exit status."""
    with program():
        return _run(list(sys.argv[1:] if arguments is None else arguments))


def _run(words: Sequence[str]) -> int:
    """Run the subcommand that is the first of `words`."""
    if words[:1] == ["--version"]:
        print(f"stallpoint {__version__}")
        return 0
    if words[:1] == ["--completion"]:
        print(completion(), end="")
        return 0
    if words and words[0] not in (*COMMANDS, "-h", "--help"):
        guess = get_close_matches(words[0], COMMANDS, 1) or (["explain"] if Path(words[0]).exists() else [])
        hint = f"; did you mean  stallpoint {guess[0]}{'' if guess[0] != 'explain' else ' FILE'}?" if guess else ""
        print(f"error: {words[0]} is no subcommand{hint}", file=sys.stderr)
    if not words or words[0] not in COMMANDS:
        commands = [f"  {name:<10}{(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
        help_is_requested = words[:1] in ([], ["-h"], ["--help"])
        lines = ["usage: stallpoint COMMAND ...", "", *commands, "", *EXAMPLES]
        print("\n".join(lines), file=sys.stdout if help_is_requested else sys.stderr)
        return 0 if words[:1] in (["-h"], ["--help"]) else EXIT_BAD_INPUT
    return COMMANDS[words[0]](words[1:])


if __name__ == "__main__":
    sys.exit(main())
