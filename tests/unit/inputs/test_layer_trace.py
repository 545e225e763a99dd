"""The layout of Shi et al.'s layer-wise traces, and the table they print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_vi import TABLE_VI, table_vi

from stallpoint.errors import InputError
from stallpoint.inputs.layer_trace import TracedIteration, TracedLayer, from_text, to_text
from stallpoint.networks import find_network
from stallpoint.networks.layers import layers

GOOD = ["Id Name Forward Backward Comm. Size", "0 data 5 0 0 0", "1 conv1 10 20 3.5 400", "2 relu1 1 2 0 0"]


def test_table_vi_is_read_as_printed() -> None:
    iteration = table_vi()
    assert iteration.data_wait == pytest.approx(1.2)
    assert len(iteration.layers) == 21, "22 layers including the data layer (section VI)"
    by_name = {layer.name: layer for layer in iteration.layers}
    assert by_name["conv1"] == TracedLayer("conv1", 3.27, 0.288202, pytest.approx(123.424e-6), 139776)
    assert by_name["conv4"].communication == pytest.approx(1.03218)
    assert by_name["loss"] == TracedLayer("loss", pytest.approx(1723.49e-6), pytest.approx(293.024e-6))


def test_the_sizes_of_table_vi_are_those_of_our_alexnet() -> None:
    """Section VI: the size of the gradients is that of the layer's parameters; Table IV: 8 layers, ~60 millions."""
    printed = {layer.name: layer.gradient_bytes for layer in table_vi().layers if layer.gradient_bytes}
    ours = {one.name: one.gradient_bytes for one in layers(find_network("alexnet").outline()) if one.gradient_bytes}
    assert printed == ours
    assert len(printed) == 8


def test_table_vi_written_again_says_the_same() -> None:
    again = to_text([table_vi()])
    assert from_text(again, "again") == [table_vi()]
    printed = [line.split() for line in TABLE_VI.read_text().splitlines() if not line.startswith("#")]
    written = [line.split("\t") for line in again.splitlines()]
    assert [row[:2] + row[5:] for row in written] == [row[:2] + row[5:] for row in printed]
    assert [list(map(float, row[2:5])) for row in written[1:]] == [list(map(float, row[2:5])) for row in printed[1:]]


TIMES = st.floats(0, 100)


@given(
    sizes=st.lists(st.integers(0, 2**40), min_size=1, max_size=4),
    times=st.lists(st.tuples(TIMES, TIMES, TIMES, TIMES), min_size=1, max_size=3),
)
def test_what_is_written_is_read_again(sizes: list[int], times: list[tuple[float, ...]]) -> None:
    iterations = [
        TracedIteration(wait, [TracedLayer(f"l{i}", forward, backward, comm if size else 0.0, size)
                               for i, size in enumerate(sizes)])
        for wait, forward, backward, comm in times
    ]  # fmt: skip
    again = from_text(to_text(iterations), "file")
    for before, after in zip(iterations, again, strict=True):
        assert after.data_wait == pytest.approx(before.data_wait, rel=1e-5, abs=1e-9)
        for layer, copy in zip(before.layers, after.layers, strict=True):
            assert (copy.name, copy.gradient_bytes) == (layer.name, layer.gradient_bytes)
            assert copy.forward == pytest.approx(layer.forward, rel=1e-5, abs=1e-9)
            assert copy.communication == pytest.approx(layer.communication, rel=1e-5, abs=1e-9)


def test_iterations_follow_with_or_without_the_names_of_the_columns() -> None:
    text = "\n".join(["# a remark", *GOOD, "", *GOOD[1:], *GOOD])
    assert len(from_text(text, "file")) == 3


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "file: no layers; expected are lines of Id, Name, Forward"),
        ([*GOOD[:2], "1 conv1 10 20 400"], "file, line 3: 5 columns, expected are 6"),
        ([*GOOD[:2], "1 conv1 ten 20 3 400"], "file, line 3: Forward is 'ten', expected is a time in microseconds"),
        ([*GOOD[:2], "1 conv1 10 -20 3 400"], "file, line 3: Backward is '-20'"),
        ([*GOOD[:2], "1 conv1 10 nan 3 400"], "file, line 3: Backward is 'nan'"),
        ([*GOOD[:2], "1 conv1 10 20 3 4e2"], "file, line 3: Size is '4e2', expected is a whole number"),
        ([*GOOD[:2], "1 conv1 1_0 20 3 400"], "file, line 3: Forward is '1_0', expected is a time in microseconds"),
        ([*GOOD[:2], "1 conv1 1e308 20 3 400"], "file, line 3: Forward is '1e308', expected is a time in microseconds"),
        ([*GOOD[:2], "1 conv1 10 20 3 99999999999999999999"], "file, line 3: Size is '99999999999999999999', expected"),
        ([*GOOD[:2], "1 conv1 10 20 3 ４００"], "file, line 3: Size is '４００', expected is a whole number"),
        ([*GOOD[:2], "2 conv1 10 20 3 400"], "file, line 3: id 2, but 1 or 0 follows"),
        (GOOD[2:], "file, line 1: id 1, but an iteration begins with 0"),
        (["0 conv1 10 20 3 400"], "file, line 1: id 0 is the data layer"),
        ([*GOOD[:2], "1 relu 10 20 3 0"], "file, line 3: layer relu communicates, but the size of its gradients is 0"),
        ([*GOOD, *GOOD[1:3]], "file, line 6: iteration 2 ends after id 1, the first one after 2"),
        ([*GOOD, *GOOD[1:3], *GOOD[1:]], "file, line 7: iteration 2 ends after id 1"),
        ([*GOOD, *GOOD[1:], "3 more 1 1 0 0"], "file, line 8: more of 0 bytes, but the first iteration has no further"),
        ([*GOOD, GOOD[1], "1 conv1 1 1 1 404"], "file, line 6: conv1 of 404 bytes, but the first iteration has conv1"),
        (GOOD[:2], "file, line 2: iteration 1 ends after id 0: no layer but data"),
    ],
)
def test_wrong_lines_are_named(lines: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        from_text("\n".join(lines), "file")
    assert str(error.value).startswith(message)
