"""Caches go below the results where the home folder takes none, and stay where they are otherwise."""

import os
from pathlib import Path

import pytest

from stallpoint.schedule.without_home import CACHE_VARIABLES, keep_caches


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in CACHE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def variables() -> dict[str, str]:
    return {name: os.environ[name] for name in CACHE_VARIABLES if name in os.environ}


@pytest.mark.parametrize("given", ["", "/proc/no/cache"])
@pytest.mark.parametrize("home", ["/proc/no/home", "file"])
def test_where_home_takes_nothing_caches_go_below_the_results(
    home: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", home if home.startswith("/") else str(tmp_path / home))
    monkeypatch.setenv("MPLCONFIGDIR", "/chosen")
    keep_caches(Path("results/.cache"))
    cache = str(tmp_path / "results/.cache")
    assert variables() == {
        "XDG_CACHE_HOME": f"{cache}", "MPLCONFIGDIR": "/chosen", "NUMBA_CACHE_DIR": f"{cache}/numba",
        "TRITON_CACHE_DIR": f"{cache}/triton",
    }  # fmt: skip
    assert not (tmp_path / "results").exists(), "made by who needs it"


@pytest.mark.parametrize("given", ["", "elsewhere"])
def test_a_home_or_a_cache_that_takes_them_keeps_them(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/proc/no/home" if given else str(tmp_path))
    if given:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / given))
    keep_caches(Path("results/.cache"))
    assert set(variables()) <= {"XDG_CACHE_HOME"}
