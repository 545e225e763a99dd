"""Published rates against what `stallpoint expect` says without them.

usage: expect.py RUNS.csv LAYOUTS.csv [--learn] [--mlsysim] (MLPerf's runs as of `time_to_target`; a table of layouts as
of `public_tables`: model, nodes, mbs, gradacc, gbs, dp, pp, tp, zero, tokens_per_s_gpu; with the package mlsysim, what
it says of the layouts of 8B, with the part of the peak that it takes itself)

A round's own published rates are not used for its rows. Reported apart from rounds v2.0 and v5.0: v0.7, v4.0, of 1B and
8B the fastest layout of each number of nodes and mini-batch, and all other layouts. They were in sight when the numbers
of `Spreads` were set: `peak` so that ends are four times apart, others near what ``--learn`` finds on v2.0 and v5.0.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from time_to_target import samples

from stallpoint.errors import InputError
from stallpoint_files.setups.catalog import DECODER
from stallpoint_files.setups.expectation import SPREADS, Expectation, Spreads, expectation
from stallpoint_files.setups.words import Sharding, read_setup

CHOSEN_ON = ("v2.0", "v5.0")
TARGET = "wanted: 85 % inside, median width (upper over lower end) at most 4"
MODELS = {
    "resnet": "resnet-50", "bert": "bert-large", "gpt3": "gpt-3", "llama2_70b_lora": "llama 2 70b lora",
    "llama31_405b": "llama 3.1 405b", "stable_diffusion": "stable diffusion", "retinanet": "retinanet",
    "unet3d": "3d u-net", "ssd": "retinanet",
}  # fmt: skip
"""Benchmarks whose operations for a sample are known; ``ssd`` is RetinaNet from v1.1 on."""


@dataclass(frozen=True)
class Row:
    """A published rate."""

    source: str
    words: str
    workers: int
    per_node: int
    rate: float
    """Of each worker: samples/s, of decoders tokens/s."""


def of_runs(file: str) -> Iterator[Row]:
    runs = pd.read_csv(file)
    runs = runs.assign(rate=samples(runs) / (60 * runs["minutes"]))[runs["devices"] > 0]
    key = ["round", "submitter", "system", "chip", "benchmark", "devices", "nodes", "global_batch"]
    for of, rate in runs.groupby(key)["rate"].median().items():
        of_round, _, _, chip, benchmark, devices, nodes, batch = of
        if benchmark in MODELS and (benchmark, of_round) != ("ssd", "v0.7") and rate > 0:
            words = f"{MODELS[benchmark]}, {chip}, gbs {batch:.0f}"
            if benchmark == "gpt3":
                words += ", sequences of 2048"
            named = read_setup(words)
            if named.model and named.chip and named.model.kind == DECODER and "fp8" in named.chip.peaks:
                words += ", fp8"
            yield Row(of_round, words, int(devices), round(devices / max(nodes, 1)) or 1, rate / devices)


def of_layouts(file: str) -> Iterator[Row]:
    rows = pd.read_csv(file)
    fastest = set(rows.groupby(["model", "nodes", "gbs"])["tokens_per_s_gpu"].idxmax())
    for row in rows.itertuples():
        words = (
            f"{row.model}, bf16, zero {row.zero}, h100, mbs {row.mbs}, gradient accumulation steps {row.gradacc}, "
            f"tp {row.tp}, pp {row.pp}, sequences of 4096, 8xhdr"
        )
        source = row.model if row.Index in fastest else f"{row.model}, other layouts"
        yield Row(source, words, 8 * row.nodes, 8, row.tokens_per_s_gpu)


def expected(row: Row, spreads: Spreads = SPREADS) -> Expectation | None:
    """What is expected of it; None where model or chip are not known."""
    setup = read_setup(row.words)
    setup.nodes, setup.per_node, setup.counts = max(row.workers // row.per_node, 1), row.per_node, [row.workers]
    try:
        return expectation(setup, spreads=spreads, without=f"Training {row.source}")
    except InputError:
        return None


def judged(rows: Sequence[Row], spreads: Spreads = SPREADS) -> np.ndarray:
    """Lower end, median, upper end over the published rate of each row that is given; [rows, 3]."""
    found = [(one, row) for row in rows if (one := expected(row, spreads))]
    return np.array([np.array(one.rate) / row.workers / row.rate for one, row in found]).reshape(-1, 3)


def line(name: str, rows: Sequence[Row], spreads: Spreads = SPREADS) -> str:
    ends = judged(rows, spreads)
    if not len(ends):
        return f"  {name:<28} 0 of {len(rows)} given"
    width, off = np.median(ends[:, 2] / ends[:, 0]), np.median(np.exp(np.abs(np.log(ends[:, 1]))))
    inside = ((ends[:, 0] <= 1) & (ends[:, 2] >= 1)).mean()
    return (
        f"  {name:<28} {len(ends):>4} of {len(rows):>4} given, {inside:.0%} inside, width {width:.1f}, median off "
        f"{off:.2f} times, too high {(ends[:, 0] > 1).mean():.0%}, too low {(ends[:, 2] < 1).mean():.0%}"
    )


def loss(rows: Sequence[Row], spreads: Spreads) -> float:
    """Interval score of logarithms (Gneiting & Raftery 2007) at 90 %, each source as much as another."""
    total = 0.0
    for source in {row.source for row in rows}:
        low, _, high = np.log(judged([row for row in rows if row.source == source], spreads)).T
        total += float((high - low + 20 * np.maximum(low, 0) + 20 * np.maximum(-high, 0)).clip(max=40).mean())
    return total


def learn(rows: Sequence[Row]) -> Spreads:
    """The numbers with the least loss, one after the other in steps that get shorter."""
    best = SPREADS
    least = loss(rows, best)
    for step in (1.5, 1.2):
        for change in changes():
            for factor in (step, 1 / step):
                while (found := loss(rows, tried := change(best, factor))) < least - 1e-3:
                    best, least = tried, found
    return best


def changes() -> Iterator[Callable[[Spreads, float], Spreads]]:
    for name in ("near", "faster"):
        yield lambda of, factor, name=name: replace(of, **{name: getattr(of, name) * factor})
    yield lambda of, factor: replace(of, start=replace(of.start, median=of.start.median * factor))


def beside_mlsysim(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how far MLSys·im's rates of Llama 3 8B are from the published ones, and the medians of `expect`."""
    mlsysim, solvers, types = map(importlib.import_module, ("mlsysim", "mlsysim.solvers", "mlsysim.systems.types"))
    systems, model = mlsysim.Systems, mlsysim.Models.Language.Llama3_8B
    for source in ("8B", "8B, other layouts"):
        ratios = []
        for row in rows:
            if row.source != source or not (one := expected(row)):
                continue
            setup, count = one.setup, row.workers // row.per_node
            fleet = types.Fleet(
                name="", node=systems.Nodes.DGX_H100, count=count, fabric=systems.Fabrics.InfiniBand_NDR
            )
            step = solvers.DistributedModel().solve(
                model, fleet, round(one.step_samples / 4096), tp_size=setup.tensor, pp_size=setup.pipeline,
                microbatch_count=setup.accumulation, zero_stage=int(setup.strategy == Sharding.ZERO_1), seq_len=4096,
            ).step_latency_total.m_as("s")  # fmt: skip
            ratios.append((one.step_samples / step / row.workers / row.rate, one.rate[1] / row.workers / row.rate))
        off = np.exp(np.abs(np.log(ratios)))
        for name, of in zip(("MLSys·im", "expect"), off.T, strict=True):
            far = f"median off {np.median(of):.2f} times, {(of < 2).mean():.0%} within a factor of 2"
            yield f"  {source:<18} {name:<9} {len(of)} given, {far}"


def main(names: Sequence[str]) -> None:
    rows = [*of_runs(names[0]), *of_layouts(names[1])]
    spreads = SPREADS
    if "--learn" in names:
        chosen = [row for row in rows if row.source in CHOSEN_ON]
        spreads = learn(chosen[:: max(len(chosen) // 150, 1)])
        print("chosen:", spreads)
    for source in sorted({row.source for row in rows}):
        of_source = [row for row in rows if row.source == source]
        print(line(f"{source}{'' if source in CHOSEN_ON else ' (reported)'}", of_source, spreads))
    print(line("all (without other layouts)", [row for row in rows if "other" not in row.source], spreads))
    for benchmark in dict.fromkeys(MODELS.values()):
        print(line(benchmark, [row for row in rows if row.words.startswith(f"{benchmark},")], spreads))
    print(TARGET)
    if "--mlsysim" in names:
        print(*beside_mlsysim(rows), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
