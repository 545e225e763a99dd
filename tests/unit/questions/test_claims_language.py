from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from stallpoint.errors import InputError
from stallpoint.questions.claims.claim_files import PAPERS_FILES, claim_files, own_claims, read_claims
from stallpoint.questions.claims.language import Claim
from stallpoint.records.tables import SERIES
from stallpoint.report.charts import CHARTS
from stallpoint.study.configuration import PAPERS

SHIPPED = Path(__file__).parents[3] / "resources/claims"
QUANTITY: dict[str, Any] = {
    "table": "stalling",
    "column": "stall_ranks",
    "where": {"scaling": "strong"},
    "for_each": ["network", "hardware"],
}
ENTRY: dict[str, Any] = {
    "id": "stalls-early",
    "sentence": "It stalls early.",
    "quantity": QUANTITY,
    "condition": {"below": 4},
    "chart": "speedup",
}


def own(quantity: Mapping[str, Any] | None = None, **changes: Any) -> Claim:
    """The example as a claim of a study, with some entries changed; None takes an entry away."""
    entry = {**ENTRY, "quantity": {**QUANTITY, **(quantity or {})}, **changes}
    (claim,) = own_claims([{key: value for key, value in entry.items() if value is not None}], CHARTS)
    return claim


def test_every_shipped_file_is_valid_and_ids_are_unique() -> None:
    claims = read_claims(claim_files([PAPERS], [str(SHIPPED / name) for name in PAPERS_FILES]), charts=CHARTS)
    by_paper = {paper: [claim for claim in claims if claim.paper == paper] for paper in {c.paper for c in claims}}
    assert len(by_paper) == len(PAPERS_FILES)
    assert min(len(by_paper["Keuper & Pfreundt (2016)"]), len(by_paper["Shi et al. (2018)"])) >= 20
    for claim in claims:
        assert claim.sentence.endswith("."), claim.id
        assert claim.source != "this study", claim.id
    assert {claim.id for claim in claims if claim.quantity and claim.quantifier == "any"} == {
        "shared-storage-lets-compute-idle", "hiding-improves-scaling", "large-effective-batches-converge-worse",
        "large-mini-batches-scale",
    }, "claims about what can be"  # fmt: skip


def test_a_claim_of_a_study_is_a_few_lines() -> None:
    claim = own()
    assert (claim.paper, claim.source) == ("this study", "this study")
    assert claim.quantity is not None
    assert claim.condition is not None
    assert claim.quantity.name == "stall_ranks (stalling) where scaling strong"
    assert claim.condition.text == "below 4"


def documented() -> list[Any]:
    """The entries of the example in docs/claims.md."""
    page = (SHIPPED.parents[1] / "docs/claims.md").read_text(encoding="utf-8")
    entries: list[Any] = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])["claims"]
    return entries


def test_the_example_of_the_documentation_is_valid_and_its_mistake_is_refused_as_it_says() -> None:
    entries = documented()
    assert [entry for entry in entries if isinstance(entry, str)] == [PAPERS]
    (claim,) = own_claims(entries)
    assert claim.condition is not None
    assert claim.condition.text == "below 5 %"
    entries[1]["quantity"]["where"]["layertype"] = entries[1]["quantity"]["where"].pop("layer_type")
    with pytest.raises(InputError) as refused:
        own_claims(entries)
    message = str(refused.value).split(";")[0]
    assert message in (SHIPPED.parents[1] / "docs/claims.md").read_text(encoding="utf-8")


def test_curve_stands_for_what_is_fixed_along_a_scaling_curve() -> None:
    quantity = own({"table": "critical_path", "column": "share", "for_each": ["curve", "basis"]}).quantity
    assert quantity is not None
    assert quantity.for_each == (*(column.name for column in SERIES), "basis")


def test_the_other_side_is_the_same_selection_but_for_what_it_says() -> None:
    where = {"scaling": "strong", "network": "alexnet"}
    quantity = own({"where": where, "for_each": "hardware", "over": {"where": {"network": "googlenet"}}}).quantity
    assert quantity is not None
    assert quantity.other is not None
    assert quantity.other.where == {"scaling": "strong", "network": "googlenet"}
    assert (quantity.other.table, quantity.other.column) == ("stalling", "stall_ranks")
    assert (
        quantity.name
        == "stall_ranks (stalling) where scaling strong, network alexnet over that where network googlenet"
    )


def test_another_table_has_conditions_of_its_own() -> None:
    quantity = own({"for_each": "network", "over": {"table": "network_layers", "column": "parameters"}}).quantity
    assert quantity is not None
    assert quantity.other is not None
    assert quantity.other.where == {}


@pytest.mark.parametrize(
    ("condition", "text", "ends", "belong"),
    [
        ({"above": 1}, "above 1", (1, float("inf")), (False, True)),
        ({"at_least": 1}, "at least 1", (1, float("inf")), (True, True)),
        ({"below": 0.05}, "below 0.05", (-float("inf"), 0.05), (True, False)),
        ({"at_most": 16}, "at most 16", (-float("inf"), 16), (True, True)),
        ({"between": [4, 8]}, "between 4 and 8", (4, 8), (True, True)),
        ({"near": 50, "within": "10 %"}, "within 10 % of 50", (45, 55), (True, True)),
        ({"near": -50, "within": "10%"}, "within 10% of -50", (-55, -45), (True, True)),
    ],
)
def test_conditions(condition: dict[str, Any], text: str, ends: tuple[float, float], belong: tuple[bool, bool]) -> None:
    found = own(condition=condition).condition
    assert found is not None
    assert found.text == text
    assert (found.low, found.high) == pytest.approx(ends)
    assert (found.low_belongs, found.high_belongs) == belong


def test_a_condition_on_a_share_is_said_in_percent() -> None:
    claim = own({"table": "data_share", "column": "share", "percent": True}, condition={"at_most": 0.05})
    assert claim.condition is not None
    assert claim.condition.text == "at most 5 %"


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"table": "staling"}, {}, "[0] (stalls-early).quantity.table: unknown table 'staling', did you mean 'stalling'?"),
    ({"column": "stal_nodes"}, {}, "column: unknown number in stalling 'stal_nodes', did you mean 'stall_ranks'?"),
    ({"column": "network"}, {}, ".quantity.column: unknown number in stalling 'network'"),
    ({"where": {"scailing": "weak"}}, {}, "where: unknown column of stalling 'scailing', did you mean 'scaling'?"),
    ({"where": {"hardware.devise": "cpu"}}, {}, "did you mean 'hardware.device'?"),
    ({"where": {"batch": "big"}}, {}, ".quantity.where.batch: 'big' should be a number"),
    ({"where": {"batch": {"over": 3}}}, {}, ".quantity.where.batch: unknown comparison 'over', did you mean 'above'?"),
    ({"where": {"network": {"above": 3}}}, {}, ".where.network.above: compares numbers, not network with 3"),
    ({"where": {"batch": {"like": "8*"}}}, {}, ".where.batch.like: compares names, not batch with '8*'"),
    ({"where": {"network": {"like": 5}}}, {}, ".where.network.like: compares names, not network with 5"),
    ({"where": {"network": 5}}, {}, ".where.network: 5 should be a name"),
    ({"where": {"network": True}}, {}, ".where.network: True should be a name"),
    ({"where": {"network": "largest"}}, {}, ".where.network: 'largest' should be a name"),
    ({"where": {"batch": {}}}, {}, ".where.batch: needs a comparison"),
    ({"where": {"network": []}}, {}, ".where.network: an empty list; name a value at least"),
    ({"where": {"network": {"like": []}}}, {}, ".where.network: an empty list; name a value at least"),
    ({"where": {"batch": {"not": []}}}, {}, ".where.batch: an empty list; name a value at least"),
    ({"over": {"where": {}}}, {}, ".quantity.over: is the same selection; needs another table, column or where"),
    ({"for_each": ["netwerk"]}, {}, ".for_each: unknown column of stalling 'netwerk', did you mean 'network'?"),
    ({"for_each": []}, {}, ".for_each: an empty list; name a column at least, or all for one number of all rows"),
    ({"censored_at": "largest"}, {}, ".censored_at: unknown number in stalling 'largest'"),
    ({"agregate": "max"}, {}, "claims[0].quantity: unknown key 'agregate', did you mean 'aggregate'?"),
    ({"aggregate": "mode"}, {}, "claims[0].quantity.aggregate: 'mode' is not one of median, mean"),
    ({"table": "predictions", "column": "error", "aggregate": "max"}, {}, "only the median or mean of its rows"),
    ({"spread": 0.05}, {}, ".quantity.spread: stall_ranks has an interval of its own, or is exact"),
    ({"over": {"column": "best_speedup"}, "minus": {"column": "best_speedup"}}, {}, "over and minus exclude"),
    ({"over": {"where": {"network": "vgg16"}}}, {}, ".over.where.network: cannot differ, for_each keeps it the same"),
    ({"over": {"where": {"hardware.device": "cpu"}}}, {}, ".over.where.hardware.device: cannot differ"),
    ({"over": {"table": "network_layers", "column": "parameters"}}, {}, "unknown column of network_layers 'hardware'"),
    ({}, {"condition": {}}, ".condition: needs one of above, at_least, below, at_most, between, or near with within"),
    ({}, {"condition": {"above": 1, "below": 2}}, "it has above, below"),
    ({}, {"condition": {"near": 4}}, "or near with within; it has near"),
    ({}, {"condition": {"below": 4, "within": "5 %"}}, "needs one of"),
    ({}, {"condition": {"between": [8, 4]}}, ".condition.between: 8 is not less than 4"),
    ({}, {"condition": {"below": "few"}}, "claims[0].condition.below: 'few' should be of type number"),
    ({}, {"condition": None}, "claims[0] (stalls-early): needs quantity and condition, or missing"),
    ({}, {"missing": "time"}, "needs quantity and condition, or missing"),
    ({}, {"chart": "sped"}, ".chart: unknown chart 'sped', did you mean 'speedup'?"),
    ({}, {"chart": None}, "(stalls-early): missing chart, the one that shows the quantity; known: "),
    ({}, {"sentence": None}, "claims[0]: missing sentence"),
]  # fmt: skip


@pytest.mark.parametrize(("quantity", "changes", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_what_is_wrong_is_refused_by_name(quantity: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        own(quantity, **changes)
    assert message in str(refused.value)


def test_the_message_names_the_entry_of_the_study() -> None:
    with pytest.raises(InputError, match=r"^claims\[2\] \(stalls-early\)\.chart: unknown chart"):
        own_claims([PAPERS, "other.yaml", {**ENTRY, "chart": "none"}], CHARTS)


def test_the_message_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for content, message in {
        yaml.safe_dump({"paper": "We", "claims": [{**ENTRY, "chart": "none"}]}): "claims\\[0\\] \\(stalls-early\\)",
        "paper: [": "no YAML",
        "just text": "should be of type object",
        "paper: We\nclaims: []": "claims: \\[\\]",
    }.items():
        path.write_text(content)
        with pytest.raises(InputError, match=f"^{path}.*{message}"):
            read_claims([path], charts=CHARTS)
    with pytest.raises(InputError, match="No such file"):
        read_claims([tmp_path / "absent.yaml"])


def test_an_id_stands_for_one_claim(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"paper": "We", "claims": [ENTRY]}))
    assert [claim.id for claim in read_claims([path])] == ["stalls-early"]
    with pytest.raises(InputError, match=r"this study: claim stalls-early: .*mine\.yaml has a claim of that id"):
        read_claims([path], [ENTRY])


def test_papers_stands_for_all_files_of_the_papers() -> None:
    assert claim_files(["mine.yaml", PAPERS, ENTRY], PAPERS_FILES) == ["mine.yaml", *PAPERS_FILES]
    assert sorted(PAPERS_FILES) == sorted(path.name for path in SHIPPED.iterdir())
