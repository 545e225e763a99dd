"""Cost models at what they were not fitted to: matrix products at other b, all-reduces of other sizes.

b x 4096 · 4096 x 9216 (AlexNet's largest layer) is measured at all b in one job, with peak and bandwidth, by one thread
and by two; ours is fitted at `FITTED` and asked at `LEFT_OUT`, beside the roofline max(operations / peak, bytes /
bandwidth). Samples are interleaved, and the fastest third of each product counts, for the fit and for what it is held
against: other work on the machine only adds time. All-reduces over shared memory are fitted at every other size, in
pieces and as one line.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from paired import Timing

from stallpoint.base.statistics import estimate
from stallpoint.measure.jobs import sgemm
from stallpoint.models.terms import communication, matrix_products, piecewise_line
from stallpoint.study.kinds.collectives_kind import CollectivesCell

FITTED = (1, 2, 4, 16, 64, 256)
LEFT_OUT = (3, 5, 6, 7, 8, 10, 12, 14, 20, 24, 32, 33, 40, 48, 80, 96, 128, 192, 512)
SIZES = [2**power for power in range(10, 27)]
SAMPLES_PER_ROUND = 5
UNDISTURBED = 1 / 3
"""Part of the samples that counts, the fastest."""


def benchmark(scratch: Path, rounds: int) -> tuple[list[Timing], list[str]]:
    timings: list[Timing] = []
    lines: list[str] = []
    for threads in (1, 2):
        products = _products(threads, SAMPLES_PER_ROUND * rounds)
        timings += [
            Timing(
                "cost-models", f"sgemm {row.layer} b={row.worker_batch} threads={threads}", row.sample, row.seconds, 0
            )
            for row in products.itertuples()
        ]
        lines += list(_product_lines(_undisturbed(products), threads))
    return timings, [*lines, *_all_reduce_lines(scratch, SAMPLES_PER_ROUND * rounds)]


def _products(threads: int, samples: int) -> pd.DataFrame:
    """An sgemm table with the reference at all b and what tells about the machine."""
    torch.set_num_threads(threads)
    shapes = [
        *map(sgemm.reference, sorted((*FITTED, *LEFT_OUT))),
        *sgemm.machine(torch.device("cpu"), torch.float32, 512),
    ]
    frame = pd.DataFrame([
        {
            "cell": "benchmark", "network": "reference", "hardware": "here", "repeat": 1, "layer": shapes[place].layer,
            "layer_type": shapes[place].layer_type, "worker_batch": shapes[place].m, "m": shapes[place].m,
            "k": shapes[place].k, "n": shapes[place].n, "operations": 1, "sample": sample, "seconds": seconds,
        }
        for place, sample, seconds in sgemm.timed(shapes, samples, torch.device("cpu"))
    ])  # fmt: skip
    return frame.assign(gflops=2e-9 * frame["m"] * frame["k"] * frame["n"] / frame["seconds"])


def _undisturbed(products: pd.DataFrame) -> pd.DataFrame:
    """The fastest samples of each product."""
    of_each = products.groupby(["layer", "m"])["seconds"]
    return products[of_each.rank(method="first") <= np.ceil(UNDISTURBED * of_each.transform("count"))]


def _product_lines(products: pd.DataFrame, threads: int) -> Iterator[str]:
    asked = products[(products["layer"] == "reference") & products["worker_batch"].isin(LEFT_OUT)]
    known = products.drop(asked.index)
    machine = matrix_products.machine(known)
    assert machine is not None
    (shape,) = (shape for shape in matrix_products.shapes(known, seed=0) if shape.name == "reference")
    library = matrix_products.libraries(known, seed=0)["here"]
    curve = shape.curve(library)
    kernel = curve.kernel
    yield (
        f"  b x 4096 · 4096 x 9216, {threads} thread(s): peak {machine.peak / 1e9:.0f} GFLOP/s, "
        f"{machine.bandwidth / 1e9:.1f} GB/s, {'bent as rows is, ' if kernel == library.bent_kernel else ''}"
        f"{f'blocks of {kernel.block} rows, ' if kernel.block > 1 else ''}"
        f"{f'fewer than {kernel.min_rows} one by one, ' if kernel.min_rows else ''}"
        f"fitted at b = {', '.join(map(str, FITTED))}"
    )
    yield "      b   measured ms (p10-p90)      ours ms (90 %)             error   roofline ms   measured / roofline"
    errors, peers = [], []
    for b, rows in asked.groupby("worker_batch"):
        low, seconds, high = rows["seconds"].quantile([0.1, 0.5, 0.9])
        ours, lower, upper = estimate(curve(b)[:, 0])
        roofline = machine.roofline_seconds(b, 4096, 9216)
        errors.append(ours / seconds - 1)
        peers.append(seconds / roofline)
        yield (
            f"  {b:>5}   {seconds * 1e3:>7.2f} ({low * 1e3:.2f}-{high * 1e3:.2f})".ljust(38)
            + f"{ours * 1e3:>7.2f} ({lower * 1e3:.2f}-{upper * 1e3:.2f})".ljust(26)
            + f"{errors[-1]:>+7.1%}   {roofline * 1e3:>9.2f}   {peers[-1]:>10.2f}x"
        )
    yield (
        f"  left-out b: ours within {np.abs(errors).max():.1%} (median {np.median(np.abs(errors)):.1%}), wanted 10 %; "
        f"roofline off up to {max(peers):.1f}x"
    )


def _all_reduce_lines(scratch: Path, samples: int) -> Iterator[str]:
    cell = CollectivesCell(
        hardware="here", nodes=2, repeat=1, workers_per_node=1, device="cpu", threads_per_worker=1, seed=0,
        precision="float32", anonymise=True, backend="mpi", reduction="library", message_bytes=SIZES, samples=samples,
    )  # fmt: skip
    _run(cell, scratch / "collectives")
    rows = pd.read_parquet(scratch / "collectives" / "collectives.parquet")
    left_out = SIZES[1:-1:2]
    known = rows[~rows["message_bytes"].isin(left_out)]
    measured = (
        communication.message_seconds(rows, "collectives").groupby("message_bytes").median().loc[left_out].to_numpy()
    )
    (fits,) = communication.fit(known, seed=0).values()
    ours = communication.all_reduce_seconds(fits.fits_by_placement[2, 1], 2, left_out)[0]
    peer = _one_line(known, left_out)
    yield f"  all-reduce between 2 processes in shared memory, {len(left_out)} left-out sizes from 2 KiB to 32 MiB"
    count = len(fits.fits_by_placement[2, 1].line.starts)
    for name, predicted in ((f"ours, {count} piece(s)", ours), ("one line", peer)):
        errors = np.abs(predicted / measured - 1)
        yield f"    {name:<20} |error| median {np.median(errors):.1%}, largest {errors.max():.1%}"


def _one_line(rows: pd.DataFrame, sizes: Sequence[int]) -> np.ndarray:
    """α + β·m by the fit that a line gets where sizes are few."""
    medians = communication.message_seconds(rows, "collectives").groupby("message_bytes").median()
    design = np.column_stack([np.ones(len(medians)), medians.index])
    alpha, beta = piecewise_line.non_negative_fit(design, medians.to_numpy())
    return alpha + beta * np.array(sizes)


def _run(cell: CollectivesCell, folder: Path) -> None:
    mpirun = [str(Path(sys.executable).with_name("mpirun")), "--allow-run-as-root", "--oversubscribe"]
    command = [*mpirun, "-n", "2", sys.executable, "-m", "stallpoint.measure", cell.to_json(), str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
