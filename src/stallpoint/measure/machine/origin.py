"""Origin of the bytes that a pass read (page cache, device, network, server's cache), by counters of this node.

A `Source` is the file system below a path. `Source.read` reads the kernel's counters of this file system; `origin`
decides by the difference of two readings. docs/measuring.md has the rules with their reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from stallpoint.records.origins import (
    DEVICE,
    EXCLUDED,
    MIXED,
    NETWORK,
    NONE,
    PAGE_CACHE,
    SEEN,
    SERVER_CACHE,
    UNCACHED_RATIO,
    UNKNOWN,
)

LOCAL = (
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "bcachefs", "vfat", "exfat", "ntfs3", "squashfs",
    "erofs", "iso9660", "tmpfs", "ramfs",
)  # fmt: skip
"""Types of node-local file systems."""
SHARED = (
    "nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs",
    "glusterfs", "orangefs", "pvfs2", "afs", "wekafs", "gfs2", "ocfs2", "panfs", "fuse.sshfs", "fuse.juicefs",
    "redis",
)  # fmt: skip
"""Types of file systems and database servers that nodes share."""
MEMORY = ("tmpfs", "ramfs")
"""Types of file systems whose files are only in the page cache."""
NEARLY_ALL, LITTLE = 0.9, 0.1
"""Counted share of the requested bytes from which an origin is proven, and up to which it is excluded."""
_SECTOR = 512  # bytes of a sector as /sys/block/*/stat counts them, the same for all devices
_REMOTE = ("nbd", "rbd", "drbd")
_VIRTUAL = ("vd", "xvd", "ram", "zram")


@dataclass(frozen=True, slots=True)
class Counters:
    """Bytes read so far by each counter; None if the counter is missing or not readable."""

    process: int | None = None
    """Bytes from block devices for this process (read_bytes of /proc/self/io)."""
    device: int | None = None
    """Bytes from the file system's own block device, for all processes."""
    disks: int | None = None
    """Bytes from the disks beneath this device: members of an array, or the disk that holds a loop device's file."""
    server: int | None = None
    """Bytes from the NFS server, for all processes on this mount."""
    network: int | None = None
    """Bytes received by all network interfaces of this node except the loopback, with InfiniBand."""

    def since(self, before: Counters) -> Counters:
        """Return the bytes counted since `before`; None for a counter that fell, because it was reset."""
        pairs = {field.name: (getattr(self, field.name), getattr(before, field.name)) for field in fields(self)}
        return Counters(
            **{name: None if None in (now, then) or now < then else now - then for name, (now, then) in pairs.items()}
        )


class Source:
    """Source of a training set: the file system that holds `path`, or a database `server` (kind, address).

    `root` is the folder that holds proc and sys.
    """

    def __init__(self, path: Path, root: Path = Path("/"), server: tuple[str, str] | None = None) -> None:
        self._root = root
        self.mount_point, self._number, self.type, self.mounted = ("", "", *server) if server else _mount_of(path, root)
        self._device = _device(self._number, root)
        self._disks = set(_beneath(self._device, root)) if self._device else set()

    @property
    def locality(self) -> str:
        """``local`` if only one node has the file system, ``shared`` if several nodes have it, else ``unknown``."""
        if self.type in SHARED or self.remote:
            return "shared"
        return "local" if self.type in LOCAL else "unknown"

    @property
    def remote(self) -> bool:
        """Whether the block device is reached over a network."""
        return any(
            disk.name.startswith(_REMOTE) or "/session" in str(disk) or "nvme-fabrics" in str(disk)
            for disk in self._disks
        )

    @property
    def virtual(self) -> bool:
        """Whether the disks may be virtual: then the host of the virtual machine may cache them."""
        cpuinfo = _text(self._root / "proc/cpuinfo")
        in_guest = re.search(r"^flags\b.*\bhypervisor\b", cpuinfo, re.MULTILINE) is not None
        return in_guest or not self._disks or any(disk.name.startswith(_VIRTUAL) for disk in self._disks)

    @property
    def stacked(self) -> bool:
        """Whether the device consists of other devices."""
        return bool(self._disks) and self._disks != {self._device}

    def read(self) -> Counters:
        found = re.search(r"^read_bytes: (\d+)", _text(self._root / "proc/self/io"), re.MULTILINE)
        return Counters(
            process=int(found[1]) if found else None,
            device=_bytes_read([self._device] if self._device else []),
            disks=_bytes_read(self._disks),
            server=_nfs_bytes(_text(self._root / "proc/self/mountstats"), self.mount_point),
            network=_network_bytes(self._root),
        )


def origin(source: Source, counted: Counters, asked: int, node_asked: int, resident: float | None) -> str:
    """Return the origin of a pass's bytes.

    `counted` are the counters' differences. This worker requested `asked` bytes, all workers of its node together
    `node_asked` bytes. The page cache held the share `resident` of the pass's pages before the pass.
    """
    if not asked:
        return UNKNOWN
    in_memory = source.type in MEMORY or (resident is not None and resident >= NEARLY_ALL)
    device_origin = _origin_by_count(counted.process, asked)
    if source.type in SHARED:
        if counted.server is not None:
            return _origin_by_count(counted.server, node_asked, NETWORK)
        return PAGE_CACHE if in_memory else _over_network(counted, node_asked, resident)
    if device_origin == DEVICE:
        if source.stacked and (disk_origin := _origin_by_count(counted.disks, node_asked)) != DEVICE:
            return SERVER_CACHE if disk_origin == PAGE_CACHE else disk_origin
        return NETWORK if source.remote else DEVICE
    if source.type in LOCAL or device_origin == MIXED:
        return device_origin
    return PAGE_CACHE if in_memory else _over_network(counted, node_asked, resident)


def server_cache(source: Source, came_from: str, set_bytes: int, server_memory: float | None) -> str:
    """Return whether a cache beyond this node answered: ``none`` if there is no cache, ``excluded`` if the training set
    is too large for it, ``seen`` if it answered, else ``unknown``.

    Empty if the bytes came from this node's page cache, or from an unknown origin.
    """
    if came_from in (PAGE_CACHE, UNKNOWN):
        return ""
    if came_from == SERVER_CACHE:
        return SEEN
    if came_from == DEVICE and not source.virtual:
        return NONE
    return EXCLUDED if server_memory and set_bytes >= UNCACHED_RATIO * server_memory else UNKNOWN


def _origin_by_count(counted: int | None, asked: int, beyond: str = DEVICE) -> str:
    """Return the origin of `asked` bytes, of which `counted` were not in the page cache but came from `beyond`."""
    if counted is None:
        return UNKNOWN
    if counted >= NEARLY_ALL * asked:
        return beyond
    return PAGE_CACHE if counted <= LITTLE * asked else MIXED


def _over_network(counted: Counters, node_asked: int, resident: float | None) -> str:
    """Return `NETWORK` if the counter of the network proves it, else `UNKNOWN`.

    Other programs use the network, too: so the counter proves nothing if pages were in the page cache.
    """
    proven = counted.network is not None and counted.network >= NEARLY_ALL * node_asked
    return NETWORK if proven and (resident is None or resident <= LITTLE) else UNKNOWN


def _mount_of(path: Path, root: Path) -> tuple[str, str, str, str]:
    """Return mount point, device number, type and source of the mount that holds `path`, by /proc/self/mountinfo."""
    resolved, found = path.resolve(), ("", "", "unknown", "")
    for line in _text(root / "proc/self/mountinfo").splitlines():
        # ID, parent, device, root, mount point, options, ..., "-", type, source, options of the file system
        words = line.split()
        point = _unescaped(words[4])
        # A later mount on the same point covers the earlier one.
        if resolved.is_relative_to(point) and len(point) >= len(found[0]):
            kind = words.index("-") + 1
            found = point, words[2], words[kind], _unescaped(words[kind + 1])
    return found


def _unescaped(word: str) -> str:
    """Return `word` with its octal escapes, which stand for blanks and other characters, decoded."""
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), word)


def _device(number: str, root: Path) -> Path | None:
    """Return the folder in /sys of the block device `number` (8:1, say); None if there is no such device."""
    folder = root / "sys/dev/block" / number
    return folder.resolve() if number and folder.exists() else None


def _beneath(device: Path, root: Path) -> Iterator[Path]:
    """Yield the disks beneath `device`: the members of an array, the disk of a loop device's file, else the device."""
    file = _text(device / "loop/backing_file").strip()
    if file:
        disk = _device(_mount_of(Path(file), root)[1], root)
        yield from _beneath(disk, root) if disk else ()
    elif slaves := [folder.resolve() for folder in device.glob("slaves/*")]:
        for slave in slaves:
            yield from _beneath(slave, root)
    else:
        yield device


def _bytes_read(devices: Iterable[Path]) -> int | None:
    """Return the bytes read from `devices`; None if unknown. The third number of the file ``stat`` counts sectors."""
    counted = [_text(device / "stat").split() for device in devices]
    return sum(int(words[2]) for words in counted) * _SECTOR if counted and all(counted) else None


def _nfs_bytes(mountstats: str, mount_point: str) -> int | None:
    """Return the bytes that an NFS mount got from its server: the fifth number of its line ``bytes:``
    (linux/nfs_iostat.h)."""
    for mount in re.split(r"^(?=device )", mountstats, flags=re.MULTILINE):
        head, _, rest = mount.partition("\n")
        if f" mounted on {mount_point} with fstype nfs" in _unescaped(head):
            found = re.search(r"^\s*bytes:\s+(?:\d+\s+){4}(\d+)", rest, re.MULTILINE)
            return int(found[1]) if found else None
    return None


def _network_bytes(root: Path) -> int | None:
    """Return the bytes received from the network; InfiniBand adapters count words of four bytes."""
    counted = []
    for line in _text(root / "proc/net/dev").splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            counted.append(int(numbers.split()[0]))
    for port in root.glob("sys/class/infiniband/*/ports/*/counters/port_rcv_data"):
        with suppress(ValueError):
            counted.append(4 * int(_text(port)))
    return sum(counted) if counted else None


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""
