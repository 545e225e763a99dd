"""Logs of nccl-tests and OSU micro-benchmarks, good and bad."""

import re
from collections.abc import Iterator
from itertools import islice

import pytest
from all_reduce_samples import SIZES, microseconds, nccl_tests, osu

from stallpoint.errors import InputError
from stallpoint.inputs.all_reduce_logs import FORMATS, AllReduce, read_log, read_runs

LINE = "        1024           256     float     sum      -1    "


def read(text: str, format: str, ranks: int) -> list[AllReduce]:
    return list(read_log(text.splitlines(), "log", format=format, ranks=ranks))


@pytest.mark.parametrize(
    ("format", "text"),
    [("nccl-tests", nccl_tests()), ("osu", osu()), ("osu", osu(full=True))],
    ids=["nccl-tests", "osu", "osu -f"],
)
def test_sizes_and_times_are_those_printed(format: str, text: str) -> None:
    """In place for nccl-tests, the slowest rank for osu_allreduce -f."""
    rows = read(text, format, ranks=8)
    assert [row.message_bytes for row in rows] == list(SIZES)
    assert [row.seconds for row in rows] == pytest.approx(
        [1e-6 * microseconds(size) for size in SIZES], abs=6e-9, rel=1e-4
    )


def test_out_of_place_is_taken_where_nothing_was_done_in_place() -> None:
    text = nccl_tests(sizes=(), extra=LINE + "  24.50    0.04    0.07      0      N/A     N/A     N/A    N/A")
    assert read(text, "nccl-tests", ranks=8) == [AllReduce(1024, pytest.approx(24.5e-6))]


def test_old_versions_of_nccl_tests_print_errors_and_no_root() -> None:
    text = "\n".join([
        "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error",
        "#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)",
        "           0             0   float     sum     5.70    0.00    0.00  0e+00     5.54    0.00    0.00  0e+00",
        "       65536         16384   float     sum    30.12    2.18    3.81  4e-07    29.50    2.22    3.89  4e-07",
    ])  # fmt: skip
    assert read(text, "nccl-tests", ranks=8) == [AllReduce(65536, pytest.approx(29.5e-6))]


def test_time_stamps_may_stand_at_the_end() -> None:
    row = LINE + "  24.50    0.04    0.07      0    20.25    0.05    0.08      0   2024-05-01 10:11:12"
    text = nccl_tests(sizes=(), extra=row)
    stamped = text.replace("busbw #wrong\n", "busbw #wrong           timestamp\n", 1)
    assert read(stamped, "nccl-tests", ranks=8) == [AllReduce(1024, pytest.approx(20.25e-6))]


GOOD = "  24.50    0.04    0.07      0    20.25    0.05    0.08      0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "log: no all-reduce of nccl-tests found"),
        (osu(), "log: no all-reduce of nccl-tests found"),
        (nccl_tests(extra=LINE + "24.50  0.04"), "7 values for the 13 columns size count type redop root time"),
        (nccl_tests(extra=LINE + GOOD.replace("20.25", "abc")), "time is 'abc', expected is a number"),
        (nccl_tests(extra=LINE + GOOD.replace("20.25", "0.00")), "time is '0.00', expected is a number above 0"),
        (nccl_tests(extra=LINE + GOOD[:-1] + "12"), "#wrong is 12: the all-reduce gave wrong results"),
        (nccl_tests(extra=LINE.replace(" sum", "none") + GOOD), "without reduction (redop none) is no all-reduce"),
        (nccl_tests(extra="node1: Test NCCL failure common.cu:959"), "'node1: Test NCCL failure common.cu:959' is not"),
        (nccl_tests().replace("all_reduce_perf", "all_gather_perf"), "a log of all_gather_perf, expected is one of"),
        (nccl_tests().replace("  time ", "cputime"), "no column time among"),
        (nccl_tests(4), "4 rank(s) took part; nodes × workers_per_node are 8"),
        (nccl_tests(1, processes=8), "1 rank(s) took part, though 8 processes started: built without MPI?; nodes ×"),
    ],
)
def test_what_is_wrong_with_a_log_of_nccl_tests_is_said(text: str, message: str) -> None:
    check("nccl-tests", text, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (nccl_tests(), "log: no all-reduce of osu found"),
        (osu(extra="1024  12.0  13.0"), "3 values for the 2 columns Size Avg Latency(us)"),
        (osu(extra="1024                fast"), "Avg Latency(us) is 'fast', expected is a number"),
        (osu(extra="1024                4_1.80"), "Avg Latency(us) is '4_1.80', expected is a number"),
        (osu(extra="1024                1e300"), "Avg Latency(us) is '1e300', expected is a number"),
        (osu(extra="99999999999999999999  41.80"), "Size is '99999999999999999999', expected is a number"),
        (osu(extra="１０２４  41.80"), "'１０２４ 41.80' is not a measurement"),
        (osu(extra="2²  41.80"), "'2² 41.80' is not a measurement"),
        (osu(extra="2,1024              41.80"), "'2,1024 41.80' is not a measurement; take the line out"),
        (osu(extra="mpirun noticed that process rank 3 exited on signal 9"), "'mpirun noticed that"),
        (osu().replace("Allreduce", "Allgather"), "'OSU MPI Allgather Latency Test v7.4': expected is the Allreduce"),
        (osu().replace("# Size ", "# Size \x05 "), "no column 'Size' among"),
        (osu().replace("Avg Latency(us)", "Overall(us)"), "no column 'Avg Latency(us)' among Size, Overall(us)"),
    ],
)
def test_what_is_wrong_with_a_log_of_osu_is_said(text: str, message: str) -> None:
    check("osu", text, message)


def check(format: str, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(text, format, ranks=8)
    assert message in str(error.value)
    if "found" not in message:
        assert re.match(r"log, line \d+: ", str(error.value))


def test_validation_that_failed_is_an_error() -> None:
    head = "# OSU MPI Allreduce Latency Test v7.4\n# Size       Avg Latency(us)        Validation\n"
    assert read(head + "1024  12.0  Pass\n", "osu", ranks=2) == [AllReduce(1024, pytest.approx(12e-6))]
    with pytest.raises(InputError, match="log, line 3: validation says Fail"):
        read(head + "1024  12.0  Fail\n", "osu", ranks=2)


def test_a_log_is_read_as_far_as_its_rows_are_taken() -> None:
    def lines() -> Iterator[str]:
        yield from osu(extra="1024  12.0").splitlines()
        raise AssertionError("more lines are asked for than are needed")

    (first,) = islice(read_log(lines(), "log", format="osu", ranks=2), 1)
    assert first.message_bytes == SIZES[0]


@pytest.mark.parametrize(
    ("algbw", "busbw", "ranks"), [("8.00", "14.00", 8), ("0.08", "0.14", None), ("10.00", "19.999", None)]
)
def test_ranks_that_no_line_lists_follow_from_bandwidths_with_enough_digits(
    algbw: str, busbw: str, ranks: int | None
) -> None:
    lines = [line for line in nccl_tests().splitlines() if not line.startswith("#  Rank")]
    rated = [re.sub(r"\b0\.00( +)0\.00\b", rf"{algbw}\g<1>{busbw}", line) for line in lines]
    (run,) = read_runs(rated, "log", format="nccl-tests")
    assert (run.collective, run.ranks) == ("all-reduce", ranks)


def test_every_format_stands_for_a_backend() -> None:
    assert {name: reader.backend for name, reader in FORMATS.items()} == {
        "nccl-tests": "torch", "osu": "mpi", "imb": "mpi",
    }  # fmt: skip
