"""``stallpoint``: answers for whoever has no study. Neither Snakemake nor MPI is needed.

Exit status: 0 where nothing is wrong, 1 where training stops getting faster or something is there to mend, 2 where a
file or option cannot be read, 3 where the files do not decide it (the answer says what would), 70 at a defect of the
program, 141 where nobody reads the answer to its end.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import asdict
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from stallpoint import __version__
from stallpoint.errors import EXIT_BAD_INPUT, InputError, program

if TYPE_CHECKING:
    from stallpoint.explain.rate_answers import Options

EXIT_BAD_NEWS, EXIT_UNDECIDED = 1, 3
"""Exit statuses beside 0 and `EXIT_BAD_INPUT`."""


def explain(arguments: Sequence[str]) -> int:
    """Say at how many workers training stops getting faster, and why, from files that are at hand."""
    parser = argparse.ArgumentParser(
        prog="stallpoint explain",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Say at how many workers training stops getting faster, and why, from files that are at "
        "hand: tables of\n"
        "rates, training logs, logs of nccl-tests, OSU, IMB and NCCL_DEBUG=INFO, batch scripts, profiler traces.",
        epilog="examples:\n"
        "  stallpoint explain rates.csv                              gpus,img/s below each other\n"
        "  stallpoint explain 8.log 16.log 32.log --workers 8,16,32  logs that do not say their worker counts\n"
        "  echo '8 GPUs: 1500 img/s, 16 GPUs: 1600 img/s' | stallpoint explain -\n\n"
        "exit status: 0 nothing wrong, 1 it stalls or something is to mend, 2 cannot be read, 3 undecided, 70 a defect "
        "of\nstallpoint",
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="recognised by what is in them; a folder of traces, logs or tables; -: standard input",
    )
    parser.add_argument("--json", action="store_true", help="everything as JSON: inputs and answers")
    parser.add_argument("--html", type=Path, metavar="PATH", help="write a page with the curves to this file")
    parser.add_argument("--proposal", type=Path, metavar="PATH", help="write a page for a proposal for compute time")
    parser.add_argument("--training", type=float, metavar="N", help="samples (tokens, ...) that it asks to train on")
    parser.add_argument("--node-watts", type=float, metavar="W", help="power of a node")
    parser.add_argument("--node-price", type=float, metavar="PRICE", help="price of a node for an hour")
    parser.add_argument("--rates", choices=("all", "each"), default="", help="rates are of all workers, or of each")
    parser.add_argument(
        "--scaling", choices=("weak", "strong"), default="", help="each worker's mini-batch stays, or one is split"
    )
    parser.add_argument(
        "--workers",
        default="",
        metavar="N,...",
        help="workers of each log, in the order of the files; of an asked layout",
    )
    parser.add_argument("--workers-per-node", type=float, metavar="N", help="where the table does not say it")
    parser.add_argument("--batch", type=float, metavar="SAMPLES", help="in a worker's mini-batch")
    parser.add_argument("--link", default="", help="what connects workers: Gbit/s, or hdr, ndr, nvlink4, 4xhdr, ...")
    parser.add_argument(
        "--pattern", default="", help="regular expression for training logs, with (?P<rate>...) or (?P<seconds>...)"
    )
    parser.add_argument(
        "--setup",
        default="",
        metavar="TEXT",
        help="model, precision and GPU (llama 3 8b bf16 h100), to compare with published rates",
    )
    parser.add_argument("--at", default="", metavar="N,...", help="predict these worker counts")
    parser.add_argument("--at-batch", type=float, metavar="SAMPLES", help="in the mini-batch of all workers there")
    parser.add_argument("--threshold", type=float, default=0.1, help="what a doubling has to gain (%(default)s)")
    given = parser.parse_args(arguments)
    from stallpoint.explain.rate_answers import Options

    _check_positive("--workers-per-node", given.workers_per_node)
    _check_positive("--batch", given.batch)
    _check_positive("--at-batch", given.at_batch)
    _check_positive("--node-watts", given.node_watts)
    _check_positive("--node-price", given.node_price)
    if given.training is not None and not 0 < given.training <= 1e18:
        raise InputError(f"--training: {given.training} is not a number above 0")
    if not 0 < given.threshold < 1:
        raise InputError(f"--threshold: {given.threshold} is no fraction between 0 and 1")
    options = Options(
        given.rates,
        given.scaling,
        given.threshold,
        given.workers_per_node,
        given.batch,
        _counts("--workers", given.workers),
        given.pattern,
        given.link,
        given.setup,
        _counts("--at", given.at),
        given.at_batch,
    )
    with _with_input(given.files) as files:
        return _explained(files, given, options)


@contextmanager
def _with_input(names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names of files, with one that holds the standard input for ``-``."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "input")
        if "-" in names:
            file.write_bytes(sys.stdin.buffer.read())
        yield [str(file) if name == "-" else name for name in names]


def _explained(files: Sequence[str], given: argparse.Namespace, options: Options) -> int:
    from stallpoint.base.stall import Verdict
    from stallpoint.explain.answering import explain_files

    found = explain_files(files, options)
    if given.html:
        from stallpoint.records.atomic import atomic
        from stallpoint.report.answer_page import to_html

        with atomic(given.html) as scratch:
            scratch.write_text(to_html(found), encoding="utf-8")
    if given.proposal:
        from stallpoint.questions.proposal import Training
        from stallpoint.records.atomic import atomic
        from stallpoint.report import proposal_page

        training = Training(given.training, given.node_watts, given.node_price)
        text = proposal_page.to_html((curve, training) for curve in proposal_page.curves(files, options))
        with atomic(given.proposal) as scratch:
            scratch.write_text(text, encoding="utf-8")
    if given.json:
        print(json.dumps(found.to_json(), indent=1, allow_nan=False, default=float))
    else:
        print(found.in_words(), end="")
    if any(answer.bad for answer in found.answers):
        return EXIT_BAD_NEWS
    verdicts = {answer.verdict for answer in found.answers}
    return EXIT_UNDECIDED if verdicts & {Verdict.UNDECIDED, Verdict.WITHHELD} else 0


def _counts(name: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:10]) <= 10**9 for part in parts):
        raise InputError(f"{name}: {text} is no list of counts; expected are whole numbers from 1 on, such as 8,16,32")
    return tuple(map(int, parts))


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value <= 1e9:
        raise InputError(f"{name}: {value} is not a number above 0")


def compare(arguments: Sequence[str]) -> int:
    """Say what is slower than before: two archives, studies, tables of rates or logs that hold repeats."""
    from stallpoint.archive.comparison.compare_two import main

    return main(arguments)


def check(arguments: Sequence[str]) -> int:
    """Say what the node or allocation at hand gives a training job, and what to do where that is less than expected."""
    parser = argparse.ArgumentParser(
        prog="stallpoint check",
        description="Ten lines about this node: cores, memory, MPI, Slurm, network, GPUs, a two-second all-reduce, "
        "/dev/shm and home; "
        "started by srun or mpirun on several nodes, about all of them.",
        epilog="exit status: 0 nothing wrong, 1 something is to mend, 70 a defect of stallpoint",
    )
    parser.add_argument("--json", action="store_true", help="name, state, got, expected and advice of each")
    parser.add_argument("--cores", type=int, metavar="N", help="cores that each process is to have")
    given = parser.parse_args(arguments)
    from stallpoint.measure.machine.node_check import WRONG, check_node

    _check_positive("--cores", given.cores)
    found = check_node(given.cores)
    if given.json and found:
        print(json.dumps({"checks": [asdict(one) for one in found]}, indent=1))
    elif found:
        print("\n".join(one.in_words() for one in found))
    return EXIT_BAD_NEWS if any(one.state == WRONG for one in found) else 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"explain": explain, "compare": compare, "check": check}
"""Subcommands by their names; each takes the arguments after it and returns the exit status."""
EXAMPLES = (
    "  stallpoint explain rates.csv              where the rates stop, and why",
    "  stallpoint compare before.log after.log   what is slower than before",
    "  stallpoint check                          what this node gives a job",
    "",
    '  eval "$(stallpoint --completion)"         completes in bash and zsh',
)


def completion() -> str:
    """Return the lines that teach bash and zsh the subcommands and their options."""
    cases = "".join(f'  {name}) words="{" ".join(_options(name))}";;\n' for name in COMMANDS)
    return f"""[ -n "$ZSH_VERSION" ] && autoload -U +X bashcompinit && bashcompinit
_stallpoint() {{
  local words="{" ".join(COMMANDS)}"
  [ "$COMP_CWORD" -gt 1 ] && case "${{COMP_WORDS[1]}}" in
{cases}  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _stallpoint stallpoint
"""


def _options(name: str) -> list[str]:
    """Return the options that the help of a subcommand names."""
    with redirect_stdout(StringIO()) as text, suppress(SystemExit):
        COMMANDS[name](["--help"])
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text.getvalue())))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; return its exit status."""
    with program():
        return _run(list(sys.argv[1:] if arguments is None else arguments))


def _run(words: Sequence[str]) -> int:
    """Run the subcommand that `words` begin with."""
    if words[:1] == ["--version"]:
        print(f"stallpoint {__version__}")
        return 0
    if words[:1] == ["--completion"]:
        print(completion(), end="")
        return 0
    if words and words[0] not in (*COMMANDS, "-h", "--help"):
        near = get_close_matches(words[0], COMMANDS, 1) or (["explain"] if Path(words[0]).exists() else [])
        ask = f"; did you mean  stallpoint {near[0]}{'' if near[0] != 'explain' else ' FILE'}?" if near else ""
        print(f"error: {words[0]} is no subcommand{ask}", file=sys.stderr)
    if not words or words[0] not in COMMANDS:
        commands = [f"  {name:<10}{(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
        wanted = words[:1] in ([], ["-h"], ["--help"])
        lines = ["usage: stallpoint COMMAND ...", "", *commands, "", *EXAMPLES]
        print("\n".join(lines), file=sys.stdout if wanted else sys.stderr)
        return 0 if words[:1] in (["-h"], ["--help"]) else EXIT_BAD_INPUT
    return COMMANDS[words[0]](words[1:])


if __name__ == "__main__":
    sys.exit(main())
