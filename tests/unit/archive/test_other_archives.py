"""Archives that are read: whatever is wrong with a zip or its index is named, and nothing leaves its folder."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from archived import archive, inside, results, study_of

from stallpoint.archive.index import read_zip_index
from stallpoint.errors import InputError
from stallpoint.records.migrations import OLDEST_VERSION
from stallpoint.records.parquet import write
from stallpoint.records.tables import NETWORK_LAYERS, SCHEMA_VERSION


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archive ``secret.zip``."""
    with inside(tmp_path_factory.mktemp("site")) as folder:
        results(study_of(presets={"mine": {"like": "wfbp"}}))
        write(NETWORK_LAYERS, NETWORK_LAYERS.schema.empty_table(), Path("results/secret/networks/alexnet.parquet"))
        archive(study_of(presets={"mine": {"like": "wfbp"}}), folder / "secret.zip")
    return folder


def test_an_index_names_hardware_presets_networks_and_cells(site: Path) -> None:
    index = read_zip_index(site / "secret.zip", "OLD")
    assert (index.study, index.hardware, index.presets) == ("secret", {"cpu": 2}, {"mine": {"like": "wfbp"}})
    assert list(index.networks) == ["alexnet"]
    assert {cell.path for cell in index.cells.values()} == set(study_of().cells)


def changed(site: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """The archive with each member as `change` has it; None leaves it out."""
    with zipfile.ZipFile(site / "secret.zip") as whole, zipfile.ZipFile(target, "w") as copy:
        for name in whole.namelist():
            if (data := change(name, whole.read(name))) is not None:
                copy.writestr(name, data)
    return target


def refused(path: Path) -> str:
    """Why the archive is refused."""
    with pytest.raises(InputError) as caught:
        read_zip_index(path, "OLD")
    return str(caught.value)


def index_with(**values: Any) -> Callable[[str, bytes], bytes]:
    return lambda name, data: json.dumps({**json.loads(data), **values}).encode() if name == "archive.json" else data


def without(part: str) -> Callable[[str, bytes], bytes | None]:
    return lambda name, data: None if part in name else data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("archive.json"), "OLD: {path} is not an archive of stallpoint: it has no archive.json"),
        (without("checksums"), "OLD: {path} is not an archive of stallpoint: it has no checksums.sha256"),
        (
            index_with(records=99),
            f"OLD: {{path}}: format 99 of its records, this program reads {OLDEST_VERSION} to {SCHEMA_VERSION}",
        ),
        (index_with(archive=2), "OLD: {path}: format 2 of its archive, this program reads 1"),
        (index_with(cells={"a": {"kind": "train"}}), "OLD: {path}: its archive.json is not the index"),
    ],
)
def test_what_is_wrong_with_an_archive_is_named(
    site: Path, tmp_path: Path, change: Callable[[str, bytes], bytes | None], message: str
) -> None:
    path = changed(site, tmp_path / "a.zip", change)
    assert message.format(path=path) in refused(path)


def cells_with(**values: Any) -> Callable[[str, bytes], bytes]:
    """The index with these values in every cell that has them."""

    def change(name: str, data: bytes) -> bytes:
        if name != "archive.json":
            return data
        index = json.loads(data)
        for cell in index["cells"].values():
            cell |= {key: value for key, value in values.items() if key in cell}
        return json.dumps(index).encode()

    return change


@pytest.mark.parametrize(
    "change",
    [
        index_with(networks={"../../../../evil": "networks/evil.parquet"}),
        index_with(networks={"alexnet": "../../evil.parquet"}),
        index_with(networks={"alexnet": "/etc/passwd"}),
        index_with(networks=["alexnet"]),
        index_with(study="../evil"),
        index_with(study="evil\n"),
        index_with(study=None),
        index_with(hardware={"../evil": 1}),
        index_with(hardware={"cpu": -5}),
        index_with(hardware="cpu"),
        index_with(presets={"mine": "wfbp"}),
        index_with(shared_links=[["cpu"]]),
        index_with(cells=[]),
        index_with(cells={"results/../../x": {}}),
        cells_with(network="../evil"),
        cells_with(network="a/b"),
        cells_with(network="a" * 300),
        cells_with(storage=".."),
        cells_with(nodes=-5),
        cells_with(nodes="two"),
        cells_with(nodes=True),
        cells_with(batch=1.5),
        cells_with(preset=[]),
        lambda name, data: b"[" * 100_000 if name == "archive.json" else data,
        lambda name, data: b"[]" if name == "archive.json" else data,
        lambda name, data: b"\xff\xfe" if name == "archive.json" else data,
    ],
)
def test_a_hostile_index_is_refused_and_nothing_is_written(
    site: Path, tmp_path: Path, change: Callable[[str, bytes], bytes]
) -> None:
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    path = changed(site, inner / "a.zip", change)
    assert "its archive.json is not the index of an archive" in refused(path)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def test_a_bomb_is_refused_by_its_size_before_it_is_read(site: Path, tmp_path: Path) -> None:
    path = changed(site, tmp_path / "a.zip", lambda name, data: data)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("results/secret/raw/bomb.parquet", bytes(64 * 2**20))
    assert "results/secret/raw/bomb.parquet would be 67,108,864 bytes" in refused(path)


def test_members_that_zip_cannot_read_are_named(site: Path, tmp_path: Path) -> None:
    path = changed(site, tmp_path / "a.zip", lambda name, data: data)
    data = bytearray(path.read_bytes())
    # The flag of encryption, in the directory at the end and before each member.
    for mark, place in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        start = data.find(mark)
        while start >= 0:
            data[start + place] = 1
            start = data.find(mark, start + 4)
    path.write_bytes(data)
    assert "cannot be read" in refused(path)


def test_files_that_are_no_archives_are_refused(site: Path, tmp_path: Path) -> None:
    whole = (site / "secret.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    assert "is not a zip, or damaged" in refused(tmp_path / "cut.zip")
    assert f"OLD: there is no file {tmp_path / 'none.zip'}" in refused(tmp_path / "none.zip")
    assert "is a folder; name the zip" in refused(tmp_path)
