"""Tables of the package as YAML files, each next to the module that reads it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any


@cache
def yaml_table(file: Path) -> dict[str, Any]:
    """Return the contents of a file, cached; PyYAML's libyaml loader, if available, is ten times faster."""
    import yaml  # a late import, as few answers need it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), loader)
    return found
