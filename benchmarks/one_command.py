"""Runs a command and prints its seconds, peak memory in bytes and exit status, as JSON.

A process of its own, and a small one: the kernel counts what the process that starts a command has as the command's.
"""

import json
import os
import subprocess
import sys
import time

if __name__ == "__main__":
    begin = time.perf_counter()
    process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    print(json.dumps([seconds, usage.ru_maxrss * 1024, os.waitstatus_to_exitcode(status)]))
