"""The storage node of the test cluster: a host with a GlusterFS volume, which nodes mount (FUSE), and a database.

Its traffic passes the storage node's link and the nodes' own, on which gradients travel as well. The daemons' fixed
places (`PRIVATE`) are folders of the cluster's own on this host alone, so a GlusterFS of the machine is left alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from hosts import HOME, LOGS, Host, accepts_connections, processes_in, start, wait_until

NAME = "storage"
VOLUME = HOME / "volume"
"""Where the nodes have the volume; on this machine itself the folder is empty."""
DATA = "data"  # what GlusterFS calls the volume
PROGRAMS = ("glusterd", "gluster", "glusterfs", "mount.glusterfs", "redis-server")
PRIVATE = {"/run": "run", "/var/lib/glusterd": "glusterd", "/var/log/glusterfs": "log"}
"""Folders of GlusterFS's daemons and what takes their place, below the host's disk."""
MANAGEMENT_PORT = 24007  # GlusterFS's own default
BRICK = "glusterfsd"  # the program that serves the data
DATABASE_PORT = 6379  # Redis' own default
START_TIME, STOP_TIME = 300.0, 120.0  # s until the volume has to be served, and its processes gone

OPTIONS = {
    # Caches in the client's memory: without them a page that is dropped from the kernel's comes over the link again.
    "performance.io-cache": "off",
    "performance.quick-read": "off",
    # s until a client that hears nothing of the server gives up (42, else): tests take it away.
    "network.ping-timeout": "5",
}
SERVE = """
redis-server --bind $ADDRESS --port $PORT --protected-mode no --dir $DATABASE_FOLDER --appendonly yes &
volume() { gluster --mode=script volume "$@"; }
glusterd --log-level=WARNING
until volume list; do sleep 0.1; done
if ! volume info $NAME; then
    volume create $NAME $ADDRESS:$BRICK_FOLDER force
    for option in $OPTIONS; do volume set $NAME ${option%=*} ${option#*=}; done
fi
volume start $NAME force
"""


def obstacle() -> str | None:
    """Why no volume can be served here, or None where it can."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"{', '.join(missing)} not found: run tests/cluster/install.sh"
    return None if Path("/dev/fuse").exists() else "the volume is mounted by FUSE, and this machine has no /dev/fuse"


def serve(host: Host) -> None:
    """Start the daemons on a host that is connected, and the volume; each that was served before has what it had."""
    VOLUME.mkdir(exist_ok=True)
    brick, database = host.disk / "brick", host.disk / "database"
    for folder in (brick, database):
        folder.mkdir(parents=True, exist_ok=True)
    before = []
    for place, name in PRIVATE.items():
        own = LOGS / "glusterfs" if name == "log" else host.disk / name
        own.mkdir(parents=True, exist_ok=True)
        before.append(f"mkdir -p {place} && mount --bind {own} {place}")
    options = " ".join(f"{name}={value}" for name, value in OPTIONS.items())
    log = LOGS / "storage.log"
    start(
        host, "sh", "-euc", f"exec >>{log} 2>&1\n{SERVE}", before=before,
        NAME=DATA, ADDRESS=host.address, BRICK_FOLDER=brick, OPTIONS=options,
        PORT=DATABASE_PORT, DATABASE_FOLDER=database,
    )  # fmt: skip
    wait_until(lambda: is_served(host), START_TIME, f"the volume is not served; see {log} and {LOGS / 'glusterfs'}")


def stop(host: Host) -> None:
    """Take the volume's server away as a crash does: clients find no file there until it is served again."""
    wait_until(lambda: not _kill(host), STOP_TIME, "the volume's server does not end")


def is_served(host: Host) -> bool:
    """Whether the volume can be mounted and the database asked."""
    if not all(accepts_connections(host.address, port) for port in (MANAGEMENT_PORT, DATABASE_PORT)):
        return False
    return any(_program(process) == BRICK for process in processes_in(host.namespace))


def mounting(host: Host) -> Sequence[str]:
    """The commands that mount the volume of `host` on another one, before its daemon starts; it is seen there alone."""
    log = f"log-file={LOGS}/volume-$(hostname).log,log-level=WARNING"
    return [f"mount -t glusterfs -o {log} {host.address}:/{DATA} {VOLUME}"]


def _kill(host: Host) -> list[int]:
    found = processes_in(host.namespace)
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return found


def _program(process: int) -> str:
    """The name of its program; empty where it has ended."""
    with contextlib.suppress(OSError):
        return Path(Path("/proc", str(process), "cmdline").read_text().split("\0")[0]).name
    return ""
