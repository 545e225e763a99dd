"""Hooks of MkDocs: they generate parts of pages, and make config/README.md a page of the site.

``python docs/hooks.py`` writes the generated parts into the pages, for whoever reads them in the repository. A part is
between ``<!-- generated: NAME WORDS -->`` and ``<!-- end -->``; `PARTS` has the function that makes it, by NAME.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import yaml

from stallpoint.networks import NETWORKS
from stallpoint.records import tables as records
from stallpoint.records.tables import Column, Table
from stallpoint.schedule.planning.plan import plan_of
from stallpoint.storage import FORMATS
from stallpoint.strategies.presets import CHOICES, PRESETS, Preset, default_of, options_of
from stallpoint.study.catalogue import REGISTRIES
from stallpoint.study.configuration import load_study
from stallpoint.study.kinds import KINDS
from stallpoint.study.recipes import RECIPES
from stallpoint.study.study import expand
from stallpoint.text import listed
from stallpoint_papers.exhibits import PAPERS

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = {"../config/README.md": "configuration.md"}
"""Files outside docs/, seen from there, and the pages they become."""
MARKED = re.compile(r"(<!-- generated: (\w+) ?([\w-]*) -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())
TYPES = {
    records.TEXT: "text",
    records.INT: "integer",
    records.REAL: "number",
    records.FLAG: "true or false",
    pa.timestamp("us", tz="UTC"): "time (UTC)",
}


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages from `OUTSIDE`."""
    from mkdocs.structure.files import File

    for outside, page in OUTSIDE.items():
        source = posixpath.normpath(posixpath.join(config.docs_dir, outside))
        files.append(File.generated(config, page, abs_src_path=source))
    return files


def on_page_markdown(markdown: str, page: "Page", **_: object) -> str:
    """Fill the generated parts; links to and from files outside of docs/, made for the repository, lead to pages."""
    folder = posixpath.dirname(page.file.src_uri)
    for outside, target in OUTSIDE.items():
        there, here = posixpath.relpath(outside, folder or "."), posixpath.relpath(target, folder or ".")
        markdown = markdown.replace(f"]({there}", f"]({here}")
    return filled(markdown.replace("](../docs/", "]("))


def filled(markdown: str) -> str:
    """Return the text with its generated parts made anew."""
    return MARKED.sub(lambda part: part[1] + "\n".join(PARTS[part[2]](*part[3].split())) + part[4], markdown)


def pages() -> Iterator[Path]:
    """Yield the pages that have generated parts."""
    for page in (*sorted(ROOT.glob("docs/**/*.md")), *(ROOT / "docs" / outside for outside in OUTSIDE)):
        if MARKED.search(page.read_text(encoding="utf-8")):
            yield page


def presets() -> Iterator[str]:
    """Yield a table of presets: what each does, and how it differs from wait-free back-propagation layer by layer."""
    yield "| preset | what it does | differs from `wfbp` in | source |"
    yield "| --- | --- | --- | --- |"
    for name, known in PRESETS.items():
        of = options_of(known.preset)
        changed = [f"`{key}: {str(value).lower()}`" for key, value in of.items() if value != default_of(key)]
        differs = f"another name of `{known.alias_of}`" if known.alias_of else ", ".join(changed) or "nothing"
        yield f"| `{name}` | {known.description} | {differs} | {known.source} |"


def alike() -> Iterator[str]:
    """Yield a sentence on the presets that do the same on a CPU."""
    does: dict[Preset, list[str]] = {}
    for name, known in PRESETS.items():
        does.setdefault(known.preset.on("cpu"), []).append(f"`{name}`")
    several = "; ".join(listed(names) for names in does.values() if len(names) > 1)
    yield f"On a CPU some differ in name alone: {several}."


def choices() -> Iterator[str]:
    """Yield a table of the choices of presets, with each value and its meaning."""
    yield "| choice | value | meaning |"
    yield "| --- | --- | --- |"
    for choice, values in CHOICES.items():
        yield from (f"| `{choice}` | `{value}` | {meaning} |" for value, meaning in values.items())


def networks() -> Iterator[str]:
    """Yield a table of networks, with their sizes and sources."""
    yield "| network | what it is | takes | parameters | multiply-adds of a sample's forward pass | source |"
    yield "| --- | --- | --- | ---: | ---: | --- |"
    for network in NETWORKS.values():
        size = f"{network.parameters:,} | {network.multiply_adds / 1e9:.3g} billion"
        yield f"| `{network.name}` | {network.description} | {network.takes} | {size} | {network.source} |"


def sizes() -> Iterator[str]:
    """Yield a table of the networks' sizes as published by others."""
    yield "| network | parameters | multiply-adds |"
    yield "| --- | --- | --- |"
    for name, facts in yaml.safe_load((ROOT / "resources/published/networks.yaml").read_text(encoding="utf-8")).items():
        published = " | ".join(f"{fact['text']} ({fact['source']})" for fact in facts.values())
        yield f"| `{name}` | {published} |"


def formats() -> Iterator[str]:
    """Yield a table of storage formats."""
    yield "| format | samples | what the folder holds |"
    yield "| --- | --- | --- |"
    for name, kind in FORMATS.items():
        yield f"| `{name}` | {kind.kind} | {kind.layout} |"


def recipes() -> Iterator[str]:
    """Yield a table of recipes."""
    yield "| recipe | what it does | step size | source |"
    yield "| --- | --- | ---: | --- |"
    for name, known in RECIPES.items():
        yield f"| `{name}` | {known.description} | {known.recipe.step_size:g} | {known.source} |"


def exhibits(paper: str) -> Iterator[str]:
    """Yield a table of a paper's figures and tables, and how stallpoint's differ from them."""
    yield "| exhibit | shows | file | differs from the original |"
    yield "| --- | --- | --- | --- |"
    for exhibit in PAPERS[paper].exhibits:
        yield f"| {exhibit.number} | {exhibit.title} | `{exhibit.name}` | {exhibit.differs} |"


def study(name: str) -> Iterator[str]:
    """Yield the configuration file of a study."""
    path = f"config/studies/{name}.yaml"
    yield f'```yaml title="{path}"\n{(ROOT / path).read_text()}```'


def plan(name: str) -> Iterator[str]:
    """Yield the cells of a study by kind and nodes."""
    yield f"```\n{expand(load_study(ROOT / f'config/studies/{name}.yaml'), SCHEMA).plan()}\n```"


def costs() -> Iterator[str]:
    """Yield a table of the jobs and node-hours that plans expect of the papers' studies before any measurement."""
    yield "| study | jobs | largest job | longest job | node-hours (90 % interval) |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name in ("keuper-2016", "shi-2018", "dlbs", "guide"):
        study = expand(load_study(ROOT / f"config/studies/{name}.yaml"), SCHEMA)
        expected = plan_of(study, Path("nothing-measured"), concurrent=True)
        longest = max(job.seconds.typical for job in expected.jobs)
        low, typical, high = (f"{hours:,.0f}" for hours in expected.node_hours.values())
        yield (
            f"| `{name}` | {len(expected.jobs)} | {max(job.nodes for job in expected.jobs)} nodes | "
            f"{longest / 3600:.0f} h | {typical} ({low}–{high}) |"
        )


def tables(name: str) -> Iterator[str]:
    """Yield the columns of the tables in a constant of `stallpoint.records.tables`."""
    found = getattr(records, name)
    for place, table in enumerate([found] if isinstance(found, Table) else found):
        kinds = [f"`{kind.replace('-', '_')}`" for kind, of in KINDS.items() if table in of.tables]
        written = f" In cells of: {', '.join(kinds)}." if table in records.TIDY_TABLES else ""
        yield f"{chr(10) if place else ''}### {table.name}"
        yield f"\n{table.description[0].upper()}{table.description[1:]}.{written}"
        yield "\n| column | type | unit | meaning |\n| --- | --- | --- | --- |"
        yield from _columns(table)


def _columns(table: Table) -> Iterator[str]:
    """Yield a line for each column; a quantity and the ends of its interval share a line."""
    names = {column.name for column in table.columns}
    for column in table.columns:
        if not any(column.name.endswith(end) and column.name.removesuffix(end) in names for end in ("_low", "_high")):
            yield _column(column, ("", "_low", "_high") if f"{column.name}_low" in names else ("",))


def _column(column: Column, ends: tuple[str, ...]) -> str:
    name = ", ".join(f"`{column.name}{end}`" for end in ends)
    meaning = column.description.replace("|", "\\|").replace("<", "&lt;")
    return f"| {name} | {TYPES[column.type]} | {column.unit or ''} | {meaning} |"


def configuration() -> Iterator[str]:
    """Yield a table of all keys of a study, from the schema that validates it and the registries of names."""
    yield "| key | value | default | meaning |"
    yield "| --- | --- | --- | --- |"
    yield from _keys(SCHEMA)


def _keys(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield a table row for each key below `schema`, depth first."""
    required = schema.get("required", [])
    for name, part in schema.get("properties", {}).items():
        entry = _resolved(part)
        default = "required" if name in required else f"`{entry['default']}`" if "default" in entry else ""
        if prefix and name not in required and name in SCHEMA["properties"] and "$ref" in part:
            default = "the study's"
        meaning = entry.get("description", "").replace("<", "&lt;")  # <study> would be taken for HTML
        yield f"| `{prefix}{name}` | {_values(entry, prefix + name)} | {default} | {meaning} |"
        inner = entry.get("additionalProperties")
        if isinstance(inner, Mapping):
            yield from _keys(inner, f"{prefix}{name}.<name>.")
        elif entry.get("type") == "array":
            yield from _keys(_resolved(entry["items"]), f"{prefix}{name}[].")
        else:
            yield from _keys(entry, f"{prefix}{name}.")


def _resolved(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of the schema with its reference resolved."""
    if "$ref" not in schema:
        return dict(schema)
    return {**SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]], **schema}


def _values(schema: Mapping[str, Any], key: str) -> str:
    """Return the allowed values as text."""
    if values := REGISTRIES.get(key, schema.get("enum")):
        return " or ".join(f"`{value}`" for value in values)
    if "oneOf" in schema:
        return f"{_values(_resolved(schema['oneOf'][0]), key)}, or a list of them"
    if schema.get("type") == "array":
        return "list"
    bounds = [f"≥ {schema[key]}" for key in ("minimum",) if key in schema]
    bounds += [f"> {schema[key]}" for key in ("exclusiveMinimum",) if key in schema]
    bounds += [f"< {schema[key]}" for key in ("exclusiveMaximum",) if key in schema]
    return " ".join([schema.get("type", "").replace("object", "entries"), *bounds])


def strangers() -> Iterator[str]:
    """Yield a table of inputs that strangers bring to `stallpoint explain`, and the right answers."""
    yield "| kind | form | seen at | right answer | says who |"
    yield "| --- | --- | --- | --- | --- |"
    for file in sorted((ROOT / "tests/support/data/strangers").glob("*.yaml")):
        for one in yaml.safe_load(file.read_text(encoding="utf-8")):
            answers = "; ".join(dict.fromkeys(map(_right, one["right"])))
            cells = [file.stem, one["form"], one["source"], answers, one["by"]]
            yield "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


def _right(entry: Mapping[str, Any]) -> str:
    """Return a right answer in words."""
    if "question" in entry:
        names = entry["question"]
        return f"asks about {names if isinstance(names, str) else ' or '.join(names)}"
    if "named" in entry:
        return f"says that it is {entry['named']}, not read"
    if "collective" in entry:
        ranks = f" of {entry['ranks']} ranks" if "ranks" in entry else ""
        return f"{entry['collective']}{ranks}, {entry['best']} GB/s"
    if "phase" in entry:
        return f"{entry['phase']} holds it back"
    if {"subject", "says"} & set(entry):
        best = f"{entry['best']} GB/s" if "best" in entry else ""
        return ", ".join(filter(None, (best, entry.get("says", ""), *entry.get("causes", ()))))
    verdict = entry.get("verdict", "")
    words = verdict if isinstance(verdict, str) else " or ".join(verdict)
    at = f" at {entry['at']}" if "at" in entry else ""
    rates = ", ".join(
        f"{count}: {rate:g}" for count, rate in zip(entry.get("counts", ()), entry.get("rates", ()), strict=True)
    )
    return f"{words}{at}" + (f" ({rates})" if rates else "") if words else listed(entry.get("causes", ()))


_LISTS = presets, alike, choices, networks, sizes, formats, recipes, exhibits, costs, tables, configuration
PARTS: dict[str, Callable[..., Iterator[str]]] = {part.__name__: part for part in (*_LISTS, study, plan, strangers)}
"""Functions that make generated parts, by NAME; the part's WORDS are their arguments."""

if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
