"""Reading of users' files, as unpacked bytes or as lines of text.

Texts may have any usual encoding; prefixes that launchers put before lines are removed.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, cast

from stallpoint.errors import InputError, reason

MAX_BYTES = 256 * 1024 * 1024
"""Largest size of a text: tables, logs and scripts of one run are smaller."""
_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_LAUNCHERS = re.compile(
    r"""\s{0,3}(?:
        \[\d+,\d+\](?:<std(?:out|err|diag)>)?:[ ]?          # mpirun --tag-output, mpi-operator
      | \[(?:default|rank)?\d+\][ ]?:[ ]?                   # torchrun --tee, mpirun -prepend-rank
      | \[\d{1,5}\][ ](?=[ ]*[\d\#])                         # mpirun -prepend-rank of Intel MPI and MVAPICH
      | (?:[\w-]+(?:\.[\w-]+)+[ ])?\d{1,5}:(?=\s|\#|$)[ ]?   # srun --label, mpiexec -l of PALS with the host
      | \[?pod/[\w.-]+/[\w.-]+\]?[ ]                        # kubectl logs --prefix
      | \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z[ ]        # kubectl logs --timestamps
    )""",
    re.VERBOSE,
)
_LINE_ENDS = re.compile(r"\r\n|\n|\r")
_TOO_LONG_NUMBER = re.compile(r"(?<!\d)\d{1000,}")
"""More digits than any measured number has, or Python converts."""
SEARCHED_SIZE = 20_000
"""Number of characters at the beginning of a line in which patterns of logs are searched."""
_INLINE_MARKS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|(?<=\d)\[\d{1,5}\](?=\s{3,}\d+\.\d)")
"""Colours, and marks of mpirun inside a line that the program printed in pieces."""


def without_launcher(line: str) -> str:
    """Return the line as its program printed it, without colours and prefixes of mpirun, srun, torchrun or kubectl."""
    line = _INLINE_MARKS.sub("", line.rstrip("\r\n"))
    begin = 0
    while (mark := _LAUNCHERS.match(line, begin)) and mark.end() > begin:
        begin = mark.end()
    return line[begin:]


@dataclass(frozen=True)
class Document:
    """A text file of the user, with its lines."""

    path: Path
    text: str
    pattern: str = ""
    """The user's regular expression for the lines of a training log; empty without one."""

    @classmethod
    def read(cls, path: Path, pattern: str = "") -> Document:
        """Read the file; `InputError` if it is missing or no text."""
        try:
            with open_bytes(path) as file:
                content = file.read(MAX_BYTES + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{path}: not a whole gzip file: {error}") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {reason(error)}") from None
        if len(content) > MAX_BYTES:
            raise InputError(f"{path}: more than {MAX_BYTES // 2**20} MiB; give the part with the numbers")
        document = cls(path, _decoded_text(path, content), pattern)
        if digits := _TOO_LONG_NUMBER.search(document.text):
            line = len(_LINE_ENDS.split(document.text[: digits.start()]))
            raise document.error(
                line, f"a number of {len(digits[0]):,} digits; numbers as programs print them are read"
            )
        return document

    @cached_property
    def raw_lines(self) -> list[str]:
        """Lines of the file; a carriage return also ends a line, as progress bars print it."""
        return _LINE_ENDS.split(self.text)

    @cached_property
    def lines(self) -> list[str]:
        """Lines without the prefixes of launchers, each cut to `SEARCHED_SIZE` characters."""
        return [without_launcher(line[:SEARCHED_SIZE]) for line in self.raw_lines]

    @cached_property
    def cut_remark(self) -> str:
        """Remark that the first line longer than `SEARCHED_SIZE` was cut; empty if no line was."""
        for number, line in enumerate(self.raw_lines, start=1):
            if len(line) > SEARCHED_SIZE:
                return f"line {number} has {len(line):,} characters; only its first {SEARCHED_SIZE:,} are searched"
        return ""

    def error(self, line: int, message: str, kind: type[InputError] = InputError) -> InputError:
        """Return an error of class `kind` with a message about the line with number `line`, counted from 1."""
        return kind(f"{self.path}, line {line}: {message}")


def _decoded_text(path: Path, content: bytes) -> str:
    encoding = next((name for bom, name in _BYTE_ORDER_MARKS.items() if content.startswith(bom)), None)
    if encoding is None and len(content) > 3 and b"\0" in content[:64]:
        encoding = "utf-16-le" if content[1:64:2].count(0) > content[0:64:2].count(0) else "utf-16-be"
    try:
        text = content.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        text = content.decode("cp1252" if encoding is None else encoding, errors="replace")
    # Over 1 % of undecodable or control characters, besides white space and escapes, show that a file is no text.
    strange_characters = sum(text.count(chr(code)) for code in (*range(9), *range(14, 27), 0xFFFD))
    if strange_characters > len(text) / 100:
        raise InputError(
            f"{path}: not a text; give the program's log, or its numbers as CSV (UTF-8, UTF-16 or Latin-1)"
        )
    return "\n".join(line.rstrip(" \r") for line in text.replace("\0", "").split("\n"))


HEAD_BYTES = 4096
"""Bytes at the beginning by which formats are recognised."""


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading bytes; a gzip file is decompressed."""
    with path.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path) if is_gzip else path.open("rb"))


def head(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed; UTF-16 text becomes UTF-8. Raises `InputError` if unreadable."""
    try:
        with open_bytes(path) as file:
            first_bytes = file.read1(HEAD_BYTES) if isinstance(file, gzip.GzipFile) else file.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    encoding = next((name for bom, name in _BYTE_ORDER_MARKS.items() if first_bytes.startswith(bom)), "")
    return first_bytes.decode(encoding, "ignore").encode() if encoding else first_bytes
