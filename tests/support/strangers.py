"""Inputs as strangers bring them, each with its form's source and the right answer (`data/strangers`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from stallpoint.base.section import Finding
from stallpoint.base.stall import Verdict
from stallpoint.errors import InputError
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options

FOLDER = Path(__file__).parent / "data" / "strangers"
KINDS = {
    "tables": "tables of rates and times",
    "sentences": "lines and sentences",
    "logs": "training logs",
    "phases": "steps that are a sum of phases",
    "collectives": "collectives, links and file systems",
    "unread": "recognised, not read",
}


@dataclass(frozen=True)
class Stranger:
    """One input."""

    kind: str
    """A name of `KINDS`."""
    form: str
    source: str
    """Repository and path, or thread, where the form was seen; ``written for this test`` for others."""
    by: str
    """Who or what says that the answer is right."""
    right: Sequence[Mapping[str, Any]]
    files: Mapping[str, bytes] = field(repr=False)
    published: bool = False
    """Whether the numbers are those that the source printed."""

    def written(self, folder: Path) -> list[str]:
        """Write the files and return their names."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return [str(folder / name) for name in self.files]


def _stranger(kind: str, entry: Mapping[str, Any]) -> Stranger:
    files = {name: text.encode() for name, text in entry.get("files", {}).items()}
    if "text" in entry:
        files[entry.get("name", "input.txt")] = entry["text"].encode()
    if "bytes" in entry:
        files[entry["name"]] = bytes.fromhex(entry["bytes"])
    published = entry.get("numbers") == "published"
    return Stranger(kind, entry["form"], entry["source"], entry["by"], entry["right"], files, published)


STRANGERS = [
    _stranger(kind, entry)
    for kind in KINDS
    for entry in yaml.safe_load((FOLDER / f"{kind}.yaml").read_text(encoding="utf-8"))
]


# --- what is said of them --------------------------------------------------------------------------

TOPICS = {
    "unit": r"a unit says which|no column of rates among|what its numbers are is expected",
    "workers": r"--workers N|not on how many workers",
    "rates": r"--rates all",
    "scaling": r"--scaling weak",
    "settings": r"one curve is of equal settings",
    "count": r"a whole number from 1 on is expected",
    "speedup": r"speedup of something else",
    "more": r"\bthe rates? on \d",
    "layouts": r"rates of \d+ layouts",
    "phases": r"two counts say which phase stops",
    "step": r"seconds of a step on (?:one machine|1 GPU)",
    "steps": r"whether the number of steps is fixed",
    "equal": r"rates of equal settings",
    "another_node": r"between two nodes",
    "page_cache": r"\s-C\b",
    "hoped": r"expected was not measured",
    "numbers": r"no numbers below",
    "pairing": r"not told which belongs|at another count is needed|no rate or time of them",
    "none": r"no rate or time of a count of workers",
    "unread": r"begins nothing that is known|no (?:heading of worker|column has) counts|without a heading|: seen: ",
}
"""What a question is recognised by; everything else is checked as data."""
TOLERANCE = 0.01
LONGEST_LINE = 300
"""Characters of the line that says that something is not read."""


def judged(stranger: Stranger, folder: Path) -> tuple[str, str]:
    """Return ``right``, ``wrong`` (a decided answer that is not right) or ``refused``, and what was said."""
    try:
        answers = explain_files(stranger.written(folder), Options()).answers
    except InputError as error:
        said = str(error)
        right = all(_refused_rightly(entry, said) for entry in stranger.right)
        return ("right" if right else "refused"), said
    left = list(answers)
    missing = []
    for entry in stranger.right:
        found = next((one for one in left if _is_right(entry, one, answers)), None)
        if found is None:
            missing.append(entry)
        else:
            left.remove(found)
    firm = [one for one in left if one.verdict in (Verdict.STALLS, Verdict.SCALES) or (one.is_bad and not one.verdict)]
    said = "\n".join(text for one in answers for _, text in one.parts)
    if not missing and not [one for one in firm if one.kind == "rates" or missing]:
        return "right", said
    return ("wrong" if firm else "refused"), said


def _refused_rightly(entry: Mapping[str, Any], said: str) -> bool:
    if "named" in entry:
        return entry["named"] in said and "not read" in said and len(said.replace("\n", "")) < LONGEST_LINE
    return "question" in entry and _asks(entry, [said])


def _asks(entry: Mapping[str, Any], texts: Sequence[str]) -> bool:
    """Return whether the question is asked; of several names in a list each would be a good one."""
    names = [entry["question"]] if isinstance(entry["question"], str) else entry["question"]
    return any(re.search(TOPICS[name], text) for name in names for text in texts)


def _is_right(entry: Mapping[str, Any], one: Finding, answers: Sequence[Finding]) -> bool:
    if "question" in entry:
        asked = _asks(entry, one.ask) and entry.get("says", "") in f"{one.words} {one.fits}"
        return asked and one.verdict in ("", Verdict.UNDECIDED) and not one.is_bad and _has_value(entry, one)
    if "counts" in entry and not _is_curve(entry, one):
        return False
    wanted = entry.get("verdict", [])
    if wanted and one.verdict not in ([wanted] if isinstance(wanted, str) else wanted):
        return False
    notes = [note for other in answers for note in other.notes]
    return (
        ("at" not in entry or one.value == entry["at"])
        and all(any(re.match(rf"line {line}\b", note) for note in notes) for line in entry.get("notes", ()))
        and ("names" not in entry or any(entry["names"] in note for note in notes))
        and ("ranks" not in entry or f"of {entry['ranks']} ranks" in one.subject)
        and ("collective" not in entry or one.subject.startswith(f"{entry['collective']} of "))
        and ("best" not in entry or _near(entry["best"], re.findall(r"([\d.]+) GB/s", one.words + one.fits)))
        and entry.get("subject", "") in one.subject
        and entry.get("says", "") in " ".join((one.words, one.fits, *(cause.words for cause in one.causes)))
        and ("phase" not in entry or (one.causes and one.causes[0].words.startswith(f"{entry['phase']}: ")))
        and set(entry.get("causes", ())) <= {cause.name for cause in one.causes}
        and ("silent" not in entry or not any(entry["silent"] in cause.words for cause in one.causes))
    )


def _is_curve(entry: Mapping[str, Any], one: Finding) -> bool:
    rates = {point["workers"]: point["rate"] for point in one.points if point.get("rate")}
    if sorted(rates) != entry["counts"]:
        return False
    first, tolerance = rates[entry["counts"][0]], entry.get("tolerance", TOLERANCE)
    found = (rates[count] / first for count in entry["counts"])
    return all(abs(got / right - 1) <= tolerance for got, right in zip(found, entry["rates"], strict=True))


def _has_value(entry: Mapping[str, Any], one: Finding) -> bool:
    """Return whether the number that is to be said is among those that are."""
    words = f"{one.words} {one.fits}".replace(",", "")
    return "value" not in entry or _near(entry["value"], re.findall(r"\d+(?:\.\d+)?", words))


def _near(value: float, texts: Sequence[str]) -> bool:
    return any(abs(float(text) / value - 1) <= TOLERANCE for text in texts)
