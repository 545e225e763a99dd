"""The words of the project: ``make words`` counts the documentation, the private words of the source, and draws some
docstrings, comments and names to be read."""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/stallpoint"
WRITTEN = ("docs/small-studies.md", "docs/guide-small.md", "docs/dlbs-small.md", "docs/storage-volume.md")
"""Pages that scripts write."""
GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
"""Parts of pages that docs/hooks.py writes."""
PAGES = ("README.md", "CONTRIBUTING.md", "config/README.md")
"""Pages outside of docs/."""
NEWCOMER = ("README.md", "docs/tutorial.md", "docs/own-numbers.md")
"""What a newcomer reads before a result of one's own, with the longest symptom."""
WORDS, NEWCOMER_WORDS, DRAWN = 40_000, 5_000, 60

PRIVATE = {
    "alone": "isolated, only",
    "together": "co-running, joined",
    "beside": "co-running, concurrent",
    "told": "reported, estimated, identifiable",
    "said": "reported",
    "tells": "reports",
    "taught": "calibrated",
    "learning": "calibration",
    "left": "residual, excluded",
    "turns": "visits, interleaved schedule",
    "pace": "slowdown factor",
    "trainings": "training samples",
    "place": "placement",
    "way": "configuration",
    "whole": "complete, unsharded",
    "pieces": "compute bursts",
    "stages": "pipeline stages",
    "sent": "collectives, communicated",
    "messages": "buckets, collectives",
    "merging": "fusion",
    "alike": "equal, duplicates",
    "worthwhile": "cost-efficient",
    "most": "max",
}
"""Private words, and the field's."""
PLAIN = {
    "learning": ("rate",),  # the optimiser's learning rate
    "stages": ("pipeline", "max"),
    "messages": ("error", "empty"),  # an intervention
    "place": ("in",),
    "most": ("at",),
    "way": ("under",),
}
"""Words that stand before or after a private one where its meaning is the plain one."""


class Said(NamedTuple):
    """Something to be read."""

    kind: str
    where: str
    text: str


def documentation() -> dict[str, int]:
    """Words of each page that were written by hand."""
    pages = [*(ROOT / name for name in PAGES), *sorted((ROOT / "docs").rglob("*.md"))]
    counts = {str(page.relative_to(ROOT)): GENERATED.sub("", page.read_text(encoding="utf-8")) for page in pages}
    return {name: len(re.findall(r"\S*\w\S*", text)) for name, text in counts.items() if name not in WRITTEN}


def comments(text: str) -> list[tuple[int, str]]:
    """Comments of a module, each with its first line's number; lines below each other are one comment."""
    found: list[tuple[int, str]] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.match(r"# (fmt|type|noqa)", token.string):
            line, words = token.start[0], token.string.lstrip("# ")
            stands_alone = token.line.lstrip().startswith("#")
            if stands_alone and last and line == last + 1:
                found[-1] = (found[-1][0], f"{found[-1][1]} {words}")
            else:
                found.append((line, words))
            last = line if stands_alone else 0
    return found


def said(folder: Path = SOURCE) -> Iterator[Said]:
    """Docstrings, comments and names of all modules below a folder."""
    for file in sorted(folder.rglob("*.py")):
        text, where = file.read_text(encoding="utf-8"), str(file.relative_to(ROOT))
        tree = ast.parse(text)
        for line, comment in comments(text):
            yield Said("comment", f"{where}:{line}", comment)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                at = f"{where}:{getattr(node, 'lineno', 1)}"
                if docstring := ast.get_docstring(node):
                    yield Said("docstring", at, docstring)
                if not isinstance(node, ast.Module):
                    yield Said("name", at, node.name)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                        if argument.arg not in ("self", "cls"):
                            yield Said("name", at, argument.arg)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        yield Said("name", f"{where}:{node.lineno}", target.id)
        yield Said("name", where, file.stem)


def messages(folder: Path = SOURCE) -> Iterator[Said]:
    """Texts of all errors that are raised, and of all that is logged or printed, with ``{}`` for what is put in."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            found = node.exc if isinstance(node, ast.Raise) else node if _prints(node) else None
            if isinstance(found, ast.Call):
                for text in filter(None, map(_text, found.args)):
                    yield Said("message", f"{file.relative_to(ROOT)}:{found.lineno}", text)


def private(things: Iterator[Said]) -> Counter[tuple[str, str]]:
    """How often each private word stands in names, and how often in docstrings and comments."""
    counts: Counter[tuple[str, str]] = Counter()
    for thing in things:
        parts = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", thing.text).lower())
        for before, word, after in zip(["", *parts], parts, [*parts[1:], ""], strict=False):
            if word in PRIVATE and not {before, after} & set(PLAIN.get(word, ())):
                counts["name" if thing.kind == "name" else "sentence", word] += 1
    return counts


def drawn(things: Iterator[Said], seed: int, count: int = DRAWN) -> list[Said]:
    """Docstrings, comments and names in equal parts, each text once."""
    kinds: dict[str, dict[str, Said]] = {"docstring": {}, "comment": {}, "name": {}}
    for thing in things:
        kinds[thing.kind].setdefault(thing.text, thing)
    chance = random.Random(seed)
    return [one for kind in kinds.values() for one in chance.sample(list(kind.values()), count // len(kinds))]


def _prints(node: ast.AST) -> bool:
    names = ("print", "info", "warning", "error", "debug", "write")
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", "")) in names


def _text(node: ast.expr) -> str:
    """Return the literal text of an argument; empty where it has none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return ""


def main() -> None:
    """Print the tables, or all messages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000), help="of what is drawn")
    parser.add_argument("--messages", action="store_true", help="print every message that the library can raise or log")
    asked = parser.parse_args()
    if asked.messages:
        for one in messages():
            print(f"{one.where}: {one.text}")
        return
    pages, counts = documentation(), private(said())
    symptom = max((count for name, count in pages.items() if "symptoms/" in name), default=0)
    path = symptom + sum(pages[name] for name in NEWCOMER)
    print(f"{'hand-written documentation':40}{sum(pages.values()):>8,} words{WORDS:>8,} wanted")
    print(f"{'what a newcomer reads':40}{path:>8,} words{NEWCOMER_WORDS:>8,} wanted\n")
    for name, count in sorted(pages.items(), key=lambda page: -page[1])[:15]:
        print(f"{name:40}{count:>8,}")
    print(f"\n{'private word':14}{'in names':>9}{'in sentences':>14}  the field's")
    for word, better in PRIVATE.items():
        print(f"{word:14}{counts['name', word]:>9}{counts['sentence', word]:>14}  {better}")
    for kind in ("name", "sentence"):
        print(f"all in {kind}s: {sum(count for (where, _), count in counts.items() if where == kind):,}")
    print(f"\nTo be read, seed {asked.seed}; wanted: at most 3 of {DRAWN} to be read twice.")
    for one in drawn(said(), asked.seed):
        print(f"\n{one.where} ({one.kind})\n  " + one.text.replace("\n", "\n  "))


if __name__ == "__main__":
    main()
