"""The studies that come along can test their papers: every exhibit and claim, but for those that wait."""

from pathlib import Path

import pytest
from reachability import unreachable

from stallpoint.claims.reading import read_claims
from stallpoint.papers import PAPERS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/papers.md").read_text()


@pytest.mark.parametrize(
    ("study", "paper", "claims"),
    [
        ("keuper-2016", "keuper-2016", "keuper-2016"),
        ("shi-2018", "shi-2018", "shi-2018"),
        ("dlbs", "", "serebryakov-2017"),
        ("guide", "", "survey"),
        ("time-to-accuracy", "", "goyal-2017"),
        ("time-to-accuracy", "", "shallue-2019"),
        ("time-to-accuracy", "", "mccandlish-2018"),
        ("time-to-accuracy", "", "fernandez-2025"),
    ],
)
def test_a_study_gives_all_exhibits_and_claims_but_those_that_wait(study: str, paper: str, claims: str) -> None:
    found = unreachable(study, paper, claims)
    waiting = {exhibit.name for exhibit in PAPERS[paper].exhibits if not exhibit.maker} if paper else set()
    assert set(found.exhibits) == waiting, found.exhibits
    of_file = read_claims([ROOT / f"resources/claims/{claims}.yaml"])
    assert set(found.claims) == {claim.id for claim in of_file if claim.missing}, found.claims
    assert all(f"`{name}`" in PAGE for name in (*found.exhibits, *found.claims)), "waivers stand on the page"
