"""Comparisons in words: a factor or share of one count over another becomes a factor after each of the two counts.

``from 8 to 16 GPUs only 1.3x`` becomes ``8 GPUs 1x, 16 GPUs 1.3x``.
"""

from __future__ import annotations

import re

from stallpoint_files.texts.amounts import NAMED, OTHER_FACTOR, OTHER_SHARE, amounts_in
from stallpoint_files.texts.counts import ANY_COUNT, WORD, WORD_OR_CHIP
from stallpoint_files.texts.numbers import UNITS

BASE = "1.0000"
"""Factor of a comparison's base count, in digits that nobody writes."""
SECOND = re.compile(rf"\badding a (?:second|2nd) ({WORD})\b", re.IGNORECASE)
_PERCENT_FASTER = re.compile(
    r"(?<!up to )(?<!at most )(?<![\d.])(\d{1,3}(?:\.\d+)?) ?% (faster|slower|higher|lower)\b", re.IGNORECASE
)
_OF_A_RATE = re.compile(r"throughput|speed|training efficiency|/s\b|per second|\bf?ps\b", re.IGNORECASE)
"""Words for quantities whose percentage change is a change of speed."""
_TIMES_SLOWER = re.compile(r"(\d{1,3}(?:\.\d+)?) ?[x×] (?:as )?slow(?:er)?\b", re.IGNORECASE)
FROM_TO = re.compile(
    rf"\b({WORD_OR_CHIP})(?: count)? from (\d{{1,6}}) to (\d{{1,6}})\b(?! ?(?:%|{UNITS.pattern}))", re.IGNORECASE
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
        (rf"(?<=[ :])(\d{{1,4}}(?:\.\d+)?) ?\((\d{{1,6}} {WORD_OR_CHIP})\)", r"\1x (\2)"),
    )
)
"""Factors in words, and speedups followed by their counts in brackets, with their plain forms."""
_RATIO = re.compile(
    rf"(\d{{1,4}}(?:\.\d+)?) ?(%(?=[^.;%]{{0,40}}efficien)|[x×](?! ?(?:\d|{WORD_OR_CHIP}\b)))|"
    rf"(?:(efficiency)|speed-?up) of (?:just |only |about )?(\d{{1,4}}(?:\.\d+)?)(?! ?[x×]? ?{WORD_OR_CHIP}\b|[\d.])"
    r" ?(?:[x×%])?",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    rf"(?:from )?(?<![\w.])(\d{{1,6}}) ({WORD_OR_CHIP}) (?:to|->|→) (\d{{1,6}}) ({WORD_OR_CHIP})\b", re.IGNORECASE
)
_BASELINE = re.compile(
    r"\b(?:compared (?:to|with)|relative to|versus|vs\.?|over|than|as|of)"
    r"(?: (?:on|using|with|(?:that|those)(?: of| on)?))? {1,4}"
    rf"(\d{{1,6}}) ((?:nodes x \d+ )?{WORD_OR_CHIP})\b",
    re.IGNORECASE,
)


def compared_counts(text: str) -> str:
    """Return a text in which factors and shares of one count over another follow their counts."""
    if sum(not (one["factor"] or one["share"]) for one in amounts_in(text)) + len(NAMED.findall(text)) > 1:
        return text  # rates or times are more precise than comparisons of them
    text = FROM_TO.sub(r"from \2 \1 to \3 \1", SECOND.sub(r"from 1 \1 to 2 \1", text))
    if not OTHER_SHARE.search(text):
        text = _GAINED.sub(lambda one: f"{1 + float(one[1]) / 100:.4g}x speedup", text)
    for pattern, factor in _FACTORS:
        text = pattern.sub(factor, text)
    higher = _OF_A_RATE.search(text) and not OTHER_FACTOR.search(text) and "time" not in text.lower()
    signs = {"faster": 1, "slower": -1, **({"higher": 1, "lower": -1} if higher else {})}
    text = _PERCENT_FASTER.sub(
        lambda one: f"{1 + float(one[1]) * sign / 100:.4g}x speedup" if (sign := signs.get(one[2].lower())) else one[0],
        text,
    )
    text = _TIMES_SLOWER.sub(lambda one: f"{1 / max(float(one[1]), 1e-9):.4g}x speedup", text)
    ratios, between = list(_RATIO.finditer(text)), list(_BETWEEN.finditer(text))
    # An efficiency next to a factor is redundant.
    ratios = [of for of in ratios if not (of[2] == "%" or of[3])] or ratios
    if len(ratios) == 1 and len(between) == 1:
        (of,), (counts,) = ratios, between
        share = of[2] == "%" or of[3]
        first, factor = (
            ("100 % efficiency", f"{of[1] or of[4]} %") if share else (f"{BASE}x speedup", f"{of[1] or of[4]}x")
        )
        return f"{counts[1]} {counts[2]} {first}, {counts[3]} {counts[4]} {factor}"
    baselines = sorted(_BASELINE.finditer(text), key=lambda one: one[0].lower().startswith("of"))
    if len(ratios) > 1 and len({one[1] for one in baselines if not one[0].lower().startswith("of")}) > 1:
        return _RATIO.sub(" ", text)  # factors relative to several counts do not form one curve
    baseline = baselines[0] if baselines else None
    if baseline and ratios and not any(of[2] == "%" or of[3] for of in ratios):
        rest = text[: baseline.start()] + text[baseline.end() :]
        if count := ANY_COUNT.search(rest):
            first = f"{baseline[1]} {baseline[2]}"
            ahead = ratios[0].start() < count.start()
            return f"{BASE}x speedup {first}, {rest}" if ahead else f"{first} {BASE}x speedup, {rest}"
    return text
