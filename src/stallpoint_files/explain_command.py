"""The subcommand ``explain`` of the program `stallpoint`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from os.path import exists
from pathlib import Path
from tempfile import TemporaryDirectory

from stallpoint.base.stall import Verdict
from stallpoint.errors import EXIT_BAD_NEWS, EXIT_UNDECIDED, InputError
from stallpoint.inputs.documents import MAX_BYTES
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options


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
        "  stallpoint explain '8 GPUs: 1500 img/s, 16 GPUs: 1600 img/s'\n\n"
        "exit status: 0 nothing wrong, 1 it stalls or something is to mend, 2 cannot be read, 3 undecided, 70 a defect "
        "of\nstallpoint",
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="recognised by what is in them; a folder of traces, logs or tables; -: standard input; or a sentence",
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
        _parsed_counts("--workers", given.workers),
        given.pattern,
        given.link,
        given.setup,
        _parsed_counts("--at", given.at),
        given.at_batch,
    )
    with _copied_streams(given.files) as files:
        return _explained(files, given, options)


@contextmanager
def _copied_streams(names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names of files; streams (``-``, pipes, devices) and sentences are copied to files first."""
    with TemporaryDirectory(prefix="stallpoint-") as folder:
        given = [
            _copied(name, Path(folder, str(place))) if _is_stream(name) else name for place, name in enumerate(names)
        ]
        try:
            yield given
        except InputError as error:
            text = str(error)
            for name, file in zip(names, given, strict=True):
                text = text.replace(file, _label(name))
            raise InputError(text) from None


def _label(name: str) -> str:
    return "standard input" if name == "-" else "the sentence" if _is_sentence(name) else name


def _is_sentence(name: str) -> bool:
    """Return whether an argument is a sentence (words with a number) rather than the name of a file."""
    return bool(re.search(r"\d", name) and re.search(r"\w\s+\S+\s", name)) and not exists(name)


def _is_stream(name: str) -> bool:
    return (
        _is_sentence(name)
        or name == "-"
        or (Path(name).exists() and not Path(name).is_file() and not Path(name).is_dir())
    )


def _copied(name: str, folder: Path) -> str:
    """Return the name of a file with the content of a stream or sentence; at most `MAX_BYTES`."""
    file = folder / ("sentence" if _is_sentence(name) else "input")
    folder.mkdir()
    if _is_sentence(name):
        file.write_text(name, encoding="utf-8")
        return str(file)
    if name != "-" and Path(name).is_fifo() and not name.startswith("/dev/"):
        print(f"{name}: waiting for what is written to it ...", file=sys.stderr)
    left = MAX_BYTES
    with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as stream, file.open("wb") as copy:
        while part := stream.read(min(2**20, left + 1)):
            left -= len(part)
            if left < 0:
                raise InputError(f"{_label(name)}: more than {MAX_BYTES // 2**20} MiB from a stream; name a file")
            copy.write(part)
    return str(file)


def _explained(files: Sequence[str], given: argparse.Namespace, options: Options) -> int:
    found = explain_files(files, options)
    if given.html:
        from stallpoint.records.atomic import atomic
        from stallpoint_files.answer_page import to_html

        with atomic(given.html) as scratch:
            scratch.write_text(to_html(found), encoding="utf-8")
    if given.proposal:
        from stallpoint.records.atomic import atomic
        from stallpoint_files import proposal_page

        training = proposal_page.Training(given.training, given.node_watts, given.node_price)
        text = proposal_page.to_html(proposal_page.curves(files, options, training))
        with atomic(given.proposal) as scratch:
            scratch.write_text(text, encoding="utf-8")
    if given.json:
        print(json.dumps(found.to_json(), indent=1, allow_nan=False, default=float))
    else:
        print(found.in_words(), end="")
    if any(answer.is_bad for answer in found.answers):
        return EXIT_BAD_NEWS
    verdicts = {answer.verdict for answer in found.answers}
    return EXIT_UNDECIDED if verdicts & {Verdict.UNDECIDED, Verdict.WITHHELD} else 0


def _parsed_counts(name: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:10]) <= 10**9 for part in parts):
        raise InputError(f"{name}: {text} is no list of counts; expected are whole numbers from 1 on, such as 8,16,32")
    return tuple(map(int, parts))


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value <= 1e9:
        raise InputError(f"{name}: {value} is not a number above 0")
