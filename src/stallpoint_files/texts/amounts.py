"""Amounts in a text, and their quantity: a rate, a time of a step, epoch or run, a speedup, an efficiency."""

from __future__ import annotations

import re
from functools import lru_cache

from stallpoint_files.texts.counts import CHIP_NAME, HOURS, WORD, counted_in_digits
from stallpoint_files.texts.headings import CHIP, PER_WORKER
from stallpoint_files.texts.numbers import DIGITS, UNITS, seconds_in, unit_in

AMOUNT = re.compile(
    rf"(?<![A-Za-z])(?P<rate>{DIGITS}(?: ?[-–~] ?{DIGITS})?(?: ?[kKMB]\b)?) {{0,4}}"
    rf"(?:(?P<unit>(?:{UNITS.pattern}|ns ?/ ?day\b|"
    r"[TP]FLOPS?(?:/s| p(?:er|re) s(?:ec(?:ond)?)?\b)?|[tfwi]ps\b|/s(?=/gpu|\b))"
    r"(?:(?:/| per )(?:gpu|worker|device|chip))?"
    rf"|(?:{WORD}|{CHIP}){HOURS}"
    r"|(?:ms|secs?|seconds?|s|min(?:ute)?s?|hours?|hrs?|h)(?: ?/ ?| per | an )(?:iteration|iter|it|step|batch|epoch)\b)"
    r"|(?P<time>days?|minutes?|mins?|hours?|hrs?|h|ms|seconds?|secs?|s)\b(?!/|-\w)"
    r"|(?P<short>(?-i:m))(?=[.,;)]|$| (?:on|with|for|at|to|and|in|using)\b)"
    rf"|(?P<share>%)|(?P<factor>[x×])(?! ?(?:\d|{WORD}\b|{CHIP_NAME}s?\b)))"
    r"|(?P<clock>(?<![\d:])(?!0+:0+(?![\d:]))\d{1,3}:\d\d(?::\d{1,2}(?:\.\d+)?)?(?![\d:]))",
    re.IGNORECASE,
)
"""An amount: a rate or a time with its unit, a share or a factor whose quantity the text gives, or a clock time."""
NAMED = re.compile(
    r"(?<![\w.])[\w/.-]*(?:time(?!st)|duration|elapsed|\bseconds|throughput|per_sec|tps|fps)[\w/]*(?:\([a-z]+\))?"
    r"[\"']?[:=] ?\d++(?:\.\d+)?(?![\d:./-])",
    re.IGNORECASE,
)
"""A number after the name of a time or a rate, without a unit: ``time_this_iter_s: 2.78``."""
_SHARES = {
    "MFU (%)": re.compile(r"\b[mh]fu\b", re.I),
    "efficiency (%)": re.compile(r"efficien|% of (?:linear|ideal)\b", re.I),
}
OTHER_SHARE = re.compile(r"accura|top-?\d|utili[sz]|memory|occupan|of (?:the )?(?:time|step)\b|loss", re.I)
"""Words for shares of something else; with them, a share is neither MFU nor efficiency."""
_SPEEDUP = re.compile(r"speed-?ups?|faster|slower|as fast|scal(?:es|ing)|(?<![\w.])1x\b", re.I)
_OF_EACH_WORKER = re.compile(
    rf"(?:speed-?up|faster|slower)\W+(?:per|of|on|for)(?: each)?[- ]{WORD}\b|\beach {WORD} (?:is|was)\b", re.I
)
"""Words by which a factor is that of each worker's rate, not a speedup."""
UNIT_ALONE = re.compile(
    rf"(?<!\d)(?<!\d )(?:{UNITS.pattern})(?:/gpu)?|\b(?:ms|s|sec)/(?:it|iter|step)\b"
    rf"|\bseconds (?:per|an) (?:step|iteration)\b|\b(?:gpu|node|{CHIP}){HOURS}",
    re.IGNORECASE,
)
_N_STEPS = re.compile(
    r"(?<!over )(?<!after )(?<!every )(?<!last )(?<!first )\b(?<![.,])(\d{1,7}) ?(?:mini-?)?"
    r"(?:batch(?:es)?|steps|iterations|iters)\b(?![ _-]?size| ?(?:per|/|an?) )",
    re.IGNORECASE,
)
"""A number of steps to which a time refers."""
_N_EPOCHS = (
    r"(?<!over )(?<!after )(?<!every )(?<!last )(?<!first )(?<![\w.,-])(\d{1,6})(?: ?epochs|(?<=\b1) ?epoch)\b"
    r"(?! ?(?:per|/) )"
)
_EPOCHS = re.compile(_N_EPOCHS, re.IGNORECASE)
_EPOCHS_BEHIND = re.compile(rf"[ ,(/]{{0,3}}(?:for |of |over |in )?{_N_EPOCHS}", re.IGNORECASE)
_EACH_EPOCH = re.compile(r"\b(?:per|each|every|an|one|single) epoch\b|/ ?epoch\b|\bepoch time", re.IGNORECASE)
"""Words by which a time is that of one epoch."""
_OF_ALL = re.compile(r"(?:/ ?s(?:ec)?|per second) (?:in )?total\b", re.IGNORECASE)
_OF_EACH = re.compile(
    r"(?:throughput|speed|rate|performance|tps) ?(?:per|/|of each|on each|for each)[- ]?(?:gpu|worker|device)|"
    r"per[- ](?:gpu|worker|device) (?:training )?(?:throughput|speed|rate|performance)",
    re.IGNORECASE,
)
_EXPECTED = re.compile(
    r"\b(?:expect\w*|ideal\w*|optimum|optimal|(?:should|would) \w+|so it['’]?s like|theor\w+|hop(?:ed|ing)|linear\w*"
    r"|after training|push\w* (?:it )?(?:down )?to|at most)"
    r"[^.;,\d]{0,25}$|(?:\bnot|n['’]t|\bnever) (?!only)(?:[a-z]+ ){0,3}$|\byour $",
    re.IGNORECASE,
)
"""Words before an amount that was not measured or reached, or that is not a rate or time."""
_FACTORS_LISTED = re.compile(r"\d ?[x×](?:/|, ?(?:and )?| and | to )\d{1,4}(?:\.\d+)? ?[x×]", re.IGNORECASE)
_STEP_TIME = re.compile(
    r"\b(?:step|iteration|batch)[- ]time|time (?:per|of a|for a) (?:step|iteration|batch)\b", re.IGNORECASE
)
OTHER_FACTOR = re.compile(r"memory|cost|loss|batch|param|bytes|bandwidth|larger|smaller|traffic", re.IGNORECASE)
_RUN = re.compile(
    r"epoch|training|takes?\b|took|\bcomputation time\b(?!.*\bcomm)|\btime[- ]cost|elapsed?\b|wall[- ]?time|"
    r"run(?:ning)?[- ]?time",
    re.IGNORECASE,
)
_OF_STEP = re.compile(
    r"\b(?:per|each|one|every) (?:mini-?)?(?:batch|step|iter(?:ation)?)\b(?![ -]?size)", re.IGNORECASE
)
_TIMES_ABOVE = re.compile(
    r"times? (?:of|per|for) (?:one |an |each )?epoch|epoch times?\b|(?:training|run) ?times?\b", re.I
)
_PER_SECOND = {"i": "samples/s", "t": "tokens/s", "f": "frames/s", "w": "words/s", "/": "samples/s"}


@lru_cache(maxsize=4)
def amounts_in(text: str, around: str = "") -> tuple[re.Match[str], ...]:
    """Return the measured amounts whose quantity is given in the text, or in the text around it."""
    return tuple(
        amount for amount in AMOUNT.finditer(text) if heading_of(amount, text, around) and not is_expected(amount, text)
    )


def is_expected(amount: re.Match[str], text: str) -> bool:
    """Return whether an amount was not measured but expected."""
    return _EXPECTED.search(text[max(amount.start() - 40, 0) : amount.start()]) is not None


def amounts_said(text: str) -> bool:
    """Return whether a text gives a rate or a time of a step, an epoch or a run."""
    return any(map(amounts_in, counted_in_digits(text).splitlines()))


@lru_cache(maxsize=4)
def _lists_speedups(text: str) -> bool:
    """Return whether a text calls its factors speedups, or lists factors without naming another quantity."""
    listed = _FACTORS_LISTED.search(text) and not OTHER_FACTOR.search(text)
    return bool(listed or _SPEEDUP.search(text))


def heading_of(amount: re.Match[str], text: str, around: str = "") -> str:
    """Return the heading of an amount's column, from its text and the text `around`; empty for unspecified times."""
    if amount["share"]:
        other = OTHER_SHARE.search(text)
        return next((head for head, words in _SHARES.items() if words.search(text) and not other), "")
    if amount["factor"]:
        other = _OF_EACH_WORKER.search(text) or _STEP_TIME.search(text)
        return "speedup" if _lists_speedups(text) and not other else ""
    if unit := amount["unit"]:
        return _heading_of_unit(unit, text)
    time = (amount["time"] or amount["short"] or "").lower()
    is_long = time.startswith(("m", "h", "d")) and time != "ms"
    in_steps = _OF_STEP.search(text) or (not is_long and re.search(r"\bsteps?\b|iteration", text, re.IGNORECASE))
    if _STEP_TIME.search(text) or (time and (in_steps or _steps_in(text))):
        return "time per step"
    said = text if is_long or _RUN.search(text) else around if _TIMES_ABOVE.search(around) else ""
    if time == "ms" or not (time or _RUN.search(said)):
        return ""
    return f"{'epoch' if 'epoch' in said.lower() else 'run'} time" if said else ""


def _heading_of_unit(unit: str, text: str) -> str:
    """Return the heading of an amount from its unit."""
    each = PER_WORKER.search(unit) or _OF_EACH.search(text)
    if bare := re.match(r"[tfwi]ps|/s", unit, re.IGNORECASE):
        return _PER_SECOND[bare[0][0].lower()] + ("/gpu" if "gpu" in unit.lower() or _OF_EACH.search(text) else "")
    if re.fullmatch(rf"(?:{WORD}|{CHIP}){HOURS}", unit, re.IGNORECASE):
        return f"{re.split('[ *·-]', unit)[0].lower()} {'days' if 'day' in unit.lower() else 'hours'}"
    if "flop" in unit.lower():
        return unit if "/" in unit[6:] else f"{unit}/gpu" if _OF_EACH.search(text) else unit
    if re.search(r"epoch$", unit, re.IGNORECASE) and not UNITS.search(unit):
        return "epoch time"
    if longer := re.search(r"(?:/|per) ?(?:min|hr?|day|d)$", unit, re.IGNORECASE):
        return f"{unit[: longer.start()].strip()}/{longer[0].lstrip('/per ')}"
    of = "/gpu" if each else " total" if _OF_ALL.search(text) else ""
    return (unit_in(unit) + of) if UNITS.search(unit) else "time per step"


def _steps_in(text: str) -> int:
    """Return the number of steps to which a text's time refers; 0 for no number or several."""
    found = {int(one[1]) for one in _N_STEPS.finditer(text)}
    return found.pop() if len(found) == 1 else 0


def epochs_of(amount: re.Match[str], text: str) -> int:
    """Return the number of epochs of a time, given after it or else once in its text; 0 if unknown."""
    if behind := _EPOCHS_BEHIND.match(text, amount.end()):
        return int(behind[1])
    found = {1} if _EACH_EPOCH.search(text) else {int(one) for one in _EPOCHS.findall(text)}
    return found.pop() if len(found) == 1 else 0


def cell_of(amount: re.Match[str], text: str) -> str:
    """Return an amount as a cell of its column: times with their own unit, times of several steps for one step."""
    if amount["time"] and (steps := _steps_in(text)):
        seconds = seconds_in(amount["rate"] + amount["time"], "", False)
        return f"{seconds / steps:.9g} s"
    unit = amount["time"] or amount["unit"] or ""
    time = re.match(r"ms|s(?:ec(?:onds?)?)?\b|min(?:ute)?s?\b|h(?:ou)?rs?\b", unit, re.IGNORECASE)
    return (
        amount["clock"]
        or f"{amount['rate'].rstrip(',')} {amount['time'] or amount['short'] or (time[0] if time else '')}".strip()
    )
