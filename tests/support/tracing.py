"""A step of a program in a process of its own, in which one operation on a file goes wrong (Linux, ptrace).

Every system call that changes what is on disk is seen, whoever makes it: Python, Arrow, Polars' threads, a shell. What
is not below the step's folder is none of its operations. The operations of a step are counted in a first run; then it
is run again for each of them, and there it is killed, or the file system refuses.

The process that calls `traced` must have no threads, as its copies have none: import first, compute in copies only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

_CURRENT = -100
"""AT_FDCWD: paths start at the working directory."""
_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_TORN = {"write": 2, "pwrite64": 2, "sendfile": 3, "copy_file_range": 4}
"""Calls that can write half of what they are to, and which argument is the number of bytes."""
_NEEDS_ROOM = ("write", "pwrite64", "writev", "pwritev", "ftruncate", "fallocate", "sendfile", "copy_file_range",
               "open", "openat", "creat", "mkdir", "mkdirat", "link", "linkat", "symlink", "symlinkat", "fsync",
               "fdatasync")  # fmt: skip
"""What a full disk refuses; it removes and renames."""
_OPERATIONS: dict[str, tuple[int | None, int | None, int, int, int | None]] = {
    # name: (argument with a descriptor or the folder of the path, argument with the path, number on x86-64, number on
    # 64-bit Arm or -1, argument with flags)
    "write": (0, None, 1, 64, None), "pwrite64": (0, None, 18, 68, None), "writev": (0, None, 20, 66, None),
    "pwritev": (0, None, 296, 70, None), "sendfile": (0, None, 40, 71, None),
    "copy_file_range": (2, None, 326, 285, None), "fsync": (0, None, 74, 82, None),
    "fdatasync": (0, None, 75, 83, None), "ftruncate": (0, None, 77, 46, None), "fallocate": (0, None, 285, 47, None),
    "open": (None, 0, 2, -1, 1), "openat": (0, 1, 257, 56, 2), "creat": (None, 0, 85, -1, None),
    "mkdir": (None, 0, 83, -1, None), "mkdirat": (0, 1, 258, 34, None), "rmdir": (None, 0, 84, -1, None),
    "unlink": (None, 0, 87, -1, None), "unlinkat": (0, 1, 263, 35, None), "rename": (None, 0, 82, -1, None),
    "renameat": (0, 1, 264, 38, None), "renameat2": (0, 1, 316, 276, None), "link": (None, 1, 86, -1, None),
    "linkat": (2, 3, 265, 37, None), "symlink": (None, 1, 88, -1, None), "symlinkat": (1, 2, 266, 36, None),
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """What happens to an operation, the first one being 0."""

    operation: int
    error: int = 0
    """What the file system answers instead of doing it; 0: the process is killed before it is done."""
    torn: bool = False
    """Half of what is to be written is, before the process is killed."""
    told: bool = False
    """It is not killed but told to end (SIGTERM), and the operation is done."""
    gone: bool = False
    """All later operations are refused too."""
    between: bool = False
    """Operations are counted without writes, so that names, folders and removals are hit as often as bytes."""

    def hits(self, operation: int, name: str) -> bool:
        """Whether an operation of this number goes wrong: a disk stays full, a quota used up."""
        full = self.error in (errno.ENOSPC, errno.EDQUOT) and name in _NEEDS_ROOM
        return operation == self.operation or (operation > self.operation and (self.gone or full))


@dataclass(frozen=True)
class Outcome:
    """How a step went."""

    operations: list[str]
    """All it did below its folder, the one with the fault included: ``rename visits/.x/visit~1``."""
    status: int | None
    """Exit status, negative for the signal that ended it; None where it did not end and was killed."""
    said: str
    """What it printed."""
    hit: str = ""
    """The first operation that went wrong."""


def traced(step: Callable[[], None], place: Path, fault: Fault | None, said: Path, seconds: float = 60) -> Outcome:
    """Run `step` in a copy of this process, with a fault among its operations below `place`.

    What it prints goes to the file `said`, outside `place`. It has so many `seconds`.
    """
    child = os.fork()
    if not child:
        _in_copy(step, said, traceable=True)
    tracer = _Tracer(child, place.resolve(), fault)
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        tracer.run()
    except TimeoutError:
        tracer.status = None
        tracer.kill()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return Outcome(tracer.operations, tracer.status, said.read_text(errors="replace"), tracer.hit)


def undisturbed(step: Callable[[], None], said: Path, seconds: float = 60) -> Outcome:
    """Run `step` in a copy of this process that nothing happens to, and that is not watched."""
    child = os.fork()
    if not child:
        signal.alarm(int(seconds))  # ends it
        _in_copy(step, said, traceable=False)
    status: int | None = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Outcome([], None if status == -signal.SIGALRM else status, said.read_text(errors="replace"))


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def _in_copy(step: Callable[[], None], said: Path, *, traceable: bool) -> None:
    """What the copy of the process does: all of its life."""
    status = 1
    try:
        target = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(target, 1)
        os.dup2(target, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        if traceable:
            _let_be_traced()
        step()
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    with suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


class _Layout:
    """Where a kind of processor has a system call's number, arguments and result among its registers."""

    known: ClassVar[dict[str, tuple[int, int, tuple[int, ...], int, int]]] = {
        # length, place of the number, places of the arguments, place of the result, which of the table's numbers
        "x86_64": (27, 15, (14, 13, 12, 7, 9, 8), 10, 2),
        "aarch64": (34, 8, (0, 1, 2, 3, 4, 5), 0, 3),
    }

    def __init__(self) -> None:
        self.length, self.number, self.arguments, self.result, which = self.known[platform.machine()]
        self.names = {row[which]: name for name, row in _OPERATIONS.items() if row[which] >= 0}  # type: ignore[misc]


_LAYOUT = _Layout()
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_LIBC.ptrace.restype = ctypes.c_long
_TRACEME, _CONT, _SYSCALL, _SETOPTIONS, _GETREGSET, _SETREGSET = 0, 7, 24, 0x4200, 0x4204, 0x4205
_REGISTERS, _ARM_NUMBER = 1, 0x404
_SECCOMP_STOP = 7
_ALL = 0x40000000
"""__WALL: threads too."""
_OPTIONS = 1 | 2 | 4 | 8 | 16 | 0x80 | 0x100000
"""Follow forks, threads and other programs, stop at what the filter names, and end with whoever watches."""


def _ptrace(request: int, pid: int, address: int = 0, data: Any = None) -> None:
    if _LIBC.ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _let_be_traced() -> None:
    """Stop for the tracer, and from then on at every call of `_OPERATIONS` (a filter of the kernel, seccomp)."""
    _ptrace(_TRACEME, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    load, equal, give = 0x20, 0x15, 0x06
    trace, allow = 0x7FF00000, 0x7FFF0000
    numbers = sorted(_LAYOUT.names)
    code = [struct.pack("HBBI", load, 0, 0, 0)]
    code += [struct.pack("HBBI", equal, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    code += [struct.pack("HBBI", give, 0, 0, allow), struct.pack("HBBI", give, 0, 0, trace)]
    text = ctypes.create_string_buffer(b"".join(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(text)))
    no_new_privileges, seccomp, filters = 38, 22, 2
    if _LIBC.prctl(no_new_privileges, 1, 0, 0, 0) or _LIBC.prctl(seccomp, filters, program, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter of system calls here")


class _Tracer:
    """Watches a process and all it starts."""

    def __init__(self, child: int, place: Path, fault: Fault | None) -> None:
        self.operations: list[str] = []
        self.status: int | None = None
        self._child, self._place, self._fault = child, f"{place}/", fault
        self._alive = {child}
        self._counted = 0
        self.hit = ""

    def run(self) -> None:
        """Until the last of them has ended."""
        os.waitpid(self._child, _ALL)
        _ptrace(_SETOPTIONS, self._child, data=_OPTIONS)
        _ptrace(_CONT, self._child)
        while self._alive:
            try:
                pid, status = os.waitpid(-1, _ALL)
            except ChildProcessError:
                break
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                self._alive.discard(pid)
                if pid == self._child:
                    self.status = os.waitstatus_to_exitcode(status)
                continue
            self._alive.add(pid)
            with suppress(ProcessLookupError):  # killed meanwhile
                self._stopped(pid, status)

    def kill(self) -> None:
        """End all of them, as a power switch does."""
        for pid in self._alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, _ALL)

    def _stopped(self, pid: int, status: int) -> None:
        event, number = status >> 16, os.WSTOPSIG(status)
        if event == _SECCOMP_STOP:
            self._operation(pid)
        elif event or number in (signal.SIGSTOP, signal.SIGTRAP):
            _ptrace(_CONT, pid)
        elif number & 0x80:  # half of it is written
            self._kill_all()
        else:
            _ptrace(_CONT, pid, data=number)

    def _operation(self, pid: int) -> None:
        registers = _registers(pid)
        name = _LAYOUT.names[registers[_LAYOUT.number]]
        arguments = [registers[place] for place in _LAYOUT.arguments]
        flags = _OPERATIONS[name][4]
        path = None if flags is not None and not arguments[flags] & _CHANGING else self._path(pid, name, arguments)
        if path is None:
            _ptrace(_CONT, pid)
            return
        self.operations.append(f"{name} {path}")
        fault, here = self._fault, self._counted
        self._counted += not (fault and fault.between and name in _TORN)
        if not fault or self._counted == here or not fault.hits(here, name):
            _ptrace(_CONT, pid)
            return
        self.hit = self.hit or self.operations[-1]
        if fault.told:
            os.kill(self._child, signal.SIGTERM)
            _ptrace(_CONT, pid)
        elif fault.error:
            _refuse(pid, registers, fault.error)
            _ptrace(_CONT, pid)
        elif fault.torn and name in _TORN:
            registers[_LAYOUT.arguments[_TORN[name]]] //= 2
            _set_registers(pid, registers)
            _ptrace(_SYSCALL, pid)
        else:
            self._kill_all()

    def _kill_all(self) -> None:
        for pid in self._alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _path(self, pid: int, name: str, arguments: list[int]) -> str | None:
        """What the operation is on, from the folder of the step; None if that is elsewhere."""
        folder, path, *_ = _OPERATIONS[name]
        start = _CURRENT if folder is None else ctypes.c_int(arguments[folder]).value
        try:
            found = os.readlink(f"/proc/{pid}/cwd" if start == _CURRENT else f"/proc/{pid}/fd/{start}")
            if path is not None:
                found = os.path.normpath(os.path.join(found, _text(pid, arguments[path])))
        except OSError:
            return None
        return found.removeprefix(self._place) if found.startswith(self._place) else None


def _text(pid: int, address: int) -> str:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        found = memory.read(4096)
    return os.fsdecode(found.partition(b"\0")[0])


class _Vector(ctypes.Structure):
    _fields_: ClassVar = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _registers(pid: int) -> Any:
    found = (ctypes.c_uint64 * _LAYOUT.length)()
    _ptrace(_GETREGSET, pid, _REGISTERS, ctypes.byref(_Vector(ctypes.addressof(found), ctypes.sizeof(found))))
    return found


def _set_registers(pid: int, registers: Any) -> None:
    vector = _Vector(ctypes.addressof(registers), ctypes.sizeof(registers))
    _ptrace(_SETREGSET, pid, _REGISTERS, ctypes.byref(vector))


def _refuse(pid: int, registers: Any, error: int) -> None:
    """Answer for the kernel, which then does nothing."""
    registers[_LAYOUT.result] = ctypes.c_uint64(-error).value
    if platform.machine() == "aarch64":
        number = ctypes.c_int(-1)
        vector = _Vector(ctypes.addressof(number), ctypes.sizeof(number))
        _ptrace(_SETREGSET, pid, _ARM_NUMBER, ctypes.byref(vector))
    else:
        registers[_LAYOUT.number] = ctypes.c_uint64(-1).value
    _set_registers(pid, registers)
