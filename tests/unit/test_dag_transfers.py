import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.models.communication import LAWS
from stallpoint.models.dag import Costs, Kind, Message, Task, s_sgd, schedule
from stallpoint.models.dag.by_transfer import s_sgd_by_transfer
from stallpoint.models.dag.transfers import Cluster, Link, Rounds, all_reduce, hierarchical, rounds, stages
from stallpoint.presets import PRESETS, REDUCTIONS, Preset

NETWORK, INSIDE = Link(1.0, 0.01), Link(0.1, 0.001)


def makespan(plan: Rounds, cluster: Cluster, size: float) -> float:
    ready = [Task(f"gradients of {rank}", Kind.COMPUTE, 0, f"worker {rank}") for rank in range(cluster.ranks)]
    tasks, _ = all_reduce("sum", plan, cluster, size, [task.name for task in ready])
    return max(span.end for span in schedule([*ready, *tasks]).values())


def contributions(plan: Rounds, ranks: int) -> list[set[int]]:
    """Whose values each rank has seen in the end, if every transfer carries all its sender has."""
    seen = [{rank} for rank in range(ranks)]
    for transfers in plan:
        sent = [(transfer.receiver, set(seen[transfer.sender])) for transfer in transfers]
        for receiver, values in sent:
            seen[receiver] |= values
    return seen


@given(st.sampled_from(REDUCTIONS), st.integers(1, 40))
def test_every_rank_gets_every_rank_s_values(reduction: str, ranks: int) -> None:
    assert contributions(rounds(reduction, ranks), ranks) == [set(range(ranks))] * ranks


@given(st.sampled_from(REDUCTIONS), st.integers(1, 6), st.integers(1, 6))
def test_so_it_is_over_nodes_and_their_workers(reduction: str, nodes: int, workers: int) -> None:
    count = nodes * workers
    assert contributions(hierarchical(reduction, nodes, workers), count) == [set(range(count))] * count


@settings(deadline=None)
@given(st.sampled_from(["ring", "recursive-doubling", "rabenseifner", "binary-tree", "parameter-server"]),
       st.sampled_from([2, 4, 8, 16]), st.floats(0, 1e4))  # fmt: skip
def test_equal_ranks_take_what_the_law_says(reduction: str, ranks: int, size: float) -> None:
    law, p = LAWS[reduction], np.array(float(ranks))
    expected = float(NETWORK.alpha * law.latency(p) + NETWORK.beta * law.bandwidth(p) * size)
    cluster = Cluster(ranks, 1, NETWORK, INSIDE)
    assert makespan(rounds(reduction, ranks), cluster, size) == pytest.approx(expected)
    assert sum(stage.seconds for stage in stages(reduction, cluster, size)) == pytest.approx(expected)


def test_a_power_of_two_and_some_more() -> None:
    #  rank 4 gives its values to rank 0, which gives the result back: two whole messages more
    cluster = Cluster(5, 1, NETWORK, INSIDE)
    whole = NETWORK.seconds(100)
    assert makespan(rounds("recursive-doubling", 5), cluster, 100) == pytest.approx(4 * whole)
    assert makespan(rounds("binary-tree", 5), cluster, 100) == pytest.approx(2 * math.ceil(math.log2(5)) * whole)


def test_two_levels_use_the_network_once_per_node() -> None:
    #  inside    [1 to 0, 3 to 2]                            [0 to 1, 2 to 3]
    #  network                   [ring over 2: two halves]
    cluster = Cluster(2, 2, NETWORK, INSIDE)
    expected = 2 * INSIDE.seconds(100) + 2 * NETWORK.seconds(50)
    assert makespan(hierarchical("ring", 2, 2), cluster, 100) == pytest.approx(expected)
    found = stages("ring", cluster, 100, levels=True)
    assert [stage.resource for stage in found] == ["node link", "network", "node link"]
    assert sum(stage.seconds for stage in found) == pytest.approx(expected)


def test_one_slow_node_holds_up_the_ring() -> None:
    slow = Cluster(4, 1, NETWORK, INSIDE, {2: 3.0})
    assert makespan(rounds("ring", 4), slow, 100) == pytest.approx(3 * 6 * NETWORK.seconds(25))
    with pytest.raises(InputError, match="nodes differ"):
        stages("ring", slow, 100)


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"parameter-server"}))
def test_a_job_by_transfers_takes_what_its_stages_say(name: str) -> None:
    preset = PRESETS[name].preset
    cluster = Cluster(4, 1, NETWORK, INSIDE)
    sent = [((2,), 100.0), ((1, 0), 300.0)]
    own = Costs(1, 1, (1, 2, 3), (4, 5, 6), (), 2)
    by_transfer = schedule(s_sgd_by_transfer([own] * 4, preset, cluster, sent, prefetch=True))
    whole = [Message(tuple(layers), stages(preset.reduction, cluster, size)) for layers, size in sent]
    collapsed = s_sgd(Costs(1, 1, own.forward, own.backward, whole, 2), preset, prefetch=True).run(iterations=2)
    ends = [by_transfer[f"update of {i} on 0"].end for i in (0, 1)]
    if name == "firecaffe":  # both messages at once: one may go up the tree while the other comes down
        assert ends[0] <= collapsed.shared[0, -1]
    else:
        assert ends == pytest.approx(collapsed.shared[:, -1].tolist())


def test_a_server_sends_one_message_while_it_receives_the_next() -> None:
    #  in of 0    [1][2][3][1][2][3]
    #  out of 0            [1][2][3][1][2][3]
    cluster = Cluster(4, 1, Link(1, 0), INSIDE)
    preset = PRESETS["parameter-server"].preset
    own = Costs(0, 0, (0, 0), (0, 0), (), 0)
    spans = schedule(s_sgd_by_transfer([own] * 4, preset, cluster, [((1,), 1), ((0,), 1)], prefetch=True, iterations=1))
    assert max(span.end for span in spans.values()) == 9
    whole = [Message((layer,), stages("parameter-server", cluster, 1)) for layer in (1, 0)]
    assert s_sgd(Costs(0, 0, (0, 0), (0, 0), whole, 0), preset, prefetch=True).run(iterations=1).shared[0, -1] == 9


def test_a_slow_worker_holds_up_all() -> None:
    cluster = Cluster(2, 2, NETWORK, INSIDE)
    quick, slow = Costs(0, 0, [1], [1], (), 0), Costs(0, 0, [1], [5], (), 0)
    plan = {"prefetch": True, "levels": True, "iterations": 1}
    ends = [
        schedule(s_sgd_by_transfer(costs, Preset(), cluster, [((0,), 100)], **plan))["update of 0 on 0"].end  # type: ignore[arg-type]
        for costs in ([quick] * 4, [quick, quick, quick, slow])
    ]
    assert ends[1] - ends[0] == pytest.approx(4)


def test_impossible_clusters_are_refused() -> None:
    with pytest.raises(InputError, match="0 nodes"):
        Cluster(0, 1, NETWORK, INSIDE)
    with pytest.raises(InputError, match="0 ranks"):
        rounds("ring", 0)
    with pytest.raises(InputError, match="'star' is not one of"):
        rounds("star", 4)
    with pytest.raises(InputError, match="costs of 1 workers, but the cluster has 4"):
        s_sgd_by_transfer([Costs(0, 0, [1], [1], (), 0)], Preset(), Cluster(2, 2, NETWORK, INSIDE), [], prefetch=True)
