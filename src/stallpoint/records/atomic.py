"""Files and folders that appear complete or not at all: they are written under another name and then renamed."""

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
    """Yield a scratch path for a file or folder, which is renamed to `target` when the block succeeds.

    An existing folder is replaced at once, never file by file. A full disk or a read-only folder raises `Unavailable`
    with the target's name, and a half-written target is removed.
    """
    with _naming_target(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=scratch_prefix(target.name), dir=target.parent))
    try:
        with _naming_target(target):
            yield scratch / target.name
            if target.is_dir():
                _replace_folder(scratch / target.name, target, scratch / f"{target.name}.before")
            else:
                os.replace(scratch / target.name, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def scratch_prefix(name: str) -> str:
    """Return the prefix of this process's hidden folder for `name`, with the host's name and the process id."""
    return f".{name}.{socket.gethostname()}.{os.getpid()}."


_SCRATCH = re.compile(r"\..+\.(?P<pid>\d+)\.\w{8}")


def remove_scraps(folder: Path, skipped: Container[str] = ()) -> None:
    """Remove half-written files and folders of this machine's killed processes below `folder`.

    Subfolders whose names are in `skipped` are not searched.
    """
    for parent, subfolders, _ in os.walk(folder):
        for name in subfolders:
            match = _SCRATCH.fullmatch(name)
            is_local = match and f".{socket.gethostname()}.{match['pid']}." in name
            if match and is_local and not Path("/proc", match["pid"]).exists():
                shutil.rmtree(Path(parent, name), ignore_errors=True)
        subfolders[:] = [name for name in subfolders if name not in skipped and not name.startswith(".")]


def _replace_folder(new: Path, target: Path, old: Path) -> None:
    """Move the folder `target` to `old`, and the folder `new` to `target`; if that fails, `target` stays as it was."""
    os.rename(target, old)
    try:
        os.rename(new, target)
    except OSError:
        os.rename(old, target)
        raise


@contextmanager
def _naming_target(target: Path) -> Iterator[None]:
    """Raise `Unavailable` naming the `target` if the file system refuses an operation in the block."""
    try:
        yield
    except OSError as error:
        if problem := refusal(error):
            raise Unavailable(f"{target}: {problem}; nothing was written") from error
        raise
