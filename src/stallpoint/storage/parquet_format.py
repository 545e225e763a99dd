"""Format ``parquet``: Parquet files with a column of encoded images, as in Hugging Face's datasets.

Parquet is read by row groups: reading one image reads its complete group. The last group stays in memory, so that
reading images in order reads each group once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from typing_extensions import override

from stallpoint.errors import InputError, Unavailable, Unreadable
from stallpoint.records.atomic import atomic
from stallpoint.storage.images import EncodedImages
from stallpoint.storage.samples import ADVICE, INDEX_FILE, PART, Extent, IndexEntry, Made
from stallpoint.storage.shards import shards

GROUP_ROWS = 32
"""Number of rows of each row group that is written: about 3.5 MB of ImageNet."""
_BYTES_COLUMN = "image.bytes"
_SCHEMA = pa.schema([("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())])


class ParquetImages(EncodedImages):
    """Images in Parquet files."""

    layout = ".parquet files with columns image (a struct with bytes) and label (integers)"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._metadata = lru_cache(maxsize=None)(self._metadata_of)
        self._group = lru_cache(maxsize=1)(self._read_group)

    @classmethod
    @override
    def scan(cls, path: Path) -> Iterator[IndexEntry]:
        """Yield the rows of all files, in the order of the files' names; an entry's `offset` is its row number."""
        for file in shards(path, ".parquet"):
            if file.name == INDEX_FILE:
                continue
            row = 0
            try:
                with pq.ParquetFile(file) as opened:
                    for batch in opened.iter_batches(GROUP_ROWS, columns=[_BYTES_COLUMN, "label"]):
                        sizes = pc.binary_length(batch.column("image").field("bytes"))
                        for size, label in zip(sizes.to_pylist(), batch.column("label").to_pylist(), strict=True):
                            yield IndexEntry(file.name, row, size, label)
                            row += 1
            except (pa.ArrowException, OSError, KeyError, TypeError, AttributeError) as error:
                raise InputError(f"{file}: {str(error) or 'not so'}; expected {cls.layout}, not cut off") from None

    @override
    def read(self, index: int) -> bytes:
        """Read the sample's complete row group, unless it is in memory; errors are those of `SampleSet.read`."""
        file = int(self._file[index])
        try:
            group, row = self._position(index)
            data: bytes = self._group(file, group)[row].as_py()
        except (pa.ArrowException, OSError) as error:
            raise Unreadable(f"{self.name(index)}: cannot be read ({error}); {ADVICE}") from error
        if len(data) != self.size(index):
            raise Unavailable(f"{self.name(index)}: has another size than before; {ADVICE}")
        return data

    @override
    def extent(self, index: int) -> Extent:
        """Return where the sample's row group has its column of images."""
        file = int(self._file[index])
        metadata = self._metadata(file).row_group(self._position(index)[0])
        columns = (metadata.column(number) for number in range(metadata.num_columns))
        column = next(column for column in columns if column.path_in_schema == _BYTES_COLUMN)
        begin = column.dictionary_page_offset or column.data_page_offset
        return Extent(self.path / self._files[file], begin, column.total_compressed_size)

    @override
    def name(self, index: int) -> str:
        return f"{self.path / self._files[self._file[index]]}, row {self._offset[index]}"

    @override
    def close(self) -> None:
        """Drop the row group that is kept in memory."""
        self._group.cache_clear()

    @classmethod
    @override
    def write_part(cls, path: Path, first: int, part: Sequence[Made]) -> None:
        images = [{"bytes": data, "path": None} for data, _ in part]
        table = pa.Table.from_pydict({"image": images, "label": [label for _, label in part]}, _SCHEMA)
        with atomic(path / f"part{first // PART:05d}.parquet") as file:
            pq.write_table(table, file, row_group_size=GROUP_ROWS, compression="none", use_dictionary=False)

    def _position(self, index: int) -> tuple[int, int]:
        """Return the row group of the sample, and the sample's row within the group."""
        row, metadata = int(self._offset[index]), self._metadata(int(self._file[index]))
        ends = np.cumsum([metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)])
        group = int(np.searchsorted(ends, row, side="right"))
        return group, row - (int(ends[group - 1]) if group else 0)

    def _metadata_of(self, file: int) -> pq.FileMetaData:
        return pq.read_metadata(self.path / self._files[file])

    def _read_group(self, file: int, group: int) -> pa.Array:
        """Return the images of a group; each call opens the file anew, as threads cannot share an open file."""
        with pq.ParquetFile(self.path / self._files[file], metadata=self._metadata(file)) as opened:
            return opened.read_row_group(group, columns=[_BYTES_COLUMN]).column("image").combine_chunks().field("bytes")
