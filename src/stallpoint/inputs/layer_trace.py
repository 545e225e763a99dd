"""Layer-wise traces in the layout of Shi et al. (2018), section VI and Table VI.

A file holds the iterations of one run (100 in the published files), one after the other. An iteration has a line for
each layer, in forward order, with six columns: id, name, times of the forward pass, the backward pass and communication
(microseconds), and size of the gradients (bytes). Id 0 is the data layer. Layers without parameters have communication
and size 0. The paper prints a heading with the names of the columns, and times with up to six digits, as in C++.

The paper leaves parts of the layout open. `to_text` separates columns by tabs and writes the heading in the first line.
`from_lines` accepts any white space, a heading above any iteration or none, and skips lines that begin with ``#``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stallpoint.errors import InputError
from stallpoint.text import read_number

LAYER_TRACE = "layers"
"""The name of the layout in the configuration."""
COLUMNS = ("Id", "Name", "Forward", "Backward", "Comm.", "Size")
_MAX_AMOUNT = 1e15
"""Bound of times in µs and sizes in bytes: thirty years, a petabyte."""


@dataclass(frozen=True)
class TracedLayer:
    """One layer in one iteration of a trace; times are in s."""

    name: str
    forward: float
    backward: float = 0.0
    communication: float = 0.0
    gradient_bytes: int = 0


@dataclass(frozen=True)
class TracedIteration:
    """One iteration of one worker in a trace."""

    data_wait: float
    """Time of the data layer's forward pass, s."""
    layers: Sequence[TracedLayer]
    """The layers of the network, in forward order."""


def to_text(iterations: Sequence[TracedIteration]) -> str:
    """Return the text of a file with these iterations."""
    return "\n".join(["\t".join(COLUMNS), *(line for iteration in iterations for line in _lines(iteration)), ""])


def from_text(text: str, path: str) -> list[TracedIteration]:
    """Return the iterations in the text of the file `path`; see `from_lines`."""
    return list(from_lines(text.splitlines(), path))


def from_lines(lines: Iterable[str], path: str) -> Iterator[TracedIteration]:
    """Yield the iterations in the lines of the file `path`; `InputError` names the file and the wrong line."""
    first_layers: list[TracedLayer] = []
    layers: list[TracedLayer] = []
    count = last_line = 0
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#") or fields[0].lower() == "id":
            continue
        with _named(path, number):
            index, layer = _layer(fields)
            if index == 0 and count:
                _check_complete(layers, first_layers, count)
                first_layers = first_layers or layers
            elif index != 0 and (not count or index != len(layers)):
                expectation = f"{len(layers)} or 0 follows" if count else "an iteration begins with 0"
                raise ValueError(f"id {index}, but {expectation}")
            _check_layer(index, layer, first_layers)
        if index == 0:
            if count:
                yield TracedIteration(layers[0].forward, layers[1:])
            layers, count = [], count + 1
        layers.append(layer)
        last_line = number
    if not count:
        raise InputError(f"{path}: no layers; expected are lines of {', '.join(COLUMNS)}")
    with _named(path, last_line):
        _check_complete(layers, first_layers, count)
    yield TracedIteration(layers[0].forward, layers[1:])


@contextmanager
def _named(path: str, line: int) -> Iterator[None]:
    """Turn a `ValueError` in the block into an `InputError` that names the file and the line."""
    try:
        yield
    except ValueError as error:
        raise InputError(f"{path}, line {line}: {error}") from None


def _lines(iteration: TracedIteration) -> Iterator[str]:
    for index, layer in enumerate([TracedLayer("data", iteration.data_wait), *iteration.layers]):
        times = (f"{1e6 * seconds:.6g}" for seconds in (layer.forward, layer.backward, layer.communication))
        yield "\t".join([str(index), layer.name, *times, str(layer.gradient_bytes)])


def _layer(fields: Sequence[str]) -> tuple[int, TracedLayer]:
    """Return the id and the layer of one line; `ValueError` says why the line is invalid."""
    if len(fields) != len(COLUMNS):
        raise ValueError(f"{len(fields)} columns, expected are {len(COLUMNS)}: {', '.join(COLUMNS)}")
    values = dict(zip(COLUMNS, fields, strict=True))
    forward, backward, communication = (_microseconds(values[name], name) for name in COLUMNS[2:5])
    return _integer(values["Id"], "Id"), TracedLayer(
        values["Name"], forward, backward, communication, _integer(values["Size"], "Size")
    )


def _microseconds(text: str, column: str) -> float:
    """Return the time in s from a text with a number of microseconds."""
    value = read_number(text)
    if not 0 <= value <= _MAX_AMOUNT:
        raise ValueError(f"{column} is {text!r}, expected is a time in microseconds")
    return value / 1e6


def _integer(text: str, column: str) -> int:
    value = read_number(text) if text.isascii() and text.isdigit() else math.nan
    if not value <= _MAX_AMOUNT:
        raise ValueError(f"{column} is {text!r}, expected is a whole number")
    return int(text)


def _check_layer(index: int, layer: TracedLayer, first_layers: Sequence[TracedLayer]) -> None:
    """Raise `ValueError` if a layer is invalid, or differs from layer `index` of the first iteration."""
    if index == 0 and (layer.backward or layer.communication or layer.gradient_bytes):
        raise ValueError(f"id 0 is the data layer, which has a forward time alone; here it is {layer.name}")
    if layer.communication and not layer.gradient_bytes:
        raise ValueError(f"layer {layer.name} communicates, but the size of its gradients is 0")
    if not first_layers:
        return
    model = first_layers[index] if index < len(first_layers) else None
    if model is None or (model.name, model.gradient_bytes) != (layer.name, layer.gradient_bytes):
        expected = f"{model.name} of {model.gradient_bytes} bytes" if model else "no further layer"
        raise ValueError(f"{layer.name} of {layer.gradient_bytes} bytes, but the first iteration has {expected} here")


def _check_complete(layers: Sequence[TracedLayer], first_layers: Sequence[TracedLayer], count: int) -> None:
    """Raise `ValueError` if iteration number `count` has fewer layers than the first, or only the data layer."""
    if len(layers) < max(2, len(first_layers)):
        raise ValueError(
            f"iteration {count} ends after id {len(layers) - 1}"
            + (f", the first one after {len(first_layers) - 1}" if count > 1 else ": no layer but data")
        )
