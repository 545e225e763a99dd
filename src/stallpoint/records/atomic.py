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
    with _errors_with_target(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch_folder = Path(tempfile.mkdtemp(prefix=scratch_prefix(target.name), dir=target.parent))
    try:
        with _errors_with_target(target):
            yield scratch_folder / target.name
            if target.is_dir():
                _replace_folder(scratch_folder / target.name, target, scratch_folder / f"{target.name}.before")
            else:
                os.replace(scratch_folder / target.name, target)
    finally:
        shutil.rmtree(scratch_folder, ignore_errors=True)


def scratch_prefix(name: str) -> str:
    """Return the prefix of this process's hidden folder for `name`, with the host's name and the process id."""
    return f".{name}.{socket.gethostname()}.{os.getpid()}."


_SCRATCH_PATTERN = re.compile(r"\..+\.(?P<pid>\d+)\.\w{8}")


def remove_scratch_folders(folder: Path, skipped_names: Container[str] = ()) -> None:
    """Remove half-written files and folders of this machine's killed processes below `folder`.

    Subfolders whose names are in `skipped_names` are not searched.
    """
    for parent, subfolders, _ in os.walk(folder):
        for name in subfolders:
            name_match = _SCRATCH_PATTERN.fullmatch(name)
            is_of_this_host = name_match and f".{socket.gethostname()}.{name_match['pid']}." in name
            if name_match and is_of_this_host and not Path("/proc", name_match["pid"]).exists():
                shutil.rmtree(Path(parent, name), ignore_errors=True)
        subfolders[:] = [name for name in subfolders if name not in skipped_names and not name.startswith(".")]


def _replace_folder(new_folder: Path, target: Path, old_folder: Path) -> None:
    """Move `target` to `old_folder`, and `new_folder` to `target`; if that fails, `target` stays as it was."""
    os.rename(target, old_folder)
    try:
        os.rename(new_folder, target)
    except OSError:
        os.rename(old_folder, target)
        raise


@contextmanager
def _errors_with_target(target: Path) -> Iterator[None]:
    """Raise `Unavailable` naming the `target` if the file system refuses an operation in the block."""
    try:
        yield
    except OSError as error:
        if problem := refusal(error):
            raise Unavailable(f"{target}: {problem}; nothing was written") from error
        raise
