"""Write the sections of docs/small-studies.md, and its pictures: what small studies gave, and what the papers say.

usage: document_small_studies.py RESULTS (the folder of both studies' results)
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
PAGE = Path("docs/small-studies.md")


def lines(results: Path) -> Iterator[str]:
    """The page, as it begins; copies the pictures."""
    yield PAGE.read_text().partition("\n## ")[0]
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
            told = plain("; ".join([decides(claim), *tested[:COMBINATIONS]]))
            yield f"- Claim: {plain(claim['sentence'])} **{verdict_in_words(claim)}** ({told})."
    if exhibit["shown"]:
        yield f"- Ours: {plain(exhibit['shown'])}"
    if exhibit["status"] == "missing":
        yield f"- Missing: {plain('; '.join(exhibit['missing']))}"
    yield ""
    if "table" in exhibit:
        yield (of_paper / f"{exhibit['name']}.md").read_text()
    elif exhibit["files"]:
        PICTURES.mkdir(parents=True, exist_ok=True)
        picture = f"{of_paper.name}-{exhibit['name']}.svg"
        shutil.copyfile(of_paper / f"{exhibit['name']}.svg", PICTURES / picture)
        yield f"![{plain(exhibit['title'])}](images/small-studies/{picture})\n"


if __name__ == "__main__":
    PAGE.write_text("\n".join(lines(Path(sys.argv[1]))).rstrip() + "\n")
