"""Our reader against fio, on the same files, block sizes and states of the page cache, in turns.

Sequential: blocks of 1 MiB of one large file, as samples of that size. Small files: each opened, read whole and closed,
in random order. Both for a warm and a cold page cache (dropped by ``posix_fadvise``). fio reads by ``pread`` in one
thread, as our reader does.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
from paired import Figure, Timing, figure, interleaved

from stallpoint.measure.jobs.storage_reads import drop
from stallpoint.storage import SampleSet, Storage

NAME = "reading"
BLOCK = 1 << 20
LARGE = 512
"""Blocks of the large file."""
SMALL, SMALL_SIZE = 2000, 64 << 10
"""Small files, and the bytes of each."""
WANTED = {"sequential": "at least 0.95", "small files": "at least 0.80"}


def benchmark(scratch: Path, count: int) -> tuple[list[Timing | Figure], list[str]]:
    """Rates of our reader over fio's, paired by round."""
    if not shutil.which("fio"):
        return [], [f"{NAME}: not run: fio is not installed (Debian and Ubuntu: apt-get install fio)"]
    large = _large(scratch / "large")
    small = _small(scratch / "small")
    rows: list[Timing | Figure] = []
    lines = [f"{NAME}: our reader over fio {_version()}, rates paired by round; {os.cpu_count()} CPUs, load "
             f"{os.getloadavg()[0]:.1f}"]  # fmt: skip
    for what, stored, jobs in (("sequential", large, _sequential), ("small files", small, _each_file)):
        with closing(stored):
            order = list(range(stored.samples))
            if what == "small files":
                random.Random(0).shuffle(order)
            for cache in ("warm", "cold"):
                job = jobs(stored, order)
                candidates: dict[str, Callable[[], float]] = {
                    "ours": lambda stored=stored, order=order, cache=cache: _ours(stored, order, cache),
                    "fio": lambda stored=stored, job=job, cache=cache: _fio(stored, job, cache, scratch),
                }
                timings = interleaved(f"{NAME} {what} {cache}", candidates, count)
                seconds = {name: [one.seconds for one in timings if one.candidate == name] for name in candidates}
                ratio = np.array(seconds["fio"]) / np.array(seconds["ours"])
                result = figure(NAME, f"{what}, {cache}", "rate over fio's", ratio, wanted=WANTED[what])
                rates = {name: stored.total_bytes / np.median(values) / 1e6 for name, values in seconds.items()}
                rows += [*timings, result]
                lines += [
                    f"  {what}, {cache}: ours {rates['ours']:.0f} MB/s, fio {rates['fio']:.0f} MB/s",
                    result.line(),
                ]
    return rows, lines


def _large(folder: Path) -> SampleSet:
    """One file of blocks: sequences of tokens are the format whose samples are as large as we like."""
    folder.mkdir()
    blocks = np.random.default_rng(0).integers(1 << 16, size=(LARGE, BLOCK // 2), dtype=np.uint16)
    np.save(folder / "tokens.npy", blocks)
    return Storage("large", folder, "tokens").open()


def _small(folder: Path) -> SampleSet:
    """Files of one size in a hundred folders; nobody decodes them."""
    content = np.random.default_rng(0)
    for number in range(SMALL):
        file = folder / f"class{number % 100:02d}" / f"image{number:05d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.bytes(SMALL_SIZE))
    return Storage("small", folder, "files").open()


def _prepare(stored: SampleSet, cache: str) -> None:
    stored.close()
    if cache == "cold":
        drop(set(stored.files()))
    else:
        for file in stored.files():
            file.read_bytes()


def _ours(stored: SampleSet, order: list[int], cache: str) -> float:
    _prepare(stored, cache)
    start = time.perf_counter()
    for index in order:
        stored.read(index)
    return time.perf_counter() - start


def _sequential(stored: SampleSet, order: list[int]) -> list[str]:
    """The blocks of one file, from its first sample on."""
    first = stored.extent(0)
    return [f"filename={first.path}", "rw=read", f"bs={first.size}", f"offset={first.offset}",
            f"size={first.size * len(order)}"]  # fmt: skip


def _each_file(stored: SampleSet, order: list[int]) -> list[str]:
    """Every file whole, opened when its turn comes and closed after it, in an order that fio draws."""
    return [f"opendir={stored.path}", "rw=read", f"bs={SMALL_SIZE}", "file_service_type=random", "openfiles=1",
            f"nrfiles={len(order)}"]  # fmt: skip


def _fio(stored: SampleSet, job: list[str], cache: str, scratch: Path) -> float:
    """Seconds of fio's reads alone, as fio tells them."""
    _prepare(stored, cache)
    file = scratch / "job.fio"
    # invalidate: fio would drop the pages itself; fadvise_hint: as our reader, it tells nothing of its order.
    common = ["ioengine=psync", "numjobs=1", "thread", "invalidate=0", "fadvise_hint=0", "allow_file_create=0"]
    file.write_text("\n".join(["[reading]", *common, *job]) + "\n")
    command = ["fio", "--output-format=json", str(file)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=scratch).stdout
    read = json.loads(printed[printed.index("{") :])["jobs"][0]["read"]  # earlier lines say what fio opened
    if read["io_bytes"] != stored.total_bytes:
        raise SystemExit(f"{NAME}: fio read {read['io_bytes']} of {stored.total_bytes} bytes")
    return float(read["runtime"]) / 1e3  # fio prints whole ms


def _version() -> str:
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()
