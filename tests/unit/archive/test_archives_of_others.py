"""Archives of other studies as further hardware: records come in under new names, and whatever is wrong is named."""

import hashlib
import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from archived import ROOT, archive, inside, results, study_of

from stallpoint.archive.making import make_archive
from stallpoint.archive.other_archives import record_folders, unpack
from stallpoint.errors import InputError
from stallpoint.explain.importing import import_cell
from stallpoint.models import fitting
from stallpoint.networks.described import descriptions
from stallpoint.records.parquet import read, read_frames, write
from stallpoint.records.tables import ENVIRONMENTS, ITERATIONS, NETWORK_LAYERS, RUNS, SCHEMA_VERSION, TIDY_TABLES
from stallpoint.study.collect import collect
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell, ImportedTrainCell
from stallpoint.study.study import Study

ALONE: dict[str, Any] = {"hardware": {}, "matrix": [], "storage": {}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archive ``secret.zip``."""
    with inside(tmp_path_factory.mktemp("site")) as folder:
        results(study_of(presets={"mine": {"like": "wfbp"}}))
        write(NETWORK_LAYERS, NETWORK_LAYERS.schema.empty_table(), Path("results/secret/networks/alexnet.parquet"))
        archive(study_of(presets={"mine": {"like": "wfbp"}}), folder / "secret.zip")
    return folder


def with_archives(site: Path, *entries: Any, **changes: Any) -> Study:
    with inside(site):
        return study_of(**{"study": "both", "archives": list(entries), **changes})


def test_they_stand_beside_the_studys_own(site: Path) -> None:
    both = with_archives(site, "secret.zip", {"path": "secret.zip", "name": "again"})
    assert both.available == {"cpu": 2, "secret.cpu": 2, "again.cpu": 2}
    assert len(list(both.recorded)) == 3 * len(both.cells)
    assert len(both.cells) == len(study_of().cells), "nothing more is measured"
    assert both.presets["mine"] == {"like": "wfbp"}
    assert "from secret.zip: 3 cells, as hardware secret.cpu" in both.plan()


def test_they_can_be_all_there_is(site: Path) -> None:
    study = with_archives(site, "secret.zip", **ALONE)
    assert (dict(study.cells), study.available) == ({}, {"secret.cpu": 2})


def test_records_come_in_under_the_new_name_and_are_else_the_same(site: Path, tmp_path: Path) -> None:
    unpack("there", site / "secret.zip", tmp_path / "there")
    folders = record_folders(tmp_path / "there")
    collect(RUNS, folders, tmp_path / "runs.parquet")
    runs = read(RUNS, tmp_path / "runs.parquet").to_pylist()
    assert len(runs) == len(folders) == 3
    for run, folder in zip(runs, folders, strict=True):
        assert run["hardware"] == "there.cpu"
        assert folder == tmp_path / "there/raw" / run["cell"]
        assert cell_from_json(run["settings"]).path == run["cell"]
    collect(ENVIRONMENTS, folders, tmp_path / "environments.parquet")
    before = read(ENVIRONMENTS, site / "results/secret/tables/environments.parquet").drop(
        ["cell", "node", "mpi_library", "subnet"]
    )
    after = read(ENVIRONMENTS, tmp_path / "environments.parquet").drop(["cell", "node", "mpi_library", "subnet"])
    assert sorted(after.to_pylist(), key=str) == sorted(before.to_pylist(), key=str)
    described = descriptions(["mine.parquet"], [tmp_path / "there"])
    assert [str(file.relative_to(tmp_path) if file.is_absolute() else file) for file in described] == [
        "mine.parquet",
        "there/networks/alexnet.parquet",
    ]


def test_an_archive_of_a_study_with_archives_holds_them_too(site: Path, tmp_path: Path) -> None:
    both = with_archives(site, "secret.zip", study="secret", **ALONE)
    with inside(tmp_path):
        unpack("secret", site / "secret.zip", Path("results/secret/archives/secret"))
        for name in ("report.html", "conclusions.json", "conclusions.md"):
            Path("results/secret", name).write_text("")
        make_archive(
            both, tmp_path / "both.zip", workflow=ROOT, users=[], accounts=[], drawn=[], draw=lambda folder: None
        )
        with zipfile.ZipFile("both.zip") as file:
            file.extractall(tmp_path / "elsewhere")
    config = yaml.safe_load((tmp_path / "elsewhere/config/config.yaml").read_text())
    with inside(tmp_path / "elsewhere"):
        again = study_of(**config)
        assert [cell.path for cell in again.recorded] == [cell.path for cell in both.recorded]
    third = with_archives(tmp_path, "both.zip", study="third", **ALONE)
    assert third.available == {"secret.secret.cpu": 2}
    unpack("x", tmp_path / "both.zip", tmp_path / "x")
    assert len(record_folders(tmp_path / "x")) == 3


def test_a_papers_table_is_archived_and_modelled_beside(tmp_path: Path) -> None:
    config = yaml.safe_load((ROOT / "config/studies/shi-2018-table-vi.yaml").read_text())
    file = config["hardware"]["k80-2gpu"]["traces"][0]["files"]
    with inside(tmp_path):
        Path(file).parent.mkdir(parents=True)
        Path(file).write_text((ROOT / file).read_text())
        paper = study_of(**{**ALONE, **config, "collectives": {}})
        for path, cell in paper.cells.items():
            assert isinstance(cell, ImportedTrainCell | ImportedCollectivesCell)
            import_cell(cell, Path("results", paper.name, "raw", path))
        for name in ("report.html", "conclusions.json", "conclusions.md"):
            Path("results", paper.name, name).write_text("")
        make_archive(paper, Path("paper.zip"), workflow=ROOT, users=[], accounts=[], drawn=[], draw=lambda folder: None)
        unpack("paper", Path("paper.zip"), Path("unpacked"))
        files = {table.name: tmp_path / f"{table.name}.parquet" for table in TIDY_TABLES}
        for table in TIDY_TABLES:
            collect(table, record_folders(Path("unpacked")), files[table.name])
        study = with_archives(tmp_path, {"path": "paper.zip", "name": "paper"}, **ALONE)
    fitted = fitting.fit(
        read_frames(TIDY_TABLES, files), nodes=[1, 2], threshold=0.1, efficiency=0.5, available=study.available
    )
    assert set(fitted["predictions"]["hardware"]) == {"paper.k80-2gpu"}


def changed(site: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """The archive with each member as `change` has it; None leaves it out."""
    with zipfile.ZipFile(site / "secret.zip") as whole, zipfile.ZipFile(target, "w") as copy:
        for name in whole.namelist():
            if (data := change(name, whole.read(name))) is not None:
                copy.writestr(name, data)
    return target


def refused(path: Path) -> str:
    """Why a study with this archive is refused, or else why it is not unpacked."""
    try:
        study_of(archives=[str(path)], study="both")
    except InputError as error:
        return str(error)
    with pytest.raises(InputError) as caught:
        unpack("x", path, path.parent / "unpacked")
    assert not (path.parent / "unpacked").exists(), "nothing half-written"
    return str(caught.value)


def index_with(**values: Any) -> Callable[[str, bytes], bytes]:
    return lambda name, data: json.dumps({**json.loads(data), **values}).encode() if name == "archive.json" else data


def without(part: str) -> Callable[[str, bytes], bytes | None]:
    return lambda name, data: None if part in name else data


def edited(part: str) -> Callable[[str, bytes], bytes]:
    return lambda name, data: data[:-1] + b"?" if part in name else data


def unlisted(name: str, data: bytes) -> bytes:
    """No checksum of any table of runs."""
    lines = data.splitlines(keepends=True)
    return b"".join(line for line in lines if b"runs" not in line) if name == "checksums.sha256" else data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("archive.json"), "archives[0]: {path} is not an archive of stallpoint: it has no archive.json"),
        (without("checksums"), "archives[0]: {path} is not an archive of stallpoint: it has no checksums.sha256"),
        (
            index_with(records=99),
            f"archives[0]: {{path}}: format 99 of its records, this program reads {SCHEMA_VERSION}",
        ),
        (index_with(archive=2), "archives[0]: {path}: format 2 of its archive, this program reads 1"),
        (index_with(cells={"a": {"kind": "train"}}), "archives[0]: {path}: its archive.json is not the index"),
        (
            without(
                "nodes~2/workers_per_node~1/batch~4/storage~disk/scaling~strong/sync~wfbp/prefetch~1/repeat~1/runs"
            ),
            "no records of train",
        ),
        (edited("environments.parquet"), "environments.parquet is not what it was archived as, its checksum differs"),
        (unlisted, "checksums.sha256 has no checksum of results/secret/raw/train"),
        (without("networks/"), "it has no results/secret/networks/alexnet.parquet"),
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


def test_records_of_another_cell_are_refused(site: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(site / "secret.zip") as whole:
        runs = sorted(name for name in whole.namelist() if name.endswith("runs.parquet") and "raw/train" in name)
        first, second = whole.read(runs[0]), whole.read(runs[1])
    sums = {hashlib.sha256(first).hexdigest().encode(): hashlib.sha256(second).hexdigest().encode()}

    def swapped(name: str, data: bytes) -> bytes:
        if name == "checksums.sha256":
            return b"".join(
                next(iter(sums.values())) + line[64:] if line.decode().rstrip().endswith(runs[0]) else line
                for line in data.splitlines(keepends=True)
            )
        return second if name == runs[0] else data

    assert "it holds records of 'train/" in refused(changed(site, tmp_path / "a.zip", swapped))


def first_value(column: str, value: float) -> Callable[[pa.Table], pa.Table]:
    """Put a value into the first row of a column."""

    def put(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(column)
        values = pa.array([value, *rows[column].to_pylist()[1:]], rows.schema.field(column).type)
        return rows.set_column(place, rows.schema.field(column), values)

    return put


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (first_value("forward", -1.0), "forward is -1.0, a duration below 0"),
        (first_value("iteration_time", math.nan), "iteration_time is nan"),
        (first_value("rank", 7), "ranks 0 to 7; expected are 0 to"),
        (lambda rows: rows.slice(0, rows.num_rows // 2), "rows; "),
        (lambda rows: rows.slice(0, 0), "it has no rows"),
        (None, "it is missing"),
    ],
)
def test_records_whose_values_were_altered_are_refused_where_they_come_in(
    site: Path, tmp_path: Path, change: Callable[[pa.Table], pa.Table] | None, message: str
) -> None:
    with zipfile.ZipFile(site / "secret.zip") as whole:
        target = next(name for name in whole.namelist() if "raw/train" in name and name.endswith("iterations.parquet"))
        before = whole.read(target)
    file = tmp_path / "iterations.parquet"
    file.write_bytes(before)
    if change:
        write(ITERATIONS, change(read(ITERATIONS, file)), file)
    after = file.read_bytes()
    sums = [hashlib.sha256(data).hexdigest().encode() for data in (before, after)]

    def altered(name: str, data: bytes) -> bytes | None:
        if name == "checksums.sha256":
            return data.replace(*sums)
        return data if name != target else after if change else None

    said = refused(changed(site, tmp_path / "a.zip", altered))
    assert "iterations.parquet: " in said
    assert message in said


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
    middle = whole.index(b"raw/train") + 400
    (tmp_path / "bad.zip").write_bytes(whole[:middle] + bytes(200) + whole[middle + 200 :])
    assert "damaged" in refused(tmp_path / "bad.zip")
    assert f"archives[0]: there is no file {tmp_path / 'none.zip'}" in refused(tmp_path / "none.zip")
    assert "is a folder; name the zip" in refused(tmp_path)


def test_names_that_meet_are_refused(site: Path) -> None:
    with pytest.raises(InputError, match=r"archives\[1\]: hardware secret.cpu is already in archives\[0\]; give the"):
        with_archives(site, "secret.zip", "secret.zip")
    with pytest.raises(InputError, match=r"archives\[0\]: hardware secret.cpu is already in the study"):
        with_archives(site, "secret.zip", hardware={"secret.cpu": {"device": "cpu", "nodes": 1}}, matrix=[])
    with pytest.raises(InputError, match=r"archives\[0\]: preset mine is something else there"):
        with_archives(site, "secret.zip", presets={"mine": {"like": "naive"}})
    with pytest.raises(InputError, match=r"archives\[0\]: .* is not valid|archives\[0\]"):
        with_archives(site, {"name": "x"})
