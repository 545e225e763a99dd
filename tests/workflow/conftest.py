"""Checkouts of the workflow with a tiny study, for this machine."""

from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import TINY, Checkout

CHECKOUTS = ("finished", "imported", "planned", "study", "extended", "measured")
"""Fixtures in which several tests run studies."""


@pytest.fixture(scope="session")
def new_checkout(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Checkout]:
    """Makes checkouts: ``new_checkout(**changes)`` holds the tiny study with some entries changed."""
    return lambda **changes: Checkout(tmp_path_factory.mktemp("checkout"), {**TINY, **changes})


@pytest.fixture(scope="session")
def finished(new_checkout: Callable[..., Checkout]) -> Checkout:
    """A checkout whose study has been run to the end."""
    checkout = new_checkout()
    ran = checkout.snakemake()
    assert ran.status == 0, ran.text
    checkout.said = ran.text
    return checkout


@pytest.fixture(scope="session")
def planned(new_checkout: Callable[..., Checkout]) -> Checkout:
    """A checkout in which nothing is measured."""
    return new_checkout()


@pytest.fixture(scope="session")
def archive(finished: Checkout) -> Path:
    """The archive of the finished study."""
    finished.write_study()
    ran = finished.snakemake("--logger-stallpoint-plain", "archive")
    assert ran.status == 0, ran.text
    assert ran.jobs == {"archive": 1}, "nothing is measured or drawn again for it"
    assert ran.text.count("to measure now") == 1, "its inner run, which leaves names out, says nothing"
    return finished.folder / "archives/tiny.zip"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of one checkout stay in one process (pytest-xdist), one after the other."""
    for item in items if config.pluginmanager.hasplugin("xdist") else []:
        checkouts = [name for name in CHECKOUTS if name in getattr(item, "fixturenames", ())]
        if checkouts:
            item.add_marker(pytest.mark.xdist_group(checkouts[0]))
