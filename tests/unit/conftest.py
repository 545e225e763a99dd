"""The report of a made-up study, and four ranks, for several files of tests.

Tests beside each other (pytest-xdist): each process computes on one core, or they would wait for each other.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # before anything computes

import once as once_for_all
from report_samples import LEFT_OUT, Tables, study
from resident_ranks import Ranks

from stallpoint.base.section import Section
from stallpoint.questions.all_questions import sections
from stallpoint.questions.study_tables import StudyTables
from stallpoint.report.report import write_report


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> once_for_all.Once:
    """Fits of planted studies, and what else takes seconds: made once for all processes of a run."""
    return once_for_all.in_folder(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def tables(once: once_for_all.Once) -> Tables:
    return once(study)


@pytest.fixture(scope="session")
def said(tables: Tables) -> list[Section]:
    """What the questions say of that study."""
    return list(sections(StudyTables(tables, excluded=LEFT_OUT)))


@pytest.fixture(scope="session")
def report(tables: Tables, said: list[Section], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(said, tables, path, study="laptop")
    return path


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Four ranks that wait for functions; started when the first test asks them."""
    found = Ranks()
    yield found
    found.end()
