"""Source files of a script: the files of this library that the script's imports load. They are found by parsing.

A rule of the workflow depends on these files, so that its outputs are stale exactly if one of the files changes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_UP_TO_LAST_IMPORT = re.compile(r".*\bimport\b[^(\n]*(?:\([^)]*\))?[^\n]*", re.DOTALL)


def sources_of(script: Path, library: Path, modules: Iterable[str] = ()) -> list[Path]:
    """Return the files of the package in folder `library` that the imports of `script` load, sorted.

    Imports are followed from module to module, including imports inside functions, but excluding imports for type
    checkers. `modules` are further modules, which the script loads by name. A package comes with its data: files that
    are not Python, in its folder and in subfolders that are no packages. Files are read once in a process.
    """
    pending_modules = [*_library_imports(script, "", library), *modules]
    seen_modules = {""}
    found: list[Path] = []
    while pending_modules:
        if (name := pending_modules.pop()) in seen_modules:
            continue
        seen_modules.add(name)
        package = name.rpartition(".")[0]
        pending_modules.append(package)
        if file := _module_file(name, library):
            found.append(file)
            if file.name == "__init__.py":
                package = name
                found += _data_files(file.parent)
            pending_modules += _library_imports(file, package, library)
    return sorted(found)


@cache
def _library_imports(file: Path, package: str, library: Path) -> list[str]:
    """Return the full names of modules, or of objects in modules, that a file in `package` imports from the library."""
    names = [
        name
        for statement in _import_statements(_parsed_imports(file.read_text(encoding="utf-8")))
        for name in _imported_names(statement, package.split("."))
    ]
    return [name for name in names if _belongs_to_library(name.partition(".")[0], library)]


def _belongs_to_library(package: str, library: Path) -> bool:
    """Return whether a package is the library, or lies beside it and has a name that begins with the library's name."""
    return package.startswith(library.name) and (library.parent / package).is_dir()


def _parsed_imports(text: str) -> ast.Module:
    """Parse a module up to its last import; parsing the complete file would take ten times as long."""
    start = _UP_TO_LAST_IMPORT.match(text)
    try:
        return ast.parse(start[0] if start else "")
    except SyntaxError:  # the text was cut inside a statement that contains the last import
        return ast.parse(text)


def _import_statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    child_nodes: Iterable[ast.AST]
    match node:
        case ast.Import() | ast.ImportFrom():
            yield node
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=otherwise):
            child_nodes = otherwise
        case _:
            child_nodes = ast.iter_child_nodes(node)
    for child in child_nodes:
        if not isinstance(child, ast.expr):
            yield from _import_statements(child)


def _imported_names(statement: ast.Import | ast.ImportFrom, package: list[str]) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    parent_package = package[: len(package) + 1 - statement.level] if statement.level else []
    return [".".join(filter(None, [*parent_package, statement.module, alias.name])) for alias in statement.names]


@cache
def _module_file(name: str, library: Path) -> Path | None:
    """Return the file of the module with the full `name`; None if the library has no such module."""
    path = library.parent.joinpath(*name.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@cache
def _data_files(folder: Path) -> list[Path]:
    """Return the files below a folder that are not Python; packages, hidden files and compiled files are left out."""
    visible_entries = [entry for entry in folder.iterdir() if entry.name[0] != "." and entry.name != "__pycache__"]
    files = [entry for entry in visible_entries if entry.is_file() and entry.suffix != ".py"]
    folders = [entry for entry in visible_entries if entry.is_dir() and not (entry / "__init__.py").exists()]
    return [*files, *(file for inside in folders for file in _data_files(inside))]
