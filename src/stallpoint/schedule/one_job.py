"""A lock by which only one job at a time measures a block: two jobs would disturb each other's visits.

A workflow that is killed leaves its jobs running, and the next workflow submits jobs for the same blocks. A job
therefore holds a file while it runs, and renews the file's time to show that it is alive. Another job watches whether
the file changes. This needs no scheduler, no file locks, which some shared file systems lack, and no synchronised
clocks.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stallpoint.errors import InputError

BEAT_TIME = 5.0
"""Time between two renewals of the file, s."""
STALE_TIME = 30.0
"""Time without a change of the file after which its holder counts as dead, s: shared file systems show changes late
(NFS: up to some seconds after a file is reopened)."""


def file_of(agenda: Path) -> Path:
    """Return the file that a job holds while it measures the cells of `agenda`."""
    return agenda.with_suffix(".running")


@contextmanager
def hold(file: Path, who: str, *, beat_seconds: float = BEAT_TIME, stale_seconds: float = STALE_TIME) -> Iterator[None]:
    """Hold `file` during the ``with`` block; `InputError` if a live job holds it, or if it cannot be written.

    `who` describes this job to other jobs. If this machine is suspended for longer than `stale_seconds`, another job
    may take the file: this process then gets SIGTERM.
    """
    token = uuid.uuid4().hex
    claim_text = json.dumps({"who": who, "host": socket.gethostname(), "pid": os.getpid(), "token": token})
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _take_file(file, claim_text, token, stale_seconds)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; a job that measures has to write there") from error
    stop = threading.Event()
    renewing_thread = threading.Thread(target=_renew_file, args=(file, claim_text, stop, beat_seconds), daemon=True)
    renewing_thread.start()
    try:
        yield
    finally:
        stop.set()
        renewing_thread.join()
        if _text(file) == claim_text:
            file.unlink(missing_ok=True)


def holder(file: Path) -> str:
    """Return the description of the live job that holds the file; empty if there is none."""
    try:
        silent_seconds = time.time() - file.stat().st_mtime
    except OSError:
        return ""
    description = _holder_in(_text(file))
    return str(description.get("who", "")) if silent_seconds < STALE_TIME and not _has_died_here(description) else ""


def _take_file(file: Path, own_text: str, token: str, stale: float) -> None:
    has_waited_for_claim = False
    while True:
        try:
            with file.open("x") as new_file:
                new_file.write(own_text)
            return
        except FileExistsError:
            text = _text(file)
        if text is None:
            continue
        if _is_alive(file, text, stale):
            holder_name = _holder_in(text).get("who", "another job")
            raise InputError(f"{file}: {holder_name} measures these cells now; when it has ended, start again")
        # Several jobs may find the file stale. The one that creates the claim first takes the file over.
        claim = file.with_name(f".{file.name}.{hashlib.sha256(text.encode()).hexdigest()[:8]}")
        try:
            claim.open("x").close()
        except FileExistsError:
            if has_waited_for_claim:  # the claim is still there after a wait: the job that made it died
                claim.unlink(missing_ok=True)
            has_waited_for_claim = True
            continue
        try:
            if _text(file) == text:
                scratch = file.with_name(f".{file.name}.{token}")
                scratch.write_text(own_text)
                os.replace(scratch, file)
                return
        finally:
            claim.unlink(missing_ok=True)


def _renew_file(file: Path, own_text: str, stop: threading.Event, beat: float) -> None:
    while not stop.wait(beat):
        with suppress(OSError):  # a renewal that fails now is tried again at the next beat
            if (text := _text(file)) == own_text:
                os.utime(file)
            elif text:
                print(f"{file}: {_holder_in(text).get('who', 'another job')} has taken over", file=sys.stderr)
                os.kill(os.getpid(), signal.SIGTERM)
                return


def _is_alive(file: Path, text: str, stale: float) -> bool:
    """Watch the file for up to `stale` s; return whether its holder renews it. `text` is the file's text so far."""
    if _has_died_here(_holder_in(text)):
        return False
    first_state = _state(file)
    if first_state is None or first_state[1] != text:
        return first_state is not None
    deadline = time.monotonic() + stale
    while time.monotonic() < deadline:
        time.sleep(min(1.0, stale / 10))
        if (state := _state(file)) != first_state:
            return state is not None
    return False


def _has_died_here(description: dict[str, object]) -> bool:
    """Return whether the holder with this `description` was a process of this machine, and has ended."""
    return description.get("host") == socket.gethostname() and not Path(f"/proc/{description.get('pid')}").exists()


def _state(file: Path) -> tuple[int, str] | None:
    """Return time and text of the file. It is opened each time, since a shared file system may cache its old state."""
    try:
        with file.open() as opened:
            return os.fstat(opened.fileno()).st_mtime_ns, opened.read()
    except OSError:
        return None


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except OSError:
        return None


def _holder_in(text: str | None) -> dict[str, object]:
    """Return the holder's description of itself from the file's text; empty if it is not complete yet."""
    try:
        description: dict[str, object] = json.loads(text or "{}")
    except json.JSONDecodeError:
        return {}
    return description
