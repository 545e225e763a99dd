"""What a rule's script is made of, found from its imports: on made-up packages, and on the workflow's own scripts."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from launching import copied

from stallpoint.report.charts import CHARTS
from stallpoint.report.charts import PAPERS as PAPER_CHARTS
from stallpoint.sources import sources_of
from stallpoint.strategies.families import PREDICTING_MODULES
from stallpoint_papers.exhibits import PAPERS

ROOT = Path(__file__).parents[3]
LIBRARY = ROOT / "src/stallpoint"
SENT = {"models/taskgraph/tasks.py", *(f"strategies/{name}.py" for name in ("mg_wfbp", "buckets", "presets"))}
"""Files of the task graph and of what is sent."""

NOT_DERIVED = {
    "prepare_storage.py", "describe_network.py", "import_records.py",  # what measures, and records
    "archive.py", "judge_comparison.py",  # pack or say what is there
    "export_trace.py", "export_task_graph.py", "export_timeline.py",  # made when asked for, for each of many cells
}  # fmt: skip
"""Scripts whose rules do not depend on the library."""
SCRIPT_OF_RULE = re.compile(r'^ +"\.\./\.\./scripts/(\w+\.py)"$', re.MULTILINE)
CODE_OF_RULE = re.compile(r'^ +code=code_of\("(\w+\.py)".*\),$', re.MULTILINE)

BY_NAME = {
    "chart.py": [[chart.module] for chart in PAPER_CHARTS.values()],
    "draw.py": [[chart.module for chart in CHARTS.values()]],
    "fit.py": [PREDICTING_MODULES],
    "paper_figures.py": [PREDICTING_MODULES],
    "papers.py": [paper.modules for paper in PAPERS.values()],
}
"""Modules that scripts load by name, for each of a rule's jobs."""

LOADED = """
import importlib, json, sys

def of_library():
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "stallpoint"}

def loaded(imports, also):
    for name in of_library():
        del sys.modules[name]
    exec(imports, {})
    for name in also:
        importlib.import_module(name)
    return [module.__file__ for module in of_library().values()]

print(json.dumps([loaded(*case) for case in json.load(sys.stdin)]))
"""
"""What imports load of the library, for each case as if nothing of it had been loaded before."""

Sources = Callable[..., set[str]]


@pytest.fixture
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Writes the files of package ``pack`` and a script, and finds what it is made of, by paths in the package."""

    def find(script: str, files: dict[str, str], also: tuple[str, ...] = ()) -> set[str]:
        folder = tmp_path_factory.mktemp("library")  # each time anew: files are read once
        library = folder / "pack"
        for name, text in {"__init__.py": "", **files}.items():
            file = library / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (folder / "script.py").write_text(script)
        found = sources_of(folder / "script.py", library, also)
        assert found == sorted(set(found))
        return {str(file.relative_to(library)) for file in found} - {"__init__.py"}

    return find


def empty(files: str) -> dict[str, str]:
    return dict.fromkeys(files.split(), "")


TREE = {**empty("a.py b.py sub/__init__.py sub/deep/__init__.py sub/deep/e.py"), "sub/c.py": "def d(): pass"}


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import numpy\nimport packaging.pack", set()),
        ("import pack", set()),
        ("import pack.a", {"a.py"}),
        ("import pack.a as other, pack.b", {"a.py", "b.py"}),
        ("from pack import a", {"a.py"}),
        ("from pack import (  # a name (or two)\n    a,\n    b as other,\n)\n", {"a.py", "b.py"}),
        ("from pack import \\\n    a, \\\n    b", {"a.py", "b.py"}),
        ("from pack.a import a", {"a.py"}),
        ("from pack.a import *", {"a.py"}),
        ("from pack import unknown", set()),
        ("from pack.sub.c import d", {"sub/__init__.py", "sub/c.py"}),
        ("from pack.sub import c, deep", {"sub/__init__.py", "sub/c.py", "sub/deep/__init__.py"}),
        ("import pack.sub.deep.e", {"sub/__init__.py", "sub/deep/__init__.py", "sub/deep/e.py"}),
        ("x = 1; import pack.a", {"a.py"}),
        ("if x: import pack.a\nelse: import pack.b", {"a.py", "b.py"}),
        ("def f():\n    with x:\n        from pack import a\n    return a", {"a.py"}),
        ("class C:\n    async def f(self):\n        import pack.a\n", {"a.py"}),
        ("try:\n    import pack.a\nexcept ImportError:\n    import pack.b\n", {"a.py", "b.py"}),
        ("match x:\n    case 1:\n        import pack.a\n", {"a.py"}),
        ('"""Says\nimport pack.b\n"""\nimport pack.a\n\ndef f():\n    """They\n    import (\n    """\n', {"a.py"}),
        ("# import pack.a (and\nx = (1 +\n2)\n", set()),
        ("import_module = 'pack.a'", set()),
        ("", set()),
    ],
)  # fmt: skip
def test_every_form_of_import_is_followed(sources: Sources, script: str, expected: set[str]) -> None:
    assert sources(script, TREE) == expected


@pytest.mark.parametrize("condition", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_what_is_for_type_checkers_alone_is_left_out(sources: Sources, condition: str) -> None:
    script = f"if {condition}:\n    import pack.a\nelse:\n    import pack.b\n"
    assert sources(script, TREE) == {"b.py"}
    script = f"if x:\n    pass\nelif {condition}:\n    import pack.a\nelif y:\n    import pack.b\n"
    assert sources(script, TREE) == {"b.py"}


def test_what_is_not_for_type_checkers_is_kept(sources: Sources) -> None:
    assert sources("if not TYPE_CHECKING:\n    import pack.a\n", TREE) == {"a.py"}


def test_imports_are_followed_around_a_circle_and_out_of_packages(sources: Sources) -> None:
    files = {
        "a.py": "from pack import b",
        "b.py": "from pack.sub.c import thing",
        "sub/__init__.py": "from pack.d import other",
        "sub/c.py": "import pack.a",
        "d.py": "def f():\n    import pack.e",
        "e.py": "",
        "unused.py": "import pack.a",
    }
    assert sources("import pack.a", files) == set(files) - {"unused.py"}


@pytest.mark.parametrize(
    ("module", "statement", "expected"),
    [
        ("sub/c.py", "from . import x", {"sub/x.py"}),
        ("sub/c.py", "from .x import name", {"sub/x.py"}),
        ("sub/c.py", "from .. import a", {"a.py"}),
        ("sub/c.py", "from ..other.b import name", {"other/__init__.py", "other/b.py"}),
        ("sub/__init__.py", "from . import x", {"sub/x.py"}),
        ("sub/__init__.py", "from .x import name", {"sub/x.py"}),
        ("sub/__init__.py", "from .. import a", {"a.py"}),
    ],
)
def test_relative_imports(sources: Sources, module: str, statement: str, expected: set[str]) -> None:
    files = empty("a.py sub/__init__.py sub/c.py sub/x.py other/__init__.py other/b.py")
    found = sources("import pack.sub.c", {**files, module: statement})
    assert found == {"sub/__init__.py", "sub/c.py", *expected}


def test_a_package_comes_with_its_data_but_nothing_compiled_or_hidden(sources: Sources) -> None:
    files = empty(
        "sub/__init__.py sub/schema.yaml sub/assets/page.css sub/assets/more/font sub/assets/tool.py"
        " sub/__pycache__/c.cpython-312.pyc sub/__pycache__/kept.js sub/assets/__pycache__/tool.cpython-312.pyc"
        " sub/.schema.yaml.swp sub/.kept/x sub/deep/__init__.py sub/deep/own.json other/__init__.py other/own.json"
    )
    own = {"sub/__init__.py", "sub/schema.yaml", "sub/assets/page.css", "sub/assets/more/font"}
    assert sources("import pack.sub", files) == own
    assert sources("import pack.sub.deep", files) == {*own, "sub/deep/__init__.py", "sub/deep/own.json"}


def test_a_folder_that_is_no_package_can_hold_modules(sources: Sources) -> None:
    files = {"sub/__init__.py": "", "sub/plain/x.py": ""}
    assert sources("import pack.sub.plain.x", files) == set(files)


def test_modules_loaded_by_name_come_with_what_they_import(sources: Sources) -> None:
    files = {"charts/__init__.py": "", "charts/one.py": "import pack.a", "charts/two.py": "", "a.py": ""}
    assert sources("import pack.charts", files) == {"charts/__init__.py"}
    found = sources("", files, ("pack.charts.one",))
    assert found == {"charts/__init__.py", "charts/one.py", "a.py"}


def parts(script: str, also: Sequence[str] = ()) -> set[str]:
    return {os.path.relpath(file, LIBRARY) for file in sources_of(ROOT / "scripts" / script, LIBRARY, also)}


def test_the_fit_depends_on_the_whole_model() -> None:
    found = parts("fit.py", PREDICTING_MODULES)
    iterations = {
        f"models/iteration/{name}.py"
        for name in ("replicas", "sharded_iteration", "pipeline_iteration", "tensor_parallel_iteration")
    }
    assert {*SENT, *iterations} <= found
    assert parts("paper_figures.py") >= SENT
    assert not [file for file in found if file.startswith(("report/", "measure/"))]


def test_charts_depend_on_themselves_and_what_they_share() -> None:
    found = parts("chart.py", (PAPER_CHARTS["paper-speedup"].module,))
    assert {"report/charts/paper_chart.py", "report/charts/theme.py", "report/charts/axes.py"} <= found
    assert not [file for file in found if "storage_chart" in file or "sections" in file]
    found = parts("draw.py", tuple(chart.module for chart in CHARTS.values()))
    assert {f"report/charts/{chart.module.rpartition('.')[2]}.py" for chart in CHARTS.values()} <= found


def test_data_of_the_library_are_inputs_and_bytecode_is_none() -> None:
    assert "questions/claims/schema.yaml" in parts("conclude.py")
    assert {"report/sections/assets/page.css", "report/sections/assets/inter.woff2"} <= parts("report_page.py")
    for script in derived():
        assert "__pycache__" not in str(parts(script))


def derived() -> list[str]:
    """Scripts of the rules that depend on the library."""
    return [
        script
        for file in sorted((ROOT / "workflow/rules").glob("*.smk"))
        for script in SCRIPT_OF_RULE.findall(file.read_text())
        if script not in NOT_DERIVED
    ]


def test_every_rule_that_derives_depends_on_the_code_of_its_script() -> None:
    rules = [file.read_text() for file in sorted((ROOT / "workflow/rules").glob("*.smk"))]
    assert [code for text in rules for code in CODE_OF_RULE.findall(text)] == derived()
    assert set(derived()) >= {"collect.py", "fit.py", "draw.py", "papers.py", "conclude.py", "report_page.py"}
    assert not NOT_DERIVED & set(derived())


@pytest.mark.parametrize("jobs", [1, pytest.param(None, marks=pytest.mark.night)])
def test_all_that_a_script_loads_is_found(jobs: int | None, tmp_path: Path) -> None:
    """Of each rule one job, or all."""
    cases = [(script, also) for script in sorted(set(derived())) for also in BY_NAME.get(script, [()])[:jobs]]
    imports = re.compile(r"^(?:from \S+ )?import (?:\([^)]*\)|.*)", re.MULTILINE)
    asked = [("\n".join(imports.findall((ROOT / "scripts" / script).read_text())), also) for script, also in cases]
    (script := tmp_path / "loaded.py").write_text(LOADED)
    done = subprocess.run(
        [sys.executable, script], input=json.dumps(asked), capture_output=True, text=True, check=True,
        env={**os.environ, **copied()},
    )  # fmt: skip
    for (script, also), loaded in zip(cases, json.loads(done.stdout), strict=True):
        files = {os.path.relpath(file, LIBRARY) for file in loaded}
        assert len(files) > 5
        assert files - parts(script, also) == set(), f"{script} {also}"
