"""Format ``tfrecord``: TensorFlow's records, each an Example with an encoded image and its class.

A record holds its length (uint64), the length's checksum, the Example and its checksum, little-endian. Checksums
(uint32) are masked CRC-32C: https://www.tensorflow.org/tutorials/load_data/tfrecord. Features are named as in
TensorFlow's ImageNet (``image/encoded``, ``image/class/label``) or in TensorFlow Datasets (``image``, ``label``).

The checksums of lengths are verified when the index is made, which finds truncated and foreign files early.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.records.protobuf import Buffer, Span, fields, integer_field, integers, message
from stallpoint.storage.images import EncodedImages
from stallpoint.storage.samples import PART, IndexEntry, Made
from stallpoint.storage.shards import shards

_IMAGE, _LABEL = (b"image/encoded", b"image"), (b"image/class/label", b"label")
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_HEADER = _LENGTH.size + _CHECKSUM.size


class TfRecords(EncodedImages):
    """Images in files of TensorFlow's records."""

    layout = (
        "files with tfrecord in their names, of Examples with image/encoded and image/class/label (or image and label)"
    )

    @classmethod
    @override
    def scan(cls, path: Path) -> Iterator[IndexEntry]:
        """Yield the images of all record files, sorted by the files' names."""
        for file in (file for file in shards(path, "") if "tfrecord" in file.name and file.stat().st_size):
            with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                data_view = memoryview(mapped)
                try:
                    for record in _example_spans(data_view):
                        (begin, end), label = _image_and_label(data_view, record)
                        yield IndexEntry(file.name, begin, end - begin, label)
                except ValueError as error:
                    raise InputError(f"{file}: {error}; expected {cls.layout}") from None
                finally:
                    data_view.release()

    @classmethod
    @override
    def write_part(cls, path: Path, first: int, part: Sequence[Made]) -> None:
        with atomic(path / f"part{first // PART:05d}.tfrecord") as scratch, scratch.open("wb") as file:
            for data, label in part:
                example = _example(data, label)
                length = _LENGTH.pack(len(example))
                file.writelines([length, _checksum(length), example, _checksum(example)])


def _example_spans(data: memoryview) -> Iterator[Span]:
    """Yield where each record's Example begins and ends; raise `ValueError` for a truncated or foreign file."""
    offset = 0
    while offset < len(data):
        length = bytes(data[offset : offset + _LENGTH.size])
        if offset + _HEADER > len(data):
            raise ValueError(f"is cut off in the record at byte {offset}")
        if bytes(data[offset + _LENGTH.size : offset + _HEADER]) != _checksum(length):
            raise ValueError(f"the checksum of the record at byte {offset} is wrong")
        begin = offset + _HEADER
        end = begin + int(_LENGTH.unpack(length)[0])
        offset = end + _CHECKSUM.size
        if offset > len(data):
            raise ValueError(f"is cut off in the record at byte {begin - _HEADER}")
        yield begin, end


def _checksum(data: Buffer) -> bytes:
    """Return the CRC-32C in TensorFlow's masked form: rotated by 15 bits, plus a constant."""
    import crc32c  # the extra stallpoint[measure] installs crc32c

    checksum = crc32c.crc32c(data)
    return _CHECKSUM.pack(((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _image_and_label(data: memoryview, span: Span) -> tuple[Span, int]:
    """Return where an Example's encoded image begins and ends, and its class; raise `ValueError` without image."""
    contents: dict[bytes, int | Span] = {}
    for features in _submessages(data, span, 1):
        for entry in _submessages(data, features, 1):
            (begin, end), feature = (next(_submessages(data, entry, part)) for part in (1, 2))
            name = bytes(data[begin:end])
            for kind, values in fields(data, feature):
                for _, value in fields(data, values) if isinstance(values, tuple) else ():
                    is_packed = kind == 3 and isinstance(value, tuple)
                    contents[name] = next(integers(data, value), 0) if is_packed else value  # type: ignore[arg-type]
    image = next((contents[name] for name in _IMAGE if name in contents), None)
    label = next((contents[name] for name in _LABEL if name in contents), 0)
    if not isinstance(image, tuple) or not isinstance(label, int):
        raise ValueError(f"the Example at byte {span[0]} has {', '.join(map(repr, contents)) or 'no features'}")
    return image, label


def _submessages(data: memoryview, span: Span, number: int) -> Iterator[Span]:
    """Yield the spans of the messages in the field `number` of the message at `span`."""
    return (value for which, value in fields(data, span) if which == number and isinstance(value, tuple))


def _example(image: bytes, label: int) -> bytes:
    def feature(name: bytes, values: bytes) -> bytes:
        return message(1, message(1, name), message(2, values))

    return message(
        1,
        feature(_IMAGE[0], message(1, message(1, image))),
        feature(_LABEL[0], message(3, integer_field(1, label))),
    )
