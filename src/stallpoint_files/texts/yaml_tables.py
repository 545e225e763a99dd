"""Tables that come with the package, as YAML beside the module that reads them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any


@cache
def yaml_table(file: Path) -> dict[str, Any]:
    """Return the contents of a file, read once, by libyaml if PyYAML has it, ten times faster."""
    import yaml  # a late import, as few answers need it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), loader)
    return found
