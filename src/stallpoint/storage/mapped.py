"""Format ``mapped``: the arrays of format ``raw``, mapped into memory, as ``np.load(..., mmap_mode="r")`` reads them.

The process unmaps the pages after each read. The page cache cannot drop mapped pages, so that reads from a cold cache
could not be measured. A read error ends the process (SIGBUS), while format ``raw`` reports the error.
"""

from __future__ import annotations

import mmap
import os
from functools import cached_property
from pathlib import Path

from typing_extensions import override

from stallpoint.errors import Unavailable, Unreadable, reason
from stallpoint.storage.raw import IMAGES, RawImages
from stallpoint.storage.samples import ADVICE, cut_off_message


class MappedImages(RawImages):
    """Pixels in an array file that is mapped into memory."""

    layout = f"the same, read through a memory map: {RawImages.layout}"

    @override
    def read(self, index: int) -> bytes:
        """Copy the sample from the map, so that page faults occur in the read. Errors are those of `SampleSet.read`."""
        extent = self._extent(index)
        begin, end = extent.offset, extent.offset + extent.size
        try:
            size = os.stat(extent.path).st_size
            mapped = self._mapped
        except OSError as error:
            raise Unreadable(f"{extent.path}: cannot be read ({reason(error)}); {ADVICE}") from error
        if size < end or len(mapped) < end:
            raise Unavailable(cut_off_message(extent.path, end))
        data = mapped[begin:end]
        page_begin = begin - begin % mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, page_begin, end - page_begin)
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
