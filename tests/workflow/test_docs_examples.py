"""Extending stallpoint as the documentation shows it: the files of a page are written, and its commands are run.

In a page, a block with a title is the file of that name, or (``diff``) a change of it. In a ``console`` block each
line after ``$`` is run, and the lines below it are part of what it prints, in that order; ``...`` stands for others.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import forked
import pytest
from checkout import Checkout, Ran
from nightly import by_day
from pages import PAGES, ROOT, Block, assert_prints, blocks, commands, shown_commands

EXTENDING = sorted((ROOT / "docs/extending").glob("*.md"))


@pytest.fixture(scope="module")
def extended(new_checkout: Callable[..., Checkout]) -> Checkout:
    """A checkout with the files of the page on networks, which other pages train."""
    checkout = new_checkout()
    for block in blocks(ROOT / "docs/extending/network.md"):
        if block.title:
            write(checkout.folder, block)
    return checkout


@pytest.mark.parametrize("page", by_day(EXTENDING, lambda page: page.stem != "preset"), ids=lambda page: page.stem)
def test_what_a_page_shows_is_what_happens(extended: Checkout, page: Path) -> None:
    for block in blocks(page):
        if block.title:
            write(extended.folder, block)
        elif block.language == "console":
            for command, shown in commands(block.text):
                ran = run(extended, command)
                assert ran.status == 0, f"{command}\n{ran.text}"
                assert_prints(ran.text, shown)


def test_targets_that_pages_name_can_be_planned(planned: Checkout) -> None:
    """All those of the default study together, in one dry run."""
    commands = [command for page in PAGES for command in shown_commands(page)]
    targets = {word for command in commands for word in command if word.startswith("results/default/")}
    assert targets
    ran = planned.snakemake("-n", *targets, "--configfile", str(ROOT / "config/config.yaml"))
    assert ran.status == 0, ran.text


def write(folder: Path, block: Block) -> None:
    """Make the file that the block is, or the change."""
    file = folder / str(block.title)
    if block.language == "diff":
        for part in block.text.split("@@\n"):
            change(file, part.splitlines(keepends=True))
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text)


def change(file: Path, lines: list[str]) -> None:
    """Put the lines marked + in place of those marked -, among those that stay."""
    before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
    text = file.read_text()
    assert text.count(before) == 1, f"{file} does not hold once:\n{before}"
    file.write_text(text.replace(before, after))


def run(checkout: Checkout, command: str) -> Ran:
    """Run a command with the checkout's own library and the programs beside this Python."""
    program, *arguments = shlex.split(command)
    if program == "snakemake":
        return checkout.snakemake(*arguments)
    done = subprocess.run(
        [sys.executable if program == "python" else program, *arguments],
        cwd=checkout.folder,
        env={**os.environ, **forked.environment(checkout.library)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Ran(done.returncode, done.stdout)
