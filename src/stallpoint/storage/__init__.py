"""Storages of training sets, and their formats.

To add a format, write a module next to this one with a subclass of `images.EncodedImages`, `images.ImageSet` or
`tokens.TokenSequences`, or of `samples.SampleSet` for samples of another kind. Then add the class to `_CORE_FORMATS`,
from which the documentation and the schema of configurations take the list of formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stallpoint.errors import InputError, Unavailable
from stallpoint.extras import with_others
from stallpoint.storage.files import ImageFiles
from stallpoint.storage.idx import IdxImages
from stallpoint.storage.lmdb import LmdbImages
from stallpoint.storage.mapped import MappedImages
from stallpoint.storage.parquet_format import ParquetImages
from stallpoint.storage.raw import RawImages
from stallpoint.storage.redis import RedisImages
from stallpoint.storage.samples import SampleSet
from stallpoint.storage.sounds import SoundFiles
from stallpoint.storage.tar import TarShards
from stallpoint.storage.tensors import OneBatch, SyntheticTensors
from stallpoint.storage.texts import TextFiles
from stallpoint.storage.tfrecord import TfRecords
from stallpoint.storage.tokens import TokenSequences

__all__ = ["FORMATS", "SampleSet", "Storage"]

_CORE_FORMATS: dict[str, type[SampleSet]] = {
    "files": ImageFiles,
    "idx": IdxImages,
    "tar": TarShards,
    "lmdb": LmdbImages,
    "parquet": ParquetImages,
    "tfrecord": TfRecords,
    "raw": RawImages,
    "mapped": MappedImages,
    "redis": RedisImages,
    "tokens": TokenSequences,
    "texts": TextFiles,
    "sounds": SoundFiles,
    "synthetic": SyntheticTensors,
    "memory": OneBatch,
}
FORMATS = with_others("storages", _CORE_FORMATS)
"""Formats of this and other packages (entry point ``stallpoint.storages``), by their names in a study."""


@dataclass(frozen=True)
class Storage:
    """A training set that a study names under ``storage``."""

    name: str
    path: Path
    format: str

    @property
    def kind(self) -> type[SampleSet]:
        """Return the class of the storage's format; raise `InputError` for an unknown format."""
        if self.format not in FORMATS:
            raise InputError(f"storage {self.name}: unknown format {self.format!r}, known are {', '.join(FORMATS)}")
        return FORMATS[self.format]

    def open(self) -> SampleSet:
        """Open the samples; raise `InputError` for an unknown format, `Unavailable` if path or samples are missing."""
        kind = self.kind
        if not kind.exists_at(self.path):
            raise Unavailable(
                f"storage {self.name}: {self.path} does not exist or is not a folder; one that was generated comes "
                "back by `snakemake -R prepare_storage`, and finished cells stay"
            )
        sample_set = kind(self.path)
        if not sample_set.samples:
            problem = f"no {kind.kind} in {self.path} (format {self.format}: {kind.layout})"
            raise Unavailable(f"storage {self.name}: {problem}")
        return sample_set
