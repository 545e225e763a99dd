import json
from collections import ChainMap
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from once import Once
from sample_cells import TRAIN
from synthetic import CRITICAL, Layer, Truth, study

from stallpoint.archive.crate import pack, write_checksums
from stallpoint.errors import InputError
from stallpoint.explain.answering import explain_files
from stallpoint.explain.rate_answers import Options, external_answers
from stallpoint.findings.conclusions.answer_findings import (
    LOSS,
    VERDICT,
    beyond_in_words,
    cause_in_words,
    gain_in_words,
    gained_in_words,
    heading,
    helps_in_words,
    rivals_in_words,
    sentence,
    throughput_in_words,
)
from stallpoint.findings.conclusions.answers import answers, as_chosen, leading
from stallpoint.findings.conclusions.conclude import _probabilities, _slow_nodes, _undecodable, conclude
from stallpoint.findings.conclusions.conclusion_words import (
    next_in_words,
    stall_in_words,
    verdict_in_short,
    verdict_in_words,
)
from stallpoint.findings.conclusions.conclusions_page import page, summary
from stallpoint.findings.conclusions.details import details
from stallpoint.findings.conclusions.external_findings import external_lines
from stallpoint.findings.conclusions.storage_tables import answered, saturation, starving_in_words
from stallpoint.findings.conclusions.trust_findings import equal_presets, trust_lines, undecodable_in_words
from stallpoint.findings.finding import in_json
from stallpoint.models.fitting import fit
from stallpoint.models.iteration.scenarios import scenarios
from stallpoint.strategies.presets import PRESETS


def concluded(records: dict[str, pd.DataFrame], nodes: list[int]) -> dict[str, Any]:
    fitted = fit(records, nodes=nodes, scenarios=scenarios([{"bandwidth": 10}, {"batch": 0.1}]))
    return conclude(ChainMap(fitted, records))  # tables that no conclusion reads are not computed


@pytest.fixture(scope="module")
def conclusions(once: Once) -> dict[str, Any]:
    return once(lambda: concluded(study(), nodes=[1, 2, 4, 8, 16, 32, 64, 128]))


SMALL: dict[str, Any] = {
    "nodes": (1, 2), "storages": ("local",), "syncs": ("wfbp",), "prefetches": (0,), "weak": False, "repeats": 1,
}  # fmt: skip
"""A study with one curve."""


def test_conclusions_are_valid_json(conclusions: dict[str, Any]) -> None:
    assert json.loads(json.dumps(conclusions, allow_nan=False)) == conclusions


def test_every_curve_says_where_it_stalls_and_why(conclusions: dict[str, Any]) -> None:
    strong = [curve for curve in conclusions["curves"] if curve["scaling"] == "strong"]
    assert len(strong) == 8
    for curve in strong:
        assert curve["stall_ranks"] == {"value": 4, "low": 4, "high": 4}
        assert (curve["reached"], curve["basis"]) == (True, "predicted")
        assert [at["ranks"] for at in curve["causes"]] == [2, 4, 8, 16, 32, 64]
        assert [at["basis"] for at in curve["causes"]] == ["measured"] * 2 + ["predicted"] * 4
        causes = [at["leading"][0]["cause"] for at in curve["causes"]]
        expected = ["communication"] * 6 if curve["sync"] == "naive" else ["matrix shapes"] * 3 + ["communication"] * 3
        assert causes == expected


def test_stall_not_reached_is_said_so(conclusions: dict[str, Any]) -> None:
    weak = next(curve for curve in conclusions["curves"] if curve["scaling"] == "weak")
    assert weak["stall_ranks"] is None
    assert "not reached up to n = 128 (beyond 4 predicted, not measured)" in details(conclusions)
    (line,) = (line for line in summary(conclusions) if "weak scaling" in line)
    assert line.startswith("alexnet gains up to 4 nodes. On cpu, weak scaling, ")
    assert "predicted to gain up to 128" in page(conclusions)


def test_staleness_is_told_worker_by_worker(conclusions: dict[str, Any]) -> None:
    _, section = details(conclusions).split("## Staleness")
    for row in conclusions["worker_staleness"]:
        assert row["largest_staleness"] == row["ranks"] - 1
        place = f"| {row['ranks']} | {row['batch']} | {row['worker']} | {row['gradients']} |"
        assert f"| {row['network']} | {row['hardware']} | asynchronous {place}" in section


def test_places_that_may_not_fit_into_memory_are_named(conclusions: dict[str, Any]) -> None:
    first, *others = conclusions["fits"]
    assert {row["fits"] for row in conclusions["fits"]} == {"yes"}
    assert f"All {len(conclusions['fits'])} placements fit." in details(conclusions)
    told = details(conclusions | {"fits": [first | {"fits": "no"}, *others]})
    _, section = told.split(
        f"{len(others)} of {1 + len(others)} placements fit; the others, by the least that each takes:"
    )
    assert section.split("\n\n")[1].count("| no |") == 1


def test_dag_errors_stand_next_to_the_published_ones(conclusions: dict[str, Any]) -> None:
    errors = {error["sync"]: error for error in conclusions["dag_errors"]}
    assert set(errors) == {"all", "naive", "wfbp"}
    assert errors["all"]["published"] == 0.094
    assert errors["all"]["points"] == errors["naive"]["points"] + errors["wfbp"]["points"] == 18
    estimate = errors["all"]["median_error"]
    assert 0 < estimate["low"] <= estimate["value"] <= estimate["high"] < 0.02


def test_storages_are_told_apart_only_by_their_intervals(conclusions: dict[str, Any]) -> None:
    verdicts = {
        (row["nodes"], row["storage"]): row["verdict"]
        for row in conclusions["storages"]
        if (row["order"], row["cache"]) == ("shuffled", "cold")
    }
    assert verdicts[4, "local"] == "fastest"
    assert verdicts[4, "shared"] == "slower"
    assert {verdicts[1, "local"], verdicts[1, "shared"]} == {"fastest", "not distinguishable from the fastest"}


def test_timing_is_judged_by_its_worst_cell() -> None:
    records = study(**SMALL)
    fitted = fit(records, nodes=[])
    fine = conclude(ChainMap(fitted, records))
    assert [entry["warnings"] for entry in fine["instrumentation"]] == [[]]
    assert "warning" not in details(fine).lower()
    for column, value in {"timing_share": 0.02, "forward_closure": 1.03, "backward_closure": 0.97}.items():
        records["instrumentation"].loc[3, column] = value
    (entry,) = (found := conclude(ChainMap(fitted, records)))["instrumentation"]
    assert entry["cells"] == records["instrumentation"]["cell"].nunique()
    assert entry["warnings"] == [
        "timing the layers takes up to 2 % of an iteration",
        "layers add up to 103.0 % of the forward pass",
        "layers add up to 97.0 % of the backward pass",
    ]
    assert f"warning: alexnet on cpu: {'; '.join(entry['warnings'])}" in list(summary(found))
    assert "**Warning: alexnet on cpu: timing" in details(found)


def test_failed_cells_are_listed_with_their_reason(conclusions: dict[str, Any]) -> None:
    assert [failed["reason"] for failed in conclusions["failed"]] == ["out of memory on rank 0"]
    assert "nodes~8" in conclusions["failed"][0]["cell"]
    assert "| out of memory on rank 0 |" in details(conclusions)
    assert list(summary(conclusions))[-1] == "1 cell could not run"


def test_page_marks_predictions_and_gives_intervals(conclusions: dict[str, Any]) -> None:
    text = details(conclusions)
    assert "| strong, B = 64, wfbp, prefetch 2, shared | scales to n = 4, speedup " in text
    assert " on n = 4, over 99 % sure | 4 (4–4), predicted, not measured | matrix shapes |" in text
    row = next(
        line for line in text.splitlines() if line.startswith("| strong, B = 64, naive, prefetch 2, local | comm")
    )
    cells = row.split(" | ")
    assert cells[1].startswith("communication ")
    assert cells[3].startswith("*communication ")
    assert all("(" in cell for cell in cells[1:6])


def test_every_curve_says_how_many_nodes_and_where_the_time_goes(conclusions: dict[str, Any]) -> None:
    text = details(conclusions)
    for curve in conclusions["curves"]:
        assert curve["crossing_ranks"]["low"] <= curve["crossing_ranks"]["value"] <= curve["crossing_ranks"]["high"]
        assert curve["crossing_after"] < curve["crossing_ranks"]["value"] <= 2 * curve["crossing_after"]
        assert curve["cost_efficient_ranks"]["value"] in (2, 4, 32)
        for at in curve["critical_path"]:
            assert sum(part["share"]["value"] for part in at["parts"]) == pytest.approx(1)
    assert "- strong, B = 64, wfbp, prefetch 2, local: n = 8 (predicted): fully-connected layers " in text
    assert ", interpolated from n = 8 on |" in text


def test_what_if_and_what_next_are_said_in_words(conclusions: dict[str, Any]) -> None:
    text = details(conclusions)
    faster = next(
        line
        for line in text.splitlines()
        if line.startswith("| strong, B = 64, naive, prefetch 2, local | bandwidth × 10")
    )
    assert "| × 1." in faster
    assert "its mini-batch is no whole number for every worker" in text
    naive = next(curve for curve in conclusions["curves"] if curve["sync"] == "naive")
    assert naive["next_cell"]["narrows"]
    assert naive["next_cell"]["expected_width"] < naive["next_cell"]["width"]
    assert "training on n = 8 (" in text


def test_what_was_planned_stands_beside_what_was_used(conclusions: dict[str, Any]) -> None:
    rows = {(row["kind"], row["nodes"]): row for row in conclusions["planned"]}
    storage = rows["storage", 4]  # two storages, two repeats; each 5 s [2.5, 10], and took 1 s
    assert storage["cells"] == 4
    assert storage["planned_seconds"] == {"value": 20, "low": 10, "high": 40}
    assert storage["used_seconds"] == 4
    assert storage["used_node_hours"] == pytest.approx(4 * 4 / 3600)
    assert storage["idle_node_hours"] == 0
    assert rows["storage", 1]["idle_node_hours"] == pytest.approx(3 / 4 * rows["storage", 1]["used_node_hours"])
    assert storage["cells_as_planned"] == 0


def test_the_summary_is_a_line_for_each_answer(conclusions: dict[str, Any]) -> None:
    lines = list(summary(conclusions))
    assert len(lines) == 7
    assert lines[0].startswith("alexnet gains up to 4 nodes. On cpu, strong scaling, ")
    assert [line for line in lines if line.startswith("alexnet on cpu reaches 60 % on ")] == lines[3:5], "then targets"
    assert " % efficient, " in lines[0]
    assert lines[-1] == "1 cell could not run"


def test_the_page_is_short_and_says_what_was_measured_first(conclusions: dict[str, Any]) -> None:
    text = page(conclusions)
    assert len(text) < 6000
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert titles == [
        "# Conclusions", "## Time to accuracy", "## Beyond what was measured", "## What would help most",
        "## Training data",
        "## How sure this is", "## What to measure next",
    ]  # fmt: skip
    measured, _, predicted = text.partition("## Beyond what was measured")
    assert "predicted" not in measured
    assert "predicted" in predicted


def test_unbounded_is_not_a_number() -> None:
    layers = (Layer("conv", "convolution", 0, 1e-3, 1000),)
    found = concluded(study(Truth(layers=layers), **SMALL), nodes=[])
    json.dumps(found, allow_nan=False)
    row = next(row for row in found["amdahl"] if row["layer_type"] == "convolution")
    assert row["speedup_limit"]["high"] is None
    assert "∞)" in details(found)


def test_causes_that_cannot_be_told_apart_are_all_named() -> None:
    layers = (Layer("fc", "fully-connected", 10e-3, 1e-3, 1000), Layer("lrn", "lrn", 10e-3, 1e-3))
    truth = Truth(layers=layers, noise=0.15, alpha=1e-9, update=1e-9)
    found = concluded(study(truth, **SMALL | {"nodes": (1, 2, 4), "syncs": ("naive",), "repeats": 2}), nodes=[])
    at = found["curves"][0]["causes"][-1]
    assert at["verdict"] == "not distinguishable"
    assert {entry["cause"] for entry in at["leading"]} >= {"matrix shapes", "non-scaling layers"}
    assert "not distinguishable: " in details(found)


def test_details_say_where_time_to_a_target_stalls_beside_throughput(conclusions: dict[str, Any]) -> None:
    text = details(conclusions).split("## Training to a target")[1].split("\n## ")[0]
    assert f"| {CRITICAL:.0f} ({CRITICAL:.0f}–{CRITICAL:.0f}) |" in text, "the noise scale that was planted"
    beside = [line for line in text.splitlines() if " to 0.6, " in line]
    assert len(beside) == len(conclusions["accuracy_stalling"]) > 0
    strong = next(line for line in beside if "| strong, B = 64, wfbp, prefetch 2, local |" in line)
    curve = next(
        curve
        for curve in conclusions["curves"]
        if (curve["scaling"], curve["sync"], curve["prefetch"], curve["storage"]) == ("strong", "wfbp", 2, "local")
    )
    assert strong.endswith(f"| {verdict_in_short(curve)} |")


def test_training_starves_from_the_fewest_workers_that_surely_wait_too_long() -> None:
    def at(ranks: int, basis: str, low: float, high: float) -> dict[str, Any]:
        return {"ranks": ranks, "basis": basis, "utilisation": {"value": (low + high) / 2, "low": low, "high": high}}

    fed = [at(1, "measured", 0.97, 0.99), at(2, "measured", 0.85, 0.95), at(4, "predicted", 0.5, 0.6)]
    curve = {"workers_per_node": 1, "feeding": fed}
    assert starving_in_words(curve) == "n = 4, predicted"
    assert starving_in_words({**curve, "feeding": fed[:2]}) == "not up to n = 2"
    fed[1] = at(2, "measured", 0.7, 0.8)
    assert starving_in_words(curve) == "n = 2, measured"


def test_what_would_decide_where_a_storage_saturates_is_said() -> None:
    row = {
        "hardware": "cpu", "storage": "shared", "readers": 1, "workers_per_node": 1, "largest_measured": 4,
        "largest_considered": 8, "deciding": "", "saturation_ranks": {"value": 4.0, "low": 4.0, "high": 4.0},
    }  # fmt: skip
    found = saturation([
        {**row, "verdict": "saturates", "verdict_ranks": 4},
        {**row, "verdict": "keeps pace", "verdict_ranks": 8, "saturation_ranks": None},
        {**row, "verdict": "undecided", "verdict_ranks": 2, "deciding": "more visits to 2, 4 workers"},
        {**row, "verdict": "undecided", "verdict_ranks": 0, "deciding": "more visits to 1, 2, 4 workers"},
    ])  # fmt: skip
    assert [cells[-3:-1] for cells in found.rows] == [
        ["saturates at 4", "4 (4–4)"],
        ["keeps pace up to 8", "not up to 8"],
        ["undecided from 2; more visits to 2, 4 workers would decide", "4 (4–4)"],
        ["undecided; more visits to 1, 2, 4 workers would decide", "not known"],
    ]


def test_what_storages_answer_stands_in_details_with_a_table_each(conclusions: dict[str, Any]) -> None:
    found = {one.title: one for one in answered(conclusions)}
    assert list(found) == ["Storages", "Operations on storages", "Saturation of storages", "Accelerator utilisation"]
    assert all(len(row) == len(one.head) for one in found.values() for row in one.rows)
    assert all(f"## {title}" in details(conclusions) for title in found)
    # Planted: 0.05 ms to open a file, on each number of workers that poll at once.
    opened = [row for row in found["Operations on storages"].rows if row[2] == "open, warm"]
    assert [(row[0], row[1], row[3].split()[0]) for row in opened] == [
        (name, f"{place} of cpu", "0.050") for name in ("local", "shared") for place in ("1 node", "2 nodes", "4 nodes")
    ]
    decoded = [row[1] for row in found["Operations on storages"].rows if row[2].startswith("decode")]
    assert set(decoded) <= {"4 nodes of cpu"}

    at_25_mb = {**conclusions["storages"][0], "bytes_per_second": {"value": 25e6, "low": 20e6, "high": 30e6}}
    rows = [{**at_25_mb, "origin": origin} for origin in ("network", "page cache")]
    large, cached = next(answered({**conclusions, "storages": rows})).rows
    assert (large[-1], cached[-1]) == ("100 (83–125)", "–"), "150 GB at 25 MB/s take 100 minutes"


def test_an_external_table_gets_the_answer_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("series,workers,workers_per_node,samples_per_second\n" + "".join(
        f"{name},{n},8,{rate}\n"
        for name in map(str, range(12)) for n, rate in {4: 40, 8: 80, 16: 81, 32: 160, 64: 318}.items()
    ))  # fmt: skip
    found = list(external_answers("elsewhere", file, Options()))
    alone = explain_files([str(file)], Options()).answers
    assert [replace(one, kind="rates", subject=one.subject.removesuffix(" in elsewhere")) for one in found] == [*alone]
    lines = list(external_lines({"findings": in_json(found)}))
    assert lines[0].startswith("0, 4-64 workers (8 a node) in elsewhere: still gets faster at 64, by 99 % for the last")
    assert "; at 128: " in lines[0]
    assert lines[-1] == "2 more series of external tables: details.md"
    file.write_text("workers,samples_per_second\n1,40\n2,70\n")
    (line,) = external_lines({"findings": in_json(external_answers("elsewhere", file, Options(of="all")))})
    assert "; not predicted: two counts" in line


@pytest.mark.parametrize(("counts", "undecided", "wanted"), [((1, 2, 4, 8), 4, [16]), ((4, 12, 14), 12, [24])])
def test_a_step_is_decided_by_a_further_count_and_not_by_more_visits(
    counts: tuple[int, ...], undecided: int, wanted: list[int]
) -> None:
    rows = [{"basis": "measured", "ranks": n, "probability": float(n == undecided)} for n in counts]
    assert _probabilities(rows, undecided)["deciding_ranks"] == wanted


def test_one_node_count_is_no_curve_and_nothing_is_said_of_runs_to_a_target_where_there_are_none() -> None:
    records = study(**SMALL | {"nodes": (1,)})
    nothing = {name: records[name].iloc[:0] for name in ("convergence_runs", "gradient_noise")}
    text = details(concluded({**records, **nothing}, nodes=[]))
    assert "Training to a target" not in text
    assert "not known: needs two worker counts that were measured or can be predicted" in text
    assert "No prediction could be compared" in text


@pytest.mark.parametrize(
    "column",
    [
        "forward",
        *(pytest.param(one, marks=pytest.mark.night) for one in ("data_wait", "update", "exposed_communication")),
    ],
)
def test_a_part_that_was_not_timed_is_not_known(column: str) -> None:
    records = study(**SMALL)
    records["iterations"][column] = float("nan")
    found = concluded(records, nodes=[8])
    json.dumps(found, allow_nan=False)
    text = details(found)
    assert "not known" in text
    assert "nan" not in text.replace("dominant", "")


def test_an_empty_study_has_conclusions() -> None:
    nothing = {name: table.iloc[:0] for name, table in study(**SMALL).items()}
    found = concluded(nothing, nodes=[1, 2])
    assert found["curves"] == found["failed"] == []
    assert list(summary(found)) == []
    assert details(found).startswith("# Details\n")
    assert "No scaling curve was measured." in page(found)


# --- what was measured, in words ------------------------------------------------------------------


def at(nodes: int, speedup: float) -> dict[str, Any]:
    """A measured point that is known to ± 6 %."""
    ends = {"value": speedup, "low": 0.94 * speedup, "high": 1.06 * speedup}
    return {
        "nodes": nodes, "ranks": nodes, "speedup": ends, "half_width": None if nodes == 1 else 0.06,
        "seconds": {name: 1 / end for name, end in ends.items()},
        "samples_per_second": {name: 10 * end for name, end in ends.items()},
        "efficiency": {name: end / nodes for name, end in ends.items()},
    }  # fmt: skip


def curve(verdict: str = "scales", nodes: int = 2, **changes: Any) -> dict[str, Any]:
    """A curve that was measured on 1 and 2 nodes."""
    return {
        "verdict": verdict, "verdict_ranks": nodes, "note": "", "withheld": "", "reached": False, "stall_ranks": None,
        "basis": "measured", "largest_measured": 2, "largest_considered": 2, "measured": [at(1, 1.0), at(2, 1.8)],
        "measured_speedup": at(2, 1.8)["speedup"], "measured_speedup_ranks": 2, "causes": [], "remedies": [],
        "network": "alexnet", "sync": "wfbp", "storage": "jpeg", "prefetch": 1, "batch": 64, "scaling": "strong",
        "hardware": "cpu", "workers_per_node": 1, "measured_stall": [], "known_stall": [], "deciding_ranks": [],
        "deciding_time": None,
        "stall_not_below": 2, "crossing_ranks": None, **changes,
    }  # fmt: skip


def stall(at_1: float, nowhere: float) -> list[dict[str, Any]]:
    places = ((1, True, at_1), (2, False, nowhere))
    return [{"ranks": ranks, "stalls": stalls, "probability": share} for ranks, stalls, share in places]


ONE = {"largest_measured": 1, "measured_speedup_ranks": 1, "measured": [at(1, 1.0)]}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (curve(), "scales to n = 2, speedup 1.8 (1.7–1.9) on n = 2"),
        (curve("stalls", 2), "stalls at n = 2, speedup 1.8 (1.7–1.9) on n = 2"),
        (curve("stalls", 1), "stalls at n = 1, speedup 1.8 (1.7–1.9) on n = 2"),
        (
            curve("undecided", 1, measured_stall=stall(0.3, 0.7), deciding_ranks=[1, 2]),
            "undecided whether n = 2 gains, speedup 1.8 (1.7–1.9) on n = 2; "
            "no stall up to n = 2: 70 %, stalls at n = 1: 30 %; visits to n = 1, 2 would decide",
        ),
        (
            curve("undecided", 1, measured_stall=stall(0.3, 0.7), deciding_ranks=[1, 2], deciding_time=244.0),
            "undecided whether n = 2 gains, speedup 1.8 (1.7–1.9) on n = 2; "
            "no stall up to n = 2: 70 %, stalls at n = 1: 30 %; some 4 min of visits to n = 1, 2 would decide",
        ),
        (
            curve("stalls", 1, measured_stall=stall(0.996, 0.004)),
            "stalls at n = 1, speedup 1.8 (1.7–1.9) on n = 2, over 99 % sure",
        ),
        (curve("undecided", 0, **ONE), "undecided: only n = 1 was measured"),
        (
            curve("undecided", 0, **{**ONE, "largest_measured": 3}),
            "undecided: no worker count was measured together with its double",
        ),
        (curve("undecided", 0, **ONE, note="needs two worker counts"), "undecided: needs two worker counts"),
        (curve("withheld", 2, note="cells differ"), "withheld: cells differ"),
    ],
)
def test_a_verdict_is_said_in_words(found: dict[str, Any], words: str) -> None:
    assert verdict_in_words(found) == words


MACHINE = {"hardware": "cpu", "machines": 2, "processes": 2, "nodes": 2, "models": ["Xeon"]}


def answer(*curves: dict[str, Any], error: float | None = None) -> dict[str, Any]:
    """The answer of curves that compete."""
    errors = [{"network": "alexnet", "hardware": "cpu", "sync": "all", "median_error": {"value": error}}]
    (found,) = answers(curves, errors if error else [])
    return found


@pytest.mark.parametrize(
    ("found", "title", "said"),
    [
        (curve(), "Scales to 2 nodes", "alexnet gains up to 2 nodes"),
        (curve("stalls", 2), "Worth up to 2 nodes", "alexnet stops gaining beyond 2 nodes"),
        (curve("stalls", 1), "No gain beyond 1 node", "alexnet stops gaining beyond 1 node"),
        (
            curve("undecided", 1, deciding_ranks=[1, 2], deciding_time=5000.0),
            "Undecided at 2 nodes",
            "alexnet: undecided whether 2 nodes gain; more than an hour of visits to n = 1, 2 would decide",
        ),
        (curve("undecided", 0, **ONE), "Undecided", "alexnet: undecided, as only n = 1 was measured"),
        (curve("withheld", 2, note="cells differ"), "Withheld", "alexnet: withheld, as cells differ"),
    ],
)
def test_an_answer_has_one_of_four_states(found: dict[str, Any], title: str, said: str) -> None:
    assert heading(answer(found), [MACHINE]) == title
    assert sentence(answer(found), [MACHINE]) == said


def test_workers_of_one_machine_are_no_nodes() -> None:
    assert heading(answer(curve()), [{**MACHINE, "machines": 1}]) == "Scales to 2 processes"


def test_numbers_of_an_answer_are_those_of_its_fastest_curve() -> None:
    slow, fast = (curve(sync=sync, measured=[at(1, 1.0), at(2, of)]) for sync, of in (("wfbp", 1.6), ("naive", 1.95)))
    assert leading([slow, fast]) is fast
    found = answer(slow, fast)
    assert (found["sync"], found["curves"], found["differ"]) == ("naive", 2, ["sync"])
    assert throughput_in_words(found) == "10 → 19.5 samples/s"
    assert gain_in_words(found) == "98 % efficient, 1.9× (90 % CI 1.8–2.1), 1 → 0.51 s an iteration"


@pytest.mark.parametrize(
    ("low", "words"), [(0.9, "100 % efficient within its interval, 2.3×"), (1.1, "116 % efficient, 2.3×")]
)
def test_more_than_all_is_efficient_only_where_the_interval_says_so(low: float, words: str) -> None:
    larger = at(2, 2.32)
    larger["efficiency"]["low"] = low
    assert gain_in_words(answer(curve(measured=[at(1, 1.0), larger]))).startswith(words)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (0.37, "no cell would tell more; the stalling point is known within a factor of 1.3"),
        (0.2, "would then be known within a factor of 1.1 instead of 1.3"),
    ],
)
def test_a_cell_that_would_tell_no_more_than_is_said_already_is_not_named(expected: float, words: str) -> None:
    cell = {
        "kind": "train",
        "ranks": 4,
        "worker_batch": 8,
        "narrows": True,
        "node_hours": 0.1,
        "width": 0.38,
        "expected_width": expected,
    }
    assert next_in_words(curve(next_cell=cell)).endswith(words)


def test_what_may_be_as_fast_is_said() -> None:
    fast, near, slow = (curve(measured=[at(1, 1.0), at(2, speedup)]) for speedup in (2.0, 1.95, 1.6))
    assert rivals_in_words(answer(fast)) == ""
    assert rivals_in_words(answer(slow, fast)) == ", the fastest of 2 curves"
    assert rivals_in_words(answer(slow, near, fast)) == ", the fastest of 3 curves, though 1 may be as fast"


def test_the_fastest_curve_answers_even_if_it_is_undecided() -> None:
    open_ = curve("undecided", 1, sync="naive", measured=[at(1, 1.0), at(2, 1.95)])
    assert answer(curve(), open_)["state"] == "undecided"


def test_a_mini_batch_with_another_verdict_answers_for_itself_under_strong_scaling() -> None:
    small, same, large = curve("stalls", 1, batch=2), curve("stalls", 1, batch=4), curve(batch=16)
    told = {one["of_batch"]: sentence(one, [MACHINE]) for one in answers([small, large], [])}
    assert told == {2: "alexnet at B = 2 stops gaining beyond 1 node", 16: "alexnet at B = 16 gains up to 2 nodes"}
    assert [one["curves"] for one in answers([small, same, large], [])] == [2, 1]
    assert answer(small, same)["of_batch"] == 0, "both say the same"
    weak = ({**one, "scaling": "weak"} for one in (small, large))
    assert answer(*weak)["of_batch"] == 0, "a mini-batch of each worker competes"


def test_nothing_is_said_of_counts_that_nobody_measured_but_apart() -> None:
    stall = {"reached": True, "basis": "predicted", "stall_ranks": {"value": 8, "low": 4, "high": 16}}
    machines = [MACHINE]
    gains, stalls = ({"largest_considered": 64, "known_stall": known(share)} for share in (0.95, 0.04))
    assert beyond_in_words(answer(curve(**gains)), machines) == ("beyond 2 nodes", "predicted to gain up to 64")
    found = answer(curve(**stalls, **stall))
    assert beyond_in_words(found, machines)[1] == "predicted to stall at 8 (4–16)"
    assert beyond_in_words(answer(curve("stalls", 1, **stalls, **stall)), machines)[1] == ""
    beyond = gains
    doubted = answer(curve(withheld="the model is 57 % off", **beyond))
    assert beyond_in_words(doubted, machines)[1] == "withheld: the model is 57 % off"


def known(nowhere: float) -> list[dict[str, Any]]:
    """The probability of a stall at 8, or nowhere up to 64."""
    return [
        {"ranks": 8, "stalls": True, "probability": 1 - nowhere},
        {"ranks": 64, "stalls": False, "probability": nowhere},
    ]


@pytest.mark.parametrize("likely", [0.58, 0.2])
def test_what_is_not_likely_enough_is_said_with_its_probability(likely: float) -> None:
    stall = {"value": 8, "low": 4, "high": 64}
    changes = {"largest_considered": 64, "stall_not_below": 8, "known_stall": known(likely)}
    if likely < 0.5:
        changes |= {"reached": True, "basis": "predicted", "stall_ranks": stall}
    found = curve(**changes)
    words = beyond_in_words(answer(found), [MACHINE])[1]
    assert words == f"undecided whether it gains up to 64 (P = {likely:.2f})"
    assert stall_in_words(found).startswith("undecided: ")
    assert f"P = {max(likely, 1 - likely):.2f}" in stall_in_words(found)


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_the_fastest_of_many_is_not_faster_for_having_been_chosen(apart: float) -> None:
    """Nine presets, each known to 6 %: alike, or so different that nothing was left to chance."""
    random = np.random.default_rng(9)
    errors, held = [], []
    for _ in range(200):
        true = np.exp(apart * random.standard_normal(9))
        seen = true * np.exp(0.06 / 1.645 * random.standard_normal(9))
        found = [curve(sync=str(place), measured=[at(1, 1.0), at(2, speedup)]) for place, speedup in enumerate(seen)]
        best = leading(found)
        base, chosen = as_chosen(best, found)
        assert base == best["measured"][0]
        truth = true[int(best["sync"])]
        errors.append(np.log(chosen["speedup"]["value"] / truth))
        held.append(chosen["speedup"]["low"] <= truth <= chosen["speedup"]["high"])
        assert chosen["samples_per_second"]["value"] == pytest.approx(10 * chosen["speedup"]["value"])
        assert chosen["seconds"]["value"] * chosen["speedup"]["value"] == pytest.approx(1.0)
    # Without a correction the best of nine equal ones is 1.49 standard deviations, 5.4 %, too fast.
    assert abs(np.mean(errors)) < 0.03
    assert np.mean(held) > 0.82


def test_what_was_imported_is_not_called_measured() -> None:
    tables = study(**SMALL)
    runs = tables["runs"].assign(kind="imported-train", source="traces.txt", ended="")
    found = concluded({**tables, "runs": runs, "environments": tables["environments"][:0]}, nodes=[8])
    (machine,) = found["machines"]
    assert machine["imported"]
    assert "All of this was imported" in page(found)
    assert page(found).splitlines()[2].startswith("cpu: imported, not measured here: up to ")
    assert not any("cells imported" in line for line in summary(found))


def lost(value: float, verdict: str, *causes: str) -> list[dict[str, Any]]:
    seconds = {"value": value, "low": value / 2, "high": 2 * value}
    leading = [{"cause": cause, "lost_seconds": seconds, "share": 0.1} for cause in causes]
    return [{"ranks": 2, "basis": "measured", "verdict": verdict, "leading": leading}]


def mixed(sure: str, *others: str) -> list[dict[str, Any]]:
    """One cause that is above zero for sure, beside some that may be larger."""
    (entry,) = lost(0.05, "not distinguishable", sure)
    unsure = [{**entry["leading"][0], "cause": cause, "lost_seconds": UNSURE} for cause in others]
    return [{**entry, "leading": entry["leading"] + unsure}]


UNSURE = {"value": 0.01, "low": -0.1, "high": 0.1}


@pytest.mark.parametrize(
    ("causes", "words"),
    [
        (lost(0.05, "dominant", "interference"), "interference, 50 ms (25–100) of each iteration"),
        (lost(0.05, "not distinguishable", "straggling", "update"), "undecided: straggling or update"),
        (lost(0.05, "not distinguishable", "a", "b", "c"), "undecided: a, b or 1 other"),
        (mixed("a", "b", "c"), "undecided: a or 2 others"),
        (
            mixed("interference", "straggling"),
            "undecided: interference or straggling; workers slow each other down: cores, caches, memory or clock",
        ),
        (
            lost(0.05, "not distinguishable", "matrix shapes", "model update"),
            "undecided: matrix shapes or model update; a smaller b takes less work, but not as much less time",
        ),
        (lost(0.05, "not distinguishable", "update"), "update, not distinguishable from no loss"),
        (lost(-0.05, "not distinguishable", "update"), "no loss beyond what visits differ by"),
        ([{**lost(0.05, "dominant", "update")[0], "basis": "predicted"}], ""),
    ],
)
def test_causes_are_those_that_were_measured(causes: list[dict[str, Any]], words: str) -> None:
    assert cause_in_words(answer(curve(causes=causes))) == words


def remedy(words: str, low: float, value: float, **changes: Any) -> dict[str, Any]:
    """A remedy whose interval begins at `low`."""
    return {
        "remedy": words, "changes": words, "also": "", "ranks": 2, "gain": {"value": value, "low": low, "high": 2.0},
        "upper_bound": False, "memory": None, "fits": "fits", "verdict": "helps" if low > 1 else "undecided",
        "cell": "", "node_hours": None, **changes,
    }  # fmt: skip


def test_what_would_help_are_the_first_remedies_that_gain_for_sure() -> None:
    found = [
        remedy("more readers", 1.3, 1.6), remedy("still more readers", 1.2, 1.5, changes="more readers"),
        remedy("no launches", 1.2, 1.4, upper_bound=True), remedy("faster links", 0.9, 1.5),
    ]  # fmt: skip
    words = "more readers: +60 % (30–100); no launches: at most +40 % (20–100) (predicted, n = 2)"
    assert helps_in_words(answer(curve(remedies=found))) == words
    assert helps_in_words(answer(curve(remedies=found, withheld="the model is off"))) == ""
    assert helps_in_words(answer(curve(remedies=[]))) == ""


@pytest.mark.parametrize(
    ("value", "low", "high", "words"),
    [
        (1.00004, 0.85, 1.16, "no difference within ± 16 %"), (1.0, 1.0, 1.0, "no difference within ± 1 %"),
        (1.06, 0.9, 1.22, "+6.0 % (-10 to 22)"), (1.004, 1.002, 1.006, "+0.40 % (0.20–0.60)"),
    ],
)  # fmt: skip
def test_a_gain_that_may_be_none_is_told_by_its_width(value: float, low: float, high: float, words: str) -> None:
    assert gained_in_words({"gain": {"value": value, "low": low, "high": high}, "upper_bound": False}) == words


def test_what_trains_something_else_says_so_by_its_name() -> None:
    also = "a target may take more samples"
    sure, open_ = (remedy("4 × the mini-batch", low, 1.6, also=also) for low in (1.3, 0.9))
    more = remedy("more readers", 0.9, 1.5, also="as many more cores")
    assert helps_in_words(answer(curve(remedies=[sure]))).startswith(f"4 × the mini-batch ({also}): +60 %")
    words = f"undecided whether 4 × the mini-batch ({also}) or more readers (predicted, n = 2)"
    assert helps_in_words(answer(curve(remedies=[open_, more]))) == words


def test_remedies_that_may_gain_nothing_are_undecided() -> None:
    found = [remedy("faster links", 0.9, 1.5), remedy("huge", 1.5, 1.6, verdict="does not fit")]
    assert helps_in_words(answer(curve(remedies=found))) == "undecided whether faster links (predicted, n = 2)"


def slow_nodes(visits: int, *ranks: tuple[str, float], cells: int = 2) -> list[dict[str, Any]]:
    """Those found where ranks of each cell are on these nodes, with this sentinel."""
    places = [
        {"cell": f"{cell}", "hardware": "cpu", "visit": visit, "rank": rank, "node": node, "product_before": time}
        for cell in range(cells)
        for visit in range(visits)
        for rank, (node, time) in enumerate(ranks)
    ]
    frame = pd.DataFrame(places).assign(product_after=lambda rows: rows["product_before"])
    return list(_slow_nodes(frame.drop(columns="node"), frame[["cell", "rank", "node"]].drop_duplicates()))


def test_a_node_that_computes_slower_than_the_others_is_named() -> None:
    (found,) = slow_nodes(3, ("a", 0.1), ("a", 0.1), ("b", 0.31), ("b", 0.29), ("c", 0.1), ("c", 0.1))
    assert found["node"] == "b"
    assert found["ratio"] == pytest.approx(3)
    assert found["visits"] == 6
    assert [one["node"] for one in slow_nodes(3, ("a", 0.1), ("b", 0.13))] == ["b"]


def test_nodes_alike_and_single_visits_and_nodes_name_none() -> None:
    assert slow_nodes(3, ("a", 0.1), ("b", 0.11)) == []
    assert slow_nodes(1, ("a", 0.1), ("b", 0.3), cells=1) == []
    assert slow_nodes(3, ("a", 0.1), ("a", 0.3)) == []
    assert slow_nodes(3, ("a", float("nan")), ("b", float("nan"))) == []


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cpu", [["caffe-mpi", "mxnet", "wfbp"], ["cntk", "naive"]]), ("cuda", [["cntk", "naive"], ["mxnet", "wfbp"]])],
)
def test_presets_that_do_the_same_are_named(device: str, expected: list[list[str]]) -> None:
    """Reading ahead into a device's memory tells Caffe-MPI from MXNet on a GPU alone."""
    names = ["wfbp", "caffe-mpi", "mxnet", "cntk", "naive", "ddp"]
    cells = [replace(TRAIN, device=device, sync=name, preset=asdict(PRESETS[name].preset)) for name in names]
    runs = pd.DataFrame({"kind": "train", "source": "", "settings": [cell.to_json() for cell in cells]})
    assert sorted(entry["presets"] for entry in equal_presets(runs)) == expected


def test_samples_that_were_left_out_are_counted_for_each_storage() -> None:
    cells = ["train/network~a/storage~disk/nodes~1", "other/storage/storage~disk/nodes~2", "train/storage~b/nodes~1"]
    visits = pd.DataFrame({"cell": [*cells, "sgemm/network~a"], "excluded_samples": [2, 3, 0, 0]})
    (found,) = _undecodable(visits)
    assert undecodable_in_words(found) == "storage disk: 3 samples that cannot be decoded are excluded"
    assert list(_undecodable(visits[2:])) == []


def test_how_sure_it_is_is_said_in_a_few_lines() -> None:
    control = {"hardware": "cpu", "agrees": True}
    found = {
        "curves": [curve(), curve(**ONE)],
        "ended": [
            {"hardware": "cpu", "ended": "precision", "cells": 7, "visits": 25},
            {"hardware": "gpu", "ended": "budget", "cells": 1, "visits": 1},
        ],
        "disturbances": [
            {"hardware": "cpu", "reason": "steal", "iterations": 3, "cells": 1, "kept": 0},
            {"hardware": "cpu", "reason": "quota", "iterations": 3, "cells": 1, "kept": 2},
            {"hardware": "cpu", "reason": "another process", "iterations": 1, "cells": 1, "kept": 1},
        ],
        "slow_nodes": [{"hardware": "cpu", "node": "node3", "ratio": 3.04, "visits": 9}],
        "left_out": [],
        "controls": [control],
        "alike": [{"hardware": "cpu", "presets": ["intelcaffe", "mxnet", "wfbp"]}],
    }
    assert list(trust_lines(found)) == [
        "cpu: 7 cells, 25 visits: precision reached",
        "gpu: 1 cell, 1 visit: budget used up",
        "cpu: measured speedup known to ± 6 %",
        "cpu: 3 iterations disturbed by steal, excluded",
        "cpu: 3 iterations disturbed by quota, 1 excluded, 2 kept for want of others",
        "cpu: 1 iteration disturbed by another process, kept for want of others",
        "cpu: node3 computes 3 times as long as the other nodes, which wait for it (sentinel, median of 9 visits)",
        "A/A controls: 1 of 1 pair of cells that do the same agrees",
        "cpu: intelcaffe, mxnet and wfbp do the same; any difference between them is chance",
    ]
    found["controls"], found["alike"] = [control, {**control, "agrees": False}], []
    assert list(trust_lines(found))[-2:] == [
        "A/A controls: 1 of 2 pairs of cells that do the same agree",
        "cpu: verdicts are withheld, as cells that do the same differ",
    ]


@pytest.mark.parametrize("as_", ["results folder", "file", "unpacked archive", "zip"])
def test_a_study_that_is_brought_is_explained_by_its_own_findings(
    as_: str, conclusions: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "results/mine"
    folder.mkdir(parents=True)
    file = folder / "conclusions.json"
    file.write_text(json.dumps(conclusions, indent=1))
    packed = tmp_path / "packed"
    with ZipFile(packed, "w") as archive:
        archive.write(file, "results/mine/conclusions.json")
    given = {"results folder": folder, "file": file, "unpacked archive": tmp_path, "zip": packed}[as_]
    found = explain_files([str(given)], Options())
    assert [one.recognised for one in found.inputs] == [("study",)]
    verdicts = [row for row in conclusions["findings"] if row["kind"] == VERDICT]
    assert [(one.words, one.verdict) for one in found.answers[: len(verdicts)]] == [
        (row["words"], row["verdict"]) for row in verdicts
    ]
    losses = [row["words"] for row in conclusions["findings"] if row["kind"] == LOSS]
    assert [cause.words for one in found.answers for cause in one.causes] == losses


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("README.md", "other", ""),
        (
            "results/mine/conclusions.json",
            '{"findings": []}',
            "results/mine/conclusions.json is not what it was archived as, its checksum differs; "
            "copy the archive again",
        ),
        ("checksums.sha256", "", "checksums.sha256 has no checksum of results/mine/conclusions.json"),
        ("checksums.sha256", None, "it has no checksums.sha256; copy the archive again"),
    ],
)
def test_an_archive_whose_conclusions_were_altered_is_refused(
    name: str, change: str | None, message: str, conclusions: dict[str, Any], tmp_path: Path
) -> None:
    folder, packed = tmp_path / "folder", tmp_path / "mine.zip"
    texts = {"results/mine/conclusions.json": json.dumps(conclusions), "README.md": "", "ro-crate-metadata.json": "{}"}
    for member, text in texts.items():
        (folder / member).parent.mkdir(parents=True, exist_ok=True)
        (folder / member).write_text(text)
    write_checksums(folder)
    pack(folder, packed)
    intact = explain_files([str(packed)], Options())
    if change is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(change)
    pack(folder, packed)
    if not message:
        assert explain_files([str(packed)], Options()) == intact
        return
    with pytest.raises(InputError) as refused:
        explain_files([str(packed)], Options())
    assert str(refused.value) == f"{packed}: {message}"


def test_an_empty_study_that_is_brought_asks_for_worker_counts(tmp_path: Path) -> None:
    (tmp_path / "conclusions.json").write_text(json.dumps({"findings": [], "answers": []}))
    (one,) = explain_files([str(tmp_path)], Options()).answers
    assert (one.verdict, one.ask) == ("undecided", ("cells of one network on two worker counts or more",))


def test_what_is_no_finished_study_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    with pytest.raises(InputError, match="it is not finished; run `snakemake` for the study"):
        explain_files([str(tmp_path)], Options())
    (tmp_path / "conclusions.json").write_text('{"findings": [{"kind": 1}]}')
    with pytest.raises(InputError, match="has no findings, as those of earlier versions"):
        explain_files([str(tmp_path)], Options())
    packed = tmp_path / "other.zip"
    with ZipFile(packed, "w") as archive:
        archive.writestr("ro-crate-metadata.json", "{}")
    with pytest.raises(InputError, match="a zip without results/STUDY/conclusions"):
        explain_files([str(packed)], Options())
    packed.write_bytes(packed.read_bytes()[:60])
    with pytest.raises(InputError, match="a damaged zip"):
        explain_files([str(packed)], Options())
