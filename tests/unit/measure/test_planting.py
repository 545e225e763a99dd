"""Plants that are drawn, and what counts as naming one."""

import pytest

from stallpoint.measure.probe.planting import NAMED, UNTOLD, WRONG, Planted, Stretch, schedule

RARE = Stretch("rare", Planted("update", 0.8, "0", 16, 10, 111), 10, 111)
STEADY = Stretch("steady", Planted("forward", 0.1, "all", 1, 10, 40), 10, 40)


@pytest.mark.parametrize(
    ("of", "said", "word"),
    [
        (RARE, ["78 % of the time is in every 16th iteration (968 ms more, in the update, on rank 0)"], NAMED),
        (RARE, ["78 % of the time is in every 8th iteration (968 ms more, in the update, on rank 0)"], WRONG),
        (RARE, ["78 % of the time is in 10 of 101 iterations (968 ms more, in the update, on rank 0)"], UNTOLD),
        (RARE, ["78 % of the time is in every 16th iteration (968 ms more, in the update, on rank 1)"], WRONG),
        (RARE, ["mostly communication, on every rank alike"], UNTOLD),
        (STEADY, ["rank 1 holds the others up: the forward pass"], WRONG),
        (STEADY, ["rank 1 holds the others up: the update", "mostly computing: the forward pass takes longest"], NAMED),
    ],
)
def test_a_plant_is_named_by_its_phase_its_ranks_and_its_iterations(of: Stretch, said: list[str], word: str) -> None:
    assert of.judged(said) == word


def test_drawn_plants_differ_by_seed_and_stay_in_their_stretch() -> None:
    first, again, other = (schedule(4, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    for chosen, drawn in zip(schedule(4), first, strict=True):
        assert (chosen.kind, chosen.plant.where) == (drawn.kind, drawn.plant.where)
        assert (chosen.plant.who == "all") == (drawn.plant.who == "all")
        assert drawn.first <= drawn.plant.first < drawn.plant.last <= drawn.last
