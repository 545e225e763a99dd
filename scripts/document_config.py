"""Write config/README.md, every key of a study, from the schema that validates it and the registries of names.

usage: document_config.py > config/README.md
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from stallpoint.networks import NETWORKS
from stallpoint.study.catalogue import REGISTRIES

SCHEMA = yaml.safe_load((Path(__file__).parents[1] / "workflow/schemas/study.schema.yaml").read_text())

HEAD = f"""# Configuration

`config.yaml` is the default study; `studies/` holds the papers' own matrices. Another study is run with
`snakemake --configfile FILE`, and its results are in `results/<study>/`. A misspelt key or a wrong value is refused
with a message that names the entry.

Blocks of `matrix` are multiplied out, each on its own; what meets a condition under `exclude` is left out, and single
cells under `include` are added, or change the settings of a cell that the matrix already has. What cannot run (b < 1,
B not divisible by the number of workers, more nodes than the hardware has or more workers on one, a network that
takes tokens and a storage that holds images) is left out and listed by `snakemake -n` with the reason.

`network` is one of {", ".join(f"`{name}`" for name in NETWORKS)}, or one
under `networks`; `sync` is one of the presets in `docs/presets.md`, or one under `presets`.

Cells of a hardware entry are measured in turns, by one job: each is visited `visits` times at least, and further where
that narrows the least certain speedup, until `precision` or `budget` is reached (`docs/measuring.md`). `iterations`,
`warmup` and `samples` count for each visit.

Changing a setting of a cell makes that cell stale, and nothing else: it is measured again, and what depends on it is
made again. `visits`, `iterations`, `warmup` and `samples` are settings of cells; `precision` and `budget` are not, and
count for what is measured from then on.

(Generated from `workflow/schemas/study.schema.yaml` and stallpoint's registries by `scripts/document_config.py`.)
"""


def resolved(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A part of the schema with its reference put in."""
    if "$ref" not in schema:
        return dict(schema)
    return {**SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]], **schema}


def kind(schema: Mapping[str, Any], key: str) -> str:
    """The allowed values, for people."""
    if values := REGISTRIES.get(key, schema.get("enum")):
        return " or ".join(f"`{value}`" for value in values)
    if "oneOf" in schema:
        return f"{kind(resolved(schema['oneOf'][0]), key)}, or a list of them"
    if schema.get("type") == "array":
        return "list"
    bounds = [f"≥ {schema[key]}" for key in ("minimum",) if key in schema]
    bounds += [f"> {schema[key]}" for key in ("exclusiveMinimum",) if key in schema]
    bounds += [f"< {schema[key]}" for key in ("exclusiveMaximum",) if key in schema]
    return " ".join([schema.get("type", "").replace("object", "entries"), *bounds])


def rows(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """A table row for each key below `schema`, depth first."""
    required = schema.get("required", [])
    for name, part in schema.get("properties", {}).items():
        entry = resolved(part)
        default = "required" if name in required else f"`{entry['default']}`" if "default" in entry else ""
        if prefix and name not in required and name in SCHEMA["properties"] and "$ref" in part:
            default = "the study's"
        meaning = entry.get("description", "").replace("<", "&lt;")  # <study> would be taken for HTML
        yield f"| `{prefix}{name}` | {kind(entry, prefix + name)} | {default} | {meaning} |"
        inner = entry.get("additionalProperties")
        if isinstance(inner, Mapping):
            yield from rows(inner, f"{prefix}{name}.<name>.")
        elif entry.get("type") == "array":
            yield from rows(resolved(entry["items"]), f"{prefix}{name}[].")
        else:
            yield from rows(entry, f"{prefix}{name}.")


def document() -> str:
    """The whole page."""
    return "\n".join([HEAD, "| key | value | default | meaning |", "| --- | --- | --- | --- |", *rows(SCHEMA), ""])


if __name__ == "__main__":
    print(document(), end="")
