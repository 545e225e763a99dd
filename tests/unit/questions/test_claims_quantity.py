import math
from typing import Any

import claim_tables
import numpy as np
import pandas as pd
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.questions.claims.claim_files import own_claims
from stallpoint.questions.claims.facts import Facts, facts
from stallpoint.questions.claims.judge import judge, rows
from stallpoint.questions.claims.language import Claim, Quantity
from stallpoint.questions.claims.quantity import Evidence, Number, difference, numbers, ratio
from stallpoint.questions.claims_question import section, verdict_in_words
from stallpoint.questions.study_tables import StudyTables
from stallpoint.records.parquet import to_arrow
from stallpoint.records.tables import CLAIMS, TABLES

FACTS: Facts = {"hardware.device": {"xeon": "cpu", "k80": "cuda"}}


def claim(quantity: dict[str, Any], condition: dict[str, Any] | None = None) -> Claim:
    entry = {"id": "c", "sentence": "C.", "quantity": quantity, "condition": condition or {"above": 0}}
    (made,) = own_claims([{**entry, "chart": "speedup"}])
    return made


def evidence(**tables: list[dict[str, Any]]) -> Evidence:
    """Tables of the given rows; an interval left out is 10 % to each side."""
    return claim_tables.evidence({name: [_row(name, row) for row in given] for name, given in tables.items()}, FACTS)


def _row(table: str, given: dict[str, Any]) -> dict[str, Any]:
    names = {column.name for column in TABLES[table].columns}
    ends = {
        f"{name}_{end}": factor * value
        for name, value in given.items()
        if f"{name}_low" in names
        for end, factor in (("low", 0.9), ("high", 1.1))
    }
    return ends | given


def found(quantity: dict[str, Any], **tables: list[dict[str, Any]]) -> list[Number]:
    made: Quantity | None = claim(quantity).quantity
    assert made is not None
    return numbers(made, evidence(**tables))


SHARES = [
    {"network": network, "hardware": hardware, "layer_type": kind, "worker_batch": b, "share": share}
    for network, hardware, kind, b, share in [
        ("alexnet", "xeon", "fully-connected", 16, 0.2),
        ("alexnet", "xeon", "fully-connected", 4, 0.4),
        ("alexnet", "xeon", "lrn", 16, 0.1),
        ("alexnet", "xeon", "lrn", 4, 0.1),
        ("alexnet", "k80", "fully-connected", 16, 0.3),
        ("googlenet", "xeon", "fully-connected", 8, 0.01),
    ]
]
SHARE = {"table": "layer_scaling", "column": "share"}


def test_each_combination_has_its_own_number() -> None:
    where = {"layer_type": "fully-connected", "worker_batch": "largest"}
    three = found({**SHARE, "where": where, "for_each": ["network", "hardware"]}, layer_scaling=SHARES)
    assert [(number.labels, round(number.value, 3)) for number in three] == [
        ({"network": "alexnet", "hardware": "xeon"}, 0.2),
        ({"network": "alexnet", "hardware": "k80"}, 0.3),
        ({"network": "googlenet", "hardware": "xeon"}, 0.01),
    ]
    assert (three[0].low, three[0].high) == pytest.approx((0.18, 0.22))


@pytest.mark.parametrize(
    ("aggregate", "value"), [("sum", 0.8), ("max", 0.4), ("min", 0.1), ("mean", 0.2), ("median", 0.15)]
)
def test_rows_are_put_together_end_by_end(aggregate: str, value: float) -> None:
    (number,) = found(
        {**SHARE, "where": {"network": "alexnet", "hardware": "xeon"}, "aggregate": aggregate, "for_each": "network"},
        layer_scaling=SHARES,
    )
    assert (number.value, number.low, number.high) == pytest.approx((value, 0.9 * value, 1.1 * value))
    assert len(number.rows) == 4


@pytest.mark.parametrize(
    ("where", "rows_left"),
    [
        ({"layer_type": {"not": "lrn"}}, 4),
        ({"layer_type": {"like": ["Fully*", "pool*"]}}, 4),
        ({"layer_type": {"not": ["lrn", "fully-connected"]}, "network": "alexnet"}, 0),
        ({"worker_batch": {"above": 4}}, 4),
        ({"worker_batch": {"at_least": 4, "below": 16}}, 3),
        ({"worker_batch": [4, 8]}, 3),
        ({"worker_batch": "smallest"}, 2),
        ({"hardware.device": "cuda"}, 1),
        ({"hardware.device": {"not": "cuda"}, "layer_type": "lrn"}, 2),
    ],
)
def test_conditions_choose_rows(where: dict[str, Any], rows_left: int) -> None:
    (number,) = found({**SHARE, "where": where, "for_each": "all"}, layer_scaling=SHARES)
    assert len(number.rows) == rows_left
    assert bool(number.missing) == (rows_left == 0)


def test_a_ratio_takes_the_farthest_ends() -> None:
    alone, _ = found(
        {
            **SHARE,
            "where": {"layer_type": "fully-connected", "worker_batch": "smallest", "hardware": "xeon"},
            "for_each": "network",
            "over": {"where": {"worker_batch": "largest"}},
        },
        layer_scaling=SHARES,
    )
    assert (alone.value, alone.low, alone.high) == pytest.approx((2, 0.36 / 0.22, 0.44 / 0.18))


def test_a_difference_takes_the_farthest_ends() -> None:
    (number,) = found(
        {
            **SHARE,
            "where": {"layer_type": "fully-connected", "worker_batch": 16, "hardware": "k80"},
            "for_each": "all",
            "minus": {"where": {"hardware": "xeon"}},
        },
        layer_scaling=SHARES,
    )
    assert (number.value, number.low, number.high) == pytest.approx((0.1, 0.27 - 0.22, 0.33 - 0.18))


def test_two_sides_that_are_the_same_row_are_no_comparison() -> None:
    numbers_of = found(
        {
            **SHARE,
            "where": {"layer_type": "fully-connected", "worker_batch": "smallest"},
            "for_each": ["network", "hardware"],
            "over": {"where": {"worker_batch": "largest"}},
        },
        layer_scaling=SHARES,
    )
    assert [number.missing for number in numbers_of] == ["", *["needs two different worker_batch"] * 2]


def test_what_was_not_reached_is_that_or_more() -> None:
    curve = {
        "network": "alexnet",
        "hardware": "xeon",
        "scaling": "strong",
        "largest_considered": 64,
        "basis": "predicted",
    }
    stalls = [
        {**curve, "batch": 1, "stall_ranks": 64.0, "stall_ranks_low": 64.0, "stall_ranks_high": 64.0},
        {**curve, "batch": 2, "stall_ranks": 16.0, "stall_ranks_low": 8.0, "stall_ranks_high": 64.0},
        {**curve, "batch": 3, "stall_ranks": 16.0, "stall_ranks_low": 8.0, "stall_ranks_high": 32.0},
        {**curve, "batch": 4, "stall_ranks": math.inf, "stall_ranks_low": math.inf, "stall_ranks_high": math.inf},
    ]
    quantity = {"table": "stalling", "column": "stall_ranks", "for_each": "batch", "censored_at": "largest_considered"}
    got = found(quantity, stalling=stalls)
    ends = [(number.low, number.high, number.censored) for number in got]
    assert ends == [(64, math.inf, True), (8, math.inf, False), (8, 32, False), (64, math.inf, True)]
    assert {number.basis for number in got} == {"predicted"}
    judged = judge(
        [claim(quantity, {"between": [64, 128]}), claim(quantity, {"at_most": 16})], evidence(stalling=stalls)
    )
    verdicts = [[entry.verdict for entry in one.combinations] for one in judged]
    assert verdicts[0] == ["not distinguishable", "not distinguishable", "does not hold", "not distinguishable"]
    assert verdicts[1] == ["does not hold", "not distinguishable", "not distinguishable", "does not hold"]
    # A ratio with what was not reached has ends, but no value.
    (number,) = found(
        {**quantity, "for_each": "all", "where": {"batch": 1}, "over": {"where": {"batch": 3}}}, stalling=stalls
    )
    assert (math.isnan(number.value), number.low, number.high) == (True, 2.0, math.inf)


def test_without_interval_the_rows_are_drawn_again() -> None:
    errors = [{"network": "alexnet", "error": error} for error in (0.1, -0.3, 0.2, -0.2, 0.25)]
    quantity = {
        "table": "predictions", "column": "error", "absolute": True, "aggregate": "mean", "for_each": "network",
    }  # fmt: skip
    (number,) = found(quantity, predictions=errors)
    assert number.value == pytest.approx(0.21)
    assert 0.1 < number.low < 0.21 < number.high < 0.3
    (alone,) = found(quantity, predictions=errors[:1])
    assert alone.value == 0.1
    assert math.isnan(alone.low)
    (unknown,) = judge([claim(quantity, {"below": 0.5})], evidence(predictions=errors[:1]))
    assert unknown.verdict == "not distinguishable"


def test_where_cells_that_do_the_same_differ_there_is_no_verdict() -> None:
    quantity = {"table": "comparisons", "column": "throughput", "for_each": "hardware"}
    ratios = [{"hardware": hardware, "throughput": 2.0} for hardware in ("xeon", "k80")]
    controls = [{"hardware": "xeon", "agrees": False}, {"hardware": "k80", "agrees": True}]
    (judged,) = judge([claim(quantity, {"above": 1})], evidence(comparisons=ratios, controls=controls))
    assert [entry.verdict for entry in judged.combinations] == ["not tested", "holds"]
    assert judged.combinations[0].number.missing == "no verdict: on xeon cells that do the same differ (A/A controls)"
    over_all = claim({**quantity, "for_each": "all"}, {"above": 1})
    assert judge([over_all], evidence(comparisons=ratios, controls=controls))[0].verdict == "not tested"
    assert judge([over_all], evidence(comparisons=ratios, controls=controls[1:]))[0].verdict == "holds"


def test_counts_are_exact() -> None:
    layers = [{"network": "alexnet", "layer_type": "fully-connected", "gradient_bytes": size} for size in (30, 12)]
    quantity = {"table": "network_layers", "column": "gradient_bytes", "aggregate": "sum", "for_each": "network"}
    (number,) = found(quantity, network_layers=layers)
    assert (number.value, number.low, number.high) == (42, 42, 42)
    (all_of_it,) = found(
        {**SHARE, "for_each": "all"}, layer_scaling=[{"share": 1.0, "share_low": 1.0, "share_high": 1.0}]
    )
    assert (all_of_it.value, all_of_it.missing) == (1, ""), "a share is no ratio of a cell to itself"


def test_the_size_of_an_interval_around_0_reaches_down_to_0() -> None:
    shares = [{**SHARES[0], "share": 0.1, "share_low": -0.1, "share_high": 0.3}, {**SHARES[0], "share": -0.4}]
    shares[1] |= {"share_low": -0.5, "share_high": -0.2, "worker_batch": 1}
    quantity = {**SHARE, "absolute": True, "for_each": "worker_batch"}
    ends = [(number.low, number.value, number.high) for number in found(quantity, layer_scaling=shares)]
    assert ends == [(0, 0.1, 0.3), (0.2, 0.4, 0.5)]


@pytest.mark.parametrize(
    ("where", "missing"),
    [
        ({"network": "vgg16", "layer_type": "lrn"}, "with network vgg16 (there is alexnet, googlenet)"),
        ({"network": "alexnet", "worker_batch": 64}, "of alexnet with worker_batch 64 (there is 4, 16)"),
        ({"hardware.device": "tpu"}, "with hardware.device tpu (there is cpu, cuda)"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(where: dict[str, Any], missing: str) -> None:
    (number,) = found({**SHARE, "where": where, "for_each": "all"}, layer_scaling=SHARES)
    assert number.missing == f"no train cells on one worker, at several b (scaling compute) {missing}"
    assert number.value != number.value


def test_the_combination_that_lacks_something_is_named() -> None:
    quantity = {**SHARE, "where": {"layer_type": "lrn"}, "for_each": ["network", "hardware"]}
    (judged,) = judge([claim(quantity, {"at_most": 0.15})], evidence(layer_scaling=SHARES))
    assert judged.verdict == "holds"
    assert judged.counts == {"holds": 1, "not tested": 2}
    assert verdict_in_words(judged) == "holds for 1 of 3 combinations; 2 not tested"
    assert [entry.number.labels for entry in judged.combinations if entry.number.missing] == [
        {"network": "alexnet", "hardware": "k80"},
        {"network": "googlenet", "hardware": "xeon"},
    ]


def test_a_table_without_rows_and_a_value_that_is_not_known_say_so() -> None:
    (number,) = found({**SHARE, "for_each": "network"}, layer_scaling=[])
    assert number.missing == "no train cells on one worker, at several b (scaling compute)"
    unknown = [{"network": "alexnet", "note": "fewer than two different mini-batches"}]
    (number,) = found({"table": "amdahl", "column": "serial_fraction", "for_each": "network"}, amdahl=unknown)
    assert number.missing == "serial_fraction is not known: fewer than two different mini-batches"


def test_judged_claims_are_a_table() -> None:
    quantity = {**SHARE, "where": {"layer_type": "lrn"}, "for_each": ["network", "hardware"]}
    table = to_arrow(
        CLAIMS, rows(judge([claim(quantity, {"at_most": 0.15})], evidence(layer_scaling=SHARES)))
    ).to_pandas()
    assert table["combination"].tolist()[0] == "network alexnet, hardware xeon"
    assert table["value_high"].tolist()[0] == pytest.approx(0.11)
    assert table["value"].isna().tolist() == [False, True, True]


def test_facts_come_from_the_cells() -> None:
    known = facts(synthetic.study(nodes=(1, 2), repeats=1, iterations=1)["runs"], shared_links=[("cpu", "shared")])
    assert known["hardware.device"] == {"cpu": "cpu"}
    assert known["storage.shared_link"] == {("cpu", "local"): False, ("cpu", "shared"): True}
    assert known["storage.format"] == {("cpu", "local"): "images", ("cpu", "shared"): "images"}
    assert known["sync.start"] == {"naive": "after-backward", "wfbp": "layer-ready"}
    assert known["sync.hook"] == {"naive": "none", "wfbp": "none"}, "which cells leave out"


ENDS = st.floats(min_value=-1e3, max_value=1e3)
INTERVALS = st.tuples(ENDS, ENDS).map(sorted)


@given(first=INTERVALS, second=INTERVALS, share=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_ratio_and_difference_enclose_every_pair(
    first: list[float], second: list[float], share: tuple[float, float]
) -> None:
    (a_low, a_high), (b_low, b_high) = first, second
    a, b = (min(max(low + s * (high - low), low), high) for s, (low, high) in zip(share, (first, second), strict=True))
    sides = ((a, a_low, a_high), (b, b_low, b_high))
    value, low, high = difference(*sides)
    assert low <= value <= high
    value, low, high = ratio(*sides)
    if b:
        with np.errstate(over="ignore"):
            assert low <= value * (1 + 1e-9) or low <= value * (1 - 1e-9)
            assert high >= value * (1 - 1e-9) or high >= value * (1 + 1e-9)
    assert low <= high


def test_a_ratio_to_what_may_be_0_is_unbounded() -> None:
    assert ratio((2, 1, 3), (1, 0, 2)) == (2, 0.5, math.inf)
    assert ratio((2, 1, 3), (1, -1, 2))[1:] == (-math.inf, math.inf)
    assert ratio((2, 1, 3), (math.inf, 4, math.inf)) == (0, 0, 0.75)
    assert ratio((math.inf, 4, math.inf), (math.inf, 8, math.inf))[1:] == (0, math.inf)
    assert math.isnan(ratio((0, 0, 0), (0, 0, 0))[0])


def test_empty_frames_of_any_table_are_no_data() -> None:
    empty = {name: pd.DataFrame(columns=table.names) for name, table in TABLES.items()}
    (number,) = numbers(claim({**SHARE, "for_each": "network"}).quantity, Evidence(empty))  # type: ignore[arg-type]
    assert number.missing


def test_numbers_published_without_an_interval_are_as_far_off_as_the_claim_says() -> None:
    rates = [{"table": "public", "series": "a", "workers": n, "measured": 100.0 * n} for n in (1, 2)]
    quantity = {
        "table": "extrapolations", "column": "measured", "where": {"workers": 2}, "for_each": "series",
        "over": {"where": {"workers": 1}}, "spread": 0.05,
    }  # fmt: skip
    (number,) = found(quantity, extrapolations=rates)
    assert (number.value, number.low, number.high) == pytest.approx((2.0, 2 * 0.95 / 1.05, 2 * 1.05 / 0.95))


EFFICIENCY = {"table": "predictions", "column": "measured_efficiency", "for_each": "network"}


def efficiencies(**of_ranks: list[float]) -> list[dict[str, Any]]:
    """Rows of networks on 4, 8, ... workers; on the fewest each is compared with itself."""
    return [
        {"network": network, "ranks": 4 * 2**place, "measured_efficiency": value}
        | ({"measured_efficiency_low": 1.0, "measured_efficiency_high": 1.0} if not place else {})
        for network, values in of_ranks.items()
        for place, value in enumerate(values)
    ]


def test_a_cell_compared_with_itself_tells_nothing() -> None:
    rows_of = efficiencies(one=[1.0], two=[1.0, 0.5])
    (judged,) = judge([claim(EFFICIENCY, {"below": 0.9})], evidence(predictions=rows_of))
    assert [entry.verdict for entry in judged.combinations] == ["not tested", "holds"]
    assert judged.combinations[0].number.missing == (
        "measured_efficiency compares a cell with itself (ranks 4): needs another ranks"
    )
    assert judged.combinations[1].number.value == 0.5, "the median of what is compared with another"


def test_of_two_sides_one_may_be_what_the_other_is_compared_with() -> None:
    quantity = {**EFFICIENCY, "where": {"ranks": 8}, "over": {"where": {"ranks": 4}}}
    (number,) = found(quantity, predictions=efficiencies(two=[1.0, 0.5]))
    assert number.value == 0.5
    both = {**EFFICIENCY, "for_each": "all", "where": {"network": "one"}, "over": {"where": {"network": "other"}}}
    (number,) = found(both, predictions=efficiencies(one=[1.0], other=[1.0]))
    assert number.missing.endswith("needs another ranks")


def test_ends_that_are_one_place_are_no_trend() -> None:
    """The largest mini-batch beside the smallest, of which there is one, though the rows are not the same."""
    quantity = {
        **SHARE, "where": {"layer_type": "lrn", "worker_batch": "largest"}, "for_each": ["network", "hardware"],
        "minus": {"where": {"layer_type": "fully-connected", "worker_batch": "smallest"}},
    }  # fmt: skip
    shares = [
        {**SHARES[0], "layer_type": kind, "share": share} for kind, share in (("lrn", 0.1), ("fully-connected", 0.2))
    ]
    (number,) = found(quantity, layer_scaling=shares)
    assert number.missing == "needs two different worker_batch"
    quantity["minus"]["where"]["worker_batch"] = 16
    (number,) = found(quantity, layer_scaling=shares)
    assert number.value == pytest.approx(-0.1), "a mini-batch that the claim names is no end"


@pytest.mark.parametrize(("combinations", "last"), [(4, "0.2"), (5, "and 1 more")])
def test_a_claim_names_few_of_its_combinations(combinations: int, last: str) -> None:
    shares = [{**SHARES[0], "network": f"net{place}"} for place in range(combinations)]
    judged = judge([claim({**SHARE, "for_each": "network"})], evidence(layer_scaling=shares))
    ((row,),) = (one.rows for one in section(StudyTables({}, claims=judged)).grids)
    (cell,) = (text for text in row if "net3" in text)
    assert last in cell.split("; ")[-1]
