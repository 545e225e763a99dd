"""Batch scripts in the forms that people publish, each with its mistakes (`data/batch_scripts.yaml`)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import yaml


class Script(NamedTuple):
    form: str
    asked: str
    body: str
    mistakes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "#!/bin/bash\n" + "".join(f"#SBATCH --{one}\n" for one in self.asked.split()) + self.body


SCRIPTS = tuple(
    Script(
        form["form"],
        one["asked"],
        one["body"] if "body" in one else form["body"] % tuple(one.get("with", ())),
        tuple(one.get("mistakes", ())),
    )
    for form in yaml.safe_load((Path(__file__).parent / "data/batch_scripts.yaml").read_text(encoding="utf-8"))
    for one in form["scripts"]
)
