"""Write docs/small-studies.md and its pictures: what the papers' studies scaled down gave, beside what the papers say.

usage: document_small_studies.py RESULTS > docs/small-studies.md (RESULTS: the folder of both studies' results)
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
    ("shi-2018-small", "shi-2018"): ("Fig. 2", "Fig. 3", "Fig. 4", "Table V"),
    ("keuper-2016-small", "keuper-2016"): (
        *("Table I", "Fig. 1", "Fig. 3", "Fig. 4", "Fig. 5", "Fig. 6", "Fig. 7", "Fig. 8", "Fig. 9"),
        *("Fig. 11", "Fig. 12", "Fig. 13", "Fig. 14", "Fig. 15"),
    ),
}
"""Exhibits by study and paper; claims that these studies cannot test are left out."""
PICTURES = Path("docs/images/small-studies")
HEAD = """# Both papers, scaled down

`config/studies/shi-2018-small.yaml` and `keuper-2016-small.yaml` are the papers' studies for any four nodes with two
cores. This page shows a run of both (November 2026) on the test cluster ([tests/cluster](reliability.md)): four Slurm
nodes that share one machine of two cores. **Beyond two workers there are fewer cores than workers.** Workers then slow
each other down, which no prediction from one isolated worker knows: with four and eight workers the model's errors are
those of this machine. Exhibits of communication show here that they are complete, not how a cluster scales. Exhibits of
one worker's computation (Keuper's Figs. 4, 5, 7, 9, 11, 12, 14 and 15) are not affected. But Slurm ran the jobs of
`two-threads` and `no-onednn` side by side on the two cores, and the intervals of `two-threads` are wide.

```
python benchmarks/run.py small-studies        # runs both, and says of each exhibit whether it was made
python scripts/document_small_studies.py results > docs/small-studies.md
```

Mini-batches are 16 to 64 times smaller than the papers', and hardware and software are years apart: numbers differ,
shapes can be compared. Claims that name an exhibit stand with it, as far as these studies test them
([claims](claims.md)).
"""


def lines(results: Path) -> Iterator[str]:
    """The whole page; copies the pictures."""
    yield HEAD
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
            told = plain("; ".join([decides(claim), *tested[:4]]))
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
    print("\n".join(lines(Path(sys.argv[1]))).rstrip())
