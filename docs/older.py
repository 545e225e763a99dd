"""Say which pages are older than the code behind their pictures: ``make docs-older``.

A page is as old as the newest of its pictures. It rests on the scripts in its blocks, or on a run of the workflow, with
the modules that they import. Files count that differ by now in more than comments and docstrings. (Pages that show
what commands print are tested by running these.)
"""

import ast
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

from stallpoint.sources import sources_of

ROOT = Path(__file__).parents[1]
STUDY = {Path("scripts", f"{name}.py") for name in ("measure", "collect", "fit", "extrapolate", "conclude", "chart")}
"""What a run of the workflow executes."""
SCRIPT = re.compile(r"^python ((?:scripts|benchmarks)/\w+\.py)", re.MULTILINE)
PICTURE = re.compile(r"\]\(((?:docs/)?images/[^)\s]+)\)")


def git(*words: str) -> str:
    """What git prints in the repository; nothing where it fails."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


class Wordless(ast.NodeTransformer):
    """Takes texts that stand by themselves out of a module."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Drop the statement where it is a constant."""
        return None if isinstance(node.value, ast.Constant) else node


@cache
def code(commit: str, file: str) -> str:
    """A file in a commit, of Python without comments and docstrings; empty where it is not there."""
    text = git("show", f"{commit}:{file}")
    if not file.endswith(".py"):
        return text
    return ast.dump(Wordless().visit(ast.parse(text)))


def older(page: Path) -> str | None:
    """What changed since the pictures of a page were made; None if nothing did, or it has none."""
    text = (ROOT / page).read_text(encoding="utf-8")
    pictures = [str(page.parent / name) for name in PICTURE.findall(text)]
    commit, _, date = git("log", "-1", "--format=%H %cs", "--", *pictures).partition(" ") if pictures else ("", "", "")
    if not commit:
        return None
    scripts = {*map(Path, SCRIPT.findall(text))} or STUDY
    scripts |= STUDY if any(script.parent.name == "benchmarks" for script in scripts) else set()
    imported = (file for script in scripts for file in sources_of(ROOT / script, ROOT / "src/stallpoint"))
    names = sorted({*map(str, scripts), *(str(file.relative_to(ROOT)) for file in imported)})
    now = git("rev-parse", "HEAD")
    differ = git("diff", "--name-only", commit, now, "--", *names).splitlines()
    changed = [name for name in differ if code(commit, name) != code(now, name)]
    rooms = Counter(name.removeprefix("src/").removeprefix("stallpoint/").split("/")[0] for name in changed)
    most = ", ".join(f"{room} {count}" for room, count in rooms.most_common(4))
    return f"{page}: made {date}; {len(changed)} of {len(names)} files differ since ({most})" if changed else None


if __name__ == "__main__":
    pages = [Path("README.md"), *(page.relative_to(ROOT) for page in sorted(ROOT.glob("docs/**/*.md")))]
    print(*(filter(None, map(older, pages))), sep="\n")
