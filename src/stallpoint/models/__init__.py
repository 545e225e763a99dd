"""Models of what limits scaling: tidy tables in, model tables out. Nothing here reads or writes files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from stallpoint.models import amdahl, attribution, communication, data, prediction
from stallpoint.models.compute import Compute, layer_scaling, sgemm_speedup
from stallpoint.models.frames import frame, of_types
from stallpoint.models.measured import measured, over_ranks, presets
from stallpoint.models.scaling import curves as scaling_curves
from stallpoint.records import MODEL_TABLES, TABLES


def fit(
    tidy: Mapping[str, pd.DataFrame], *, nodes: Sequence[int], threshold: float = 0.10, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """All model tables, by name, with the columns of `records.MODEL_TABLES`.

    `tidy` holds every tidy table by name, empty ones included; `nodes` are the node counts to predict beside the
    measured ones; a curve stalls where doubling the nodes gains less than `threshold` in throughput. The same
    records and `seed` give the same numbers.
    """
    tidy = {name: of_types(TABLES[name], rows) for name, rows in tidy.items()}
    iterations, layers = tidy["iterations"], tidy["layers"]
    steps = over_ranks(iterations, layers)
    points = measured(steps, seed)
    compute = Compute(iterations, layers, seed)
    fits = communication.fit(tidy["collectives"], seed)
    training_data = data.TrainingData(tidy["runs"], iterations, tidy["storage_reads"], seed)
    curves = prediction.Model(compute, fits, training_data, presets(tidy["runs"])).curves(points, nodes)
    rows = {
        "layer_scaling": layer_scaling(compute),
        "sgemm_speedup": sgemm_speedup(tidy["sgemm"], seed),
        "communication": communication.table(fits),
        "predictions": prediction.predictions(curves, steps),
        "layer_predictions": prediction.layer_predictions(curves, iterations, layers),
        "amdahl": amdahl.table(compute, curves, threshold),
        "causes": attribution.causes(curves),
        "stalling": attribution.stalling(curves, threshold),
        "storage_rates": data.storage_rates(tidy["storage_reads"], seed),
        "data_share": data.data_share(points),
        "rates": scaling_curves.rates(curves),
        "scaling_laws": scaling_curves.scaling_laws(curves),
    }
    return {table.name: frame(table, rows[table.name]) for table in MODEL_TABLES}
