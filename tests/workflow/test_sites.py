"""A study is measured on sites that lack what most have; those with networks of their own: test_namespaces.py."""

import os
from collections.abc import Iterator
from pathlib import Path

import forked
import pytest
from checkout import Checkout
from kills import NETWORK, STUDY, TARGET

from stallpoint.records.parquet import read
from stallpoint.records.tables import ENVIRONMENTS, RUNS


@pytest.fixture
def one_core() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("one_core")
def test_without_a_home_and_with_one_core_a_study_of_two_is_measured(tmp_path: Path) -> None:
    study = Checkout(tmp_path, STUDY)
    (tmp_path / "mine.py").write_text(NETWORK)
    variables = {"HOME": "/proc/no/home", **forked.environment(study.library)}
    with study.start_snakemake("-n", TARGET, **variables) as planning:
        text, _ = planning.communicate()
    assert "job local computes with 2 threads at once and may use 1 core" in text, text
    with study.start_snakemake(TARGET, **variables) as running:
        text, _ = running.communicate()
    assert running.returncode == 0, text
    assert "Traceback" not in text
    assert list(study.results("tables").parent.parent.glob(".cache/*")), "caches go below the results"
    assert read(RUNS, study.folder / TARGET)["status"].to_pylist() == ["ok", "ok"]
    rows = [read(ENVIRONMENTS, file).to_pylist() for file in study.results("raw").rglob("environments.parquet")]
    assert {(len(one), row["cores_available"], row["interface"]) for one in rows for row in one} == {
        (1, 1, ""), (2, 1, "lo")
    }  # fmt: skip
