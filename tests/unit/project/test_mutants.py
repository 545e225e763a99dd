"""Mutants of a little program: where they are drawn, found again, and what a switch does."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import planted
from mutations import Mutant, drawn, place_of

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
    return Mutant("loose modules", module, "largest", "", was, 0, becomes)


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


def test_a_mutant_is_found_again_where_its_function_moved_and_only_there(source: Path) -> None:
    elsewhere = of_program("rank == 0", "rank == 1", module="stallpoint/gone.py")
    module, node = place_of(elsewhere, source) or ("", None)
    assert (module, ast.unparse(node)) == ("stallpoint/program.py", "rank == 0")
    assert place_of(of_program("rank == 5", "rank == 6"), source) is None


def test_switches_choose_one_of_all_mutants_and_leave_the_rest(source: Path) -> None:
    mutants = [
        of_program("max(values[0], values[-1])", "min(values[0], values[-1])"),
        of_program("rank == 0", "rank == 1"),
    ]
    text, stand = planted(
        PROGRAM.encode(), [(number, place_of(one, source)[1], one.becomes) for number, one in enumerate(mutants)]
    )
    assert stand == {0, 1}
    (source / "stallpoint/program.py").write_bytes(text)
    (source / "mutant_switch.py").write_text("import sys\ndef on(number): return number == int(sys.argv[1])")
    call = "from stallpoint.program import largest; print(largest([3, 1, 2], 0, {'high': 30, 'low': 10}))"
    said = [
        subprocess.run([sys.executable, "-c", call, number], cwd=source, capture_output=True, text=True).stdout
        for number in ("-1", "0", "1")
    ]
    assert [int(one) for one in said] == [23, 21, 23]
