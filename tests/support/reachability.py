"""Which exhibits and claims of a paper a study can give: its cells are made up, fitted, drawn and judged.

What was made up decides no verdict here; a claim is reachable if it gets one, whichever.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd
import synthetic
import yaml
from checkout import ROOT

from stallpoint.models import fitting
from stallpoint.models.iteration.scenarios import scenarios
from stallpoint.networks import find_network
from stallpoint.networks.description import describe
from stallpoint.questions.claims.claim_files import read_claims
from stallpoint.questions.claims.facts import facts
from stallpoint.questions.claims.judge import UNTESTED, judge
from stallpoint.questions.claims.quantity import Evidence
from stallpoint.records.tables import EXTRAPOLATED_TABLES, NETWORK_LAYERS, TABLES
from stallpoint.report.charts import NoData
from stallpoint.study.configuration import load_study
from stallpoint.study.study import Study, expand
from stallpoint_papers.exhibits import PAPERS, Material, Missing
from stallpoint_papers.make import published
from stallpoint_papers.paper_figures import figures

SCHEMA = ROOT / "workflow/schemas/study.schema.yaml"
FEWER = {"warmup": 0, "visits": 1}
ITERATIONS = {"time-to-accuracy": 4}
"""One iteration is enough for a number, not for a narrow interval; algorithms measure whole rounds."""


@dataclass(frozen=True)
class Unreachable:
    """What a study does not give, by name, and why."""

    exhibits: Mapping[str, str]
    claims: Mapping[str, str]


def unreachable(study: str, paper: str, claims: str) -> Unreachable:
    """What this study of `config/studies` does not give of a `paper` in the registry and of the file of `claims`."""
    plan, tables = _fitted(study)
    return Unreachable(_exhibits(paper, tables) if paper else {}, _claims(claims, plan, tables))


@cache
def _fitted(name: str) -> tuple[Study, Mapping[str, pd.DataFrame]]:
    config = load_study(ROOT / f"config/studies/{name}.yaml")
    study = expand(config | FEWER | {"iterations": ITERATIONS.get(name, 1)}, yaml.safe_load(SCHEMA.read_text()))
    networks = {cell.network for cell in study.cells.values() if hasattr(cell, "network")}
    layers = {network: describe(find_network(network)) for network in networks}
    tidy = synthetic.records(study.cells.values(), lambda network: _truth(layers[network]))
    machine = tidy["environments"]["cell"].map({path: cell.hardware for path, cell in study.cells.items()})
    tidy["environments"] = tidy["environments"].assign(cpu_model=machine, gpu_model=machine)
    work = {network: sum(row["multiply_adds"] for row in rows) for network, rows in layers.items()}
    fitted = fitting.fit(
        tidy, multiply_adds=work, rated=study.rated, failures=study.failures, **study.config["models"],
        shared_links=study.shared_links, scenarios=scenarios(study.config["what_if"]),
        known_presets=study.config["presets"], available=study.available,
    )  # fmt: skip
    described = pd.DataFrame([row for rows in layers.values() for row in rows])
    nothing = {table.name: pd.DataFrame(columns=table.names) for table in EXTRAPOLATED_TABLES}
    # A chain: model tables that neither exhibit nor claim reads are not computed.
    return study, ChainMap({NETWORK_LAYERS.name: described}, fitted, tidy, nothing)


def _truth(layers: list[dict[str, Any]]) -> synthetic.Truth:
    """A network with one layer of each type that the real one has, which has the gradients of all of them."""
    types = dict.fromkeys(row["layer_type"] for row in layers)
    sizes = {kind: sum(row["gradient_bytes"] for row in layers if row["layer_type"] == kind) for kind in types}
    return synthetic.Truth(tuple(synthetic.Layer(kind, kind, 1e-3, 0.2e-3, sizes[kind]) for kind in types))


def _exhibits(paper: str, tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    numbers = published(ROOT / "resources/published" / file for file in PAPERS[paper].files)
    theirs = {"paper_figures": pd.DataFrame(figures(numbers["keuper-2016"]))} if "keuper-2016" in numbers else {}
    found = {}
    for exhibit in PAPERS[paper].exhibits:
        try:
            made = exhibit.make(Material(ChainMap(theirs, tables), numbers).renamed(PAPERS[paper].networks))
        except (Missing, NoData) as reason:
            found[exhibit.name] = str(reason)
        else:
            if made.missing:
                found[exhibit.name] = "; ".join(made.missing)
    return found


def _claims(name: str, study: Study, tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    empty = {one: pd.DataFrame(columns=table.names) for one, table in TABLES.items()}
    judged = judge(
        read_claims([ROOT / f"resources/claims/{name}.yaml"], []),
        Evidence(ChainMap(tables, empty), facts(tables["runs"], study.shared_links)),
    )
    return {
        claim.claim.id: "; ".join(sorted({entry.number.missing for entry in claim.combinations}))
        for claim in judged
        if all(entry.verdict == UNTESTED for entry in claim.combinations)
    }
