"""Trace formats, recognised by content; each has a module and a line in `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stallpoint.errors import InputError
from stallpoint.inputs.documents import head
from stallpoint_traces.formats import chakra, kineto, nccl_inspector, nccl_profiler, nsight
from stallpoint_traces.formats.events import Trace


@dataclass(frozen=True)
class Format:
    """A format of traces."""

    program: str
    """Program that writes the format."""
    suffixes: tuple[str, ...]
    """Suffixes by which files of a folder are selected, in lower case."""
    recognised: Callable[[bytes], bool]
    """Whether a file with this beginning has the format."""
    read: Callable[[Path], list[Trace]]
    """The traces in a file, one for each rank; `InputError` where there is none."""


FORMATS: dict[str, Format] = {
    "nsight": Format("Nsight Systems (nsys export --type sqlite)", (".sqlite",), nsight.recognised, nsight.read),
    "nccl-inspector": Format(
        "NCCL Inspector", (".log", ".json", ".jsonl"), nccl_inspector.recognised, nccl_inspector.read
    ),
    "nccl-profiler": Format(
        "NCCL's example of a profiler plugin", (".txt", ".json"), nccl_profiler.recognised, nccl_profiler.read
    ),
    "chakra": Format("Chakra execution traces", (".et", ".et.gz", ".json"), chakra.recognised, chakra.read),
    "kineto": Format("torch.profiler (Kineto)", (".json", ".json.gz"), kineto.recognised, kineto.read),
}
"""Formats by name, in the order in which they are tried: Kineto last, as it accepts any array of objects."""


def read(path: Path) -> list[Trace]:
    """Return the traces in the file, one for each rank; `InputError` if it has none of these formats."""
    begin = head(path)
    for format in FORMATS.values():
        if format.recognised(begin):
            try:
                return format.read(path)
            except RecursionError:
                raise InputError(f"{path}: lists or objects that lie too deep in each other") from None
    known = ", ".join(format.program for format in FORMATS.values())
    raise InputError(f"{path}: no trace in a known format; known are {known}")


def _is_candidate(file: Path) -> bool:
    """Return whether a file in a folder is read as a trace; every JSON file is, so that invalid ones are reported."""
    return file.name.lower().endswith(FORMATS["kineto"].suffixes) or any(
        format.recognised(head(file)) for format in FORMATS.values()
    )


def trace_files(named: Sequence[str]) -> list[Path]:
    """Return the named files, and the traces in named folders and their subfolders; `InputError` if there are none."""
    suffixes = tuple(dict.fromkeys(suffix for format in FORMATS.values() for suffix in format.suffixes))
    found: list[Path] = []
    for name in named:
        path = Path(name)
        if path.is_dir():
            listed = sorted(file for file in path.rglob("*") if file.name.lower().endswith(suffixes) and file.is_file())
            found += [file for file in listed if _is_candidate(file)]
        elif path.is_file():
            found.append(path)
        else:
            raise InputError(f"{name}: there is no such file or folder")
    if not found:
        raise InputError(f"{', '.join(named)}: no file, in subfolders neither, ends in {' or '.join(suffixes)}")
    return found
