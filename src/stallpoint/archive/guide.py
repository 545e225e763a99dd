"""The README.md of an archive: what is in it and what can be done with it."""

from __future__ import annotations

from pathlib import Path
from string import Template

_TEXT = Template(
    """# $title

What the study `$study` measured, what follows from it, and the workflow that draws it again from the records. Made by
`snakemake archive` of stallpoint $version.

| where | what |
| --- | --- |
| `results/$study/report.html` | the report: open it in a browser |
| `results/$study/conclusions.md`, `details.md`, `conclusions.json` | conclusions: on one page, all of them, as data |
| `results/$study/systems.csv`, `slides/` | a row for each answer and the system it is about; the answers as slides |
| `results/$study/raw/` | the records as measured: a folder for each cell, Parquet with units in the metadata |
| `results/$study/tables/`, `models/`, `figures/` | the records of all cells together, fitted models, figures |
| `results/$study/tables/environments.parquet` | machine and software of each rank |
| `results/$study/tables/slurm_jobs.parquet`, `results/$study/accounting.parquet` | Slurm's jobs, if there were any |
| `config/config.yaml` | the study |
| `requirements.lock` | versions of what was installed |
| `archive.json` | the cells, and where their records are |
| `ro-crate-metadata.json` | all of this for programs (RO-Crate, Workflow Run Crate) |

Check that it is whole: `sha256sum --check --quiet checksums.sha256`

Draw everything again from the records, measuring nothing (Python 3.11 or newer):

```
make setup
.venv/bin/snakemake --forceall
```

Put it beside results of another cluster: name this zip under `archives` in a study of stallpoint.

Results: licence $licence. The workflow: see `LICENSE`. To cite: `CITATION.cff`. $names
"""
)
LEFT_OUT = "Names of users and nodes and absolute paths were left out."
KEPT = "Names of users and nodes are those of the machines."


def write_guide(folder: Path, **facts: str) -> None:
    """Write ``README.md`` to `folder`; `facts` are title, study, version, licence and names."""
    (folder / "README.md").write_text(_TEXT.substitute(facts), encoding="utf-8")
