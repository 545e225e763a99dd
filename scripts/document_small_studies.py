"""Write a page on studies scaled down, and its pictures: what they gave, beside what their sources say.

usage: document_small_studies.py RESULTS         docs/small-studies.md (RESULTS: the folder of all studies' results)
       document_small_studies.py RESULTS STUDY   docs/STUDY.md (guide-small or dlbs-small)
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stallpoint.findings.claims.claim_words import combinations, decides, verdict_in_words
from stallpoint.text import plain

SHOWN = {
    ("shi-2018-small", "shi-2018"): ("Fig. 2", "Fig. 3", "Fig. 4"),
    ("keuper-2016-small", "keuper-2016"): (
        *("Table I", "Fig. 1", "Fig. 3", "Fig. 4", "Fig. 5", "Fig. 7", "Fig. 9"),
        *("Fig. 11", "Fig. 12", "Fig. 13", "Fig. 14", "Fig. 15"),
    ),
}
"""Exhibits by study and paper, without those that need a GPU; claims that these studies cannot test are excluded."""
COMBINATIONS = 2
"""Combinations that are shown of each claim."""
PICTURES = Path("docs/images/small-studies")
PAGES = Path("docs")

CLAIMS_ALONE = {
    "guide-small": "An introductory guide on distributed training of neural networks",
    "dlbs-small": "Serebryakov (2017)",
}
"""The paper of each study whose source has claims, but no exhibits."""


def head(page: str) -> str:
    """Return how a page begins: up to the commands that it was made with."""
    text = (PAGES / page).read_text()
    return text[: text.index("\n```\n", text.index("```\n") + 4) + 5]


def judged(results: Path, study: str) -> Iterator[str]:
    """The page of one of `CLAIMS_ALONE`: verdicts on curves and claims, and the speedup; copies the picture."""
    of_study = results / study
    yield head(f"{study}.md")
    conclusions = (of_study / "conclusions.md").read_text().splitlines()
    yield f"{conclusions[2]}\n"  # its machines
    yield from (line for line in conclusions if line.startswith("| "))
    yield f"\n{picture(of_study / 'figures/speedup.svg', f'{study}-speedup.svg', 'Speedup over nodes')}"
    yield "## What the source claims\n"
    for claim in json.loads((of_study / "conclusions.json").read_text())["claims"]:
        if claim["paper"] == CLAIMS_ALONE[study] and (tested := combinations(claim)[0]):
            yield claimed(claim, tested)


def picture(file: Path, name: str, title: str) -> str:
    """Copy a picture to the documentation, and return what shows it."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, PICTURES / name)
    return f"![{plain(title)}](images/small-studies/{name})\n"


def claimed(claim: dict[str, Any], tested: list[str]) -> str:
    """A claim with its verdict and some of the combinations that were tested."""
    numbers = plain("; ".join([decides(claim), *tested[:COMBINATIONS]]))
    return f"- Claim: {plain(claim['sentence'])} **{verdict_in_words(claim)}** ({numbers})."


def lines(results: Path) -> Iterator[str]:
    """The page, as it begins; copies the pictures."""
    yield (PAGES / "small-studies.md").read_text().partition("\n## ")[0]
    for (study, paper), numbers in SHOWN.items():
        of_paper = results / study / "papers" / paper
        index = json.loads((of_paper / "index.json").read_text())
        conclusions = json.loads((results / study / "conclusions.json").read_text())
        yield f"## {plain(index['authors'])}\n"
        yield f"{(results / study / 'conclusions.md').read_text().splitlines()[2]}\n"  # its machines
        for exhibit in index["exhibits"]:
            if exhibit["number"] in numbers:
                yield from shown(
                    exhibit, of_paper, [c for c in conclusions["claims"] if c["paper"] == index["authors"]]
                )


def shown(exhibit: dict[str, Any], of_paper: Path, claims: list[dict[str, Any]]) -> Iterator[str]:
    """One exhibit: what is published, what was judged, and the picture or the table."""
    yield f"### {exhibit['number']}: {plain(exhibit['title'])}\n"
    for says in exhibit["published"]:
        yield f"- Published: {plain(says['says'])} ({plain(says['source'])})"
    for claim in claims:
        tested, _ = combinations(claim)
        if tested and re.search(rf"{re.escape(exhibit['number'])}\b", claim["source"]):
            yield claimed(claim, tested)
    if exhibit["shown"]:
        yield f"- Ours: {plain(exhibit['shown'])}"
    if exhibit["status"] == "missing":
        yield f"- Missing: {plain('; '.join(exhibit['missing']))}"
    yield ""
    if "table" in exhibit:
        yield (of_paper / f"{exhibit['name']}.md").read_text()
    elif exhibit["files"]:
        name = exhibit["name"]
        yield picture(of_paper / f"{name}.svg", f"{of_paper.name}-{name}.svg", exhibit["title"])


if __name__ == "__main__":
    results, *study = Path(sys.argv[1]), *sys.argv[2:]
    page = judged(results, *study) if study else lines(results)
    (PAGES / f"{study[0] if study else 'small-studies'}.md").write_text("\n".join(page).rstrip() + "\n")
