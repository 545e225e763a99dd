"""Explain profiler traces of training without running anything: ``explain.py TRACES... [--page FILE]``."""

import argparse
import json
import sys
from pathlib import Path

from stallpoint.errors import InputError
from stallpoint.explain.rank import read_ranks
from stallpoint.explain.trace_answers import explain, in_words
from stallpoint.inputs.all_reduce_logs import FORMATS, lines_of, read_log
from stallpoint.inputs.trace_formats import trace_files
from stallpoint.records.atomic import atomic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("traces", nargs="+", help="traces of one training's ranks, or folders of them")
parser.add_argument("--json", type=Path, help="write everything to this file")
parser.add_argument(
    "--batch",
    type=int,
    help="samples in a mini-batch, of a worker or of those that share one: rates are then in samples/s",
)
parser.add_argument("--workers", type=int, help="how many there were, where the traces do not say it")
parser.add_argument("--workers-per-node", type=float, help="for exchanges among all workers (8)")
parser.add_argument(
    "--threshold", type=float, default=0.1, help="doubling the workers has to gain as much (%(default)s)"
)
parser.add_argument("--log", type=Path, help="all-reduces among as many workers, timed by another program")
parser.add_argument("--log-format", choices=list(FORMATS), default="nccl-tests", help="that program (%(default)s)")
parser.add_argument("--page", type=Path, help="write a web page with timelines and charts to this file")
arguments = parser.parse_args()
try:
    ranks = read_ranks(trace_files(arguments.traces), arguments.workers)
    log = []
    if arguments.log:
        lines = lines_of(str(arguments.log))
        workers = next((rank.groups.replicas for _, rank in ranks if rank), 1)
        log = list(read_log(lines, str(arguments.log), format=arguments.log_format, ranks=workers))
    told = explain(
        ranks, batch=arguments.batch, threshold=arguments.threshold, log=log, per_node=arguments.workers_per_node
    )
except InputError as error:
    sys.exit(str(error))
print(in_words(told), end="")
if arguments.page:
    from stallpoint.report.trace_page import to_html  # Altair takes as long to load as a trace to explain

    with atomic(arguments.page) as scratch:
        scratch.write_text(to_html(ranks, told), encoding="utf-8")
if arguments.json:
    with atomic(arguments.json) as scratch:
        scratch.write_text(json.dumps(told, indent=1))
