"""Claims from YAML: files of papers' claims, and claims in a study's configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from stallpoint.errors import InputError
from stallpoint.questions.claims.language import Claim, Entry, claim_from
from stallpoint.study.configuration import check, is_file, load_file, load_yaml

PAPERS_FILES = (
    "fernandez-2025.yaml", "goyal-2017.yaml", "keuper-2016.yaml", "mccandlish-2018.yaml", "serebryakov-2017.yaml",
    "shallue-2019.yaml", "shi-2018.yaml", "survey.yaml",
)  # fmt: skip
"""Names of the papers' claim files, as the folder of a workflow that is fetched file by file cannot be listed."""
OWN = "this study"
"""Source of the claims in the study's configuration."""


@cache
def _schema() -> dict[str, Any]:
    text = files("stallpoint.questions.claims").joinpath("schema.yaml").read_text(encoding="utf-8")
    schema: dict[str, Any] = load_yaml(text, "schema.yaml")
    return schema


def read_claims(paths: Iterable[str | Path], own: Sequence[Entry] = (), charts: Collection[str] = ()) -> list[Claim]:
    """Return the claims of files, and the study's `own` entries; raise `InputError` naming the file and entry.

    `charts` are the charts that a claim may name. If there are none, it may name any.
    """
    claims: list[Claim] = []
    found: dict[str, str] = {}
    for where, in_file in (
        *((str(path), _claims_in_file(Path(path), charts)) for path in paths),
        (OWN, own_claims(own, charts)),
    ):
        for claim in in_file:
            if claim.id in found:
                raise InputError(f"{where}: claim {claim.id}: {found[claim.id]} has a claim of that id; ids are unique")
            found[claim.id] = where
        claims += in_file
    return claims


def own_claims(entries: Sequence[Entry], charts: Collection[str] = ()) -> list[Claim]:
    """Return the claims that a study's entry ``claims`` states itself. Files that the entry names are ignored."""
    return [
        claim
        for index, entry in enumerate(entries)
        if not isinstance(entry, str)
        for claim in _claims_from({"paper": OWN, "claims": [entry]}, "", {"claims[0]": f"claims[{index}]"}, charts)
    ]


def claim_files(entries: Sequence[Any], paper_names: Sequence[str]) -> list[str]:
    """Return the files that a study's ``claims`` name. The word ``papers`` stands for the files `paper_names`."""
    names = [entry for entry in entries if isinstance(entry, str)]
    return [path for name in names for path in ([name] if is_file(name) else paper_names)]


def _claims_in_file(path: Path, charts: Collection[str]) -> list[Claim]:
    return _claims_from(load_file(path), f"{path}: ", {}, charts)


def _claims_from(content: Any, prefix: str, places: Mapping[str, str], charts: Collection[str]) -> list[Claim]:
    try:
        checked_content = check(content, _schema())
        return [
            claim_from(entry, checked_content["paper"], f"claims[{index}]", charts)
            for index, entry in enumerate(checked_content["claims"])
        ]
    except InputError as error:
        lines = str(error)
        for inside, outside in places.items():
            lines = lines.replace(inside, outside)
        raise InputError("\n".join(f"{prefix}{line}" for line in lines.splitlines())) from None
