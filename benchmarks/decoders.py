"""Decoding a JPEG for a network's input: Pillow, as stallpoint does, against decoders of the package index.

Candidates whose package is not installed are named and left out; ``pip install simplejpeg opencv-python-headless``
brings them. (PyTurboJPEG needs a libturbojpeg of the system, and torchvision's CPU wheel a PyTorch of its own.)
What counts is the CPU time of one thread. Beside it stands how far pixels are from Pillow's, on the scale 0..255.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from stallpoint.storage.images import decode_image
from stallpoint.storage.synthetic import synthetic_images

IMAGES, SIZE = 100, 224

Pixels: TypeAlias = npt.NDArray[np.uint8]


def pillow(data: bytes) -> Pixels:
    return decode_image(data, SIZE, "image")


def simplejpeg_same(data: bytes) -> Pixels:
    """libjpeg-turbo by simplejpeg, at the scale that Pillow takes; resized by Pillow."""
    import simplejpeg

    height, width, *_ = simplejpeg.decode_jpeg_header(data)
    scale = max(of for of in (1, 2, 4, 8) if of == 1 or min(height, width) // of >= SIZE)
    least = {"min_height": -(-height // scale), "min_width": -(-width // scale), "min_factor": scale}
    return resized(simplejpeg.decode_jpeg(data, "RGB", **least))


def simplejpeg_eighths(data: bytes) -> Pixels:
    """As above, but at the smallest of all eighths that is large enough."""
    import simplejpeg

    return resized(simplejpeg.decode_jpeg(data, "RGB", min_height=SIZE, min_width=SIZE, min_factor=1))


def opencv_area(data: bytes) -> Pixels:
    """OpenCV's decoder, resized by it to averages of areas."""
    import cv2

    return cv2.resize(opencv_decoded(data), (SIZE, SIZE), interpolation=cv2.INTER_AREA).transpose(2, 0, 1)


def opencv_linear(data: bytes) -> Pixels:
    """OpenCV's decoder, resized by it from the four nearest pixels: what is between others is not looked at."""
    import cv2

    return cv2.resize(opencv_decoded(data), (SIZE, SIZE), interpolation=cv2.INTER_LINEAR).transpose(2, 0, 1)


def opencv_decoded(data: bytes) -> Pixels:
    import cv2

    cv2.setNumThreads(1)
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)


def resized(pixels: Pixels) -> Pixels:
    """As `decode_image` does."""
    image = Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return np.asarray(image).transpose(2, 0, 1)


CANDIDATES: dict[str, tuple[str, Callable[[bytes], Pixels]]] = {
    "stallpoint (Pillow)": ("PIL", pillow),
    "simplejpeg, same scale": ("simplejpeg", simplejpeg_same),
    "simplejpeg, scaled by eighths": ("simplejpeg", simplejpeg_eighths),
    "OpenCV, areas": ("cv2", opencv_area),
    "OpenCV, nearest four pixels": ("cv2", opencv_linear),
}
"""Package and function of each."""


def benchmark(scratch: Path, count: int) -> tuple[list, list[str]]:
    """Timings and lines to print."""
    from paired import interleaved, ratio

    images = [data for data, _ in synthetic_images(IMAGES, seed=1)]
    there = {name: decode for name, (package, decode) in CANDIDATES.items() if find_spec(package)}

    def seconds(decode: Callable[[bytes], Pixels]) -> Callable[[], float]:
        def run() -> float:
            begin = time.thread_time()
            for data in images:
                decode(data)
            return time.thread_time() - begin

        return run

    timings = interleaved("decoders", {name: seconds(decode) for name, decode in there.items()}, count)
    ours, *peers = there
    figures = [ratio(timings, ours, name) for name in peers]
    lines = [f"decoders, {count} interleaved rounds of {IMAGES} JPEGs to {SIZE}x{SIZE}, CPU time of one thread"]
    for name, decode in there.items():
        each = min(timing.seconds for timing in timings if timing.candidate == name) / IMAGES
        apart = np.mean([np.abs(np.asarray(decode(data), int) - pillow(data)).mean() for data in images])
        lines.append(f"  {name:<32}{1e3 * each:>6.2f} ms an image, {apart:.2f} of 255 from Pillow's pixels on average")
    lines += [found.line(digits=2) for found in figures]
    if missing := [name for name in CANDIDATES if name not in there]:
        lines.append(f"  not installed here: {', '.join(missing)}")
    return [*timings, *figures], lines
