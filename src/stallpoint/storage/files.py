"""Format ``files``: one image file for each sample, in a folder for each class (as ImageNet is handed out)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from stallpoint.storage.images import IMAGE_SUFFIXES, ImageSet, Pixels, decode_image
from stallpoint.storage.samples import Entry


class ImageFiles(ImageSet):
    """One JPEG or PNG for each sample; its class is its folder."""

    layout = "class folders with .jpg, .jpeg or .png files"
    keep_open = False

    @staticmethod
    def scan(path: Path) -> Iterator[Entry]:
        """Image files below `path`, sorted; classes are numbered in the order of their folders' names."""
        labels = count()
        for folder, subfolders, names in os.walk(path, followlinks=True):
            subfolders.sort()
            images = sorted(name for name in names if name.lower().endswith(IMAGE_SUFFIXES))
            if images:
                label = next(labels)
                for name in images:
                    file = Path(folder, name)
                    yield Entry(str(file.relative_to(path)), 0, file.stat().st_size, label)

    def decode(self, index: int, data: bytes, size: int) -> Pixels:
        """Decode the JPEG or PNG."""
        return decode_image(data, size, str(self.extent(index).path))

    @staticmethod
    def write(path: Path, images: Iterable[tuple[bytes, int]], samples: int) -> None:
        """One folder for each class, files numbered through."""
        for number, (data, label) in enumerate(images):
            folder = path / f"class{label:04d}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"image{number:07d}.jpg").write_bytes(data)
