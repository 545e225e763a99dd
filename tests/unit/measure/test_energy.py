"""Energy of a node by recorded trees of /sys/class/powercap: sums, wrap-around, and what cannot be read."""

import time
from pathlib import Path

import pytest

from stallpoint.measure.machine import energy
from stallpoint.measure.machine.energy import POWERCAP, EnergyMeter

RANGE = 262_143_328_850
"""``max_energy_range_uj`` of a server."""
ZONES = {
    "intel-rapl:0": ("package-0", 1_000_000),
    "intel-rapl:0:0": ("core", 400_000),
    "intel-rapl:0:1": ("dram", 300_000),
    "intel-rapl:1": ("package-1", RANGE - 5_000_000),
    "intel-rapl:2": ("psys", 77),
    "intel-rapl-mmio:0": ("package-0", 1_000_000),
}
"""Name and counter of each zone: two sockets, of which one has counters of memory; the platform as a whole; and one
package once more by its registers in memory."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for zone, (name, counter) in ZONES.items():
        folder = tmp_path / POWERCAP / zone
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{RANGE}\n")
        (folder / "energy_uj").write_text(f"{counter}\n")
    (tmp_path / POWERCAP / "intel-rapl").mkdir()
    (tmp_path / POWERCAP / "intel-rapl/enabled").write_text("1\n")
    return tmp_path


def use(root: Path, **microjoules: int) -> None:
    """Let the zones of these names (dashes as underscores) count on; as in /sys, no reader finds a file empty."""
    for zone, (name, _) in ZONES.items():
        file, new = root / POWERCAP / zone / "energy_uj", root / "new"
        new.write_text(str((int(file.read_text()) + microjoules.get(name.replace("-", "_"), 0)) % RANGE))
        new.replace(file)


def test_packages_and_memory_are_added_up_and_a_counter_may_wrap_around(root: Path) -> None:
    with EnergyMeter(root) as meter:
        use(root, package_0=30_000_000, core=20_000_000, dram=2_000_000, package_1=9_000_000, psys=60_000_000)
    row = meter.row
    assert row["node_energy"] == pytest.approx(30 + 2 + 9)
    assert (row["gpu_energy"], row["not_counted"]) == (0, "")
    assert row["counted"] == "intel-rapl:0 package-0, intel-rapl:0:1 dram, intel-rapl:1 package-1"


def test_what_was_used_before_training_began_does_not_count(root: Path) -> None:
    with EnergyMeter(root) as meter:
        use(root, package_0=50_000_000)
        meter.begin()
        use(root, package_0=3_000_000)
    assert meter.row["node_energy"] == pytest.approx(3)


def test_a_long_visit_is_read_before_a_counter_wraps_around_twice(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "_MAX_WATTS", RANGE * 1e-6 * 100)
    with EnergyMeter(root) as meter:
        for used in (RANGE // 2, RANGE // 2, RANGE // 2):
            before, until = meter._zones["intel-rapl:0 package-0"]._before, time.monotonic() + 30
            use(root, package_0=used)
            while meter._zones["intel-rapl:0 package-0"]._before == before and time.monotonic() < until:
                time.sleep(0.001)
    assert meter.row["node_energy"] == pytest.approx(1.5 * RANGE * 1e-6)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_an_unreadable_counter_leaves_the_energy_unknown_and_is_named(root: Path, when: str) -> None:
    file = root / POWERCAP / "intel-rapl:1/energy_uj"
    lost = file.rename if when == "before" else None
    if lost:
        lost(root / "away")
    with EnergyMeter(root) as meter:
        use(root, package_0=1) if when == "meanwhile" else None
        if when == "meanwhile":
            file.write_text("no number\n")
    row = meter.row
    assert row["node_energy"] is None
    assert row["counted"] == "intel-rapl:0 package-0, intel-rapl:0:1 dram"
    assert row["not_counted"].startswith("intel-rapl:1 package-1: ")


def test_dies_of_a_package_are_counted_and_a_counter_without_a_range_is_not(root: Path) -> None:
    (root / POWERCAP / "intel-rapl:0/name").write_text("package-0-die-0\n")
    (root / POWERCAP / "intel-rapl:0:1/max_energy_range_uj").write_text("0\n")
    with EnergyMeter(root) as meter:
        pass
    assert meter.row["counted"] == "intel-rapl:0 package-0-die-0, intel-rapl:1 package-1"
    assert meter.row["not_counted"] == "intel-rapl:0:1 dram: max_energy_range_uj is 0"
    assert meter.row["node_energy"] is None


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    with EnergyMeter(tmp_path, gpu=0) as meter:
        pass
    row = meter.row
    assert (row["node_energy"], row["gpu_energy"], row["counted"]) == (None, None, "")
    assert row["not_counted"] == f"processors: no counters in /{POWERCAP}; GPU: no counter of NVML"
