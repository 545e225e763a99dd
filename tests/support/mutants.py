"""Small defects in the program's source: which of them do tests find, and do they still find those they once did?

All mutants (`mutations`) stand in one copy of the files, each as ``(MUTATED if mutant_switch.on(7) else ORIGINAL)``.
``tests/support/data/mutants.json`` keeps them and the test that found each, which is tried first. Where it no longer
finds its mutant, all tests run once without any, which records those that reach each (`mutant_trials`), and then with
it until one fails. An interrupted run is taken up again. ``make mutants``, with options in ``MUTANTS="..."``.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import itertools
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mutant_trials import DEFECTS, entries, failed, name_of, outcomes
from mutations import Mutant, drawn, modules_of, place_of, redrawn
from planted_defects import Defect, defects
from tally import ROOT, environment

KEPT = ROOT / "tests/support/data/mutants.json"
REACHING = 40
"""Tests, the quickest that reach it, that a planted defect is tried on."""
LANES = (
    "unit=tests/unit -m 'not ranks and not night'",
    "ranks=tests/unit -m 'ranks and not night'",
    "workflow=tests/workflow -m 'not night'",
)
"""What a change has to pass, the cluster apart."""
_PYTEST = (sys.executable, "-m", "pytest", "-p", "mutant_trials", "-p", "no:cacheprovider", "-q", "--tb=no")


def copy_of_files(folder: Path) -> None:
    """Copy the files that git knows or does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def plant(mutants: list[Mutant], folder: Path) -> set[int]:
    """Put all of them into the copy of the program in `folder`, each behind its switch; those that have no place.

    Numbers from `DEFECTS` on are planted defects: their functions only record who reaches them.
    """
    modules = modules_of(ROOT / "src")
    edits: dict[str, list[tuple[int, Any, str]]] = defaultdict(list)
    for number, mutant in enumerate(mutants):
        if place := place_of(mutant, ROOT / "src"):
            edits[place[0]].append((number, place[1], mutant.becomes))
    for number, defect in enumerate(defects(), DEFECTS):
        line = (ROOT / defect.file).read_text().partition(defect.was)[0].count("\n") + 1
        for function in modules.get(module := defect.file.removeprefix("src/"), []):
            if function.node.lineno <= line <= function.node.end_lineno:
                edits[module].append((number, function.body[ast.get_docstring(function.node) is not None], ""))
    stand: set[int] = set()
    for module, those in edits.items():
        text, numbers = planted((ROOT / "src" / module).read_bytes(), those)
        (folder / "src" / module).write_bytes(text)
        stand |= numbers
    shutil.copy(Path(__file__).with_name("mutant_switch.py"), folder / "src")
    return set(range(len(mutants))) - stand


def planted(text: bytes, edits: list[tuple[int, Any, str]]) -> tuple[bytes, set[int]]:
    """A module in which a switch chooses what each node becomes (none: it is only reached), and which stand there.

    One that lies in another is left out.
    """
    starts = list(itertools.accumulate(map(len, text.splitlines(keepends=True)), initial=0))
    spans = [
        (starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset, number, becomes)
        for number, node, becomes in edits
    ]
    stand: set[int] = set()
    until = len(text)
    for start, end, number, becomes in sorted(spans, reverse=True):
        switch = f"__import__('mutant_switch').on({number})"
        if not becomes:
            indent = text[text.rindex(b"\n", 0, start) + 1 : start]
            text = text[:start] + switch.encode() + b"\n" + indent + text[start:]
        elif end <= until:
            text = text[:start] + f"({becomes} if {switch} else ".encode() + text[start:end] + b")" + text[end:]
            until = start
            stand.add(number)
    return text, stand


def prepared(folder: Path, mutants: list[Mutant], anew: bool) -> set[int]:
    """Plant mutants in a copy of the program in `folder`, unless they stand there already; those that have no place."""
    digest = hashlib.sha256(repr([replace(mutant, before="") for mutant in mutants]).encode())
    for file in sorted(
        file for part in ("src", "tests/unit", "tests/workflow") for file in (ROOT / part).rglob("*.py")
    ):
        digest.update(file.read_bytes())
    state = folder / "state/of.json"
    of, gone = json.loads(state.read_text()) if state.exists() else ("", [])
    if anew or of != digest.hexdigest():
        shutil.rmtree(folder, ignore_errors=True)
        copy_of_files(folder)
        gone = sorted(plant(mutants, folder))
        state.parent.mkdir()
        state.write_text(json.dumps([digest.hexdigest(), gone]))
    return set(gone)


def tried(folder: Path, lane: str, workers: int) -> None:
    """Try what is sought on the tests of a lane."""
    name, _, options = lane.partition("=")
    for claim in (folder / "state").glob(f"{name}.*.claim"):
        claim.rmdir()
    running = []
    for worker in range(workers):
        state = folder / f"state/{worker}"
        state.mkdir(exist_ok=True)
        variables = environment(folder) | {"MUTANTS": str(state), "MUTANTS_LANE": name}
        command = [*_PYTEST, "-s", "-p", "no:xdist", *shlex.split(options)]
        output = (state / "pytest.log").open("w")
        running.append(subprocess.Popen(command, cwd=folder, env=variables, stdout=output, stderr=output))
    for one in running:
        one.wait()


def defect_found(defect: Defect, tests: Sequence[str]) -> str:
    """The test that finds a planted defect, of files or tests that reach it; empty: none."""
    with tempfile.TemporaryDirectory(prefix="stallpoint-planted-") as scratch:
        folder, results = Path(scratch, "copy"), Path(scratch, "results")
        copy_of_files(folder)
        defect.plant(folder)
        results.touch()
        variables = environment(folder) | {"MUTANT_RESULTS": str(results)}
        ran = subprocess.run([*_PYTEST, "-x", *tests], cwd=folder, env=variables, stdout=subprocess.DEVNULL)
        return name_of(failed(outcomes(results), [])) if ran.returncode else ""


def table(mutants: list[Mutant], now: dict[int, str]) -> None:
    """Print by room how many were found before and are now, and which are no longer."""
    rooms: dict[str, list[int]] = defaultdict(list)
    for number, mutant in enumerate(mutants):
        rooms[mutant.room].append(number)
    print(
        "| room | mutants | found before | found now | gone | not tried |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    for room, numbers in [*sorted(rooms.items()), ("all", list(now))]:
        before = sum("::" in mutants[number].before for number in numbers)
        found = sum("::" in now[number] for number in numbers)
        others = [sum(now[number] == state for number in numbers) for state in ("gone", "not tried")]
        print("|", " | ".join(map(str, (room, len(numbers), before, found, *others))), "|")
    for number, mutant in enumerate(mutants):
        if "::" not in now[number] and ("::" in mutant.before or now[number] != "not tried"):
            before = f"; found before by {mutant.before}" if "::" in mutant.before else ""
            print(f"{now[number]}: {described(mutant)}{before}")


def described(mutant: Mutant) -> str:
    """One line that says what a mutant is."""
    return f"{mutant.module}, {mutant.function}: {mutant.was} -> {mutant.becomes} ({mutant.kind})"


def verdicts(state: Path, mutants: list[Mutant], gone: set[int], sought: set[int]) -> dict[int, str]:
    """For each mutant the test that finds it, or why there is none."""
    journal = entries(state / "journal.jsonl")
    reached = {int(number) for one in journal for number in one.get("reached", ())}
    ended = (state / "ended").exists()
    now = dict.fromkeys(range(len(mutants)), "open")
    if ended:
        now = {number: "not found" if number in reached else "not reached" for number in now}
    now |= {number: "not tried" for number in now if number not in sought} | dict.fromkeys(gone, "gone")
    return now | {one["mutant"]: name_of(one["found"]) for one in journal if one.get("found")}


def defects_found(state: Path, before: dict[str, str]) -> dict[str, str]:
    """For each planted defect the test that finds it: the one that did before, or of those that reach its function."""
    found: dict[str, str] = {}
    for number, defect in enumerate(defects(), DEFECTS):
        file, _, name = before.get(defect.name, "").partition("::")
        known = [f"{path.relative_to(ROOT)}::{name}" for path in (ROOT / "tests").rglob(f"{file or None}.py")]
        reaching = {
            test: one["tests"][test][1]
            for one in entries(state / "journal.jsonl")
            for test in one.get("reached", {}).get(str(number), ())
            if one["tests"].get(test, ("", 0))[0] == "passed"
        }
        found[defect.name] = "not found"
        for tests in filter(None, (known, sorted(reaching, key=lambda test: reaching[test])[:REACHING])):
            if test := defect_found(defect, tests):
                found[defect.name] = test
                break
        print(f"{defect.name}: {found[defect.name]}", file=sys.stderr, flush=True)
    return found


def keep(mutants: list[Mutant], found: dict[str, str], how: list[str]) -> None:
    """Write the list: how its mutants were drawn, the mutants, and which test finds each planted defect."""
    content = {"drawn": how, "mutants": list(map(asdict, mutants)), "defects": found}
    KEPT.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lane", action="append", metavar="NAME=PYTEST OPTIONS", help=f"default: {', '.join(LANES)}")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that share the work")
    parser.add_argument("--all", action="store_true", help="also those that were not found before")
    parser.add_argument("--anew", action="store_true", help="forget what an interrupted run has done")
    parser.add_argument(
        "--draw", type=int, metavar="N", help="draw N others (with --seed) and keep what is found as `before`"
    )
    parser.add_argument(
        "--redraw", type=int, metavar="N", help="no trial: draw (with --seed) others for those without a place, up to N"
    )
    parser.add_argument("--some", type=int, metavar="N", help="only N of them, chosen by --seed; with --all of all")
    parser.add_argument("--defects", action="store_true", help="also the planted defects (planted_defects.yaml)")
    parser.add_argument("--report", action="store_true", help="only say what an interrupted run knows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="what is found now is what was found `before` from now on")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutants", help="the copy, and what is known so far")
    given = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"drawn": [], "mutants": [], "defects": {}}
    mutants = drawn(ROOT / "src", given.draw, given.seed) if given.draw else [Mutant(**one) for one in kept["mutants"]]
    if given.redraw:
        gone = sum(place_of(one, ROOT / "src") is None for one in mutants)
        how = f"{given.redraw - len(mutants) + gone} of {given.redraw} by --redraw {given.redraw} --seed {given.seed}"
        keep(redrawn(mutants, ROOT / "src", given.redraw, given.seed), kept["defects"], [*kept["drawn"], how])
        return
    gone = prepared(given.folder, mutants, given.anew)
    state = given.folder / "state"
    known = {number: mutant.before for number, mutant in enumerate(mutants) if "::" in mutant.before}
    sought = (set(range(len(mutants))) if given.all or given.draw else set(known)) - gone
    if given.some:
        sought = set(random.Random(given.seed).sample(sorted(sought), given.some))
    if not given.report:
        names = {
            number: ".".join(Path(mutants[number].module.removesuffix("/__init__.py")).with_suffix("").parts)
            for number in sought
        }
        (state / "plan.json").write_text(json.dumps({"known": known, "sought": sorted(sought), "names": names}))
        (state / "ended").unlink(missing_ok=True)
        for lane in given.lane or LANES:
            tried(given.folder, lane, given.workers)
        if not given.lane:  # of some tests alone, nothing is known of what they leave
            (state / "ended").touch()
    now = verdicts(state, mutants, gone, sought)
    table(mutants, now)
    found = defects_found(state, kept["defects"]) if given.defects else kept["defects"]
    if given.defects:
        print(f"planted defects found: {sum('::' in test for test in found.values())} of {len(found)}")
    if given.keep or given.draw:
        how = [f"{len(mutants)} by --draw {given.draw} --seed {given.seed}"] if given.draw else kept["drawn"]
        after = [
            mutant if now[number] == "not tried" and not given.draw else replace(mutant, before=now[number])
            for number, mutant in enumerate(mutants)
        ]
        keep(after, found, how)


if __name__ == "__main__":
    main()
