"""The rooms of the models: which may know of which, and that no public name means two things."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[3] / "src/stallpoint/models"
FLOORS = ("base", "terms", "taskgraph", "iteration", "scaling", "convergence", "answers")
"""From the ground up; a room knows of those below."""
EVERYWHERE = {"fit", "table"}
"""What a module's main function is called where its name says of what."""


def modules(room: str) -> Iterator[tuple[Path, ast.Module]]:
    return ((path, ast.parse(path.read_text())) for path in (MODELS / room).glob("*.py"))


def public(tree: ast.Module) -> Iterator[str]:
    """Names of classes, functions and constants at the top of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def rooms_of(tree: ast.Module) -> Iterator[str]:
    """Rooms that a module imports from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stallpoint.models"):
            inside = (node.module or "").split(".")[2:3]
            yield from inside or (alias.name for alias in node.names)


def test_every_module_has_a_room() -> None:
    assert {path.name for path in MODELS.iterdir() if path.suffix == ".py"} == {"__init__.py", "fitting.py"}
    assert {path.name for path in MODELS.iterdir() if path.is_dir()} - {"__pycache__"} == set(FLOORS)


@pytest.mark.parametrize("room", FLOORS)
def test_rooms_know_of_rooms_below_alone(room: str) -> None:
    known = {at for _, tree in modules(room) for at in rooms_of(tree)}
    assert known <= set(FLOORS[: FLOORS.index(room) + 1])


def test_no_public_name_means_different_things_in_two_rooms() -> None:
    rooms: dict[str, set[str]] = {}
    for room in FLOORS:
        for path, tree in modules(room):
            for name in public(tree):
                if path.name != "__init__.py" and not name.startswith("_"):
                    rooms.setdefault(name, set()).add(room)
    assert {name: at for name, at in rooms.items() if len(at) > 1 and name not in EVERYWHERE} == {}
