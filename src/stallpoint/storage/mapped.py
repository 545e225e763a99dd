"""Format ``mapped``: the arrays of format ``raw``, mapped into memory, as ``np.load(..., mmap_mode="r")`` reads them.

After each read the process unmaps the pages: mapped pages cannot be dropped from the page cache, so that cold reads
could not be measured. A read error ends the process (SIGBUS), while format ``raw`` reports it.
"""

from __future__ import annotations

import mmap
import os
from functools import cached_property
from pathlib import Path

from typing_extensions import override

from stallpoint.errors import Unavailable, Unreadable, reason
from stallpoint.storage.raw import IMAGES, RawImages
from stallpoint.storage.samples import REPAIR, ends_before


class MappedImages(RawImages):
    """Pixels in one array file, mapped."""

    layout = f"the same, read through a memory map: {RawImages.layout}"

    @override
    def read(self, index: int) -> bytes:
        """Read the sample as `SampleSet.read` does, including the page faults."""
        extent = self._extent(index)
        begin, end = extent.offset, extent.offset + extent.size
        try:
            size = os.stat(extent.path).st_size
            mapped = self._mapped
        except OSError as error:
            raise Unreadable(f"{extent.path}: cannot be read ({reason(error)}); {REPAIR}") from error
        if size < end or len(mapped) < end:
            raise Unavailable(ends_before(extent.path, end))
        data = mapped[begin:end]
        page = begin - begin % mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, page, end - page)
        return data

    @cached_property
    def _mapped(self) -> mmap.mmap:
        with Path(self.path, IMAGES).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        mapped.madvise(mmap.MADV_RANDOM)
        return mapped

    @override
    def close(self) -> None:
        if mapped := self.__dict__.pop("_mapped", None):
            mapped.close()
