"""Batch scripts in the forms that others publish: what is said of each is true, and what is wrong in it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts_of_others import SCRIPTS, Script

from stallpoint.inputs.documents import Document
from stallpoint_files.jobs import batch_scripts, script_answers


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


HEAD = "#SBATCH --nodes=2\n#SBATCH --gres=gpu:v100:4,nvme:100\n"


@pytest.mark.parametrize(
    ("body", "starts"),
    [
        ("srun -N2 -l torchrun --standalone -m t", ["srun", "torchrun"]),
        ("A=(-l --ntasks 2)\nsrun \"${A[@]}\" python3.11 -u t.py", ["srun", "python"]),
        ("A='python t.py' # not 'B'\nsrun bash -lc \"cd x && $A\" > out.txt 2>&1", ["srun", "bash", "python"]),
        ("srun singularity exec --nv -B /a a.sif torchrun t.py", ["srun", "singularity exec", "torchrun"]),
        ("L=torchrun\nif [ -n \"$X\" ]; then\n  L=python\nfi\nsrun $L t.py", []),
        ("srun ${UNKNOWN} python t.py", []),
        ("srun ./run.sh", []),
        ("cat > job.sh <<EOF\nsrun python t.py\nEOF\n", []),
        ("head=$(srun -n1 python t.py)", []),
    ],
)  # fmt: skip
def test_a_command_is_taken_apart_as_a_shell_would_and_else_it_is_not_understood(body: str, starts: list[str]) -> None:
    commands = batch_scripts.read(Document(Path("job.sh"), HEAD + body)).commands
    assert [one.name for command in commands if command.understood for one in command.starts] == starts


def test_a_script_that_is_not_understood_is_not_called_free_of_mistakes() -> None:
    document = Document(Path("job.sh"), HEAD + "srun ./run.sh\n")
    found = script_answers.answer("job.sh", batch_scripts.read(document))
    assert "line 3 is not understood" in found.words


def test_a_launcher_may_start_another_on_each_node_and_no_more_often() -> None:
    one, many = (Script("", "nodes=2", f"mpirun -np {n} torchrun --nproc-per-node=8 train.py\n") for n in (2, 16))
    assert set(said(many)) - set(said(one)) == {"launcher_in_launcher"}


def test_gpus_are_those_of_the_entry_for_gpus() -> None:
    document = Document(Path("job.sh"), HEAD + "srun python t.py\n")
    (cause,) = script_answers.answer("job.sh", batch_scripts.read(document)).causes
    assert "all 4 GPUs" in cause.words
