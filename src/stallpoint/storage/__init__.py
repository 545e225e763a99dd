"""Where the training set lies, and in which format.

A new format is a file beside this one with a subclass of `images.ImageSet`, and a line in `FORMATS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stallpoint.errors import InputError
from stallpoint.storage.files import ImageFiles
from stallpoint.storage.images import ImageSet
from stallpoint.storage.raw import RawImages
from stallpoint.storage.tar import TarShards

__all__ = ["FORMATS", "ImageSet", "Storage"]

FORMATS: dict[str, type[ImageSet]] = {
    "files": ImageFiles,
    "tar": TarShards,
    "raw": RawImages,
}
"""Formats by the name a study gives them."""


@dataclass(frozen=True)
class Storage:
    """A storage entry of a study."""

    name: str
    path: Path
    format: str

    def open(self) -> ImageSet:
        """Its images; `InputError` for an unknown format, a missing path or a storage without images."""
        if self.format not in FORMATS:
            raise InputError(f"storage {self.name}: unknown format {self.format!r}, known are {', '.join(FORMATS)}")
        if not self.path.is_dir():
            raise InputError(f"storage {self.name}: {self.path} does not exist or is not a folder")
        images = FORMATS[self.format](self.path)
        if not images.samples:
            raise InputError(f"storage {self.name}: no images in {self.path} (format {self.format}: {images.layout})")
        return images
