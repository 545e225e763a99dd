"""The same rates get the same verdict, count and prediction, whichever way they come."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nightly import examples
from synthetic import NETWORK, Truth, study

from stallpoint.base.curve import Curve, rates_from
from stallpoint.base.stall import Verdict
from stallpoint.base.statistics import estimate
from stallpoint.cli import main
from stallpoint.models.fitting import fit
from stallpoint_files.answering import explain_files
from stallpoint_files.external_tables import external_answers
from stallpoint_files.file_options import Options
from stallpoint_files.proposal_page import Training, curves

PLANTED = {
    "a step, then gains": ({4: 40, 8: 80, 16: 81, 32: 160, 64: 318}, 8, ("scales", 64), 0),
    "a dip": ({1: 100, 2: 95, 4: 180, 8: 350}, None, ("scales", 8), 1),
    "one count beyond a node": ({1: 100, 2: 190, 3: 272, 4: 352, 8: 252}, 4, ("undecided", 4), 1),
    "a stall": ({1: 100, 2: 190, 4: 195, 8: 196}, 8, ("stalls", 2), 1),
}


def table(rates: dict[int, float], per_node: int | None) -> str:
    rows = (f"{count},{per_node or ''},{rate:.6g}" for count, rate in rates.items())
    return "\n".join(["workers,workers_per_node,samples_per_second", *rows]) + "\n"


@pytest.mark.parametrize("name", PLANTED)
def test_planted_curves_are_judged_right_and_bad_news_has_its_exit_status(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates, per_node, (verdict, count), status = PLANTED[name]
    file = tmp_path / "rates.csv"
    file.write_text(table(rates, per_node))
    assert main(["explain", str(file), "--rates", "all"]) == status
    (answer,) = explain_files([str(file)], Options(of="all")).answers
    assert (answer.verdict, answer.value) == (verdict, count)
    assert ("sure" in answer.evidence and "not sure" not in answer.evidence) == (verdict != "undecided")
    assert ("slower than" in capsys.readouterr().out.split(";")[0]) == (name in ("a dip", "one count beyond a node"))


@examples(8, 500)
@given(st.lists(st.floats(0.5, 2.2), min_size=1, max_size=4), st.sampled_from([None, 1, 4, 8]), st.sampled_from([1, 4]))
def test_a_file_an_external_table_and_a_proposal_say_the_same(
    gains: list[float], per_node: int | None, first: int
) -> None:
    rates = {first * 2**power: 100 * float(np.prod(gains[:power])) for power in range(len(gains) + 1)}
    with TemporaryDirectory() as folder:
        file = Path(folder, "rates.csv")
        file.write_text(table(rates, per_node))
        options = Options(of="all")
        (alone,) = explain_files([str(file)], options).answers
        (external,) = external_answers("elsewhere", file, options)
        (proposed,) = curves([str(file)], options, Training())
    said: list[tuple[Any, ...]] = [(one.verdict, one.value, one.points) for one in (alone, external)]
    assert said[0] == said[1]
    assert proposed.verdict[0] == alone.verdict
    assert proposed.verdict[1] == alone.value
    predicted = [point["predicted"] for point in alone.points if "predicted" in point]
    assert [at.rate.value for at in proposed.rates if at.basis == "predicted"] == predicted


def test_a_study_and_a_table_of_its_visits_say_the_same() -> None:
    tidy = study(
        Truth(NETWORK, noise=0.01), storages=("local",), prefetches=(0,), syncs=("wfbp",), visits=3, weak=False
    )
    fitted = fit(tidy, nodes=[])
    judged = fitted["stalling"].iloc[0]
    rows = tidy["iterations"].query(
        "sync == 'wfbp' and ~warmup" if "warmup" in tidy["iterations"] else "sync == 'wfbp'"
    )
    of_visits = rows.groupby(["ranks", "cell", "repeat", "visit"])["iteration_time"].median().groupby("ranks")
    runs = {int(n): (1 / seconds).tolist() for n, seconds in of_visits}
    curve = Curve(rates_from(runs), 1.0)
    assert (judged["verdict"], judged["verdict_ranks"]) == curve.verdict
    measured = fitted["predictions"].dropna(subset="measured_speedup").set_index("ranks")
    for count in curve.counts[1:]:
        _, low, high = estimate(curve.speedup(count))
        assert low < measured.loc[count, "measured_speedup_high"]
        assert high > measured.loc[count, "measured_speedup_low"]
    assert curve.verdict[0] in (Verdict.SCALES, Verdict.STALLS)
