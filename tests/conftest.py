"""Settings of all tests."""

import gc
import os
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes depends on what else the machine does. By day a run is the same each time; the night looks
# for more (`lanes.py` gives pytest the option).
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("day", settings.get_profile("any"), max_examples=20, derandomize=True)
settings.register_profile("night", settings.get_profile("any"), max_examples=150)
settings.load_profile("day")

# What a shell starts in the background ignores Ctrl-C, and so does all that it starts; tests may run there.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files of all that tests start where pytest removes old ones: what is killed leaves its own."""
    os.environ["TMPDIR"] = tempfile.tempdir = str(config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """Leave what was imported out of every collection of garbage, of which pytest makes five at the end."""
    gc.freeze()


@pytest.fixture
def one_core() -> Iterator[None]:
    """This process, and what it starts, may use one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)
