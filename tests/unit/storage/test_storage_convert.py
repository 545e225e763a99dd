"""Converting images: the same samples afterwards, also after the converter was killed in the middle."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from launching import copied
from PIL import Image

from stallpoint.errors import InputError
from stallpoint.storage import FORMATS, Storage, convert, samples
from stallpoint.storage.convert import CONVERSION_FILE
from stallpoint.storage.generate import prepare
from stallpoint.storage.images import EncodedImages, decode_image

ROOT = Path(__file__).parents[3]
ENCODED = [name for name, kind in FORMATS.items() if issubclass(kind, EncodedImages)]
PIXELS = ["raw", "mapped"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """A folder of a user's: names of all sorts, a PNG, other files, classes of different sizes."""
    path = tmp_path_factory.mktemp("images")
    for number in range(23):
        file = path / ("dog s", "кошка")[number % 3 > 0] / f"Bild {number} 写.{'png' if number == 4 else 'jpg'}"
        file.parent.mkdir(exist_ok=True)
        Image.effect_noise((40 + number, 30), 50).convert("RGB").save(file)
    (path / "dog s" / "Thumbs.db").write_bytes(b"no image")
    return Storage("images", path, "files")


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five parts."""
    for module in (
        convert,
        samples,
        *(sys.modules[FORMATS[name].__module__] for name in ("tar", "parquet", "tfrecord")),
    ):
        monkeypatch.setattr(module, "PART", 5)


def held(storage: Storage) -> list[tuple[str, int]]:
    with closing(storage.open()) as stored:
        return sorted((sha256(stored.read(n)).hexdigest(), stored.label(n)) for n in range(stored.samples))


@pytest.mark.parametrize("name", ENCODED)
def test_samples_are_equal_there_and_back(images: Storage, tmp_path: Path, name: str) -> None:
    there, back = Storage("there", tmp_path / "there", name), Storage("back", tmp_path / "back", "files")
    said = convert.convert(images, there, workers=3)
    assert held(there) == held(images)
    assert prepare(there, generate=None, seed=0)["samples"] == said["samples"] == 23
    assert convert.convert(there, back)["sha256"] == said["sha256"]
    assert held(back) == held(images)
    assert sum(file.suffix == ".png" for file in back.open().files()) == 1
    assert sorted(os.listdir(tmp_path)) == ["back", "there"]


@pytest.mark.parametrize("name", PIXELS)
def test_pixels_are_those_of_the_images(images: Storage, tmp_path: Path, name: str) -> None:
    target = Storage("pixels", tmp_path / "pixels", name)
    convert.convert(images, target, image_size=24)
    with closing(images.open()) as source, closing(target.open()) as pixels:
        for index in range(source.samples):
            assert pixels.read(index) == decode_image(source.read(index), 24, "").tobytes()
            assert pixels.label(index) == source.label(index)


KILLED = """
import os, signal, sys
from pathlib import Path
from stallpoint.storage import FORMATS, Storage, convert, samples
for module in (convert, samples, *(sys.modules[FORMATS[name].__module__] for name in ("tar", "parquet", "tfrecord"))):
    module.PART = 5
source, folder, after, *names = sys.argv[1:]

def killed(name):
    kind, parts = FORMATS[name], []
    write = kind.write_part.__func__
    def write_some(cls, path, first, part):
        parts.append(first)
        if len(parts) > int(after):
            write(cls, path, first, part[: len(part) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(cls, path, first, part)
    kind.write_part = classmethod(write_some)
    convert.convert(Storage("s", Path(source), "files"), Storage("t", Path(folder, name), name), workers=1)

for name in names:
    if copy := os.fork():
        print(name, os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
    else:
        killed(name)
        os._exit(0)
"""


@pytest.fixture(scope="module")
def half(images: Storage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a conversion to each format that was killed in its third part."""
    folder, names = tmp_path_factory.mktemp("half"), [*ENCODED, *PIXELS]
    (script := folder / "killed.py").write_text(KILLED)
    command = [sys.executable, script, images.path, folder, "2", *names]
    environment = {**os.environ, **copied()}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()
    assert said == [word for name in names for word in (name, str(-signal.SIGKILL))]
    return folder


@pytest.mark.parametrize("name", [*ENCODED, *PIXELS])
def test_a_conversion_that_was_killed_goes_on_where_it_was(images: Storage, half: Path, name: str) -> None:
    target = Storage("t", half / name, name)
    assert not target.path.exists(), "half a conversion is never taken for whole"
    journals = sorted(path.name for path in (half / f".{name}.converting" / "parts").iterdir())
    assert journals == ["0.json", "5.json"]
    written: list[int] = []
    write = target.kind.write_part

    class Watched(target.kind):  # type: ignore[name-defined,misc]
        @classmethod
        def write_part(cls, path: Path, first: int, part: list[tuple[bytes, int]]) -> None:
            written.append(first)
            write(path, first, part)

    FORMATS[name], whole = Watched, FORMATS[name]
    try:
        convert.convert(images, target)
    finally:
        FORMATS[name] = whole
    assert sorted(written) == [10, 15, 20]
    expected = Storage("u", half / f"{name} at once", name)
    convert.convert(images, expected)
    assert held(target) == held(expected)


def test_the_program_is_killed_at_any_moment_and_ends_well_when_started_again(images: Storage, tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "scripts/convert_storage.py"), str(images.path), str(tmp_path / "db")]
    command = [*program, "--format", "lmdb", "--workers", "2"]
    for patience in (0.4, 0.8):
        started = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(patience)
        started.kill()
        started.wait()
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:  # it had ended before it was killed
        assert "exists; a conversion makes a new folder" in ended.stderr
    else:
        assert "23 samples of format lmdb, all equal; SHA-256" in ended.stdout
        assert "verify 1000 samples: 1/1 after" in ended.stderr, "what was converted before is not converted again"
    assert held(Storage("s", tmp_path / "db", "lmdb")) == held(images)


def test_samples_that_came_out_otherwise_are_found(
    images: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FORMATS["tar"].write_part

    def damage(cls: type, path: Path, first: int, part: list[tuple[bytes, int]]) -> None:
        write(path, first, [(data[:-1] + b"!", label) for data, label in part] if first == 5 else part)

    monkeypatch.setattr(FORMATS["tar"], "write_part", classmethod(damage))
    with pytest.raises(InputError, match="5 of 23 samples differ"):
        convert.convert(images, Storage("t", tmp_path / "made", "tar"))
    assert not (tmp_path / "made").exists()


def test_files_of_a_converted_set_that_are_missing_are_noticed(images: Storage, tmp_path: Path) -> None:
    target = Storage("t", tmp_path / "made", "tar")
    convert.convert(images, target)
    target.open().files()[1].unlink()
    with pytest.raises(InputError, match="has 18 of the 23 samples of its conversion"):
        prepare(target, generate=None, seed=0)
    (target.path / CONVERSION_FILE).write_text("{")
    with pytest.raises(InputError, match=f"{CONVERSION_FILE}: not readable"):
        prepare(target, generate=None, seed=0)


def test_what_cannot_be_converted_is_said(images: Storage, tmp_path: Path) -> None:
    raw = Storage("raw", tmp_path / "raw", "raw")
    convert.convert(images, raw, image_size=8)
    few = Storage("few", tmp_path / "few", "lmdb")
    FORMATS["lmdb"].write(few.path, [((images.path / "dog s" / "Bild 0 写.jpg").read_bytes(), 7)], 1)
    new = tmp_path / "new"
    for source, name, path, size, message in (
        (raw, "tar", new, None, "format raw holds no encoded images; convert one of files, tar"),
        (images, "tokens", new, None, "format tokens holds tokens, no images"),
        (images, "synthetic", new, None, "format synthetic holds tensors, no images"),
        (images, "tar", raw.path, None, "exists; a conversion makes a new folder"),
        (images, "tar", images.path / "shards", None, "lies in the folder that is converted"),
        (images, "tar", new, 99, "format tar keeps images as they are; raw, mapped take one"),
        (images, "webp", new, None, "unknown format 'webp'"),
        (few, "files", new, None, "has 1 classes with labels up to 7"),
        (Storage("x", tmp_path / "nothing", "files"), "tar", new, None, "does not exist or is not a folder"),
    ):
        with pytest.raises(InputError, match=message):
            convert.convert(source, Storage("t", path, name), image_size=size)
        assert not new.exists()


def test_a_storage_is_converted_once_and_only_of_what_its_source_is_now(images: Storage, tmp_path: Path) -> None:
    source, made = Storage("source", tmp_path / "source", "files"), Storage("made", tmp_path / "made", "tar")
    shutil.copytree(images.path, source.path)

    def ready(of: Storage = source) -> int:
        samples: int = prepare(made, generate=None, seed=0, source=of)["samples"]
        return samples

    assert ready() == 23
    took = convert.conversion_of(made.path)
    assert took
    assert (took["source"], took["samples"]) == (str(source.path), 23)
    assert 0 < took["seconds"] < 600
    written = made.open().files()[0].stat()
    assert (ready(), made.open().files()[0].stat()) == (23, written)
    with pytest.raises(InputError, match="was not made of storage images as that is now"):
        ready(images)
    (source.path / "dog s/Bild 0 写.jpg").unlink()
    with pytest.raises(InputError, match=r"was not made of storage source as that is now \(other: samples, source_sha"):
        ready()
    made = images
    with pytest.raises(InputError, match="exists and was not converted by stallpoint"):
        ready()


def test_half_of_another_conversion_is_not_gone_on_with(images: Storage, tmp_path: Path) -> None:
    scratch = tmp_path / ".made.converting"
    scratch.mkdir()
    (scratch / "conversion.json").write_text(json.dumps({"samples": 3}))
    with pytest.raises(InputError, match="holds an incomplete conversion"):
        convert.convert(images, Storage("t", tmp_path / "made", "tar"))


def test_two_do_not_make_the_same_folder(images: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, write = Storage("t", tmp_path / "made", "tar"), FORMATS["tar"].write_part
    begun, go_on = threading.Event(), threading.Event()

    def slow(cls: type, path: Path, first: int, part: list[tuple[bytes, int]]) -> None:
        begun.set()
        assert go_on.wait(60)
        write(path, first, part)

    monkeypatch.setattr(FORMATS["tar"], "write_part", classmethod(slow))
    one = threading.Thread(target=convert.convert, args=(images, target))
    one.start()
    assert begun.wait(60)
    with pytest.raises(InputError, match="another conversion makes this folder now"):
        convert.convert(images, target)
    go_on.set()
    one.join()
    assert held(target) == held(images)
