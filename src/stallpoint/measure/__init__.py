"""What runs on the nodes: training, matrix products, collectives and reads of the training set.

This file imports no tensor library and no MPI, so that a study can be checked in an instant.
"""

from __future__ import annotations

SYNCHRONISATIONS: dict[str, str] = {
    "naive": "stallpoint.measure.synchronisation:Naive",
    "wfbp": "stallpoint.measure.synchronisation:WaitFree",
}
"""Ways to all-reduce the gradients, and the classes that do it (to add one: a class and a line)."""

STEP_SIZE = 0.001
"""Of the training: Caffe's value for AlexNet is 0.01, but the smallest mini-batches must not diverge. Times do not
depend on it."""
