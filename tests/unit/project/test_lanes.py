"""The tests' own runner leaves no process when it is told to end."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

TESTS = Path(__file__).parents[2]
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
BEGUN = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {DEAF!r}], stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
"""
RUNNER = f"""
import subprocess, sys, time
import lanes
lanes.PATIENCE = 0.5
lanes.leave_nothing()
subprocess.run([sys.executable, "-c", {BEGUN!r}])
time.sleep(600)
"""


def test_sigterm_leaves_no_process_that_detached_and_does_not_listen() -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen([sys.executable, "-c", RUNNER], env=environment, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout
        left = int(runner.stdout.readline())
        os.kill(left, 0)  # it is there, though its parent ended
        runner.terminate()
        assert runner.wait(60) == 128 + signal.SIGTERM
    with suppress(FileNotFoundError):  # where nobody has asked yet how it ended, it is a zombie
        assert Path(f"/proc/{left}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
