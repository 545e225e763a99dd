"""Setup of a training, read from words: ``llama 3 8b bf16, zero 3, 2 x 8 a800, 10 GbE``.

Each kind of term is found by its pattern and removed from the text before the next kind; the remaining words are
unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from itertools import pairwise

from stallpoint.errors import InputError
from stallpoint_files.links.links import LinkRate, link_named, links
from stallpoint_files.setups.catalog import DECODER, GIGA, Chip, KnownModel, chips, decoder, models
from stallpoint_files.texts.counts import NODES, counted_in_digits


class Sharding(StrEnum):
    """How ranks shard parameters, gradients and optimiser states."""

    DDP = "DDP"
    ZERO_1 = "ZeRO-1"
    ZERO_2 = "ZeRO-2"
    ZERO_3 = "ZeRO-3"
    FULL_SHARD = "FSDP"
    HYBRID = "hybrid sharding"


GATHERS = (Sharding.ZERO_3, Sharding.FULL_SHARD)
"""Strategies that gather parameters from all ranks in each pass."""
_STRATEGIES = {
    Sharding.HYBRID: r"hsdp|hybrid[-_ ]?shard(?:ing)?|hpz|zero\+\+|shard(?:ed|ing)? inside (?:a|the) node",
    Sharding.ZERO_3: r"(?:ds_?)?(?:zero[-_ ]?(?:stage[-_ ]?)?3|z3|stage[-_ ]?3)",
    Sharding.ZERO_2: r"(?:ds_?)?(?:zero[-_ ]?(?:stage[-_ ]?)?2|z2|stage[-_ ]?2)|shard_grad_op",
    Sharding.ZERO_1: r"(?:ds_?)?(?:zero[-_ ]?(?:stage[-_ ]?)?1|z1|stage[-_ ]?1)",
    Sharding.FULL_SHARD: r"(?:fsdp2?[-_ ]*)?full[-_ ]?shard|fsdp2?",
    Sharding.DDP: r"ddp|distributed ?data ?parallel|horovod|no_shard|data[- ]parallel",
}
_PRECISIONS = {
    "fp8": r"fp8|float8",
    "half": r"bf16|bfloat16|fp16|float16|amp|mixed[- ]precision|half[- ]precision|16[- ]bit",
    "tf32": r"tf32",
    "fp32": r"fp32|float32|single precision|32[- ]bit",
}
_AFTER_CHIP = r"(?:[- ]?(?:sxm\d?|pcie|nvl|\d+ ?gb?(?![a-z/])))*s?"
_LINK = (
    r"(?<![\w.])(?:(?P<times>\d{1,2}) ?[x×*] ?)?(?P<rate>\d+(?:\.\d+)?) ?"
    r"(?P<unit>GbE|GigE|GE|[GTM]b(?:it)?(?:/s|ps)|MiB/s|[GT]bits?|gigabits?|"
    r"(?-i:G|Gb)(?= (?:ethernet|network|nic|link|infiniband|ib|roce)\b)|(?<=[1248]00)G)"
    r"(?!\w)(?: efa\b)?(?! ?(?:nvlink|memory|hbm|disk|read))"
)
_RATE_BEHIND = (
    r"\b(?:infiniband|ib|roce|ethernet)[ :]*(?P<rate>10|25|40|50|56|100|200|400|800)"
    r"(?:(?P<unit>G)(?:b(?:it)?(?:/s|ps))?)?"
    r"(?! ?(?:[x×*]|gpu|card|device|node|machine|worker|rank)|\w| ?[a-z]+\d)"
)
"""A link's name followed by its rate: ``InfiniBand 400``."""
_EXAMPLE = "llama 3 8b"
_MODEL_END = "\0"
"""Mark that replaces a model's name in the text, at the name's end."""
_SAME_SIZE = 0.1
"""Maximum relative difference of a stated number of parameters from the named model's."""
_DEFAULT_BATCHES = {"pytorch_synthetic_benchmark.py": 32, "tensorflow2_synthetic_benchmark.py": 32}
"""Default mini-batch of a worker in Horovod's examples, if started without --batch-size; samples."""


@dataclass
class Setup:
    """Setup of a training, as far as the words give it."""

    chips: list[tuple[int | None, Chip]] = field(default_factory=list)
    """Kinds of chips, each with its count (None if not given)."""
    mixed: bool = False
    """Whether chips of several kinds are named as parts of one job."""
    nodes: int | None = None
    per_node: int | None = None
    model: KnownModel | None = None
    precision: str = ""
    strategies: list[Sharding] = field(default_factory=list)
    lora: bool = False
    links: list[LinkRate] = field(default_factory=list)
    """Links between nodes."""
    gloo: bool = False
    batch: float | None = None
    """Samples of a worker's mini-batch."""
    bare_batch: float | None = None
    """Samples of a mini-batch that may be a worker's or the global one."""
    global_batch: float | None = None
    batch_tokens: float | None = None
    """Tokens of the global mini-batch."""
    accumulation: int = 1
    tensor: int = 1
    """Ranks of a tensor-parallel group."""
    pipeline: int = 1
    """Pipeline stages."""
    interleaved: int = 1
    """Virtual pipeline stages of each worker."""
    context: int = 1
    """Ranks that share each sequence."""
    experts: int = 1
    """Ranks over which experts are divided."""
    replicas: int = 0
    """Number of data-parallel replicas; 0 if unknown."""
    tokens: int | None = None
    """Tokens of a sample."""
    steps: int | None = None
    """Fixed number of steps."""
    alike: bool = False
    """Whether the words say that times are equal on several counts."""
    slow: bool = False
    counts: list[int] = field(default_factory=list)
    """All worker counts that are named."""
    unknown: list[str] = field(default_factory=list)
    variant: str = ""
    """An unknown word directly after the model's name, which most likely makes it another model."""

    @property
    def workers(self) -> int | None:
        """Number of workers."""
        if self.nodes and self.per_node:
            return self.nodes * self.per_node
        return max(self.counts, default=self.replicas * self.tensor * self.pipeline * self.context or None)

    @property
    def chip(self) -> Chip | None:
        """The chip, if exactly one kind is named; else None."""
        kinds = {chip.name: chip for _, chip in self.chips}
        return next(iter(kinds.values())) if len(kinds) == 1 else None

    @property
    def link(self) -> LinkRate | None:
        """The slowest of the named links between nodes."""
        return min(self.links, key=lambda one: one.bytes_per_second, default=None)

    @property
    def strategy(self) -> Sharding | None:
        """The strategy, if exactly one is named; else None."""
        kinds = set(self.strategies)
        return self.strategies[0] if len(kinds) == 1 else None


_Setter = Callable[[Setup, re.Match[str]], None]


def _layout(setup: Setup, found: re.Match[str]) -> None:
    nodes, each = int(found["nodes"]), int(found["each"])
    if found["total"] or (each % nodes == 0 and (found["listed"] or (each > 8 and found["bare"]))):  # 2 nodes (16 GPUs)
        each = max(each // nodes, 1)
    if nodes * each > (setup.nodes or 0) * (setup.per_node or 0):
        setup.nodes, setup.per_node = nodes, each
    setup.counts.append(nodes * each)
    if found["chip"]:
        setup.chips.append((each, _chip(found)))


def _chip(found: re.Match[str]) -> Chip:
    """Return the chip that a term names, with the memory given after the name: ``a100 40gb``."""
    chip = chip_named(found["chip"])
    said = re.search(r"(\d+) ?gb?\b", found[0][found.end("chip") - found.start() :], re.IGNORECASE)
    return replace(chip, memory=int(said[1]) * GIGA) if said else chip


def _chips(setup: Setup, found: re.Match[str]) -> None:
    count = found["count"] or found["count_"]
    setup.chips.append((int(count) if count else None, _chip(found)))
    if count:
        setup.counts.append(int(count))


def _workers(setup: Setup, found: re.Match[str]) -> None:
    setup.counts.append(int(found[1]))


def _nodes(setup: Setup, found: re.Match[str]) -> None:
    setup.nodes = max(setup.nodes or 0, int(found[1]))


def _link(setup: Setup, found: re.Match[str]) -> None:
    value, unit = float(found["rate"]), found["unit"] or "G"
    told = unit.lower()
    bits = told in ("ge", "g", "gige", "gbe") or "bit" in told or ("b" in unit and told != "mb/s")
    scale = {"g": 1e9, "t": 1e12, "m": 1e6}[told[0]]
    name = f"{value:g} {'Gbit/s' if told in ('g', 'gbit', 'gigabit') else unit}"
    times = int(found.groupdict().get("times") or 1)
    several = f"{times} x " if times > 1 else ""
    setup.links.append(LinkRate(several + name, times * value * scale / (8 if bits else 1), "as told"))


def _named_link(setup: Setup, found: re.Match[str]) -> None:
    setup.links.append(link_named(found[1].replace(" ", "")))


def _named_model(model: KnownModel) -> _Setter:
    def take(setup: Setup, found: re.Match[str]) -> None:
        setup.model = setup.model or model

    return take


def _model_by_size(setup: Setup, found: re.Match[str]) -> None:
    """Set the model by its number of parameters: a decoder, unless another kind of network is named."""
    scale = 1e9 if found["scale"].lower().startswith("b") else 1e6
    parameters, known = float(found["size"]) * scale, setup.model
    if known and (known.kind != DECODER or known.active or abs(parameters / known.parameters - 1) < _SAME_SIZE):
        return
    name = (
        re.sub(r" \d+B$", "", known.name)
        if known
        else " ".join((found["name"] or "").replace("_", " ").split()).strip(" -")
    )
    size = f"{found['size']}{found['scale'][0].upper()}"
    setup.model = decoder(f"{name} {size}".strip(), parameters, active=float(found["active"] or 0) * scale)


def _set(name: str, value: object = None) -> _Setter:
    def take(setup: Setup, found: re.Match[str]) -> None:
        got = value if value is not None else int(next(filter(None, found.groups())).replace(",", ""))
        setattr(setup, name, got)

    return take


def _batch_of_tokens(setup: Setup, found: re.Match[str]) -> None:
    count, scale = found["count"] or found["count_"], found["scale"] or found["scale_"] or " "
    setup.batch_tokens = float(count.replace(",", "")) * {"k": 1e3, "m": 1e6, "b": 1e9}.get(scale[0].lower(), 1)


def _nodes_of_8(setup: Setup, found: re.Match[str]) -> None:
    setup.per_node, setup.nodes = setup.per_node or 8, setup.nodes or int(found[1] or 0) or None


def _strategy(one: Sharding) -> _Setter:
    return lambda setup, _: setup.strategies.append(one)


def _default_batch(setup: Setup, found: re.Match[str]) -> None:
    setup.batch = setup.batch or _DEFAULT_BATCHES[found[0].lower()]


def _terms() -> Iterator[tuple[str, _Setter]]:
    """Yield each kind of term as a pattern and a function that sets its value, in the order of their removal."""
    yield r"[-_\w]*trainable param\w*|\d[\d,]* trainable param\w*|\d[\d,.]* ?[MBK]? trainable", lambda *_: None
    yield "|".join(map(re.escape, _DEFAULT_BATCHES)), _default_batch
    batch, each = r"(?:mini[- ]?)?batch(?:es|[-_ ]size)?", r"(?:gpu|device|worker|card)"
    first, second = (
        rf"(?<![\w.])(?P<count{mark}>\d[\d,]*(?:\.\d+)?) ?(?P<scale{mark}>[kmb](?:illion)?)? ?tokens"
        for mark in ("", "_")
    )
    yield (
        rf"(?:(?:global|total|effective)[-_ ])?{batch}[= ]*(?:of |is )?{first}"
        rf"|{second} ?(?:per|/|an?|each|in (?:an?|each)) ?(?:global )?(?:{batch}|step|iteration)(?!\w)",
        _batch_of_tokens,
    )
    yield r"(?<![\w.])\d+(?:\.\d+)? ?(?:[bt]|billion|trillion) ?tokens", lambda *_: None
    yield r"(?:no|without|not?) (?:infiniband|ib|rdma|nvlink)\b|没有 ?ib", lambda *_: None
    yield r"(?:max[-_]steps|num[-_]steps|train[-_]steps)[= ]+(\d+)|(\d+) steps(?= (?:take|took|need))", _set("steps")
    yield r"per[-_]device(?:[-_]train)?[-_]batch[-_]size[= ]*(\d+)", _set("batch")
    yield r"(?:gradient |grad[-_]?)?acc\w*(?:[-_ ]steps)?[= ]+(\d+)", _set("accumulation")
    yield r"gradient[-_ ]accumulation[-_ ]steps[= ]+(\d+)|(\d+) gradient accumulation steps", _set("accumulation")
    yield r"(?:global|total|effective)[-_ ]batch(?:[-_ ]size)?[= ]*(?:of )?(\d+)", _set("global_batch")
    yield r"(?<![a-z])(?:mbs|micro[-_ ]?batch(?:[-_ ]size)?)[-= ]*(?:of )?(\d+)", _set("batch")
    yield (
        rf"(?:per[- ]{each}|local) +{batch}[= ]+(?:of |is )?(\d+)|{batch} per {each}[= ]+(?:of |is )?(\d+)"
        rf"|(?:{batch}[= ]+(?:of |is )?)?(\d+) ?(?:samples?|images?|sequences?)? ?"
        rf"(?:per|/|(?:on|for) (?:each|every)) ?{each}",
        _set("batch"),
    )
    yield rf"{batch}[= ]+(?:of |is )?(\d+)", _set("bare_batch")
    yield r"(?<![a-z])(?:tp|tensor[-_ ]parallel)[-= ]*(\d+)", _set("tensor")
    yield r"(?<![a-z])(?:dp|data[-_ ]parallel)[-= ]*(\d+)\b(?! ?[x×*])", _set("replicas")
    yield r"(?<![a-z])(?:pp|pipeline[-_ ](?:parallel|stages))[-= ]*(\d+)", _set("pipeline")
    yield r"(?<![a-z])(?:cp|context[-_ ]parallel)[-= ]*(\d+)", _set("context")
    yield r"(?<![a-z])(?:ep|expert[-_ ]parallel)[-= ]*(\d+)", _set("experts")
    yield r"(?<![a-z])(?:vpp?|virtual[-_ ](?:pipeline|stages))[-= ]*(\d+)", _set("interleaved")
    yield r"(?<![a-z])(?:gbs)[-= ]*(\d+)", _set("global_batch")
    yield r"(\d+) ?x? ?[dh]gx(?! (?:spark|station))|[dh]gx(?! (?:spark|station))", _nodes_of_8
    yield (
        r"(?:(?:seq(?:uence)?|context)[-_ ]?len(?:gth)?|context|block[-_ ]?size|sequences of)[= ]*(?:of )?(\d[\d,]*)",
        _set("tokens"),
    )
    yield _LINK, _link
    yield _RATE_BEHIND, _link
    yield (
        r"\b((?:\d+ ?x ?)?(?:" + "|".join(name for name in links() if re.match(r"edr|h[d]r|ndr|efa", name)) + r"))\b",
        _named_link,
    )
    yield r"gigabit(?: ethernet)?", lambda setup, _: setup.links.append(link_named("1gbe"))
    named = "|".join(f"(?:{chip.pattern})" for chip in chips())
    no_name = "|".join((*_STRATEGIES.values(), *_PRECISIONS.values(), "q?lora", "gloo", named))
    for model in models():
        yield rf"(?<![a-z]){model.pattern}", _named_model(model)
    yield (
        rf"(?P<name>(?<![\w-])(?!(?:{no_name})\b)[a-z]+(?:-[a-z]+)*[-_ ]?(?:v?\d+(?:\.\d+)?)?[-_ ])??"
        r"(?<![\w.])(?P<size>\d+(?:\.\d+)?) ?"
        r"(?P<scale>[bm]|billion|million)(?:[-_ ]?a(?P<active>\d+(?:\.\d+)?)b)?"
        r"(?: param\w*)?(?:[-_ ]?(?:chat|instruct|base|model|llama|qwen|mistral))*(?![\w/])",
        _model_by_size,
    )
    yield r"q?lora", _set("lora", True)
    yield r"\bgloo\b", _set("gloo", True)
    for strategy, pattern in _STRATEGIES.items():
        yield rf"(?<![a-z])(?:{pattern})(?![a-z0-9])\w*", _strategy(strategy)
    for precision, pattern in _PRECISIONS.items():
        yield rf"\b(?:{pattern})\b", _set("precision", precision)
    total = r"(?P<total>total(?: of)? |altogether |in total )?"
    chip = rf"(?:(?P<chip>{named}){_AFTER_CHIP}(?: ?gpus?)?|gpus?|cards?|devices)"
    yield (
        rf"(?<![\w.])(?P<nodes>\d+) ?(?:{NODES}(?P<bare> +(?=\d))?(?P<listed> ?[,(])?"
        rf" ?[x×*]? ?\(?(?:of |with |each )?|[x×*] ?\(?){total}"
        rf"(?P<each>\d+) ?[x×*]? ?{chip}\)?(?: each)?(?!\w)",
        _layout,
    )
    yield (
        rf"(?<![\w.])(?:(?P<count>\d+) ?[x×*]? ?)?(?P<chip>{named}){_AFTER_CHIP}(?: ?[x×*] ?(?P<count_>\d+))?"
        r"(?: ?gpus?)?(?!\w)",
        _chips,
    )
    yield r"(?<![\w.])(\d+) ?x? ?(?:gpus?|cards?|devices|workers|ranks)\b", _workers
    yield rf"(?<![\w.])(\d+) ?x? ?{NODES}\b", _nodes
    yield r"(?<=on )(\d+)(?= and)", _workers
    yield r"just as long|(?:the )?same (?:run ?)?time|(?:run ?)?time is the same|as long as", _set("alike", True)
    yield r"slow\w*|too long|(?:bad|poor|weak) scal\w+|(?:not|n't|no) (?:scal\w+|faster|speed-?up)", _set("slow", True)


def chip_named(text: str) -> Chip:
    """Return the chip that a text names; `InputError` for an unknown one."""
    for chip in sorted(chips(), key=lambda one: -len(one.pattern)):
        if re.fullmatch(rf"(?:{chip.pattern})", text, re.IGNORECASE):
            return chip
    raise InputError(f"{text} is no chip that is known; did you mean {_similar_names(text)}?")


@cache
def _compiled() -> list[tuple[re.Pattern[str], _Setter]]:
    return [(re.compile(pattern, re.IGNORECASE), take) for pattern, take in _terms()]


def read_setup(text: str) -> Setup:
    """Return the setup that a text describes; words that are not understood are in `Setup.unknown`."""
    setup, left = Setup(), counted_in_digits(re.sub(r"(?i)\bsingle(?!.precision)", "1", text))
    setup.mixed = _mixed(left)
    for pattern, take in _compiled():
        for found in pattern.finditer(left):
            before = setup.model
            if not any(len(digits) > 9 for digits in re.findall(r"\d+", found[0])):
                take(setup, found)
            end = " " if setup.model is before else _MODEL_END
            left = left[: found.start()] + " " * (len(found[0]) - 1) + end + left[found.end() :]
    setup.unknown = [word for word in re.findall(r"[\w.+/-]*\w", left) if not _IGNORED.fullmatch(word)]
    if (behind := re.search(rf"{_MODEL_END}[ -]?([\w.+/-]*\w)", left)) and behind[1] in setup.unknown:
        setup.variant = behind[1]
    _infer_nodes(setup)
    if setup.model and (setup.lora or setup.model.lora):
        setup.lora = True
        if not setup.model.lora and setup.model.kind == DECODER:
            model = setup.model
            setup.model = decoder(f"{model.name} LoRA", model.parameters, lora=True, active=model.active)
    return setup


@cache
def _chip_words() -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.])(?:\d+ ?[x×]? ?)?({'|'.join(f'(?:{one.pattern})' for one in chips())})(?!\w)", re.I)


def _mixed(text: str) -> bool:
    """Return whether a text names chips of two kinds in one sentence as parts of one job."""
    return any(
        chip_named(one[1]).name != chip_named(other[1]).name
        and not _CONTRAST.search(text[one.end() : other.start()])
        and not _COMPARED.search(_END.split(text[: one.start()])[-1] + _END.split(text[one.start() :])[0])
        for one, other in pairwise(_chip_words().finditer(text))
    )


_END = re.compile(r"[.!?\n]")
_COMPARED = re.compile(r"similar|better|compar|outperform|\bperforms\b|systems|paper|article|reported", re.IGNORECASE)
"""Words of sentences that compare chips."""
_CONTRAST = re.compile(r"[.!?\n]|\b(?:or|vs|versus|than|from|to|instead|against|while|but)\b", re.IGNORECASE)
"""Words between two chips that are compared."""


def _infer_nodes(setup: Setup) -> None:
    """Infer nodes and workers per node: a count of chips that divides a larger count is that of a node."""
    each = {count for count, _ in setup.chips if count}
    most = max(setup.counts, default=0)
    if setup.nodes is None and len(each) == 1 and (one := each.pop()) < most and most % one == 0:
        setup.nodes, setup.per_node = most // one, one
    elif setup.nodes and not setup.per_node and most and most % setup.nodes == 0:
        setup.per_node = most // setup.nodes


_IGNORED = re.compile(
    r"(?:on|with|and|of|in|x|a|an|the|over|per|each|ethernet|infiniband|ib|roce|nvlink|network|link|train\w*|nodes?|gpus?|"
    r"nvidia|amd|between|inside|deepspeed|pytorch|torch|nccl|model|full|fine-?tun\w*|pretrain\w*|tokens|s|at|by|using|"
    r"speed|data|parallel|instinct|geforce|pcie|imagenet(?:-\w+)?|coco|c4|openwebtext|wikitext|alpaca|imgsz)",
    re.IGNORECASE,
)
"""Known words that do not affect a rate."""


def misread_words(setup: Setup) -> list[str]:
    """Return a message for each unknown word that resembles a known one, or that may change the model."""
    near = {word: _similar_names(word) for word in setup.unknown if not word.isdigit()}
    messages = [f"{word} is not known; did you mean {known}?" for word, known in near.items() if known]
    if setup.variant and setup.model and not near.get(setup.variant):
        messages.append(f"{setup.variant} behind {setup.model.name}: another model? Give its size ({_EXAMPLE})")
    return messages


def _similar_names(word: str) -> str:
    names = [one.name for one in chips()] + [one.name for one in models()]
    known = [*names, *map(str, Sharding), *links(), *BARE]
    lower = {one.lower(): one for one in known}
    begun = [one for one in lower if one.startswith(word.lower())] if len(word) > 2 else []
    return " or ".join(lower[one] for one in begun[:2] or get_close_matches(word.lower(), lower, 2, 0.7))


BARE = ("bf16", "fp16", "fp32", "tf32", "fp8", "LoRA", "gloo")
