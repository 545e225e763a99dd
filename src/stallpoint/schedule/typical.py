"""Typical durations of visits without measurements: by `study.work` and a quick look at files.

No tensor library is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stallpoint.errors import InputError
from stallpoint.networks import NETWORKS
from stallpoint.records import parquet
from stallpoint.records.tables import NETWORK_LAYERS
from stallpoint.storage import FORMATS, SampleSet
from stallpoint.storage.idx import IdxImages
from stallpoint.storage.images import EncodedImages
from stallpoint.study import work
from stallpoint.study.cells import Cell
from stallpoint.study.work import Known, Size


def size_of(network: str, own: Mapping[str, Any] | None, descriptions: Path) -> Size:
    """Return the size of a network of the registry, or of the study's `own`, by `descriptions` of an earlier run.

    A network without a description counts as ResNet-50 for images of its size, or as 12 million weights for each token.
    """
    if own is None and network in NETWORKS:
        return Size(NETWORKS[network].multiply_adds, NETWORKS[network].gradient_bytes)
    file = descriptions / f"{network}.parquet"
    if file.exists():
        rows = parquet.read(NETWORK_LAYERS, file).to_pydict()
        return Size(float(sum(rows["multiply_adds"])), float(sum(rows["gradient_bytes"])))
    entry = own or {}
    if "sequence_length" in entry:
        return Size(12e6 * entry["sequence_length"], 4 * 12e6, known=False)
    resnet = NETWORKS["resnet50"]
    part = (entry.get("image_size", 224) / 224) ** 2
    return Size(part * resnet.multiply_adds, resnet.gradient_bytes, known=False)


def seconds(
    cell: Cell, size: Size | None, cores: int | None = None, samples: Mapping[str, int] = MappingProxyType({})
) -> float:
    """Return the typical duration of one visit to a measured cell, s.

    `size` is that of its network, if it has one; `samples` holds the known numbers of samples by storage. All ranks
    share `cores` on one machine; with None every rank has as many cores as the study's threads. Ranks with a GPU always
    do, as a machine with several GPUs has the cores for them.
    """
    crowd = max(1.0, cell.ranks * cell.threads_per_worker / cores) if cores and cell.device == "cpu" else 1.0
    held, path = getattr(cell, "storage_format", ""), getattr(cell, "storage_path", "")
    return cell.seconds(Known(size, crowd, lambda storage: samples.get(storage) or _epoch(held, path), _sample(held)))


@cache
def _epoch(name: str, path: str) -> int:
    """Return the number of samples of a storage without a manifest, from its files if they tell it quickly."""
    try:
        known = IdxImages.count(Path(path)) if FORMATS.get(name) is IdxImages else None
    except InputError:  # which the job will report
        known = None
    return known or work.EPOCH_SAMPLES


def _sample(name: str) -> float:
    """Return the time that a reader takes for a sample of a format, s."""
    held = FORMATS.get(name, SampleSet)
    if issubclass(held, IdxImages):
        return work.SAMPLE_SMALL
    return work.SAMPLE_ENCODED if issubclass(held, EncodedImages) else work.SAMPLE_DECODED
