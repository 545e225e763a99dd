"""Tests beside each other (pytest-xdist): each process computes on one core, or they would wait for each other."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
