"""Files of others, changed at random and read again: each is taken, or refused in words.

``python -m fuzzing [KIND ...] [--trials N] [--seed N]`` prints one JSON line for each kind of file (`Tally`). Of valid
files one is drawn and changed in one to three places, as bytes, as words or as a tree of values; then it goes where the
workflow or ``stallpoint explain`` takes it. Red are tracebacks, messages that do not name the file, hangs, memory
beyond `MEMORY` and files outside of the folder; of *bad studies*, each with an entry that no study can have, those that
are taken; of *harmless changes*, which mean the same, other answers than before.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import shutil
import signal
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import all_reduce_samples
import archived
import claim_tables
import yaml
from crash_points import imported_log
from planted_traces import Planted
from scripts_of_others import SCRIPTS
from strangers import STRANGERS
from tally import Tally, tell

from stallpoint.archive.crate import write_checksums
from stallpoint.archive.importing import describe_traced, import_cell
from stallpoint.archive.index import INDEX, read_zip_index
from stallpoint.base.section_texts import MAX_LINES, in_terminal
from stallpoint.errors import InputError
from stallpoint.models.scaling.extrapolation import extrapolate
from stallpoint.questions.claims.claim_files import read_claims
from stallpoint.questions.claims.judge import judge
from stallpoint.study.configuration import load_yaml
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.imported_kinds import ImportedTrainCell
from stallpoint.study.study import expand
from stallpoint_files import answer_page
from stallpoint_files.answering import Explanation, explain_files
from stallpoint_files.file_options import Options
from stallpoint_files.rates.rates import read_rates

PATIENCE = 10
"""Seconds of this process's CPU time after which reading one file counts as a hang, whatever else the machine does."""
WAITING = 600
"""Seconds after which it counts as one that only waits."""
MEMORY = 2**30
"""Bytes that reading a file may take beyond what the process has."""
MAX_CHARACTERS = 25_000
"""Nobody reads a longer message."""
SERIES = 3
"""Series of a table that are extrapolated: what is tried is reading them."""

WORDS = """
0 -1 1 1.5 1e308 -1e308 1e-320 nan .nan inf -.inf 1_0 １２ 0x10 0o17 ~ null true no 2026-11-23 1:30:00
.. ../../evil /dev/null / a/b { } [ * &a *a !!python/object/apply:os.system % @ ` " ' \\ # <b> ]]> \u202e \x07 é
\U0001f600 , ; : - ? 9**9**9**9 __import__ ()==() not and in
""".split()  # noqa: SIM905
WORDS += ["", " ", "\t", "9" * 30, "9" * 400, "a" * 300]
"""What stands in place of a word."""
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 10**9, 10**30, 1.5, -0.0, float("nan"), float("inf"), 1e308, 1e-320),
    *("", " ", "x", "../../evil", "/", "a" * 300, "a\n", "1", "nan", "\u202e", "é"),
    *([], {}, [[]], [None], {"": None}, {"a": {}}, [0] * 300, [[[[[[[[]]]]]]]]),
]
"""What stands in place of a value."""
BYTES = [b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"\x1b[2J", b"\xed\xa0\x80"]
BYTES += [5000 * byte for byte in (b" ", b"[", b"\n")]
"""What stands in place of bytes."""


@dataclass(frozen=True)
class Kind:
    """One kind of file: valid ones, what reads them, and how they can be a tree of values."""

    name: str
    valid: Callable[[], Sequence[bytes]]
    read: Callable[[Path], object]
    """In an empty folder, the working folder."""
    tree: Callable[[bytes], Any] | None = None
    text: Callable[[Any], str] = json.dumps
    change: Callable[[Kind, bytes, random.Random], bytes] | None = None
    """In place of `changed`."""
    bad: bool = False
    """Whether each changed file has to be refused."""
    times: int = 1
    """How many times as many files are changed as of other kinds."""


# --- what reads them ----------------------------------------------------------------------------------


def _study(file: Path) -> None:
    try:
        config = load_yaml(file.read_text(encoding="utf-8"), str(file))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:  # Snakemake's own to say
        raise InputError(f"{file}: {error}") from None
    if not isinstance(config, dict):  # as well
        raise InputError(f"{file}: no mapping")
    try:
        study = expand(config, archived.SCHEMA)
    except InputError as error:  # names the entry: there is one configuration
        raise InputError(f"{file}: {error}") from None
    assert study.plan()
    for cell in list(study.cells.values())[:20]:
        assert cell_from_json(cell.to_json()) == cell


def _claims(file: Path) -> None:
    claims = read_claims([file])
    for one in claims:
        assert judge([one], claim_tables.evidence({one.quantity.selection.table: []} if one.quantity else {}))


def _trace(file: Path) -> None:
    config = yaml.safe_load((archived.ROOT / "config/studies/shi-2018-table-vi.yaml").read_text())
    config["hardware"]["k80-2gpu"]["traces"][0] |= {"files": str(file)}
    cell, *_ = expand(config, archived.SCHEMA).cells.values()
    assert isinstance(cell, ImportedTrainCell)
    describe_traced(cell.network, [str(file)])
    import_cell(cell, Path("imported"))


def _log(format: str) -> Callable[[Path], None]:
    return lambda file: import_cell(imported_log(str(file), format), Path("imported"))


def _table(file: Path) -> None:
    rates = read_rates(file)
    few = rates["series"].drop_duplicates()[:SERIES]
    extrapolate(rates[rates["series"].isin(few)], 0.5)


def _zip(file: Path) -> None:
    read_zip_index(file, str(file))


def _index(file: Path) -> None:
    """The index of an archive whose checksums agree with it."""
    with zipfile.ZipFile(io.BytesIO(_archive())) as whole:
        names = [name for name in whole.namelist() if name.endswith(".parquet") and "/tables/" not in name]
        whole.extractall("packed", names)
    shutil.copy(file, f"packed/{INDEX}")
    write_checksums(Path("packed"))
    target = file.with_suffix(".zip")
    with zipfile.ZipFile(target, "w") as packed:
        for member in sorted(Path("packed").rglob("*")):
            packed.write(member, member.relative_to("packed"))
    shutil.rmtree("packed")
    _zip(target)


def _explained(file: Path) -> Explanation:
    found = explain_files([str(file)], Options())
    json.dumps(found.to_json(), allow_nan=False)
    lines = in_terminal(found.answers)
    assert lines.strip()
    assert lines.count("\n") <= MAX_LINES
    return found


def _page(file: Path) -> None:
    answer_page.to_html(_explained(file))


def _meaning(content: bytes) -> bytes:
    """What `harmless` leaves of a file."""
    encoding = "utf-16" if content.startswith(b"\xff\xfe") else "utf-8-sig"
    lines = content.decode(encoding, "surrogateescape").splitlines()
    return "\n".join(map(str.rstrip, lines)).rstrip().encode("utf-8", "surrogateescape")


@cache
def _before(meaning: bytes) -> tuple[str, object]:
    """What is said of the file that was brought, by its meaning."""
    (content,) = (content for content in _brought() if _meaning(content) == meaning)
    return _said(Path("changed.file"), content)


def _said(file: Path, content: bytes) -> tuple[str, object]:
    file.write_bytes(content)
    try:
        return "answers", [(one.kind, one.verdict, one.value, one.words) for one in _explained(file).answers]
    except InputError as error:
        return "refused", str(error).replace(str(file), "changed.file")


def _same(file: Path) -> None:
    content = file.read_bytes()
    before, after = _before(_meaning(content)), _said(file, content)
    assert after == before, f"another answer: {after} after {before}"


# --- valid files --------------------------------------------------------------------------------------


def _files(pattern: str) -> Callable[[], list[bytes]]:
    return lambda: [file.read_bytes() for file in sorted(archived.ROOT.glob(pattern))]


@cache
def _archive() -> bytes:
    with tempfile.TemporaryDirectory() as scratch, archived.inside(Path(scratch)):
        archived.results(archived.study_of(presets={"mine": {"like": "wfbp"}}))
        archived.archive(archived.study_of(presets={"mine": {"like": "wfbp"}}), Path("secret.zip"))
        return Path("secret.zip").read_bytes()


def _index_of_archive() -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(_archive())) as file:
        return [file.read(INDEX)]


def _tables() -> list[bytes]:
    head = "series,workers,workers_per_node,samples_per_second,batch_per_worker,compute_seconds\n"
    series = [f"{name},{n},{min(n, 4)},{n / (1 + 0.01 * n):.4f},32,0.4" for name in "abc" for n in (1, 2, 4, 8, 16, 32)]
    return [(head + "\n".join(series) + "\n").encode()]


def _logs(*texts: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in texts]


TABLE = "series,gpus,gpus_per_node,img/s\nnet,8,16,532\nnet,16,16,710\nnet,32,16,879\nnet,64,16,OOM\n"
SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --cpus-per-task=8\nsrun python train.py --data ~/imagenet\n"
NCCL = (
    "n01:41:41 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.11<0>\n"
    "n01:41:41 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n"
    "n01:41:41 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.11<0>\n"
    "n01:41:90 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank 0 nranks 8 cudaDev 0 - Init START\n"
)
LOG = "\n".join(
    f" iteration {step}/ 500 | elapsed time per iteration (ms): 1850.{step} | global batch size: 512 | lm loss: 2.1"
    for step in range(10, 40)
)
LAYOUTS = "model,nodes,dp,tp,mbs,gbs,tokens/s,memory_gb\n" + "\n".join(
    f"7B,{nodes},{8 * nodes // tp},{tp},{batch},64,{1000 * nodes / tp},{60 / tp}"
    for nodes in (1, 2, 4) for tp in (1, 2, 4) for batch in (1, 2)
)  # fmt: skip
TIMES = "gpus,gpus/node,epoch time,global batch\n1,1,1h 20m,256\n2,2,42m30s,256\n2,1,50 min,256\n4,2,0:22:30,256\n"
HOURS = "nodes,gpus_per_node,time to train (hours)\n1,1,20\n1,4,6.5 ± 0.2\n2,4,3.6 ± 0.1\n4,4,2.1\n"
WIDE = "epoch time\nmodel,1 GPU,2 GPUs,4 GPUs\nnet,1:40,50,27\nvgg,90 s,OOM,40\n"
ROWS = "GPUs,1,2,4,8\nms/iter,250,260,300,420\n"
SENTENCES = "- on 2 GPUs: 1200.5 img/s\n- on 4 GPUs only 2,300 images/sec\n- 8 GPUs (2 nodes): 2400 img/s\nWhy?\n"
SAMPLES = (
    TABLE,
    TIMES,
    HOURS,
    WIDE,
    ROWS,
    SENTENCES,
    LAYOUTS,
    TABLE.replace(",", " | "),
    "gpus;s/iter\n1;1,5\n2;0,8\n4;0,45\n",
    "Why?\n1 GPU: 410 img/s\n8 GPUs: 2510 img/s\n16 GPUs (2 nodes): 2630 img/s\n",
    '{"step": 1, "tokens_per_sec": "1.9K", "world_size": 2}\n{"step": 2, "tokens_per_sec": 1950.5, "world_size": 2}\n',
    SCRIPT,
    NCCL,
    LOG,
    all_reduce_samples.nccl_tests(2),
    all_reduce_samples.osu(),
    '{"findings": [], "answers": []}',
    '{"results": [{"size": 1, "in_place": {"time": 2.5}}], "devices": []}',
    "#SBATCH --gres=gpu:4\n#SBATCH -c 8\nsrun python 'train.py' --data ~/x\n",
    "step: 1  loss: 2  tps: 1,234\nworld_size=8\n",
    "Name    Self CPU    # of Calls\naten::mm    1.5ms    3\n",
    "# Benchmarking Allreduce\n# #processes = 4\n#bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
    "8 9 1 2 3\n",
    "",
)
"""Texts to explain, beside those of strangers."""


@cache
def _brought() -> list[bytes]:
    """Files that are explained: single ones as strangers bring them, batch scripts, and others."""
    files = [*(text.encode() for text in SAMPLES), *(one.text.encode() for one in SCRIPTS)]
    files += [content for one in STRANGERS if len(one.files) == 1 for content in one.files.values()]
    return list({_meaning(content): content for content in files if b"\0" not in content}.values())


def _traces() -> list[bytes]:
    return [json.dumps(Planted(iterations=2, workers=workers).trace()).encode() for workers in (1, 4)]


KINDS = {
    kind.name: kind
    for kind in [
        Kind("study", _files("config/**/*.yaml"), _study, yaml.safe_load, yaml.safe_dump),
        Kind("claims", _files("resources/claims/*.yaml"), _claims, yaml.safe_load, yaml.safe_dump),
        Kind("trace", _files("resources/published/shi-2018-table-vi.txt"), _trace),
        Kind("nccl-tests log", _logs(all_reduce_samples.nccl_tests(2)), _log("nccl-tests")),
        Kind("OSU log", _logs(all_reduce_samples.osu(), all_reduce_samples.osu(full=True)), _log("osu")),
        Kind("table of rates", _tables, _table),
        Kind("archive", lambda: [_archive()], _zip),
        Kind("index of an archive", _index_of_archive, _index, json.loads),
        Kind("file to explain", _brought, _page, times=3),
        Kind("trace to explain", _traces, _page, json.loads),
        Kind("harmless change", _brought, _same, change=lambda _, whole, draw: harmless(whole, draw), times=3),
        Kind(
            "bad study",
            _files("config/studies/[kost]*.yaml"),
            _study,
            yaml.safe_load,
            yaml.safe_dump,
            change=lambda kind, whole, draw: bad(kind, whole, draw),
            bad=True,
        ),
    ]
}

# --- changes ------------------------------------------------------------------------------------------


def changed(kind: Kind, whole: bytes, draw: random.Random) -> bytes:
    """The file with one to three changes."""
    for _ in range(draw.randint(1, 3)):
        ways: list[Callable[[bytes, random.Random], bytes]] = [_as_bytes, _as_words, _as_lines]
        if kind.tree:
            ways += [lambda content, draw: _as_tree(kind, content, draw)] * 3
        whole = draw.choice(ways)(whole, draw)
    return whole


def harmless(whole: bytes, draw: random.Random) -> bytes:
    """The same text with other ends of lines, blanks after it, or in another encoding."""
    lines = whole.decode("utf-8", "surrogateescape").rstrip().replace("\r\n", "\n").split("\n")
    end, blanks = draw.choice(["\n", "\r\n"]), draw.choice(["", " ", "  "])
    text = end.join(line + draw.choice(["", blanks]) for line in lines) + draw.choice(["", end, 3 * end])
    encoding = draw.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16"])
    return text.encode(encoding, "surrogateescape" if encoding != "utf-16" else "replace")


def bad(kind: Kind, whole: bytes, draw: random.Random) -> bytes:
    """A study with one entry that no study can have."""
    assert kind.tree
    study = kind.tree(whole)
    matrix = draw.choice(study["matrix"]) if study.get("matrix") else study
    sizes = [(parent, key) for parent, key in _places(study) if key in _COUNTS]
    names = [(parent, key) for parent, key in _places(study.get("matrix")) if key in _NAMED]
    place, key = draw.choice(sizes or [(study, "iterations")])
    of, name = draw.choice(names or [(study, "hardware")])
    ways: list[Callable[[], object]] = [
        lambda: place.update({key: draw.choice([0, -1, -(10**9), "many", {"a": 1}, None, float("nan"), float("inf")])}),
        lambda: of.update({name: draw.choice(["nobody", ["nobody"], 7, {"a": 1}, "../x", "a\x1b[2J"])}),
        lambda: draw.choice([study, matrix]).update({draw.choice(["itertions", "Nodes", "x"]): 1}),
        lambda: matrix.update(for_each=draw.choice([[], {}, "x"])),
        lambda: study.update({draw.choice(["hardware", "storage", "networks", "models"]): draw.choice([[], "x", 1])}),
    ]
    draw.choice(ways)()
    return kind.text(study).encode()


_COUNTS = ("nodes", "batch", "iterations", "visits", "workers_per_node", "repeats", "threads_per_worker", "samples")
_NAMED = ("network", "hardware", "storage", "sync")
"""Entries of a study that are counts, and that name another."""


def _as_bytes(content: bytes, draw: random.Random) -> bytes:
    begin = draw.randint(0, len(content))
    end = min(len(content), begin + int(10 ** draw.uniform(0, 3)))
    new = draw.choice([b"", content[begin:end] * 2, bytes([draw.randrange(256)]), draw.choice(BYTES)])
    return content[:begin] + new + content[draw.choice([begin, end]) :]


def _as_words(content: bytes, draw: random.Random) -> bytes:
    words = list(re.finditer(rb"[\w.+-]+", content))
    if not words:
        return _as_bytes(content, draw)
    word = draw.choice(words)
    new = draw.choice([draw.choice(WORDS).encode(), draw.choice(words)[0], word[0] * 2, word[0] + b"\n"])
    return content[: word.start()] + new + content[word.end() :]


def _as_lines(content: bytes, draw: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if len(lines) < 2:
        return _as_bytes(content, draw)
    begin, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    end = begin + draw.randint(1, 5)
    moved = lines[begin:end]
    match draw.randrange(3):
        case 0:
            return b"".join(lines[:begin] + lines[end:])
        case 1:
            return b"".join(lines[:other] + moved + lines[other:])
        case _:
            return b"".join(lines[:other] + moved * 300 + lines[other:])


def _as_tree(kind: Kind, content: bytes, draw: random.Random) -> bytes:
    assert kind.tree
    try:
        tree = kind.tree(content)
        places = list(_places(tree))
        if not places:
            return _as_bytes(content, draw)
        parent, key = draw.choice(places)
        _change(parent, key, draw.choice(places), draw)
        return kind.text(tree).encode("utf-8", "replace")
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):  # is none any more, or holds itself
        return _as_bytes(content, draw)


def _places(tree: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if depth > 30 or not isinstance(tree, dict | list):
        return
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        yield from _places(tree[key], depth + 1)


def _change(parent: Any, key: Any, other: tuple[Any, Any], draw: random.Random) -> None:
    match draw.randrange(6):
        case 0:
            del parent[key]
        case 1:
            parent[key] = other[0][other[1]]
        case 2 if isinstance(parent, dict):
            name = draw.choice([*WORDS, *VALUES, str(other[1])])
            parent[name if isinstance(name, str | int | float | bool | None) else str(name)] = parent.pop(key)
        case 3:
            parent[key] = [parent[key]]
        case 4 if isinstance(parent, list):
            parent.extend([parent[key]] * 50)
        case _:
            parent[key] = draw.choice(VALUES)


# --- trials -------------------------------------------------------------------------------------------


class _Hangs(BaseException):
    """Reading takes too long."""


def _too_long(*_: object) -> None:
    raise _Hangs


def _peak() -> int:
    """Most memory that the process had since the last call, bytes."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")  # begins anew
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])  # type: ignore[index]


def fuzz(kind: Kind, trials: int, seed: int) -> Tally:
    """Read a valid file, which must be taken, and so many changed ones, of some kinds several times as many."""
    tally = Tally("fuzzing", kind.name)
    valid = kind.valid()
    for ends in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(ends, _too_long)
    unchanged = Tally("fuzzing", kind.name)
    if wrong := _try(kind, valid[0], unchanged) or ("refused" if unchanged.refused else ""):
        tally.red.append(f"{kind.name}, unchanged: {wrong}")
    for trial in range(kind.times * trials):
        draw = random.Random(f"{seed} {kind.name} {trial}")
        content = (kind.change or changed)(kind, draw.choice(valid), draw)
        tally.trials += 1
        refused = tally.refused
        wrong = _try(kind, content, tally)
        if kind.bad and tally.refused == refused:
            tally.half += 1
            wrong = wrong or "taken"
        if wrong:
            kept = Path(tempfile.gettempdir(), f"stallpoint-fuzzing-{kind.name.replace(' ', '-')}-{seed}-{trial}")
            kept.write_bytes(content)
            tally.red.append(f"{kind.name}, seed {seed}, trial {trial} ({kept}): {wrong}")
    return tally


def _try(kind: Kind, content: bytes, tally: Tally) -> str:
    """Read a file with that content in an empty folder; what is wrong with how that ended."""
    with tempfile.TemporaryDirectory(prefix="stallpoint-fuzzing-") as scratch:
        place = Path(scratch, "a", "b", "c")
        place.mkdir(parents=True)
        file = place / "changed.file"
        file.write_bytes(content)
        wrong = _read(kind, file, tally)
        files = [found for found in Path(scratch).rglob("*") if found.is_file()]
        if outside := [found for found in files if place not in found.parents]:
            return f"writes outside of its folder: {outside}"
        return wrong


def _read(kind: Kind, file: Path, tally: Tally) -> str:
    """Read the file; what is wrong with how that ended."""
    before = Path.cwd()
    _peak()
    had = _peak()
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    signal.alarm(WAITING)
    try:
        os.chdir(file.parent)
        kind.read(file)
    except InputError as error:
        tally.refused += 1
        clear = file.stem in str(error) and len(str(error)) <= MAX_CHARACTERS
        tally.clear += clear
        if not clear:
            return f"no clear message: {str(error)[:300]!r}"
    except _Hangs:
        tally.hangs += 1
        return "hangs: " + _where()
    except Exception:
        tally.refused += 1
        return _where()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        os.chdir(before)
    took = _peak() - had
    return f"takes {took / 2**20:.0f} MiB" if took > MEMORY else ""


def _where() -> str:
    lines = traceback.format_exc(limit=-3).strip().splitlines()
    return " | ".join(line.strip() for line in lines[-7:])[-600:]


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="all, unless some are named")
    parser.add_argument("--trials", type=int, default=300, help="changed files of each kind")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tell(fuzz(KINDS[name], arguments.trials, arguments.seed) for name in arguments.kinds or KINDS)


if __name__ == "__main__":
    main()
