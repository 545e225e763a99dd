import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stallpoint.errors import InputError
from stallpoint.measure.training.input_pipeline import InputPipeline, SampleOrder
from stallpoint.networks.inputs import Images
from stallpoint.storage import Storage
from stallpoint.storage.generate import prepare


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    storage = Storage("synthetic", tmp_path_factory.mktemp("images") / "set", "files")
    prepare(storage, generate=10, seed=1)
    return storage


def pipeline(storage: Storage, *, batch: int = 4, prefetch: int = 0) -> InputPipeline:
    return InputPipeline(storage, takes=Images(32), batch=batch, rank=0, ranks=1, prefetch=prefetch, readers=2, seed=5)


def reader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("reader")]


@given(
    samples=st.integers(1, 50), batch=st.integers(1, 8), ranks=st.integers(1, 5), seed=st.integers(0, 2**32),
    epochs=st.integers(1, 3),
)  # fmt: skip
def test_all_workers_together_read_every_sample_once_in_each_epoch(
    samples: int, batch: int, ranks: int, seed: int, epochs: int
) -> None:
    orders = [SampleOrder(samples, batch=batch, rank=rank, ranks=ranks, seed=seed) for rank in range(ranks)]
    iterations = -(-samples * epochs // (batch * ranks))
    read = [index for iteration in range(iterations) for order in orders for index in order.indices(iteration)]
    for epoch in range(epochs):
        assert sorted(read[epoch * samples : (epoch + 1) * samples]) == list(range(samples))


@given(parts=st.sampled_from([2, 3, 4, 6, 12]), iteration=st.integers(0, 20))
def test_an_iterations_samples_do_not_depend_on_how_many_workers_share_them(parts: int, iteration: int) -> None:
    alone = SampleOrder(37, batch=12, rank=0, ranks=1, seed=3).indices(iteration)
    shared = [SampleOrder(37, batch=12 // parts, rank=rank, ranks=parts, seed=3) for rank in range(parts)]
    assert [index for order in shared for index in order.indices(iteration)] == alone


def test_seeds_and_epochs_shuffle_differently() -> None:
    def epoch(seed: int, number: int) -> list[int]:
        return SampleOrder(100, batch=100, rank=0, ranks=1, seed=seed).indices(number)

    assert epoch(1, 0) == epoch(1, 0)
    assert epoch(1, 0) != epoch(2, 0)
    assert epoch(1, 0) != epoch(1, 1)


@pytest.mark.parametrize("prefetch", [1, 3])
def test_reading_ahead_gives_the_same_mini_batches_as_reading_in_line(images: Storage, prefetch: int) -> None:
    with pipeline(images) as in_line, pipeline(images, prefetch=prefetch) as ahead:
        for _ in range(7):
            expected, got = in_line.next_batch(), ahead.next_batch()
            assert torch.equal(got.inputs, expected.inputs)
            assert torch.equal(got.labels, expected.labels)
    assert reader_threads() == []


def test_pixels_are_normalised_and_labelled(tmp_path: Path) -> None:
    for name, colour in (("a", (255, 0, 0)), ("b", (0, 0, 255))):
        (tmp_path / name).mkdir()
        Image.new("RGB", (50, 40), colour).save(tmp_path / name / "image.png")
    with pipeline(Storage("two", tmp_path, "files"), batch=2) as batches:
        batch = batches.next_batch()
    assert batch.inputs.shape == (2, 3, 32, 32)
    assert batch.inputs.dtype == torch.float32
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    for image, label in zip(batch.inputs, batch.labels, strict=True):
        colour = np.array([[1, 0, 0], [0, 0, 1]][int(label)])
        assert image[:, 7, 9].numpy() == pytest.approx((colour - mean) / deviation, rel=1e-5)
    assert sorted(batch.labels.tolist()) == [0, 1]
    assert batch.read > 0
    assert batch.decode > 0


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_unreadable_image_is_named_also_when_another_thread_reads_it(tmp_path: Path, prefetch: int) -> None:
    storage = Storage("s", tmp_path / "set", "files")
    prepare(storage, generate=5, seed=1)
    bad = storage.open().extent(3).path
    bad.write_bytes(bytes(bad.stat().st_size))
    with pipeline(storage, prefetch=prefetch) as batches:
        epochs = (batches.next_batch() for _ in range(3))
        with pytest.raises(InputError, match=rf"{bad.name}: not a readable image"):
            list(epochs)
    assert reader_threads() == []


def test_leaving_with_mini_batches_under_way_stops_the_readers(images: Storage) -> None:
    with pipeline(images, prefetch=8, batch=8):
        assert reader_threads()
    assert reader_threads() == []


def test_a_missing_storage_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="storage gone"):
        pipeline(Storage("gone", tmp_path / "gone", "files"))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_visit_goes_on_in_the_order_of_samples(images: Storage, prefetch: int) -> None:
    def batches(begin: int, count: int) -> list[torch.Tensor]:
        settings = {"batch": 4, "rank": 0, "ranks": 1, "prefetch": prefetch, "readers": 2, "seed": 5}
        with InputPipeline(images, takes=Images(32), begin=begin, **settings) as visit:
            return [visit.next_batch().inputs.clone() for _ in range(count)]

    one_after_the_other = [*batches(0, 2), *batches(2, 3)]
    assert torch.equal(torch.stack(one_after_the_other), torch.stack(batches(0, 5)))
