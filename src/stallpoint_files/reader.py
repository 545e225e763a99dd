"""Interface of file formats: recognition, reading into a record, and answers to all records of a format.

Other packages add a `Reader` or `PathReader` by the entry point ``stallpoint.readers``, named like the format.
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
    """Details of one format's files, in addition to its findings."""

    @property
    def kind(self) -> str:
        """Kind of the findings that `parts` already include on a page."""

    def to_json(self) -> Any:
        """Return the details as JSON types."""

    def parts(self) -> Iterator[str | Spec]:
        """Yield the details as HTML and charts for a page."""


@dataclass
class FoundRecords:
    """Records of all files, each with its file, by reader name; and details of the findings."""

    records: dict[str, list[tuple[Path, Any]]] = field(default_factory=dict)
    details: dict[str, Detail] = field(default_factory=dict)
    """Details by their keys in JSON."""

    def of(self, name: str) -> list[tuple[Path, Any]]:
        """Return the records of the reader `name`, each with its file."""
        return self.records.get(name, [])


Answers = Callable[[FoundRecords, Options], Iterator[Finding]]
"""Function that yields the findings on the records of one format; none without records."""
InFolder = Callable[[Path], Sequence[Path]]
"""Function that returns a format's files in a folder if only these are to be read of it; else an empty sequence."""


def _no_preference(folder: Path) -> Sequence[Path]:
    return ()


def no_answers(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield nothing: another format's answers include these records."""
    yield from ()


@dataclass(frozen=True)
class Reader:
    """A text format."""

    what: str
    """The format in words, for users."""
    recognised: Callable[[Document], object]
    read: Callable[[Document], Any]
    """Function that returns the record in a recognised text; `InputError` names the wrong line."""
    answers: Answers
    shares_file: bool = False
    """Whether the file may contain other formats, too."""
    in_folder: InFolder = _no_preference


@dataclass(frozen=True)
class PathReader:
    """A format of binary files, recognised by their first bytes, or of folders."""

    what: str
    found: Callable[[Path], Any]
    """Function that returns the record at a path (file or folder); None for another format."""
    answers: Answers
    in_folder: InFolder = _no_preference
