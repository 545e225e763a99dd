"""Interface of formats of files: recognition, record, and answers to all records of a format.

Others' packages add a `Reader` or `PathReader` by the entry point ``stallpoint.readers``, whose name is the format's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stallpoint.base.section import Finding
from stallpoint.inputs.documents import Document
from stallpoint_files.file_options import Options

if TYPE_CHECKING:
    from stallpoint.report.charts.render import Spec


class Detail(Protocol):
    """Everything about the files of one format, beside its findings."""

    @property
    def kind(self) -> str:
        """Kind of the findings that the parts of a page say already."""

    def to_json(self) -> Any:
        """Return the details as JSON types."""

    def parts(self) -> Iterator[str | Spec]:
        """Yield its HTML and charts for a page."""


@dataclass
class FoundRecords:
    """The records of all files by the names of their readers, each with its file; and details of what was said."""

    records: dict[str, list[tuple[Path, Any]]] = field(default_factory=dict)
    details: dict[str, Detail] = field(default_factory=dict)
    """By the key that each has in JSON."""

    def of(self, name: str) -> list[tuple[Path, Any]]:
        """Return the records of a reader with their files."""
        return self.records.get(name, [])


Answers = Callable[[FoundRecords, Options], Iterator[Finding]]
"""What is said of the records of one format; nothing where there is none."""
InFolder = Callable[[Path], Sequence[Path]]
"""The files of a format in a folder, which are then all that is read of it; none where its files are not preferred."""


def _all_alike(folder: Path) -> Sequence[Path]:
    return ()


def no_answers(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield nothing, as another format's answers include these records."""
    yield from ()


@dataclass(frozen=True)
class Reader:
    """A format of texts."""

    what: str
    """What it is, for people."""
    recognised: Callable[[Document], object]
    read: Callable[[Document], Any]
    """The record in a text that is recognised; `InputError` names the line that is wrong."""
    answers: Answers
    shares_file: bool = False
    """Whether others may stand in the same file."""
    in_folder: InFolder = _all_alike


@dataclass(frozen=True)
class PathReader:
    """A format that is no text: recognised by its first bytes, or a folder."""

    what: str
    found: Callable[[Path], Any]
    """The record at a path, a file or a folder; None where it has another format."""
    answers: Answers
    in_folder: InFolder = _all_alike
