"""Matrix products of a network's layers, measured on one worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

from typing_extensions import override

from stallpoint.records.tables import SGEMM
from stallpoint.study import work
from stallpoint.study.cells import LATER, Cell
from stallpoint.study.job_kind import JobKind, RequestedCells, as_list


@dataclass(frozen=True, slots=True)
class SgemmCell(Cell):
    """Timing of the matrix products in a network's layers (Keuper & Pfreundt, Table III)."""

    kind: ClassVar[str] = "sgemm"
    axes: ClassVar[tuple[str, ...]] = ("network", "hardware", "repeat")

    network: str
    batches: list[int]
    """Worker's mini-batches b for which products are timed."""
    samples: int
    """Number of timed products of each shape in a visit."""
    own_network: dict[str, Any] | None
    reference: list[int] | None = field(default=None, kw_only=True, metadata=LATER)
    """Depth and number of columns of the reference product; None: `work.REFERENCE_PRODUCT`."""

    @property
    def size(self) -> Sequence[int]:
        """Size of the reference product: first its depth, then its number of columns."""
        return self.reference or work.REFERENCE_PRODUCT

    @override
    def seconds(self, properties: work.KnownProperties) -> float:
        assert properties.size
        products_of_sample = properties.size.multiply_adds + prod(self.size)
        multiply_adds = products_of_sample * sum(self.batches) + work.MACHINE_PRODUCTS
        rate = (
            work.CUDA_RATES[self.precision]
            if self.device == "cuda"
            else work.CPU_PRODUCTS_RATE * self.threads_per_worker
        )
        return work.VISIT + (1 + self.samples) * 2 * multiply_adds * properties.crowd / rate


def called_for(request: RequestedCells, repeat: int) -> Iterator[SgemmCell]:
    """Yield a cell for each pair of a network and a hardware entry on which the study trains the network."""
    section = request.config["sgemm"]
    for network, hardware in dict.fromkeys((cell.network, cell.hardware) for cell in request.timed):
        if network in section.get("networks", [network]):
            yield SgemmCell(
                network=network,
                batches=sorted(as_list(section["batches"])),
                samples=section["samples"],
                reference=section.get("reference"),
                own_network=request.own_networks.get(network),
                **request.common("sgemm", hardware, (1, 1), repeat),
            )


KIND = JobKind(SgemmCell, "measure.jobs.sgemm:measure", (SGEMM,), "sgemm cells", "orange", "sgemm", called_for)
