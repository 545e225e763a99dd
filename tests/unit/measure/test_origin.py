"""Where bytes came from: the rules against made-up counters, and planted caches on real file systems."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallpoint.measure.jobs.storage_reads import drop
from stallpoint.measure.machine.origin import Counters, Source, origin, server_cache
from stallpoint.records.origins import ORIGINS, in_words, is_uncached

MB = 1_000_000
NFS = """device rootfs mounted on / with fstype rootfs
device fs1:/data mounted on /mnt/training\\040set with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tage:\t1134
\tevents:\t37 126 28 103 33 10 12 15 28 35 58 56 3
\tbytes:\t23206 22976 0 0 {read} 22976 718 717
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
"""
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 999999999    10    0    0    0     0          0         0   999999999     10    0    0    0     0       0       0
  eth0: {read}    10    0    0    0     0          0         0     1000     10    0    0    0     0       0       0
"""  # noqa: E501
MOUNTS = """22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
40 22 0:50 / /mnt/training\\040set rw,relatime shared:2 - nfs4 fs1:/data rw
41 22 0:51 / /mnt/gluster rw,relatime - fuse.glusterfs server:/volume rw
42 22 0:52 / /tmp rw - tmpfs tmpfs rw
43 22 0:53 / /mnt/overlay rw - overlay overlay rw
44 22 43:0 / /mnt/nbd rw - ext4 /dev/nbd0 rw
45 22 9:0 / /mnt/array rw - xfs /dev/md0 rw
"""


class Kernel:
    """A made-up /proc and /sys of a machine that is nobody's guest."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/self/mountinfo", MOUNTS)
        self.write("proc/cpuinfo", "processor : 0\nflags : fpu sse\n")
        for number, name in (("259:2", "nvme0n1p2"), ("43:0", "nbd0"), ("9:0", "md0"), ("8:0", "sda"), ("8:16", "sdb")):
            (root / "sys/block" / name).mkdir(parents=True)
            (root / "sys/dev/block").mkdir(parents=True, exist_ok=True)
            (root / "sys/dev/block" / number).symlink_to(root / "sys/block" / name)
        for member in ("sda", "sdb"):
            (root / "sys/block/md0/slaves").mkdir(exist_ok=True)
            (root / "sys/block/md0/slaves" / member).symlink_to(root / "sys/block" / member)
        self.count()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def count(self, *, process: int = 0, server: int = 0, network: int = 0, **devices: int) -> None:
        self.write("proc/self/io", f"rchar: 5\nread_bytes: {process}\nwrite_bytes: 0\n")
        self.write("proc/self/mountstats", NFS.format(read=server))
        self.write("proc/net/dev", NET.format(read=network))
        for name in ("nvme0n1p2", "nbd0", "md0", "sda", "sdb"):
            self.write(f"sys/block/{name}/stat", f"1 0 {devices.get(name, 0) // 512} 0 0 0 0 0 0 0 0")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def judged(kernel: Kernel, path: str, resident: float | None = 0.0, **moved: int) -> tuple[Source, str]:
    source = Source(Path(path), kernel.root)
    before = source.read()
    kernel.count(**moved)
    return source, origin(source, source.read().since(before), 512_000, 1_024_000, resident)


@pytest.mark.parametrize(
    ("path", "resident", "moved", "locality", "found"),
    [
        ("/data", 0.0, {"process": 512_000, "nvme0n1p2": 1_024_000}, "local", "local device"),
        ("/data", 0.0, {"process": 300_000}, "local", "mixed"),
        ("/data", 1.0, {}, "local", "page cache"),
        ("/data", None, {"network": 1_024_000}, "local", "page cache"),
        ("/tmp/data", 1.0, {}, "local", "page cache"),
        ("/mnt/array/a", 0.0, {"process": 512_000, "md0": 1_024_000, "sda": 512_000, "sdb": 512_000}, "local",
         "local device"),
        ("/mnt/array/a", 0.0, {"process": 512_000, "md0": 1_024_000}, "local", "server cache"),
        ("/mnt/array/a", 0.0, {"process": 512_000, "md0": 1_024_000, "sda": 512_000}, "local", "mixed"),
        ("/mnt/nbd/a", 0.0, {"process": 512_000, "nbd0": 1_024_000, "network": 1_024_000}, "shared", "network"),
        ("/mnt/training set/a", 0.0, {"server": 1_024_000, "network": 1_100_000}, "shared", "network"),
        ("/mnt/training set/a", None, {"server": 0, "network": 1_100_000}, "shared", "page cache"),
        ("/mnt/training set/a", None, {"server": 512_000}, "shared", "mixed"),
        ("/mnt/gluster/a", 0.0, {"network": 1_024_000}, "shared", "network"),
        ("/mnt/gluster/a", None, {"network": 1_024_000}, "shared", "network"),
        ("/mnt/gluster/a", 0.5, {"network": 1_024_000}, "shared", "unknown"),  # of others, perhaps
        ("/mnt/gluster/a", 0.0, {}, "shared", "unknown"),  # from a server on this node, or over what nobody counts
        ("/mnt/gluster/a", 1.0, {}, "shared", "page cache"),
        ("/mnt/overlay/a", 0.0, {"process": 512_000}, "unknown", "local device"),
        ("/mnt/overlay/a", None, {}, "unknown", "unknown"),
    ],
)  # fmt: skip
def test_counters_tell_where_bytes_came_from(
    kernel: Kernel, path: str, resident: float | None, moved: dict[str, int], locality: str, found: str
) -> None:
    source, came_from = judged(kernel, path, resident, **moved)
    assert (source.locality, came_from) == (locality, found)


def test_a_counter_that_was_reset_or_is_not_there_tells_nothing(kernel: Kernel) -> None:
    before = Counters(process=10, device=5, network=7)
    assert Counters(process=4, device=9, server=3, network=7).since(before) == Counters(device=4, network=0)
    (kernel.root / "proc/self/io").unlink()
    source = Source(Path("/data"), kernel.root)
    assert source.read().process is None
    assert origin(source, Counters(), 512, 512, 0.0) == "unknown"
    assert origin(source, source.read(), 0, 0, None) == "unknown"


def test_infiniband_is_a_network(kernel: Kernel) -> None:
    kernel.write("sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "1000\n")
    assert Source(Path("/data"), kernel.root).read().network == 4000


def test_what_a_server_keeps_is_unknown_until_the_set_is_five_times_its_memory(kernel: Kernel) -> None:
    source = Source(Path("/mnt/training set"), kernel.root)
    assert server_cache(source, "network", 500 * MB, None) == "unknown"
    assert server_cache(source, "network", 499 * MB, 100 * MB) == "unknown"
    assert server_cache(source, "network", 500 * MB, 100 * MB) == "excluded"
    assert server_cache(source, "page cache", 500 * MB, None) == ""


def test_a_guests_disk_may_be_its_hosts_cache(kernel: Kernel) -> None:
    assert server_cache(Source(Path("/data"), kernel.root), "local device", 1, None) == "none"
    kernel.write("proc/cpuinfo", "processor : 0\nflags : fpu hypervisor sse\n")
    assert server_cache(Source(Path("/data"), kernel.root), "local device", 1, None) == "unknown"


def test_only_what_came_from_a_storage_whose_caches_are_known_is_its_speed() -> None:
    told = {(came, beyond) for came in ORIGINS for beyond in ("", "none", "excluded", "seen", "unknown")}
    speeds = {pair for pair in told if is_uncached(*pair)}
    assert speeds == {(came, beyond) for came in ("local device", "network") for beyond in ("none", "excluded")}
    assert "cache" not in in_words("local device", "none")
    assert all("from the" not in in_words(*pair) or "cache" in in_words(*pair) for pair in told - speeds)


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A file system in a file: its device is a server, and the page cache of the file is the server's cache."""
    backing, folder = tmp_path / "disk.img", tmp_path / "mounted"
    backing.write_bytes(bytes(32 * MB))
    folder.mkdir()
    device = subprocess.run(
        ["losetup", "-f", "--show", backing], capture_output=True, text=True, check=True
    ).stdout.strip()
    try:
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        subprocess.run(["mount", device, folder], check=True)
        try:
            yield folder, backing
        finally:
            subprocess.run(["umount", folder], check=True)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


def read(source: Source, path: Path) -> str:
    before = source.read()
    data = path.read_bytes()
    return origin(source, source.read().since(before), len(data), len(data), None)


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/loop-control").exists(), reason="mounts a file as root")
def test_planted_caches_of_client_and_server_are_told_apart(loop: tuple[Path, Path]) -> None:
    folder, backing = loop
    file = folder / "samples"
    file.write_bytes(os.urandom(4 * MB))
    source = Source(file)
    seen = Source(backing).type not in ("tmpfs", "ramfs")  # of memory there is no disk that could be seen to rest
    drop({file})  # the server keeps what it was given
    came_from = read(source, file)
    assert came_from == ("server cache" if seen else "local device")
    assert server_cache(source, came_from, 4 * MB, None) == ("seen" if seen else "unknown")
    assert read(source, file) == "page cache"
    drop({file})
    drop({backing})
    assert read(source, file) == "local device"


def test_a_file_on_this_machines_disk_is_read_from_it_once(tmp_path: Path) -> None:
    file = tmp_path / "samples"
    file.write_bytes(os.urandom(4 * MB))
    source = Source(file)
    assert source.locality in ("local", "unknown")
    drop({file})
    cold = read(source, file)
    assert cold == ("page cache" if source.type in ("tmpfs", "ramfs") else "local device")
    assert read(source, file) in ("page cache", "unknown")
