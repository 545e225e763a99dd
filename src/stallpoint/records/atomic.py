"""Files and folders that appear complete or not at all: written under another name in the same folder, then renamed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from stallpoint.errors import Unavailable, refusal


@contextmanager
def atomic(target: Path) -> Iterator[Path]:
    """Yield a path to write to instead of `target` (file or folder), renamed to it when the block succeeds.

    An existing folder is replaced at once, never file by file. A full disk or a read-only folder raises `Unavailable`
    with the target's name, and a half-written target is removed.
    """
    with _named(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=scratch_prefix(target.name), dir=target.parent))
    try:
        with _named(target):
            yield scratch / target.name
            if target.is_dir():
                _exchange(scratch / target.name, target, scratch / f"{target.name}.before")
            else:
                os.replace(scratch / target.name, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def scratch_prefix(name: str) -> str:
    """Return the prefix of the hidden folder in which this process writes `name`; it identifies the process."""
    return f".{name}.{socket.gethostname()}.{os.getpid()}."


_SCRATCH = re.compile(r"\..+\.(?P<pid>\d+)\.\w{8}")


def remove_scraps(folder: Path, apart: Container[str] = ()) -> None:
    """Remove half-written files and folders of this machine's killed processes below `folder`.

    Subfolders whose names are in `apart` are skipped.
    """
    for place, inside, _ in os.walk(folder):
        for name in inside:
            writer = _SCRATCH.fullmatch(name)
            here = writer and f".{socket.gethostname()}.{writer['pid']}." in name
            if writer and here and not Path("/proc", writer["pid"]).exists():
                shutil.rmtree(Path(place, name), ignore_errors=True)
        inside[:] = [name for name in inside if name not in apart and not name.startswith(".")]


def _exchange(new: Path, target: Path, before: Path) -> None:
    """Replace the folder `target` by `new`, and move the old folder to `before`; after a failure the old one stays."""
    os.rename(target, before)
    try:
        os.rename(new, target)
    except OSError:
        os.rename(before, target)
        raise


@contextmanager
def _named(target: Path) -> Iterator[None]:
    """Raise `Unavailable`, which names the `target`, if the file system refuses an operation in the block."""
    try:
        yield
    except OSError as error:
        if why := refusal(error):
            raise Unavailable(f"{target}: {why}; nothing was written") from error
        raise
