"""The library's rooms lie in order along the data, and each module has one place and one name."""

import re
from pathlib import Path

import pytest
from house import ROOMS, ROOT, House, room

HOUSE = House(ROOT / "src/stallpoint")


def test_every_module_stands_in_a_room_that_is_named() -> None:
    assert {room(name) for name in HOUSE.modules} == set(ROOMS)


def test_no_room_uses_one_above() -> None:
    assert HOUSE.upward() == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert HOUSE.circle() == []


def test_each_name_stands_for_one_module() -> None:
    assert HOUSE.repeated() == {}


def test_the_journey_of_a_measurement_has_few_stops_and_each_is_there() -> None:
    stops = re.findall(r"\| `([\w/]+\.py)`, `(\w+)` \|", (ROOT / "docs/journey.md").read_text())
    assert 10 <= len(stops) <= 15
    for file, name in stops:
        assert re.search(rf"^(def|class) {name}\b", (HOUSE.library / file).read_text(), re.MULTILINE), (file, name)


@pytest.fixture
def crooked(tmp_path: Path) -> House:
    """A house with each fault."""
    files = {
        "__init__.py": "",
        "records/__init__.py": "",
        "records/page.py": "def late():\n    from stallpoint.report import page\n",
        "report/__init__.py": "",
        "report/page.py": "from stallpoint.report.charts import chart\n",
        "report/charts.py": "from stallpoint.report.page import a\n",
    }
    for name, text in files.items():
        file = tmp_path / "stallpoint" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return House(tmp_path / "stallpoint")


def test_faults_are_found(crooked: House) -> None:
    assert crooked.upward() == ["records.page -> report.page"]
    assert {"report.page", "report.charts"} <= set(crooked.circle())
    assert crooked.repeated() == {"page": ["records.page", "report.page"]}
