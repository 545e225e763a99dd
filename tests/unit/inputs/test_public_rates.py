"""What others published of their training, judged from their numbers alone."""

from pathlib import Path

from stallpoint.claims.judge import judge
from stallpoint.claims.quantity import Evidence
from stallpoint.claims.reading import read_claims
from stallpoint.claims.verdict import HOLDS
from stallpoint.models.scaling.tables import extrapolated
from stallpoint.rates import read_rates

PUBLIC = Path(__file__).parents[3] / "resources/public"


def test_every_claim_about_published_rates_holds_on_them() -> None:
    tables = extrapolated({"public": read_rates(PUBLIC / "rates.csv")})
    judged = judge(read_claims([PUBLIC / "claims.yaml"]), Evidence(tables))
    assert {claim["id"]: claim["verdict"] for claim in judged} == {claim["id"]: HOLDS for claim in judged}
    assert len(judged) == 6
