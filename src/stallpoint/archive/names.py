"""Names that an archive replaces: nodes, users and absolute paths, each by one placeholder everywhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from stallpoint.text import natural

USER = "user"
_PATH = re.compile(r"(?<![\w.~/:@-])/[^\s'\"`:;,()\[\]{}<>|=]+")
"""An absolute path inside a text; the ``/`` of a URL, of a relative path or of a ratio has something before it."""
_AT = re.compile(r"[\w.+-]+@[\w.-]+")
"""``user@host``, the build stamp of MPI libraries."""
_PART = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_LIST = re.compile(r"([^\[]*)\[([\d,-]+)\](.*)")
"""Slurm's abbreviation of nodes: ``gpu[017-019,021]``."""


class Names:
    """Placeholders for the names of `nodes` and `users` and for absolute paths, which become relative below `root`.

    Nodes are numbered in their natural order, so that tables sorted by node keep their order. Nodes all called ``node``
    and a number keep their names.
    """

    def __init__(self, nodes: Iterable[str] = (), users: Iterable[str] = (), root: str = os.sep) -> None:
        full = sorted(sorted(set(nodes) - {""}), key=natural)
        anonymous = all(re.fullmatch(r"node\d+", name) for name in full)
        self.nodes = {name: name if anonymous else f"node{number}" for number, name in enumerate(full, start=1)}
        """Placeholder of each node, by its full name."""
        self.users = set(users) - {"", USER}
        self._root = PurePosixPath(root)
        self._folders: dict[str, str] = {}
        short = {name.split(".")[0]: placeholder for name, placeholder in self.nodes.items()}
        self._words = {**dict.fromkeys(self.users, USER), **short, **self.nodes}
        alternatives = "|".join(map(re.escape, sorted(self._words, key=len, reverse=True)))
        self._word = re.compile(rf"(?<![A-Za-z0-9_])(?:{alternatives or '(?!)'})(?![A-Za-z0-9_])")

    @property
    def words(self) -> frozenset[str]:
        """Return the names of nodes and users that an archive must not contain."""
        return frozenset(word for word, placeholder in self._words.items() if word != placeholder)

    def node(self, name: str) -> str:
        """Return the placeholder of a node."""
        return self.nodes.get(name, self.text(name))

    def node_list(self, text: str) -> str:
        """Return Slurm's list of nodes by placeholders; nodes that no record names are only counted."""
        names = list(expand_nodes(text))
        known = sorted(sorted({self._words[name] for name in names if name in self._words}), key=natural)
        others = sum(name not in self._words for name in names)
        return ",".join([*known, *([f"{others} more"] if others else [])])

    def path(self, path: str) -> str:
        """Return a path without the part above the root; other folders are numbered in order of occurrence."""
        if not path.startswith("/") and ".." not in PurePosixPath(path).parts:
            return self._without_words(path)
        known = PurePosixPath(os.path.normpath(self._root / path))
        if known.is_relative_to(self._root) and self._root != PurePosixPath("/"):
            return self._without_words(str(known.relative_to(self._root)))
        folder = self._folders.setdefault(str(known.parent), f"path{len(self._folders) + 1}")
        return f"{folder}/{self._without_words(known.name)}" if known.name else folder

    def text(self, text: str) -> str:
        """Return a text with every name in it replaced."""
        text = _PATH.sub(lambda found: self.path(found[0]), text)
        return self._without_words(_AT.sub("user@host", text))

    def _without_words(self, text: str) -> str:
        return self._word.sub(lambda found: self._words[found[0]], text)


def expand_nodes(text: str) -> Iterable[str]:
    """Return the nodes of Slurm's abbreviation: ``gpu[08-10],login`` is gpu08, gpu09, gpu10, login."""
    for part in _PART.findall(text):
        if found := _LIST.fullmatch(part):
            for span in found[2].split(","):
                first, _, last = span.partition("-")
                for number in range(int(first), int(last or first) + 1):
                    yield from expand_nodes(f"{found[1]}{number:0{len(first)}}{found[3]}")
        elif part not in ("(null)", "None assigned"):
            yield part
