"""Numbers of workers that names of files say."""

from __future__ import annotations

import pytest

from stallpoint_files.training.logged_counts import counts_in_name


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("8gpus.log", (8, None)),
        ("run_ngpus-16.txt", (16, None)),
        ("verl-2nodes.log", (None, 2)),
        ("2nodes_8gpus.log", (None, 2)),  # 8 may be each node's
        ("gpu1.log", (None, None)),  # the second GPU's
        ("rank3.log", (None, None)),
        ("loader_8workers.log", (None, None)),  # may be a data loader's
        ("4gpus-vs-8gpus.log", (None, None)),
        ("train.log", (None, None)),
        ("1-gpu.log", (1, None)),
        ("job-4021-gpu.log", (None, None)),
    ],
)
def test_a_file_name_says_how_many_workers_or_nodes(name: str, found: tuple[int | None, int | None]) -> None:
    assert counts_in_name(name) == found
