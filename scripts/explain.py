"""Explain profiler traces of training without running anything: ``explain.py TRACES... [--json FILE]``."""

import argparse
import json
import sys
from pathlib import Path

from stallpoint.atomic import atomic
from stallpoint.errors import InputError
from stallpoint.traces.explain import explain, in_words, trace_files

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("traces", nargs="+", help="traces of torch.profiler, one for each rank, or folders of them")
parser.add_argument("--json", type=Path, help="write everything to this file")
parser.add_argument("--batch", type=int, help="samples in one worker's mini-batch: rates are then in samples/s")
parser.add_argument(
    "--threshold", type=float, default=0.1, help="doubling the workers has to gain as much (%(default)s)"
)
arguments = parser.parse_args()
try:
    told = explain(trace_files(arguments.traces), batch=arguments.batch, threshold=arguments.threshold)
except InputError as error:
    sys.exit(str(error))
print(in_words(told), end="")
if arguments.json:
    with atomic(arguments.json) as scratch:
        scratch.write_text(json.dumps(told, indent=1))
