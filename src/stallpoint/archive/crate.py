"""The archive as an RO-Crate: the kind of each file, and the workflow run that made it.

Profiles: RO-Crate 1.1, Workflow RO-Crate 1.0, and Process, Workflow and Provenance Run Crate 0.5. These are the newest
known to the community's validator (roc-validator).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import yaml

import stallpoint
from stallpoint.archive.provenance import Entity, Provenance, link_to, slug
from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.records.checksums import CHECKSUMS
from stallpoint.records.parquet import files_of, read
from stallpoint.records.seal import sha256
from stallpoint.records.tables import ENVIRONMENTS, RUNS
from stallpoint.study.study import Study

FILE = "CITATION.cff"


def title(study: str, about: Mapping[str, Any]) -> str:
    """Return the title of the archived results; `about` is the study's entry ``archive``."""
    return str(about.get("title") or f"stallpoint study {study}: where distributed training stops getting faster")


def authors(study: str, about: Mapping[str, Any]) -> Sequence[Mapping[str, str]]:
    """Return the authors to cite; a study that names none is cited by a collective author."""
    return about.get("authors") or [{"name": f"The authors of study {study}"}]


def write_citation(folder: Path, study: str, about: Mapping[str, Any], publication_time: datetime) -> None:
    """Write ``CITATION.cff`` to `folder`, with a reference to the program that made the results."""
    citation = {
        "cff-version": "1.2.0",
        "message": "If you use these results, please cite them, and the program they were measured with.",
        "type": "dataset",
        "title": title(study, about),
        "authors": [dict(author) for author in authors(study, about)],
        "date-released": publication_time.date(),
        "license": about["licence"],
        "references": [
            {
                "type": "software",
                "title": "stallpoint",
                "version": stallpoint.__version__,
                "authors": [{"name": "The stallpoint developers"}],
                "license": "Apache-2.0",
            }
        ],
    }
    text = yaml.safe_dump(citation, sort_keys=False, allow_unicode=True)
    (folder / FILE).write_text(text, encoding="utf-8")


METADATA = "ro-crate-metadata.json"
MAIN_WORKFLOW = "Snakefile"
_CRATE = "https://w3id.org/ro/crate/1.1"
_RUN_TERMS = "https://w3id.org/ro/terms/workflow-run#"
_PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/provenance/0.5": ("Provenance Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
_BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
_FORMATS = {
    ".parquet": "application/vnd.apache.parquet", ".json": "application/json", ".html": "text/html",
    ".svg": "image/svg+xml", ".png": "image/png", ".pdf": "application/pdf", ".md": "text/markdown",
    ".csv": "text/csv", ".tex": "application/x-tex", ".yaml": "application/yaml", ".cff": "application/yaml",
    ".py": "text/x-python", ".toml": "application/toml",
}  # fmt: skip
_LANGUAGE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
_OWN_LICENCE = "Apache-2.0"
"""Licence of the workflow."""
_CONFIG = "config/config.yaml"
_RUN_ID = "#run"
_OUTPUTS = {"records": "Dataset", "report": "File", "conclusions": "File"}
"""Outputs of the workflow, and the RO-Crate type of each."""
_SOFTWARE = {
    "python": ("Python", "https://www.python.org/"),
    "torch": ("PyTorch", "https://pytorch.org/"),
    "mpi4py": ("mpi4py", "https://mpi4py.readthedocs.io/"),
}
"""Software whose version is a column of `tables.ENVIRONMENTS`: column -> name and home page."""


@dataclass(frozen=True)
class MeasuredRun:
    """Period and machines of the study's measurements."""

    cells: Sequence[Mapping[str, Any]]
    """The row of `tables.RUNS` of each cell, with the cell's ``folder`` as a further key."""
    environments: pa.Table

    @property
    def started(self) -> datetime:
        found: datetime = min(cell["started"] for cell in self.cells)
        return found

    @property
    def ended(self) -> datetime:
        """Return the time when the last cell ended."""
        found: datetime = max(cell["started"] + timedelta(seconds=cell["duration"]) for cell in self.cells)
        return found

    @property
    def failed(self) -> int:
        """Return the number of cells that could not run."""
        return sum(cell["status"] == "failed" for cell in self.cells)


def run_of(folder: Path, cells: Mapping[str, Any]) -> MeasuredRun:
    """Return the run recorded below `folder`. The keys of `cells` are the cells' folders, relative to `folder`."""
    folders = [folder / cell for cell in cells]
    runs = [
        {**row, "folder": str(file.parent.relative_to(folder))}
        for file in files_of(RUNS, folders)
        for row in read(RUNS, file).to_pylist()
    ]
    if len(runs) != len(folders):
        raise InputError(f"{len(folders) - len(runs)} of {len(folders)} cells have no records: run the study first")
    empty_table = ENVIRONMENTS.schema.empty_table()
    return MeasuredRun(
        runs,
        pa.concat_tables([empty_table, *(read(ENVIRONMENTS, file) for file in files_of(ENVIRONMENTS, folders))]),
    )


def write_metadata(folder: Path, study: Study, run: MeasuredRun) -> None:
    """Write the RO-Crate description of `folder` to its file `METADATA`."""
    files = sorted({*files_in(folder), CHECKSUMS} - {METADATA})
    machines = list(_machines(run))
    steps = Provenance(study.name, _CONFIG, run.cells, files, machines=[machine["@id"] for machine in machines])
    graph = [*_root(study, run, files), *_workflow(run, steps), *_run(study, run, folder, machines)]
    entities = {entity["@id"]: entity for entity in graph}
    for step in steps.entities(_RUN_ID):
        entities[step["@id"]] = {**entities.get(step["@id"], {}), **step}
    for name in files:
        entities[quote(name)] = {**_file(folder / name, name), **entities.get(quote(name), {})}
    entities["README.md"]["about"] = {"@id": "./"}
    for name, text in _descriptions(study.name).items():
        if (entity := entities.get(quote(name))) is not None:
            entity["description"] = text
    document = {
        "@context": [f"{_CRATE}/context", {"sha256": f"{_RUN_TERMS}sha256"}],
        "@graph": list(entities.values()),
    }
    (folder / METADATA).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _root(study: Study, run: MeasuredRun, files: Iterable[str]) -> Iterator[Entity]:
    """Yield the entities of the crate itself, its profiles, authors and licences."""
    about = study.config["archive"]
    profiles = [
        {"@id": url, "@type": "CreativeWork", "name": name, "version": version}
        for url, (name, version) in _PROFILES.items()
    ]
    licences = [_licence(about["licence"]), _licence(_OWN_LICENCE)]
    people = [list(_author(author)) for author in authors(study.name, about)]
    yield {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": [{"@id": _CRATE}, {"@id": "https://w3id.org/workflowhub/workflow-ro-crate/1.0"}],
    }
    yield {
        "@id": "./",
        "@type": "Dataset",
        "name": title(study.name, about),
        "description": (
            f"Records, tables, models, figures and report of study {study.name}: {len(run.cells)} cells, {run.failed} "
            "of which could not run; with the workflow that draws them again from the records."
        ),
        "datePublished": run.ended.date().isoformat(),
        "license": {"@id": licences[0]["@id"]},
        "author": link_to(first for first, *_ in people),
        "conformsTo": link_to(profiles),
        "mainEntity": {"@id": MAIN_WORKFLOW},
        "mentions": {"@id": _RUN_ID},
        "hasPart": [{"@id": quote(name)} for name in files] + [{"@id": f"results/{study.name}/raw/"}],
    }
    yield from [*profiles, *licences, *(entity for entities in people for entity in entities)]


def _licence(identifier: str) -> Entity:
    url = f"https://spdx.org/licenses/{identifier}"
    return {"@id": url, "@type": "CreativeWork", "name": identifier, "identifier": url, "url": url}


def _author(author: Mapping[str, str]) -> Iterator[Entity]:
    """Yield the entities of an author: an organisation, or a person and the person's affiliation."""
    if "name" in author:
        yield _organisation(author["name"])
        return
    name = " ".join(author[key] for key in ("given-names", "family-names") if key in author)
    person = {"@id": author.get("orcid", f"#{slug(name)}"), "@type": "Person", "name": name}
    if "affiliation" in author:
        employer = _organisation(author["affiliation"])
        yield {**person, "affiliation": {"@id": employer["@id"]}}
        yield employer
    else:
        yield person


def _organisation(name: str) -> Entity:
    return {"@id": f"#{slug(name)}", "@type": "Organization", "name": name}


def _workflow(run: MeasuredRun, steps: Provenance) -> Iterator[Entity]:
    """Yield the entities of the Snakefile, its language and its parameters, and of the software that the run used."""
    software = [
        {"@id": url, "@type": "SoftwareApplication", "name": name, "url": url, "softwareVersion": version}
        for column, (name, url) in _SOFTWARE.items()
        if (version := ", ".join(sorted(set(run.environments[column].to_pylist()))))
    ]
    yield {
        "@id": MAIN_WORKFLOW,
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
        "name": "stallpoint",
        "description": "Measures what bounds synchronous data-parallel training, fits models to it and reports.",
        "version": stallpoint.__version__,
        "conformsTo": {"@id": _BIOSCHEMAS},
        "license": {"@id": _licence(_OWN_LICENCE)["@id"]},
        "programmingLanguage": {"@id": _LANGUAGE},
        "input": {"@id": "#study"},
        "output": [{"@id": f"#{name}"} for name in _OUTPUTS],
        "softwareRequirements": link_to(software),
        **steps.parts_of_workflow,
    }
    yield {"@id": _BIOSCHEMAS, "@type": "CreativeWork", "name": "ComputationalWorkflow", "version": "1.0-RELEASE"}
    yield {
        "@id": _LANGUAGE,
        "@type": "ComputerLanguage",
        "name": "Snakemake",
        "identifier": {"@id": "https://doi.org/10.1093/bioinformatics/bts480"},
        "url": {"@id": "https://snakemake.readthedocs.io"},
    }
    yield _parameter("study", "File", is_required=True)
    for name, kind in _OUTPUTS.items():
        yield _parameter(name, kind)
    yield from software


def _parameter(name: str, kind: str, *, is_required: bool = False) -> Entity:
    return {
        "@id": f"#{name}",
        "@type": "FormalParameter",
        "additionalType": kind,
        "conformsTo": {"@id": "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"},
        "name": name,
        "valueRequired": is_required,
    }


def _run(study: Study, run: MeasuredRun, folder: Path, machines: Sequence[Entity]) -> Iterator[Entity]:
    """Yield the entities of the workflow's run: inputs, machines, outputs."""
    results = f"results/{study.name}"
    outputs = {
        "records": f"{results}/raw/",
        "report": f"{results}/report.html",
        "conclusions": f"{results}/conclusions.json",
    }
    yield {
        "@id": _RUN_ID,
        "@type": "CreateAction",
        "name": f"Study {study.name}",
        "description": f"{len(run.cells)} cells measured or imported, {run.failed} of which could not run",
        "instrument": {"@id": MAIN_WORKFLOW},
        "object": link_to([{"@id": _CONFIG}, *machines]),
        "result": [{"@id": quote(name)} for name in outputs.values()],
        "startTime": run.started.isoformat(timespec="seconds"),
        "endTime": run.ended.isoformat(timespec="seconds"),
        "actionStatus": "http://schema.org/CompletedActionStatus",
        "agent": link_to(first for first, *_ in map(_author, authors(study.name, study.config["archive"]))),
    }
    yield from machines
    yield {**_file(folder / _CONFIG, _CONFIG), "exampleOfWork": {"@id": "#study"}}
    for parameter, name in outputs.items():
        file_entity = {"@type": "Dataset", "name": "raw records"} if name.endswith("/") else _file(folder / name, name)
        yield {"@id": quote(name), **file_entity, "exampleOfWork": {"@id": f"#{parameter}"}}


def _machines(run: MeasuredRun) -> Iterator[Entity]:
    """Yield an entity for each hardware, with the recorded properties of its machines."""
    hardware_of = {cell["cell"]: cell["hardware"] for cell in run.cells}
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in run.environments.to_pylist():
        rows.setdefault(hardware_of[row["cell"]], []).append(row)
    for hardware, found in rows.items():
        nodes = len({row["node"] for row in found})
        models = sorted({row[kind] for row in found for kind in ("cpu_model", "gpu_model")} - {""})
        libraries = sorted({row["mpi_library"] for row in found} - {""})
        value = "; ".join([f"{nodes} node{'s' if nodes > 1 else ''}", *models, *libraries])
        yield {"@id": f"#hardware-{slug(hardware)}", "@type": "PropertyValue", "name": hardware, "value": value}


def _file(file: Path, name: str) -> Entity:
    """Return the entity of a file. The checksum file has no size and no checksum, as it cannot contain its own."""
    kind = _FORMATS.get(file.suffix, "text/plain")
    entity: Entity = {"@id": quote(name), "@type": "File", "name": name, "encodingFormat": kind}
    if name == CHECKSUMS:
        return entity
    return {**entity, "contentSize": str(file.stat().st_size), "sha256": sha256(file)}


def _descriptions(study: str) -> dict[str, str]:
    """Return descriptions, for people, of the most important files: path -> description."""
    results = f"results/{study}"
    return {
        _CONFIG: "The study: what was measured, and how",
        "requirements.lock": "Versions of everything that was installed",
        "archive.json": "The cells of the study and where their records are",
        CHECKSUMS: "SHA-256 of every other file: sha256sum --check checksums.sha256",
        f"{results}/raw/": "What was measured: a folder for each cell, a table for each kind of record",
        f"{results}/report.html": "The report: where training stops getting faster, and why",
        f"{results}/conclusions.json": "The conclusions as data",
        f"{results}/conclusions.md": "The conclusions on one page",
        f"{results}/tables/environments.parquet": "Machine and software that each rank of each job really used",
        f"{results}/tables/slurm_jobs.parquet": "What each Slurm job asked for and was given",
        f"{results}/accounting.parquet": "Slurm's accounts of the jobs",
    }


_ENTRY_TIME = (1980, 1, 1, 0, 0, 0)
"""Timestamp of every entry: the earliest that a zip can hold."""
_FILE_MODE = 0o100644 << 16
_FOLDER_MODE = 0o040755 << 16 | 0x10
_UNIX_SYSTEM = 3


def files_in(folder: Path) -> list[str]:
    """Return every file below `folder`, by relative path, sorted."""
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def write_checksums(folder: Path) -> None:
    """Write the file of checksums, which lists all other files for ``sha256sum --check``."""
    files = [file for file in files_in(folder) if file != CHECKSUMS]
    lines = [f"{sha256(folder / file)}  {file}\n" for file in files]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def pack(folder: Path, target: Path, folders: Iterable[str] = ()) -> None:
    """Write the zip `target` atomically: every file of `folder`, and a directory entry for each of `folders`."""
    with atomic(target) as scratch, zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as file:
        for name in sorted(folders):
            entry = zipfile.ZipInfo(name, _ENTRY_TIME)
            entry.create_system, entry.external_attr = _UNIX_SYSTEM, _FOLDER_MODE
            file.writestr(entry, b"")
        for name in files_in(folder):
            entry = zipfile.ZipInfo(name, _ENTRY_TIME)
            entry.create_system, entry.external_attr = _UNIX_SYSTEM, _FILE_MODE
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.file_size = (folder / name).stat().st_size
            with (folder / name).open("rb") as content, file.open(entry, "w") as packed:
                while block := content.read(1 << 20):
                    packed.write(block)
