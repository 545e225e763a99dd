"""Format ``files``: one image file for each sample, in a folder for each class, as in ImageNet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from stallpoint.storage.images import IMAGE_SUFFIXES, EncodedImages, suffix_of
from stallpoint.storage.samples import IndexEntry, Made, SampleSet

STAT_THREADS = 16
"""Number of threads that request file sizes, as a network file system takes long for each request."""
BATCH_FILES = 64
"""Number of files whose sizes a thread requests, one after another."""


def _file_sizes(folder: str, names: Sequence[str]) -> list[int]:
    return [os.stat(os.path.join(folder, name)).st_size for name in names]


class SmallFiles(SampleSet):
    """A file for each sample; the folder of the file determines the sample's class."""

    suffixes: ClassVar[tuple[str, ...]]
    """Suffixes of samples; other files are no samples."""
    keep_open = False

    @classmethod
    @override
    def scan(cls, path: Path) -> Iterator[IndexEntry]:
        """Yield the files below `path`, sorted; classes are numbered in the order of their folders' names."""
        labels = count()
        with ThreadPoolExecutor(STAT_THREADS) as pool:
            for folder, subfolders, names in os.walk(path, followlinks=True):
                subfolders.sort()
                if samples := sorted(name for name in names if name.lower().endswith(cls.suffixes)):
                    label = next(labels)
                    batches = [samples[first : first + BATCH_FILES] for first in range(0, len(samples), BATCH_FILES)]
                    sizes = chain.from_iterable(pool.map(partial(_file_sizes, folder), batches))
                    subpath = os.path.relpath(folder, path)
                    for name, size in zip(samples, sizes, strict=True):
                        yield IndexEntry(name if subpath == os.curdir else f"{subpath}/{name}", 0, size, label)

    @classmethod
    def suffix(cls, data: bytes) -> str:
        """Return the suffix of a file with the sample `data`."""
        return cls.suffixes[0]

    @classmethod
    @override
    def write_part(cls, path: Path, first: int, part: Sequence[Made]) -> None:
        """Write numbered files, in a folder for each class."""
        for number, (data, label) in enumerate(part, first):
            folder = path / f"class{label:05d}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"sample{number:07d}{cls.suffix(data)}").write_bytes(data)


class ImageFiles(SmallFiles, EncodedImages):
    """A JPEG or PNG file for each sample."""

    suffixes = IMAGE_SUFFIXES
    layout = "class folders with .jpg, .jpeg or .png files, as ImageNet is handed out"

    @classmethod
    @override
    def suffix(cls, data: bytes) -> str:
        return suffix_of(data)
