"""Messages between real ranks; a program run under mpirun checks for itself."""

import subprocess
import sys
from pkgutil import resolve_name

import pytest
import torch
from launching import ENVIRONMENT, MPIRUN

from stallpoint.measure import SYNCHRONISATIONS
from stallpoint.measure.synchronisation import Alone, Synchronisation, WaitFree, start
from stallpoint.measure.world import MPI, World

PROGRAM = """
import time
import torch
from stallpoint.measure import SYNCHRONISATIONS
from stallpoint.measure.synchronisation import start
from stallpoint.measure.world import World

torch.set_num_threads(1)
world = World.start(2)
SIZES = {0: 5, 2: 70_000, 3: 1}


def sums_are_made_in_place_one_after_the_other(name):
    buffers = {layer: torch.zeros(size) for layer, size in SIZES.items()}
    places = {layer: buffer.data_ptr() for layer, buffer in buffers.items()}
    synchronisation = start(name, world, buffers)
    for iteration in range(3):
        for layer, buffer in buffers.items():
            buffer.fill_(layer + 10.0 * world.rank)
        for layer in (3, 2, 0):
            synchronisation.ready(layer)
        synchronisation.finish()
        for layer, buffer in buffers.items():
            assert buffer.tolist() == [2.0 * layer + 10.0] * len(buffer), (layer, buffer)
        times = [time for layer in (3, 2, 0) for time in synchronisation.intervals[layer]]
        assert times == sorted(times), times
    assert {layer: buffer.data_ptr() for layer, buffer in buffers.items()} == places
    synchronisation.close(wait=True)


def wait_free_begins_during_the_backward_pass(name):
    synchronisation = start(name, world, {layer: torch.ones(size) for layer, size in SIZES.items()})

    def arrives(layer, patience):
        deadline = time.monotonic() + patience
        while layer not in synchronisation.intervals and time.monotonic() < deadline:
            time.sleep(0.001)
        return layer in synchronisation.intervals

    synchronisation.ready(3)
    assert arrives(3, patience=30) if name == "wfbp" else not arrives(3, patience=0.2)
    synchronisation.ready(2)
    synchronisation.finish()
    assert set(synchronisation.intervals) == {3, 2}
    synchronisation.close(wait=True)


for name in SYNCHRONISATIONS:
    sums_are_made_in_place_one_after_the_other(name)
    wait_free_begins_during_the_backward_pass(name)
"""


def test_two_ranks() -> None:
    command = [*MPIRUN, "-n", "2", sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, env=ENVIRONMENT, text=True, capture_output=True, timeout=120)
    assert run.returncode == 0, run.stderr


def test_what_goes_wrong_in_the_communication_thread_is_raised_in_the_main_one() -> None:
    World.start(1)
    synchronisation = WaitFree(MPI.COMM_NULL, {0: torch.ones(3)})
    synchronisation.ready(0)
    with pytest.raises(MPI.Exception):
        synchronisation.finish()
    synchronisation.close(wait=False)


def test_one_worker_sends_nothing() -> None:
    buffers = {0: torch.ones(3)}
    alone = start("wfbp", World.start(1), buffers)
    alone.ready(0)
    alone.finish()
    assert isinstance(alone, Alone)
    assert alone.intervals == {}
    assert buffers[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("path", SYNCHRONISATIONS.values(), ids=SYNCHRONISATIONS)
def test_registered_names_lead_to_synchronisations(path: str) -> None:
    assert issubclass(resolve_name(path), Synchronisation)
