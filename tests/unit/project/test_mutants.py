"""Mutants of a little program: where they are drawn, found again, and what a switch does."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mutants import KEPT, candidates, keep, kept
from mutations import Mutant, drawn, place_of, planted

PROGRAM = '''
"""A program."""
LIMIT = 3

def largest(values: list[int], rank: int, rows) -> int:
    """The largest."""
    if rank == 0:
        values.sort()
    if len(values) < 2:
        raise ValueError(f"{len(values) - 1} is too few")
    return max(values[0], values[-1]) + rows["high"] - rows["low"]
'''


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "stallpoint"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "program.py").write_text(PROGRAM)
    return tmp_path


def of_program(was: str, becomes: str, module: str = "stallpoint/program.py") -> Mutant:
    return Mutant(module, "largest", "", was, 0, becomes)


def test_each_kind_is_drawn_and_messages_and_what_runs_at_import_stay(source: Path) -> None:
    seen = {(one.kind, one.was, one.becomes) for seed in range(200) for one in drawn(source, 2, seed)}
    assert seen >= {
        ("ranks", "rank == 0", "rank == 1"),
        ("dropped call", "values.sort()", "None"),
        ("boundary", "len(values) < 2", "len(values) <= 2"),
        ("off by one", "values[0]", "values[1]"),
        ("extreme", "max(values[0], values[-1])", "min(values[0], values[-1])"),
        ("column", "rows['low']", "rows['high']"),
        ("sign", "-1", "1"),
    }
    assert not {was for _, was, _ in seen} & {"len(values) - 1", "LIMIT", "3"}


def test_a_draw_is_the_same_from_run_to_run(source: Path) -> None:
    assert drawn(source, 2, 7) == drawn(source, 2, 7)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_draw_has_as_many_as_were_asked_for(source: Path, number: int) -> None:
    """Also of more rooms than mutants."""
    for room in ("base", "models", "report"):
        module = source / "stallpoint" / room / f"{room}.py"
        module.parent.mkdir()
        module.write_text("".join(PROGRAM.replace("largest", f"largest_{which}") for which in range(4)))
    assert len(drawn(source, number, 3)) == number


@pytest.mark.parametrize("function", ["largest", "Gone.largest", "renamed"])
def test_a_mutant_is_found_again_where_its_function_moved_or_got_another_name(source: Path, function: str) -> None:
    elsewhere = replace(of_program("rank == 0", "rank == 1", module="stallpoint/gone.py"), function=function)
    module, node = place_of(elsewhere, source) or ("", None)
    assert (module, ast.unparse(node)) == ("stallpoint/program.py", "rank == 0")


def test_a_mutant_without_its_expression_has_no_place(source: Path) -> None:
    assert place_of(of_program("rank == 5", "rank == 6"), source) is None


def test_a_mutant_is_planted_alone(source: Path) -> None:
    largest = of_program("max(values[0], values[-1])", "min(values[0], values[-1])")
    text = planted(largest, place_of(largest, source), source)
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    assert namespace["largest"]([3, 1, 2], 1, {"high": 30, "low": 10}) == 22
    assert text.count("(min(values[0], values[-1]))") == 1
    assert len(text.splitlines()) == len(PROGRAM.splitlines())


def test_tests_to_try_are_those_that_are_known_then_those_that_import_the_file() -> None:
    known, direct, rest = candidates("src/stallpoint/records/atomic.py", "test_atomic::test_a")
    assert known == ["tests/unit/records/test_atomic.py::test_a"]
    assert "tests/unit/records/test_atomic.py" in direct
    assert rest
    assert not set(rest) & set(direct)
    assert next(candidates("src/stallpoint/records/atomic.py", "")) == []


def test_the_list_is_written_as_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, text = kept(), KEPT.read_text()
    monkeypatch.setattr("mutants.KEPT", tmp_path / "mutants.csv")
    keep(found)
    assert (tmp_path / "mutants.csv").read_text() == text
