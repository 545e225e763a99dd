"""Steps that are a sum of phases: which phase stops, planted; parts inside of parts; what is taken out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stallpoint.base.section import Finding
from stallpoint.base.statistics import estimate
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options
from stallpoint_files.phases.phase_laws import PhaseTimes
from stallpoint_files.phases.phased_steps import PhasedSteps, PhaseKind, kind_of_phase, phases_of

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def answers(folder: Path, *texts: str, options: Options | None = None) -> list[Finding]:
    names = []
    for number, text in enumerate(texts):
        path = folder / f"file{number}.log"
        path.write_text(text)
        names.append(str(path))
    return list(explain_files(names, options or Options()).answers)


def run(**phases: float) -> PhasedSteps:
    return PhasedSteps(
        "verl", "verl", [sum(phases.values())] * 5, {name: [value] * 5 for name, value in phases.items()}
    )


def verl(nodes: int, extra: str = "", steps: int = 5, **phases: float) -> str:
    parts = " - ".join(f"timing_s/{name}:{value}" for name, value in phases.items())
    line = f"step:{{}} - {parts} - timing_s/step:{sum(phases.values())}{extra}\n"
    return f"trainer.nnodes={nodes} data.train_batch_size=64\n" + "".join(map(line.format, range(steps)))


def test_planted_laws_are_found_and_what_they_say_of_the_next_count() -> None:
    times = PhaseTimes(
        {n: [run(gen=20 + 40 / n, update=60 / n, update_weights=2 + n**0)] for n in (1, 2, 4)},
        dict.fromkeys((1, 2, 4), 1.0),
    )
    assert times.stopping["gen"] > 0.95
    fixed = times.fixed("gen")
    assert fixed is not None
    assert fixed.low < 20 < fixed.high
    saved = estimate(times.saved(8))
    assert saved.low < 1 - (25 + 7.5 + 3) / (30 + 15 + 3) < saved.high
    assert estimate(times.factor("update")).low < 4 < estimate(times.factor("update")).high
    changes = [times.change(name)[0] for name in times.names]
    assert sum(changes) == pytest.approx(1)
    assert changes[times.names.index("update")] == pytest.approx(45 / 75)


def test_worlds_with_answers_of_a_long_tail_are_named_and_none_wrongly() -> None:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import phases as planted
    finally:
        sys.path.remove(str(BENCHMARKS))
    results = [planted.judged(world, number)[0] for number in range(6) if (world := planted.drawn(number, choose=True))]
    assert results.count("wrong") == 0
    assert results.count("right") >= 5


def test_parts_inside_of_parts_are_counted_once_and_what_happens_at_times_is_taken_out() -> None:
    step = {"gen": 10.0, "generate_sequences": 8.0, "reshard": 1.0, "update_actor": 5.0, "step": 16.0}
    total, phases, _ = phases_of([step, {**step, "testing": 21.0, "step": 37.0}])
    assert total == [16.0, 16.0]
    assert phases == {"gen": [10.0, 10.0], "update_actor": [5.0, 5.0], "other": [1.0, 1.0]}
    slime = {"train": 5.0, "actor_train": 3.0, "log_probs": 1.0, "train_wait": 10.0, "rollout": 9.9, "step": 15.0}
    found = phases_of([slime])[1]
    assert {name: pytest.approx(value) for name, (value,) in found.items()} == {
        "actor_train": 3.0, "log_probs": 1.0, "other train": 1.0, "rollout": 9.9,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("old_log_prob", PhaseKind.LOG_PROBABILITIES),
        ("policy_and_reference_logprobs", PhaseKind.LOG_PROBABILITIES),
        ("Generation (s)", PhaseKind.GENERATION),
        ("update_weights", PhaseKind.WEIGHTS),
        ("Refit (s)", PhaseKind.WEIGHTS),
        ("update_actor", PhaseKind.UPDATE),
        ("Policy training (s)", PhaseKind.UPDATE),
        ("reader_cost", PhaseKind.DATA),
        ("backward_allreduce", PhaseKind.COMMUNICATION),
        ("backward_inner", PhaseKind.COMPUTING),
        ("Loss", PhaseKind.UPDATE),
        ("Model", PhaseKind.OTHER),
    ],
)
def test_a_phase_is_known_by_its_name(name: str, kind: PhaseKind) -> None:
    assert kind_of_phase(name) == kind


def test_the_third_node_is_predicted_and_phases_that_run_at_once_are_not_summed(tmp_path: Path) -> None:
    (two,) = answers(tmp_path, verl(1, gen=40, update_actor=40), verl(2, gen=36, update_actor=20))
    assert two.causes[0].words.startswith("gen: 40 -> 36 s")
    assert two.beyond.startswith("a third node saves ")
    extra = " - timing_s/ref:30.0"
    (over,) = answers(tmp_path, verl(1, extra, gen=40, old_log_prob=5), verl(2, extra, gen=36, old_log_prob=3))
    assert over.beyond == "not predicted: phases run at the same time"
    assert "% of the change" not in over.causes[0].words.replace("of what", "")


def test_a_count_that_is_no_number_is_not_known(tmp_path: Path) -> None:
    head = "| Model | Nodes | GPUs per node | Total step time (s) | Refit (s) | Generation (s) |\n" + 6 * "|---" + "|\n"
    (tmp_path / "t.md").write_text(head + "| 8B | 1 | 8 | 112 | 5 | 58 |\n| 8B | *a | 8 | 70 | 7 | 40 |\n")
    assert any("a step of 70 s" in one.words for one in explain_files([str(tmp_path / "t.md")], Options()).answers)


def test_other_mini_batches_are_compared_for_equal_work(tmp_path: Path) -> None:
    first, second = verl(1, gen=40, update_actor=40), verl(2, gen=60, update_actor=40).replace("size=64", "size=128")
    (found,) = answers(tmp_path, first, second)
    assert "equal work" in " ".join(found.notes)
    assert found.causes[0].words.startswith("gen: 40 -> 60 s, 1.3")


def test_a_log_of_learning_without_phases_asks_for_them_and_blames_no_link(tmp_path: Path) -> None:
    line = "trainer.nnodes={} data.train_batch_size=256 actor_rollout_ref.actor.ppo_mini_batch_size=128\n"
    bar = "Training Progress:   0%|          | 2/540 [17:52<79:50:22, {}s/it]\n"
    (found,) = answers(tmp_path, line.format(1) + bar.format(530), line.format(2) + bar.format(700))
    assert not found.causes
    assert "timing_s/*" in found.ask[0]
