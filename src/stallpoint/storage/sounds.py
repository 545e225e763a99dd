"""Format ``sounds``: one small WAV file for each sample, in a folder for each class."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterable

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.storage.files import SmallFiles
from stallpoint.storage.samples import Made, SampleShape


class SoundFiles(SmallFiles):
    """Sounds in uncompressed WAV files."""

    kind = "sounds"
    suffixes = (".wav",)
    layout = "class folders with .wav files, not compressed"

    @override
    def check(self, index: int, data: bytes) -> None:
        """Check that the file has as many values as its header states."""
        try:
            with wave.open(io.BytesIO(data)) as file:
                frame_count = len(file.readframes(file.getnframes())) // (file.getsampwidth() * file.getnchannels())
                is_complete = frame_count == file.getnframes() > 0
        except (wave.Error, EOFError) as error:
            raise InputError(f"{self.name(index)}: not a readable WAV file ({error})") from None
        if not is_complete:
            raise InputError(f"{self.name(index)}: ends before its {file.getnframes()} values do")

    @classmethod
    @override
    def synthetic(cls, samples: int, seed: int, shape: SampleShape | None) -> Iterable[Made]:
        """Yield sounds and their classes."""
        from stallpoint.storage.synthetic import synthetic_sounds

        return synthetic_sounds(samples, seed)
