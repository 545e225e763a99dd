"""All model tables from all tidy tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from stallpoint.base.frames import Tables
from stallpoint.models.answers import (
    amdahl,
    causes,
    controls,
    costs,
    feeding,
    fits,
    next_cells,
    remedies,
    stalling,
    time_to_accuracy,
    utilisation,
)
from stallpoint.models.answers.fitted import FittedStudy, Question, QuestionSettings
from stallpoint.models.convergence import early_stopping, noise_scale, staleness, steps
from stallpoint.models.iteration import curve_points
from stallpoint.models.terms import communication, data, matrix_products, peaks
from stallpoint.models.terms.compute import layer_scaling
from stallpoint.records import tables as records
from stallpoint.records.tables import MODEL_TABLES

TERM_QUESTIONS = (
    Question(records.LAYER_SCALING, lambda fitted: layer_scaling(fitted.compute, fitted.reduced.counts)),
    Question(
        records.SGEMM_SPEEDUP, lambda fitted: matrix_products.sgemm_speedup(fitted.tidy["sgemm"], fitted.asked.seed)
    ),
    Question(records.COMMUNICATION, lambda fitted: communication.table(fitted.links)),
    Question(
        records.PREDICTIONS,
        lambda fitted: curve_points.predictions(fitted.curves, fitted.reduced.training_cells.steps),
    ),
    Question(
        records.LAYER_TIMES,
        lambda fitted: curve_points.layer_times(fitted.curves, fitted.reduced.training_cells.first_ranks),
    ),
    Question(records.MEDIAN_ITERATIONS, lambda fitted: fitted.median_rows[0]),
    Question(records.MEDIAN_LAYERS, lambda fitted: fitted.median_rows[1]),
    Question(records.DISTURBANCES, lambda fitted: fitted.disturbed),
    Question(
        records.STORAGE_RATES,
        lambda fitted: data.storage_rates(
            fitted.tidy["storage_reads"], fitted.tidy["storage_passes"], fitted.asked.seed
        ),
    ),
    Question(records.COPY_RATES, lambda fitted: data.copy_rates(fitted.tidy["copies"], fitted.asked.seed)),
    Question(records.DATA_SHARE, lambda fitted: data.data_share(fitted.points_by_curve)),
    Question(records.RATES, lambda fitted: curve_points.rates(fitted.training_curves)),
    Question(records.MEMORY, lambda fitted: peaks.table(fitted.memory)),
    Question(records.STEPS_TO_TARGET, lambda fitted: steps.table(fitted.to_target, fitted.asked.threshold)),
    Question(records.NOISE_SCALE, lambda fitted: noise_scale.table(fitted.grad_norms, fitted.asked.seed)),
    Question(
        records.CRITICAL_BATCHES,
        lambda fitted: noise_scale.critical_batches(fitted.to_target, fitted.noise_scale_of, fitted.asked.threshold),
    ),
    Question(
        records.EARLY_STOPPING,
        lambda fitted: early_stopping.table(
            fitted.tidy["convergence"], fitted.tidy["convergence_runs"], fitted.asked.seed
        ),
    ),
    Question(records.STALENESS_SHARES, lambda fitted: staleness.shares(fitted.tidy["staleness"])),
    Question(records.WORKER_STALENESS, lambda fitted: staleness.workers(fitted.tidy["staleness"], fitted.asked.seed)),
)
"""Tables of the terms of predictions, computed by `terms` and `iteration`."""
ANSWER_MODULES = (
    amdahl, causes, controls, costs, feeding, fits, next_cells, remedies, stalling, time_to_accuracy,
    utilisation,
)  # fmt: skip
"""Modules with `QUESTIONS`."""
QUESTIONS = {one.table.name: one for one in (*TERM_QUESTIONS, *(one for at in ANSWER_MODULES for one in at.QUESTIONS))}


def fit(
    tidy: Mapping[str, pd.DataFrame], parts: Iterable[Mapping[str, Any]] | None = None, **asked: Any
) -> Mapping[str, pd.DataFrame]:
    """Return all model tables by name, with the columns of `records.MODEL_TABLES`; each is computed when first read.

    `tidy` holds every tidy table by name, also empty ones. Tables in `training_cells.COLUMNS` may come as `parts`
    of complete cells, as from `parquet.frames_of_cells`, so that they need not fit into memory. `asked` are the fields
    of `QuestionSettings`, of which `nodes` is required. Equal records and ``seed`` give equal numbers.
    """
    fitted = FittedStudy(tidy, parts, QuestionSettings(**asked))
    return Tables(MODEL_TABLES, {name: partial(question.rows, fitted) for name, question in QUESTIONS.items()})
