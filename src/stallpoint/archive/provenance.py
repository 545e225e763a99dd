"""Provenance Run Crate: the workflow's steps, their tools, runs and outputs.

A cell's run has the times of its record. Later steps have no times, as copied files lose their times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import quote

from stallpoint.records.tables import EXTRAPOLATED_TABLES, MODEL_TABLES
from stallpoint.study.kinds import KINDS

Entity: TypeAlias = dict[str, Any]
"""A node of the JSON-LD graph."""
ENGINE: Entity = {
    "@id": "https://snakemake.github.io",
    "@type": "SoftwareApplication",
    "name": "Snakemake",
    "url": "https://snakemake.github.io",
}
_MEASURE, _IMPORT = "scripts/measure.py", "scripts/import_records.py"


def link_to(entities: Iterable[Entity]) -> list[Entity] | Entity:
    """Return references to the entities as compact JSON-LD: a list, or a single reference without a list."""
    references = [{"@id": entity["@id"]} for entity in entities]
    return references[0] if len(references) == 1 else references


def slug(text: str) -> str:
    """Return a text as a part of an identifier, quoted for URLs."""
    return quote("-".join(text.lower().split()))


@dataclass(frozen=True)
class _Step:
    """A rule of the workflow. Paths are relative to the study's results; the path of a folder ends in a slash."""

    name: str
    tool: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def reference(self) -> str:
        return f"#step-{self.name}"


def _models(tables: Iterable[Any]) -> tuple[str, ...]:
    return tuple(f"models/{table.name}.parquet" for table in tables)


_FITTED_TABLES = _models(table for table in MODEL_TABLES if table not in EXTRAPOLATED_TABLES)
_ANALYSIS_STEPS = (
    _Step("collect", "scripts/collect.py", ("raw/",), ("tables/",)),
    _Step("fit", "scripts/fit.py", ("tables/", "networks/"), _FITTED_TABLES),
    _Step("extrapolate", "scripts/extrapolate_study.py", ("tables/",), _models(EXTRAPOLATED_TABLES)),
    _Step("draw", "scripts/draw.py", ("tables/", "models/"), ("figures/",)),
    _Step("paper", "scripts/papers.py", ("tables/", "models/"), ("papers/",)),
    _Step(
        "conclude", "scripts/conclude.py", ("tables/", "models/"),
        ("claims.parquet", "conclusions.json", "conclusions.md"),
    ),
    _Step("typeset", "scripts/typeset.py", ("conclusions.json",), ("typeset/",)),
    _Step("report_page", "scripts/report_page.py", ("conclusions.json", "figures/"), ("report.html",)),
    _Step("proposal", "scripts/proposal.py", ("models/",), ("proposal.html",)),
    _Step("slides", "scripts/slides.py", ("models/", "conclusions.json"), ("slides/",)),
)  # fmt: skip
"""The rules that follow the measurement, in the order of the data flow."""


class Provenance:
    """Steps of one study's run.

    `runs` are rows of `tables.RUNS`, each with its ``folder``. `files` are all files of the archive, `machines` the
    identifiers of the machines' entities.
    """

    def __init__(
        self,
        study: str,
        config: str,
        runs: Sequence[Mapping[str, Any]],
        files: Iterable[str],
        machines: Iterable[str],
    ) -> None:
        self._results = f"results/{study}"
        self._config = config
        self._files = tuple(files)
        self._runs = runs
        self._machines = set(machines)
        kinds = {row["kind"] for row in runs}
        cell_steps = [
            _Step(name, _MEASURE if kind.measured else _IMPORT, (), ())
            for name, kind in KINDS.items() if name in kinds
        ]  # fmt: skip
        self._analysis = [step for step in _ANALYSIS_STEPS if self._files_named(step.outputs)]
        self._steps = [*cell_steps, *self._analysis]

    @property
    def parts_of_workflow(self) -> Entity:
        """Return references to steps and tools for the workflow's entity."""
        tools = dict.fromkeys(step.tool for step in self._steps)
        return {
            "step": link_to({"@id": step.reference} for step in self._steps),
            "hasPart": link_to({"@id": tool} for tool in tools),
        }

    def entities(self, run: str) -> Iterator[Entity]:
        """Yield the entities of steps, of their runs, and of Snakemake; `run` is the identifier of the complete run."""
        for position, step in enumerate(self._steps, start=1):
            yield {
                "@id": step.reference, "@type": "HowToStep", "name": step.name, "position": str(position),
                "workExample": {"@id": step.tool},
            }  # fmt: skip
        for tool in dict.fromkeys(step.tool for step in self._steps):
            yield {"@id": tool, "@type": ["File", "SoftwareSourceCode"]}
        actions = [*self._cells(), *self._analyses()]
        yield from (action for _, action in actions)
        control_actions = [
            {
                "@id": f"{action['@id']}-control", "@type": "ControlAction", "name": action["name"],
                "instrument": {"@id": step}, "object": {"@id": action["@id"]},
            }
            for step, action in actions
        ]  # fmt: skip
        yield from control_actions
        yield ENGINE
        yield {
            "@id": "#orchestration", "@type": "OrganizeAction", "name": "Snakemake's run of the workflow",
            "instrument": {"@id": ENGINE["@id"]}, "object": link_to(control_actions), "result": {"@id": run},
        }  # fmt: skip

    def _cells(self) -> Iterator[tuple[str, Entity]]:
        """Yield the step and the action of each measured or imported cell."""
        files_by_folder: dict[str, list[str]] = {}
        for name in self._files:
            files_by_folder.setdefault(name.rpartition("/")[0], []).append(name)
        for row in self._runs:
            has_failed = row["status"] == "failed"
            machine = f"#hardware-{slug(row['hardware'])}"
            yield (
                f"#step-{row['kind']}",
                {
                    "@id": f"#run-{quote(row['folder'])}",
                    "@type": "CreateAction",
                    "name": row["cell"],
                    "instrument": {"@id": _MEASURE if KINDS[row["kind"]].measured else _IMPORT},
                    "object": link_to({"@id": name} for name in [self._config, *(self._machines & {machine})]),
                    "result": link_to({"@id": quote(name)} for name in files_by_folder.get(row["folder"], ())),
                    "startTime": row["started"].isoformat(timespec="seconds"),
                    "endTime": (row["started"] + timedelta(seconds=row["duration"])).isoformat(timespec="seconds"),
                    "actionStatus": f"http://schema.org/{'Failed' if has_failed else 'Completed'}ActionStatus",
                    **({"error": row["reason"]} if has_failed else {}),
                },
            )

    def _analyses(self) -> Iterator[tuple[str, Entity]]:
        for step in self._analysis:
            yield (
                step.reference,
                {
                    "@id": f"#run-of-{step.name}",
                    "@type": "CreateAction",
                    "name": step.name,
                    "instrument": {"@id": step.tool},
                    "object": link_to({"@id": quote(name)} for name in [self._config, *self._files_named(step.inputs)]),
                    "result": link_to({"@id": quote(name)} for name in self._files_named(step.outputs)),
                    "actionStatus": "http://schema.org/CompletedActionStatus",
                },
            )

    def _files_named(self, names: tuple[str, ...]) -> list[str]:
        """Return the archive's files that are in `names`, or below a folder in `names`."""
        paths = tuple(f"{self._results}/{name}" for name in names)
        folders = tuple(name for name in paths if name.endswith("/"))
        return [name for name in self._files if name in paths or (folders and name.startswith(folders))]
