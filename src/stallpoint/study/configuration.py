"""Loading of configurations, checks against the schema with errors that name the wrong entry, and default values.

The last part checks the files and folders that a study names.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml

from stallpoint.errors import InputError, reason
from stallpoint.networks.own import file_of
from stallpoint.text import CONTROLS

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader, which is ten times as fast, if PyYAML has it: each plan reads studies and claims."""
MAX_DEPTH = 50
"""Largest number of nested levels in a configuration; an entry that contains itself exceeds it."""
MAX_ENTRIES = 1_000_000
"""Largest number of entries with all aliases expanded, as nested aliases grow without bound."""


def load_yaml(text: str, file_name: str) -> Any:
    """Load a YAML text; `InputError` names the line of a repeated key.

    YAML forbids repeated keys, but Python's readers silently take the last value.
    """
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        _refuse_twice(node, file_name, set())
        return loader.construct_document(node) if node else None
    finally:
        loader.dispose()


def load_file(file: Path) -> Any:
    """Load a YAML file; `InputError` says in one line why the file cannot be read."""
    try:
        return _load(file)
    except OSError as error:
        raise InputError(f"{file}: {reason(error)}") from None
    except yaml.YAMLError as error:
        problem_mark = getattr(error, "problem_mark", None)
        position = f"{file}, line {problem_mark.line + 1}" if problem_mark else f"{file}"
        raise InputError(f"{position}: no YAML: {getattr(error, 'problem', None) or error}") from None


BASE = "builds_on"
"""Key by which a study names the study that it is based on."""


def load_study(file: Path) -> Any:
    """Load a study's file, merged into the study that it is based on."""
    return merged_into_base(load_file(file), file)


def merged_into_base(study: Any, file: Path, files_above: tuple[Path, ...] = ()) -> Any:
    """Return `study` from `file`, merged into its base: another study, whose file `study` names under the key `BASE`.

    As in Snakemake with several files, mappings are merged; any other value of the study replaces its base's value.
    """
    if not isinstance(study, Mapping) or BASE not in study:
        return study
    name, chain_of_files = study[BASE], (*files_above, file.resolve())
    if not isinstance(name, str):
        raise InputError(f"{file}: {BASE}: {name!r} is no file; a path from the folder of this one is expected")
    base = file.parent / name
    if base.resolve() in chain_of_files:
        names_in_circle = " -> ".join(one.name for one in (*chain_of_files, base))
        raise InputError(f"{file}: {BASE}: {names_in_circle} is a circle; one of them has to stand alone")
    if not base.is_file():
        raise InputError(f"{file}: {BASE}: there is no file {base}; a path from the folder of {file.name} is expected")
    merged_base = merged_into_base(load_file(base), base, chain_of_files)
    return _merged_value(merged_base, {key: value for key, value in study.items() if key != BASE})


def _merged_value(base: Any, study: Any) -> Any:
    if not (isinstance(base, Mapping) and isinstance(study, Mapping)):
        return study
    return {**base, **{key: _merged_value(base.get(key), value) for key, value in study.items()}}


def check_keys(file: Path) -> None:
    """Raise `InputError` for repeated keys in a file, and for errors for which Snakemake would print a traceback."""
    with suppress(yaml.YAMLError, OSError):
        _load(file)


def _load(file: Path) -> Any:
    try:
        return load_yaml(file.read_text(encoding="utf-8"), str(file))
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except RecursionError:
        raise InputError(f"{file}: lists or mappings that lie too deep in each other") from None
    except ValueError as error:  # PyYAML raises ValueError for dates such as 2024-02-30, and for very long integers
        raise InputError(f"{file}: {error}") from None


def _refuse_twice(node: yaml.Node | None, file_name: str, ids: set[int], enclosing_ids: tuple[int, ...] = ()) -> None:
    """Raise `InputError` for a repeated key, and for a YAML node inside itself, whose id is in `enclosing_ids`."""
    if id(node) in enclosing_ids:
        assert node
        raise InputError(f"{file_name}, line {node.start_mark.line + 1}: what begins here holds an alias of itself")
    if not isinstance(node, yaml.CollectionNode) or id(node) in ids:
        return
    ids.add(id(node))
    if isinstance(node, yaml.MappingNode):
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            name, line = (key.tag, str(key.value)), key.start_mark.line + 1
            if name in lines:
                first_line = f"stands in line {lines[name]} already"
                raise InputError(f"{file_name}, line {line}: key {key.value!r} {first_line}; remove one")
            lines[name] = line
    parts = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
    for part in parts:
        _refuse_twice(part, file_name, ids, (*enclosing_ids, id(node)))


def typed(value: Any) -> Any:
    """Return `value` with texts that YAML reads as numbers or booleans converted: "2" to 2, "true" to True."""
    if isinstance(value, Mapping):
        return {key: typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return list(map(typed, value))
    if not isinstance(value, str):
        return value
    try:
        read_value = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError):
        return value
    return read_value if read_value is None or isinstance(read_value, bool | int | float) else value


def check(config: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` with the schema's defaults filled in; `InputError` lists every wrong entry."""
    check_plain(config)
    errors = sorted(_validator()(schema).iter_errors(config), key=lambda error: list(map(str, error.path)))
    if errors:
        raise InputError("\n".join(dict.fromkeys(_error_message(error) for error in errors)))
    completed_config = _with_defaults(config, schema, schema)
    assert isinstance(completed_config, dict)
    return completed_config


@cache
def _validator() -> Any:
    """Return a class that validates by JSON schemas, but rejects 2.0 as an integer: cells' paths would have "2.0"."""
    from jsonschema import Draft202012Validator, validators  # only stallpoint[workflow] installs jsonschema

    types = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    return validators.extend(Draft202012Validator, type_checker=types)  # type: ignore[no-untyped-call]


def check_plain(config: Mapping[str, Any]) -> None:
    """Raise `InputError` for entries that no configuration may have, whatever its schema."""
    if (entries := _entry_count(config, {}, 0)) > MAX_ENTRIES:
        raise InputError(f"the study: {entries:,} entries with its aliases written out; at most {MAX_ENTRIES:,}")
    if errors := list(_forbidden_entries(config, "", 0)):
        raise InputError("\n".join(errors))


def _entry_count(value: Any, count_by_id: dict[int, int], depth: int) -> int:
    """Return 1 plus the number of entries in a value. An entry repeated by aliases counts at each place."""
    if depth > MAX_DEPTH:
        raise InputError(f"the study: nested more than {MAX_DEPTH} levels deep")
    if not isinstance(value, Mapping | list):
        return 1
    if id(value) not in count_by_id:
        count_by_id[id(value)] = 1  # a temporary count, which ends the recursion if the value contains itself
        inner = value.values() if isinstance(value, Mapping) else value
        count_by_id[id(value)] = 1 + sum(_entry_count(one, count_by_id, depth + 1) for one in inner)
    return count_by_id[id(value)]


def _forbidden_entries(value: Any, position: str, depth: int) -> Iterator[str]:
    """Yield errors for keys that are no texts, for control characters, infinite numbers and too many nested levels."""
    if depth > MAX_DEPTH:
        yield f"{position[:80]}...: nested more than {MAX_DEPTH} levels deep, or an entry that contains itself"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str):
                yield from _forbidden_entries(inner, f"{position}.{key}".lstrip("."), depth + 1)
            else:
                yield f"{position or 'the study'}: key {key!r} is no text; write it in quotes: '{key}'"
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _forbidden_entries(inner, f"{position}[{index}]", depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{position}: {value} is not a number that can be used"
    elif isinstance(value, str) and re.search(CONTROLS, value):
        yield f"{position}: {value[:80]!r} has control characters"


def known(name: str, names: Sequence[str], position: str, noun: str) -> None:
    """Raise `InputError` unless `name` is one of `names`."""
    if name not in names:
        raise InputError(unknown(name, names, position, noun))


def unknown(name: str, names: Sequence[str], position: str, noun: str) -> str:
    """Return the message for a `name` that is not one of `names`."""
    return f"{position}: unknown {noun} {name!r}{_suggest(name, names)}; known: {', '.join(names)}"


def _suggest(name: str, names: Iterable[str]) -> str:
    close_names = get_close_matches(name, list(names), n=1)
    return f", did you mean {close_names[0]!r}?" if close_names else ""


def _position_of_error(error: ValidationError) -> str:
    path = ""
    for part in error.absolute_path:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".") or "the study"


def _error_message(error: ValidationError) -> str:
    """Return one line that says which entry is wrong, why, and what would be right."""
    if error.validator == "oneOf" and error.context:
        return _error_message(_closest_error(error))
    entry = _position_of_error(error)
    limit = cast(Any, error.validator_value)
    if error.validator == "additionalProperties":
        schema = cast(Any, error.schema)
        allowed_keys = list(schema["properties"])
        unknown_keys = [key for key in cast(Any, error.instance) if key not in allowed_keys]
        hints_in_words = "; ".join(f"unknown key {key!r}{_suggest(key, allowed_keys)}" for key in unknown_keys)
        return f"{entry}: {hints_in_words}; known: {', '.join(allowed_keys)}"
    if error.validator == "required":
        missing_keys = [key for key in limit if key not in cast(Any, error.instance)]
        return f"{entry}: missing {', '.join(missing_keys)}"
    if error.validator == "enum":
        choices = [str(choice) for choice in limit]
        return f"{entry}: {error.instance!r} is not one of {', '.join(choices)}{_suggest(str(error.instance), choices)}"
    if error.validator == "minimum":
        return f"{entry}: {error.instance} is less than {limit}, the least allowed"
    if error.validator == "maximum":
        return f"{entry}: {error.instance} is more than {limit}, the most allowed"
    if error.validator == "maxLength":
        return f"{entry}: {len(cast(str, error.instance))} characters; at most {limit}"
    if error.validator == "type":
        return f"{entry}: {error.instance!r} should be of type {limit}"
    return f"{entry}: {error.message}"


def _closest_error(error: ValidationError) -> ValidationError:
    """Return the user's most likely error in a value that fits no alternative of the schema's ``oneOf``."""
    context = error.context or []
    wanted_type = "array" if isinstance(error.instance, list) else None
    fitting_errors = [inner for inner in context if not (inner.validator == "type" and not inner.path)]
    if wanted_type is None and not fitting_errors:
        return next((inner for inner in context if inner.validator_value != "array"), context[0])
    return fitting_errors[0] if fitting_errors else context[0]


def _with_defaults(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return `value` with the schema's defaults for missing keys. Keys that a block takes from the study stay out."""
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = {**target, **{key: item for key, item in schema.items() if key != "$ref"}}
    if isinstance(value, Mapping):
        properties: Mapping[str, Any] = schema.get("properties", {})
        extras = schema.get("additionalProperties")
        completed_value = {
            key: _with_defaults(item, properties.get(key, extras if isinstance(extras, Mapping) else {}), root)
            for key, item in value.items()
        }
        for key, inner in properties.items():
            if key in completed_value:
                continue
            if "$ref" in inner and "default" not in inner:  # a block takes the setting `key` from the study
                if schema is not root:
                    continue
                inner = root["$defs"][inner["$ref"].rsplit("/", 1)[1]]
            if "default" in inner:
                completed_value[key] = _with_defaults(inner["default"], inner, root)
        return completed_value
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [_with_defaults(item, schema["items"], root) for item in value]
    return value


# --- checks of paths ------------------------------------------------------------------------------

MAX_PATH, MAX_PART = 4095, 255
"""Largest length of a path, and of each name in a path, bytes."""
PAPERS = "papers"
"""Entry under ``claims`` of a study that stands for all files of resources/claims."""
_NO_CHARACTER = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def check_paths(config: Mapping[str, Any]) -> None:
    """Raise `InputError` for invalid paths, and for folders where files are expected.

    Missing files are no error here, since an archive lacks the imported files: the readers of files report them.
    """
    files = list(_files(config))
    storages = [(f"storage.{name}.path", path) for name, entry in config["storage"].items() if (path := entry["path"])]
    problems = [f"{where}: {why}" for where, path in (*files, *storages) if (why := _impossible(path))]
    if not problems:
        braced = [(where, path) for where, path in files if "{" in path or "}" in path]
        problems = [
            f"{where}: {path} has a brace, which the workflow takes for a wildcard; rename it" for where, path in braced
        ]
    if not problems:
        problems = [f"{where}: {path} is a folder; a file is expected" for where, path in files if os.path.isdir(path)]
    if problems:
        raise InputError("\n".join(problems))


def list_folders(config: Mapping[str, Any]) -> None:
    """Replace each folder of traces in `config` by its files, in the order of the numbers in their names.

    A missing folder stays in `config`: archives lack it. YAML files are left out, such as the study of an exported run.
    """
    for entry in config["hardware"].values():
        for trace in entry.get("traces", []):
            if isinstance(folder := trace["files"], str) and os.path.isdir(folder):
                names = [one.name for one in os.scandir(folder) if one.is_file() and one.name[0] != "."]
                trace_files = [name for name in names if not name.endswith((".yaml", ".yml"))]
                trace["files"] = [os.path.join(folder, name) for name in sorted(trace_files, key=_number_key)] or folder


def _number_key(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``rank2`` before ``rank10``."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def is_file(entry: Any) -> bool:
    """Return whether an entry of a study's ``claims`` is the path of a file; the other allowed entry is `PAPERS`."""
    return isinstance(entry, str) and entry != PAPERS


def _files(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the entry and the path of each file that a study names."""
    for name, entry in config["hardware"].items():
        for index, trace in enumerate(entry.get("traces", [])):
            files = trace["files"] if isinstance(trace["files"], list) else [trace["files"]]
            yield from ((f"hardware.{name}.traces[{index}].files", file) for file in files)
        for index, log in enumerate(entry.get("collectives", [])):
            yield f"hardware.{name}.collectives[{index}].file", log["file"]
    for name, entry in config["networks"].items():
        if file := file_of(entry):
            yield f"networks.{name}.build", str(file)
    yield from ((f"external_tables.{name}", file) for name, file in config["external_tables"].items())
    yield from ((f"claims[{index}]", entry) for index, entry in enumerate(config["claims"]) if is_file(entry))


def _impossible(path: str) -> str:
    """Return why `path` is invalid; empty if it is valid."""
    if not path.strip():
        return "an empty path"
    if _NO_CHARACTER.search(path):
        return f"{path[:80]!r} has characters that no path has; one on a single line is expected"
    if len(os.fsencode(path)) > MAX_PATH or any(len(os.fsencode(part)) > MAX_PART for part in Path(path).parts):
        return f"{path[:80]}... is longer than file systems take: {MAX_PART} bytes a name, {MAX_PATH:,} in all"
    return ""
