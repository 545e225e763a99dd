"""The subcommand ``expect`` of the program `stallpoint`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence

import numpy as np

from stallpoint.base.section import Cause, Finding
from stallpoint.base.section_texts import SCHEMA_VERSION, in_json, in_terminal
from stallpoint.errors import InputError
from stallpoint.text import number
from stallpoint_files.links.links import links
from stallpoint_files.setups import walls
from stallpoint_files.setups.expectation import LARGE, Expectation, Part, expectation
from stallpoint_files.setups.setup_answers import subject
from stallpoint_files.setups.words import misread_words, read_setup

KIND = "expectation"
_MIN_SHARE = 0.1
"""Minimum fraction of a step for a part to be named."""
_RUNS = {
    "peak": "a hundred steps on one node: their seconds say what part of the peak is reached",
    "carried": "all_reduce_perf -b 64M -e 256M -f 2 on two nodes: what the link carries",
    "start": "a hundred steps on all nodes with the smallest mini-batch: what a step costs once",
    "host": "a hundred steps on one node with the smallest mini-batch: what the host needs for one",
}


def expect(arguments: Sequence[str]) -> int:
    """Say what rate a training can be expected to have, from words alone, and which run would tell more."""
    parser = argparse.ArgumentParser(
        prog="stallpoint expect",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="The rate of a training that nobody has measured, with its 90 % interval and the wall that\n"
        "makes it, from data sheets of chips and links, bytes that strategies send, and published rates.",
        epilog="example:\n  stallpoint expect 'llama 3 8b bf16, zero 3, 2 x 8 a800, 10 GbE'\n\n"
        "exit status: 0 said, 2 a word is like a known one, or model or chip is not named, 70 a defect of stallpoint",
    )
    parser.add_argument("words", nargs="+", help="model, precision, strategy, nodes x chips, link, mini-batch")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    given = parser.parse_args(arguments)
    found = answer(" ".join(given.words))
    if given.json:
        print(json.dumps({"version": SCHEMA_VERSION, "answers": in_json([found])}, indent=1, default=float))
    else:
        print(in_terminal([found]), end="")
    return 0


def answer(words: str) -> Finding:
    """Return the expected rate of a training described in words; `InputError` names unknown words."""
    setup = read_setup(words)
    if misread := misread_words(setup):
        raise InputError("; ".join(misread))
    one = expectation(setup)
    if (large := one.with_large_batch) and one.split > 1:
        few, many = (f"{number(each.rate[1], 2)} {each.model.unit}" for each in (one, large))
        raise InputError(
            f"the rate depends on the mini-batch, which nothing says: some {few} with {number(one.step_samples, 2)} "
            f"{_counted(one)} in a step, {many} with {LARGE} times as many; add it: global batch 512"
        )
    low, middle, high = one.rate
    seconds = one.interval(one.seconds)
    unit = one.model.unit
    decisive, left = one.decisive()
    return Finding(
        KIND,
        subject(setup),
        f"{number(low, 2)} to {number(high, 2)} {unit}, {number(seconds[0], 2)} to {number(seconds[2], 2)} s an "
        f"iteration; its wall is {one.words_for(one.wall)}",
        value=middle,
        low=low,
        high=high,
        unit=unit,
        causes=tuple(_causes(one)),
        evidence="expected, not measured: data sheets and published rates",
        fits=_fits(one),
        ask=(f"{_RUNS[decisive]} (the interval is {100 * (1 - left):.0f} % narrower then)",),
        notes=tuple(_notes(one)),
    )


def _causes(one: Expectation) -> Iterator[Cause]:
    """Yield the main parts of a step as causes, the longest first, with what the description itself names as slow."""
    total = float(np.median(one.seconds))
    found = list(walls.causes(one.setup))
    for part, draws in sorted(one.parts.items(), key=lambda item: -float(np.median(item[1]))):
        share = float(np.median(draws)) / total
        if share >= _MIN_SHARE:
            evidence = next((cause.words for cause in found if part == Part.LINK), "")
            words = f"{100 * share:.0f} % of an iteration is {one.words_for(part)}"
            yield Cause(part.name.lower(), words, round(share, 3), evidence)


def _fits(one: Expectation) -> str:
    """Return the numbers from which the expectation is computed, with their sources."""
    chip, model = one.chip, one.model
    parts = [
        f"{number(chip.peak(one.precision) / 1e12)} TFLOP/s of {chip.name} ({chip.source})",
        f"{100 * one.part_of_peak.median:.0f} % of it reached (published rates)",
        f"{number(model.flops / 1e9)} GFLOP a {'token' if model.unit == 'tokens/s' else 'sample'} ({model.source})",
    ]
    if link := one.setup.link:
        source = f" ({known.source})" if (known := links().get(link.name.lower().replace(" ", ""))) else ""
        parts.append(f"{number(link.bytes_per_second / 1e9)} GB/s of {link.name}{source}")
    return "; ".join(parts)


def _counted(one: Expectation) -> str:
    return one.model.unit.removesuffix("/s")


def _notes(one: Expectation) -> Iterator[str]:
    if one.assumed:
        yield f"taken, as nothing says it: {', '.join(one.assumed)}"
    if large := one.with_large_batch:
        rate = f"{number(large.rate[1], 2)} {one.model.unit}"
        yield f"the mini-batch decides: with {LARGE} times as many {_counted(one)} in a step some {rate}"
    if left := [word for word in one.setup.unknown if not word.isdigit()]:
        yield f"left out, as it is not understood: {', '.join(left)}"
    if one.laid_out:
        yield "too narrow for split models: two thirds of a published sweep lie in such intervals, most others below"
    if one.model.active:
        yield "what experts send each other (all-to-all) is not in it"
    if one.bytes_needed > one.chip.memory:
        yield (
            "does not fit without more sharding or offloading: weights, gradients and Adam's states need "
            f"{number(one.bytes_needed / 1e9)} GB on each {one.chip.name}, which has {number(one.chip.memory / 1e9)}"
        )
