"""Nodes of an RO-Crate's graph, and how they name each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias
from urllib.parse import quote

Entity: TypeAlias = dict[str, Any]
"""One node of the JSON-LD graph."""


def refer(entities: Iterable[Entity]) -> list[Entity] | Entity:
    """References; one alone is not a list, as the context has it."""
    references = [{"@id": entity["@id"]} for entity in entities]
    return references[0] if len(references) == 1 else references


def slug(text: str) -> str:
    """A name as part of an identifier."""
    return quote("-".join(text.lower().split()))
