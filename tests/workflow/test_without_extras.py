"""A study where the packages beside the core were deleted: it runs, and says what is missing."""

import json
import shutil
from collections.abc import Callable

import forked
from checkout import Checkout
from house import EXTRAS


def test_a_study_runs_to_its_conclusions_and_says_what_it_cannot_read(new_checkout: Callable[..., Checkout]) -> None:
    checkout = new_checkout()
    for package in EXTRAS:
        shutil.rmtree(checkout.folder / "src" / package)
    checkout.study = {"study": "tiny", "external_tables": {"elsewhere": "elsewhere.csv"}}
    checkout.write_study()
    variables = {**forked.environment(checkout.library), "ALONE": checkout.library}
    with checkout.start_snakemake("--", "results/tiny/conclusions.md", **variables) as process:
        text, _ = process.communicate()
    assert process.returncode == 0, text
    assert "not made, because stallpoint_papers is not installed" in text
    found = json.loads(checkout.results("conclusions.json").read_text())
    (external,) = (section for section in found["sections"] if section["name"] == "external")
    assert external["absence"] == "not installed"
    assert external["text"].startswith("Not known, because stallpoint_files is not installed")
