"""A signal ends a process at whatever moment it comes: a rank that stands still for ever keeps its node."""

import subprocess
import sys

PROGRAM = """
import os, signal, sys, time
from stallpoint.measure.interruption import Interruption

def status_of(copy):
    patience = time.monotonic() + 120
    while time.monotonic() < patience:
        pid, status = os.waitpid(copy, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)
    return None

def trial(number, moment):
    '''Start a copy of this process: the signal comes before the line of the module that is passed as moment-th.'''
    if copy := os.fork():
        return copy
    passed = 0

    def at(frame, event, _):
        nonlocal passed
        if frame.f_code.co_filename != sys.modules[Interruption.__module__].__file__:
            return None
        if event == "line":
            passed += 1
            if passed == moment:
                os.kill(os.getpid(), number)
        return at

    sys.settrace(at)
    try:
        with Interruption(lambda: "saved"):
            pass
    except KeyboardInterrupt:
        time.sleep(1)  # the thread that saves ends the process meanwhile, or there was nothing to be saved
        os._exit(1)
    sys.settrace(None)
    os._exit(0 if passed < moment else 99)

for number in (signal.SIGTERM, signal.SIGINT):
    codes, tried = [], 0
    while 0 not in codes:
        copies = [trial(number, tried + moment) for moment in range(1, 11)]
        codes += map(status_of, copies)
        tried += len(copies)
    del codes[codes.index(0) + 1 :]
    print(number.name, *codes)
"""


def test_a_signal_at_any_line_ends_the_process() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600, check=True)
    for line in run.stdout.splitlines():
        name, *codes, last = line.split()
        assert last == "0"
        assert len(codes) > 10
        assert set(codes) <= {"SIGTERM": {"143", "-15"}, "SIGINT": {"130", "-2", "1"}}[name], line
