"""Write a page on small studies, with pictures: their results next to the statements of their sources.

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

from stallpoint.base.section import Section
from stallpoint.base.section_texts import sections_from_json
from stallpoint.questions.claims.judge import UNTESTED
from stallpoint.text import quote

SHARED_PAGE = {"shi-2018-small": "shi-2018", "keuper-2016-small": "keuper-2016"}
"""The studies of docs/small-studies.md, and the paper of each."""
EXHIBITS = {**SHARED_PAGE, "guide-small": "guide"}
"""The paper whose exhibits each study makes: all that have data are shown."""
PICTURES = Path("docs/images/small-studies")
PAGES = Path("docs")

OWN_PAGE = {
    "guide-small": "An introductory guide on distributed training of neural networks",
    "dlbs-small": "Serebryakov (2017)",
}
"""The studies with a page of their own, and the source of each, as its claims name it."""


def head(page: str) -> str:
    """Return the beginning of a page, up to the commands that made it."""
    text = (PAGES / page).read_text()
    return text[: text.index("\n```\n", text.index("```\n") + 4) + 5]


def own_page(results: Path, study: str) -> Iterator[str]:
    """Yield the page of a study of `OWN_PAGE`: verdicts on curves and claims, and the speedup; copy the picture."""
    of_study = results / study
    yield head(f"{study}.md")
    yield from answers(of_study)
    yield f"\n{picture(of_study / 'figures/speedup.svg', f'{study}-speedup.svg', 'Speedup over nodes')}"
    if study in EXHIBITS:
        yield from exhibits(of_study, EXHIBITS[study], [])
    yield "## What the source claims\n"
    yield from map(claimed, tested(of_study, OWN_PAGE[study]))


def picture(file: Path, name: str, title: str) -> str:
    """Copy a picture to the documentation, and return the Markdown for it."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, PICTURES / name)
    return f"![{quote(title)}](images/small-studies/{name})\n"


def said(of_study: Path) -> dict[str, Section]:
    """Return the sections of a study's conclusions by name."""
    return {one.name: one for one in sections_from_json(json.loads((of_study / "conclusions.json").read_text()))}


def answers(of_study: Path) -> Iterator[str]:
    """Yield a line for each machine and each answer."""
    yield from (f"- {quote(one.sentence)}" for one in said(of_study)["answer"].findings)


def tested(of_study: Path, paper: str) -> list[dict[str, str]]:
    """Return the rows of a paper's claims that were tested."""
    grids = (one for one in said(of_study)["claims"].grids if one.title.startswith(f"{paper}: "))
    rows = (dict(zip(one.head, row, strict=True)) for one in grids for row in one.rows)
    return [row for row in rows if row["verdict"] != UNTESTED]


def claimed(claim: dict[str, str]) -> str:
    """Return a claim with its verdict and some of the combinations that were tested."""
    return f"- Claim: {quote(claim['claim'])} **{claim['verdict']}** ({quote(claim['numbers'])})."


def shared_page(results: Path) -> Iterator[str]:
    """Yield the lines of docs/small-studies.md after its head; copy the pictures."""
    yield (PAGES / "small-studies.md").read_text().partition("\n## ")[0]
    for study, paper in SHARED_PAGE.items():
        index = index_of(results / study, paper)
        yield f"## {quote(index['authors'])}\n"
        machines = (one for one in said(results / study)["answer"].findings if one.kind == "machine")
        yield "; ".join(one.sentence for one in machines) + ".\n"
        yield from exhibits(results / study, paper, tested(results / study, index["authors"]))


def index_of(of_study: Path, paper: str) -> dict[str, Any]:
    """Return the index of a paper's exhibits in a study's results."""
    found: dict[str, Any] = json.loads((of_study / "papers" / paper / "index.json").read_text())
    return found


def exhibits(of_study: Path, paper: str, claims: list[dict[str, str]]) -> Iterator[str]:
    """Yield every exhibit that the study made, with the claims about it."""
    for exhibit in index_of(of_study, paper)["exhibits"]:
        if exhibit["status"] != "missing":
            yield from shown(exhibit, of_study / "papers" / paper, claims)


def shown(exhibit: dict[str, Any], of_paper: Path, claims: list[dict[str, str]]) -> Iterator[str]:
    """Yield one exhibit: published values, judged claims, and the picture or table."""
    yield f"### {exhibit['number']}: {quote(exhibit['title'])}\n"
    for says in exhibit["published"]:
        yield f"- Published: {quote(says['says'])} ({quote(says['source'])})"
    for claim in claims:
        if re.search(rf"{re.escape(exhibit['number'])}\b", claim["source"]):
            yield claimed(claim)
    if exhibit["shown"]:
        yield f"- Ours: {quote(exhibit['shown'])}"
    if exhibit["missing"]:
        yield f"- Missing: {quote('; '.join(exhibit['missing']))}"
    yield ""
    if "table" in exhibit:
        yield (of_paper / f"{exhibit['name']}.md").read_text()
    elif exhibit["files"]:
        name = exhibit["name"]
        yield picture(of_paper / f"{name}.svg", f"{of_paper.name}-{name}.svg", exhibit["title"])


if __name__ == "__main__":
    results, *study = Path(sys.argv[1]), *sys.argv[2:]
    page = own_page(results, *study) if study else shared_page(results)
    (PAGES / f"{study[0] if study else 'small-studies'}.md").write_text("\n".join(page).rstrip() + "\n")
