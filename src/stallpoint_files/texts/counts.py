"""Counts of nodes and workers in a text: ``8 GPUs``, ``2 nodes (16 GPUs)``, ``4xA100``, ``two boxes``."""

from __future__ import annotations

import re
from typing import NamedTuple

from stallpoint_files.texts.headings import CHIP
from stallpoint_files.texts.languages import in_english
from stallpoint_files.texts.numbers import DIGITS, UNITS

WORD = r"(?:gpus?|workers?|ranks?|nodes?|process(?:es)?|devices?|accelerators?|cards?)"
"""Words for the counted things."""
HOURS = r"[ *·-]?(?:hours?|hrs?|h|days?)\b"
NODES = r"(?:nodes?|hosts?|servers?|machines?|boxes|box)"
_EACH_NODE = rf"(?:(?:on|for|in) (?:each|every)|per|/) ?{NODES}\b"
COUNTED = re.compile(
    rf"\W*(?:on )?(?P<count>\d+) ?[x×]? ?(?P<of>{WORD})\W*|\W*(?P<of_>{WORD})\W+(?P<count_>\d+)\W*", re.IGNORECASE
)
COUNT = (
    rf"(?<![\w.])(?:(?P<before>\d+) ?{NODES} ?(?P<times>[x×*])? ?\(? ?)?(?P<count>\d+) ?[x×*]? ?(?P<of>{WORD})\b"
    rf"(?!{HOURS}| ?{_EACH_NODE}| (?:per|for each)[- ](?:\w+ )?(?:proc|rank|task|worker))"
    rf"(?:(?: ?[(,] ?(?:(?:in|on|over|across) )?| (?:in|on|over|across) )(?P<nodes>\d+) ?{NODES}\b\)?)?"
)
COUNT_ALONE = re.compile(COUNT + r"\W*", re.IGNORECASE)
COUNT_AHEAD = re.compile(rf"[\W_]*{COUNT}", re.IGNORECASE)
"""A count at the beginning of a line, after heading marks."""
CHIP_NAME = (
    rf"(?:{CHIP}|titan(?: (?:xp?|v|rtx)\b|\w*)|[rg]tx(?: ?a?\d{{4}})?|[1-5]0[5-9]0 ?ti|"
    r"(?:(?<=[x×])|(?<=[x×*] )|(?<=[\s(][1-9] ))[2-5]0[6-9]0)"
)
WORD_OR_CHIP = rf"(?:{WORD}|{CHIP_NAME}s?)"
ANY_COUNT = re.compile(
    rf"{COUNT}|(?<![\w.])(?:(?P<times_>\d+) ?[x×*] ?)?(?P<chips>(?!\d+v\d\b)\d+) ?[x×*]? ?(?P<chip>{CHIP_NAME})s?\b"
    rf"(?!{HOURS}|\.\d| {_EACH_NODE})(?: ?[(,]? ?(?:over|across) (?P<on>\d+) ?{NODES}\b)?",
    re.IGNORECASE,
)
_TO_TEN = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_IN_WORDS = {word: str(count) for count, word in enumerate(_TO_TEN, start=1)}
_IN_WORDS |= {"twelve": "12", "sixteen": "16", "thirty-two": "32", "sixty-four": "64"}
_COUNTABLE = (
    r"(?:GPUs?|nodes?|machines?|boxe?s?|servers?|hosts?|workers?|ranks?|devices?|cards?|processes|titans?|"
    r"[AHVBLPK]\d{2,4}s?|[2-5]0[6-9]0)"
)
VERB = r"(?:gives?|gave|reach(?:es|ed)?|do|does|did|gets?|got|needs?|takes?|took|only|just|still|nur|s[oó]lo)"
_WORDS = rf"(?<!\w-)\b({'|'.join(_IN_WORDS)})"
_COUNT_IN_WORDS = re.compile(
    rf"{_WORDS}(?= (?:(?:to|or|and) \w+ )?(?:(?:nvidia|tesla|amd|rtx|gtx) )*{_COUNTABLE}\b)"
    rf"|{_WORDS}(?= (?:days?|hours?|minutes?|seconds?)\b)"
    rf"|\b(on|with|using|at|for|versus|vs\.?) {_WORDS}(?=[.,;:)]|$| (?:and|but)\b)"
    rf"|((?:[,;]|\band|\bbut)) {_WORDS}(?<!\bone)(?= {VERB}\b)",
    re.IGNORECASE,
)


class Wording(NamedTuple):
    """A wording of a count, or of words that obscure a count."""

    pattern: str
    digits: str
    """Replacement of the pattern."""
    example: str
    read: str
    """The example after replacement."""


WORDINGS = (
    Wording(
        rf"\b(?:a )?single[- ](?:(?:nvidia|tesla|geforce|rtx|gtx) )*(?={_COUNTABLE}\b)", "1 ", "a single GPU", "1 GPU"
    ),
    Wording(rf"\bboth (?={_COUNTABLE}\b)(?!\w+ and \w*\d)", "2 ", "both GPUs", "2 GPUs"),
    Wording(
        r"\b((?:on|with|using|use) )an? (?:(?:nvidia|tesla) )*(?=[AHVBLPK]\d{2,4}\b|[2-5]0[6-9]0)",
        r"\g<1>1 ",
        "on an NVIDIA A100",
        "on 1 A100",
    ),
    Wording(
        r"(?:--(?=\w{3,4}s\b)|(?:--|\b)(?:n_?|num[-_]))(gpu|node|rank|device)s?"
        r"(?: ?[=:] ?| to | )(\d{1,6})\b(?![,.]\d)",
        r"\2 \1s ",
        "--num-gpus=8",
        "8 gpus ",
    ),
    Wording(rf"\b({CHIP}) ?[x×*] ?(\d{{1,5}})\b(?! ?(?:gb|x))", r"\2x \1", "A100 x 8", "8x A100"),
    Wording(r"\bTPU v[23]-(\d{1,5})\b", r"\1 devices", "TPU v3-128", "128 devices"),
    Wording(r"(?<=\d)(?: ?[x×])? ?(?-i:[NTXH]PUs?|DCUs?|MLUs?)\b", " devices", "8 NPUs", "8 devices"),
    Wording(r"(?<=\d)~ ?(?=(?:h|hrs?|hours?|min|minutes|s|sec|seconds|days)\b)", " ", "30~ hr", "30 hr"),
    Wording(r"\bgraphics? (?=cards?\b)", "", "8 graphics cards", "8 cards"),
    Wording(
        rf"\b([itfw]ps)\b(?! ?[/,|])([^\d\n.;,|]{{0,24}}?)(?!\d+\.\d+\.\d)({DIGITS}(?: ?[-–~] ?{DIGITS})?)(?![\w%])",
        r"\2\3 \1",
        "2 GPUs: TPS 410",
        "2 GPUs:  410 TPS",
    ),
    Wording(
        r"(?<=[\dx×*] )(?:(?:nvidia|tesla|geforce|amd|intel|ascend|rtx(?= a\d)) )+"
        r"(?=[AHVBLPKM]\d|910|gpu|cards?|[rg]tx)",
        "",
        "8x NVIDIA H100",
        "8x H100",
    ),
    Wording(r"(?<![A-Za-z])(?-i:(?:worker_)?gpus)=([1-9]\d{0,5})\b(?![,.]\d)", r"\1 gpus", "gpus=8", "8 gpus"),
    Wording(r"\b(\d{1,4})-(node|machine|server)s?\b(?!-)", r"\1 \2s", "2-node", "2 nodes"),
    Wording(
        rf"\b(?P<unit>{UNITS.pattern})\b[`\"')]{{0,3}}"
        rf"(?:[:=]| (?:is|was)(?: only| just| about| around)?) ?(?P<rate>\d+(?:[.,]\d+)*)(?![\w%])",
        r"\g<rate> \g<unit>",
        "steps/second: 0.13, examples/second: 14.2",
        "0.13 steps/second, 14.2 examples/second",
    ),
    Wording(
        rf"(?<=\d )(?:activ\w+|identical|physical|separate|dedicated|local) (?={_COUNTABLE}\b)",
        "",
        "2 identical machines",
        "2 nodes",
    ),
    Wording(r"(?-i:--devices)[= ](\d{1,6})\b(?![,.]\d)", r"\1 gpus ", "--devices 8", "8 gpus "),
    Wording(r"\b(\d{1,6})(?-i:M)/(\d{1,6})(?-i:G\b(?!B))", r"\1 nodes (\2 gpus)", "2M/16G", "2 nodes (16 gpus)"),
    Wording(r"\b(\d{1,6})(?-i:Ss?) ?- ?(\d{1,6})(?-i:GPUs?)\b", r"\2 gpus (\1 nodes)", "2Ss-8GPUs", "8 gpus (2 nodes)"),
    Wording(
        r"\b(\d{1,6})[x×](\d{1,6}) +gpus?\b(?: ?\(\d{1,6} gpus? total ?\))?",
        r"\1 nodes x \2 gpus",
        "2x8 GPUs (16 GPUs total)",
        "2 nodes x 8 gpus",
    ),
    Wording(
        r"\b(?:a )?(?:single|1) (\d{1,3})-(?:card|gpu)s?\b", r"1 nodes x \1 gpus", "a single 8-GPU", "1 nodes x 8 gpus"
    ),
    Wording(r"\btwo (\d{1,3})-(?:card|gpu)s?\b", r"2 nodes x \1 gpus", "two 8-card", "2 nodes x 8 gpus"),
    Wording(r"(?<=\d) (?:machine|box|server|host)\b(?!es|s)", " node", "1 box", "1 node"),
    Wording(r"(?<=\d) (?:machines|boxes|servers|hosts)\b", " nodes", "2 servers", "2 nodes"),
)
"""Wordings in the order of their replacement."""
_WORDINGS = tuple((re.compile(one.pattern, re.IGNORECASE), one.digits) for one in WORDINGS)
_CARD = re.compile(r"\b(?:(?:[rg]tx ?)?[1-5]0[5-9]0|rx ?\d{3,4})(?: ?(?:ti|xt))? (?=(?:cards?|gpus?)\b)", re.IGNORECASE)
"""A card's model number, which is not a count: ``two 3090 cards``."""
_COMPOUND = re.compile(
    r"(?<![\w.])(?:(?P<days>\d{1,3}) ?(?:d|days?),? ?(?:and )?(?P<more>\d{1,2}) ?(?:h|hrs?|hours?)"
    r"|(?P<hours>\d{1,4}) ?(?:h|hrs?|hours?)"
    r"(?:(?<! h)(?P<clock>\d\d)(?!\d)|,? ?(?:and )?(?P<minutes>\d{1,2}) ?(?:m|mins?|minutes?))"
    r"|(?P<whole>\d{1,4}) ?(?:m|mins?|minutes?)(?=,? ?(?:and )?\d{1,2}(?:\.\d+)? ?s))"
    r"(?:,? ?(?:and )?(?P<seconds>\d{1,2}(?:\.\d+)?) ?(?:s|secs?|seconds?))?\b",
    re.IGNORECASE,
)
"""``2h50``, ``1h 20min``, ``7m30s``, ``1 day 6 hours``."""
_LINK = re.compile(r"<img\b[^>\n]{0,1000}>|https?://[^\s)>\]]+")
"""Web addresses, whose letters and digits are neither counts nor chips."""
_IN_BACKTICKS = re.compile(r"`(\d[\d.,]*)`")
_PRIMES = re.compile(r"(?<![\w.])(\d{1,4})['′’](\d{1,2}(?:\.\d+)?)[\"″”]")
_VISIBLE = re.compile(
    r"(?:\bCUDA_VISIBLE_DEVICES=|--gpus[= ](?=[\"']?\d+,)|--(?:gpu|device)[-_]ids[= ])[\"']?(\d+(?:,\d+| \d\b)*)[\"']?"
)
_OF_NODES = re.compile(
    rf"\b(?:(\d{{1,6}}) nodes? (?:with|of) |(1) nodes?,? ?\(?)(\d{{1,6}}) ?x? ?(?:{CHIP}s?|gpus?|cards?)\b",
    re.IGNORECASE,
)
_EACH_HAS = re.compile(
    rf"\b(\d{{1,6}}) nodes? ?(?:[(,] ?|with |of |[^.;\d]{{0,60}}\b(?:has|have|having|using) )"
    rf"(\d{{1,6}}) ?x? ?(?:{CHIP}s?|gpus?)(?: gpus?)? (?:{_EACH_NODE}|each|a node|on each)\b",
    re.IGNORECASE,
)
"""``4 nodes (8 gpus each)``."""
_EACH_BEFORE = re.compile(
    rf"\b(\d{{1,6}}) nodes?\W{{0,3}}(?:all|each) +(?:with |has |have )?(\d{{1,6}}) ?x? ?(?:{CHIP}s?|gpus?)\b",
    re.IGNORECASE,
)
"""``2 nodes, each with 8 gpus``."""


def _count_in_digits(count: re.Match[str]) -> str:
    *before, word = filter(None, count.groups())
    return " ".join([*before, _IN_WORDS[word.lower()]])


def _minutes(time: re.Match[str]) -> str:
    if time["days"]:
        return f"{24 * int(time['days']) + int(time['more'])} hours"
    hours, seconds = int(time["hours"] or 0), float(time["seconds"] or 0)
    return f"{60 * hours + int(time['clock'] or time['minutes'] or time['whole']) + seconds / 60:.6g} min"


def counted_in_digits(text: str) -> str:
    """Return a text with counts of nodes and workers in digits: ``one box`` and ``单机`` become ``1 node``."""
    return in_digits(in_english(text))


def in_digits(text: str) -> str:
    """Return an English text with counts in digits, and times of several parts in minutes."""
    text = _IN_BACKTICKS.sub(r"\1", _LINK.sub(" ", text).replace("**", ""))
    text = _CARD.sub("", _COMPOUND.sub(_minutes, _PRIMES.sub(r"\1m \2s", text)))
    text = _COUNT_IN_WORDS.sub(_count_in_digits, text)
    for pattern, digits in _WORDINGS:
        text = pattern.sub(digits, text)
    text = _VISIBLE.sub(lambda one: f"{len(re.split('[, ]', one[1]))} GPUs ", text)
    each = {int(one[3]) for one in _OF_NODES.finditer(text) if one[2] or one[1] == "1"}
    return _OF_NODES.sub(lambda one: _with_total(one, each), text) if each else text


def _with_total(of: re.Match[str], each: set[int]) -> str:
    """Return ``4 nodes (32 GPUs)`` for ``4 nodes with 32 GPUs`` if the text also has one node with 8 GPUs."""
    nodes, workers = int(of[1] or 1), int(of[3])
    total = nodes > 1 and workers not in each and workers % nodes == 0 and workers // nodes in each
    return re.sub(r" (?:with|of) ", " (", of[0]) + ")" if total else of[0]


def on_nodes(text: str) -> str:
    """Return a text in which n nodes with m GPUs each are written as ``n nodes x m gpus``."""
    return _OF_NODES.sub(
        r"\1\2 nodes x \3 gpus",
        _EACH_BEFORE.sub(r"\1 nodes x \2 gpus", _EACH_HAS.sub(r"\1 nodes x \2 gpus", text)),
    )


def workers_of(count: re.Match[str]) -> tuple[int, int, bool]:
    """Return the count of workers (or nodes), the number of nodes if given, and whether the count is of nodes."""
    chips = count["chips"]
    nodes = int(count["nodes"] or count["before"] or count["on"] or count["times_"] or 0)
    workers = int(chips or count["count"]) * (nodes if count["times"] or count["times_"] else 1)
    return workers, nodes, not chips and bool(re.match(NODES, count["of"], re.IGNORECASE))


def one_count(line: str) -> tuple[int, int, bool] | None:
    """Return the count of a line in the form of `workers_of`; None for no count or several."""
    found = {workers_of(one) for one in ANY_COUNT.finditer(on_nodes(counted_in_digits(line)))}
    return found.pop() if len(found) == 1 else None
