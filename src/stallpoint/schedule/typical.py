"""Typical durations of visits that no machine has measured yet: `study.work`, and what files say at a glance.

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
    """The size of a network: of the registry, or the study's `own`, as described in `descriptions` by an earlier run.

    A network that was not described yet counts like ResNet-50 for images of its size, or like 12 million weights for
    each token.
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
    """Typical duration of one visit to a cell that is measured, s.

    `size` is that of its network, if it has one; `samples` are those of each storage, as far as they are known. All
    ranks share `cores`, where they are on one machine; None: every rank has the cores that the study says. So has one
    with a GPU: a machine of so many GPUs has cores for them.
    """
    crowd = max(1.0, cell.ranks * cell.threads_per_worker / cores) if cores and cell.device == "cpu" else 1.0
    held, path = getattr(cell, "storage_format", ""), getattr(cell, "storage_path", "")
    return cell.seconds(Known(size, crowd, lambda storage: samples.get(storage) or _epoch(held, path), _sample(held)))


@cache
def _epoch(name: str, path: str) -> int:
    """Samples of a storage that was not looked through yet, where its files say it at a glance."""
    try:
        known = IdxImages.count(Path(path)) if FORMATS.get(name) is IdxImages else None
    except InputError:  # which the job will say
        known = None
    return known or work.EPOCH_SAMPLES


def _sample(name: str) -> float:
    """Seconds that a reader takes for a sample of a format."""
    held = FORMATS.get(name, SampleSet)
    if issubclass(held, IdxImages):
        return work.SAMPLE_SMALL
    return work.SAMPLE_ENCODED if issubclass(held, EncodedImages) else work.SAMPLE_DECODED
