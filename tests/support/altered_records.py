"""Archives that somebody altered, with checksums that agree: none of them is accepted where it comes in.

``python -m altered_records [--trials N] [--seed N]`` prints one JSON line for each kind of change (`Tally`). Each trial
changes an archive of every kind of record in one place; then it is unpacked as a study that names it does. Red are
archives that are accepted (`half` counts them), and messages that do not name the archive.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import archived
import pyarrow as pa
import pyarrow.parquet as pq
from tally import Tally, as_program

from stallpoint.archive.index import INDEX
from stallpoint.archive.other_archives import unpack
from stallpoint.errors import InputError
from stallpoint.records.checksums import CHECKSUMS
from stallpoint.records.parquet import write
from stallpoint.records.tables import ENERGY, NETWORK_LAYERS, SENSORS, SLURM_JOBS, TABLES, TEXT
from stallpoint.strategies.presets import PRESETS

Members = dict[str, bytes]
Change = Callable[[Members, random.Random], None]
STUDY: dict[str, Any] = {
    "presets": {"mine": {"like": "wfbp"}, "other": {"like": "mine", "gradient_bits": 16}},
    "networks": {"own": {"build": "own.py:build", "image_size": 8}},
    "matrix": [{**archived.CONFIG["matrix"][0], "network": ["alexnet", "own"], "sync": "mine"}],
    "interventions": ["synthetic-data"],
    "sgemm": {"batches": [1], "samples": 1},
    "storage_reads": {"samples": 1},
    "copies": {"samples": 1},
    "collectives": {"samples": 2, "largest": 4096},
    "iterations": 2,
    "warmup": 1,
}
NO_DURATIONS = {"exposed_communication", "timing_cost", "preparing", *(column.name for column in SENSORS)}
"""Columns in seconds that may be below 0, or that no check can judge."""
EVIL = (
    {"build": "/etc/passwd:build", "image_size": 8}, {"build": "os:system", "image_size": 8}, {"build": 5},
    {"build": "own.py:build", "image_size": 10**9}, {"build": "own.py:build", "image_size": -8}, {}, {"image_size": 8},
    {"build": "../../own.py:build", "image_size": 8, "run": "rm -rf /"}, [], None, "own.py:build",
)  # fmt: skip
"""What an own network must not be."""


@cache
def whole() -> Members:
    """What an archive holds for other studies, its checksums aside."""
    with tempfile.TemporaryDirectory() as scratch, archived.inside(Path(scratch)):
        Path("own.py").write_text("")
        study = archived.study_of(**STUDY)
        archived.results(study, fails="")
        for network in ("alexnet", "own"):
            row = {column.name: "x" if column.type == TEXT else 1 for column in NETWORK_LAYERS.columns}
            layers = Path(f"results/secret/networks/{network}.parquet")
            write(NETWORK_LAYERS, [{**row, "network": network}], layers)
        archived.archive(study, Path("secret.zip"))
        with zipfile.ZipFile("secret.zip") as file:
            names = [name for name in file.namelist() if name.endswith(".parquet") and "/tables/" not in name]
            return {name: file.read(name) for name in [*names, INDEX]}


def packed(members: Members) -> bytes:
    """The archive, its checksums put right."""
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in members.items())
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        for name, data in {**members, CHECKSUMS: sums.encode()}.items():
            file.writestr(name, data)
    return target.getvalue()


# --- changes of records ---------------------------------------------------------------------------


def with_column(wanted: Callable[[str, str], bool], members: Members, draw: random.Random) -> tuple[str, str]:
    """Draw a record and one of its columns; each pair of table and column that is `wanted` is equally likely."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in sorted(members):
        if "/raw/" in name:
            for column in TABLES[Path(name).stem].names:
                if wanted(Path(name).stem, column):
                    found.setdefault((Path(name).stem, column), []).append(name)
    pair = draw.choice(list(found))
    return draw.choice(found[pair]), pair[1]


def is_duration(table: str, column: str) -> bool:
    unit = next(one.unit for one in TABLES[table].columns if one.name == column)
    positions = ("start", "end", "ready", "low", "high", "planned")
    return unit == "s" and column not in NO_DURATIONS and not column.endswith(positions)


def rewritten(members: Members, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, Path(name).name)
        table = NETWORK_LAYERS if "/networks/" in name else TABLES[file.stem]
        write(table, change(pq.read_table(io.BytesIO(members[name]))), file)
        members[name] = file.read_bytes()


def put(members: Members, place: tuple[str, str], draw: random.Random, value: Any) -> None:
    """Put a value into a row of a column."""
    name, column = place

    def change(rows: pa.Table) -> pa.Table:
        values, index = rows[column].to_pylist(), rows.schema.get_field_index(column)
        values[draw.randrange(len(values))] = value
        return rows.set_column(index, rows.schema.field(column), pa.array(values, rows.schema.field(column).type))

    rewritten(members, name, change)


def negative(members: Members, draw: random.Random) -> None:
    put(members, with_column(is_duration, members, draw), draw, -(10 ** draw.uniform(-9, 3)))


def no_number(members: Members, draw: random.Random) -> None:
    put(members, with_column(is_duration, members, draw), draw, draw.choice([math.nan, math.inf]))


def beyond(members: Members, draw: random.Random) -> None:
    put(members, with_column(lambda _, name: name == "rank", members, draw), draw, draw.choice([-1, 2, 7, 10**9]))


def unknown(members: Members, draw: random.Random) -> None:
    known = {"cell", "rank", "visit", "iteration", "nodes", "iteration_time", "seconds", "forward", "message_bytes"}
    place = with_column(lambda table, name: name in known and table != "slurm_jobs", members, draw)
    put(members, place, draw, None)


def another_axis(members: Members, draw: random.Random) -> None:
    axes = {"nodes": 3, "batch": 77, "worker_batch": 77, "global_batch": 77, "ranks": 9, "repeat": 2, "kind": "train2",
            "network": "vgg", "hardware": "gpu", "storage": "tape", "sync": "naive", "cell": "train/x"}  # fmt: skip
    name, column = with_column(lambda table, name: name in axes and table != "slurm_jobs", members, draw)
    if (name.rsplit("/", 1)[1], column) == ("sgemm.parquet", "worker_batch"):  # it has several
        column = "network"
    put(members, (name, column), draw, axes[column])


def fewer_rows(members: Members, draw: random.Random) -> None:
    name, _ = with_column(lambda table, name: name == "cell" and table not in ("slurm_jobs", "runs"), members, draw)
    cut = draw.choice([
        lambda rows: rows.slice(0, rows.num_rows // 2),
        lambda rows: rows.slice(rows.num_rows - rows.num_rows // 2),
        lambda rows: rows.take(pa.array(range(0, rows.num_rows - rows.num_rows % 2, 2), pa.int64())),
        lambda rows: rows.slice(0, 0),
    ])  # fmt: skip
    rewritten(members, name, cut)


def rows_twice(members: Members, draw: random.Random) -> None:
    exact = {"runs", "iterations", "visits", "environments", "instrumentation", "peak_memory", "collectives"}
    name, _ = with_column(lambda table, name: name == "cell" and table in exact, members, draw)
    rewritten(members, name, lambda rows: pa.concat_tables([rows, rows]))


def missing_table(members: Members, draw: random.Random) -> None:
    may_lack = (SLURM_JOBS.name, ENERGY.name)  # records of a laptop, and those from before energy was read
    name, _ = with_column(lambda table, name: name == "cell" and table not in may_lack, members, draw)
    del members[name]


def another_record(members: Members, draw: random.Random) -> None:
    name, _ = with_column(lambda table, name: name == "cell", members, draw)
    others = sorted(other for other in members if other.endswith(name.rsplit("/", 1)[1]) and other != name)
    members[name] = members[draw.choice(others)] if others else b""


def another_setting(members: Members, draw: random.Random) -> None:
    name = draw.choice(sorted(name for name in members if name.endswith("/runs.parquet")))
    (settings,) = pq.read_table(io.BytesIO(members[name]))["settings"].to_pylist()
    cell = json.loads(settings)
    key = draw.choice(sorted(key for key, value in cell.items() if type(value) is int))
    put(members, (name, "settings"), draw, json.dumps(cell | {key: cell[key] + draw.randint(1, 9)}))


def another_status(members: Members, draw: random.Random) -> None:
    name = draw.choice(sorted(name for name in members if name.endswith("/runs.parquet")))
    put(members, (name, "status"), draw, draw.choice(["failed", "fine", "", None]))


# --- changes of the index -------------------------------------------------------------------------


def in_index(change: Callable[[dict[str, Any], random.Random], None]) -> Change:
    def changed(members: Members, draw: random.Random) -> None:
        index = json.loads(members[INDEX])
        change(index, draw)
        members[INDEX] = json.dumps(index).encode()

    return changed


def preset(index: dict[str, Any], draw: random.Random) -> None:
    nested: dict[str, Any] = {"like": "wfbp"}
    for _ in range(50):
        nested = {"like": nested}
    index["presets"] |= draw.choice([
        {"mine": {"like": "mine"}}, {"mine": {"like": "other"}}, {"mine": {}}, {"mine": nested},
        {draw.choice(list(PRESETS)): {"like": "wfbp"}}, {"mine": {"like": "wfbp", "gradient_bits": 8}},
        {"mine": {"like": "wfbp", "run": "rm"}}, {"mine": {"like": "wfbp", "micro_batches": "2"}},
        {"mine": {"like": "wfbp", "device_prefetch": "yes"}}, {"mine": {"like": "wfbp", "top_k": math.nan}},
        {"mine": {"like": ["wfbp"]}}, {"mine": "wfbp"}, {"../evil": {"like": "wfbp"}},
    ])  # fmt: skip


def own_network(index: dict[str, Any], draw: random.Random) -> None:
    index["own_networks"][draw.choice(["own", "other", "alexnet", "../evil"])] = draw.choice(EVIL)


def hardware(index: dict[str, Any], draw: random.Random) -> None:
    index["hardware"] = draw.choice([{}, {"gpu": 2}, {"cpu": 0}, {"cpu": True}, ["cpu"], {"cpu": 2, "a/b": 1}])
    index["shared_links"] = draw.choice([[], [["cpu", "disk"]], [["gpu", "disk"]]])


def cells(index: dict[str, Any], draw: random.Random) -> None:
    cell = index["cells"][draw.choice(sorted(index["cells"]))]
    match draw.randrange(4):
        case 0:
            index["cells"] = {}
        case 1:
            del cell[draw.choice(sorted(cell))]
        case 2:
            key = draw.choice(sorted(key for key, value in cell.items() if type(value) is int))
            cell[key] += draw.randint(1, 9)
        case 3:
            cell[draw.choice(sorted(cell))] = draw.choice([[], {"": None}, -1, math.nan, "../evil", "a" * 300])


def description(members: Members, draw: random.Random) -> None:
    name, other = draw.sample(sorted(name for name in members if "/networks/" in name), 2)
    match draw.randrange(4):
        case 0:
            members[name] = members[other]
        case 1:
            members[name] = members[name][:-40]
        case 2:
            members[name] = members[draw.choice(sorted(one for one in members if "/raw/" in one))]
        case 3:
            put(members, (name, draw.choice(["gradient_bytes", "parameters", "multiply_adds"])), draw, -1)


CHANGES: dict[str, Change] = {
    "a time below 0": negative,
    "a time that is no number": no_number,
    "a rank beyond the world": beyond,
    "a value that is missing": unknown,
    "half the rows": fewer_rows,
    "rows twice": rows_twice,
    "a missing table": missing_table,
    "another cell's table": another_record,
    "another cell's settings": another_setting,
    "another cell's columns": another_axis,
    "another status": another_status,
    "presets": in_index(preset),
    "own networks": in_index(own_network),
    "hardware": in_index(hardware),
    "cells": in_index(cells),
    "descriptions of networks": description,
}


def refusal(content: bytes) -> str:
    """Return why the archive is refused; empty if it is accepted."""
    with tempfile.TemporaryDirectory(prefix="stallpoint-altered-") as scratch:
        file, folder = Path(scratch, "altered.zip"), Path(scratch, "unpacked")
        file.write_bytes(content)
        try:
            unpack("there", file, folder)
        except InputError as error:
            assert not folder.exists(), "something of it is there"
            return str(error)
        return ""


def altered(trials: int, seed: int) -> list[Tally]:
    """Alter an archive `trials` times, by each kind of change in turn; return a tally for each kind."""
    tallies = [Tally("altered", kind) for kind in CHANGES]
    if why := refusal(packed(whole())):
        tallies[0].red.append(f"unaltered: {why}")
    for trial in range(trials):
        tally, draw = tallies[trial % len(tallies)], random.Random(f"{seed} {trial}")
        members = dict(whole())
        CHANGES[tally.fault](members, draw)
        assert members != whole(), tally.fault
        tally.trials += 1
        try:
            why = refusal(packed(members))
        except Exception as error:
            tally.red.append(f"{tally.fault}, seed {seed}, trial {trial}: {error!r}")
            continue
        tally.refused += bool(why)
        tally.half += not why
        tally.clear += "altered.zip" in why
        if "altered.zip" not in why:
            tally.red.append(f"{tally.fault}, seed {seed}, trial {trial}: {why or 'accepted'}")
    return [tally for tally in tallies if tally.trials]


if __name__ == "__main__":
    as_program(altered, __doc__, trials=300)
