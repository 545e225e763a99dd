"""Format ``tar``: many samples in each of a few tar files, in the WebDataset layout.

A sample is two members with one base name, ``0000012.jpg`` and ``0000012.cls`` (its class as text). Shards are not
unpacked: images are read at their offsets in the index.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.storage.images import IMAGE_SUFFIXES, EncodedImages, suffix_of
from stallpoint.storage.samples import PART, IndexEntry, Made
from stallpoint.storage.shards import shards


class TarShards(EncodedImages):
    """Images in uncompressed tar files."""

    layout = "uncompressed .tar files with NAME.jpg and NAME.cls members"

    @classmethod
    @override
    def scan(cls, path: Path) -> Iterator[IndexEntry]:
        """Yield the images of all shards of the folder, sorted by the shards' names."""
        for shard in shards(path, ".tar"):
            try:
                with tarfile.open(shard, "r:") as tar:
                    yield from _scan_shard(tar, shard.name)
                    has_end = shard.stat().st_size >= tar.offset + tarfile.BLOCKSIZE
            except (tarfile.TarError, ValueError) as error:
                raise InputError(f"{shard}: not a readable, uncompressed tar file ({error})") from error
            if not has_end:
                raise InputError(f"{shard}: ends without the block of zeros that ends a tar file; it is cut off")

    @classmethod
    @override
    def write_part(cls, path: Path, first: int, part: Sequence[Made]) -> None:
        with (
            atomic(path / f"shard{first // PART:05d}.tar") as shard,
            tarfile.open(shard, "w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for number, (data, label) in enumerate(part, first):
                _add_member(tar, f"{number:07d}{suffix_of(data)}", data)
                _add_member(tar, f"{number:07d}.cls", str(label).encode())


def _scan_shard(tar: tarfile.TarFile, shard: str) -> list[IndexEntry]:
    """Return an entry for each image of a shard; an image without a class gets class 0."""
    images: dict[PurePosixPath, tarfile.TarInfo] = {}
    labels: dict[PurePosixPath, int] = {}
    for member in tar:
        name = PurePosixPath(member.name)
        if name.suffix.lower() in IMAGE_SUFFIXES:
            images[name.with_suffix("")] = member
        elif name.suffix == ".cls" and (file := tar.extractfile(member)):
            labels[name.with_suffix("")] = int(file.read())
    return [IndexEntry(shard, member.offset_data, member.size, labels.get(name, 0)) for name, member in images.items()]


def _add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
