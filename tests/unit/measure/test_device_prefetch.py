import threading

import pytest
import torch

from stallpoint.errors import InputError
from stallpoint.measure.training.input_pipeline import DevicePrefetch, MiniBatch

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_is_copied_before_it_is_asked_for_and_is_not_overwritten(device: str) -> None:
    buffer, asked = torch.zeros(2, 3), threading.Semaphore(0)

    def source() -> MiniBatch:
        buffer.add_(1)  # the same memory for every batch, as in the pipeline
        asked.release()
        return MiniBatch(buffer, torch.arange(2), read=0.5, decode=0.25)

    prefetch = DevicePrefetch(source, torch.device(device))
    assert asked.acquire(timeout=60), "the first one is fetched at once"
    first = prefetch.next_batch()
    assert asked.acquire(timeout=60), "the second one is fetched while the first is used"
    assert first.inputs.device.type == device
    assert (first.inputs == 1).all()
    assert (prefetch.next_batch().inputs == 2).all()
    assert (first.read, first.decode, first.labels.tolist()) == (0.5, 0.25, [0, 1])
    prefetch.close()


def test_what_goes_wrong_while_reading_is_raised_where_the_batch_is_used() -> None:
    def source() -> MiniBatch:
        raise InputError("image.jpg: not a readable image")

    prefetch = DevicePrefetch(source, torch.device("cpu"))
    with pytest.raises(InputError, match=r"image\.jpg"):
        prefetch.next_batch()
    prefetch.close()
