"""Layouts of a planted training: unseen ones are predicted, and the fastest is chosen, or refused if it is not told."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from stallpoint.base.section import Finding
from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files import readers
from stallpoint_files.file_options import Options
from stallpoint_files.rates import layout_answers, layout_tables
from stallpoint_files.rates.layouts import USABLE, LayoutModel, Layouts, candidates, fit_memory, held_out, rehearse

BATCH = 256.0
HEAD = "model,nodes,dp,pp,tp,zero,mbs,gradacc,gbs,tokens/s,memory_gb"


def planted(nodes: tuple[int, ...] = (1, 2, 4, 8)) -> Layouts:
    """All layouts of nodes of eight."""
    rows = [
        (workers / (p * t), p, t, 1.0, zero, b, BATCH * p * t / (workers * b), 8.0)
        for workers, p, t, zero, b in product(
            8.0 * np.array(nodes), (1.0, 2.0, 4.0), (1.0, 2.0, 4.0, 8.0, 16.0), (0.0, 1.0), (1.0, 2.0, 4.0)
        )
        if workers >= p * t and BATCH * p * t >= workers * b
    ]  # fmt: skip
    return Layouts(*np.array(rows).T)


def truth(layouts: Layouts) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of a step, and GB: pipelines of 1F1B, tensors summed faster inside a node, a host that needs 60 ms."""
    d, p, t, b = layouts.data, layouts.pipeline, layouts.tensor, layouts.micro_batch
    device = b * (0.4 / (p * t) + 0.02 / p * (t - 1) / t * np.where(t > 8, 12, 1))
    reduced = (d - 1) / d / (p * t) * np.where(t * d > 8, 1.2, 0.2)
    seconds = (layouts.accumulation + p - 1) * np.maximum(device, 0.06 / p) + reduced + 0.02
    states = 48 / (p * t) / np.where(layouts.zero > 0, d, 1)
    return seconds, 16 / (p * t) + states + 5 * b * np.minimum(layouts.accumulation, p) / (p * t) + 1.5


def noisy(layouts: Layouts, disturbed: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(len(layouts))
    seconds, gigabytes = truth(layouts)
    slow = np.where(random.random(len(seconds)) < disturbed, random.uniform(3, 10, len(seconds)), 1.0)
    return seconds * slow * np.exp(random.normal(0, 0.02, len(seconds))), gigabytes


def text(layouts: Layouts, seconds: np.ndarray, gigabytes: np.ndarray) -> str:
    columns = (layouts.workers / 8, layouts.data, layouts.pipeline, layouts.tensor, layouts.zero, layouts.micro_batch,
               layouts.accumulation, layouts.batch, layouts.batch / seconds, gigabytes)  # fmt: skip
    rows = (",".join(f"{value:.9g}" for value in row) for row in zip(*columns, strict=True))
    return "\n".join([HEAD, *(f"7B,{row}" for row in rows)]) + "\n"


def answers(folder: Path, content: str, **how: tuple[int, ...]) -> list[Finding]:
    path = folder / "layouts.csv"
    path.write_text(content)
    ((name, (table,)),) = readers.read(path).items()
    assert name == "layouts"
    return list(layout_answers.answers(table, Options(**how)))


def test_degrees_that_a_fit_has_not_seen_are_predicted_although_a_fifth_of_all_runs_is_disturbed() -> None:
    layouts = planted()
    seconds, gigabytes = noisy(layouts)
    off, memory = np.zeros(len(seconds)), np.zeros(len(seconds))
    for out in held_out(layouts):
        model = LayoutModel.fit(layouts.at(~out), seconds[~out])
        off[out] = model.seconds(layouts.at(out)) / truth(layouts.at(out))[0] - 1
        memory[out] = layouts.at(out).memory_terms @ fit_memory(layouts.at(~out), gigabytes[~out]) / gigabytes[out] - 1
    assert np.median(np.abs(off)) < 0.03
    assert np.median(np.abs(memory)) < 0.02
    only_data = layouts.at((layouts.pipeline == 1) & (layouts.tensor == 1))
    assert [len({*only_data.data[out]}) for out in held_out(only_data)] == [1] * 4, "each worker count by the others"


def test_experts_that_exchange_across_nodes_cost_more_than_inside() -> None:
    rows = [
        (workers / t, 1.0, t, e, 0.0, b, BATCH * t / (workers * b), 8.0)
        for workers, t, e, b in product((8.0, 16.0, 32.0), (1.0, 2.0), (1.0, 2.0, 4.0, 8.0, 16.0), (1.0, 2.0, 4.0))
        if workers / t >= e
    ]  # fmt: skip
    layouts = Layouts(*np.array(rows).T)
    exchanged = layouts.micro_batch * (layouts.expert - 1) / layouts.expert
    across = layouts.tensor * layouts.expert > 8
    extra = layouts.accumulation * exchanged * np.where(across, 0.2, 0.04)
    seconds = (truth(layouts)[0] + extra) * np.exp(np.random.default_rng(3).normal(0, 0.02, len(rows)))
    off = np.zeros(len(rows))
    for out in held_out(layouts):
        off[out] = LayoutModel.fit(layouts.at(~out), seconds[~out]).seconds(layouts.at(out)) / seconds[out] - 1
    assert np.median(np.abs(off[across])) < 0.05
    assert np.median(np.abs(off[~across])) < 0.05


def test_layouts_whose_neighbours_are_disturbed_are_predicted_so() -> None:
    # Each micro-step of a pipeline over nodes stalls for 0.5 s.
    layouts = planted()
    across = (layouts.pipeline > 1) & (layouts.workers > 8)
    seconds = noisy(layouts, disturbed=0.0)[0] + 0.5 * across * (layouts.accumulation + layouts.pipeline - 1)
    off = np.zeros(len(seconds))
    for out in held_out(layouts):
        off[out] = LayoutModel.fit(layouts.at(~out), seconds[~out]).seconds(layouts.at(out)) / seconds[out] - 1
    assert np.median(np.abs(off[across])) < 0.1
    assert np.median(np.abs(off[~across])) < 0.05


def test_a_layout_like_disturbed_ones_takes_as_long_as_they_did() -> None:
    layouts = planted()
    model = LayoutModel.fit(layouts, truth(layouts)[0])
    alike = layouts.at(np.array([7, 7, 7]))
    quiet, slow = (
        replace(model, layouts=alike, clean=np.zeros(3), residuals=np.full(3, np.log(more))) for more in (1, 4)
    )
    assert slow.seconds(alike) == pytest.approx(4 * quiet.seconds(alike))


def test_intervals_hold_what_differs_from_count_to_count() -> None:
    # Each worker count is slower or faster than any model of layouts explains, or some runs are disturbed.
    inside = []
    for seed, (disturbed, counts) in enumerate([(0.0, 0.0), (0.1, 0.1), (0.0, 0.2), (0.3, 0.0)] * 3):
        random = np.random.default_rng(seed)
        layouts = planted().at(random.random(len(planted())) < 0.6)
        shifts = dict(zip(np.unique(layouts.workers), random.normal(0, counts, 4), strict=True))
        slow = np.where(random.random(len(layouts)) < disturbed, random.uniform(3, 10, len(layouts)), 1.0)
        shifted = np.array([shifts[workers] for workers in layouts.workers])
        seconds = truth(layouts)[0] * slow * np.exp(shifted + random.normal(0, 0.05, len(layouts)))
        known, asked = layouts.workers <= 32, np.flatnonzero(layouts.workers == 64)
        rehearsal = rehearse(layouts.at(known), seconds[known], 2.0)
        took = LayoutModel.fit(layouts.at(known), seconds[known]).seconds(layouts.at(asked))
        usable = BATCH / took >= USABLE * (BATCH / took).max()
        low, high = np.array([rehearsal.factors(usable=bool(one)) for one in usable]).T
        inside.append(float(((took / seconds[asked] >= low) & (took / seconds[asked] <= high)).mean()))
    assert 0.85 <= np.mean(inside) <= 0.97


def rows(layouts: Layouts) -> str:
    """Rows without a rate."""
    columns = (layouts.workers / 8, layouts.data, layouts.pipeline, layouts.tensor, layouts.zero, layouts.micro_batch,
               layouts.accumulation, layouts.batch)  # fmt: skip
    lines = (",".join(f"{value:g}" for value in row) for row in zip(*columns, strict=True))
    return "".join(f"7B,{line},,\n" for line in lines)


def test_the_layout_for_twice_as_many_nodes_is_chosen_from_a_shortlist_that_fits_into_memory(
    tmp_path: Path,
) -> None:
    layouts = planted()
    seconds, gigabytes = noisy(layouts, disturbed=0.1)
    content, there = text(layouts, seconds, gigabytes), candidates(layouts, 128)
    (among_all,) = answers(tmp_path, content, workers=(128,))
    assert among_all.verdict == "undecided"
    fits = truth(there)[1] <= 0.9 * gigabytes.max()
    best = (there.batch / truth(there)[0])[fits].max()
    five = among_all.fits.split("; ")
    assert len(five) == 5
    assert among_all.words.count(";") == 5
    # The fastest that fits, and others that are clearly slower.
    order = np.argsort(there.batch[fits] / truth(there.at(fits))[0])[::-1]
    (one,) = answers(tmp_path, content + rows(there.at(fits).at(order[::6][:8])))
    assert one.verdict == ""
    assert one.low is not None
    assert one.high is not None
    assert one.value == pytest.approx(best, rel=0.05)
    assert one.low < best < one.high
    assert "dp " in one.words
    assert any("disturbed, and not fitted" in note for note in one.notes)


def test_rows_without_a_rate_are_the_candidates(tmp_path: Path) -> None:
    layouts, asked = planted((1, 2, 4)), planted((8,))
    seconds, gigabytes = noisy(layouts, disturbed=0.1)
    some = asked.at(np.array([0, 9, 30]))
    (one,) = answers(tmp_path, text(layouts, seconds, gigabytes) + rows(some))
    best = int(truth(some)[0].argmin())
    assert one.subject == "7B, 64 workers"
    assert one.value == pytest.approx((some.batch / truth(some)[0])[best], rel=0.05)


def test_rates_that_no_layout_explains_choose_nothing(tmp_path: Path) -> None:
    layouts = planted((1, 2, 4))
    seconds, gigabytes = truth(layouts)
    noise = np.exp(np.random.default_rng(1).normal(0, 1.0, len(seconds)))
    shortlist = candidates(layouts, 64).at(np.arange(8))
    (one,) = answers(tmp_path, text(layouts, seconds * noise, gigabytes) + rows(shortlist))
    assert one.verdict == "undecided"
    assert "cannot be told" in one.words
    assert one.value is None
    assert len(one.words.partition("try these 5 first: ")[2].split("; ")) == 5
    assert "70 % are asked for" in one.beyond


def test_few_layouts_and_far_counts_are_refused(tmp_path: Path) -> None:
    layouts = planted()
    content = text(layouts, *noisy(layouts))
    (far,) = answers(tmp_path, content, workers=(512,))
    assert far.words == "not predicted: more than 4 times the largest measured count"
    (few,) = answers(tmp_path, "\n".join(content.splitlines()[:9]))
    assert few.words.startswith("8 layouts are measured")


def test_columns_that_are_not_there_follow_from_the_others() -> None:
    (table,) = layout_tables.read(Document(Path("t"), (
        "gpus,tp,pp,micro batch size,global batch size,tokens/s/GPU\n16,2,4,1,32,10\n16,4,1,2,32,OOM\n16,2,2,1,32,\n"
        "16,2,2,1,2,5\n"
    )))  # fmt: skip
    first, oom, asked = table.rows
    assert (first.data, first.accumulation, first.expert, first.zero, first.rate) == (2, 16, 1, 0, 160)
    assert (oom.rate, oom.asked, asked.rate, asked.asked) == (None, False, None, True)
    assert "1 rows are left out" in table.notes[0]
    with pytest.raises(InputError, match=r"line 2: dp is 1\.5"):
        layout_tables.read(Document(Path("t"), "dp,tp,tokens/s\n1.5,2,10\n"))
    assert not layout_tables.recognised(Document(Path("t"), "dp,tokens/s\n2,10\n4,20\n"))
