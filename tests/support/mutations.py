"""Small changes of the program's source that are defects: where one can stand, and which are drawn.

Not changed: what runs at import, messages of errors and logs, annotations, and loops that numba compiles.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

COMPILED = ("kernels.py", "loops.py")


@dataclass(frozen=True)
class Mutant:
    """An expression of a function, and what it becomes."""

    module: str
    """Its file, below src."""
    function: str
    """Qualified by class and enclosing function."""
    kind: str
    was: str
    ordinal: int
    """Which of the function's expressions of this text it is."""
    becomes: str
    before: str = ""
    """The test that found it: the file's stem, and the name."""

    @property
    def room(self) -> str:
        folders = Path(self.module).parts[:-1]
        return "/".join(folders[1:]) or ("loose modules" if folders[0] == "stallpoint" else folders[0])


_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_NEGATED = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn}
_SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_EXTREMES = {"min": "max", "minimum": "maximum", "argmin": "argmax", "idxmin": "idxmax", "any": "all"}
_EXTREMES |= {right: left for left, right in _EXTREMES.items()}
_TOLD = {"print", "debug", "info", "warning", "error", "exception", "add_argument", "warn", "log"}


def _mutations(node: ast.AST, columns: dict[str, list[str]]) -> Iterator[tuple[str, ast.expr]]:
    """What an expression can become, by kind of mutant; `columns`: what the function reads of each table."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=int(rank)) as right]) if (
            "rank" in ast.unparse(left).lower().split(".")[-1] and isinstance(op, ast.Eq | ast.NotEq)
        ):
            yield "ranks", ast.Compare(left, [op], [ast.copy_location(ast.Constant(1 - rank), right)])
        case ast.Compare(left=left, ops=[op], comparators=right):
            for kind, others in (("boundary", _BOUNDARY), ("condition", _NEGATED)):
                if other := others.get(type(op)):
                    yield kind, ast.Compare(left, [other()], right)
        case ast.BoolOp(op=op, values=values):
            yield "condition", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not() | ast.USub() as op, operand=operand):
            yield "condition" if isinstance(op, ast.Not) else "sign", operand
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
            if not any(isinstance(getattr(part, "value", part), str | ast.JoinedStr) for part in (left, right)):
                yield "sign", ast.BinOp(left, _SIGNS[type(op)](), right)
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield "off by one", ast.Constant(number + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _EXTREMES:
            yield "extreme", ast.Call(ast.Name(_EXTREMES[name]), node.args, node.keywords)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _EXTREMES:
            yield "extreme", ast.Call(ast.Attribute(value, _EXTREMES[name]), node.args, node.keywords)
        case ast.Subscript(value=value, slice=ast.Constant(value=str(name)), ctx=ast.Load()):
            for other in columns["[]"]:
                if other != name:
                    yield "column", ast.Subscript(value, ast.Constant(other))
        case ast.Attribute(value=ast.Name(id=table) as value, attr=name, ctx=ast.Load()) if name in columns[table]:
            for other in columns[table]:
                if other != name:
                    yield "column", ast.Attribute(value, other)


def _columns(function: ast.AST) -> dict[str, list[str]]:
    """Columns that a function reads by name (``[]``) and attributes that it reads of each local name, without calls."""
    found: dict[str, list[str]] = defaultdict(list)
    called = {id(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    for node in ast.walk(function):
        match node:
            case ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Load()):
                found["[]"].append(name)
            case ast.Attribute(value=ast.Name(id=table), attr=name, ctx=ast.Load()) if id(node) not in called:
                if not table[0].isupper() and table not in ("self", "np", "pd", "os", "torch", "pa", "ast"):
                    found[table].append(name)
    return defaultdict(list, {table: list(dict.fromkeys(names)) for table, names in found.items()})


@dataclass(frozen=True)
class Function:
    name: str
    body: list[ast.stmt]
    node: ast.FunctionDef | ast.AsyncFunctionDef

    def expressions(self) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
        """Nodes that may be mutated, each with those around it, the innermost last."""
        waiting: list[tuple[ast.AST, list[ast.AST]]] = [(statement, []) for statement in self.body]
        while waiting:
            node, around = waiting.pop(0)
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Raise() | ast.JoinedStr():
                    continue
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _TOLD or name == "cast":
                    continue
                case ast.Expr(value=ast.Constant()):
                    continue
            yield node, around
            for field, value in ast.iter_fields(node):
                if field not in ("annotation", "pattern", "ctx", "msg"):
                    children = value if isinstance(value, list) else [value]
                    waiting += [(child, [*around, node]) for child in children if isinstance(child, ast.AST)]


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[Function]:
    for node in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{prefix}{node.name}."
            if not isinstance(node, ast.ClassDef):
                yield Function(inner[:-1], node.body, node)
        yield from _functions(node, inner)


def _guardable(node: ast.AST) -> bool:
    unfit = ast.Slice | ast.Starred | ast.NamedExpr | ast.JoinedStr | ast.FormattedValue | ast.Yield | ast.Await
    if not isinstance(node, ast.expr) or isinstance(node, unfit):
        return False
    parts = node.elts if isinstance(node, ast.Tuple) else []
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and not any(
        isinstance(one, ast.Slice) for one in parts
    )


def _candidates(function: Function) -> Iterator[tuple[str, ast.expr, str]]:
    """Kind of mutant, the expression, and what it becomes."""
    columns = _columns(function.node)
    for node, around in function.expressions():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = ast.unparse(node.value.func).rpartition(".")[2]
            if name not in _TOLD and name != "__init__":
                yield "dropped call", node.value, "None"
        for kind, other in _mutations(node, columns):
            spot = node
            if kind == "off by one":  # a number alone says too little to be found again
                spot = next((outer for outer in reversed(around) if _guardable(outer)), node)
                if isinstance(around[-1], ast.keyword) and around[-1].arg == "root":
                    kind = "ranks"
            if _guardable(spot) and isinstance(spot, ast.expr):
                yield kind, spot, _with(spot, node, other)


def _with(spot: ast.AST, node: ast.AST, other: ast.expr) -> str:
    """The text of an expression in which `other` takes the place of `node`."""
    memo: dict[int, Any] = {id(node): other}
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(spot, memo)))


@functools.cache
def modules_of(folder: Path) -> dict[str, list[Function]]:
    """Functions of each module that can hold mutants."""
    files = sorted(file for file in folder.rglob("*.py") if file.name not in COMPILED)
    return {str(file.relative_to(folder)): list(_functions(ast.parse(file.read_text()))) for file in files}


def drawn(source: Path, number: int, seed: int) -> list[Mutant]:
    """So many mutants in random order: two of each room where they are many, the rest by size; kinds as evenly as they
    go."""
    drawing = random.Random(seed)
    by_room: dict[str, dict[str, list[tuple[Mutant, Function, ast.expr]]]] = defaultdict(lambda: defaultdict(list))
    for module, functions in modules_of(source).items():
        for function in functions:
            for kind, spot, becomes in _candidates(function):
                mutant = Mutant(module, function.name, kind, ast.unparse(spot), 0, becomes)
                by_room[mutant.room][kind].append((mutant, function, spot))
    sizes = Counter({room: sum(map(len, kinds.values())) for room, kinds in by_room.items()})
    least = min(2, number // (2 * len(sizes)))
    rest = drawing.choices([*sizes], [*sizes.values()], k=number - least * len(sizes))
    share = Counter(dict.fromkeys(sizes, least)) + Counter(rest)
    found: list[Mutant] = []
    for room, kinds in sorted(by_room.items()):
        places: set[tuple[str, str]] = set()
        order: Iterator[str] = itertools.cycle(drawing.sample(sorted(kinds), len(kinds)))
        chosen: list[Mutant] = []
        for kind in itertools.islice(order, 50 * number):
            if len(chosen) == share[room]:
                break
            mutant, function, spot = drawing.choice(kinds[kind])
            if (mutant.module, mutant.function) not in places:
                places.add((mutant.module, mutant.function))
                alike = [node for node, _ in function.expressions() if _same(node, mutant.was)]
                if spot in alike:
                    chosen.append(replace(mutant, ordinal=alike.index(spot)))
        found += chosen
    drawing.shuffle(found)
    return found


def _same(node: ast.AST, text: str) -> bool:
    return _guardable(node) and ast.unparse(node) == text


def planted(mutant: Mutant, place: tuple[str, ast.AST], source: Path) -> str:
    """The text of the module that has the mutant in its place."""
    module, node = place
    assert isinstance(node, ast.expr)
    lines = (source / module).read_bytes().splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    return b"".join([*lines[:first], head, f"({mutant.becomes})".encode(), tail, *lines[last + 1 :]]).decode()


def place_of(mutant: Mutant, source: Path) -> tuple[str, ast.AST] | None:
    """Find the module and the expression that a mutant is planted in, also where its function moved or was renamed."""

    def spots(functions: Iterable[Function]) -> list[ast.AST]:
        return [node for function in functions for node, _ in function.expressions() if _same(node, mutant.was)]

    modules = modules_of(source)
    for name in (mutant.function, mutant.function.rpartition(".")[2], ""):
        found = {
            module: spots(one for one in functions if not name or f".{one.name}".endswith(f".{name}"))
            for module, functions in modules.items()
        }
        if name and len(here := found.get(mutant.module, [])) > mutant.ordinal:
            return mutant.module, here[mutant.ordinal]
        moved = {module: nodes for module, nodes in found.items() if len(nodes) > mutant.ordinal}
        if len(moved) == 1 and (name or sum(map(len, moved.values())) == 1):
            [(module, nodes)] = moved.items()
            return module, nodes[mutant.ordinal]
    return None
