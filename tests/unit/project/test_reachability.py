"""The studies that come along can test their papers: every exhibit and claim, but for those that wait."""

from pathlib import Path

import pytest
from nightly import first_by_day
from reachability import unreachable

from stallpoint.questions.claims.claim_files import read_claims

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/papers.md").read_text()


TIME_TO_ACCURACY = ("goyal-2017", "shallue-2019", "mccandlish-2018", "fernandez-2025")


@pytest.mark.parametrize(
    ("study", "paper", "files"),
    first_by_day(
        [
            ("dlbs", "", ("serebryakov-2017",)),
            ("shi-2018", "shi-2018", ("shi-2018",)),
            ("time-to-accuracy", "", TIME_TO_ACCURACY),
            ("keuper-2016", "keuper-2016", ("keuper-2016",)),
            ("guide", "guide", ("survey",)),
        ]
    ),
)
def test_a_study_gives_all_exhibits_and_claims(study: str, paper: str, files: tuple[str, ...]) -> None:
    for claims in files:
        found = unreachable(study, paper, claims)
        assert not found.exhibits, found.exhibits
        of_file = read_claims([ROOT / f"resources/claims/{claims}.yaml"])
        assert set(found.claims) == {claim.id for claim in of_file if claim.missing}, found.claims
        assert all(f"`{name}`" in PAGE for name in (*found.exhibits, *found.claims)), "waivers stand on the page"
