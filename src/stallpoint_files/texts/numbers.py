"""Numbers as people write them: thousands, decimal commas, deviations, ranges, units, clocks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isnan, nan

MAX_WORKERS = 10**9
MIN_RATE, MAX_RATE = 1e-15, 1e15
"""Range of valid rates: results computed from them stay finite."""
DIGITS = r"(?<!\d)(?<!\d[.,])\d++(?>(?:[.,]\d++)*)[.,]?+"
"""A number with its points and commas, matched only at its beginning: attempts at each digit would take quadratic
time."""
UNITS = re.compile(
    r"(tok(?:en)?s?|t(?:imestep)?s|im(?:a)?ge?s?|img|samples?|seq(?:uence)?s?|sent(?:ence)?s?\.?|frames?|words?|examples?|records?|steps?|it(?:er(?:ation)?)?s?|"
    r"batch(?:es)?|epochs?)[ _]*(?:(?:/|per)[ _]*gpu[ _]*)?"
    r"(?:/|per|p)[ _]*(?:s\b|sec(?:ond)?|min(?!i)(?:ute)?|h\b|hr|hour|d\b|day)",
    re.IGNORECASE,
)
_UNIT_WORDS = {
    "t": "tokens/s",
    **dict.fromkeys(("ts", "ti"), "steps/s"),
    "im": "images/s",
    "sa": "samples/s",
    "ex": "samples/s",
    "r": "samples/s",
    "se": "sequences/s",
    "f": "frames/s",
    "w": "words/s",
    "it": "iterations/s",
    "st": "iterations/s",
    "b": "iterations/s",
    "ep": "epochs/s",
}
MISSING = re.compile(
    r"|-+|[–—]+|n/?a\b.*|nan|inf|dnf|nc|(did|does|has)? ?(not|n.t) (finish|converge|reach)\w*|"
    r"none|null|\?+|x|tbd|\[[a-z_ ]*\]|\W{0,3}(?:cuda )?oom.*|.*out of memory.*|skipped\b.*|"
    r"err(or)?\b.*|fail(ed|ure)?\b.*|crash(ed)?\b.*|"
    r"time ?out\b.*|hang(s|ed)?\b.*|killed\b.*|_*(fill|filled) in_*|to ?do|to be \w+|pending|"
    r"not (run|measured|supported|available)|\{\{.*\}\}.?",
    re.IGNORECASE | re.DOTALL,
)
"""Cells by which nothing was measured."""
_SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_NUMBER = re.compile(
    r"(?P<digits>[+-]?(?:\d[\d.,'’_ \u00a0\u202f]*\d|\d|[.,]\d+)(?:[.,](?=\s|$))?(?:[eE][+-]?\d+)?)\s*(?P<rest>.*)",
    re.DOTALL,
)
_RANGE = re.compile(rf"\W*({DIGITS}) ?[-–~] ?~?({DIGITS})(?P<rest>\s*[^\d\s]?.*)", re.DOTALL)
_DEVIATION = re.compile(r"\(?(?:(?<!\s)\s+)?(?:±|\+ ?/?-)\s*(?P<by>[\d.,]+[kKM]?)\s*(?P<share>%?)\s*\)?")
_IN_SECONDS = {
    **dict.fromkeys(("us", "µs", "μs", "micro"), 1e-6),
    "ms": 1e-3,
    "milli": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_TIME_UNIT = re.compile(
    r"(?<![a-z])((?:m|[uµμ])?s(?=ec|\b)|milli|micro|m(?=in(?:ute)?s?\b|\b)|h(?=rs?\b|our|\b)|d(?=ays?\b))",
    re.IGNORECASE,
)
_TIMES = re.compile(rf"({DIGITS})\s*(milli|micro|ms|[uµμ]s|h|m|s|d(?=ays?\b|\b))[a-z]*", re.IGNORECASE)
_LONGER = re.compile(r"(?:/|per)[ _]?(min|h|d)(?:utes?|rs?|ours?|ays?)?(?![a-z])", re.IGNORECASE)
_LONGER_IN_SECONDS = {"min": 60.0, "h": 3600.0, "d": 86400.0}
_PREFIX = re.compile(r"(?<![A-Za-z])([kKM])[ _]?(?=tok|im|sam|seq)")
"""Prefix kilo or mega of the unit that a rate counts."""
_OTHER_UNIT = re.compile(
    r"(?<![\w/])(?!(?:throughput|rate|speed|performance|gpu|per)\b)([a-z]{1,12}) ?/ ?"
    r"(s(?:ec(?:ond)?)?|min|hr?|hour|day)\b",
    re.IGNORECASE,
)


def unit_in(text: str) -> str:
    """Return the unit of a rate that a heading or a cell names, such as ``images/s``; empty without one."""
    found = UNITS.search(text)
    if not found:
        return "tokens/s" if re.search(r"\btps\b|tok|\bt/s\b", text, re.I) else ""
    word = found[1].lower()
    return next(
        unit for begin, unit in sorted(_UNIT_WORDS.items(), key=lambda one: -len(one[0])) if word.startswith(begin)
    )


def other_unit(text: str) -> str:
    """Return a rate's unit that is unusual in training, such as ``ns/day``; empty without one."""
    found = None if unit_in(text) else _OTHER_UNIT.search(text)
    return f"{found[1]}/{found[2]}" if found else ""


def number_in(text: str, *, decimal_comma: bool = False) -> float:
    """Return the number at the beginning of a cell (thousands separators, deviation and unit ignored); NaN if none."""
    cell = text.strip().strip("*`\"'").lstrip("~≈≅<>=")
    if clock := re.fullmatch(
        r"\s*(?:(\d+):(?=\d\d:))?(\d+):(\d\d(?:\.\d+)?|(?<=:\d\d:)\d(?:\.\d+)?)\s*(?:min|h|s|m)?\.?", cell
    ):
        hours, minutes, seconds = clock.groups()
        return 3600 * int(hours or 0) + 60 * int(minutes) + float(seconds)
    found = _NUMBER.match(cell.strip())
    if not found or (not found["digits"].isascii() and not re.search(r"[’\u00a0\u202f]", found["digits"])):
        return nan
    digits, rest = found["digits"].strip(), found["rest"].strip()
    digits = re.sub(r"(?<=\d)['’_ \u00a0\u202f](?=\d{3}(?!\d))", "", digits)
    if decimal_comma or re.fullmatch(r"[+-]?\d{1,3}((\.\d{3})+,\d+|(\.\d{3}){2,})", digits):
        digits = digits.replace(".", "") if re.fullmatch(r"\d{1,3}(\.\d{3})+(,\d*)?", digits) else digits
        digits = digits.replace(",", ".")
    elif re.fullmatch(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", digits):
        digits = digits.replace(",", "")
    elif re.fullmatch(r"[+-]?\d+,\d+", digits):  # a decimal comma, as the digits after it are not a group of three
        digits = digits.replace(",", ".")
    try:
        value = float(digits)
    except ValueError:
        return nan
    scale = re.match(r"([kKMBGT])(?![A-Za-z])", rest)
    return value * _SUFFIXES[scale[1].lower()] if scale else value


def ends_of(text: str) -> list[str]:
    """Return the two ends of a range such as ``~3-4 s``, each with the unit; other texts unchanged in a list."""
    found = _RANGE.fullmatch(text)
    ends = [found[1] + found["rest"], found[2] + found["rest"]] if found else [text]
    rising = found and number_in(found[1]) < number_in(found[2])
    return ends if rising else [text]


def without_deviation(text: str) -> str:
    """Return a cell without its deviation (``± ...``)."""
    return _DEVIATION.sub(" ", text).rstrip()


def deviation_in(text: str, decimal_comma: bool) -> float:
    """Return the relative deviation in a cell such as ``400 ± 6 s``; 0 without one, or if it reaches the number."""
    found, value = _DEVIATION.search(text), number_in(text, decimal_comma=decimal_comma)
    if not found or not value > 0:
        return 0.0
    by = number_in(found["by"], decimal_comma=decimal_comma) / (100 if found["share"] else value)
    return by if 0 < by < 1 else 0.0


def seconds_in(text: str, heading: str, decimal_comma: bool) -> float:
    """Return the time in a cell in s, by its own units or else the heading's; NaN if none."""
    if ":" in text:
        return number_in(text)
    if parts := _TIMES.findall(without_deviation(text)):
        return float(sum(number_in(of, decimal_comma=decimal_comma) * _IN_SECONDS[unit.lower()] for of, unit in parts))
    unit = _TIME_UNIT.search(heading.replace("_", " "))
    return number_in(text, decimal_comma=decimal_comma) * (_IN_SECONDS[unit[1].lower()] if unit else 1.0)


def per_second(text: str, heading: str, decimal_comma: bool) -> float:
    """Return the rate in a cell, converted to units per second without prefix; unconverted if its unit is unusual in
    training; NaN if none."""
    value = number_in(text, decimal_comma=decimal_comma)
    words = heading + re.sub(r"^[^A-Za-z/]*([kKMBGT]\b)?", " ", text)
    if other_unit(words):
        return value
    longer, prefix = _LONGER.search(words), _PREFIX.search(words)
    value *= _SUFFIXES[prefix[1].lower()] if prefix else 1.0
    return value / (_LONGER_IN_SECONDS[longer[1].lower()] if longer else 1.0)


def decimal_comma(columns: Sequence[Sequence[str]], separator: str) -> bool:
    """Return whether columns use decimal commas: numbers such as ``1.180,5``, or ``1.180`` next to ``360``."""
    comma = r"\d,\d" if separator == ";" else r"\b0,\d|\d,(\d\d?|\d{4,})\b"
    points = [cell for column in columns for cell in column if re.search(r"\d\.\d+$", cell)]
    if any(re.search(comma, cell) for column in columns for cell in column):
        return not points
    return any(
        any(re.fullmatch(r"\d{3,}", cell) for cell in column) and set(points) and set(points) <= set(column)
        for column in columns
    ) and all(re.fullmatch(r"[1-9]\d{0,2}(\.\d{3})+", cell) for cell in points)


def is_numeric(cell: str) -> bool:
    """Return whether a cell begins with a number."""
    return not isnan(number_in(cell))
