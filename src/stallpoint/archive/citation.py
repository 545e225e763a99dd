"""CITATION.cff of archived results (Citation File Format 1.2.0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

import stallpoint

FILE = "CITATION.cff"


def title(study: str, about: Mapping[str, Any]) -> str:
    """Title of the archived results; `about` is the study's entry ``archive``."""
    return str(about.get("title") or f"stallpoint study {study}: where distributed training stops getting faster")


def authors(study: str, about: Mapping[str, Any]) -> Sequence[Mapping[str, str]]:
    """Who is to be cited; nobody by name unless the study says so."""
    return about.get("authors") or [{"name": f"The authors of study {study}"}]


def write_citation(folder: Path, study: str, about: Mapping[str, Any], published: datetime) -> None:
    """Write the file to `folder`, with a reference to the program that the results come from."""
    citation = {
        "cff-version": "1.2.0",
        "message": "If you use these results, please cite them, and the program they were measured with.",
        "type": "dataset",
        "title": title(study, about),
        "authors": [dict(author) for author in authors(study, about)],
        "date-released": published.date(),
        "license": about["licence"],
        "references": [
            {
                "type": "software",
                "title": "stallpoint",
                "version": stallpoint.__version__,
                "authors": [{"name": "The stallpoint developers"}],
                "license": "Apache-2.0",
            }
        ],
    }
    text = yaml.safe_dump(citation, sort_keys=False, allow_unicode=True)
    (folder / FILE).write_text(text, encoding="utf-8")
