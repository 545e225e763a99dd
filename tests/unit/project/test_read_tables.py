"""Every table of answers has a reader: an answer, a claim, an exhibit, a chart, or a section of the report."""

import ast
import re
from collections.abc import Iterator

from checkout import ROOT

from stallpoint.records.tables import EXTRAPOLATED_TABLES, MODEL_TABLES

READERS = ("findings/conclusions", "report", "archive/comparison")
"""Rooms that read tables; `findings/claims` names all of them to say what a study lacks."""
SCRIPTS = {"rates": "scripts/extrapolate_study.py"}
"""Tables that a later step of the workflow computes from."""


def words_of_readers() -> Iterator[str]:
    """Texts in the programs of readers, and words of claims."""
    for room in READERS:
        for file in (ROOT / "src/stallpoint" / room).rglob("*.py"):
            nodes = ast.walk(ast.parse(file.read_text()))
            yield from (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    for file in (ROOT / "resources/claims").glob("*.yaml"):
        yield from re.findall(r"table: (\w+)", file.read_text())


def test_every_table_is_read_by_somebody() -> None:
    for name, script in SCRIPTS.items():
        assert name.upper() in (ROOT / script).read_text()
    read = {*words_of_readers(), *SCRIPTS}
    assert {table.name for table in (*MODEL_TABLES, *EXTRAPOLATED_TABLES)} - read == set()
