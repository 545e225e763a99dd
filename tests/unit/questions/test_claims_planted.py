"""Every claim of the papers on tables planted for each verdict: a new claim is tested as soon as it is written."""

from pathlib import Path

import pytest
from claim_tables import another, conditions, is_exact, one_side, planted, targets, together
from test_claims_language import documented

from stallpoint.questions.claims.claim_files import claim_files, read_claims
from stallpoint.questions.claims.judge import FAILS, HOLDS, UNCLEAR, UNTESTED, judge
from stallpoint.questions.claims.language import Claim, where_in_words
from stallpoint.questions.claims.quantity import Evidence
from stallpoint.study.configuration import PAPERS

SHIPPED = sorted(map(str, (Path(__file__).parents[3] / "resources/claims").glob("*.yaml")))
CLAIMS = [claim for claim in read_claims(claim_files([PAPERS], SHIPPED), documented()) if claim.quantity]
NAMES = [claim.id for claim in CLAIMS]
EXACT = {claim.id for claim in CLAIMS if claim.quantity and is_exact(claim.quantity)}
PLANTED = [
    (claim, wanted)
    for claim in CLAIMS
    for wanted in (HOLDS, FAILS, UNCLEAR)
    if wanted != UNCLEAR or claim.id not in EXACT
]
SEVERAL = [claim for claim in CLAIMS if claim.quantity and another(claim.quantity)]
CONDITIONS = [(claim, one) for claim in CLAIMS if claim.quantity for one in conditions(claim.quantity)]


def verdict(claim: Claim, tables: Evidence) -> str:
    (judged,) = judge([claim], tables)
    return str(judged.verdict)


@pytest.mark.parametrize(("claim", "wanted"), PLANTED, ids=[f"{claim.id}: {wanted}" for claim, wanted in PLANTED])
def test_a_claim_has_the_verdict_that_was_planted(claim: Claim, wanted: str) -> None:
    assert claim.condition is not None
    for target in targets(claim.condition, wanted):
        assert verdict(claim, planted(claim, target)) == wanted, target


@pytest.mark.parametrize("claim", SEVERAL, ids=[claim.id for claim in SEVERAL])
def test_one_combination_refutes_a_claim_about_all_and_proves_one_about_any(claim: Claim) -> None:
    assert claim.condition is not None
    assert claim.quantity is not None
    (true, *_), (false, *_) = (targets(claim.condition, wanted) for wanted in (HOLDS, FAILS))
    tables = together(planted(claim, true), planted(claim, false, labels=another(claim.quantity)))
    assert verdict(claim, tables) == {"all": FAILS, "any": HOLDS}[claim.quantifier]


def test_claims_about_what_can_be_are_about_any() -> None:
    assert {claim.id for claim in CLAIMS if claim.quantifier == "any"} == {
        "shared-storage-lets-compute-idle", "hiding-improves-scaling", "large-effective-batches-converge-worse",
        "large-mini-batches-scale",
    }  # fmt: skip


def test_whole_numbers_alone_are_never_not_distinguishable() -> None:
    assert {
        "data-traffic-negligible-beside-gradients", "alexnet-has-250-mb", "googlenet-has-50-mb",
        "alexnet-is-mostly-fully-connected",
    } == EXACT  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "condition"), CONDITIONS, ids=[f"{claim.id}: {where_in_words(dict([one]))}" for claim, one in CONDITIONS]
)
def test_a_claim_is_not_tested_where_a_condition_is_not_met(claim: Claim, condition: tuple[str, object]) -> None:
    assert claim.condition is not None
    for target in targets(claim.condition, HOLDS):
        assert verdict(claim, planted(claim, target, failing=condition)) == UNTESTED


@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_a_claim_is_not_tested_without_the_other_side_of_its_quantity(claim: Claim) -> None:
    assert claim.condition is not None
    assert claim.quantity is not None
    if claim.quantity.other and claim.quantity.other.where != claim.quantity.selection.where:
        assert verdict(claim, one_side(claim, targets(claim.condition, HOLDS)[0])) == UNTESTED


def test_a_claim_about_what_no_table_holds_is_never_tested() -> None:
    untold = [claim for claim in read_claims(claim_files([PAPERS], SHIPPED)) if not claim.quantity]
    assert untold
    assert {verdict(claim, Evidence({})) for claim in untold} == {UNTESTED}
