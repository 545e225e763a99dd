"""Packages beside the core can be deleted: the rest runs, and says what is missing.

That nothing in the core imports them is in `test_house`; a study without them in `tests/workflow`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import forked
import pytest
from house import CORE, EXTRAS, ROOT

Run = Callable[..., subprocess.CompletedProcess[str]]
RATES = "gpus,images/s\n1,100\n2,190\n4,340\n8,342\n16,335\n"
NEEDS = {"stallpoint_files": {"stallpoint_files", "stallpoint_traces"}}
"""What goes with a package, as it needs it."""


@pytest.fixture
def without(tmp_path: Path) -> Callable[[str], Run]:
    """Give a function that runs Python where a package beside the core was deleted."""

    def delete(package: str) -> Run:
        gone = NEEDS.get(package, {package})
        for name in {CORE, *EXTRAS} - gone:
            (tmp_path / name).symlink_to(ROOT / "src" / name)
        variables = {**os.environ, **forked.environment(str(tmp_path)), "ALONE": str(tmp_path)}

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, *arguments]
            return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=variables)

        return run

    return delete


def test_files_are_answered_without_traces_and_papers(without: Callable[[str], Run], tmp_path: Path) -> None:
    run = without("stallpoint_traces")
    (tmp_path / "rates.csv").write_text(RATES)
    (tmp_path / "trace.json").write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X"}]}')
    told = run("-m", "stallpoint.cli", "explain", "rates.csv")
    assert told.returncode == 1, told.stderr
    assert "stops getting faster at 4" in told.stdout
    refused = run("-m", "stallpoint.cli", "explain", "trace.json")
    assert refused.returncode == 2
    assert "trace.json: may be a trace of a profiler, and stallpoint_traces is not installed" in refused.stderr
    shutil.rmtree(tmp_path / "stallpoint_papers", ignore_errors=True)
    (tmp_path / "stallpoint_papers").unlink(missing_ok=True)
    assert run("-m", "stallpoint.cli", "explain", "rates.csv").stdout == told.stdout


def test_the_program_names_the_package_that_a_file_needs(without: Callable[[str], Run], tmp_path: Path) -> None:
    run = without("stallpoint_files")
    (tmp_path / "rates.csv").write_text(RATES)
    for command in (["explain", "rates.csv"], ["compare", "rates.csv", "rates.csv"]):
        refused = run("-m", "stallpoint.cli", *command)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "stallpoint_files is not installed" in refused.stderr
