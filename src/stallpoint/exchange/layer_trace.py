"""Layer-wise traces in the layout of Shi et al. (2018), section VI and Table VI.

A file holds the iterations of one run (100 in the published files), one after the other. An iteration has a line for
each layer, in forward order, with six columns: id, name, forward, backward, communication (microseconds) and size of
the gradients (bytes). Id 0 is the data layer; layers that learn nothing have neither communication nor size. The
paper prints the columns' names above them and shows times with up to six digits, as C++ writes them.

Not all that the layout leaves open can be told from the paper. Written are tabs between columns, and the names as
first line; read are any white space, with or without names above any iteration, and ``#`` before remarks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stallpoint.errors import InputError

COLUMNS = ("Id", "Name", "Forward", "Backward", "Comm.", "Size")


@dataclass(frozen=True)
class LayerTimes:
    """One layer in one iteration; times in s."""

    name: str
    forward: float
    backward: float = 0.0
    communication: float = 0.0
    gradient_bytes: int = 0


@dataclass(frozen=True)
class TracedIteration:
    """One iteration of one worker."""

    data_wait: float
    """What the data layer's forward pass took, s."""
    layers: Sequence[LayerTimes]
    """The network's own layers, in forward order."""


def to_text(iterations: Sequence[TracedIteration]) -> str:
    """The iterations as the text of a file."""
    return "\n".join(["\t".join(COLUMNS), *(line for iteration in iterations for line in _lines(iteration)), ""])


def from_text(text: str, path: str) -> list[TracedIteration]:
    """The iterations in the text of the file `path`; `InputError` names it and the line that is wrong."""
    iterations: list[list[LayerTimes]] = []
    last = 0
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#") or fields[0].lower() == "id":
            continue
        try:
            place, layer = _layer(fields)
            if place == 0:
                _complete(iterations)
                iterations.append([])
            elif not iterations or place != len(iterations[-1]):
                follows = f"{len(iterations[-1])} or 0 follows" if iterations else "an iteration begins with 0"
                raise ValueError(f"id {place}, but {follows}")
            _check(place, layer, iterations)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        iterations[-1].append(layer)
        last = number
    if not iterations:
        raise InputError(f"{path}: no layers; expected are lines of {', '.join(COLUMNS)}")
    try:
        _complete(iterations)
    except ValueError as error:
        raise InputError(f"{path}, line {last}: {error}") from None
    return [TracedIteration(data.forward, layers) for data, *layers in iterations]


def _lines(iteration: TracedIteration) -> Iterator[str]:
    for place, layer in enumerate([LayerTimes("data", iteration.data_wait), *iteration.layers]):
        times = (f"{1e6 * seconds:.6g}" for seconds in (layer.forward, layer.backward, layer.communication))
        yield "\t".join([str(place), layer.name, *times, str(layer.gradient_bytes)])


def _layer(fields: Sequence[str]) -> tuple[int, LayerTimes]:
    """Id and times of one line; raises `ValueError` in plain words."""
    if len(fields) != len(COLUMNS):
        raise ValueError(f"{len(fields)} columns, expected are {len(COLUMNS)}: {', '.join(COLUMNS)}")
    values = dict(zip(COLUMNS, fields, strict=True))
    forward, backward, communication = (_microseconds(values[name], name) for name in COLUMNS[2:5])
    return _whole(values["Id"], "Id"), LayerTimes(
        values["Name"], forward, backward, communication, _whole(values["Size"], "Size")
    )


def _microseconds(text: str, column: str) -> float:
    """Seconds from a text in microseconds."""
    try:
        seconds = float(text) / 1e6
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{column} is {text!r}, expected is a time in microseconds")
    return seconds


def _whole(text: str, column: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{column} is {text!r}, expected is a whole number")
    return int(text)


def _check(place: int, layer: LayerTimes, iterations: Sequence[Sequence[LayerTimes]]) -> None:
    """Raise `ValueError` unless the layer fits the layout and the first iteration."""
    if place == 0 and (layer.backward or layer.communication or layer.gradient_bytes):
        raise ValueError(f"id 0 is the data layer, which has a forward time alone; here it is {layer.name}")
    if layer.communication and not layer.gradient_bytes:
        raise ValueError(f"layer {layer.name} communicates, but the size of its gradients is 0")
    if len(iterations) == 1:
        return
    first = iterations[0][place] if place < len(iterations[0]) else None
    if first is None or (first.name, first.gradient_bytes) != (layer.name, layer.gradient_bytes):
        expected = f"{first.name} of {first.gradient_bytes} bytes" if first else "no further layer"
        raise ValueError(f"{layer.name} of {layer.gradient_bytes} bytes, but the first iteration has {expected} here")


def _complete(iterations: Sequence[Sequence[LayerTimes]]) -> None:
    """Raise `ValueError` where the last iteration has fewer layers than the first."""
    if iterations and len(iterations[-1]) < max(2, len(iterations[0])):
        raise ValueError(
            f"iteration {len(iterations)} ends after id {len(iterations[-1]) - 1}"
            + (f", the first one after {len(iterations[0]) - 1}" if len(iterations) > 1 else ": no layer but data")
        )
