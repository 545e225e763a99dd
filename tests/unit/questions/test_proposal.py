"""A proposal for compute time: what its table and paragraph say, of tables of rates and of a study."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import NETWORK, Truth, study

from stallpoint.base.statistics import Estimate
from stallpoint.cli import main
from stallpoint.models.fitting import fit
from stallpoint.questions.proposal import HEAD, ScalingRates, paragraph, proposed_curves, requested_rate, rows
from stallpoint.questions.study_tables import StudyTables
from stallpoint_files.file_options import Options
from stallpoint_files.proposal_page import Training, curves, to_html

TABLE = "nodes,gpus,img/s\n" + "".join(
    f"{n},{4 * n},{rate * factor}\n"
    for n, rate in {1: 100, 2: 190, 4: 350, 8: 380}.items()
    for factor in (0.99, 1.0, 1.01)
)
TRAINING = Training(1e6, watts=500.0, price=2.0)


@pytest.fixture
def curve(tmp_path: Path) -> ScalingRates:
    path = tmp_path / "rates.csv"
    path.write_text(TABLE)
    (found,) = curves([str(path)], Options(scaling="weak"), TRAINING)
    return found


def test_the_table_has_what_the_training_takes_on_each_number_of_nodes(curve: ScalingRates) -> None:
    found = [dict(zip(HEAD, row, strict=True)) for row in rows(curve)]
    assert [row["basis"] for row in found][:4] == ["measured"] * 4
    assert [row["nodes"] for row in found][:4] == ["1", "2", "4", "8"]
    four = curve.rates[2]
    assert four.speedup.value == pytest.approx(3.5)
    assert curve.efficiency(four).value == pytest.approx(3.5 / 4)
    spent = four.spent
    assert [one.value for one in (spent.hours, spent.node_hours, spent.energy, spent.price)] == pytest.approx(
        [1e6 / 350 / 3600, 4e6 / 350 / 3600, 2e6 / 350 / 3600, 8e6 / 350 / 3600]
    )
    assert four.rate.low < 350 < four.rate.high
    assert spent.hours.low < 1e6 / 350 / 3600 < spent.hours.high


def test_the_paragraph_asks_for_the_most_nodes_that_are_efficient_and_tells_measured_from_predicted(
    curve: ScalingRates,
) -> None:
    assert requested_rate(curve).nodes == 4
    text = paragraph(curve)
    assert text.startswith("Weak scaling of ")
    assert "We ask for 4 nodes (16 workers), where efficiency is 87.5 %" in re.sub(r" \([0-9.]+–[0-9.]+\)", "", text)
    assert "node-hours" in text
    assert "kWh" in text
    assert ("predicted; this" in text or "are predicted" in text) == any(at.basis == "predicted" for at in curve.rates)


def test_a_stall_ends_what_is_asked_for_whatever_is_efficient_there(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("nodes,gpus,img/s\n1,4,100\n2,8,190\n4,16,196\n8,32,200\n")
    (found,) = curves([str(path)], Options(scaling="weak"), Training(1e6))
    found = replace(found, min_efficiency=0.1)
    assert found.verdict == ("stalls", 8)
    assert requested_rate(found).workers == 8
    assert "It stops getting faster at 8 workers. " in paragraph(found)


def test_estimates_are_written_with_their_intervals() -> None:
    assert str(Estimate(1.5)) == "1.5"
    assert str(Estimate(386.2, 380.1, 391.4)) == "386 (380–391)"


def test_the_program_writes_a_page_that_loads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rates.csv").write_text(TABLE)
    main(["explain", "rates.csv", "--proposal", "page.html", "--training", "1e6", "--node-watts", "500"])
    text = Path("page.html").read_text()
    assert "We ask for 4 nodes" in text
    assert '<th scope="col">node-hours</th>' in text
    assert not re.search(r"""<(script|link|img)\b[^>]*\b(src|href)=""", text[text.index("<h1>") :])
    (spec,) = json.loads(re.search(r"Object\.entries\((.*)\)\) \{\n", text).group(1)).values()  # type: ignore[union-attr]
    bases = {row["basis"] for rows in spec["datasets"].values() for row in rows}
    assert {"measured", "ideal"} <= bases


def test_a_study_has_its_fastest_curve_of_each_scaling() -> None:
    tables = study(Truth(NETWORK, noise=0.01), storages=("local",), prefetches=(0,))
    (hardware,) = tables["iterations"]["hardware"].unique()
    fitted = fit(tables, nodes=[8], rated={hardware: {"power": 500.0, "price": 2.0}}, epoch_samples=1_000_000)
    predictions = fitted["predictions"]
    found = list(proposed_curves(StudyTables(fitted), 3e6, 3.0, 0.5))
    assert [curve.scaling for curve in found] == ["strong", "weak"]
    for curve in found:
        assert [at.basis for at in curve.rates] == ["measured"] * 3 + ["predicted"]
        same = predictions[(predictions["scaling"] == curve.scaling) & (predictions["nodes"] == 4)]
        fastest = (same["global_batch"] / same["measured_iteration"]).max()
        assert curve.rates[2].rate.value == pytest.approx(fastest)
        assert curve.rates[2].spent.energy.value == pytest.approx(3 * 4 * 0.5e6 / fastest / 3600)
        assert curve.rates[2].spent.price.value == pytest.approx(3 * 2 * 4 * 1e6 / fastest / 3600)
        assert "8 nodes" in paragraph(curve)
        assert "kWh (by node_watts)" in re.sub(r" \([0-9.]+–[0-9.]+\)", "", paragraph(curve))
    assert to_html(found).count("We ask for") == 2
