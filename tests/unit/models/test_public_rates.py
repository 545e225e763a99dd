"""What others published of their training, judged from their numbers alone."""

from pathlib import Path

from stallpoint.models.scaling.extrapolation import extrapolated
from stallpoint.questions.claims.claim_files import read_claims
from stallpoint.questions.claims.judge import HOLDS, judge
from stallpoint.questions.claims.quantity import Evidence
from stallpoint_files.rates.rates import read_rates

PUBLIC = Path(__file__).parents[3] / "resources/public"


def test_every_claim_about_published_rates_holds_on_them() -> None:
    tables = extrapolated({"public": read_rates(PUBLIC / "rates.csv")})
    judged = judge(read_claims([PUBLIC / "claims.yaml"]), Evidence(tables))
    assert {claim.claim.id: claim.verdict for claim in judged} == {claim.claim.id: HOLDS for claim in judged}
    assert len(judged) == 6
