"""What becomes of a study when things go wrong: ``make chaos``.

Every program of the workflow is killed, or refused by the file system, at every so-many-th operation on a file
(tests/support/crash_points.py), whole studies are drawn at random (histories.py), files of others are changed at random
(fuzzing.py), values of records are altered (altered.py), runs are killed (kills.py), sites that lack what most have are
emulated, and cells of every kind die (site_trials.py), and defects are planted that these must find
(planted_defects.py). --cluster also lets studies run through Slurm while things go wrong
(tests/cluster/cluster_histories.py). Prints one table; the exit status is 1 where anything in it is red. --every 1
tries every operation, which takes hours.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from tally import tallies

COUNTS = ("trials", "lost", "doubled", "half", "hangs", "clear", "refused")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=100, help="try every so-many-th operation of each program")
    parser.add_argument("--histories", type=int, default=30, help="studies drawn at random")
    parser.add_argument("--cluster", type=int, default=0, help="studies on the Slurm cluster of tests/cluster, as root")
    parser.add_argument("--files", type=int, default=1000, help="changed files of each kind")
    parser.add_argument("--values", type=int, default=500, help="altered values of records")
    parser.add_argument("--kills", type=int, default=40, help="runs of a study that are killed")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn at random")
    arguments = parser.parse_args()
    red: list[str] = []
    seed = ("--seed", str(arguments.seed))
    of_cluster = ("--examples", str(arguments.cluster), *seed)
    told = {
        "operation": tallies("crash_points", "--every", str(arguments.every)),
        "history": tallies("histories", "--examples", str(arguments.histories), *seed),
        "changed file": tallies("fuzzing", "--trials", str(arguments.files), *seed),
        "altered value": tallies("altered", "--values", str(arguments.values), *seed),
        "run killed": tallies("kills", "--kills", str(arguments.kills), *seed),
        "site": tallies("site_trials"),
        "trials themselves": tallies("planted_defects"),
        "on the cluster": tallies("cluster_histories", *of_cluster) if arguments.cluster else (),
    }
    head = ("fault", "trials", "lost", "doubled", "half-accepted", "hangs", "clear messages")
    print("| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |", sep="\n")
    for where, found in told.items():
        rows: dict[str, dict[str, int]] = {}
        for tally in found:
            row = rows.setdefault(f"{where}: {tally['fault']}", dict.fromkeys(COUNTS, 0))
            for name in COUNTS:
                row[name] += tally[name]
            red += tally["red"]
        for fault, row in rows.items():
            clear = f"{row['clear']} of {row['refused']}" if row["refused"] else "none owed"
            cells = [fault, *(str(row[name]) for name in COUNTS[:5]), clear]
            print("| " + " | ".join(cells) + " |", flush=True)
    print(*red, sep="\n")
    sys.exit(bool(red))


if __name__ == "__main__":
    main()
