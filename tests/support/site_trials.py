"""Emulated sites, and cells of every kind that die: their tests as trials, those for the night too.

``python -m site_trials [--only NAME ...]`` prints one JSON line for each of `FILES` (`Tally`).
"""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

import pytest
from tally import ROOT, Tally, tell

FILES = {
    "sites": "tests/workflow/test_sites.py",
    "networks of two nodes": "tests/unit/strategies/test_namespaces.py",
    "full disk": "tests/workflow/test_full_disk.py",
    "deaths": "tests/workflow/test_dying.py",
}


class Outcomes:
    """A plugin of pytest that counts tests, and those that fail."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tally.trials += report.when == "call"
        if report.failed:
            self.tally.lost += 1
            self.tally.red.append(f"{report.nodeid}: {report.longreprtext[-600:]}")


def trial(name: str) -> Tally:
    """Run the tests of one file."""
    outcomes = Outcomes(Tally("sites", name))
    with redirect_stdout(sys.stderr):
        status = pytest.main(["-q", "-p", "no:cacheprovider", str(ROOT / FILES[name])], [outcomes])
    if status and not outcomes.tally.red:
        outcomes.tally.red.append(f"{FILES[name]}: pytest ended with status {int(status)}")
    return outcomes.tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=FILES, default=[*FILES], help="names of FILES")
    tell(map(trial, parser.parse_args().only))


if __name__ == "__main__":
    main()
