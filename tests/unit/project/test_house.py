"""The library's rooms lie in order along the data, and each module has one place and one name."""

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from house import ROOMS, ROOT, SLACK, House, budgets, off_budget, room, weights

from stallpoint import load
from stallpoint.networks import NETWORKS
from stallpoint.strategies.families import STRATEGIES
from stallpoint.study.kinds import KINDS, MEASURED

HOUSE = House(ROOT / "src")
FLOORS = ("terms", "taskgraph", "iteration", "scaling", "convergence", "answers")
"""Rooms within that of the models, from the ground up."""
WITHIN = {name: name.split(".")[1] for name in HOUSE.modules if name.startswith("models.")}
"""Modules of the models by room."""
EVERYWHERE = {"fit", "table"}
"""What a module's main function is called where its name says of what."""
STRATEGY_AND_TRAINING = {"strategies.families", "measure.synchronisation"}
"""A strategy and its training on ranks have one name."""
MAX_FILES = 14
NAMED_BY_USERS = {"networks", "storage", "questions", "report/charts", "measure/synchronisation"}
"""Folders with one file for each thing that users name."""

NAMED = re.compile(rf"(?:{'|'.join(ROOMS)})(?:\.\w+)+:[\w.]+")
"""Code that a text names, for `stallpoint.load`."""


def test_every_module_stands_in_a_room_that_is_named() -> None:
    assert {room(name) for name in HOUSE.modules} == set(ROOMS)


def test_no_room_uses_one_above() -> None:
    assert HOUSE.upward() == []


def test_code_that_registries_name_in_texts_is_there() -> None:
    """However it is named: as an entry of a registry, a class variable, or where it is called."""
    constants = (node for file in HOUSE.modules.values() for node in ast.walk(ast.parse(file.read_text())))
    texts = {node.value for node in constants if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    named = {text for text in texts if NAMED.fullmatch(text)}
    assert {one.build_function for one in NETWORKS.values()} <= named
    assert {name for one in STRATEGIES for name in (one.training, one.iteration)} <= named
    assert {KINDS[kind].function for kind in MEASURED} <= named
    assert "networks.description:split_of" in named
    assert [name for name in sorted(named) if not callable(load(name))] == []


def test_rooms_of_the_models_use_those_below_alone() -> None:
    assert set(WITHIN.values()) == {*FLOORS, "fitting"}
    pairs = {(WITHIN[name], WITHIN[other]) for name in WITHIN for other in HOUSE.imports[name] if other in WITHIN}
    order = [*FLOORS, "fitting"]
    assert [(user, used) for user, used in pairs if order.index(used) > order.index(user)] == []


def test_no_public_name_means_different_things_in_two_rooms_of_the_models() -> None:
    rooms: defaultdict[str, set[str]] = defaultdict(set)
    for module in (name for name in WITHIN if HOUSE.modules[name].stem not in ("__init__", "fitting")):
        for node in ast.parse(HOUSE.modules[module].read_text()).body:
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    rooms[name].add(WITHIN[module])
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    rooms[name].add(WITHIN[module])
    public = {name for name, of in rooms.items() if len(of) > 1 and not name.startswith("_")}
    assert public <= EVERYWHERE


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert HOUSE.circle() == []


def test_each_name_stands_for_one_module() -> None:
    assert HOUSE.repeated() == {}


def test_a_folder_has_few_files_unless_users_name_each() -> None:
    counts = Counter(file.parent for file in (ROOT / "src").rglob("*.py"))
    large = {str(folder.relative_to(HOUSE.library)) for folder, count in counts.items() if count > MAX_FILES}
    assert large <= NAMED_BY_USERS


def test_each_class_name_stands_for_one_class() -> None:
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for module, file in HOUSE.modules.items():
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(module)
    repeated = {name: {".".join(one.split(".")[:2]) for one in of} for name, of in modules.items() if len(of) > 1}
    assert {name for name, rooms in repeated.items() if rooms != STRATEGY_AND_TRAINING} == set()


def test_the_journey_of_a_measurement_has_few_stops_and_each_is_there() -> None:
    stops = re.findall(r"\| `([\w/]+\.py)`, `(\w+)` \|", (ROOT / "docs/journey.md").read_text())
    assert 10 <= len(stops) <= 15
    for file, name in stops:
        assert re.search(rf"^(def|class) {name}\b", (HOUSE.library / file).read_text(), re.MULTILINE), (file, name)


def test_nothing_grows_unless_its_budget_says_so() -> None:
    """The ratchet: budgets follow what is there, upwards with a reason in the same commit, downwards always."""
    assert budgets().keys() == weights().keys()
    assert list(off_budget(weights(), budgets())) == []


def test_the_ratchet_holds_both_ways() -> None:
    (over,) = off_budget({"records": 101}, {"records": 100})
    assert over == (
        "records has 101 lines, 1 over its budget: raise the budget in this commit and say why, or take something out"
    )
    (new,) = off_budget({"attic": 1}, {})
    assert "1 over its budget" in new
    (under,) = off_budget({"records": 100}, {"records": 101 + SLACK})
    assert "take them from the budget" in under
    assert list(off_budget({"records": 100}, {"records": 100 + SLACK})) == []


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
    return House(tmp_path)


def test_faults_are_found(crooked: House) -> None:
    assert crooked.upward() == ["records.page -> report.page"]
    assert {"report.page", "report.charts"} <= set(crooked.circle())
    assert crooked.repeated() == {"page": ["records.page", "report.page"]}
