"""Two files with repeats beside each other: what is slower is told by words, page, data and exit status."""

import json
from pathlib import Path

import numpy as np
import pytest

from stallpoint.archive.comparison.compare_two import compare_two, main
from stallpoint.base.frames import records
from stallpoint.base.section import Change
from stallpoint.errors import InputError

HEAD = "series,workers,workers_per_node,samples_per_second"
REGEX = r"(?P<rate>[0-9.]+) images/s"


def rates(path: Path, seed: int, slower: float = 1.0, repeats: int = 5) -> str:
    random = np.random.default_rng(seed)
    rows = [
        f"resnet,{workers},1,{workers * 100 / slower * np.exp(0.01 * random.standard_normal())}"
        for workers in (1, 2, 4)
        for _ in range(repeats)
    ]
    path.write_text("\n".join([HEAD, *rows]))
    return str(path)


def log(path: Path, seed: int, slower: float = 1.0, iterations: int = 200) -> str:
    random = np.random.default_rng(seed)
    found = 250 / slower * np.exp(0.03 * random.standard_normal(iterations))
    path.write_text("".join(f"step {number}: {rate:.3f} images/s\n" for number, rate in enumerate(found)))
    return str(path)


def all_reduces(path: Path, slower: float) -> str:
    random = np.random.default_rng(3)
    lines = ["# Rank 0 Group 0 Pid 1 on a device 0", "# Rank 1 Group 0 Pid 2 on a device 0"]
    times = "time algbw busbw #wrong"
    lines += ["# out-of-place in-place", f"# size count type redop root {times} {times}", "# (B) (elements)"]
    for size in (2**20, 2**22):
        for _ in range(6):
            time = slower * size / 1e4 * np.exp(0.01 * random.standard_normal())
            lines.append(f"{size} {size // 4} float sum -1 {time:.2f} 1.0 1.0 0 {time:.2f} 1.0 1.0 0")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_table_whose_rates_fell_is_slower_and_says_so_by_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = rates(tmp_path / "old.csv", 1), rates(tmp_path / "new.csv", 2, 1.1)
    assert main([old, new]) == 1
    assert "old [samples/s]" in (printed := capsys.readouterr().out)
    assert "slower" in printed
    (all_of_it,) = records(compare_two(old, new).of("hardware"))
    assert all_of_it["ratio_low"] < 1.1 < all_of_it["ratio_high"]
    assert all_of_it["points"] == 3


def test_tables_are_read_as_people_write_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, factor in (("old.md", 1.0), ("new.md", 1.2)):
        rows = [
            f"| {count} | {factor * (base + extra)} s |" for count, base in ((1, 1), (2, 0.5)) for extra in (0, 0.01)
        ]
        (tmp_path / name).write_text("\n".join(["| GPUs | s/iter |", "|---|---|", *rows]))
    assert main([str(tmp_path / "old.md"), str(tmp_path / "new.md")]) == 1
    assert "rates · n = 2" in capsys.readouterr().out


def test_rates_of_each_worker_are_compared_with_those_of_all(tmp_path: Path) -> None:
    each, every = tmp_path / "each.csv", tmp_path / "all.csv"
    each.write_text("gpus,img/s/GPU\n" + "".join(f"{n},{rate}\n" for n in (2, 4) for rate in (99, 100, 101)))
    every.write_text("gpus,img/s\n" + "".join(f"{n},{n * rate}\n" for n in (2, 4) for rate in (99, 100, 101)))
    (all_of_it,) = records(compare_two(str(each), str(every)).of("hardware"))
    assert all_of_it["ratio"] == pytest.approx(1)


def test_equal_tables_and_faster_ones_end_with_status_0(tmp_path: Path) -> None:
    old = rates(tmp_path / "old.csv", 1)
    assert main([old, rates(tmp_path / "same.csv", 2)]) == 0
    assert main([old, rates(tmp_path / "faster.csv", 2, 0.8)]) == 0


def test_markdown_and_json_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = rates(tmp_path / "old.csv", 1), rates(tmp_path / "new.csv", 2, 1.1)
    assert main([old, new, "--markdown"]) == 1
    page = capsys.readouterr().out
    assert page.startswith("# new.csv")
    assert main([old, new, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert all(sentence in page for sentence in data["summary"])
    assert data["moved"] == [Change.SLOWER]


def test_a_log_is_read_by_what_an_iteration_prints(tmp_path: Path) -> None:
    old, new = log(tmp_path / "old.log", 1), log(tmp_path / "new.log", 2, 1.08)
    assert main([old, new, "--pattern", REGEX]) == 1
    assert main([old, log(tmp_path / "same.log", 3), "--pattern", REGEX]) == 0


def test_all_reduces_are_compared_by_size(tmp_path: Path) -> None:
    found = compare_two(all_reduces(tmp_path / "old", 1.0), all_reduces(tmp_path / "new", 1.2))
    assert list(found.of("point")["change"]) == [Change.SLOWER, Change.SLOWER]


def test_values_without_repeats_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = rates(tmp_path / "old.csv", 1, repeats=1), rates(tmp_path / "new.csv", 2, 1.1, repeats=1)
    assert main([old, new]) == 2
    assert "give repeats" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"new": "nothing.csv"}, "nothing.csv: there is no such file, folder or study"),
        ({"new": "study"}, "a study or an archive is compared with another one"),
        ({"pattern": "(?P<speed>x)"}, "names no group"),
        ({"pattern": "step 1[0-9]: (?P<rate>[0-9.]+)"}, "iterations after the warm-up"),
        ({"old": "seconds.csv", "new": "rates.csv"}, "is in s, .*rates.csv in images/s: give both in the same unit"),
        ({"old": "letter", "new": "letter"}, "neither a table of rates"),
        ({"new": "seconds.csv"}, "a.log is a log of training, the other is none"),
    ],
)
def test_what_cannot_be_compared_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seconds.csv").write_text("gpus,s/iter\n1,1.0\n1,1.1\n")
    Path("rates.csv").write_text("gpus,images/s\n1,1.0\n1,1.1\n")
    Path("study", "tables").mkdir(parents=True)
    Path("letter").write_text("Dear sir,\nit is slow.\n")
    log(Path("a.log"), 1)
    files = {"old": "a.log", "new": "a.log", "pattern": ""} | arguments
    with pytest.raises(InputError, match=message):
        compare_two(files["old"], files["new"], pattern=files["pattern"])
