"""Training programs, each with a pattern of the line in which it logs its rate; a further program is a new entry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from stallpoint_files.rates.rate_rows import ALL, EACH

# Atomic groups work around a bug of possessive groups before Python 3.11.5, which match ``1000,`` in ``1000, ``.
NUMBER = r"(?<![0-9])[0-9]++(?>(?:,[0-9]++){0,6})(?>(?:\.[0-9]++)?)(?>(?:[eE][+-]?[0-9]++)?)(?>(?: ?[kKMG]\b)?)"
_MARKS = {
    **{name: rf"(?P<{name}>{NUMBER})" for name in ("rate", "its", "seconds", "ms", "us")},
    "n": NUMBER,
    "unit": r"(?P<unit>(?:tok(?:en)?s?|samples?|ima?ge?s?|img|seq(?:uence)?s?|examples?)"
    r"[ _]?(?:/|per)[ _]?s(?:ec(?:ond)?)?s?"
    r"(?:[ _]?(?:/|per)[ _]?(?:gpu|device|rank|worker|chip|core))?(?![a-zA-Z])|tokens/gpu/s(?:ec(?:ond)?)?)",
}
_MARK = re.compile(rf"(?<!\(\?P)<({'|'.join(_MARKS)})>")


def _pattern(line: str) -> re.Pattern[str]:
    """Return a pattern in which marks such as ``<rate>`` are replaced by the patterns of their numbers and units."""
    return re.compile(_MARK.sub(lambda mark: _MARKS[mark[1]], line))


def has_one(line: str, words: Sequence[str]) -> bool:
    """Return whether the line contains one of the (lower-case) words in any case."""
    lower = line.lower()
    return any(word in lower for word in words)


@dataclass(frozen=True)
class Program:
    """A program and the form in which it logs its rate."""

    name: str
    line: str
    """A regular expression in which ``<rate>`` is the number of a rate, ``<its>`` that of iterations a second,
    ``<seconds>``, ``<ms>`` or ``<us>`` the time of an iteration, ``<unit>`` the unit of the rate (with ``/gpu`` where
    it is a worker's), and ``<n>`` any other number. Its groups may be ``batch`` (of all workers), ``epoch`` (a time)
    and ``sample`` (where the time is one of a sample)."""
    unit: str = "samples/s"
    of: str = ""
    """`EACH` or `ALL`: whether the rate is per worker or the total; empty if unknown."""
    averages: bool = False
    """Whether the last line has the mean over all steps."""
    words: tuple[str, ...] = ()
    """Lower-case texts of which each line has one; checked first if the pattern begins without a literal text, as such
    searches take ten times as long."""
    begin: str = ""
    """Pattern after whose match `line` is searched. A single pattern (``begin.*line``) would take quadratic time in a
    long line with many beginnings and no end."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled pattern of the program's lines."""
        return _pattern(self.line)

    @cached_property
    def _begin(self) -> re.Pattern[str]:
        return _pattern(self.begin)

    def search(self, line: str) -> re.Match[str] | None:
        """Return the pattern's match in a line, if any."""
        if self.words and not has_one(line, self.words):
            return None
        if not self.begin:
            return self.pattern.search(line)
        begin = self._begin.search(line)
        return begin and self.pattern.search(line, begin.end())


_STEP = r"(?i)(?<![a-zA-Z])(?:step|iter|iteration|epoch)\b[^\w\n]{0,5}\d+\b(?! ?(?:gpus?|nodes?|workers?)\b)"
_STEPS = ("step", "iter", "epoch")
_EPOCH = (
    r"(?i)\b(?:epoch[_ ](?:execution )?(?:time|took)[ :=]+|time (?:taken )?(?:for|per) epoch(?: \d+)?(?: is)?[ :=]+)"
    r"(?P<epoch>\d+:\d\d(?::\d\d)?|<n>(?= ?s(?:ec(?:onds?)?)?\b))"
)
_EPOCHS = ("epoch time", "epoch_time", "epoch took", "epoch execution", "for epoch", "per epoch")
PROGRAMS = (
    Program("DeepSpeed", r"SamplesPerSec=(?:<n>), CurrSamplesPerSec=<rate>"),
    Program("DeepSpeed", r"\bSamplesPerSec=<rate>"),
    Program(
        "Megatron",
        r"elapsed time per iteration \(ms\): <ms>(?:.*global batch size:\s*(?P<batch>\d+))?",
        begin=r"iteration\s+\d+/\s*\d+ \|",
    ),
    Program("torchtitan", r"\b(?:tps|wps): <rate>", "tokens/s", EACH, begin=r"step:\s*\d+"),
    Program("tf_cnn_benchmarks", r"^total images/sec: <rate>", "images/s", ALL, averages=True),
    Program("transformers", r"\btrain_samples_per_second\W+<rate>", averages=True),
    Program("MosaicML", r"throughput/samples_per_sec: <rate>"),
    Program("steps", r"(?i)['\"]<unit>['\"]: ['\"]?<rate>", words=("per_sec", "/s")),
    Program(  # a rate after the bar is preferred to the bar's steps, whose mini-batch is unknown
        "Lightning or tqdm",
        r"(?i)<unit>[:=] ?<rate>",
        begin=r"(?<![\d/])\d++/\d++ \[[\d:]+<[\d:?]+,",
        words=("it,", "/s,"),
    ),
    Program(
        "Lightning or tqdm",
        r"(?:(?<![\d/])\d++/\d++ \[[\d:]+<[\d:?]+,|(?<!\d)\d++it \[[\d:]+,|• [-\d:]+)\s*"
        r"(?:<seconds> ?s/(?:it|step)|<its> ?(?:it|step)s?/s)",
        "iterations/s",
    ),
    Program("Horovod's benchmark", r"^Total img/sec on \d+ \w+\(s\): <rate>", "images/s", ALL, averages=True),
    Program("nanotron", r"\btokens_per_sec: <rate>", "tokens/s", ALL, begin="iteration: "),
    Program("MaxText", r"\bTokens/s/device: <rate>", "tokens/s", EACH, begin=r"completed step: \d+, "),
    Program("MaxText", r"\bseconds: <seconds>", begin=r"completed step: \d+, "),
    Program(
        "NeMo",
        r"^(?>.*?\bglobal_batch_size: (?P<batch>\d+))?.*?\btrain_step_timing in s[=:] ?<seconds>",
        words=("train_step_timing",),
    ),
    Program("modded-nanogpt", r"\bstep_avg: ?<ms>ms", averages=True, begin=r"\bstep:\d+/\d+ "),
    Program("llm.c", r"^step +\d+/\d+ \| loss .*\| <rate> tok/s", "tokens/s", ALL),
    Program("nanoGPT", r"^iter \d+: loss .*\btime <ms>ms"),
    Program("timm", r"Time: *<n>s, +<rate>/s", "images/s", ALL, begin=r"Train: \d+ \["),
    Program("MMEngine", r"\btime: <seconds>", begin=r"(?:Epoch|Iter)\(train\)", words=("(train)",)),
    Program("PyTorch's imagenet", r"^Epoch: \[\d+\]\[ *\d+/\d+\]\s+Time +<seconds>"),
    Program("PyTorch's imagenet", r"\bTime +<seconds> *\( *<n>\)\s+Data\b", words=("time ",)),
    Program("MetricLogger", r"\btime: <seconds>.{0,80} data(?:_time)?: ", begin=r"\beta: ", words=("eta: ",)),
    Program("T5X", r"\btiming/seqs_per_second=<rate>", "sequences/s", ALL),
    Program("LAMMPS", r"\bPerformance: .* <rate> timesteps/s", "steps/s", ALL),
    Program("MMCV", r"\"time\": <seconds>", begin=r"\"mode\": \"train\".*\"data_time\": "),
    Program("OLMo", r"throughput/device/(?:tokens_per_second|TPS)=<rate>", "tokens/s", EACH),
    Program("Levanter", r"Progress on:train .*\brate:(?:<its>it/s|<seconds>s/it)"),
    Program("open_clip", r"Batch \(t\): <n>, <rate>/s, <n>/s/gpu", "samples/s", ALL, begin=r"Train Epoch: "),
    Program("TensorFlow", r"\bglobal_step/sec: <its>"),
    Program("TensorFlow", r"\bTimeHistory: <n> seconds, <rate> examples/second", of=ALL),
    Program("DLLogger", r"\btrain\.(?:total_)?ips\"? ?: <rate>", of=ALL),
    Program(
        "ESPnet",
        r"\btime=(?P<epoch>(?:\d+ hours?, )?(?:\d+ minutes? and )?\d+(?:\.\d+)? seconds)",
        begin=r"epoch results: \[train\]",
    ),
    Program("ESPnet", r"\btrain_time=<seconds>", begin=r"epoch:train:"),
    Program("TRL", r"['\"]step_time['\"]: ['\"]?<seconds>", words=("step_time",)),
    Program("Paddle", r"(?i)\bips: <rate>(?: ?<unit>)?", of=EACH, begin=r"\breader_cost: "),
    Program("Swin", r"\btime <seconds> \(", begin=r"Train: \[", words=("train: [",)),
    Program("ms-swift", r"train_speed\((?:iter/s\)'?: ?<its>|s/it\)'?: ?<seconds>)"),
    Program("LitGPT", r"iter time: <ms> ms"),
    Program("fairseq", r"\bwps=<rate>, ups=", "words/s", ALL, words=("wps=",)),
    Program("TensorFlow NMT", r"\bstep-time \S+ wps <rate>", "words/s", words=("step-time",)),
    Program("ColossalAI", r"\bThroughput: <rate> samples/sec ?, TFLOPS per GPU", of=ALL, averages=True),
    Program("MXNet", r"Batch ?\[\d+\]\s+Speed: <rate> samples/sec"),
    Program("Keras", r"(?<!\d)\d++/\d++ \S++ (?:- )?\d++\w++ (?:<ms>ms|<us>us|<seconds>s)/step", words=("s/step",)),
    Program("Keras", r"(?<!\d)\d++/\d++ \S++ - \d++\w++ (?:<ms>ms|<us>us)/(?P<sample>sample)", words=("s/sample",)),
    Program("steps", r"(?i)<unit>(?:[\"')]?\s*[:=]|\))\s*<rate>", begin=_STEP, words=_STEPS),
    Program(  # the number before a unit is another key's: ``lr 1e-4 tokens/sec 12000``, ``1.5 s/it | tok/s 980``
        "steps",
        r"(?i)(?:\b(?:lr|loss|acc\w*|ppl|\w*norm|mem\w*)[ :=]+<n> |[|,;] ?)<unit> <rate>",
        begin=_STEP,
        words=_STEPS,
    ),
    Program("steps", r"(?i)<rate> ?<unit>", begin=_STEP, words=_STEPS),
    Program(
        "steps",
        r"(?:<seconds> ?s(?:ec(?:onds?)?)?|<ms> ?ms)/(?:step|it|iter|iteration|batch)\b",
        begin=_STEP,
        words=_STEPS,
    ),
    Program("steps", r"\b(?:step|iter|iteration)[_ ]time[ :=]+(?:<ms> ?ms|<seconds> ?s)\b", begin=_STEP, words=_STEPS),
    Program(
        "steps", r"\btook[ :=]+(?:<ms> ?ms|<seconds> ?s)\b", begin=r"(?i)\bstep\b[^\w\n]{0,5}\d+\b", words=("took",)
    ),
    Program("epochs", _EPOCH, begin=_STEP, words=_EPOCHS),
    Program("RSL-RL", r"\bComputation: <rate> steps/s \(collection: ", "steps/s", ALL),
    Program("rl_games", r"\bfps step: .*\bfps total: <rate>", "frames/s", ALL),
)
"""Programs in the order in which they are tried; the last entries match any line with a step, a rate and its unit."""
REDRAWN = Program("Lightning or tqdm", r"<its> ?it/s", "iterations/s")
"""Rate in a progress bar of unknown format that carriage returns redraw."""
_BEFORE_RATES = Program("lines", r"(?i)<unit>[\"']?\s*[:=]\s*<rate>")
BELOW_HEADINGS = (_BEFORE_RATES, Program("lines", r"(?i)<rate> ?<unit>"))
"""Rates of unknown programs, if headings give their worker counts."""
REPEATED = (_BEFORE_RATES, Program("epochs", _EPOCH, words=_EPOCHS))
"""Lines without a step, if the log's name gives its workers, or if it has several such lines, none with a count."""
