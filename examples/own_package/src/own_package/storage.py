"""A storage: that of format ``raw`` with the images turned upside down, as some cameras write them."""

from typing_extensions import override

from stallpoint.storage.images import Pixels
from stallpoint.storage.raw import RawImages


class UpsideDown(RawImages):
    """Pixels whose rows are stored from the last one to the first."""

    layout = "images.npy and labels.npy as those of raw, rows from the last one to the first"

    @override
    def decode(self, index: int, data: bytes, size: int) -> Pixels:
        """Return the pixels, the first row first."""
        return super().decode(index, data, size)[:, ::-1]
