"""Batch scripts in the forms that others publish: what is said of each is true, and what is wrong in it is said."""

from __future__ import annotations

from pathlib import Path

from scripts_of_others import SCRIPTS, Script

from stallpoint.explain import script_answers
from stallpoint.inputs import batch_scripts
from stallpoint.inputs.documents import Document


def said(script: Script) -> list[str]:
    document = Document(Path("job.sh"), script.text)
    assert batch_scripts.recognised(document)
    return [cause.name for cause in script_answers.answer("job.sh", batch_scripts.read(document)).causes]


def test_most_of_what_is_said_of_scripts_of_others_is_true_and_most_mistakes_are_said() -> None:
    flags = [(one, name) for one in SCRIPTS for name in said(one)]
    mistakes = [(one, name) for one in SCRIPTS for name in one.mistakes]
    false = [(one.form, name) for one, name in flags if name not in one.mistakes]
    missed = [(one.form, name) for one, name in mistakes if (one, name) not in flags]
    tally = (
        f"{len(SCRIPTS)} scripts: {len(flags) - len(false)} of {len(flags)} flags are true (false: {false}), "
        f"{len(mistakes) - len(missed)} of {len(mistakes)} mistakes are found (missed: {missed})"
    )
    print(tally)
    assert len(false) <= 0.1 * len(flags), tally
    assert len(missed) <= 0.2 * len(mistakes), tally
