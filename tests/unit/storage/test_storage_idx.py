"""Format idx: files as MNIST is handed out, compressed or not; and Debian's Fashion-MNIST."""

import gzip
import os
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stallpoint.errors import InputError
from stallpoint.measure.training.decoding import decoder
from stallpoint.networks import find_network
from stallpoint.storage import Storage
from stallpoint.storage.convert import convert
from stallpoint.storage.generate import prepare
from stallpoint.storage.samples import INDEX_FILE

FASHION = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist has its files."""


def write(folder: Path, name: str, images: int = 5, labels: int | None = None, *, packed: bool = True) -> None:
    """A set of grey images of 28 x 28 pixels, image i all of value 10 · i and class i."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.repeat(10 * np.arange(images, dtype=np.uint8), 28 * 28)
    kinds = np.arange(images if labels is None else labels, dtype=np.uint8)
    for ending, head, values in (
        ("-images-idx3-ubyte", (images, 28, 28), pixels),
        ("-labels-idx1-ubyte", (len(kinds),), kinds),
    ):
        content = bytes([0, 0, 8, len(head)]) + np.array(head, ">u4").tobytes() + values.tobytes()
        suffix, content = (".gz", gzip.compress(content)) if packed else ("", content)
        (folder / f"{name}{ending}{suffix}").write_bytes(content)


@pytest.mark.parametrize("packed", [True, False])
def test_samples_are_the_images_and_labels_of_the_files(tmp_path: Path, packed: bool) -> None:
    write(tmp_path, "train", packed=packed)
    with closing(Storage("s", tmp_path, "idx").open()) as stored:
        assert [stored.label(index) for index in range(stored.samples)] == [0, 1, 2, 3, 4]
        assert stored.read(3) == bytes([30]) * 28 * 28
        assert stored.in_memory == packed
        assert (stored.extent(3) is None) == packed
        assert stored.classes == 5
    assert prepare(Storage("s", tmp_path, "idx"), generate=None, seed=0)["bytes"] == 5 * 28 * 28
    assert not (tmp_path / INDEX_FILE).exists(), "the folder is the system's"


def test_labels_beyond_a_byte_are_no_whole_conversion(tmp_path: Path) -> None:
    for label in range(257):
        folder = tmp_path / f"files/{label:03}"
        folder.mkdir(parents=True)
        Image.new("L", (28, 28), label % 256).save(folder / "one.png")
    with pytest.raises(InputError):
        convert(Storage("s", tmp_path / "files", "files"), Storage("t", tmp_path / "idx", "idx"))
    assert not (tmp_path / "idx").exists()


def test_of_several_sets_in_a_folder_one_is_named(tmp_path: Path) -> None:
    write(tmp_path, "train", 5)
    write(tmp_path, "t10k", 3)
    with pytest.raises(InputError, match=r"holds t10k and train; name one of them, such as .*/train"):
        Storage("s", tmp_path, "idx").open()
    assert [Storage("s", tmp_path / name, "idx").open().samples for name in ("train", "t10k")] == [5, 3]
    with pytest.raises(InputError, match=r"storage s: .*/validation does not exist"):
        Storage("s", tmp_path / "validation", "idx").open()


def test_files_that_are_not_what_they_say_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "fewer", "train", 5, labels=4)
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte.gz: 5 images, but .* has 4 labels"):
        Storage("s", tmp_path / "fewer", "idx").open()
    write(tmp_path / "short", "train", packed=False)
    file = tmp_path / "short/train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte: has 3,935 bytes where its header says 3,936"):
        Storage("s", tmp_path / "short", "idx").open()
    write(tmp_path / "cut", "train")
    file = tmp_path / "cut/train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte.gz: not a readable IDX file"):
        Storage("s", tmp_path / "cut", "idx").open()
    write(tmp_path / "other", "train", packed=False)
    (tmp_path / "other/train-labels-idx1-ubyte").write_bytes(b"\0\0\x0d\1\0\0\0\0")
    with pytest.raises(InputError, match=r"train-labels-idx1-ubyte: not an IDX file of bytes in 1 dimensions"):
        Storage("s", tmp_path / "other", "idx").open()


def test_a_grey_network_gets_one_channel_and_a_colour_network_three(tmp_path: Path) -> None:
    write(tmp_path, "train")
    with closing(Storage("s", tmp_path, "idx").open()) as stored:
        for network, shape in (("lenet", (1, 28, 28)), ("alexnet", (3, 227, 227))):
            decodes = decoder(stored, find_network(network).takes)
            buffers = decodes.buffers(2)
            decodes.decode(4, stored.read(4), buffers, 1)
            assert buffers.inputs[1].shape == shape
            assert buffers.labels[1] == 4
            assert np.ptp(buffers.inputs[1].reshape(shape[0], -1), axis=1) == pytest.approx(0, abs=1e-5)
    grey = (40 / 255 - np.mean([0.485, 0.456, 0.406])) / np.mean([0.229, 0.224, 0.225])
    decodes = decoder(Storage("s", tmp_path, "idx").open(), find_network("lenet").takes)
    decodes.decode(4, bytes([40]) * 784, buffers := decodes.buffers(1), 0)
    assert buffers.inputs[0, 0, 5, 5] == pytest.approx(grey, rel=1e-4)


@pytest.mark.skipif(
    not FASHION.exists() and not os.environ.get("CI"),
    reason="without dataset-fashion-mnist, which tests/cluster/install.sh installs as root",
)
def test_fashion_mnist_is_as_its_authors_say() -> None:
    """Xiao, Rasul & Vollgraf (2017): 60,000 training and 10,000 test images, ten classes of equal size."""
    for name, samples in (("train", 60_000), ("t10k", 10_000)):
        with closing(Storage("fashion", FASHION / name, "idx").open()) as stored:
            found = Counter(stored.label(index) for index in range(stored.samples))
            assert found == dict.fromkeys(range(10), samples // 10)
