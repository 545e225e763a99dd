"""Checking a configuration against its schema: defaults filled in, errors that name the entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from stallpoint.errors import InputError


def check(config: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with the schema's defaults; raises `InputError` listing every entry that is wrong."""
    errors = sorted(Draft202012Validator(schema).iter_errors(config), key=lambda error: list(map(str, error.path)))
    if errors:
        raise InputError("\n".join(dict.fromkeys(_message(error) for error in errors)))
    filled = _with_defaults(config, schema, schema)
    assert isinstance(filled, dict)
    return filled


def known(name: str, names: Sequence[str], where: str, what: str) -> None:
    """Raise `InputError` unless `name` is one of `names`."""
    if name not in names:
        raise InputError(unknown(name, names, where, what))


def unknown(name: str, names: Sequence[str], where: str, what: str) -> str:
    """What to say of a `name` that is not one of `names`."""
    return f"{where}: unknown {what} {name!r}{_suggest(name, names)}; known: {', '.join(names)}"


def _suggest(name: str, names: Iterable[str]) -> str:
    close = get_close_matches(name, list(names), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def _where(error: ValidationError) -> str:
    path = ""
    for part in error.absolute_path:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".") or "the study"


def _message(error: ValidationError) -> str:
    """One line for one error: the entry, what is wrong, what would be right."""
    if error.validator == "oneOf" and error.context:
        return _message(_closest(error))
    where = _where(error)
    wanted = cast(Any, error.validator_value)
    if error.validator == "additionalProperties":
        schema = cast(Any, error.schema)
        allowed = list(schema["properties"])
        unknown = [key for key in cast(Any, error.instance) if key not in allowed]
        hints = "; ".join(f"unknown key {key!r}{_suggest(key, allowed)}" for key in unknown)
        return f"{where}: {hints}; known: {', '.join(allowed)}"
    if error.validator == "required":
        missing = [key for key in wanted if key not in cast(Any, error.instance)]
        return f"{where}: missing {', '.join(missing)}"
    if error.validator == "enum":
        choices = [str(choice) for choice in wanted]
        return f"{where}: {error.instance!r} is not one of {', '.join(choices)}{_suggest(str(error.instance), choices)}"
    if error.validator == "minimum":
        return f"{where}: {error.instance} is less than {wanted}, the least allowed"
    if error.validator == "type":
        return f"{where}: {error.instance!r} should be of type {wanted}"
    return f"{where}: {error.message}"


def _closest(error: ValidationError) -> ValidationError:
    """Of the alternatives of a ``oneOf`` (one value or a list), the error of the one that was meant."""
    context = error.context or []
    wanted = "array" if isinstance(error.instance, list) else None
    fitting = [inner for inner in context if not (inner.validator == "type" and not inner.path)]
    if wanted is None and not fitting:
        return next((inner for inner in context if inner.validator_value != "array"), context[0])
    return fitting[0] if fitting else context[0]


def _with_defaults(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """`value` with the ``default`` of every property it leaves out; blocks' own settings stay unset."""
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = {**target, **{key: item for key, item in schema.items() if key != "$ref"}}
    if isinstance(value, Mapping):
        properties: Mapping[str, Any] = schema.get("properties", {})
        others = schema.get("additionalProperties")
        filled = {
            key: _with_defaults(item, properties.get(key, others if isinstance(others, Mapping) else {}), root)
            for key, item in value.items()
        }
        for key, inner in properties.items():
            if key in filled:
                continue
            if (
                "$ref" in inner and "default" not in inner
            ):  # settings shared by the study and its blocks: only the study has the default
                if schema is not root:
                    continue
                inner = root["$defs"][inner["$ref"].rsplit("/", 1)[1]]
            if "default" in inner:
                filled[key] = _with_defaults(inner["default"], inner, root)
        return filled
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [_with_defaults(item, schema["items"], root) for item in value]
    return value
