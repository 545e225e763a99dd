"""Format ``tar``: many samples in each of a few tar files, in the WebDataset layout.

A sample is two members with one base name, ``0000012.jpg`` and ``0000012.cls`` (its class as text).
Shards are not unpacked: an index holds where each image begins, and it is read from there.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from stallpoint.errors import InputError
from stallpoint.storage.images import IMAGE_SUFFIXES, ImageSet, Pixels, decode_image
from stallpoint.storage.samples import Entry

SHARD_SAMPLES = 1000
"""Samples in one shard: about 110 MB of ImageNet."""


class TarShards(ImageSet):
    """Images in uncompressed tar files."""

    layout = "uncompressed .tar files with NAME.jpg and NAME.cls members"
    keep_open = True

    @staticmethod
    def scan(path: Path) -> Iterator[Entry]:
        """Images in all shards of the folder, in the order of the shards' names."""
        for shard in sorted(path.glob("*.tar")):
            try:
                with tarfile.open(shard, "r:") as tar:
                    yield from _scan_shard(tar, shard.name)
            except (tarfile.TarError, ValueError) as error:
                raise InputError(f"{shard}: not a readable, uncompressed tar file ({error})") from error

    def decode(self, index: int, data: bytes, size: int) -> Pixels:
        """Decode the JPEG or PNG."""
        extent = self.extent(index)
        return decode_image(data, size, f"{extent.path}, image at byte {extent.offset}")

    @staticmethod
    def write(path: Path, images: Iterable[tuple[bytes, int]], samples: int) -> None:
        """Shards of `SHARD_SAMPLES` samples."""
        path.mkdir(parents=True)
        numbered = enumerate(images)
        shard = 0
        while members := list(islice(numbered, SHARD_SAMPLES)):
            with tarfile.open(path / f"shard{shard:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
                for number, (data, label) in members:
                    _add(tar, f"{number:07d}.jpg", data)
                    _add(tar, f"{number:07d}.cls", str(label).encode())
            shard += 1


def _scan_shard(tar: tarfile.TarFile, shard: str) -> list[Entry]:
    """The images of one shard with the classes named beside them (0 where none is)."""
    images: dict[PurePosixPath, tarfile.TarInfo] = {}
    labels: dict[PurePosixPath, int] = {}
    for member in tar:
        name = PurePosixPath(member.name)
        if name.suffix.lower() in IMAGE_SUFFIXES:
            images[name.with_suffix("")] = member
        elif name.suffix == ".cls" and (file := tar.extractfile(member)):
            labels[name.with_suffix("")] = int(file.read())
    return [Entry(shard, member.offset_data, member.size, labels.get(name, 0)) for name, member in images.items()]


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
