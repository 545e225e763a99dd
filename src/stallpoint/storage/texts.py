"""Format ``texts``: one small text file for each sample, in a folder for each class."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.storage.files import SmallFiles
from stallpoint.storage.samples import Made, SampleShape


class TextFiles(SmallFiles):
    """Texts in UTF-8."""

    kind = "texts"
    suffixes = (".txt",)
    layout = "class folders with .txt files, UTF-8"

    @override
    def check(self, index: int, data: bytes) -> None:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{self.name(index)}: not a UTF-8 text ({error})") from None

    @classmethod
    @override
    def synthetic(cls, samples: int, seed: int, shape: SampleShape | None) -> Iterable[Made]:
        """Yield texts and their classes."""
        from stallpoint.storage.synthetic import synthetic_texts

        return synthetic_texts(samples, seed)
