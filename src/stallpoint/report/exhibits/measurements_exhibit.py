"""Inputs of the DAG model: sizes, bandwidths and times (Shi et al., Table V)."""

from __future__ import annotations

import pandas as pd

from stallpoint.records.origins import in_words
from stallpoint.records.tables import SERIES
from stallpoint.report.exhibits import Made, Material, Missing
from stallpoint.report.exhibits.study_material import SHI_NETWORKS, lacking, rows
from stallpoint.report.typeset import Typeset

CELLS = "train cells on two workers or more that communicate"
KEY = [column.name for column in SERIES]
POINT = [*KEY, "nodes", "ranks"]
NAMES = {
    "worker_batch": "b", "bandwidth_io": "B_io", "read_from": "read", "data_bytes": "D", "predicted_data": "t_io",
    "copy": "t_h2d", "predicted_forward": "t_f", "predicted_backward": "t_b", "predicted_communication": "t_c",
}  # fmt: skip
UNITS = {
    "worker_batch": "samples", "bandwidth_io": "B/s", "data_bytes": "B",
    "predicted_data": "s", "copy": "s", "predicted_forward": "s", "predicted_backward": "s",
    "predicted_communication": "s",
}  # fmt: skip
MEANING = (
    "B_io: bandwidth at which the storage is read, all nodes together, a cache's where it says so; "
    "D: bytes of a worker's mini-batch as stored; "
    "t_io: reading and decoding it; t_h2d: copying it to the device, measured itself, so that no B_pcie is needed; "
    "t_f, t_b, t_c: forward, backward and all-reduce of all layers (each layer's in Table VI). Published: Shi et al. "
    "(2018), Table V, which says how each is measured and gives no values."
)


def table(material: Material) -> Made:
    """Return a row for each curve, at the fewest workers that communicate."""
    frame = rows(material, "predictions", SHI_NETWORKS, CELLS)
    communicates = (frame["predicted_communication"] > 0) | (frame["measured_communication"] > 0)
    frame = frame[(frame["ranks"] > 1) & ~frame["extrapolated"].astype(bool) & communicates]
    if frame.empty:
        raise Missing(f"no {CELLS} of {' or '.join(SHI_NETWORKS)}")
    first = frame.sort_values(POINT, kind="stable").drop_duplicates(KEY)
    first = first.merge(_storage(material), on=["storage", "hardware", "nodes"], how="left")
    first = first.merge(_copies(material), on=POINT, how="left")
    first["data_bytes"] = first["sample_bytes"] * first["worker_batch"]
    columns = ["network", "hardware", "storage", "scaling", "sync", "prefetch", "nodes", "ranks", "worker_batch"]
    values = ["bandwidth_io", "read_from", "data_bytes", *(n for n in NAMES if n.startswith("predicted")), "copy"]
    shown = first[[*columns, *values]]
    caption = "Measurements that the DAG model predicts from."
    return Made(
        Typeset(shown, caption, "tab:shi-2018-table-5", UNITS, NAMES, (MEANING,)),
        lacking(frame, SHI_NETWORKS, CELLS),
    )


def _storage(material: Material) -> pd.DataFrame:
    """Return the bandwidth of shuffled reads by one reader from the coldest source, that source, and the size of a
    sample."""
    rates = material.tables["storage_rates"]
    rates = rates[(rates["order"] == "shuffled") & (rates["readers"] == 1)].sort_values("resident", kind="stable")
    rates = rates.drop_duplicates(["storage", "hardware", "nodes"])
    size = rates["bytes_per_second"] / rates["samples_per_second"]
    came = [in_words(row["origin"], row["server_cache"]) for row in rates.to_dict("records")]
    return rates[["storage", "hardware", "nodes"]].assign(
        bandwidth_io=rates["bytes_per_second"], read_from=came, sample_bytes=size
    )


def _copies(material: Material) -> pd.DataFrame:
    parts = material.tables["critical_path"]
    parts = parts[(parts["part"] == "host-to-device") & (parts["basis"] == "measured")]
    return parts[POINT].assign(copy=parts["seconds"])
