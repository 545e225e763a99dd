"""All questions in reading order. A new question is a module with a function ``section``, and an entry here.

Other packages add questions by the entry point ``stallpoint.sections``, named like the question's section.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from stallpoint.base.section import Absence, Section
from stallpoint.questions import (
    answer_question,
    cells_question,
    claims_question,
    communication_question,
    costs_question,
    curves_question,
    data_question,
    external_question,
    interventions_question,
    memory_question,
    remedies_question,
    targets_question,
    timing_question,
    trust_question,
    validation_question,
)
from stallpoint.questions.study_tables import StudyTables

QUESTIONS: Mapping[str, Callable[[StudyTables], Section]] = {
    "answer": answer_question.section,
    "targets": targets_question.section,
    "cost-and-failures": costs_question.section,
    "external": external_question.section,
    "curves": curves_question.section,
    "communication-cost": communication_question.section,
    "storages": data_question.section,
    "memory-fit": memory_question.section,
    "interventions": interventions_question.section,
    "remedies": remedies_question.section,
    "sure": trust_question.section,
    "validation-table": validation_question.section,
    "timing": timing_question.section,
    "claims": claims_question.section,
    "cells": cells_question.section,
}
ENTRY_POINTS = "stallpoint.sections"


def sections(study: StudyTables) -> Iterator[Section]:
    """Yield the section of each question. If a question raises an error, its section says so, and the others follow."""
    added = {one.name: _loaded(one) for one in entry_points(group=ENTRY_POINTS)}
    for name, question in {**QUESTIONS, **added}.items():
        try:
            yield question(study)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            message = f"This question could not be answered: {type(error).__name__}: {error}"
            yield Section(name, name.capitalize(), "Data", message, absence=Absence.FAILED)


def _loaded(point: EntryPoint) -> Callable[[StudyTables], Section]:
    """Return a question of another package. Its module is imported only when the question is asked."""
    return lambda study: point.load()(study)
