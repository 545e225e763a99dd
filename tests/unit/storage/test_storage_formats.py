"""Formats as others write and read them, and what is said of files that are cut off, missing or of something else."""

import io
import json
import os
import threading
import wave
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
import tfrecord
import torch
import webdataset
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stallpoint.errors import InputError, Unreadable
from stallpoint.measure.training.input_pipeline import InputPipeline
from stallpoint.networks.inputs import Images, Tokens
from stallpoint.records.protobuf import fields, integer_field, message
from stallpoint.storage import FORMATS, SampleSet, Storage
from stallpoint.storage.generate import prepare
from stallpoint.storage.lmdb import _SHARED_ENVIRONMENTS
from stallpoint.storage.synthetic import synthetic_images

MADE = list(synthetic_images(5, seed=2))
SHARDED = ["tar", "parquet", "tfrecord", "lmdb"]


def generated(path: Path, name: str, samples: int = 5) -> Storage:
    storage = Storage("s", path / name, name)
    prepare(storage, generate=samples, seed=2)
    return storage


def held(storage: Storage) -> list[tuple[bytes, int]]:
    with closing(storage.open()) as stored:
        return [(stored.read(index), stored.label(index)) for index in range(stored.samples)]


def datum_class() -> Any:
    """Caffe's message, as caffe.proto has it, by protobuf's own library."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="datum.proto", package="caffe", syntax="proto2")
    datum = file.message_type.add(name="Datum")
    for number, name, type_ in (
        (1, "channels", field.TYPE_INT32), (2, "height", field.TYPE_INT32), (3, "width", field.TYPE_INT32),
        (4, "data", field.TYPE_BYTES), (5, "label", field.TYPE_INT32), (7, "encoded", field.TYPE_BOOL),
    ):  # fmt: skip
        datum.field.add(number=number, name=name, type=type_, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.Datum"))


# --- others read what stallpoint writes, and the other way round --------------------------------------


def test_webdataset_reads_our_shards(tmp_path: Path) -> None:
    shard = generated(tmp_path, "tar").open().files()[0]
    found = [(sample["jpg"], int(sample["cls"])) for sample in webdataset.WebDataset(str(shard), shardshuffle=False)]
    assert found == MADE


def test_tfrecords_own_library_reads_our_files_and_we_read_its(tmp_path: Path) -> None:
    file = generated(tmp_path, "tfrecord").open().files()[0]
    features = {"image/encoded": "byte", "image/class/label": "int"}
    read = tfrecord.tfrecord_loader(str(file), None, features)
    assert [(bytes(one["image/encoded"]), int(one["image/class/label"][0])) for one in read] == MADE

    theirs = tmp_path / "theirs"
    theirs.mkdir()
    writer = tfrecord.TFRecordWriter(str(theirs / "train-00000-of-00001.tfrecord"))
    for number, (data, label) in enumerate(MADE):
        writer.write(
            {"image": (data, "byte"), "label": (label + 300, "int"), "size": (0.5, "float"), "id": (number, "int")}
        )
    writer.close()
    assert held(Storage("s", theirs, "tfrecord")) == [(data, label + 300) for data, label in MADE]


def test_pyarrow_reads_our_files_and_we_read_those_of_hugging_face(tmp_path: Path) -> None:
    rows = pq.read_table(generated(tmp_path, "parquet").open().files()[0]).to_pylist()
    assert [(row["image"]["bytes"], row["label"]) for row in rows] == MADE

    folder = tmp_path / "hub"
    folder.mkdir()
    for part in range(2):
        images = [{"path": f"{number}.jpg", "bytes": data} for number, (data, _) in enumerate(MADE)]
        table = pa.table({"id": list(range(5)), "image": images, "label": [part] * 5})
        pq.write_table(table, folder / f"train-0000{part}-of-00002.parquet", row_group_size=2)
    assert held(Storage("s", folder, "parquet")) == [(data, part) for part in range(2) for data, _ in MADE]


def test_datums_are_those_of_caffe(tmp_path: Path) -> None:
    datum = datum_class()
    path = generated(tmp_path, "lmdb").path
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as transaction:
        messages = [datum.FromString(value) for _, value in transaction.cursor()]
    assert [(one.data, one.label) for one in messages] == MADE
    assert all(one.encoded for one in messages)

    theirs = tmp_path / "theirs"
    with lmdb.open(str(theirs), map_size=2**24) as environment, environment.begin(write=True) as transaction:
        for number, (data, label) in enumerate(MADE):
            one = datum(channels=3, height=2, width=1, data=data, label=label, encoded=True)
            transaction.put(f"{number:08d}_n01/x {number}.JPEG".encode(), one.SerializeToString())
    assert held(Storage("s", theirs, "lmdb")) == MADE
    with lmdb.open(str(theirs), map_size=2**24) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"pixels", datum(channels=3, height=2, width=1, data=b"123456").SerializeToString())
    with pytest.raises(InputError, match=r"data.mdb, key pixels: no Datum with an encoded image"):
        prepare(Storage("s", theirs, "lmdb"), generate=None, seed=0)


def test_an_lmdb_stays_open_until_its_last_reader_is_gone(tmp_path: Path) -> None:
    path = generated(tmp_path, "lmdb").path
    environment = _SHARED_ENVIRONMENTS.open(path)
    assert _SHARED_ENVIRONMENTS.open(path) is environment
    _SHARED_ENVIRONMENTS.close(path)
    assert environment.stat()["entries"] == len(MADE)
    _SHARED_ENVIRONMENTS.close(path)
    with pytest.raises(lmdb.Error, match="closed"):
        environment.stat()


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), st.one_of(st.integers(0, 2**63), st.binary(max_size=300)))))
def test_fields_that_are_written_are_found_again(values: list[tuple[int, int | bytes]]) -> None:
    written = b"".join(
        integer_field(number, value) if isinstance(value, int) else message(number, value) for number, value in values
    )
    found = [
        (number, value if isinstance(value, int) else written[slice(*value)])
        for number, value in fields(written, (0, len(written)))
    ]
    assert found == values


@given(st.binary(max_size=60))
def test_fields_of_anything_lie_inside_or_are_refused(data: bytes) -> None:
    with suppress(ValueError):
        for _, value in fields(data, (0, len(data))):
            assert isinstance(value, int) or 0 <= value[0] <= value[1] <= len(data)


# --- kinds of samples, and references -----------------------------------------------------------------


@pytest.mark.parametrize(("name", "least", "most"), [("texts", 1_000, 1_700), ("sounds", 32_044, 32_044)])
def test_small_texts_and_sounds_are_generated_read_and_checked(
    tmp_path: Path, name: str, least: int, most: int
) -> None:
    storage = Storage("s", tmp_path / name, name)
    manifest = prepare(storage, generate=100, seed=1)
    assert (manifest["samples"], manifest["files"], manifest["classes"]) == (100, 100, 10)
    assert least <= manifest["bytes"] / 100 <= most
    bad = storage.open().extent(7).path
    bad.write_bytes(bad.read_bytes()[:-10] + (b"\xff" if name == "texts" else b""))
    with pytest.raises(InputError, match=rf"{bad.name}: (not a UTF-8 text|ends before its 16000 values do)"):
        prepare(storage, generate=None, seed=1)


def test_a_sound_is_a_second_that_the_standard_library_reads(tmp_path: Path) -> None:
    data, _ = held(generated(tmp_path, "sounds", 1))[0]
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnframes(), file.getframerate(), file.getsampwidth()) == (16_000, 16_000, 2)


@pytest.mark.parametrize("name", ["synthetic", "memory"])
@pytest.mark.parametrize("takes", [Images(8), Tokens(5, 40)], ids=str)
def test_references_feed_every_network_and_read_nothing(name: str, takes: Images | Tokens) -> None:
    reference = Storage("s", Path(), name)
    assert prepare(reference, generate=None, seed=0)["bytes"] == 0
    with InputPipeline(reference, takes=takes, batch=3, rank=0, ranks=1, prefetch=2, readers=2, seed=1) as batches:
        first, second = (batches.next_batch() for _ in range(2))
    inputs, labels = takes.example(3, torch.device("cpu"))
    assert (first.inputs.shape, first.inputs.dtype) == (inputs.shape, inputs.dtype)
    assert (first.labels.shape, first.labels.dtype) == (labels.shape, labels.dtype)
    assert torch.equal(first.inputs, second.inputs)
    assert first.inputs.float().std() > 0


# --- what is wrong with files -------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHARDED)
def test_a_file_that_was_cut_off_is_named(tmp_path: Path, name: str) -> None:
    storage = generated(tmp_path, name)
    file = storage.open().files()[0]
    for size in (file.stat().st_size * 2 // 3, file.stat().st_size // 3):
        os.truncate(file, size)
        with pytest.raises(InputError, match=f"{file.name}"):
            prepare(storage, generate=None, seed=2)


def test_a_shard_that_was_cut_off_between_two_images_is_named(tmp_path: Path) -> None:
    storage = generated(tmp_path, "tar")
    extent = storage.open().extent(3)
    os.truncate(extent.path, extent.offset - 512)
    with pytest.raises(InputError, match="ends without the block of zeros"):
        prepare(storage, generate=None, seed=2)


@pytest.mark.parametrize("name", ["redis"])
def test_a_database_that_others_filled_lost_samples_and_went_away(redis_server: str, tmp_path: Path, name: str) -> None:
    storage, folder = Storage("s", tmp_path / "set", name), tmp_path / "set"
    folder.mkdir()
    with pytest.raises(InputError, match=f"no images in {folder}"):
        prepare(storage, generate=None, seed=0)
    with redis.Redis.from_url(redis_server) as server:
        for field, (data, label) in zip("cab", MADE, strict=False):
            server.hset("theirs:images", field, data)
            server.hset("theirs:labels", field, label)
        (folder / "redis.json").write_text(json.dumps({"url": redis_server, "key": "theirs"}))
        assert prepare(storage, generate=None, seed=0)["samples"] == 3
        assert held(storage) == [MADE[1], MADE[2], MADE[0]]
        server.hdel("theirs:images", "b")
        with pytest.raises(InputError, match="field b: is not there any more"), closing(storage.open()) as stored:
            stored.read(1)
        with pytest.raises(InputError, match="field b has no image or no label"):
            prepare(storage, generate=None, seed=0)
        (folder / "redis.json").write_text('{"url": "redis://me:secret@127.0.0.1:1/0", "key": "theirs"}')
        with closing(storage.open()) as stored:
            assert stored.server == (name, "127.0.0.1:1")
            with pytest.raises(Unreadable, match="cannot be read") as wrong:
                stored.read(0)
            assert "secret" not in str(wrong.value)
        (folder / "redis.json").write_text('{"url": "nowhere"}')
        with pytest.raises(InputError, match=r"redis.json: .* must specify .*redis://HOST:PORT"):
            prepare(storage, generate=None, seed=0)


@pytest.mark.parametrize("name", SHARDED)
def test_a_file_that_went_away_since_is_named_when_it_is_read(tmp_path: Path, name: str) -> None:
    storage = generated(tmp_path, name)
    with closing(storage.open()) as stored:
        file = stored.files()[0]
        file.unlink()
        with pytest.raises(InputError, match=f"{file.name}"):
            stored.read(2)


def test_shards_that_are_missing_are_named_where_names_tell(tmp_path: Path) -> None:
    made = generated(tmp_path, "parquet").open().files()[0].read_bytes()
    folder = tmp_path / "hub"
    folder.mkdir()
    for number in (0, 2, 3):
        (folder / f"train-{number:05d}-of-00005.parquet").write_bytes(made)
    with pytest.raises(InputError, match=r"of the 5 files train-\*.parquet there are 3; missing: 1, 4"):
        prepare(Storage("s", folder, "parquet"), generate=None, seed=2)


def test_a_storage_that_fails_is_told_from_one_that_is_wrong(tmp_path: Path) -> None:
    with closing(generated(tmp_path, "files").open()) as stored:
        stored.extent(1).path.unlink()
        os.truncate(stored.extent(2).path, 10)
        with pytest.raises(Unreadable, match=r"cannot be read.*snakemake -R prepare_storage"):
            stored.read(1)
        with pytest.raises(InputError, match=r"ends before byte.*snakemake -R prepare_storage") as wrong:
            stored.read(2)
        assert not isinstance(wrong.value, Unreadable)


@pytest.mark.parametrize("name", [name for name, kind in FORMATS.items() if kind.in_folder])
def test_several_threads_read_what_one_reads(tmp_path: Path, name: str) -> None:
    with closing(generated(tmp_path, name, 70).open()) as stored:
        expected = [stored.read(index) for index in range(stored.samples)]
        wrong: list[int] = []

        def read(seed: int, stored: SampleSet = stored) -> None:
            for index in np.random.default_rng(seed).integers(0, stored.samples, 60).tolist():
                if stored.read(index) != expected[index]:
                    wrong.append(index)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_names_may_have_spaces_and_any_letters_but_must_be_utf_8(tmp_path: Path) -> None:
    for name in ("grün e/mein Bild.jpg", "猫/写真 1.PNG", "a'b\"c/$x\\y.jpeg"):
        (tmp_path / name).parent.mkdir()
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    storage = Storage("s", tmp_path, "files")
    assert prepare(storage, generate=None, seed=0)["samples"] == 3
    assert len(held(storage)) == 3
    (tmp_path / os.fsdecode(b"bad\xff")).mkdir()
    (tmp_path / os.fsdecode(b"bad\xff") / "1.jpg").write_bytes(b"")
    with pytest.raises(InputError, match=r"bad\\xff/1.jpg'?: a file name that is no UTF-8"):
        prepare(storage, generate=None, seed=0)


def test_corrupt_samples_are_left_out_up_to_the_limit_and_counted(tmp_path: Path) -> None:
    storage = generated(tmp_path, "files", 8)
    whole = [data for data, _ in held(storage)]
    for index in (2, 5):
        storage.open().extent(index).path.write_bytes(b"no image")
    with pytest.raises(InputError, match="storage s: 2 of 8 samples cannot be decoded, more than its max_corrupt: 1"):
        prepare(storage, generate=None, seed=2, max_corrupt=1)
    with pytest.raises(InputError, match="not a readable image"):
        prepare(storage, generate=None, seed=2)
    manifest = prepare(storage, generate=None, seed=2, max_corrupt=2)
    assert (manifest["samples"], manifest["corrupt"]) == (6, 2)
    assert all("not a readable image" in said for said in manifest["corrupt_samples"])
    assert storage.open().excluded == 2
    assert [data for data, _ in held(storage)] == [whole[index] for index in (0, 1, 3, 4, 6, 7)]


def test_a_label_that_the_network_does_not_know_is_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (9, 9)).save(tmp_path / name / "1.jpg")
    with pytest.raises(InputError, match=r"c/1.jpg: has label 2, but the network has 2 classes \(from 0\)"):
        InputPipeline(
            Storage("s", tmp_path, "files"), takes=Images(8, classes=2), batch=1, rank=0, ranks=1, prefetch=0,
            readers=1, seed=0,
        )  # fmt: skip
