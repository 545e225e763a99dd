"""Print the table of formats in docs/extending/storage.md, from `stallpoint.storage`.

usage: document_formats.py
"""

from collections.abc import Iterator

from stallpoint.storage import FORMATS


def lines() -> Iterator[str]:
    """The table."""
    yield "| format | samples | what the folder holds |"
    yield "| --- | --- | --- |"
    for name, kind in FORMATS.items():
        yield f"| `{name}` | {kind.kind} | {kind.layout} |"


if __name__ == "__main__":
    print("\n".join(lines()))
