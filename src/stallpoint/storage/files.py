"""Format ``files``: one image file for each sample, in a folder for each class (as ImageNet is handed out)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import ClassVar

from stallpoint.storage.images import IMAGE_SUFFIXES, EncodedImages, suffix_of
from stallpoint.storage.samples import Entry, Made, SampleSet


class SmallFiles(SampleSet):
    """One file for each sample; its class is its folder."""

    suffixes: ClassVar[tuple[str, ...]]
    """How the names of samples end; other files are no samples."""
    keep_open = False

    @classmethod
    def scan(cls, path: Path) -> Iterator[Entry]:
        """Files below `path`, sorted; classes are numbered in the order of their folders' names."""
        labels = count()
        for folder, subfolders, names in os.walk(path, followlinks=True):
            subfolders.sort()
            if samples := sorted(name for name in names if name.lower().endswith(cls.suffixes)):
                label = next(labels)
                for name in samples:
                    file = Path(folder, name)
                    yield Entry(str(file.relative_to(path)), 0, file.stat().st_size, label)

    @classmethod
    def suffix(cls, data: bytes) -> str:
        """How the name of a file with such a sample ends."""
        return cls.suffixes[0]

    @classmethod
    def write_part(cls, path: Path, first: int, part: Sequence[Made]) -> None:
        """Files numbered through, in a folder for each class."""
        for number, (data, label) in enumerate(part, first):
            folder = path / f"class{label:05d}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"sample{number:07d}{cls.suffix(data)}").write_bytes(data)


class ImageFiles(SmallFiles, EncodedImages):
    """JPEGs and PNGs."""

    suffixes = IMAGE_SUFFIXES
    layout = "class folders with .jpg, .jpeg or .png files, as ImageNet is handed out"

    @classmethod
    def suffix(cls, data: bytes) -> str:
        """As the image says itself."""
        return suffix_of(data)
