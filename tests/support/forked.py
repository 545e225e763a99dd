"""Programs that start as copies of a process that has loaded PyTorch and what else costs a second to load.

``environment(library)`` is what Python programs are started with for that, and all that they start. Such a program
hands its arguments, folder, variables and files 0 to 2 over to the server (``python forked.py SOCKET``), which forks
the process that runs it. What was started passes signals on, and ends as that process does; killed, it takes it along.
Programs whose subject is the process itself (its parent, group, memory) are started without.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

LOADED = (
    "torch", "numpy", "scipy.optimize", "scipy.stats", "pandas", "pyarrow.parquet", "altair", "jsonschema", "yaml",
    "numba", "snakemake.cli",
)  # fmt: skip
"""Others' modules: the library itself is loaded where a program finds it."""
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
VARIABLE = "FORKED_BY"
AT_START = Path(__file__).with_name("at_start")
SIZE = 4
"""Bytes of an order that say how long the rest of it is."""


@cache
def address() -> str:
    """Return where the server of this process listens."""
    folder = tempfile.mkdtemp(prefix="forked")
    path = str(Path(folder, "socket"))
    server = subprocess.Popen(
        [sys.executable, "-P", __file__, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip

    def end() -> None:
        server.communicate()  # closes its input, which ends it
        shutil.rmtree(folder, ignore_errors=True)  # or pytest was first

    atexit.register(end)
    assert server.stdout
    assert server.stdout.readline() == "ready\n"
    return path


def environment(library: str) -> dict[str, str]:
    """Return variables with which Python programs that use `library` start as copies, and measure quickly."""
    path = os.pathsep.join([str(AT_START), str(AT_START.parent), library])
    return {VARIABLE: address(), "MEASURES_QUICKLY": "1", "PYTHONPATH": path}


def may_be_copied(arguments: list[str]) -> bool:
    """Return whether a Python program is one of the workflow: others become something else, or inherit more files."""
    first = arguments[1] if len(arguments) > 1 else "-"
    if first in ("-c", "-m"):
        return first == "-m" and arguments[2].startswith(("stallpoint.", "snakemake", "resident_ranks"))
    return first.endswith((".py", "/snakemake", "/torchrun"))


def hand_over() -> None:
    """Let a copy of the server run this program, where there is one, and end as it does."""
    if VARIABLE not in os.environ or not may_be_copied(sys.orig_argv):
        return
    order = json.dumps(
        {
            "arguments": sys.orig_argv,
            "folder": os.getcwd(),
            "variables": dict(os.environ),
            "path": sys.path,
            "cores": [*os.sched_getaffinity(0)],
            "deaf": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        }
    ).encode()
    lives, _open_while_alive = os.pipe()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[VARIABLE])
        socket.send_fds(server, [len(order).to_bytes(SIZE)], [0, 1, 2, lives])
        server.sendall(order)
        answers = server.makefile("r")
        pid = int(answers.readline())

        def pass_on(number: int, _: Any) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in PASSED_ON:
            signal.signal(number, pass_on)
        status = int(answers.readline())
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def serve(path: str) -> dict[str, Any]:
    """Fork processes until nobody asks any more, and end; in each of those, return its order."""
    waiting = selectors.DefaultSelector()
    waiting.register(sys.stdin, selectors.EVENT_READ)
    running: dict[int, tuple[int, socket.socket]] = {}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        waiting.register(listening, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is sys.stdin:
                    os._exit(0)
                elif key.fileobj is listening:
                    asking, _ = listening.accept()
                    size, files, _, _ = socket.recv_fds(asking, SIZE, 4)
                    order = b""
                    while len(order) < int.from_bytes(size):
                        order += asking.recv(int.from_bytes(size) - len(order))
                    if not (pid := os.fork()):
                        waiting.close()
                        for _, other in running.values():
                            other.close()
                        asking.close()
                        return {**json.loads(order), "files": files}
                    for file in files:
                        os.close(file)
                    asking.sendall(f"{pid}\n".encode())
                    process = os.pidfd_open(pid)
                    running[process] = (pid, asking)
                    waiting.register(process, selectors.EVENT_READ)
                else:
                    waiting.unregister(key.fd)
                    pid, asking = running.pop(key.fd)
                    os.close(key.fd)
                    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with asking, suppress(OSError):  # nobody may be left who asks
                        asking.sendall(f"{status}\n".encode())


def become(order: dict[str, Any]) -> None:
    """Make this process the one that was asked for, up to where its program begins."""
    import torch

    *files, lives = order["files"]
    os.setsid()
    fcntl.fcntl(lives, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lives, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lives, fcntl.F_SETFL, fcntl.fcntl(lives, fcntl.F_GETFL) | os.O_ASYNC)  # its other end closed: killed
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(order["variables"])
    os.chdir(order["folder"])
    os.sched_setaffinity(0, order["cores"])
    if order["deaf"]:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", len(order["cores"]))))
    sys.orig_argv = order["arguments"]
    sys.path[:] = order["path"]
    importlib.invalidate_caches()
    change()


def change() -> None:
    """Change what the variables of this process ask for, before its program begins."""
    if "ALONE" in os.environ:  # of the library only what lies in that folder, as if nothing else were installed
        only = os.environ["ALONE"]
        sys.path[:] = [path for path in sys.path if path == only or not os.path.isdir(f"{path}/stallpoint")]
    if "VIRTUAL_TIME" in os.environ:
        import virtual_time

        virtual_time.install()
    if "DYING" in os.environ:
        import dying

        dying.plant()
    if "MEASURES_QUICKLY" in os.environ:
        import little

        little.be_quick()


def program(arguments: list[str]) -> None:
    """Run what Python was started with."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


def status_of(arguments: list[str]) -> int:
    """Return the exit status of a program, or the negative number of a signal, once it was run and said why."""
    try:
        program(arguments)
    except SystemExit as asked:
        if asked.code is None or isinstance(asked.code, int):
            return (asked.code or 0) & 0xFF
        print(asked.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def end(status: int) -> None:
    """End this process as Python does, without taking apart what was loaded, which takes most of a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    nothing = importlib.import_module("torch").empty(1, 1, device="meta")
    nothing.addmm(nothing, nothing)  # loads 1000 modules more, as networks do that are tried without numbers
    gc.freeze()
    asked = serve(sys.argv[1])
    become(asked)
    end(status_of(asked["arguments"][1:]))
