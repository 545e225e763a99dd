"""Rates in lines and sentences: ``8 GPUs (2 nodes): 1200 img/s``, ``2 nodes -> ~40 s/step``, ``1 node takes 20 min``.

Each count belongs to the amount that follows it, or where amounts come first to the one before. Lines that name other
chips, models, strategies or precisions than the rest are series of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, pairwise
from math import ceil

from stallpoint.inputs.documents import Document
from stallpoint.text import listed
from stallpoint_files.texts.headings import CHIP, PER_WORKER
from stallpoint_files.texts.languages import in_english
from stallpoint_files.texts.numbers import DIGITS, UNITS, per_second, seconds_in, unit_in

_OF = r"(?:gpus?|workers?|ranks?|nodes?|process(?:es)?|devices?|accelerators?|cards?)"
_HOURS = r"[ *·-]?(?:hours?|hrs?|h|days?)\b"
NODES = r"(?:nodes?|hosts?|servers?|machines?|boxes|box)"
_EACH_NODE = rf"(?:(?:on|for|in) (?:each|every)|per|/) ?{NODES}\b"
COUNTED = re.compile(
    rf"\W*(?:on )?(?P<count>\d+) ?[x×]? ?(?P<of>{_OF})\W*|\W*(?P<of_>{_OF})\W+(?P<count_>\d+)\W*", re.IGNORECASE
)
_COUNT = (
    rf"(?<![\w.])(?:(?P<before>\d+) ?{NODES} ?(?P<times>[x×*])? ?\(? ?)?(?P<count>\d+) ?[x×*]? ?(?P<of>{_OF})\b"
    rf"(?!{_HOURS}| ?{_EACH_NODE}| (?:per|for each)[- ](?:\w+ )?(?:proc|rank|task|worker))"
    rf"(?:(?: ?[(,] ?(?:(?:in|on|over|across) )?| (?:in|on|over|across) )(?P<nodes>\d+) ?{NODES}\b\)?)?"
)
COUNT_ALONE = re.compile(_COUNT + r"\W*", re.IGNORECASE)
COUNT_AHEAD = re.compile(rf"[\W_]*{_COUNT}", re.IGNORECASE)
"""A count that a line begins with, behind the marks of a heading."""
_CHIP = rf"(?:{CHIP}|titan\w*|[rg]tx|(?:(?<=[x×])|(?<=[x×] ))[2-5]0[6-9]0(?:ti)?)"
_IN_LINE = re.compile(
    rf"{_COUNT}|(?<![\w.])(?:(?P<times_>\d+) ?[x×*] ?)?(?P<chips>\d+) ?[x×*]? ?(?P<chip>{_CHIP})s?\b(?!{_HOURS}|\.\d)"
    rf"(?: ?[(,]? ?(?:over|across) (?P<on>\d+) ?{NODES}\b)?",
    re.IGNORECASE,
)
_AMOUNT = re.compile(
    rf"(?<![A-Za-z])(?P<rate>{DIGITS}(?: ?[-–] ?{DIGITS})?(?: ?[kKMB]\b)?) {{0,4}}"
    rf"(?:(?P<unit>(?:{UNITS.pattern}|ns ?/ ?day\b|"
    r"[TP]FLOPS?(?:/s| p(?:er|re) s(?:ec(?:ond)?)?\b)?|[tfwi]ps\b|/s(?=/gpu|\b))"
    r"(?:(?:/| per )(?:gpu|worker|device|chip))?"
    rf"|(?:{_OF}|{CHIP}){_HOURS}"
    r"|(?:ms|secs?|seconds?|s|mins?|minutes?)(?: ?/ ?| per | an )(?:iteration|iter|it|step|batch|epoch)\b)"
    r"|(?P<time>days?|minutes?|mins?|hours?|hrs?|h|ms|seconds?|secs?|s)\b(?!/|-\w)"
    r"|(?P<short>(?-i:m))(?=[.,;)]|$| (?:on|with|for|at|to|and|in|using)\b)"
    rf"|(?P<share>%)|(?P<factor>[x×])(?! ?(?:\d|{_OF}\b|{_CHIP}s?\b)))"
    r"|(?P<clock>(?<![\d:])\d{1,3}:\d\d(?::\d{1,2}(?:\.\d+)?)?(?![\d:]))",
    re.IGNORECASE,
)
"""An amount: a rate or a time with its unit, a share or a factor of which the text says what they are, a clock."""
_SHARES = {
    "MFU (%)": re.compile(r"\b[mh]fu\b", re.I),
    "efficiency (%)": re.compile(r"efficien|% of (?:linear|ideal)\b", re.I),
}
_OTHER_SHARE = re.compile(r"accura|top-?\d|utili[sz]|memory|occupan|of (?:the )?(?:time|step)\b|loss", re.I)
"""Shares of something else, beside which none is said to be of these."""
_SPEEDUP = re.compile(r"speed-?ups?|faster|slower|as fast|scal(?:es|ing)|(?<![\w.])1x\b", re.I)
_OF_EACH_WORKER = re.compile(
    rf"(?:speed-?up|faster|slower)\W+(?:per|of|on|for)(?: each)?[- ]{_OF}\b|\beach {_OF} (?:is|was)\b", re.I
)
"""What makes a factor one of each worker's rate, which is no speedup."""
_PLAIN = re.compile(rf"[-*\s]*{_COUNT}[\s:=,|]+{DIGITS}\s*", re.IGNORECASE)
_UNIT_ALONE = re.compile(
    rf"(?<!\d)(?<!\d )(?:{UNITS.pattern})(?:/gpu)?|\b(?:ms|s|sec)/(?:it|iter|step)\b"
    rf"|\bseconds (?:per|an) (?:step|iteration)\b|\b(?:gpu|node|{CHIP}){_HOURS}",
    re.IGNORECASE,
)
_SETTING = re.compile(
    rf"`(?=[\d.-]*[A-Za-z_])([\w.-]+)`|\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b|\b((?i:{CHIP}|[df]sdp2?|ddp|zero-?\d|fp32|bf16|fp16|fp8|tf32|amp|"
    r"(?:distributed)?data-?parallel|distributed-?dp))\b|\b((?i:batch_size=\d+))\b"
    r"|\b(\d+(?:\.\d+)?(?:[BM]|(?<=\d)b))\b(?!/)"
)
"""Words that tell one setting from another."""
_SIZE = re.compile(r"\b(?:mini-?)?batch[ _-]?size *[=:]? *(\d+)\b", re.IGNORECASE)
_N_STEPS = re.compile(
    r"(?<!over )(?<!after )(?<!every )(?<!last )(?<!first )\b(?<![.,])(\d{1,7}) ?(?:mini-?)?"
    r"(?:batch(?:es)?|steps|iterations|iters)\b(?![ _-]?size| ?(?:per|/|an?) )",
    re.IGNORECASE,
)
"""A number of steps, of which a time is said."""
_LONGEST = 4000
"""Characters of a line that may be a sentence."""
_FEW = 10
"""Lines from which on numbers without a unit are not asked about."""
_SEARCHED = 1000
"""Lines that are searched for what is asked about."""
_NAMED = 6
"""Counts, and amounts, that a question names."""
_TO_TEN = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_IN_WORDS = {word: str(count) for count, word in enumerate(_TO_TEN, start=1)}
_IN_WORDS |= {"twelve": "12", "sixteen": "16", "thirty-two": "32", "sixty-four": "64"}
_COUNTABLE = (
    r"(?:GPUs?|nodes?|machines?|boxe?s?|servers?|hosts?|workers?|ranks?|devices?|cards?|processes|[AHVBL]\d{2,3})"
)
_VERB = r"(?:gives?|gave|reach(?:es|ed)?|do|does|did|gets?|got|needs?|takes?|took|only|just|still|nur|s[oó]lo)"
_WORDS = rf"(?<!\w-)\b({'|'.join(_IN_WORDS)})"
_COUNT_IN_WORDS = re.compile(
    rf"{_WORDS}(?= (?:(?:to|or|and) \w+ )?{_COUNTABLE}\b)"
    rf"|\b(on|with|using|at|for|versus|vs\.?) {_WORDS}(?=[.,;:)]|$| (?:and|but)\b)"
    rf"|((?:[,;]|\band|\bbut)) {_WORDS}(?<!\bone)(?= {_VERB}\b)",
    re.IGNORECASE,
)
_IN_DIGITS = (
    (re.compile(rf"\b(?:a )?single[- ](?={_COUNTABLE}\b)", re.IGNORECASE), "1 "),
    (re.compile(r"\b((?:than|and|vs\.?|versus)(?: (?:on|with|for|using))?) one\b(?! \w)", re.IGNORECASE), r"\1 1"),
    (re.compile(rf"\bboth (?={_COUNTABLE}\b)", re.IGNORECASE), "2 "),
    (re.compile(r"\b((?:on|with|using|use) )an? (?:(?:nvidia|tesla) )*(?=[AHVBLPK]\d{2,3}\b)", re.I), r"\g<1>1 "),
    (
        re.compile(
            r"(?:--(?=\w{3,4}s\b)|(?:--|\b)(?:n|num[-_]))(gpu|node|rank)s?(?: ?[=:] ?| to | )(\d{1,6})\b(?![,.]\d)",
            re.I,
        ),
        r"\2 \1s ",
    ),
    (re.compile(rf"\b({CHIP}) ?[x×*] ?(\d{{1,5}})\b(?! ?(?:gb|x))", re.IGNORECASE), r"\2x \1"),
    (re.compile(r"\bgraphics? (?=cards?\b)", re.IGNORECASE), ""),
    (
        re.compile(rf"\b([itfw]ps)\b(?! ?[/,|])([^\d\n.;,|]{{0,24}}?)({DIGITS}(?: ?[-–~] ?{DIGITS})?)(?![\w%])", re.I),
        r"\2\3 \1",
    ),
    (
        re.compile(
            r"(?<=[\dx×*] )(?:(?:nvidia|tesla|geforce|amd|intel|ascend) )+(?=[AHVBLPKM]\d|910|gpu|[rg]tx)",
            re.IGNORECASE,
        ),
        "",
    ),
    (re.compile(r"\bgpus=(\d{1,6})\b"), r"\1 gpus"),
    (re.compile(rf"(?<=\d )(?:activ\w+|identical|physical|separate|dedicated|local) (?={_COUNTABLE}\b)", re.I), ""),
    (re.compile(r"--devices[= ](\d{1,6})\b(?![,.]\d)"), r"\1 gpus "),
    (re.compile(r"\b(\d{1,6})M/(\d{1,6})G\b(?!B)"), r"\1 nodes (\2 gpus)"),
    (re.compile(r"\b(\d{1,6})Ss?-(\d{1,6})GPUs?\b"), r"\2 gpus (\1 nodes)"),
    (
        re.compile(r"\b(\d{1,6})[x×](\d{1,6}) +gpus?\b(?: ?\(\d{1,6} gpus? total ?\))?", re.IGNORECASE),
        r"\1 nodes x \2 gpus",
    ),
    (re.compile(r"\b(?:a )?(?:single|1) (\d{1,3})-(?:card|gpu)s?\b", re.IGNORECASE), r"1 nodes x \1 gpus"),
    (re.compile(r"\btwo (\d{1,3})-(?:card|gpu)s?\b", re.IGNORECASE), r"2 nodes x \1 gpus"),
    (re.compile(r"(?<=\d) (?:machine|box|server|host)\b(?!es|s)", re.IGNORECASE), " node"),
    (re.compile(r"(?<=\d) (?:machines|boxes|servers|hosts)\b", re.IGNORECASE), " nodes"),
)
"""Counts in other words, and what replaces them."""
_CARD = re.compile(r"\b(?:(?:[rg]tx ?)?[1-5]0[5-9]0|rx ?\d{3,4})(?: ?(?:ti|xt))? (?=(?:cards?|gpus?)\b)", re.IGNORECASE)
"""A model's number before the word for cards, which is no count: ``two 3090 cards``."""
_COMPOUND = re.compile(
    r"(?<![\w.])(?:(?P<hours>\d{1,4}) ?(?:h|hrs?|hours?)"
    r"(?:(?P<clock>\d\d)(?!\d)|,? ?(?:and )?(?P<minutes>\d{1,2}) ?(?:m|mins?|minutes?))"
    r"|(?P<whole>\d{1,4}) ?(?:m|mins?|minutes?)(?=,? ?(?:and )?\d{1,2}(?:\.\d+)? ?s))"
    r"(?:,? ?(?:and )?(?P<seconds>\d{1,2}(?:\.\d+)?) ?(?:s|secs?|seconds?))?\b",
    re.IGNORECASE,
)
"""``2h50``, ``1h 20min``, ``7m30s``."""


_IN_BACKTICKS = re.compile(r"`(\d[\d.,]*)`")
_PRIMES = re.compile(r"(?<![\w.])(\d{1,4})['′’](\d{1,2}(?:\.\d+)?)[\"″”]")
"""Minutes and seconds as ``2'42"``."""


def _count_in_digits(count: re.Match[str]) -> str:
    *before, word = filter(None, count.groups())
    return " ".join([*before, _IN_WORDS[word.lower()]])


def _minutes(time: re.Match[str]) -> str:
    hours, seconds = int(time["hours"] or 0), float(time["seconds"] or 0)
    return f"{60 * hours + int(time['clock'] or time['minutes'] or time['whole']) + seconds / 60:.6g} min"


def counted_in_digits(text: str) -> str:
    """Return a text whose counts of nodes and workers are digits: ``one box`` and ``单机`` as ``1 node``."""
    return _in_digits(in_english(text))


def _in_digits(text: str) -> str:
    text = _IN_BACKTICKS.sub(r"\1", text.replace("**", ""))
    text = _CARD.sub("", _COMPOUND.sub(_minutes, _PRIMES.sub(r"\1m \2s", text)))
    text = _COUNT_IN_WORDS.sub(_count_in_digits, text)
    for pattern, digits in _IN_DIGITS:
        text = pattern.sub(digits, text)
    text = _VISIBLE.sub(lambda one: f"{len(one[1].split(','))} GPUs ", text)
    each = {int(one[3]) for one in _OF_NODES.finditer(text) if one[2] or one[1] == "1"}
    return _OF_NODES.sub(lambda one: _with_total(one, each), text) if each else text


def _with_total(of: re.Match[str], each: set[int]) -> str:
    """Return ``4 nodes (32 GPUs)`` for ``4 nodes with 32 GPUs`` where others are of one node with 8."""
    nodes, workers = int(of[1] or 1), int(of[3])
    total = nodes > 1 and workers not in each and workers % nodes == 0 and workers // nodes in each
    return re.sub(r" (?:with|of) ", " (", of[0]) + ")" if total else of[0]


_VISIBLE = re.compile(r"\bCUDA_VISIBLE_DEVICES=[\"']?(\d+(?:,\d+)*)[\"']?")
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
_OF_ALL = re.compile(r"(?:/ ?s(?:ec)?|per second) (?:in )?total\b", re.IGNORECASE)
_OF_EACH = re.compile(
    r"(?:throughput|speed|rate|performance|tps) ?(?:per|/|of each|on each|for each)[- ]?(?:gpu|worker|device)|"
    r"per[- ](?:gpu|worker|device) (?:throughput|speed|rate|performance)",
    re.IGNORECASE,
)
_WORD = rf"(?:{_OF}|{_CHIP}s?)"
_LAST = r"(?:,? (?:and|or|to|vs\.?) | ?(?:->|→|/) ?)"
_NEXT = rf"(?:{_LAST}|, )"
_LISTED = re.compile(
    rf"(?<![\w.:/,-])((?:\d{{1,6}}{_NEXT}){{0,20}}\d{{1,6}}{_LAST}\d{{1,6}}) ({_WORD})\b", re.IGNORECASE
)
"""``8, 16 and 32 V100s``, ``from 8 to 16 GPUs``, ``2/4/8 GPUs``."""
_THOUSANDS = re.compile(rf"(?<![\w.,])(\d{{1,3}}(?:,\d{{3}}){{1,3}})(?= ?[x×]? ?{_WORD}\b)", re.IGNORECASE)
_EXPECTED = re.compile(
    r"\b(?:expect\w*|ideal\w*|optimum|optimal|(?:should|would) \w+|so it['’]?s like|theor\w+|hop(?:ed|ing)|linear\w*"
    r"|after training)"
    r"[^.;,\d]{0,25}$",
    re.IGNORECASE,
)
"""What stands before an amount that nobody measured, or at whose end something else was."""
_PART_OF = re.compile(
    rf"{DIGITS} ?[kKM]? ?(?:{UNITS.pattern})[ ,]*(?:on|for|in) each (?:{NODES}|{_OF}) ?= ?", re.IGNORECASE
)
"""What each does, before what all do: ``111 img/s on each machine = 222 img/s``."""
_ALIKE = re.compile(
    r"\b(?:about|almost|nearly|roughly|is|are|still|takes?|exactly) the same\b"
    r"(?! (?:batch|model|data|config|setting|code))|"
    r"\bno (?:\w+ )?differences?\b",
    re.IGNORECASE,
)
"""What gives one amount to all counts of a line."""
_DIFFER = 1.05
"""Factor from which on two amounts of one count are no repeats of each other."""
_SECOND = re.compile(rf"\badding a (?:second|2nd) ({_OF})\b", re.IGNORECASE)
_PERCENT_FASTER = re.compile(r"(\d{1,3}(?:\.\d+)?) ?% (faster|slower|higher|lower)\b", re.IGNORECASE)
_OF_A_RATE = re.compile(r"throughput|speed|/s\b|per second|\bf?ps\b", re.IGNORECASE)
"""What may be higher or lower by a share that says how fast it is."""
_TIMES_SLOWER = re.compile(r"(\d{1,3}(?:\.\d+)?) ?[x×] (?:as )?slow(?:er)?\b", re.IGNORECASE)
_FACTORS_LISTED = re.compile(r"\d ?[x×](?:/|, ?(?:and )?| and | to )\d{1,4}(?:\.\d+)? ?[x×]", re.IGNORECASE)
_STEP_TIME = re.compile(
    r"\b(?:step|iteration|batch)[- ]time|time (?:per|of a|for a) (?:step|iteration|batch)\b", re.IGNORECASE
)
_OTHER_FACTOR = re.compile(r"memory|cost|loss|batch|param|bytes|bandwidth|larger|smaller|traffic", re.IGNORECASE)
_FROM_TO = re.compile(
    rf"\b({_WORD})(?: count)? from (\d{{1,6}}) to (\d{{1,6}})\b(?! ?(?:%|{UNITS.pattern}))", re.IGNORECASE
)
_GAINED = re.compile(
    r"\b(?:bought|gain\w*|increas\w*|improv\w*|boost\w*|rose)\b[^.;%\d]{0,40}(\d{1,3}(?:\.\d+)?) ?%(?! ?(?:per|/))",
    re.IGNORECASE,
)
_FACTORS = tuple(
    (re.compile(pattern, re.IGNORECASE), words)
    for pattern, words in (
        (r"\bno (?:speed-?up|gain)(?: at all)?\b", "1x speedup"),
        (r"\btwice as (?:long|slow)\b", "0.5x speedup"),
        (r"\b(?:twice as fast|half the time)\b", "2x speedup"),
        (rf"(?<=[ :])(\d{{1,4}}(?:\.\d+)?) ?\((\d{{1,6}} {_WORD})\)", r"\1x (\2)"),
    )
)
"""Factors in words, and speedups before their counts in brackets."""
_NUMBER_OF = re.compile(rf"\bnumber of ({_OF})\b", re.IGNORECASE)
_RATIO = re.compile(
    rf"(\d{{1,4}}(?:\.\d+)?) ?(%(?=[^.;%]{{0,40}}efficien)|[x×](?! ?(?:\d|{_WORD}\b)))|"
    rf"(?:(efficiency)|speed-?up) of (?:just |only |about )?(\d{{1,4}}(?:\.\d+)?)(?! ?[x×]? ?{_WORD}\b|[\d.])"
    r" ?(?:[x×%])?",
    re.IGNORECASE,
)
_BETWEEN = re.compile(rf"(?:from )?(?<![\w.])(\d{{1,6}}) ({_WORD}) (?:to|->|→) (\d{{1,6}}) ({_WORD})\b", re.IGNORECASE)
_BASELINE = re.compile(
    r"\b(?:compared (?:to|with)|relative to|versus|vs\.?|over|than|as|of)"
    r"(?: (?:on|using|with|(?:that|those)(?: of| on)?))? "
    rf"(\d{{1,6}}) ({_WORD})\b",
    re.IGNORECASE,
)
_BARE = re.compile(
    r"(\b(?:on|with|using|than|at|for|auf|mit|con|en) \d{1,6})"
    rf"(?=[:;,.)]*\s*$|\s+(?:and|but|it|I|we|{_VERB})\b|[:;,.]\s)|((?:[,;]|\band|\bbut) \d{{1,6}})(?= {_VERB}\b)",
    re.IGNORECASE,
)
"""Counts without a word, beside others that have one: ``7:50 on 2 and 7:40 on 4``, ``16 give 8.1k``."""
_NUMBER = r"\d+(?:[.,]\d+)*[kKM]?"
_ALONE = re.compile(
    r"(?<![\w.,$:#-])(?<!seed )(?<!run )(?<!rank )(?<![Ee]poch )(?<![Ee]pochs )(?<!step )(?<!size )(?<!batch )"
    rf"(?<!version ){_NUMBER}"
    r"(?=\s*(?:$|[()/|;→]|[.,:](?!\d)|(?:and|or|to|on|with|for|at|in|but|vs|versus|und|auf|mit|bei|con|y|en|only)\b))"
)
"""Numbers without a unit."""
_BATCH = re.compile(r"batch\D{0,25}\d+", re.IGNORECASE)
_OF_PROSE = re.compile(
    r"\b(?:an?|the|is|are|was|were|has|have|on|with|and|of|to|for|in|it|we|I|takes?|took|at|from|by|but|than)\b"
)
"""Words that sentences have, and lines of logs and tables have not."""
_OPEN_END = re.compile(r"\b(?:on|with|in|at|to|of|and|or|for|from|than|about|only|takes?|took|using|per|the|an?)$")
"""Words that a sentence does not end with."""
_WRAPPED_FROM = 40
"""Characters of a line from which on it may go on in the next."""
_SENTENCE = re.compile(r"(?<!vs)(?<!e\.g)[.!?]\)? +(?=[A-Z])|; +")
_PAIRED = re.compile(r"(?:CA|AC)+|C+A+|A+C+")
"""Orders of counts and as many amounts that say which belongs to which."""


def _compared(text: str) -> str:
    """Return a text whose factors and shares of one count over another stand behind their counts.

    ``from 8 to 16 GPUs only 1.3x`` becomes ``8 GPUs 1x, 16 GPUs 1.3x``.
    """
    if sum(not (one["factor"] or one["share"]) for one in _amounts(text)) > 1:
        return text  # rates or times say more than what is said of them
    text = _FROM_TO.sub(r"from \2 \1 to \3 \1", _SECOND.sub(r"from 1 \1 to 2 \1", text))
    if not _OTHER_SHARE.search(text):
        text = _GAINED.sub(lambda one: f"{1 + float(one[1]) / 100:.4g}x speedup", text)
    for pattern, factor in _FACTORS:
        text = pattern.sub(factor, text)
    higher = _OF_A_RATE.search(text) and not _OTHER_FACTOR.search(text) and "time" not in text.lower()
    signs = {"faster": 1, "slower": -1, **({"higher": 1, "lower": -1} if higher else {})}
    text = _PERCENT_FASTER.sub(
        lambda one: f"{1 + float(one[1]) * sign / 100:.4g}x speedup" if (sign := signs.get(one[2].lower())) else one[0],
        text,
    )
    text = _TIMES_SLOWER.sub(lambda one: f"{1 / max(float(one[1]), 1e-9):.4g}x speedup", text)
    ratios, between = list(_RATIO.finditer(text)), list(_BETWEEN.finditer(text))
    # An efficiency beside a factor says the same.
    ratios = [of for of in ratios if not (of[2] == "%" or of[3])] or ratios
    if len(ratios) == 1 and len(between) == 1:
        (of,), (counts,) = ratios, between
        share = of[2] == "%" or of[3]
        first, factor = ("100 % efficiency", f"{of[1] or of[4]} %") if share else ("1x speedup", f"{of[1] or of[4]}x")
        return f"{counts[1]} {counts[2]} {first}, {counts[3]} {counts[4]} {factor}"
    baselines = sorted(_BASELINE.finditer(text), key=lambda one: one[0].lower().startswith("of"))
    baseline = baselines[0] if baselines else None
    if baseline and ratios and not any(of[2] == "%" or of[3] for of in ratios):
        rest = text[: baseline.start()] + text[baseline.end() :]
        if count := _IN_LINE.search(rest):
            first = f"{baseline[1]} {baseline[2]}"
            ahead = ratios[0].start() < count.start()
            return f"1x speedup {first}, {rest}" if ahead else f"{first} 1x speedup, {rest}"
    return text


def _each(numbers: str, word: str) -> str:
    """Return each of some numbers with their word."""
    *first, last = (f"{one} {word}" for one in re.findall(_NUMBER, numbers))
    return f"{', '.join(first)} to {last}"


def _with_words(text: str) -> str:
    """Return a text in which each count has its word, and each amount behind a count its unit."""
    text = _THOUSANDS.sub(lambda one: one[1].replace(",", ""), text)
    text = _LISTED.sub(lambda one: _each(one[1], one[2]), text)
    words = {one["of"].lower().rstrip("s") for one in _IN_LINE.finditer(text) if one["of"]}
    words = words or {one[1].lower().rstrip("s") for one in _NUMBER_OF.finditer(text)}
    if len(words) == 1 and not _order(_counts_and_amounts(text)):
        word, batches = words.pop(), [one.end() for one in _BATCH.finditer(text)]
        text = _BARE.sub(lambda one: one[0] if one.end() in batches else f"{one[0]} {word}s", text)
    return _with_units(text)


def _with_units(text: str) -> str:
    """Return a text in which numbers that stand for amounts have the one unit that is said elsewhere in it."""
    counts = list(_IN_LINE.finditer(text))
    if not counts:
        return text
    amounts = _amounts(text)
    units = {
        _unit(one, text): one["unit"] or one["time"] or one["short"] or one["share"] or one["factor"] for one in amounts
    }
    units = units or {one[0].lower(): one[0] for one in _UNIT_ALONE.finditer(text)}
    if not units and (said := re.search(r"speed-?up", text, re.IGNORECASE)):
        units = {said[0]: "x"}
    if len(amounts) >= len(counts) or len(units) != 1:
        return text
    (unit,) = units.values()
    plain = _numbers_alone(text, [*counts, *_AMOUNT.finditer(text)])
    if _order([*_counts_and_amounts(text), *((one, "A") for one in plain)]):
        for one in reversed(plain):
            text = f"{text[: one.end()]} {unit}{text[one.end() :]}"
        return text
    ends = [0, *(one.end() for one in _SENTENCE.finditer(text)), len(text)]
    if len(ends) == 2:
        return text
    return "".join(_with_units(text[begin:end]) for begin, end in pairwise(ends))


def _numbers_alone(text: str, known: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Return the numbers without a unit that are no part of what is known, nor of a batch."""
    taken = [*known, *_BATCH.finditer(text)]
    return [
        one
        for one in _ALONE.finditer(text)
        if not any(one.start() < other.end() and other.start() < one.end() for other in taken)
    ]


def _counts_and_amounts(text: str) -> list[tuple[re.Match[str], str]]:
    return [*((one, "C") for one in _IN_LINE.finditer(text)), *((one, "A") for one in _amounts(text))]


def _order(found: Sequence[tuple[re.Match[str], str]]) -> str:
    """Return the order of counts and as many amounts; empty where it does not say which belongs to which."""
    order = "".join(kind for _, kind in sorted(found, key=lambda one: one[0].start()))
    if len(order) <= 2 or order.count("C") * 2 != len(order):
        return ""
    blocks = re.findall(r"C+A+" if order[0] == "C" else r"A+C+", order)
    balanced = "".join(blocks) == order and all(block.count("C") * 2 == len(block) for block in blocks)
    return order if balanced or _PAIRED.fullmatch(order) else ""


@lru_cache(maxsize=4)
def _amounts(text: str, around: str = "") -> tuple[re.Match[str], ...]:
    """Return the amounts that were measured, of which the text, or that around it, says what they are."""
    return tuple(
        amount for amount in _AMOUNT.finditer(text) if _unit(amount, text, around) and not _is_expected(amount, text)
    )


def _is_expected(amount: re.Match[str], text: str) -> bool:
    """Return whether an amount was not measured but expected."""
    return _EXPECTED.search(text[max(amount.start() - 40, 0) : amount.start()]) is not None


@dataclass(frozen=True)
class _Found:
    line: int
    count: int
    of: str
    nodes: int
    amount: str
    unit: str
    settings: frozenset[str]
    below: frozenset[str] = frozenset()
    """The heading above and the size of the mini-batch, where amounts of one count differ otherwise."""


_COLLECTIVE = r"(?:all[-_ ]?(?:reduce|gather)|reduce[-_ ]?scatter|broadcast)"
_OF_A_COLLECTIVE = re.compile(
    rf"{_COLLECTIVE} (?:latency|times?|took|takes?)\b|(?:latency|time) (?:of|for) (?:an? |the )?{_COLLECTIVE}",
    re.IGNORECASE,
)
_OF_A_TRAINING = re.compile(r"train|tuning|epoch|\bsteps?\b|iteration|/ ?s\b", re.IGNORECASE)
"""What takes so long, where a text says it."""


def in_sentences(document: Document) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield the rates in lines of the text as the rows of a table, its headings first."""
    found = list(_all(document))
    if len(found) < 2 or (_OF_A_COLLECTIVE.search(document.text) and not _OF_A_TRAINING.search(document.text)):
        return
    # GPUs, ranks and cards are the same workers.
    workers = next((one.of for one in found if one.of != "nodes"), "")
    found = [replace(one, of=workers) if one.of != "nodes" else one for one in found]
    per_node = max((one.count / one.nodes for one in found if one.nodes), default=0.0)
    if per_node and any(one.of == "nodes" for one in found) and any(one.of != "nodes" for one in found):
        # Where some counts say how many workers a node has, those of nodes are counts of workers.
        found = [
            replace(one, of=workers, count=round(one.count * per_node), nodes=one.count) if one.of == "nodes" else one
            for one in found
        ]
    # Other amounts, such as the hours beside rates, are not taken.
    found = _without_batches(_in_one_unit(found))
    unit = found[0].unit
    if _differ(found) or _of_own_batches(found):
        found = [replace(one, settings=one.settings | one.below) for one in found]
    if len({one.of for one in found}) > 1 or len({(one.line, one.count) for one in found}) < 2 or _differ(found):
        return
    common = frozenset.intersection(*(one.settings for one in found))
    several = {one.settings - common for one in found}
    if len(several) == 2 and frozenset() in several and len({one.count for one in found}) == len(found):
        several = set()  # said once for all of them
    head = [*(["strategy"] if len(several) > 1 else []), found[0].of, unit, *(["nodes"] if per_node else [])]
    rows = [
        (
            one.line,
            [
                *([" ".join(sorted(one.settings - common)) or "others"] if len(several) > 1 else []),
                str(one.count),
                one.amount,
                # Counts without a word of nodes fill one.
                *([str(one.nodes or ceil(one.count / per_node))] if per_node else []),
            ],
        )
        for one in found
    ]
    left = [(line, [*([""] if len(several) > 1 else []), *cells]) for line, cells in _without_amount(document, found)]
    yield [(found[0].line, head), *sorted([*rows, *left], key=lambda row: row[0])]


_BATCH_SIZE = "batch_size="
_STEPS_PER = {"iterations/s": "{} it/s", "time per step": "{} s/it"}
"""Amounts of steps, and how each stands in a cell."""


def _in_one_unit(found: Sequence[_Found]) -> list[_Found]:
    """Return the amounts of most counts: samples before times, times of a run before those of a step, whose mini-batch
    nobody says. Steps a second are one with seconds of a step."""
    units = Counter(one.unit for one in found)
    of = {unit: {one.count for one in found if one.unit == unit} for unit in units}
    first = max(units, key=lambda unit: (len(of[unit]), units[unit], unit not in _STEPS_PER))
    kept = [one for one in found if one.unit == first]
    counts = {one.count for one in kept}
    others = [one for one in found if {one.unit, first} == set(_STEPS_PER) and one.unit != first]
    if others and not counts & {one.count for one in others}:
        inverse = [replace(one, unit=first, amount=_STEPS_PER[one.unit].format(one.amount)) for one in others]
        return sorted([*kept, *inverse], key=lambda one: one.line)
    return kept


def _without_batches(found: list[_Found]) -> list[_Found]:
    """Return what was found without settings of mini-batches that are in proportion to the workers."""
    sizes = [[word for word in one.settings if word.startswith(_BATCH_SIZE)] for one in found]
    if any(len(of) != 1 for of in sizes):
        return found
    each = {float(of[0].removeprefix(_BATCH_SIZE)) / one.count for of, one in zip(sizes, found, strict=True)}
    if len(each) > 1:
        return found
    return [replace(one, settings=one.settings.difference(of)) for of, one in zip(sizes, found, strict=True)]


def _of_own_batches(found: Sequence[_Found]) -> bool:
    """Return whether each count has a mini-batch of its own, neither that of all nor in proportion to the workers."""
    sizes = [[word for word in one.below if word.startswith(_BATCH_SIZE)] for one in found]
    if any(len(of) != 1 for of in sizes):
        return False
    batches = {one.count: float(of[0].removeprefix(_BATCH_SIZE)) for of, one in zip(sizes, found, strict=True)}
    return min(len(set(batches.values())), len({size / count for count, size in batches.items()})) > 1


def _differ(found: Sequence[_Found]) -> bool:
    """Return whether one count has amounts of which nothing says what tells them apart."""
    common = frozenset.intersection(*(one.settings for one in found))
    alike: dict[tuple[int, int, frozenset[str]], list[float]] = {}
    for one in found:
        value = (seconds_in if "time" in one.unit else per_second)(one.amount, one.unit, False)
        if value > 0:
            alike.setdefault((one.count, one.nodes, one.settings - common), []).append(value)
    return any(max(values) > _DIFFER * min(values) for values in alike.values())


def _unwrapped(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; a sentence that was wrapped is one line, with the number of its first."""
    number, text, before = 0, "", ""
    for place, line in enumerate(lines, start=1):
        if number and _goes_on(before, line) and len(text) + len(line) < _LONGEST:
            text = f"{text} {line.strip()}"
        else:
            if number:
                yield number, text
            number, text = place, line
        before = line
    if number:
        yield number, text


def _goes_on(line: str, below: str) -> bool:
    """Return whether the sentence in a line goes on in the one below: with a small letter, after a word that ends no
    sentence, or between a count and its word."""
    end, begin = line.rstrip(), below.lstrip()
    if len(end) < _WRAPPED_FROM or not (end[-1].isalnum() or end[-1] in ",)%*`"):
        return False
    wrapped = re.match(r"[a-z][a-z'’]*(?![\w=:(\[.])", begin) or (
        re.match(r"\w", begin) and (_OPEN_END.search(end) or (end[-1].isdigit() and begin.startswith("GPU")))
    )
    # Lines of logs begin alike.
    return bool(wrapped and end.split()[0] != begin.split()[0] and len(_OF_PROSE.findall(end)) > 1)


def _all(document: Document) -> Iterator[_Found]:
    context: frozenset[str] = frozenset()
    above = carried = heading = ""
    around = document.text if len(document.text) <= _LONGEST else ""
    for number, line in _unwrapped(document.lines):
        if len(line) > _LONGEST:
            continue
        text = counted = _in_digits(line)
        if any(
            one.search(text) for one in (_IN_LINE, _SECOND, _FROM_TO, _NUMBER_OF)
        ):  # few lines of a log have a count
            text = _compared(_with_words(_PART_OF.sub("", _on_nodes(text))))
        elif carried and _amounts(text, around):  # below a line that ends with its count
            text = f"{carried}, {text}"
        if above and _PLAIN.fullmatch(text):  # a number below a line that says its unit
            text = f"{text.strip()} {above}"
        elif alone := _UNIT_ALONE.search(text):
            above = alone[0]
        counts = list(_IN_LINE.finditer(text))
        named = _settings_in(counted)
        amounts = _amounts(text, around) if counts or named else ()
        if not counts or not amounts:
            context = named if named and not amounts else context
            ahead = line.rstrip(" *`").endswith(":") or line.lstrip().startswith(("**", "#"))
            if counts:
                said = {one[0].strip(" ,(") for one in counts}
                carried = said.pop() if len(said) == 1 and (ahead or COUNT_ALONE.fullmatch(text.strip(" *-"))) else ""
            elif ahead:
                heading = line.strip(" *#:`")
            continue
        pairs = list(_pairs(counts, amounts, text, around))
        own = _own_settings(text, pairs)
        below = frozenset({heading} - {""}) | {f"{_BATCH_SIZE}{size}" for size in _SIZE.findall(counted)}
        for place, (count, amount) in enumerate(pairs):
            chip = count["chip"]
            of = "gpus" if chip else count["of"].lower().rstrip("s") + "s"
            workers, nodes, _ = _workers_of(count)
            if workers:
                yield _Found(
                    number,
                    workers,
                    of,
                    nodes,
                    _cell(amount, _steps_in(text)),
                    _unit(amount, text, around),
                    context | (own[place] if own else named) | ({chip.lower()} if chip else set()),
                    below,
                )


_OTHER_RATE = re.compile(
    rf"(?<![\w.]){DIGITS}(?: ?[-–] ?{DIGITS})? ?[A-Za-z]{{1,12}}/(?:s|sec|min|hr?|day)\b(?! ?ethernet)"
)
"""Rates of what no reader knows, such as ``150-152 ns/day``."""


def question(document: Document) -> str:
    """Return the one question about a text with counts of workers and numbers of which none belongs to another, or
    with rates alone; empty for texts without both, and for long ones with one count and no amount."""
    said = [line for line in document.lines[:_SEARCHED] if line.strip()]
    long = len(said) >= _FEW or max(map(len, said), default=0) > _LONGEST
    counts: dict[str, list[str]] = {}
    numbers: list[str] = []
    rates: list[str] = []
    unwrapped = (one for _, one in _unwrapped(document.lines[:_SEARCHED]) if one.strip() and len(one) <= _LONGEST)
    for line in (_with_words(counted_in_digits(one)) for one in unwrapped):
        of_line = list(_IN_LINE.finditer(line))
        for one in of_line:
            of = (one["of"] or one["chip"]).rstrip("s").lower()
            of = of.upper() if of == "gpu" or not one["of"] else of
            counts.setdefault(of, []).append(one["count"] or one["chips"])
        amounts = [one for one in _AMOUNT.finditer(line) if one["unit"] or one["time"] or not long]
        rates += [one[0].strip() for one in amounts if one["unit"] or (one["time"] and (not long or _unit(one, line)))]
        amounts += (
            [] if long and not of_line else [one for one in _OTHER_RATE.finditer(line) if not _AMOUNT.match(one[0])]
        )
        alone = [] if long else _numbers_alone(line, [*of_line, *amounts])
        numbers += [one[0].strip() for one in sorted([*amounts, *alone], key=lambda one: one.start())]
    if not counts and rates:
        seen = ", ".join(list(dict.fromkeys(rates))[:_NAMED])
        return f"seen: {seen}, and not on how many workers; write  8 GPUs: 1200 img/s, or of a log --pattern, --workers"
    if not counts or (long and not numbers and len(set(chain.from_iterable(counts.values()))) < 2):
        return ""
    several = {of: sorted(set(found), key=int)[:_NAMED] for of, found in counts.items()}
    seen = ", ".join(_counted(listed(found), of) for of, found in several.items())
    of, (first, *others) = next(iter(several.items()))
    other = others[0] if others else str(2 * int(first))
    write = f"write them as  {_counted(first, of)}: 1200 img/s, {_counted(other, of)}: ..."
    if not numbers:
        return f"seen: {seen}, and no rate or time of them with a unit; {write}"
    seen += f"; {', '.join(list(dict.fromkeys(numbers))[:_NAMED])}"
    if others or len(several) > 1:
        return f"seen: {seen}: not told which belongs to which, or what they are; {write}"
    return f"seen: {seen}; a rate or time at another count is needed; {write}"


def one_count(line: str) -> tuple[int, int, bool] | None:
    """Return the one count of a line as `_workers_of` does; None where there is none, or several."""
    found = {_workers_of(one) for one in _IN_LINE.finditer(_on_nodes(counted_in_digits(line)))}
    return found.pop() if len(found) == 1 else None


def _on_nodes(text: str) -> str:
    """Return a text with ``n nodes x m gpus`` where m are those of each node."""
    return _OF_NODES.sub(
        r"\1\2 nodes x \3 gpus",
        _EACH_BEFORE.sub(r"\1 nodes x \2 gpus", _EACH_HAS.sub(r"\1 nodes x \2 gpus", text)),
    )


def _workers_of(count: re.Match[str]) -> tuple[int, int, bool]:
    """Return a count of workers, or of nodes, on how many nodes, and whether it is of nodes."""
    chips = count["chips"]
    nodes = int(count["nodes"] or count["before"] or count["on"] or count["times_"] or 0)
    workers = int(chips or count["count"]) * (nodes if count["times"] or count["times_"] else 1)
    return workers, nodes, not chips and bool(re.match(NODES, count["of"], re.IGNORECASE))


def amounts_said(text: str) -> bool:
    """Return whether a text gives a rate or a time of a step, an epoch or a run."""
    return any(map(_amounts, counted_in_digits(text).splitlines()))


def _counted(count: str, of: str) -> str:
    return f"{count} {of}{'' if count == '1' else 's'}"


def _settings_in(text: str) -> frozenset[str]:
    return frozenset(next(filter(None, one.groups())).lower() for one in _SETTING.finditer(text))


def _own_settings(text: str, pairs: Sequence[tuple[re.Match[str], re.Match[str]]]) -> list[frozenset[str]]:
    """Return the settings behind each count with its amount, or those before it; none where not each has its own."""
    begins = [min(count.start(), amount.start()) for count, amount in pairs]
    ends = [max(count.end(), amount.end()) for count, amount in pairs]
    for _, amount in pairs:  # 30B tokens are no model of that size
        text = text[: amount.start()] + " " * len(amount[0]) + text[amount.end() :]
    for cuts in ([*begins, len(text)], [0, *ends]):
        found = [_settings_in(text[begin:end]) for begin, end in pairwise(cuts)]
        if len(found) > 1 and all(found) and len(set(map(len, found))) == 1:
            return found
    return []


def _pairs(
    counts: Sequence[re.Match[str]], amounts: Sequence[re.Match[str]], text: str, around: str
) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yield each count with its amounts: one by one where as many stand in an order that says so, or else in each
    sentence; of sentences with amounts and no count, only the others whose order says it."""
    ends = [0, *(one.end() for one in _SENTENCE.finditer(text)), len(text)]
    parts = [
        ([one for one in counts if begin <= one.start() < end], [one for one in amounts if begin <= one.start() < end])
        for begin, end in pairwise(ends)
    ]
    hoped = [one.start() for one in _AMOUNT.finditer(text) if _is_expected(one, text)]
    if hoped:  # counts of sentences with nothing but what was expected have no amount elsewhere
        spans = [span for span, (_, said) in zip(pairwise(ends), parts, strict=True) if not said]
        alone = [span for span in spans if any(span[0] <= place < span[1] for place in hoped)]
        counts = [one for one in counts if not any(begin <= one.start() < end for begin, end in alone)]
        if not counts:
            return
    paired = [(of, said) for of, said in parts if of and said]
    if any(said and not of for of, said in parts):
        paired = [part for part in paired if _in_order(*part)]
    if _in_order(counts, amounts) or not paired:
        paired = [(list(counts), list(amounts))]
    for part in paired:
        yield from _pairs_in(*part, text, around)


def _in_order(counts: Sequence[re.Match[str]], amounts: Sequence[re.Match[str]]) -> bool:
    return bool(_order([*((one, "C") for one in counts), *((one, "A") for one in amounts)]))


def _pairs_in(
    counts: Sequence[re.Match[str]], amounts: Sequence[re.Match[str]], text: str, around: str
) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yield each count of a sentence with the amounts that follow it, of each unit one, or with the one before it."""
    if _in_order(counts, amounts):
        yield from zip(counts, amounts, strict=True)
        return
    alike = _ALIKE.search(text)
    if alike and len(amounts) == 1 and len(counts) > 1 and counts[-1].end() <= alike.start() < amounts[0].start():
        yield from ((count, amounts[0]) for count in counts)
        return
    if counts[0].start() < amounts[0].start():
        for place, count in enumerate(counts):
            end = counts[place + 1].start() if place + 1 < len(counts) else amounts[-1].end()
            units: dict[str, list[re.Match[str]]] = {}
            for amount in amounts:
                if count.end() <= amount.start() <= end:
                    units.setdefault(_unit(amount, text, around), []).append(amount)
            # Amounts side by side are columns whose headings are not there.
            alone = (
                of[0] for of in units.values() if len(of) == 1 or text[of[0].end() : of[1].start()].strip(" \t|,;")
            )
            yield from ((count, amount) for amount in alone)
        return
    for place, amount in enumerate(amounts):
        end = amounts[place + 1].start() if place + 1 < len(amounts) else counts[-1].end()
        begin = amount.end()
        for count in counts:
            if begin <= count.start() <= end and (
                begin == amount.end() or not re.search(r"\d", count.string[begin : count.start()])
            ):
                yield count, amount
                begin = count.end()


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
def _lists_speedups(text: str) -> bool:
    """Return whether a text says that its factors are speedups, or lists them without a word of anything else."""
    listed = _FACTORS_LISTED.search(text) and not _OTHER_FACTOR.search(text)
    return bool(listed or _SPEEDUP.search(text))


def _unit(amount: re.Match[str], text: str, around: str = "") -> str:
    """Return the heading of an amount's column; empty for times of nobody knows what, also from the text around."""
    if amount["share"]:
        other = _OTHER_SHARE.search(text)
        return next((head for head, words in _SHARES.items() if words.search(text) and not other), "")
    if amount["factor"]:
        other = _OF_EACH_WORKER.search(text) or _STEP_TIME.search(text)
        return "speedup" if _lists_speedups(text) and not other else ""
    if amount["clock"] and _STEP_TIME.search(text):
        return "time per step"
    if amount["clock"]:
        said = text if _RUN.search(text) else around if _TIMES_ABOVE.search(around) else ""
        return "epoch time" if "epoch" in said.lower() else "run time" if _RUN.search(said) else ""
    if unit := amount["unit"]:
        if bare := re.match(r"[tfwi]ps|/s", unit, re.IGNORECASE):
            of_each = "gpu" in unit.lower() or bool(_OF_EACH.search(text))
            return _PER_SECOND[bare[0][0].lower()] + ("/gpu" if of_each else "")
        if re.fullmatch(rf"(?:{_OF}|{CHIP}){_HOURS}", unit, re.IGNORECASE):
            return f"{re.split('[ *·-]', unit)[0].lower()} {'days' if 'day' in unit.lower() else 'hours'}"
        if "flop" in unit.lower():
            return unit if "/" in unit[6:] else f"{unit}/gpu" if _OF_EACH.search(text) else unit
        if re.search(r"epoch$", unit, re.IGNORECASE) and not UNITS.search(unit):
            return "epoch time"
        each = PER_WORKER.search(unit) or _OF_EACH.search(text)
        if longer := re.search(r"(?:/|per) ?(?:min|hr?|day|d)$", unit, re.IGNORECASE):
            return f"{unit[: longer.start()].strip()}/{longer[0].lstrip('/per ')}"
        of = "/gpu" if each else " total" if _OF_ALL.search(text) else ""
        return (unit_in(unit) + of) if UNITS.search(unit) else "time per step"
    time = (amount["time"] or amount["short"]).lower()
    is_long = time.startswith(("m", "h", "d")) and time != "ms"
    if (
        _OF_STEP.search(text)
        or _STEP_TIME.search(text)
        or _steps_in(text)
        or (not is_long and re.search(r"\bsteps?\b|iteration", text, re.IGNORECASE))
    ):
        return "time per step"
    said = text if is_long or _RUN.search(text) else around if _TIMES_ABOVE.search(around) else ""
    if said and time != "ms":
        return f"{'epoch' if re.search(r'epoch', said, re.IGNORECASE) else 'run'} time"
    return ""


def _steps_in(text: str) -> int:
    """Return of how many steps a text says the time; 0 where it says none, or several."""
    found = {int(one[1]) for one in _N_STEPS.finditer(text)}
    return found.pop() if len(found) == 1 else 0


def _cell(amount: re.Match[str], steps: int) -> str:
    """Return an amount as a cell of its column; a time with its unit, which may be another in each, of one step."""
    if steps and amount["time"]:
        seconds = seconds_in(amount["rate"] + amount["time"], "", False)
        return f"{seconds / steps:.9g} s"
    unit = amount["time"] or amount["unit"] or ""
    time = re.match(r"ms|s(?:ec(?:onds?)?)?\b|min(?:ute)?s?\b", unit, re.IGNORECASE)
    return (
        amount["clock"]
        or f"{amount['rate'].rstrip(',')} {amount['time'] or amount['short'] or (time[0] if time else '')}".strip()
    )


def _without_amount(document: Document, found: Sequence[_Found]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines between those with rates that begin with a count and have none."""
    lines = {one.line for one in found}
    for number, text in _unwrapped(document.lines[: max(lines)]):
        if (
            min(lines) < number < max(lines)
            and number not in lines
            and (count := re.match(rf"\W*{_COUNT}\W*(?P<rest>.*)", text, re.IGNORECASE))
        ):
            yield number, [count["count"], count["rest"].strip() or "nothing"]
