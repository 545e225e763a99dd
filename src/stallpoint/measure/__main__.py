"""One process of a measuring job: ``python -m stallpoint.measure RANKS PER_NODE REDUCTION``."""

import sys

from stallpoint.errors import program
from stallpoint.measure.visiting import serve

if __name__ == "__main__":
    with program():
        ranks, per_node, reduction = sys.argv[1:]
        serve(int(ranks), int(per_node), reduction)
