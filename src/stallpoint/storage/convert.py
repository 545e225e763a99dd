"""Conversion of a set of encoded images into another format, to compare formats on the same samples.

Each thread converts one part of `PART` samples at a time, and writes a file of checksums for each finished part. After
a kill, the next run converts only the parts without this file. The output stays in a scratch folder beside the target
until all samples are written, read again and equal to the source's, so that an incomplete conversion is never used.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.storage import FORMATS, Storage
from stallpoint.storage.files import SmallFiles
from stallpoint.storage.images import EncodedImages, ImageSet
from stallpoint.storage.raw import Squares
from stallpoint.storage.samples import PART, Made, SampleSet, SampleShape
from stallpoint.text import Progress

CONVERSION_FILE = "stallpoint-converted.json"
"""File in a converted folder that names the source and the number of samples."""

MAX_THREADS = 8
"""Maximum number of threads: each holds a part in memory, about 110 MB of ImageNet and 200 MB of its pixels."""

Checksums: TypeAlias = list[tuple[str, int]]
"""SHA-256 and label of each sample."""


@dataclass(frozen=True)
class Conversion:
    """A conversion of the samples of `source` into the format of `target`."""

    source: Storage
    target: Storage
    shape: SampleShape | None
    """Shape of the target's samples; None if its format keeps encoded images."""

    @property
    def scratch(self) -> Path:
        return self.target.path.with_name(f".{self.target.path.name}.converting")

    def journal(self, part: range) -> Path:
        """Return the file for the checksums of a written part."""
        return self.scratch / "parts" / f"{part.start}.json"

    def parameters(self, samples: SampleSet) -> dict[str, Any]:
        """Return the parameters that a resumed conversion must share with the interrupted one."""
        digest = hashlib.sha256()
        for index in range(samples.samples):
            digest.update(f"{samples.name(index)} {samples.size(index)} {samples.label(index)}\n".encode())
        return {
            "source": str(self.source.path),
            "source_format": self.source.format,
            "format": self.target.format,
            "shape": asdict(self.shape) if self.shape else None,
            "samples": samples.samples,
            "source_sha256": digest.hexdigest(),
        }


def convert(
    source: Storage, target: Storage, *, image_size: int | None = None, workers: int | None = None
) -> dict[str, Any]:
    """Convert the images of `source` into the new storage `target`, and return the content of its `CONVERSION_FILE`.

    Formats that store pixels resize images to `image_size` rows and columns (by default the format's size). The number
    of threads is `workers` (by default one for each core, at most `MAX_THREADS`). Raises `InputError` if the formats
    cannot be converted, if the target exists, or if the written samples differ from the source.
    """
    conversion = Conversion(source, target, _target_shape(target, image_size))
    _check_folders(conversion)
    scratch, output = conversion.scratch, conversion.scratch / "made"
    started, threads = time.monotonic(), workers or min(MAX_THREADS, os.cpu_count() or 1)
    with _scratch_lock(scratch), closing(source.open()) as samples, ThreadPoolExecutor(threads) as pool:
        _check_labels(target, samples)
        parameters = conversion.parameters(samples)
        _begin_conversion(conversion, parameters)
        parts = [range(first, min(first + PART, samples.samples)) for first in range(0, samples.samples, PART)]
        pending_parts = [part for part in parts if not conversion.journal(part).exists()]
        _map_parts(pool, pending_parts, "convert", lambda part: _write_samples(conversion, samples, part))
        written_checksums = list(chain.from_iterable(_read_journal(conversion, part) for part in parts))
        _compare_samples(conversion, written_checksums, _read_back(target, output, pool))
        is_uninterrupted = len(pending_parts) == len(parts)
        parameters |= {"threads": threads, "seconds": time.monotonic() - started if is_uninterrupted else None}
        parameters["sha256"] = hashlib.sha256(json.dumps(sorted(written_checksums)).encode()).hexdigest()
        with atomic(output / CONVERSION_FILE) as file:
            file.write_text(json.dumps(parameters, indent=2) + "\n")
        os.sync()
        os.rename(output, target.path)
        shutil.rmtree(scratch)
    return parameters


def check_conversion(source: Storage, target: Storage, *, image_size: int | None = None) -> None:
    """Raise `InputError` unless the folder of `target` was converted from the present images of `source`."""
    conversion = Conversion(source, target, _target_shape(target, image_size))
    with closing(source.open()) as samples:
        expected = conversion.parameters(samples)
    parameters = _conversion_in(target.path)
    if parameters is None:
        raise InputError(
            f"storage {target.name}: {target.path} exists and was not converted by stallpoint; name another path, or "
            "leave out convert_from to use what is in it"
        )
    if different_keys := ", ".join(key for key, value in expected.items() if parameters.get(key) != value):
        raise InputError(
            f"storage {target.name}: {target.path} was not made of storage {source.name} as that is now (other: "
            f"{different_keys}); remove the folder, and it is converted again"
        )


def converted_samples(path: Path) -> int | None:
    """Return how many samples were converted into the folder `path`; None for a folder without a conversion."""
    parameters = _conversion_in(path)
    return None if parameters is None else int(parameters["samples"])


def _conversion_in(path: Path) -> dict[str, Any] | None:
    """Return the content of the folder's `CONVERSION_FILE`; None without the file."""
    try:
        parameters: dict[str, Any] = json.loads((path / CONVERSION_FILE).read_text())
        int(parameters["samples"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / CONVERSION_FILE}: not readable ({error}); convert it again") from None
    return parameters


def conversion_of(path: Path) -> dict[str, Any] | None:
    """Return ``source`` (a path), ``samples``, ``threads`` and ``seconds`` of the conversion that made a folder.

    Return None for a folder without a conversion, and after an interrupted conversion, whose time is unknown.
    """
    parameters = _conversion_in(path)
    if parameters is None or parameters.get("seconds") is None:
        return None
    return {name: parameters[name] for name in ("source", "samples", "threads", "seconds")}


def obstacle(source: Storage, target: Storage) -> str:
    """Return why samples of one format cannot be converted into the other; empty if they can."""
    if not issubclass(source.kind, EncodedImages):
        encoded_formats = ", ".join(name for name, kind in FORMATS.items() if issubclass(kind, EncodedImages))
        return f"format {source.format} holds no encoded images; convert one of {encoded_formats}"
    if not issubclass(target.kind, ImageSet):
        return f"format {target.format} holds {target.kind.kind}, no images"
    return ""


def _target_shape(target: Storage, image_size: int | None) -> SampleShape | None:
    stores_pixels = target.kind.shape is Squares
    if image_size is not None and not stores_pixels:
        pixel_formats = ", ".join(name for name, kind in FORMATS.items() if kind.shape is Squares)
        raise InputError(f"image size: format {target.format} keeps images as they are; {pixel_formats} take one")
    if not stores_pixels:
        return None
    return Squares() if image_size is None else Squares(image_size)


def _check_folders(conversion: Conversion) -> None:
    source, target = conversion.source, conversion.target
    if problem := obstacle(source, target):
        raise InputError(f"{source.path}: {problem}")
    if target.path.exists():
        raise InputError(f"{target.path}: exists; a conversion makes a new folder, name another")
    if target.path.resolve().is_relative_to(source.path.resolve()):
        raise InputError(f"{target.path}: lies in the folder that is converted; name one outside of {source.path}")


def _check_labels(target: Storage, samples: SampleSet) -> None:
    """Raise `InputError` if a class has no sample: labels would change, as class folders are numbered without gaps."""
    if issubclass(target.kind, SmallFiles) and samples.facts()["classes"] != samples.classes:
        raise InputError(
            f"{samples.path}: has {samples.facts()['classes']} classes with labels up to {samples.classes - 1}; format "
            f"{target.format} numbers its folders from 0 on, and labels would change"
        )


@contextmanager
def _scratch_lock(scratch: Path) -> Iterator[None]:
    """Lock the scratch folder; raise `InputError` if another process converts into it."""
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{scratch}: another conversion makes this folder now") from None
        yield


def _begin_conversion(conversion: Conversion, parameters: dict[str, Any]) -> None:
    """Create the scratch folder, unless a killed conversion with the same parameters left one."""
    scratch, parameters_file = conversion.scratch, conversion.scratch / "conversion.json"
    if parameters_file.exists():
        if json.loads(parameters_file.read_text()) != parameters:
            raise InputError(f"{scratch}: holds an incomplete conversion with other parameters or samples; remove it")
        return
    shutil.rmtree(scratch / "made", ignore_errors=True)
    conversion.target.kind.begin(scratch / "made", parameters["samples"], conversion.shape)
    (scratch / "parts").mkdir(exist_ok=True)
    with atomic(parameters_file) as file:
        file.write_text(json.dumps(parameters))


def _write_samples(conversion: Conversion, samples: SampleSet, part: range) -> Checksums:
    kind = conversion.target.kind
    made_samples: list[Made] = [
        (kind.stored(samples.read(index), samples.name(index), conversion.shape), samples.label(index))
        for index in part
    ]
    kind.write_part(conversion.scratch / "made", part.start, made_samples)
    checksums = [(hashlib.sha256(data).hexdigest(), label) for data, label in made_samples]
    with atomic(conversion.journal(part)) as file:
        file.write_text(json.dumps(checksums))
    return checksums


def _read_journal(conversion: Conversion, part: range) -> Checksums:
    return [(checksum, label) for checksum, label in json.loads(conversion.journal(part).read_text())]


def _read_back(target: Storage, output: Path, pool: ThreadPoolExecutor) -> Checksums:
    """Read the written samples again, and return their checksums."""
    target.kind.index(output)
    with closing(target.kind(output)) as sample_set:
        parts = [range(first, min(first + PART, sample_set.samples)) for first in range(0, sample_set.samples, PART)]

        def read(part: range) -> Checksums:
            return [(hashlib.sha256(sample_set.read(index)).hexdigest(), sample_set.label(index)) for index in part]

        return _map_parts(pool, parts, "verify", read)


def _map_parts(pool: ThreadPoolExecutor, parts: list[range], verb: str, job: Callable[[range], Checksums]) -> Checksums:
    """Return the results of `job` for all parts, with progress; after the first error no part begins."""
    progress = Progress(f"{verb} {PART} samples:", [len(part) for part in parts])
    futures = [pool.submit(job, part) for part in parts]
    try:
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            progress.tell(done)
    finally:
        for future in futures:
            future.cancel()
    return list(chain.from_iterable(future.result() for future in futures))


def _compare_samples(conversion: Conversion, written: Checksums, read: Checksums) -> None:
    """Raise `InputError` unless the target's samples, read again, equal the written samples in any order."""
    expected, found = Counter(written), Counter(read)
    if missing := (expected - found).total() or (found - expected).total():
        raise InputError(
            f"{conversion.scratch}: {missing} of {len(written)} samples differ from those of {conversion.source.path}; "
            "remove it and convert again"
        )
