"""Snakemake that is loaded once and runs in copies of that process: loading it is half of what a plan takes.

The process (``python resident.py``) reads calls from stdin, a line of JSON for each, and prints their exit status.
"""

import atexit
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache


@dataclass(frozen=True)
class Call:
    """Arguments of Snakemake, the folder it runs in, the library it finds there, and the file that it prints to."""

    folder: str
    library: str
    output: str
    arguments: list[str]


@cache
def _process() -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)  # closes its input, which ends it
    return process


def run(call: Call) -> int:
    """Run Snakemake to its end; its exit status."""
    process = _process()
    assert process.stdin
    assert process.stdout
    print(json.dumps(asdict(call)), file=process.stdin, flush=True)
    return int(process.stdout.readline())


def _become(call: Call) -> None:
    """End this process as ``snakemake`` does."""
    from snakemake.cli import main

    os.chdir(call.folder)
    os.environ["PYTHONPATH"] = call.library
    sys.path.insert(0, call.library)
    sys.argv = ["snakemake", *call.arguments]
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())  # calls are not for programs that it starts
    output = os.open(call.output, os.O_WRONLY | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    main()


def _answer_calls() -> None:
    import jsonschema  # noqa: F401  # before it is copied, with what Snakemake and the workflow load besides
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401
    import snakemake.cli  # noqa: F401

    for line in sys.stdin:
        if not (copy := os.fork()):
            _become(Call(**json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]), flush=True)


if __name__ == "__main__":
    _answer_calls()
