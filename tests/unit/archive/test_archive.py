"""Archives: what is in them, what is left out, that they are crates, and that they are the same each time."""

import base64
import gzip
import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from archived import ACCOUNT, NODES, SECRETS, USER, archive, inside, results, study_of
from rocrate.rocrate import ROCrate
from rocrate_community import problems

from stallpoint.archive.crate import pack
from stallpoint.archive.making import find_words, texts
from stallpoint.records.parquet import read
from stallpoint.records.tables import ACCOUNTING, ENVIRONMENTS, RUNS, SLURM_JOBS

RAW = "results/secret/raw"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a study was run: its records name users, nodes and paths."""
    with inside(tmp_path_factory.mktemp("qzhome")) as folder:
        results(study_of())
    return folder


@pytest.fixture(scope="module")
def archived(site: Path) -> Path:
    with inside(site):
        assert archive(study_of(), site / "archives/secret.zip") == {}
    return site / "archives/secret.zip"


@pytest.fixture(scope="module")
def unpacked(archived: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    with zipfile.ZipFile(archived) as file:
        file.extractall(folder)
    return folder


PEOPLE = [
    {"family-names": "Curie", "given-names": "Marie", "orcid": "https://orcid.org/0000-0002-1825-0097",
     "affiliation": "Sorbonne"},
    {"name": "The cluster group"},
]  # fmt: skip


@pytest.fixture(scope="module")
def cited(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with authors, a title and a licence."""
    file = tmp_path_factory.mktemp("cited") / "a.zip"
    with inside(site):
        archive(study_of(archive={"title": "A title", "authors": PEOPLE, "licence": "CC0-1.0"}), file)
    return file


def members(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


@pytest.mark.night  # takes a minute; by day the archive of a study that ran is validated (tests/workflow)
def test_it_validates_as_a_provenance_run_crate(cited: Path, tmp_path: Path) -> None:
    assert problems(cited, tmp_path / "cache") == []


@pytest.mark.night  # takes a minute; by day the archive of a study that ran is validated (tests/workflow)
def test_the_validator_finds_what_is_missing(archived: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archived) as whole, zipfile.ZipFile(tmp_path / "part.zip", "w") as part:
        for name in whole.namelist():
            if name != "results/secret/report.html":
                part.writestr(name, whole.read(name))
    assert any("report.html" in problem for problem in problems(tmp_path / "part.zip", tmp_path / "cache"))


def test_the_crate_says_what_ran_and_what_came_out(unpacked: Path) -> None:
    crate = ROCrate(unpacked)
    assert crate.mainEntity["programmingLanguage"]["name"] == "Snakemake"
    run = crate.root_dataset["mentions"]
    assert (run["startTime"], run["endTime"]) == ("2026-01-02T03:04:05+00:00", "2026-01-02T03:04:07+00:00")
    assert {entity.id for entity in run["result"]} >= {f"{RAW}/", "results/secret/report.html"}
    (machine,) = crate.get_by_type("PropertyValue")
    assert machine["value"].startswith("2 nodes; made-up CPU")
    described = {entity.id for entity in crate.get_by_type("File")} | {"ro-crate-metadata.json"}
    assert described == {str(file.relative_to(unpacked)) for file in members(unpacked)}


def test_the_crate_says_which_step_made_what_and_why_a_cell_failed(unpacked: Path) -> None:
    crate = ROCrate(unpacked)
    steps = {step["name"]: step for step in crate.get_by_type("HowToStep")}
    assert steps["collect"]["workExample"].id == "scripts/collect.py"
    runs = {control["object"].id: control for control in crate.get_by_type("ControlAction")}
    rows = read(RUNS, unpacked / "results/secret/tables/runs.parquet").to_pylist()
    assert sum(name.startswith(f"#run-{RAW}/") for name in runs) == len(rows)
    (failed,) = [run["object"] for run in runs.values() if run["object"].get("error")]
    assert failed["error"] == "no room in x.py, said user@host: path2/y.py"
    assert failed["result"].id == f"{failed.id.removeprefix('#run-')}/runs.parquet"
    made = [entity.id for entity in runs["#run-of-collect"]["object"]["result"]]
    assert "results/secret/tables/runs.parquet" in made
    assert runs["#run-of-collect"]["instrument"] is steps["collect"]


def test_the_checksums_are_those_of_every_file(unpacked: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", "checksums.sha256"], cwd=unpacked, check=True)
    listed = {line.partition("  ")[2] for line in (unpacked / "checksums.sha256").read_text().splitlines()}
    assert listed == {str(file.relative_to(unpacked)) for file in members(unpacked)} - {"checksums.sha256"}


def test_no_byte_of_it_names_users_nodes_or_places(unpacked: Path, site: Path) -> None:
    secrets = [*SECRETS, str(site)]
    for file in members(unpacked):
        said = "\n".join(texts(file)) + file.read_bytes().decode(errors="replace")
        assert [secret for secret in secrets if secret in said] == [], file


def test_nodes_keep_their_order_and_are_the_same_everywhere(unpacked: Path) -> None:
    rows = read(ENVIRONMENTS, unpacked / "results/secret/tables/environments.parquet").to_pandas()
    pair = rows[rows["cell"].str.contains("nodes~2")].sort_values("rank")
    assert pair["node"].tolist() == ["node1", "node2"]
    assert set(pair["subnet"]) == {"IPv4"}
    assert set(read(SLURM_JOBS, unpacked / "results/secret/tables/slurm_jobs.parquet")["node_list"].to_pylist()) == {
        "node1,node2"
    }
    (failed,) = [
        reason for reason in read(RUNS, unpacked / "results/secret/tables/runs.parquet")["reason"].to_pylist() if reason
    ]
    assert failed == "no room in x.py, said user@host: path2/y.py"


def test_records_keep_schema_and_metadata_and_everything_else(unpacked: Path, site: Path) -> None:
    for file in sorted((site / RAW).rglob("*.parquet")):
        before, after = pq.read_table(file), pq.read_table(unpacked / file.relative_to(site))
        assert after.schema.equals(before.schema, check_metadata=True)
        kept = [
            name
            for name in before.column_names
            if name not in ("node", "mpi_library", "subnet", "settings", "reason", "node_list")
        ]
        assert after.select(kept).equals(before.select(kept))


def test_slurms_accounts_are_in_it(unpacked: Path) -> None:
    (row,) = read(ACCOUNTING, unpacked / "results/secret/accounting.parquet").to_pylist()
    assert row == {**ACCOUNT, "node_list": "node1,node2"}


def test_it_is_the_same_to_the_last_byte_each_time(archived: Path, site: Path) -> None:
    with inside(site):
        archive(study_of(), site / "again.zip")
    assert (site / "again.zip").read_bytes() == archived.read_bytes()


def test_what_a_killed_run_left_is_not_published(archived: Path, site: Path, tmp_path: Path) -> None:
    scrap = site / "results/secret/.drawn.wj6cuqe8/drawn/chart.svg"
    scrap.parent.mkdir(parents=True)
    scrap.write_text(f"half drawn by {USER}")
    with inside(site):
        archive(study_of(), tmp_path / "killed.zip")
    shutil.rmtree(scrap.parents[1])
    assert (tmp_path / "killed.zip").read_bytes() == archived.read_bytes()


def test_a_zip_that_cannot_be_made_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("old")
    with pytest.raises(ZeroDivisionError):
        pack(tmp_path, tmp_path / "a.zip", folders=(str(1 / 0) for _ in "a"))
    assert (tmp_path / "a.zip").read_text() == "old"


def test_names_are_kept_when_asked_for(site: Path, tmp_path: Path) -> None:
    with inside(site):
        archive(study_of(archive={"keep_names": True}), tmp_path / "named.zip")
    with zipfile.ZipFile(tmp_path / "named.zip") as file:
        file.extractall(tmp_path)
    rows = read(ENVIRONMENTS, tmp_path / "results/secret/tables/environments.parquet")
    assert set(rows["node"].to_pylist()) == set(NODES)
    assert f"/qzscratch/{USER}/images" in (tmp_path / "config/config.yaml").read_text()


def test_names_that_the_author_writes_are_pointed_out(site: Path, tmp_path: Path) -> None:
    with inside(site):
        found = archive(study_of(archive={"title": f"Runs of {USER}"}), tmp_path / "titled.zip")
    assert found["CITATION.cff"] == [USER]


@pytest.mark.parametrize("keep_names", [False, True])
def test_files_of_claims_come_along_under_names_without_places(keep_names: bool, site: Path, tmp_path: Path) -> None:
    own = {"id": "own", "sentence": "It is worth it.", "missing": "no table says what it is worth"}
    claims = ["papers", "qz/a.yaml", str(site / "qz/b.yaml"), str(tmp_path / "c.yaml"), own]
    with inside(site):
        for name in claims[1:4]:
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(f"paper: {name[-6:]}\nclaims: []\n")
        archive(study_of(claims=claims, archive={"keep_names": keep_names}), tmp_path / "claims.zip")
    with zipfile.ZipFile(tmp_path / "claims.zip") as file:
        archived = yaml.safe_load(file.read("config/config.yaml"))["claims"]
        assert archived[:3] + archived[4:] == ["papers", "qz/a.yaml", "qz/b.yaml", own]
        assert re.fullmatch(r"path\d/c.yaml", archived[3])
        assert [file.read(name).decode()[7:13] for name in archived[1:4]] == [name[-6:] for name in claims[1:4]]


def test_the_study_in_it_is_the_same_study_and_measures_nothing(unpacked: Path) -> None:
    config = yaml.safe_load((unpacked / "config/config.yaml").read_text())
    with inside(unpacked):
        again = study_of(**config)
    assert again.config["archived"]
    assert set(again.cells) == set(study_of().cells)


def test_who_is_to_be_cited_stands_in_citation_and_crate(cited: Path) -> None:
    with zipfile.ZipFile(cited) as file:
        citation = yaml.safe_load(file.read("CITATION.cff"))
        graph = json.loads(file.read("ro-crate-metadata.json"))["@graph"]
    assert (citation["title"], citation["license"], citation["authors"]) == ("A title", "CC0-1.0", PEOPLE)
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert {"@id": "https://orcid.org/0000-0002-1825-0097", "@type": "Person", "name": "Marie Curie",
            "affiliation": {"@id": "#sorbonne"}} in graph  # fmt: skip


def test_words_packed_into_a_page_are_found(tmp_path: Path) -> None:
    packed = base64.b64encode(gzip.compress(f'{{"node": "{NODES[0]}"}}'.encode())).decode()
    page = f'<style>.qzgpu9 {{}}</style><script>qzgpu9</script><script type="application/gzip" id="x">{packed}</script>'
    (tmp_path / "page.html").write_text(page)
    assert find_words(["qzgpu9", "qzgpu"], tmp_path, ["page.html"]) == {"page.html": ["qzgpu9"]}
    (tmp_path / "page.html").write_text(page.replace('id="x"', 'id="libraries"'))  # as any program
    assert find_words(["qzgpu9"], tmp_path, ["page.html"]) == {}
    (tmp_path / "page.html").write_text(page.replace(packed, ""))
    assert find_words(["qzgpu9"], tmp_path, ["page.html"]) == {}
