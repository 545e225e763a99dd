"""What runs on the nodes: training, matrix products, collectives and reads of the training set.

This file imports no tensor library and no MPI, so that a study can be checked in an instant.
"""

STEP_SIZE = 0.001
"""Step size of training. Caffe's value for AlexNet is 0.01, but the smallest mini-batches must not diverge. Times do
not depend on it."""
