"""Planted trainings of many ranks: what the slowest cost, and if a worker, a stage, sequences or data make it so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_pipelines import Pipeline
from planted_traces import Events, in_words, sent

from stallpoint_files.answer_page import to_html
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options
from stallpoint_traces.rank.rank import read_ranks
from stallpoint_traces.trace_answers import explain

RANKS, ITERATIONS = 8, 6
LOADING, FORWARD, BACKWARD, UPDATE, REDUCED = 2e-3, 10e-3, 20e-3, 1e-3, 3e-3
"""Seconds."""
EVEN = np.ones((RANKS, ITERATIONS))


def written(folder: Path, passes: np.ndarray, loading: np.ndarray = EVEN) -> list[Path]:
    """Traces of data-parallel ranks by factors of their passes and of their loading, [ranks, iterations]."""
    ready = LOADING * loading + (FORWARD + BACKWARD) * passes
    made = [Events(rank, RANKS) for rank in range(RANKS)]
    begin = 1.0
    for index in range(ITERATIONS):
        reduced = begin + ready[:, index].max() + REDUCED
        for rank, one in enumerate(made):
            now = begin + LOADING * loading[rank, index]
            one.add("user_annotation", "enumerate(DataLoader)#_Iter.__next__", begin, now - begin)
            forward, backward = (of * passes[rank, index] for of in (FORWARD, BACKWARD))
            one.kernel("gemm", now, forward)
            one.backward(now + forward, backward)
            one.kernel("gemm", now + forward, backward)
            now += forward + backward
            called = sent("allreduce", "dp", RANKS, 25_000_000)
            one.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", now, reduced - now, 21, 1e-6, **called)
            one.step(index, begin, reduced + UPDATE - begin, UPDATE)
        begin = reduced + UPDATE
    return [one.write(folder) for one in made]


def told(files: list[Path]) -> dict[str, Any]:
    found = explain(read_ranks(files))
    assert all(one["stragglers"] is None for one in found[1:])
    of: dict[str, Any] = found[0]["stragglers"]
    return of


def slower(rank: int, factor: float) -> np.ndarray:
    return EVEN * np.where(np.arange(RANKS) == rank, factor, 1.0)[:, None]


def test_one_slow_worker_is_told_from_uneven_sequences_and_data(tmp_path: Path) -> None:
    files = written(tmp_path, slower(5, 1.5))
    found = told(files)
    own = LOADING + UPDATE + (FORWARD + BACKWARD) * slower(5, 1.5)[:, 0]
    assert found["slowdown"] == pytest.approx(own.max() / own.mean(), rel=1e-3)
    assert (found["cause"], found["slowest"]) == ("worker", [5])
    assert found["shares"]["worker"] == pytest.approx(1.0, abs=1e-3)
    assert found["shares"]["data"] == pytest.approx(0.0, abs=1e-3)
    # It is slower forward and backward, not while data are read.
    longer = {(row["rank"], row["row"]): row["longer"] for row in found["cells"]}
    assert longer[5, "backward"] == pytest.approx(100 * BACKWARD * 0.5 * 7 / 8 / own.mean(), rel=1e-2)
    assert longer[5, "data wait"] == pytest.approx(0.0, abs=0.1)
    explained = explain_files(list(map(str, files)), Options())
    assert "Mending rank 5 alone would save 100 % of that" in explained.answers[0].words
    assert explained.answers[0].is_bad
    page = to_html(explained)
    assert "Which rank takes longer than others, and where" in page


def test_sequences_of_uneven_length_make_another_rank_the_slowest_each_time(tmp_path: Path) -> None:
    lengths = np.random.default_rng(1).uniform(0.5, 1.5, EVEN.shape)
    found = told(written(tmp_path, lengths))
    own = LOADING + UPDATE + (FORWARD + BACKWARD) * lengths
    assert found["slowdown"] == pytest.approx(own.max(0).mean() / own.mean(), rel=1e-3)
    assert found["cause"] == "sequences"
    saved = (own.max(0).mean() - own.mean(1).max()) / (own.max(0).mean() - own.mean())
    assert found["shares"]["sequences"] == pytest.approx(saved, abs=1e-2)
    assert found["shares"]["worker"] < 0.5


def test_waiting_for_mini_batches_is_data_even_on_one_worker(tmp_path: Path) -> None:
    files = written(tmp_path, EVEN, np.where(np.arange(RANKS) == 2, 6.0, 1.0)[:, None] * EVEN)
    found = told(files)
    assert (found["cause"], found["slowest"]) == ("data", [2])
    assert found["shares"]["data"] == pytest.approx(1.0, abs=1e-2)
    assert "Mending waiting for mini-batches alone would save 100 %" in in_words(explain(read_ranks(files)))


@pytest.mark.parametrize(("slow", "cause"), [({3: 1.5}, "last stage"), ({1: 1.5}, "stage 1")])
def test_a_slow_last_stage_is_told_from_another_one(slow: dict[int, float], cause: str, tmp_path: Path) -> None:
    pipeline = Pipeline("1F1B", 4, 8, slow=slow)
    explained = explain(read_ranks([pipeline.make(rank // 2, rank).write(tmp_path) for rank in range(8)]))
    found = explained[0]["stragglers"]
    even = Pipeline("1F1B", 4, 8, part=1 + 0.5 / 4)
    assert found["slowdown"] == pytest.approx(pipeline.seconds / even.seconds, rel=0.05)
    assert found["cause"] == cause
    assert {(row["row"], row["column"]) for row in found["cells"]} == {
        (f"stage {stage}", column) for stage in range(4) for column in range(2)
    }
    assert found["shares"][cause] == pytest.approx(1.0, abs=0.05)
    # The first stage ends last, as its backward passes do, and others wait for it with the gradients' norm.
    assert "Of 8 ranks rank 0 comes last" in in_words(explained)
    assert found["shares"]["worker"] < 0.1  # another rank of the same stage is as slow


def test_even_ranks_do_not_straggle(tmp_path: Path) -> None:
    files = written(tmp_path, EVEN)
    assert told(files)["slowdown"] == pytest.approx(1.0)
    assert "None of these 8 ranks straggles" in in_words(explain(read_ranks(files)))
    assert "None of these 2 of 8 ranks straggles" in in_words(explain(read_ranks(files[:2])))
