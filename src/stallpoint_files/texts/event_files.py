"""Event files of TensorBoard: their scalars as a table, like TensorBoard's own export.

A file consists of records (TFRecord): length, checksum, message, checksum. Messages follow TensorBoard's event.proto,
summary.proto and tensor.proto, of which few fields are needed; TensorBoard's own reader depends on nine packages.
"""

from __future__ import annotations

import csv
import io
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document, head, open_bytes
from stallpoint.records.protobuf import fields

BEGIN = re.compile(rb"(?s)\A.{8,20}\x09.{8}\x1a.brain\.Event:")
_HEADER, _CHECKSUM = 12, 4
"""Bytes before and after a message."""
_FLOAT = b"\x01" + bytes(7)
"""Type of float32 tensors, the only type of scalars."""
_IN_SAMPLES = re.compile(r"samples[/ ]|\bvs\b", re.IGNORECASE)
"""Tags whose steps count samples: Megatron's ``loss vs samples``, DeepSpeed's ``Train/Samples/train_loss``."""


def table(path: Path, pattern: str = "") -> Document | None:
    """Return a table with a row for each step and a column for each tag; None for other files, or without scalars."""
    if not BEGIN.search(head(path)):
        return None
    found: dict[str, dict[int, tuple[float, float]]] = {}
    try:
        for message in _messages(path):
            for tag, step, wall, value in _scalars(message):
                found.setdefault(tag, {})[step] = (wall, value)
    except (KeyError, ValueError, struct.error) as error:
        raise InputError(f"{path}: a broken event file of TensorBoard ({error!r})") from None
    if not found:
        return None
    clocks = [tag for tag in found if not _IN_SAMPLES.search(tag)]
    clock = max(clocks, key=lambda tag: len(found[tag]), default="")
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["Step", "Wall time", *(" ".join(tag.split()) for tag in found)])
    for step in sorted({step for of in found.values() for step in of}):
        at = found[clock][step][0] if clock and step in found[clock] else ""
        writer.writerow([step, at, *(f"{of[step][1]:.9g}" if step in of else "" for of in found.values())])
    return Document(path, text.getvalue(), pattern)


def _messages(path: Path) -> Iterator[bytes]:
    """Yield the messages; a truncated last one (the training still runs) is dropped."""
    with open_bytes(path) as file:
        while len(begin := file.read(_HEADER)) == _HEADER:
            length = int.from_bytes(begin[:8], "little")
            message = file.read(min(length, 2**31))
            if len(message) < length or len(file.read(_CHECKSUM)) < _CHECKSUM:
                return
            yield message


def _scalars(event: bytes) -> Iterator[tuple[str, int, float, float]]:
    """Yield tag, step, wall time (s since 1970) and value of each scalar of an event."""
    known = dict(_fields(event))
    step = int.from_bytes(known.get(2, b""), "little", signed=True)
    for number, summary in _fields(known.get(5, b"")):
        value = dict(_fields(summary))
        tensor = dict(_fields(value.get(8, b"")))
        content = value.get(2) or (tensor.get(4) or tensor.get(5, b"") if tensor.get(1) == _FLOAT else b"")
        if number == 1 and len(content) == 4:  # a scalar has one number, unlike histograms and images
            yield (
                value[1].decode(),
                step,
                struct.unpack("<d", known.get(1, bytes(8)))[0],
                struct.unpack("<f", content)[0],
            )


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield numbers and contents of a message's fields; integers as eight bytes, little-endian."""
    for number, value in fields(message, (0, len(message))):
        yield number, (value % 2**64).to_bytes(8, "little") if isinstance(value, int) else message[slice(*value)]
