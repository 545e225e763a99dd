"""Every table of answers has a reader: its rows are taken by an answer, a section, a chart, an exhibit or a claim."""

import ast
import re
from collections.abc import Iterator

from checkout import ROOT

from stallpoint.records.tables import EXTRAPOLATED_TABLES, MODEL_TABLES

READERS = ("questions", "report", "archive/comparison")
"""Rooms that read tables; `questions/claims` names all of them to say what a study lacks."""
SCRIPTS = {"rates": "scripts/extrapolate_study.py"}
"""Tables that a later step of the workflow computes from."""
TABLES = ("tables", "material")
"""What programs call tables by name, or what holds them."""


def taken(program: str) -> set[str]:
    """Names of the tables whose rows a program takes: ``tables["a"]``, ``tables.get("a")``, ``rows(tables, "a")``.

    A name that a loop takes them by stands for all texts of what loops with that name go over.
    """
    tree = ast.parse(program)
    assigned: dict[str, list[ast.expr]] = {}
    looped: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                assigned.setdefault(name, []).append(value)
            case ast.For(target=ast.Name(id=name), iter=over) | ast.comprehension(target=ast.Name(id=name), iter=over):
                looped.setdefault(name, []).append(over)

    def named(node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Constant(value=str(name)):
                yield name
            case ast.Attribute(value=ast.Name(id=table), attr="name"):
                yield table.lower()
            case ast.Tuple(elts=several):
                for one in several:
                    yield from named(one)
            case ast.Name(id=name):
                for over in looped.get(name, []):
                    for one in assigned.get(over.id, []) if isinstance(over, ast.Name) else [over]:
                        yield from named(one)

    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=of, slice=key) if holds(of):
                found |= set(named(key))
            case ast.Call(func=ast.Attribute(value=of, attr="get"), args=[key, *_]) if holds(of):
                found |= set(named(key))
            case ast.Call(args=[of, key, *_]) if holds(of):
                found |= set(named(key))
            case ast.Call(func=ast.Attribute(attr="rows" | "of"), args=[ast.Constant(value=str(key))]):
                found.add(key)  # of a study or a curve, which questions read
    return found


def holds(node: ast.AST) -> bool:
    """Whether an expression is tables by name."""
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).rpartition(".")[2] in TABLES


def read() -> set[str]:
    """Names of the tables that somebody reads."""
    programs = [file for room in READERS for file in (ROOT / "src/stallpoint" / room).rglob("*.py")]
    texts = {file: file.read_text() for file in programs}
    claims = [*(ROOT / "resources/claims").glob("*.yaml"), ROOT / "resources/public/claims.yaml"]
    of_claims = {table for file in claims for table in re.findall(r"table: (\w+)", file.read_text())}
    return {*SCRIPTS, *of_claims, *(table for text in texts.values() for table in taken(text))}


def test_every_table_is_read_by_somebody() -> None:
    for name, script in SCRIPTS.items():
        assert name.upper() in (ROOT / script).read_text()
    assert {table.name for table in (*MODEL_TABLES, *EXTRAPOLATED_TABLES)} - read() == set()


def test_only_what_takes_rows_reads_a_table() -> None:
    reads = (
        'tables["a"], one.tables[B.name], tables.get("c", ()), rows(tables, "d", "words"), show(material, ("e", "f"))'
    )
    assert taken(reads) == {"a", "b", "c", "d", "e", "f"}
    assert taken('study.rows("a"), curve.of("b"), text.of(names)') == {"a", "b"}
    assert taken('names = "a", "b"\nfound = {name: tables[name] for name in names}') == {"a", "b"}
    assert taken('"a", {"a": 1}["a"], print("a"), Link(href="a"), B.name, rows(tables, name)') == set()
