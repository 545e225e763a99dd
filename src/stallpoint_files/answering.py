"""Joint answers to files of all known formats."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from stallpoint.base.section import Cause, Finding
from stallpoint.base.section_texts import SCHEMA_VERSION, in_json, in_terminal
from stallpoint.errors import InputError
from stallpoint.text import listed
from stallpoint_files import readers
from stallpoint_files.file_options import Options
from stallpoint_files.reader import Detail, FoundRecords
from stallpoint_files.studies import study_results

MAX_FILES = 10_000


@dataclass(frozen=True)
class Input:
    """A file and its recognised content."""

    file: str
    recognised: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """Findings of all files."""

    inputs: Sequence[Input]
    answers: Sequence[Finding]
    details: Mapping[str, Detail] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the answers as JSON types: schema version, ``inputs``, ``answers``, and the details of ``traces``."""
        return {
            "version": SCHEMA_VERSION,
            "inputs": [asdict(one) for one in self.inputs],
            "answers": in_json(self.answers),
            "traces": [],
            **{name: detail.to_json() for name, detail in self.details.items()},
        }

    def in_words(self) -> str:
        """Return the answers as text for a terminal."""
        return in_terminal(self.answers)


def explain_files(names: Sequence[str], options: Options) -> Explanation:
    """Return the answers to the named files; `InputError` names a wrong file and line."""
    with tempfile.TemporaryDirectory(prefix="stallpoint-") as scratch:

        def named(text: str) -> str:
            for place, name in enumerate(names):
                text = text.replace(f"{scratch}/{place}/", f"{name}/")
            return text

        try:
            paths, of_folders = _paths(names, Path(scratch))
            found = _explained(paths, options, of_folders)
        except InputError as error:
            raise InputError(named(str(error))) from None
        return replace(found, inputs=[replace(one, file=named(one.file)) for one in found.inputs])


def _explained(paths: Sequence[Path], options: Options, of_folders: Collection[Path]) -> Explanation:
    """Return the answers to files; a file of a folder may be refused, as a folder may hold files of other kinds."""
    found, inputs = FoundRecords(), []
    refused: dict[Path, InputError] = {}
    for path in paths:
        records = _record_at(path)
        if not records:
            try:
                records = readers.read(path, options.pattern)
            except InputError as error:
                if path not in of_folders:
                    raise
                refused[path] = error
                continue
        for name, record in records.items():
            found.records.setdefault(name, []).append((path, record))
        # all files of a probe give the same record, whose path is the input's name
        inputs.append(Input(str(records.get("probe", path)), tuple(records)))
    if refused and not inputs:
        raise next(iter(refused.values()))
    answers = list(readers.answers(found, options))
    if refused and answers:
        names = listed([path.name for path in list(refused)[:3]]) + (", ..." if len(refused) > 3 else "")
        answers[0] = replace(answers[0], notes=(*answers[0].notes, f"not read, as nothing that is known: {names}"))
    return Explanation(list(dict.fromkeys(inputs)), _with_link_evidence(answers), found.details)


def _record_at(path: Path) -> dict[str, Any]:
    """Return the record of a folder or binary file, with its reader's name as key; empty for texts."""
    for name, reader in readers.path_readers().items():
        if (record := reader.found(path)) is not None and record != []:
            return {name: record}
    return {}


def _paths(names: Sequence[str], scratch: Path) -> tuple[list[Path], set[Path]]:
    """Return the files to read, with those in folders and zips (unpacked in `scratch`), and which are from folders."""
    paths: list[Path] = []
    of_folders: set[Path] = set()
    for place, name in enumerate(names):
        path = Path(name)
        if path.is_dir() and not (study_results.is_study(path) or study_results.probe_folder(path)):
            in_folder = _in_folder(path)
            paths += in_folder
            of_folders.update(in_folder)
        elif path.exists():
            paths += _in_folder(scratch / str(place)) if study_results.unpack(path, scratch / str(place)) else [path]
        elif Path("results", name).is_dir():
            paths.append(Path("results", name))
        else:
            raise InputError(f"{name}: there is no such file, folder or study")
    if len(paths) > MAX_FILES:
        raise InputError(f"{len(paths)} files; at most {MAX_FILES:,} are read at once")
    return paths, of_folders


def _in_folder(folder: Path) -> Sequence[Path]:
    """Return the files of a preferred format in a folder and its subfolders; without any, all files."""
    if preferred := readers.in_folder(folder):
        return preferred
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.name.startswith(".")]
    if not files:
        raise InputError(f"{folder}: a folder without files, in subfolders neither; {readers.known()}")
    return files


def _with_link_evidence(answers: list[Finding]) -> list[Finding]:
    """Return the answers, with the link's limit from a log, if there is one, as evidence for causes of rates."""
    links = [one for one in answers if one.kind in ("link", "transport", "storage")]
    slow = [cause for one in links for cause in one.causes if cause.name not in ("break",)]
    if not links:
        return answers
    words = slow[0].words if slow else f"{links[0].subject}: {links[0].words}"
    which = "the log beside it names the path" if slow else "the log beside it"
    return [
        replace(one, causes=tuple(_with_link(cause, which, words) for cause in one.causes))
        if one.kind == "rates"
        else one
        for one in answers
    ]


def _with_link(cause: Cause, which: str, words: str) -> Cause:
    if cause.name not in ("shared_limit", "contention", "between_nodes", "node_boundary", "workers"):
        return cause
    return replace(cause, evidence="; ".join(filter(None, (cause.evidence, f"{which}: {words}"))))
