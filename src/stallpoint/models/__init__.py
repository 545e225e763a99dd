"""Models of what limits scaling: tidy tables in, model tables out. Nothing here reads or writes files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from stallpoint.models import amdahl, attribution, communication, data, matrix_products, prediction
from stallpoint.models.compute import Compute, layer_scaling
from stallpoint.models.measured import measured, over_ranks, presets
from stallpoint.records import FLAG, INT, MODEL_TABLES, REAL, TABLES, TEXT, Table


def fit(
    tidy: Mapping[str, pd.DataFrame],
    *,
    nodes: Sequence[int],
    threshold: float = 0.10,
    shared_links: Collection[str] = (),
    seed: int = 0,
) -> dict[str, pd.DataFrame]:
    """All model tables, by name, with the columns of `records.MODEL_TABLES`.

    `tidy` holds every tidy table by name, empty ones included; `nodes` are the node counts to predict beside the
    measured ones; a curve stalls where doubling the nodes gains less than `threshold` in throughput; storages
    in `shared_links` are reached over the link that carries the gradients. The same records and `seed` give the same
    numbers.
    """
    tidy = {name: _of_types(TABLES[name], frame) for name, frame in tidy.items()}
    iterations, layers = tidy["iterations"], tidy["layers"]
    steps = over_ranks(iterations, layers)
    points = measured(steps, seed)
    compute = Compute(iterations, layers, seed, matrix_products.kernels(tidy["sgemm"], seed))
    fits = communication.fit(tidy["collectives"], seed)
    training_data = data.TrainingData(tidy["runs"], iterations, tidy["storage_reads"], seed, shared_links)
    curves = prediction.Model(compute, fits, training_data, presets(tidy["runs"])).curves(points, nodes)
    rows = {
        "layer_scaling": layer_scaling(compute),
        "sgemm_speedup": matrix_products.sgemm_speedup(tidy["sgemm"], seed),
        "matrix_products": matrix_products.table(tidy["sgemm"], seed),
        "communication": communication.table(fits),
        "predictions": prediction.predictions(curves, steps),
        "layer_predictions": prediction.layer_predictions(curves, iterations, layers),
        "amdahl": amdahl.table(compute, curves, threshold),
        "causes": attribution.causes(curves),
        "stalling": attribution.stalling(curves, threshold),
        "storage_rates": data.storage_rates(tidy["storage_reads"], seed),
        "data_share": data.data_share(points),
    }
    return {table.name: _frame(table, rows[table.name]) for table in MODEL_TABLES}


def _frame(table: Table, rows: list[dict[str, object]]) -> pd.DataFrame:
    """Rows as a frame of exactly the columns of `table`, in their types even when there are no rows."""
    return _of_types(table, pd.DataFrame(rows, columns=[column.name for column in table.columns]))


def _of_types(table: Table, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame in the types of `table`: empty columns have none, categorical ones would group otherwise."""
    types = {TEXT: "str", INT: "int64", REAL: "float64", FLAG: "bool"}
    return frame.astype({column.name: types[column.type] for column in table.columns if column.type in types})
