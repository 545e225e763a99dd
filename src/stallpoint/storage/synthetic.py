"""Synthetic training sets: images with ImageNet's dimensions, texts with word-like token frequencies, sounds."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

CLASSES = 10
SOUND_RATE = 16_000
"""Sampling rate of sounds, 1/s."""
_CHUNK_SAMPLES = 64
_ZIPF_SHIFT = 2.7
"""Mandelbrot's shift: the most frequent words of a language are rarer than 1 / rank (Mandelbrot, 1953)."""


def synthetic_images(samples: int, seed: int) -> Iterator[tuple[bytes, int]]:
    """Yield JPEGs of ImageNet's dimensions (about 500 x 375 pixels and 110 KB on average) and their classes."""
    with ThreadPoolExecutor() as pool:
        for first in range(0, samples, _CHUNK_SAMPLES):
            numbers = range(first, min(first + _CHUNK_SAMPLES, samples))
            images = pool.map(lambda number: _synthetic_image(np.random.default_rng([seed, number])), numbers)
            yield from ((image, number % CLASSES) for number, image in zip(numbers, images, strict=True))


def _synthetic_image(rng: np.random.Generator) -> bytes:
    """Return a smooth picture with noise as a JPEG; the strength of the noise determines the size in bytes."""
    from PIL import Image

    width, height = (np.array([500, 375]) * rng.lognormal(-0.02, 0.2, 2)).clip(100, 2000).astype(int)
    coarse_image = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
    smooth_values = np.asarray(coarse_image.resize((width, height), Image.Resampling.BICUBIC), np.float32)
    noise_strength = rng.uniform(10, 40)
    noise = rng.standard_normal((height, width, 1), np.float32) * np.float32(noise_strength)
    pixels: npt.NDArray[np.uint8] = (smooth_values + noise).clip(0, 255).astype(np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "JPEG", quality=90)
    return data.getvalue()


def synthetic_sequences(samples: int, seed: int, length: int, vocabulary: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield sequences of `length` + 1 tokens; each begins with the last token of the previous sequence.

    The frequency of token r, a number from 0 on, is proportional to 1 / (r + 1 + `_ZIPF_SHIFT`): the law of Zipf and
    Mandelbrot. Tokens are independent of each other.
    """
    token_weights = 1 / (np.arange(vocabulary) + 1 + _ZIPF_SHIFT)
    thresholds = np.cumsum(token_weights) / token_weights.sum()
    previous_token = np.zeros(1, np.int64)
    for number in range(samples):
        new_tokens = np.searchsorted(thresholds, np.random.default_rng([seed, number]).random(length), side="right")
        sequence = np.concatenate([previous_token, new_tokens.clip(max=vocabulary - 1)])
        previous_token = sequence[-1:]
        yield sequence


def synthetic_texts(samples: int, seed: int) -> Iterator[tuple[bytes, int]]:
    """Yield texts as long as the film reviews of Maas et al. (2011), some 1,300 letters, and their classes."""
    for number in range(samples):
        rng = np.random.default_rng([seed, number])
        letters = rng.choice(np.frombuffer(b"etaoinshrdlu     ", np.uint8), int(rng.lognormal(7.0, 0.6)) + 1)
        yield letters.tobytes(), number % CLASSES


def synthetic_sounds(samples: int, seed: int) -> Iterator[tuple[bytes, int]]:
    """Yield WAV files like the words of Warden (2018), one second of 16 bits at 16 kHz, and their classes."""
    for number in range(samples):
        rng = np.random.default_rng([seed, number])
        data = io.BytesIO()
        with wave.open(data, "wb") as file:
            file.setparams((1, 2, SOUND_RATE, 0, "NONE", "not compressed"))
            file.writeframes(rng.normal(0, 3000, SOUND_RATE).astype("<i2").tobytes())
        yield data.getvalue(), number % CLASSES
