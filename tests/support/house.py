"""The rooms of the library, read from its imports: ``make house`` prints them beside what they are to become."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
ROOMS = {
    "text": "how numbers, durations, lists and progress are written",
    "errors": "how a step ends early, and how programs say so",
    "extras": "packages beside the core, found by entry points",
    "loops": "loops that are compiled, or divided among processes",
    "sources": "files of a script, from its imports: what a rule of the workflow depends on",
    "records": "tables, columns and files; what disturbed a measurement",
    "strategies": "how a step is distributed: one class for each strategy, the presets, what they send",
    "networks": "what is trained: one file for each network, and the registry",
    "storage": "what is read: one file for each format, and the registry",
    "inputs": "what a study imports: texts, logs of all-reduces, traces of layers",
    "study": "configuration to cells: names, kinds of job, blocks multiplied out",
    "base": "curve, stall, verdict, estimates and their noise: what all that is judged is made of",
    "slurm": "queue, accounts, jobs left over, what a job knows of itself",
    "schedule": "which cell is measured when, until when, and what that takes",
    "measure": "what runs on the nodes: jobs, training, synchronisation, machine, probe",
    "models": "tables in, tables out: terms, task graph, iteration, laws, answers",
    "questions": "what a study says: one file for each question, and claims judged",
    "report": "page, slides, charts",
    "archive": "results in one file for others, cells imported from theirs; what changed between studies",
    "cli": "the program `stallpoint`, for whoever has no study",
    "stallpoint_files": "what people bring: rates, logs, links, scripts, results of MLPerf",
    "stallpoint_traces": "profiles: Kineto, Nsight, NCCL's plug-ins, Chakra; layouts of ranks",
    "stallpoint_papers": "the papers' figures and tables, from a study",
}
"""From the ground up: a room uses those before it and none after it. The last three are packages beside the core."""
CORE, *EXTRAS = "stallpoint", *(name for name in ROOMS if name.startswith("stallpoint"))

SLACK = 150
"""Lines that a budget may lie above what is there: a larger rest is taken back, so that nobody grows into it."""


def budgets() -> dict[str, int]:
    """Return the lines that each room, the source as a whole and the tests may have: `lines.yaml`."""
    return dict(yaml.safe_load((ROOT / "tests/lines.yaml").read_text(encoding="utf-8")))


def weights() -> dict[str, int]:
    """Return the lines that are there, by the names of `budgets`."""
    library = House(ROOT / "src")
    rooms = {name: [file for module, file in library.modules.items() if room(module) == name] for name in ROOMS}
    folders = {"core": ROOT / "src/stallpoint", "src": ROOT / "src", "tests": ROOT / "tests"}
    wholes = {name: list(folder.rglob("*.py")) for name, folder in folders.items()}
    return {name: size(files)[0] for name, files in {**rooms, **wholes}.items()}


def off_budget(weights: Mapping[str, int], budgets: Mapping[str, int]) -> Iterator[str]:
    """Yield what to do for each name whose lines do not fit its budget."""
    for name, lines in weights.items():
        if (more := lines - budgets.get(name, 0)) > 0:
            what = f"{name} has {lines:,} lines, {more:,} over its budget"
            yield f"{what}: raise the budget in this commit and say why, or take something out"
        elif -more > SLACK:
            yield f"{name} has {lines:,} lines, {-more:,} below its budget: take them from the budget, as they went"


@dataclass(frozen=True)
class House:
    """The modules of the packages below `source`."""

    source: Path

    @property
    def library(self) -> Path:
        """Folder of the core."""
        return self.source / CORE

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Files by the names of their modules: of the core below it (``report.html``), of others in full."""
        found = {}
        for package in (CORE, *EXTRAS):
            for file in sorted((self.source / package).rglob("*.py")):
                parts = file.relative_to(self.source).with_suffix("").parts
                found[short(".".join(parts[:-1] if parts[-1] == "__init__" else parts))] = file
        del found[""]
        return found

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Which modules each module imports, wherever in its file, also for type checkers alone."""
        return {name: set(self._imports(name, file)) for name, file in self.modules.items()}

    def _imports(self, name: str, file: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in (CORE, *EXTRAS):
                module = short(node.module or "")
                for alias in node.names:
                    full = f"{module}.{alias.name}".lstrip(".")
                    found = full if full in self.modules else module
                    if found not in ("", name):
                        yield found

    def arrows(self) -> dict[tuple[str, str], list[str]]:
        """Pairs of rooms, the first of which uses the second, and the imports that say so."""
        found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for name, used in self.imports.items():
            for other in sorted(used):
                pair = room(name), room(other)
                if pair[0] != pair[1]:
                    found[pair].append(f"{name} -> {other}")
        return dict(found)

    def upward(self) -> list[str]:
        """Imports from a room that stands above."""
        order = list(ROOMS)
        return [
            one
            for (user, used), imports in self.arrows().items()
            if order.index(used) > order.index(user)
            for one in imports
        ]

    def circle(self) -> list[str]:
        """Modules that import each other in a loop, one such loop; empty if there is none."""
        try:
            TopologicalSorter(self.imports).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []

    def repeated(self) -> Mapping[str, list[str]]:
        """Names that stand for more than one module."""
        stems: defaultdict[str, list[str]] = defaultdict(list)
        for name, file in self.modules.items():
            if file.stem not in ("__init__", "__main__"):
                stems[file.stem].append(name)
        return {stem: names for stem, names in stems.items() if len(names) > 1}

    def loose(self) -> list[str]:
        """Modules in no room but their own."""
        return [name for name, file in self.modules.items() if "." not in name and file.stem != "__init__"]


def short(module: str) -> str:
    """Return a module's name, in the core without that of the core."""
    return module.removeprefix(CORE).removeprefix(".") if module.partition(".")[0] == CORE else module


def room(module: str) -> str:
    """Return the room of a module: the first part of its name."""
    return module.partition(".")[0]


def size(files: Iterable[Path]) -> tuple[int, int]:
    """Return lines and number of files."""
    counts = [len(file.read_text(encoding="utf-8").splitlines()) for file in files]
    return sum(counts), len(counts)


def table() -> list[str]:
    """Return the lines of ``make house``."""
    house = House(ROOT / "src")
    rows = [
        ("", "here", "wanted"),
        ("loose modules", f"{len(house.loose())}", "3"),
        ("rooms", f"{len({room(name) for name in house.modules})}", "16"),
        ("arrows", f"{len(house.arrows())}", "80"),
        ("imports of a room above", f"{len(house.upward())}", "0"),
        ("modules in a circle", f"{len(house.circle())}", "0"),
        ("names of two modules or more", f"{len(house.repeated())}", "0"),
        ("files of source", f"{len(house.modules)}", "270"),
        ("files of tests", f"{len(list((ROOT / 'tests').rglob('*.py')))}", ""),
    ]
    lines, allowed = weights(), budgets()
    plan = [f"{name:<12}{lines[name]:>7,} of {allowed.get(name, 0):>7,}  {ROOMS.get(name, '')}"
            for name in reversed(lines)]  # fmt: skip
    return [*(f"{what:<30}{here:>8}{wanted:>8}" for what, here, wanted in rows), "", *plan]


if __name__ == "__main__":
    print("\n".join(table()))
