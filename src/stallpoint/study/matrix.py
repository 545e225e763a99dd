"""The training cells of a study: the combinations of ``matrix`` that are not excluded, and the cells of ``include``.

A study excludes combinations by conditions, which have only columns, comparisons and boolean words: ``network ==
'alexnet' and nodes > 8``, ``hardware in ['k80', 'v100'] or not sync == 'naive'``, ``1 < nodes <= 4``. The syntax is a
subset of Python's; nothing is run as Python.

The last part makes imported cells: training runs and all-reduces in files that hardware entries name.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import count, product, takewhile
from typing import Any, TypeAlias

from stallpoint.errors import InputError
from stallpoint.inputs.all_reduce_logs import FORMATS
from stallpoint.inputs.layer_trace import LAYER_TRACE
from stallpoint.networks import NETWORKS
from stallpoint.strategies.families.averaging_family import AveragingOptions
from stallpoint.strategies.options import ALL_REDUCE
from stallpoint.strategies.presets import NONE, PRESETS, Preset, preset_from, to_values
from stallpoint.strategies.strategy import RequestedTraining
from stallpoint.study.catalogue import SCRIPT_STORAGE, Catalogue, staging
from stallpoint.study.cells import Cell
from stallpoint.study.job_kind import as_list
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell, ImportedTrainCell
from stallpoint.study.kinds.intervention_kind import NO_COMMUNICATION, InterventionCell, possible
from stallpoint.study.kinds.train_kind import TrainCell

AXES = ("network", "hardware", "nodes", "workers_per_node", "batch", "storage", "scaling", "sync", "prefetch")
_NUMBER_COLUMNS = ("nodes", "workers_per_node", "batch", "prefetch", "worker_batch", "ranks")
COLUMNS = {**dict.fromkeys(AXES, str), **dict.fromkeys(_NUMBER_COLUMNS, float)}
"""Columns that conditions may have, with their types."""
MAX_QUOTED = 80
"""Largest number of characters of a wrong condition that an error quotes."""
_NO_STORAGE = {"path": "", "format": "", "stage": False}
BLOCK_SETTINGS = ("iterations", "warmup", "repeats", "interventions", "readers")


@dataclass(frozen=True)
class Exclusion:
    """An excluded combination of the matrix, and the reason."""

    axes: Mapping[str, Any]
    reason: str


def training_cells(
    config: Mapping[str, Any], catalogue: Catalogue
) -> tuple[dict[str, TrainCell], tuple[Exclusion, ...]]:
    """Return the training cells of ``matrix`` and ``include`` by path, and the excluded combinations of both."""
    train: dict[str, TrainCell] = {}
    excluded: list[Exclusion] = []
    for combination in _without_excluded(_combinations(config, catalogue), config, excluded):
        if reason := impossible(combination, catalogue):
            excluded.append(Exclusion(combination, reason))
            continue
        for cell in _with_interventions(combination, config, catalogue):
            train.setdefault(cell.path, cell)
    for entry in config["include"]:
        combination = {**{name: config[name] for name in BLOCK_SETTINGS}, **full(entry, catalogue)}
        if reason := impossible(combination, catalogue):
            excluded.append(Exclusion(combination, reason))
            continue
        cells = list(_with_interventions(combination, config, catalogue))
        for path in takewhile(train.__contains__, _repeats(cells[0])):
            del train[path]
        train |= {cell.path: cell for cell in cells}
    return train, tuple(excluded)


def _combinations(config: Mapping[str, Any], catalogue: Catalogue) -> Iterator[dict[str, Any]]:
    """Yield every combination of the matrix."""
    for block in config["matrix"]:
        settings = {name: block.get(name, config[name]) for name in BLOCK_SETTINGS}
        settings |= {"visits": block["visits"]} if "visits" in block else {}
        axes = [axis for axis in AXES if axis in block]
        for values in product(*(as_list(block[axis]) for axis in axes)):
            yield {**full(dict(zip(axes, values, strict=True)), catalogue), **settings}


def full(axes: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Return `axes` completed by defaults: the hardware's workers on each node, and a script's own data as storage."""
    per_node = catalogue.hardware[axes["hardware"]]["workers_per_node"]
    return {"workers_per_node": per_node, "storage": SCRIPT_STORAGE, **axes}


def _ranks(combination: Mapping[str, Any]) -> int:
    return int(combination["nodes"] * combination["workers_per_node"])


def _worker_batch(combination: Mapping[str, Any], ranks: int) -> int:
    """Return b, the mini-batch of one of the `ranks` workers."""
    batch: int = combination["batch"]
    return batch if combination["scaling"] == "weak" else batch // ranks


def _without_excluded(
    combinations: Iterable[dict[str, Any]], config: Mapping[str, Any], excluded: list[Exclusion]
) -> Iterator[dict[str, Any]]:
    """Yield the combinations that meet no condition under ``exclude``; append each that meets one to `excluded`."""
    conditions = {text: _condition(index, text) for index, text in enumerate(config["exclude"])}
    for combination in combinations:
        row = _row(combination) if conditions else {}
        if met_condition := next((text for text, meets in conditions.items() if meets(row)), ""):
            excluded.append(Exclusion(combination, f"excluded: {met_condition}"))
        else:
            yield combination


def _condition(index: int, text: str) -> Callable[[Row], bool]:
    try:
        return condition(text, COLUMNS)
    except InputError as error:
        raise InputError(f"exclude[{index}]: {text[:MAX_QUOTED]!r}: {error}") from None


def _row(combination: Mapping[str, Any]) -> Row:
    """Return the values of a combination that conditions compare, by column (`COLUMNS`)."""
    ranks = _ranks(combination)
    axes = {axis: combination[axis] for axis in AXES}
    return {**axes, "ranks": ranks, "worker_batch": _worker_batch(combination, ranks)}


def impossible(combination: Mapping[str, Any], catalogue: Catalogue) -> str | None:
    """Return why a combination cannot run; None if it can."""
    if unfit_reason := catalogue.unfit_reasons.get((combination["network"], combination["storage"])):
        return unfit_reason
    hardware = catalogue.hardware[combination["hardware"]]
    batch, ranks = combination["batch"], _ranks(combination)
    if combination["scaling"] != "compute":
        for axis, noun in (("nodes", "nodes"), ("workers_per_node", "workers on a node")):
            if combination[axis] > hardware[axis]:
                return f"{combination[axis]} {noun}, but hardware {combination['hardware']} has {hardware[axis]}"
    if combination["scaling"] != "weak":
        if batch < ranks:
            return f"b < 1: batch {batch} on {ranks} workers"
        if batch % ranks:
            return f"batch {batch} is not divisible by {ranks} workers"
    worker_batch = _worker_batch(combination, ranks)
    if combination["scaling"] != "compute" and (reason := _preset_impossible(combination, catalogue, worker_batch)):
        return reason
    network = NETWORKS.get(combination["network"])
    if network and worker_batch < network.smallest_batch:
        return f"b = {worker_batch}, but network {network.name} trains on {network.smallest_batch} samples at least"
    return None


def _preset_impossible(combination: Mapping[str, Any], catalogue: Catalogue, batch: int) -> str | None:
    """Return why a combination's preset cannot train with a mini-batch of `batch` on each worker; None if it can."""
    name = combination["sync"]
    preset = catalogue.presets[name]
    if batch % preset.accumulate:
        return f"b = {batch} is not divisible by the {preset.accumulate} parts of preset {name} (accumulate)"
    network, placement = combination["network"], (combination["nodes"], combination["workers_per_node"])
    request = RequestedTraining(
        name, placement, batch, network, NETWORKS.get(network), command=network in catalogue.commands
    )
    return preset.strategy.impossible(request) or None


def _with_interventions(
    combination: Mapping[str, Any], config: Mapping[str, Any], catalogue: Catalogue
) -> Iterator[TrainCell]:
    """Yield the cells of a combination, and then these cells with each intervention."""
    cells = list(_cell_of_each_repeat(combination, config, catalogue))
    yield from cells
    for cell in cells if combination["network"] not in catalogue.commands else ():
        yield from intervention_cells(cell, combination["interventions"])


def _cell_of_each_repeat(
    combination: Mapping[str, Any], config: Mapping[str, Any], catalogue: Catalogue
) -> Iterator[TrainCell]:
    """Yield a cell for each repeat of a combination. Compute cells have one worker and the preset ``none``."""
    storage = catalogue.storage.get(combination["storage"], _NO_STORAGE)
    is_compute = combination["scaling"] == "compute"
    if not is_compute:
        _check_rounds(combination, catalogue)
    placement = {axis: 1 if is_compute else combination[axis] for axis in ("nodes", "workers_per_node")}
    own_visits = {"visits": combination["visits"], "visits_fixed": True} if "visits" in combination else {}
    common_fields = catalogue.common(combination["hardware"], **placement, **own_visits)
    worker_batch = _worker_batch(combination, _ranks(combination))
    preset = to_values(Preset() if is_compute else catalogue.presets[combination["sync"]])
    command = catalogue.commands.get(combination["network"])
    kind = partial(CommandCell, **command) if command else TrainCell
    for repeat in range(1, combination["repeats"] + 1):
        yield kind(
            network=combination["network"],
            batch=worker_batch if is_compute else combination["batch"],
            storage=combination["storage"],
            scaling=combination["scaling"],
            sync=NONE if is_compute else combination["sync"],
            prefetch=combination["prefetch"],
            repeat=repeat,
            worker_batch=worker_batch,
            iterations=combination["iterations"],
            warmup=combination["warmup"],
            readers=combination["readers"],
            storage_path=storage["path"],
            storage_format=storage["format"],
            preset=preset,
            own_network=catalogue.own_networks.get(combination["network"]),
            **staging(storage),
            **common_fields,
        )


def _check_rounds(combination: Mapping[str, Any], catalogue: Catalogue) -> None:
    """Raise `InputError` unless a visit has a whole number of the preset's periods, such as 8 steps of local SGD."""
    sync, iterations = combination["sync"], combination["iterations"]
    preset = catalogue.presets[sync]
    if isinstance(preset.own, AveragingOptions) and preset.own.synchronous_steps:
        raise InputError(
            f"sync: preset {sync} changes in the course of training, so that it has no throughput of its own: measure "
            "one without synchronous_steps, and train to a target (convergence) with this one"
        )
    if iterations % preset.own.rounds:
        raise InputError(
            f"iterations: {iterations}, but preset {sync} does the same again after {preset.own.rounds} iterations; a "
            "multiple of that is needed for its mean"
        )


def _repeats(cell: TrainCell) -> Iterator[str]:
    """Yield the paths of the cell's repeats 1, 2, 3, ... without end."""
    folder = cell.path.rsplit("/", 1)[0]
    return (f"{folder}/repeat~{repeat}" for repeat in count(1))


def intervention_cells(cell: TrainCell, names: Iterable[str]) -> Iterator[TrainCell]:
    """Yield a cell for each intervention in `names` that is possible on `cell`.

    The cell without communication is an ordinary training cell; presets that differ only in communication share it.
    """
    if cell.scaling == "compute":
        return
    for name in names:
        if not possible(name, preset_from(cell.preset), cell.ranks):
            continue
        if name == NO_COMMUNICATION:
            yield replace(cell, sync=NONE, preset=to_values(PRESETS[NONE].preset))
        else:
            same_fields = {one.name: getattr(cell, one.name) for one in fields(cell)}
            yield InterventionCell(**same_fields, intervention=name)


# --- conditions by which a study excludes combinations --------------------------------------------

Column: TypeAlias = str | float
Row: TypeAlias = Mapping[str, Column]

MAX_LENGTH = 1000
"""Largest number of characters of a condition."""
_ORDER_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUALITY_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_MEMBERSHIP_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}
_SYNTAX = "wanted is a comparison of columns with values, such as nodes > 8 and network == 'alexnet'"


def condition(text: str, columns: Mapping[str, type]) -> Callable[[Row], bool]:
    """Return the function that decides whether a row meets the condition `text`.

    `columns` maps columns to types: `str` for names, `float` for numbers. `InputError` says what is wrong.
    """
    if len(text) > MAX_LENGTH:
        raise InputError(f"a condition of {len(text):,} characters; at most {MAX_LENGTH:,}")
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InputError(f"not a condition; {_SYNTAX}") from None
    return _boolean_test(node, columns)


def _boolean_test(node: ast.expr, columns: Mapping[str, type]) -> Callable[[Row], bool]:
    if isinstance(node, ast.BoolOp):
        parts = [_boolean_test(part, columns) for part in node.values]
        combine = all if isinstance(node.op, ast.And) else any
        return lambda row: combine(part(row) for part in parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        operand_test = _boolean_test(node.operand, columns)
        return lambda row: not operand_test(row)
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        comparisons = [_relation(*one, columns) for one in zip(sides[:-1], node.ops, sides[1:], strict=True)]
        return lambda row: all(pair(row) for pair in comparisons)
    raise InputError(f"{_shortened(node)} is neither true nor false; {_SYNTAX}")


def _relation(lhs: ast.expr, operator_: ast.cmpop, rhs: ast.expr, columns: Mapping[str, type]) -> Callable[[Row], bool]:
    left_value, left_type = _side_value(lhs, columns)
    if type(operator_) in _MEMBERSHIP_OPERATORS:
        return _membership_test(left_value, left_type, _MEMBERSHIP_OPERATORS[type(operator_)], rhs)
    compare = {**_ORDER_OPERATORS, **_EQUALITY_OPERATORS}.get(type(operator_))
    right_value, right_type = _side_value(rhs, columns)
    if compare is None:
        raise InputError(f"{_shortened(lhs)} and {_shortened(rhs)} are compared by an unknown operator; {_SYNTAX}")
    if left_type is not right_type:
        raise InputError(
            f"{_shortened(lhs)} is {_KINDS[left_type]}, {_shortened(rhs)} is {_KINDS[right_type]}: they are never equal"
        )
    if left_type is str and type(operator_) in _ORDER_OPERATORS:
        raise InputError(f"{_shortened(lhs)} is a name: it can be == or != another, or in a list of names")
    return lambda row: compare(left_value(row), right_value(row))


def _membership_test(
    left_value: Callable[[Row], Column], left_type: type, compare: Callable[[Any, Any], bool], right_node: ast.expr
) -> Callable[[Row], bool]:
    if not isinstance(right_node, ast.List | ast.Tuple | ast.Set):
        raise InputError(f"{_shortened(right_node)} is no list of values, such as ['alexnet', 'googlenet'] or [1, 2]")
    values = []
    for one in right_node.elts:
        value, value_type = _side_value(one, {})
        if value_type is not left_type:
            raise InputError(f"{_shortened(one)} is {_KINDS[value_type]}, which is compared with {_KINDS[left_type]}")
        values.append(value({}))
    return lambda row: compare(left_value(row), values)


_KINDS = {str: "a name", float: "a number"}


def _side_value(node: ast.expr, columns: Mapping[str, type]) -> tuple[Callable[[Row], Column], type]:
    """Return the function that computes one side of a comparison from a row, and the type of the function's value."""
    if isinstance(node, ast.Name):
        if node.id not in columns:
            raise InputError(f"no column {node.id}; columns are {', '.join(columns)}")
        name = node.id
        return lambda row: row[name], columns[name]
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, str) and sign == 1:
            return lambda row: value, str
        if isinstance(value, int | float) and not isinstance(value, bool):
            return lambda row: sign * value, float
    raise InputError(f"{_shortened(node)} is neither a column nor a value; {_SYNTAX}")


def _shortened(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else f"{text[:37]}..."


# --- cells of imported measurements ---------------------------------------------------------------

_CELL_FIELDS = tuple(one.name for one in fields(Cell))


def imported_cells(catalogue: Catalogue) -> Iterator[Cell]:
    """Yield the imported cells of all hardware entries; cells that have equal axes become repeats 1, 2, ..."""
    repeats: Counter[str] = Counter()
    for cell in _cells_as_first_repeats(catalogue):
        repeats[cell.path] += 1
        yield replace(cell, repeat=repeats[cell.path])


def _cells_as_first_repeats(catalogue: Catalogue) -> Iterator[Cell]:
    for hardware, entry in catalogue.hardware.items():
        traced_cells = [
            _train_cell(catalogue, hardware, trace, f"hardware.{hardware}.traces[{index}]")
            for index, trace in enumerate(entry.get("traces", []))
        ]
        for cell in traced_cells:
            yield cell
            if cell.ranks > 1:
                yield from _collectives_of(cell, entry.get("collectives", []))
                yield from _isolated_workers(cell, traced_cells)
        for index, log in enumerate(entry.get("collectives", [])):
            yield _collectives_cell(catalogue, hardware, log, f"hardware.{hardware}.collectives[{index}]")


def _collectives_cell(
    catalogue: Catalogue, hardware: str, log: Mapping[str, Any], position: str
) -> ImportedCollectivesCell:
    common_fields = catalogue.common(hardware, nodes=log["nodes"], repeat=1, visits=1, **_workers_per_node(log))
    if log["nodes"] * common_fields["workers_per_node"] == 1:
        raise InputError(f"{position}: one worker has nothing to all-reduce")
    return ImportedCollectivesCell(
        files=[log["file"]],
        format=log["format"],
        backend=log.get("backend", FORMATS[log["format"]].backend),
        reduction=log["reduction"],
        **common_fields,
    )


def _collectives_of(cell: ImportedTrainCell, logs: Sequence[Mapping[str, Any]]) -> Iterator[Cell]:
    """Yield a cell for the all-reduces of a traced run, unless one of the `logs` has the same placement."""
    preset = preset_from(cell.preset)
    if ALL_REDUCE not in preset.operations or any(
        (log["nodes"], log.get("workers_per_node", cell.workers_per_node)) == cell.placement for log in logs
    ):
        return
    common_fields = {name: getattr(cell, name) for name in _CELL_FIELDS}
    yield ImportedCollectivesCell(
        files=cell.files,
        format=LAYER_TRACE,
        backend=preset.communicator,
        reduction=preset.scheme,
        warmup=cell.warmup,
        **common_fields,
    )


def _isolated_workers(cell: ImportedTrainCell, traced_cells: Sequence[ImportedTrainCell]) -> Iterator[Cell]:
    """Yield a compute cell for each traced worker of a run, as if the worker trained alone; predictions use the cells.

    Of a network's runs at mini-batch b, only those on fewest workers yield cells: fewer workers slow each other less.
    """
    same_cells = (one for one in traced_cells if (one.network, one.worker_batch) == (cell.network, cell.worker_batch))
    if min(one.ranks for one in same_cells) < cell.ranks:
        return
    for file in cell.files:
        yield replace(
            cell, nodes=1, workers_per_node=1, scaling="compute", batch=cell.worker_batch,
            sync=NONE, preset=to_values(Preset()), files=[file], iteration_time=None, isolated=True,
        )  # fmt: skip


def _workers_per_node(entry: Mapping[str, Any]) -> dict[str, int]:
    """Return the field ``workers_per_node`` of an imported entry; empty if the hardware entry's value holds."""
    return {"workers_per_node": entry["workers_per_node"]} if "workers_per_node" in entry else {}


def _train_cell(catalogue: Catalogue, hardware: str, trace: Mapping[str, Any], position: str) -> ImportedTrainCell:
    is_compute, batch = trace["scaling"] == "compute", trace["batch"]
    workers = {"workers_per_node": 1} if is_compute else _workers_per_node(trace)
    common_fields = catalogue.common(hardware, nodes=1 if is_compute else trace["nodes"], repeat=1, visits=1, **workers)
    ranks = common_fields["nodes"] * common_fields["workers_per_node"]
    if trace["scaling"] == "strong" and batch % ranks:
        raise InputError(f"{position}: batch {batch} is not divisible by {ranks} workers")
    if trace["prefetch"] and "read" not in trace:
        raise InputError(
            f"{position}: missing read: with prefetch > 0 the files say how long the worker waited for its mini-batch, "
            "not how long reading it from the storage took, s"
        )
    if len(as_list(trace["files"])) > ranks:
        raise InputError(f"{position}.files: {len(trace['files'])} files, one for each rank, but {ranks} worker(s)")
    if trace["warmup"] >= trace["iterations"]:
        raise InputError(f"{position}: warmup: {trace['warmup']} leaves none of the {trace['iterations']} iterations")
    preset = Preset() if is_compute else catalogue.presets[trace["sync"]]
    if preset.grouping != "layer":
        raise InputError(
            f"{position}.sync: the files say how long each layer communicates, and {trace['sync']} groups layers"
        )
    return ImportedTrainCell(
        **{axis: trace[axis] for axis in ("network", "batch", "storage", "scaling", "prefetch")},
        sync=NONE if is_compute else trace["sync"],
        preset=to_values(preset),
        own_network=None,
        worker_batch=batch // ranks if trace["scaling"] == "strong" else batch,
        iterations=trace["iterations"] - trace["warmup"],
        warmup=trace["warmup"],
        readers=1,
        storage_path="",
        storage_format="",
        files=as_list(trace["files"]),
        read=trace.get("read"),
        host_to_device=trace["host_to_device"],
        update=trace["update"],
        iteration_time=trace.get("iteration_time"),
        **common_fields,
    )
