"""Measurements on the nodes: training, matrix products, collectives and reads of the training set.

This file imports no tensor library and no MPI, so that a study can be checked in an instant.
"""

STEP_SIZE = 0.001
"""Step size of training. Smaller than Caffe's 0.01 for AlexNet, so that the smallest mini-batches do not diverge. Times
do not depend on the step size."""
