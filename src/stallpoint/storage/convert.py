"""Converting a set of encoded images into another format, once, so that formats are compared on the same samples.

The samples are cut into parts of `PART`, and threads make one part each. What is written stands in a folder of its own
beside the destination until all of it was read again and found equal: half a conversion is never taken for whole. Each
part that is written leaves a list of its samples' checksums there; a conversion that was killed goes on after those.
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
from stallpoint.storage.samples import PART, Made, SampleSet, Shape
from stallpoint.text import Progress

CONVERSION_FILE = "stallpoint-converted.json"
"""Says of a folder what it was made of, and of how many samples."""

MOST_WORKERS = 8
"""Each holds a part in memory, about 110 MB of ImageNet and 200 MB of its pixels."""

Checksums: TypeAlias = list[tuple[str, int]]
"""SHA-256 and label of samples."""


@dataclass(frozen=True)
class Conversion:
    """What is to be made of which samples."""

    source: Storage
    target: Storage
    shape: Shape | None
    """Of the target's samples; None where its format keeps images as they are."""

    @property
    def scratch(self) -> Path:
        """Where it is made."""
        return self.target.path.with_name(f".{self.target.path.name}.converting")

    def journal(self, part: range) -> Path:
        """Where the checksums of a part are kept, once it is written."""
        return self.scratch / "parts" / f"{part.start}.json"

    def said(self, samples: SampleSet) -> dict[str, Any]:
        """What another one must agree in, to go on with it."""
        listed = hashlib.sha256()
        for index in range(samples.samples):
            listed.update(f"{samples.name(index)} {samples.size(index)} {samples.label(index)}\n".encode())
        return {
            "source": str(self.source.path),
            "source_format": self.source.format,
            "format": self.target.format,
            "shape": asdict(self.shape) if self.shape else None,
            "samples": samples.samples,
            "source_sha256": listed.hexdigest(),
        }


def convert(
    source: Storage, target: Storage, *, image_size: int | None = None, workers: int | None = None
) -> dict[str, Any]:
    """Write the images of `source` as `target`, which does not exist yet, and return what its folder says of itself.

    Formats of pixels get images of `image_size` rows and columns, or the format's usual one; `workers` threads take
    part (one for each core, `MOST_WORKERS` at most). Raises `InputError` where one format cannot become the other,
    where the target is there already, or holds something else in the end.
    """
    conversion = Conversion(source, target, _shape(target, image_size))
    _check(conversion)
    scratch, made = conversion.scratch, conversion.scratch / "made"
    begin, threads = time.monotonic(), workers or min(MOST_WORKERS, os.cpu_count() or 1)
    with _alone(scratch), closing(source.open()) as samples, ThreadPoolExecutor(threads) as pool:
        _check_labels(target, samples)
        said = conversion.said(samples)
        _begin(conversion, said)
        parts = [range(first, min(first + PART, samples.samples)) for first in range(0, samples.samples, PART)]
        left = [part for part in parts if not conversion.journal(part).exists()]
        _each(pool, left, "convert", lambda part: _write(conversion, samples, part))
        written = list(chain.from_iterable(_written(conversion, part) for part in parts))
        _compare(conversion, written, _verify(target, made, pool))
        unbroken = len(left) == len(parts)
        said |= {"threads": threads, "seconds": time.monotonic() - begin if unbroken else None}
        said["sha256"] = hashlib.sha256(json.dumps(sorted(written)).encode()).hexdigest()
        with atomic(made / CONVERSION_FILE) as file:
            file.write_text(json.dumps(said, indent=2) + "\n")
        os.sync()
        os.rename(made, target.path)
        shutil.rmtree(scratch)
    return said


def check_conversion(source: Storage, target: Storage, *, image_size: int | None = None) -> None:
    """Raise `InputError` unless the folder of `target` was made of the images of `source` as they are now."""
    conversion = Conversion(source, target, _shape(target, image_size))
    with closing(source.open()) as samples:
        expected = conversion.said(samples)
    said = _said(target.path)
    if said is None:
        raise InputError(
            f"storage {target.name}: {target.path} exists and was not converted by stallpoint; name another path, or "
            "leave out convert_from to use what is in it"
        )
    if differs := ", ".join(key for key, value in expected.items() if said.get(key) != value):
        raise InputError(
            f"storage {target.name}: {target.path} was not made of storage {source.name} as that is now (other: "
            f"{differs}); remove the folder, and it is converted again"
        )


def converted_samples(path: Path) -> int | None:
    """How many samples a folder was converted with; None where it was not."""
    said = _said(path)
    return None if said is None else int(said["samples"])


def _said(path: Path) -> dict[str, Any] | None:
    """What the folder says of itself; None where it was not converted."""
    try:
        said: dict[str, Any] = json.loads((path / CONVERSION_FILE).read_text())
        int(said["samples"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / CONVERSION_FILE}: not readable ({error}); convert it again") from None
    return said


def conversion_of(path: Path) -> dict[str, Any] | None:
    """How a folder was converted: ``source`` (a path), ``samples``, ``threads``, and the ``seconds`` that it took.

    None where it was not converted, or where the conversion was interrupted: its time is not known then.
    """
    said = _said(path)
    if said is None or said.get("seconds") is None:
        return None
    return {name: said[name] for name in ("source", "samples", "threads", "seconds")}


def cannot_become(source: Storage, target: Storage) -> str:
    """Why samples of the one's format cannot be converted into the other's; empty where they can."""
    if not issubclass(source.kind, EncodedImages):
        encoded = ", ".join(name for name, kind in FORMATS.items() if issubclass(kind, EncodedImages))
        return f"format {source.format} holds no encoded images; convert one of {encoded}"
    if not issubclass(target.kind, ImageSet):
        return f"format {target.format} holds {target.kind.kind}, no images"
    return ""


def _shape(target: Storage, image_size: int | None) -> Shape | None:
    shaped = target.kind.shape is Squares
    if image_size is not None and not shaped:
        known = ", ".join(name for name, kind in FORMATS.items() if kind.shape is Squares)
        raise InputError(f"image size: format {target.format} keeps images as they are; {known} take one")
    if not shaped:
        return None
    return Squares() if image_size is None else Squares(image_size)


def _check(conversion: Conversion) -> None:
    source, target = conversion.source, conversion.target
    if problem := cannot_become(source, target):
        raise InputError(f"{source.path}: {problem}")
    if target.path.exists():
        raise InputError(f"{target.path}: exists; a conversion makes a new folder, name another")
    if target.path.resolve().is_relative_to(source.path.resolve()):
        raise InputError(f"{target.path}: lies in the folder that is converted; name one outside of {source.path}")


def _check_labels(target: Storage, samples: SampleSet) -> None:
    """Folders of classes are numbered from 0 on: there each label must have a sample."""
    if issubclass(target.kind, SmallFiles) and samples.facts()["classes"] != samples.classes:
        raise InputError(
            f"{samples.path}: has {samples.facts()['classes']} classes with labels up to {samples.classes - 1}; format "
            f"{target.format} numbers its folders from 0 on, and labels would change"
        )


@contextmanager
def _alone(scratch: Path) -> Iterator[None]:
    """Keep others from making the same folder; `InputError` where one does."""
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{scratch}: another conversion makes this folder now") from None
        yield


def _begin(conversion: Conversion, said: dict[str, Any]) -> None:
    """Prepare the scratch folder, or go on with that of a conversion that was killed."""
    scratch, kept = conversion.scratch, conversion.scratch / "conversion.json"
    if kept.exists():
        if json.loads(kept.read_text()) != said:
            raise InputError(
                f"{scratch}: holds half of another conversion, or of other samples; remove it to begin anew"
            )
        return
    shutil.rmtree(scratch / "made", ignore_errors=True)
    conversion.target.kind.begin(scratch / "made", said["samples"], conversion.shape)
    (scratch / "parts").mkdir(exist_ok=True)
    with atomic(kept) as file:
        file.write_text(json.dumps(said))


def _write(conversion: Conversion, samples: SampleSet, part: range) -> Checksums:
    """Write one part; the checksums of what it should hold, which its journal keeps."""
    kind = conversion.target.kind
    made: list[Made] = [
        (kind.stored(samples.read(index), samples.name(index), conversion.shape), samples.label(index))
        for index in part
    ]
    kind.write_part(conversion.scratch / "made", part.start, made)
    checksums = [(hashlib.sha256(data).hexdigest(), label) for data, label in made]
    with atomic(conversion.journal(part)) as file:
        file.write_text(json.dumps(checksums))
    return checksums


def _written(conversion: Conversion, part: range) -> Checksums:
    """What the journal of a part keeps."""
    return [(checksum, label) for checksum, label in json.loads(conversion.journal(part).read_text())]


def _verify(target: Storage, made: Path, pool: ThreadPoolExecutor) -> Checksums:
    """Checksums of what is there, read again."""
    target.kind.index(made)
    with closing(target.kind(made)) as stored:
        parts = [range(first, min(first + PART, stored.samples)) for first in range(0, stored.samples, PART)]

        def read(part: range) -> Checksums:
            return [(hashlib.sha256(stored.read(index)).hexdigest(), stored.label(index)) for index in part]

        return _each(pool, parts, "verify", read)


def _each(pool: ThreadPoolExecutor, parts: list[range], what: str, step: Callable[[range], Checksums]) -> Checksums:
    """What `step` gives for each part, telling how far it is; after the first error no other part begins."""
    progress = Progress(f"{what} {PART} samples:", [len(part) for part in parts])
    futures = [pool.submit(step, part) for part in parts]
    try:
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            progress.tell(done)
    finally:
        for future in futures:
            future.cancel()
    return list(chain.from_iterable(future.result() for future in futures))


def _compare(conversion: Conversion, written: Checksums, read: Checksums) -> None:
    """Raise `InputError` unless what was read is what should have been written, in whatever order."""
    expected, found = Counter(written), Counter(read)
    if missing := (expected - found).total() or (found - expected).total():
        raise InputError(
            f"{conversion.scratch}: {missing} of {len(written)} samples differ from those of {conversion.source.path}; "
            "remove it and convert again"
        )
