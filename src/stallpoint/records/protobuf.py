"""Protocol buffers in wire format, as far as samples of Caffe and TensorFlow and traces of Chakra need them.

Values such as images are not copied: `fields` yields where each value begins and ends. Protobuf's own library would
copy the values, and needs definitions of messages, which come with Caffe, TensorFlow and Chakra. The encoding is
described at https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]
"""Offset of the first byte, and of the byte after the last."""
Buffer: TypeAlias = bytes | memoryview

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def fields(data: Buffer, span: Span) -> Iterator[tuple[int, int | Span]]:
    """Yield number and value of each field of the message at `span`; a value is an integer, or a span of bytes.

    Raises `ValueError` if the bytes are no message.
    """
    offset, end = span
    while offset < end:
        key, offset = varint(data, offset, end)
        if (type_ := key & 7) == _VARINT:
            value, offset = varint(data, offset, end)
            yield key >> 3, value
            continue
        if type_ == _BYTES:
            size, offset = varint(data, offset, end)
        elif type_ in (_FIXED32, _FIXED64):
            size = 4 if type_ == _FIXED32 else 8
        else:
            raise ValueError(f"no protocol buffer: a field of type {type_}")
        if offset + size > end:
            raise ValueError("no protocol buffer: a field goes beyond its end")
        yield key >> 3, (offset, offset + size)
        offset += size


def records(data: Buffer) -> Iterator[Span]:
    """Yield the spans of successive messages, each stored after its length; raise `ValueError` if one is truncated."""
    offset = 0
    while offset < len(data):
        size, offset = varint(data, offset, len(data))
        if offset + size > len(data):
            raise ValueError("no protocol buffer: a message goes beyond the end")
        yield offset, offset + size
        offset += size


def integers(data: Buffer, span: Span) -> Iterator[int]:
    """Yield the packed non-negative integers at `span`."""
    offset, end = span
    while offset < end:
        value, offset = varint(data, offset, end)
        yield value


def integer_field(field_number: int, value: int) -> bytes:
    """Return the encoded field `field_number` whose value is a non-negative integer."""
    return _encoded_integer(field_number << 3 | _VARINT) + _encoded_integer(value)


def message(field_number: int, *parts: bytes) -> bytes:
    """Return an encoded field whose value is the joined `parts`; encoded fields as parts make the value a message."""
    return b"".join([_encoded_integer(field_number << 3 | _BYTES), _encoded_integer(sum(map(len, parts))), *parts])


def varint(data: Buffer, offset: int, end: int) -> tuple[int, int]:
    """Return the integer at `offset`, and the offset after it; raise `ValueError` if the integer goes beyond `end`."""
    value = 0
    for shift in range(0, 70, 7):
        if offset >= end:
            break
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise ValueError("no protocol buffer: an integer goes beyond its end")


def _encoded_integer(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
