"""The documentation's pages as tests see them: fenced blocks, and links with the headings they lead to."""

import re
import shlex
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "config/README.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it is (its title), its text."""

    language: str
    title: str | None
    text: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    return [Block(found["language"], found["title"], found["text"]) for found in _FENCE.finditer(page.read_text())]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> Iterator[str]:
    """Targets of all links and images that lead to files or headings, not elsewhere."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    return {_slug(heading) for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)}


def _slug(heading: str) -> str:
    text = unicodedata.normalize("NFKD", re.sub(r"[`*]", "", heading)).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines it is shown to print."""
    command: str | None = None
    shown: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line.removeprefix("$ "), []
        else:
            shown.append(line)
    if command:
        yield command, shown


def assert_prints(printed: str, shown: list[str]) -> None:
    """Every line shown is printed, in this order."""
    lines = iter(line.rstrip() for line in printed.splitlines())
    for line in shown:
        if line.strip() != "...":
            assert line.rstrip() in lines, f"{line!r} is not printed (or not in this order):\n{printed}"


def shown_commands(page: Path) -> list[list[str]]:
    """Words of every snakemake or make command in the page's blocks and in its text."""
    code = [line.removeprefix("$ ") for block in blocks(page) for line in block.text.splitlines()]
    code += re.findall(r"`([^`\n]+)`", prose(page))
    return [shlex.split(line, comments=True) for line in code if re.match(r"(snakemake|make) ", line)]
