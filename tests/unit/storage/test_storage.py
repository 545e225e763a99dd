import io
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stallpoint.errors import InputError
from stallpoint.storage import FORMATS, Storage
from stallpoint.storage.generate import prepare
from stallpoint.storage.images import ImageSet, decode_image
from stallpoint.storage.raw import Squares
from stallpoint.storage.samples import INDEX_FILE
from stallpoint.storage.synthetic import synthetic_images

SAMPLES = 12
IMAGE_FORMATS = [name for name, kind in FORMATS.items() if issubclass(kind, ImageSet)]


def opened(storage: Storage) -> Any:
    """Its samples, with the methods of their format."""
    return storage.open()


@pytest.fixture(scope="module", params=IMAGE_FORMATS)
def generated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Storage:
    storage = Storage("synthetic", tmp_path_factory.mktemp("storage") / request.param, request.param)
    prepare(storage, generate=SAMPLES, seed=7)
    return storage


def colour_image(path: Path, colour: tuple[int, int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 30), colour).save(path)


def _stored(name: str, jpeg: bytes, number: int) -> bytes:
    """The bytes that a format stores of an image."""
    if FORMATS[name].shape:
        return decode_image(jpeg, 256, str(number)).tobytes()
    if name == "idx":
        return decode_image(jpeg, 28, str(number)).mean(axis=0).astype(np.uint8).tobytes()
    return jpeg


def test_every_format_holds_the_same_images_and_labels(generated: Storage) -> None:
    expected = {}
    for number, (jpeg, label) in enumerate(synthetic_images(SAMPLES, seed=7)):
        expected[_stored(generated.format, jpeg, number)] = label
    images = generated.open()
    assert {images.read(index): images.label(index) for index in range(images.samples)} == expected
    images.close()


def test_decoded_samples_are_channels_first_and_of_the_size_asked_for(generated: Storage) -> None:
    images = opened(generated)
    pixels = images.decode(3, images.read(3), 224)
    assert pixels.shape == (3, 224, 224)
    assert pixels.dtype == np.uint8
    assert pixels.std() > 10
    images.close()


def test_what_is_read_lies_in_the_extent(generated: Storage) -> None:
    images = generated.open()
    data, extent = images.read(5), images.extent(5)
    assert images.total_bytes == sum(len(images.read(index)) for index in range(images.samples))
    assert all(file.is_file() for file in images.files())
    if generated.format in ("lmdb", "redis"):
        assert extent is None, "these do not tell where in a file a value lies"
    else:
        assert extent.path in images.files()
        there = extent.path.read_bytes()[extent.offset : extent.offset + extent.size]
        # Of Parquet a whole row group is read.
        assert data in there if generated.format == "parquet" else data == there
    images.close()


def test_preparing_again_changes_nothing_and_another_seed_replaces_the_set(tmp_path: Path) -> None:
    storage = Storage("synthetic", tmp_path / "set", "tar")
    first = prepare(storage, generate=4, seed=1)
    written = storage.open().files()[0].stat().st_mtime_ns
    assert prepare(storage, generate=4, seed=1) == first
    assert storage.open().files()[0].stat().st_mtime_ns == written
    other = prepare(storage, generate=5, seed=2)
    assert (other["samples"], first["samples"]) == (5, 4)
    assert other["checksum"] != first["checksum"]


def test_the_same_seed_gives_the_same_set_anywhere(tmp_path: Path) -> None:
    manifests = [prepare(Storage("s", tmp_path / name, "files"), generate=6, seed=3) for name in ("a", "b")]
    assert manifests[0] == manifests[1]
    assert manifests[0]["classes"] == 6
    assert manifests[0]["files"] == 6


def test_synthetic_images_have_the_dimensions_of_imagenet() -> None:
    images = [image for image, _ in synthetic_images(100, seed=1)]
    sizes = np.array([Image.open(io.BytesIO(image)).size for image in images])
    assert sizes.mean(0) == pytest.approx([500, 375], rel=0.1)
    assert sizes.std(0).min() > 50
    assert np.mean([len(image) for image in images]) == pytest.approx(110_000, rel=0.15)


def test_an_existing_folder_is_checked_and_indexed(tmp_path: Path) -> None:
    for name, colour in (("dog/2.png", (0, 0, 255)), ("cat/1.PNG", (255, 0, 0)), ("dog/1.jpeg", (0, 255, 0))):
        colour_image(tmp_path / name, colour)
    (tmp_path / "dog" / "notes.txt").write_text("not an image")
    storage = Storage("pets", tmp_path, "files")
    manifest = prepare(storage, generate=None, seed=0)
    assert (manifest["samples"], manifest["classes"], manifest["generated"]) == (3, 2, None)
    assert (tmp_path / INDEX_FILE).exists()
    images = opened(storage)
    assert [images.label(index) for index in range(3)] == [0, 1, 1]
    assert images.decode(0, images.read(0), 8)[:, 4, 4].tolist() == [255, 0, 0]
    colour_image(tmp_path / "dog" / "3.png", (0, 0, 0))
    assert prepare(storage, generate=None, seed=0)["samples"] == 4


def test_what_lies_in_a_folder_that_cannot_be_written_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, node = tmp_path / "set", tmp_path / "node"
    for name in ("cat/1.png", "dog/1.png"):
        colour_image(folder / name, (0, 0, 0))
    (folder / "dog/2.png").write_bytes(b"no image")
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as read_only:  # root may write everywhere
        read_only.setattr(os, "access", lambda path, mode: Path(path) != folder)
        prepare(Storage("s", folder, "files"), generate=None, seed=0, max_corrupt=1)
    assert not (folder / INDEX_FILE).exists()
    colour_image(folder / "dog/3.png", (0, 0, 0))
    stored = Storage("s", folder, "files").open()
    assert (stored.samples, stored.excluded) == (2, 1), "of the index, not of the folder"
    assert [file.name for file in stored.files()] == ["1.png", "1.png"]
    node.symlink_to(folder)
    assert Storage("s", node, "files").open().samples == 2, "however the folder is spelt"
    prepare(Storage("s", folder, "files"), generate=None, seed=0, max_corrupt=1)
    assert Storage("s", folder, "files").open().samples == 3, "the later index, in the folder itself"


def test_raw_images_are_generated_as_large_as_a_network_needs_them(tmp_path: Path) -> None:
    storage = Storage("s", tmp_path / "raw", "raw")
    prepare(storage, generate=2, seed=1)
    with closing(opened(storage)) as images, pytest.raises(InputError, match="256x256 pixels are too small for a 299"):
        images.decode(0, images.read(0), 299)
    for size in (299, 32):
        prepare(storage, generate=2, seed=1, shape=Squares(size))
        with closing(opened(storage)) as images:
            assert images.decode(0, images.read(0), size).shape == (3, size, size)


def test_generating_never_overwrites_a_users_images(tmp_path: Path) -> None:
    colour_image(tmp_path / "photos" / "holiday.png", (1, 2, 3))
    with pytest.raises(InputError, match=r"photos.*was not generated by stallpoint"):
        prepare(Storage("mine", tmp_path / "photos", "files"), generate=3, seed=1)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["holiday.png"]


@pytest.mark.parametrize("name", [name for name, kind in FORMATS.items() if kind.in_folder])
def test_a_folder_without_samples_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.md").write_text("nothing here")
    with pytest.raises(InputError, match=rf"storage empty: no {FORMATS[name].kind} in {tmp_path}"):
        prepare(Storage("empty", tmp_path, name), generate=None, seed=0)


def test_a_missing_path_and_an_unknown_format_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"storage s: .*nowhere does not exist"):
        prepare(Storage("s", tmp_path / "nowhere", "files"), generate=None, seed=0)
    for generate in (None, 3):
        with pytest.raises(InputError, match=r"storage s: unknown format 'hdf5', known are files, idx, tar, lmdb"):
            prepare(Storage("s", tmp_path, "hdf5"), generate=generate, seed=0)


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"\0" * len(data)])
def test_an_unreadable_jpeg_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    storage = Storage("s", tmp_path / "set", "files")
    prepare(storage, generate=4, seed=1)
    bad = storage.open().extent(2).path
    bad.write_bytes(damage(bad.read_bytes()))
    with pytest.raises(InputError, match=rf"{bad.name}: not a readable image") as found:
        prepare(storage, generate=None, seed=1)
    assert "BytesIO" not in str(found.value)


def test_a_generated_set_that_was_damaged_is_written_anew(tmp_path: Path) -> None:
    storage = Storage("s", tmp_path / "images", "files")
    first = prepare(storage, generate=4, seed=1)
    stored = storage.open()
    stored.files()[2].write_bytes(b"nothing to look at")
    stored.files()[3].unlink()
    assert prepare(storage, generate=4, seed=1) == first


def test_damaged_shards_arrays_and_indexes_are_named(tmp_path: Path) -> None:
    (tmp_path / "tar").mkdir()
    (tmp_path / "tar" / "shard.tar").write_bytes(b"not a tar file" * 100)
    with pytest.raises(InputError, match=r"shard\.tar: not a readable, uncompressed tar file"):
        Storage("s", tmp_path / "tar", "tar").open()
    (tmp_path / "raw").mkdir()
    np.save(tmp_path / "raw" / "images.npy", np.zeros((2, 8, 8, 3), np.uint8))
    np.save(tmp_path / "raw" / "labels.npy", np.zeros(2, np.int64))
    with pytest.raises(InputError, match=r"raw: not a raw storage; expected images.npy, uint8 \[samples, 3"):
        Storage("s", tmp_path / "raw", "raw").open()
    (tmp_path / "tar" / INDEX_FILE).write_bytes(b"PAR1")
    with pytest.raises(InputError, match=rf"{INDEX_FILE}: not a readable index"):
        Storage("s", tmp_path / "tar", "tar").open()


def test_raw_images_that_are_too_small_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.arange(2 * 3 * 8 * 10, dtype=np.uint8).reshape(2, 3, 8, 10))
    np.save(tmp_path / "labels.npy", np.array([4, 5]))
    images = opened(Storage("s", tmp_path, "raw"))
    assert images.label(1) == 5
    stored = np.load(tmp_path / "images.npy")
    assert np.array_equal(images.decode(1, images.read(1), 6), stored[1, :, 1:7, 2:8])
    with pytest.raises(InputError, match="8x10 pixels are too small for a 9-pixel input"):
        images.decode(1, images.read(1), 9)
    images.close()
