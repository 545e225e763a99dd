"""The papers' claims on a made-up study that has the data for every one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import synthetic
from once import Once
from synthetic import NETWORK, Layer, Truth
from test_claims_language import documented

from stallpoint.base.section import Absence, Section
from stallpoint.models import fitting
from stallpoint.models.iteration.scenarios import scenarios
from stallpoint.questions.claims.claim_files import OWN, claim_files, read_claims
from stallpoint.questions.claims.facts import Facts
from stallpoint.questions.claims.judge import HOLDS, UNTESTED, JudgedClaim, judge
from stallpoint.questions.claims.judge import rows as claim_rows
from stallpoint.questions.claims.language import Claim
from stallpoint.questions.claims.quantity import Evidence
from stallpoint.questions.claims_question import combinations, section
from stallpoint.questions.study_tables import StudyTables
from stallpoint.records.tables import CONVERGENCE_RUNS, EXTRAPOLATED_TABLES, INSTRUMENTATION
from stallpoint.report.html import part
from stallpoint.strategies.presets import PRESETS, Preset
from stallpoint.study.configuration import PAPERS

SHIPPED = sorted(map(str, (Path(__file__).parents[3] / "resources/claims").glob("*.yaml")))
DEVICES = {"xeon": "cpu", "k80-v100-4gpu": "cuda", "v100-4gpu": "cuda"}
OTHER = "v100-4gpu"
"""One that only some tables have: there GPUs are compared with each other."""
COMPARED = {"held_out_iteration", "iterations", "copy", "order"}
"""Columns of those tables."""
NETWORKS = ("alexnet", "googlenet", "resnet50")
STORAGES = {"local": ("files", False), "shared": ("raw", True), "shared-files": ("files", True)}
"""Format, and whether reads share the gradients' link."""
NO_TABLE = {"delayed-gradients-speed-up-backward"}
"""Claims that no table can tell."""
COMPRESSED = {"some": Preset(gradient_bits=8), "fewer": Preset(gradient_bits=16), "largest": Preset(top_k=0.01)}
"""Presets of a study's own, whatever it calls them."""
KNOWN = {name: known.preset for name, known in PRESETS.items()} | COMPRESSED
FACTS: Facts = {
    "hardware.device": dict(DEVICES),
    "storage.format": {(name, of): kind for name in DEVICES for of, (kind, _) in STORAGES.items()},
    "storage.shared_link": {(name, of): shared for name in DEVICES for of, (_, shared) in STORAGES.items()},
    **{
        f"sync.{fact}": {name: getattr(preset, fact) for name, preset in KNOWN.items()}
        for fact in ("start", "reduction", "grouping", "gradient_bits", "top_k")
    },
}


STUDY = {"batch": 128, "compute_batches": (128, 64, 32, 16, 8, 4, 1), "larger_batches": (1, 4, 16)}
ONE_OF_EACH = STUDY | {"nodes": (4,), "compute_batches": (32,), "larger_batches": (1,)}
"""One point of each curve, and so nothing with which to compare it."""


def tables(read: set[str], made: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Those that are `read` of the tables of one network, and the same rows again under the names of the others.

    `made` is what the study has.
    """
    layers = (*NETWORK, Layer("norm1", "lrn", 0.1e-3, 0.01e-3), Layer("drop6", "dropout", 0.3e-3, 0.001e-3))
    records = synthetic.study(
        Truth(layers=layers), repeats=1, iterations=3, visits=3, syncs=("naive", "none", "wfbp"), **made,
    )  # fmt: skip
    fitted = fitting.fit(
        records,
        nodes=[64],
        scenarios=scenarios([{"compute_speed": 10}, {"gradient_bytes": 0.25}]),
        rated={hardware: {"link": 1e15} for hardware in records["runs"]["hardware"].unique()},
    )
    described = layers_of(layers)
    renamed = {name: under_all_names(fitted[name]) for name in read & set(fitted)}
    renamed["network_layers"] = under_all_names(described)
    empty = {table.name: pd.DataFrame(columns=table.names) for table in EXTRAPOLATED_TABLES}
    of_records = {table.name: records[table.name] for table in (INSTRUMENTATION, CONVERGENCE_RUNS)}
    # Some runs have no target, and go on to their last step; of Downpour some lose a replica.
    runs = of_records[CONVERGENCE_RUNS.name]
    endless = runs.assign(ended="max steps")
    servers = [runs.assign(sync=sync) for sync in ("downpour", "downpour-with-loss")]
    kinds = [runs, endless, endless.assign(warmup_steps=20), *servers]
    of_records[CONVERGENCE_RUNS.name] = pd.concat(kinds, ignore_index=True)
    return {**renamed, **empty, **of_records}


def layers_of(layers: tuple[Layer, ...]) -> pd.DataFrame:
    rows = [
        {"network": "alexnet", "layer_index": index, "layer": layer.name, "layer_type": layer.type}
        | {"parameters": layer.gradient_bytes // 4, "gradient_bytes": layer.gradient_bytes, "multiply_adds": 0}
        for index, layer in enumerate(layers)
    ]
    return pd.DataFrame(rows)


def under_all_names(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows for every network and hardware, wfbp also as every other preset that overlaps, naive as the others.

    Runs to a target, all of naive, also count as those of wfbp and of algorithms. What was read locally is also read as
    files from a shared storage; nodes with GPUs have four of them.
    """
    if "network" in frame:
        frame = pd.concat([frame.assign(network=name) for name in NETWORKS])
    if "storage" in frame:
        frame = pd.concat([frame, frame[frame["storage"] == "local"].assign(storage="shared-files")])
    if "hardware" in frame:
        names = [name for name in DEVICES if name != OTHER or COMPARED & set(frame)]
        frame = pd.concat([frame.assign(hardware=name) for name in names])
        if "ranks" in frame:
            frame["ranks"] *= [4 if DEVICES[name] == "cuda" else 1 for name in frame["hardware"]]
    if "held_out_iteration" in frame:  # a node of several GPUs, beside one of them
        frame = pd.concat([frame, frame[frame["ranks"] == 8].assign(nodes=1, ranks=4)])
    if "copy" in frame:
        frame = pd.concat([frame, frame.assign(copy="device to device")])
    if "memory" in frame:
        frame = pd.concat([frame, frame[frame["hardware"].map(DEVICES) == "cuda"].assign(memory="device")])
        if "available" in frame:
            frame["available"] = 12e9
    if "reduction" in frame:
        frame = pd.concat([frame, frame.assign(reduction="ring")])
    if "against" in frame:
        pairs = product(("wfbp", "caffe-mpi", "horovod"), ("cntk", "mxnet", "tensorflow", "parameter-server"))
        known = frame[(frame["sync"] == "wfbp") & (frame["against"] == "naive")]
        frame = pd.concat([frame, *(known.assign(sync=sync, against=against) for sync, against in pairs)])
    elif "recipe" in frame:
        trained = ("wfbp", "local-sgd", "parameter-averaging", "asynchronous")
        frame = pd.concat([frame, *(frame.assign(sync=sync) for sync in trained)])
    elif "sync" in frame:
        presets = {
            "wfbp": (
                *("parameter-server", "horovod", "mxnet", "caffe-mpi", "tensorflow", "one-weird-trick"),
                *COMPRESSED,
            ),
            "naive": ("firecaffe", "cntk"),
        }
        more = [frame[frame["sync"] == like].assign(sync=name) for like, names in presets.items() for name in names]
        frame = pd.concat([frame, *more])
    return frame.reset_index(drop=True)


@cache
def every_claim() -> list[Claim]:
    return read_claims(claim_files([PAPERS], SHIPPED), documented())


def judged_claims(made: Mapping[str, Any] = STUDY, claims: Sequence[Claim] = ()) -> list[JudgedClaim]:
    claims = claims or every_claim()
    sides = [side for claim in claims if (of := claim.quantity) for side in (of.selection, of.other) if side]
    return judge(claims, Evidence(tables({"controls", *(side.table for side in sides)}, made), FACTS))


@pytest.fixture(scope="module")
def judged(once: Once) -> dict[str, JudgedClaim]:
    return {claim.claim.id: claim for claim in once(judged_claims)}


def test_every_claim_selects_something(judged: dict[str, JudgedClaim]) -> None:
    untested = {name: combinations(claim)[1] for name, claim in judged.items() if claim.verdict == UNTESTED}
    assert set(untested) == NO_TABLE, untested


def test_verdicts_whose_answer_is_known(judged: dict[str, JudgedClaim]) -> None:
    """The made-up network: wide fully-connected layers with a high floor, convolutions almost in proportion to b."""
    expected = {
        "fully-connected-poor-below-64": "holds",
        "fully-connected-share-grows": "holds",
        "wfbp-hides-communication": "holds",
        "communication-after-backward-is-not-hidden": "not distinguishable",  # 5 % of a few all-reduces
        "wfbp-exposes-less-than-naive": "holds",
        "reading-ahead-hides-io": "holds",
        "dag-error-alexnet": "holds",
        "alexnet-has-250-mb": "does not hold",
        "ring-almost-doubles-the-speed": "does not hold",
        "fully-connected-better-on-gpu": "does not hold",
        "pooling-stays-cheap": "holds",
        "resnet50-uses-a-tenth-of-infiniband": "holds",
    }
    assert {name: judged[name].verdict for name in expected} == expected


COMPARED_WITH_ITSELF = {
    "throughput-per-device-falls": "measured_efficiency compares a cell with itself (ranks 4",
    "large-mini-batches-scale": "measured_efficiency compares a cell with itself (ranks 4",
    "strong-scaling-loses-efficiency": "measured_efficiency compares a cell with itself (ranks 4",
    "weak-scaling-keeps-efficiency": "measured_efficiency compares a cell with itself (ranks 4",
    "weak-scaling-is-easier": "measured_speedup compares a cell with itself (ranks 4",
    "caffe-mpi-scales-best": "measured_speedup compares a cell with itself (ranks 16",
    "node-hours-grow-with-nodes": "needs two different ranks",
    "communication-grows-with-workers": "needs two different ranks",
    "large-batches-cost-accuracy": "needs two different batch",
    "large-effective-batches-converge-worse": "needs two different batch",
    "warm-up-keeps-accuracy": "needs two different batch",
    "stopping-early-is-as-fast": "early_over_batch is not known",
}
"""What claims lack where each curve has one point."""


def relative_claims() -> list[Claim]:
    """Claims about a column of ratios of a cell to another."""
    return [claim for claim in every_claim() if claim.quantity and claim.quantity.selection.relative]


def test_columns_of_ratios_are_known_as_such() -> None:
    named = {name for name, why in COMPARED_WITH_ITSELF.items() if "compares a cell with itself" in why}
    assert {claim.id for claim in relative_claims()} >= named


@pytest.mark.night  # a study for the claims of papers; by day each reason is found on rows (test_claims_quantity.py)
def test_no_claim_is_decided_by_a_cell_beside_itself() -> None:
    relative = relative_claims()
    named = [claim for claim in every_claim() if claim.id in COMPARED_WITH_ITSELF]
    judged = {claim.claim.id: claim for claim in judged_claims(ONE_OF_EACH, [*relative, *named])}
    for name, why in COMPARED_WITH_ITSELF.items():
        assert judged[name].verdict == UNTESTED, name
        assert any(entry.number.missing.startswith(why) for entry in judged[name].combinations), judged[name]
    told = [
        (claim.id, entry.number.labels)
        for claim in relative
        for entry in judged[claim.id].combinations
        if (found := entry.number).value in (0, 1) and found.value == found.low == found.high
    ]
    assert not told


def said(claims: Sequence[JudgedClaim]) -> Section:
    return section(StudyTables({}, claims=claims))


def test_every_claim_that_was_tested_stands_in_the_table_of_its_paper(judged: dict[str, JudgedClaim]) -> None:
    made = said(list(judged.values()))
    tested = [one for one in judged.values() if one.verdict != UNTESTED]
    rows = {row[0]: dict(zip(one.head, row, strict=True)) for one in made.grids for row in one.rows}
    html = part(made).html
    assert sum(len(of.rows) for of in made.grids) == len(tested)
    for one in tested:
        row = next(row for sentence, row in rows.items() if sentence.startswith(one.claim.sentence))
        assert row["chart"] == one.claim.chart
        assert not one.claim.chart or f'<a href="#{one.claim.chart}">' in html
        assert escape(one.claim.sentence) in html


def test_claims_of_papers_and_of_the_study_are_counted_apart(judged: dict[str, JudgedClaim]) -> None:
    claims = list(judged.values())
    papers, this_study, _ = said(claims).findings
    assert (papers.subject, this_study.subject) == ("claims of papers", "claims of this study")
    assert "not tested" not in papers.words + this_study.words
    assert said([one for one in claims if one.claim.paper == OWN and one.verdict != UNTESTED]).findings == (this_study,)
    (one,) = said([next(one for one in claims if one.verdict == HOLDS)]).findings
    assert one.words == "1 holds"


def test_claims_that_were_not_tested_are_one_number_at_the_end(judged: dict[str, JudgedClaim]) -> None:
    untested = [one for one in judged.values() if one.verdict == UNTESTED]
    last = said(list(judged.values())).findings[-1]
    assert (last.subject, last.words.split(";")[0]) == ("not tested", f"{len(untested)} of {len(judged)} claims")
    assert not said(untested).grids
    lacking = {row["claim"] for row in claim_rows(untested) if row["missing"]}
    assert lacking == {one.claim.id for one in untested}, "the file says what each lacks"


def test_text_of_a_claim_cannot_break_the_page(judged: dict[str, JudgedClaim]) -> None:
    one = judged["lrn-negligible"]
    evil = replace(one, claim=replace(one.claim, sentence="a | b <script>", paper="A & B <i>"))
    html = part(said([evil])).html
    assert "<script>" not in html
    assert "<i>" not in html


def test_without_claims_nothing_is_said_of_them() -> None:
    assert said([]).absence == Absence.NONE_FOUND
