"""Presets: named distributions of a step, each a strategy and its options.

`stallpoint.measure` executes a preset and `stallpoint.models` predicts it, through its strategy. New presets are
entries in `presets` of a strategy in `strategies.families`; a study defines its own under ``presets``. This module
imports no tensor library, so that the check of a study takes an instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from math import isfinite
from typing import Any, get_args, get_type_hints

from stallpoint.errors import InputError
from stallpoint.strategies.families import STRATEGIES
from stallpoint.strategies.options import SHARDED_SERVERS, SYNCHRONOUS, FamilyOptions, StepOptions, check_minimum
from stallpoint.strategies.strategy import Strategy

CHOICES: dict[str, dict[str, str]] = {
    "backend": {
        "mpi": "the site's MPI library",
        "mpi-copied": "the same; each message is copied into memory of its own before it is sent, as gRPC serialises, "
        "and what came out of it",
        "torch": "torch.distributed: NCCL between GPUs, Gloo between CPUs",
        "ddp": "PyTorch's DistributedDataParallel, which groups and starts by itself; fusion_bytes is its bucket size",
        "fsdp": "PyTorch's FSDP2 (fully_shard), block by block",
    },
    "reduction": {
        "library": "all-reduce by whatever algorithm the library takes",
        "ring": "all-reduce around a ring",
        "recursive-doubling": "all-reduce by exchanging whole buffers with partners 1, 2, 4, ... ranks away",
        "rabenseifner": "all-reduce as reduce-scatter by recursive halving and all-gather by recursive doubling",
        "binary-tree": "reduce to one rank along a binary tree, then broadcast along one",
        "parameter-server": "every gradient to one rank, which updates the weights and sends them back to each",
        "sharded-servers": "every rank is a server too: it adds its share of each message and sends the sums to each",
    },
    "start": {
        "after-backward": "communication begins after the whole backward pass",
        "layer-ready": "each message goes as soon as its gradients are complete (wait-free back-propagation)",
        "never": "gradients stay where they are, and every rank updates with its own: training without communication",
    },
    "grouping": {
        "layer": "one message for each layer",
        "fused": "layers wait for each other until fusion_bytes are together",
        "merged": "layers are merged where the latency saved outweighs the wait, by the α-β model",
        "block": "one message for each block of layers, and one for the layers outside of blocks; for fsdp alone",
    },
    "sharding": {one.value: one.meaning for one in STRATEGIES if one.choice == "sharding"},
    "hook": {
        "none": "DistributedDataParallel sums buckets as they are",
        "fp16": "its hook that sends them in half precision",
        "bf16": "its hook that sends them in bfloat16",
        "powersgd": "its hook that sends two factors of low rank (hook_rank), with error feedback",
    },
    "algorithm": {
        SYNCHRONOUS: "every iteration updates all workers with the gradient of the global mini-batch",
        **{one.value: one.meaning for one in STRATEGIES if one.choice == "algorithm"},
    },
    "server_optimiser": {
        "recipe": "the server updates with the optimiser of the run",
        "adagrad": "the server updates with Adagrad, its step that of the run",
    },
}
"""Choices of a preset: choice -> value -> meaning."""

_STRATEGY_BY_VALUE = {(one.choice, one.value): one for one in STRATEGIES}
_FIELDS = (
    "backend", "reduction", "servers", "start", "grouping", "fusion_bytes", "segment_bytes", "device_prefetch",
    "gradient_bits", "top_k",
)  # fmt: skip
"""Options that every cell's JSON has; options that were added later are omitted at their default."""
SHARED_KEYS = tuple(option.name for option in fields(StepOptions) if option.name != "own")
"""Options of all strategies; others belong to families."""
_FAMILY_OPTIONS = {option.name: option for one in STRATEGIES for option in fields(one.own)}


def default_of(option: str) -> Any:
    """Return the default of an option, which may belong to any family of strategies."""
    return _FAMILY_OPTIONS[option].default if option in _FAMILY_OPTIONS else getattr(StepOptions(), option)


@dataclass(frozen=True, slots=True)
class Preset(StepOptions):
    """Options for the distribution of a step (`CHOICES`). Raises `InputError` naming an option that does not fit."""

    def __post_init__(self) -> None:
        _check_choices({name: getattr(self, name) for name in SHARED_KEYS})
        if self.own == FamilyOptions():
            object.__setattr__(self, "own", type(self.strategy).own())
        self.family(type(self.strategy).own)
        if self.gradient_bits not in (8, 16, 32):
            raise InputError(f"gradient_bits: {self.gradient_bits} is not one of 8, 16, 32")
        if not 0 < self.top_k <= 1:
            raise InputError(f"top_k: {self.top_k} is not a share above 0 and at most 1")
        if not 0 <= self.momentum_correction < 1 or self.sparse_warmup < 0:
            raise InputError("momentum_correction: a number from 0 and below 1; sparse_warmup: a number of iterations")
        if self.top_k == 1 and (self.momentum_correction or self.sparse_warmup):
            raise InputError("top_k: a share below 1 goes with momentum_correction and sparse_warmup")
        if (self.fusion_bytes > 0) != (self.grouping == "fused"):
            raise InputError("fusion_bytes: a size above 0 and grouping: fused go together")
        if self.communicator == "torch" and self.reduction != "library":
            raise InputError(f"reduction: backend {self.backend} has only library, not {self.reduction}")
        if self.backend == "ddp" and (self.start, self.grouping, self.uncompressed) != ("layer-ready", "fused", True):
            raise InputError("backend: ddp goes with start: layer-ready, grouping: fused and uncompressed gradients")
        check_minimum(self, 1, "accumulate")
        self.strategy.check()
        if not self.communicates and replace(self, start="layer-ready", device_prefetch=False) != Preset():
            raise InputError("start: never goes only with device_prefetch, as nothing is sent")
        if self.segment_bytes < 0 or self.segment_bytes % 4 or (self.segment_bytes and self.communicator == "torch"):
            raise InputError("segment_bytes: a multiple of 4 bytes, only for backends mpi and mpi-copied")
        if self.servers < 0 or (self.servers and self.reduction != SHARDED_SERVERS):
            raise InputError(f"servers: a number of ranks, 0 for all, only for reduction: {SHARDED_SERVERS}")
        if self.reduction == "parameter-server" and not self.lossless:
            raise InputError("reduction: a parameter-server sends weights back, so gradients are sent uncompressed")
        if self.reduction != "library" and not self.lossless:
            raise InputError(
                f"reduction: {self.reduction} sums uncompressed gradients; compressed ones are exchanged by "
                "all-to-all and all-gather, so they go with library"
            )

    @property
    def strategy(self) -> Strategy:
        return _strategy_class(self.algorithm, self.sharding)(self)

    @property
    def operations(self) -> tuple[str, ...]:
        """Return the collective operations that the preset uses, a part of `OPERATIONS`."""
        return self.strategy.operations if self.communicates else ()

    @property
    def synchronous(self) -> bool:
        """Return whether all ranks hold the same weights after each iteration."""
        return self.strategy.synchronous

    @property
    def shares_batches(self) -> bool:
        """Return whether the weights depend only on the global mini-batch, not on the number of workers."""
        return self.synchronous and self.lossless

    @property
    def exact(self) -> bool:
        """Return whether training gives the weights that one worker with the global mini-batch would get."""
        return self.shares_batches and not self.own.delays

    @property
    def exact_on_one(self) -> bool:
        """Return whether a single worker's weights are exact; with one worker, no strategy is asynchronous."""
        return self.lossless and not self.own.delays


def _check_choices(values: Mapping[str, Any]) -> None:
    for choice, known in CHOICES.items():
        if choice in values and values[choice] not in known:
            raise InputError(f"{choice}: {values[choice]!r} is not one of {', '.join(known)}")


def _strategy_class(algorithm: str, sharding: str) -> type[Strategy]:
    return _STRATEGY_BY_VALUE.get(("algorithm", algorithm), _STRATEGY_BY_VALUE["sharding", sharding])


def _preset_of(values: Mapping[str, Any]) -> Preset:
    """Return the preset with the options `values`; raise `InputError` for an option that the strategy does not have."""
    _check_choices(values)
    common_values = {name: value for name, value in values.items() if name in SHARED_KEYS}
    selection = {"algorithm": SYNCHRONOUS, "sharding": "none"} | common_values
    strategy = _strategy_class(selection["algorithm"], selection["sharding"])
    family_names = {option.name for option in fields(strategy.own)}
    family_values = {name: value for name, value in values.items() if name in family_names}
    for name, value in values.items():
        if name not in common_values and name not in family_values and value != default_of(name):
            owning_strategies = [one for one in STRATEGIES if name in {option.name for option in fields(one.own)}]
            choice, known = owning_strategies[0].choice, " and ".join(one.value for one in owning_strategies)
            raise InputError(f"{name}: applies to {choice} {known}, not to {selection[choice]}")
    return Preset(**common_values, own=strategy.own(**family_values))


@dataclass(frozen=True, slots=True)
class KnownPreset:
    """A preset with its description and source."""

    preset: Preset
    description: str
    source: str
    look: tuple[str, str]
    """Colour and shape in charts."""
    alias_of: str = ""
    """Name of the preset for which this is another name."""


NONE = "none"
"""Name of the preset without communication, which compute cells on one worker have, too."""


def _known_presets() -> dict[str, KnownPreset]:
    found: dict[str, KnownPreset] = {}
    for one in STRATEGIES:
        own_choice: dict[str, Any] = {} if one.value == getattr(StepOptions(), one.choice) else {one.choice: one.value}
        for name, entry in one.presets.items():
            preset = found[entry.alias_of].preset if entry.alias_of else _preset_of({**own_choice, **entry.choices})
            found[name] = KnownPreset(preset, entry.description, entry.source, entry.look, entry.alias_of)
    return found


PRESETS = _known_presets()
"""Presets that every study can use, by name."""


def presets_of(config: Mapping[str, Mapping[str, Any]]) -> dict[str, Preset]:
    """Return `PRESETS` and the study's own presets, by name. Raises `InputError` naming a wrong entry of the study.

    `config` maps a new preset's name to ``like``, the name of an earlier preset, and to options that are changed.
    """
    presets = {name: known.preset for name, known in PRESETS.items()}
    for name, entry in config.items():
        entry_name = f"presets.{name}"
        if name in PRESETS:
            raise InputError(f"{entry_name}: that name is taken; presets of the study need names of their own")
        changed_values = {key: value for key, value in entry.items() if key != "like"}
        check_types(changed_values, entry_name)
        if entry["like"] not in presets:
            raise InputError(f"{entry_name}.like: no preset {entry['like']!r}; known so far: {', '.join(presets)}")
        try:
            presets[name] = with_options(presets[entry["like"]], changed_values)
        except InputError as error:
            raise InputError(f"{entry_name}.{error}") from None
    return presets


def check_types(values: Mapping[str, Any], entry_name: str) -> None:
    """Raise `InputError` for a value of the wrong type; unknown options are not checked here."""
    for name in values.keys() & _OPTION_TYPES.keys():
        value, types = values[name], get_args(_OPTION_TYPES[name]) or (_OPTION_TYPES[name],)
        if type(value) not in types and not (float in types and type(value) is int):
            raise InputError(f"{entry_name}.{name}: {value!r} is no {' or '.join(one.__name__ for one in types)}")
        if isinstance(value, float) and not isfinite(value):
            raise InputError(f"{entry_name}.{name}: {value!r} is no number")


_OPTION_TYPES = get_type_hints(StepOptions)
for _family in STRATEGIES:
    _OPTION_TYPES |= get_type_hints(_family.own)
del _OPTION_TYPES["own"]


def options_of(preset: Preset) -> dict[str, Any]:
    """Return all options of a preset, including the options of its family."""
    return {name: getattr(preset, name) for name in SHARED_KEYS} | asdict(preset.own)


def with_options(preset: Preset, changes: Mapping[str, Any]) -> Preset:
    """Return `preset` with some options changed; raise `InputError` naming an option that does not fit."""
    return preset_from({**options_of(preset), **changes})


def to_values(preset: Preset) -> dict[str, Any]:
    """Return the options that a cell stores: all of `_FIELDS`, and other options that differ from their defaults."""
    return {name: value for name, value in options_of(preset).items() if name in _FIELDS or value != default_of(name)}


def preset_from(values: Mapping[str, Any]) -> Preset:
    """Return the preset with the options that a cell stores; raise `InputError` for an unknown option."""
    names = (*SHARED_KEYS, *_FAMILY_OPTIONS)
    if unknown_names := sorted(set(values) - set(names)):
        raise InputError(f"preset: unknown {', '.join(unknown_names)}; known: {', '.join(names)}")
    return _checked_preset(**values)


@lru_cache(maxsize=None, typed=True)
def _checked_preset(**values: Any) -> Preset:
    """Return the preset from a cache, because its checks take long and many cells have the same preset."""
    return _preset_of(values)
