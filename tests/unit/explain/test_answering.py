"""Answers to files that are at hand: rates, logs and scripts, with planted causes."""

import gzip
import io
import json
import re
import shlex
import zipfile
from pathlib import Path

import pytest
from all_reduce_samples import nccl_tests, osu
from pages import ROOT, blocks, commands

from stallpoint.base.section import Finding
from stallpoint.cli import main
from stallpoint.errors import InputError
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options
from stallpoint_files.proposal_page import Training, curves


def answers(folder: Path, *texts: str, options: Options | None = None) -> list[Finding]:
    names = []
    for number, text in enumerate(texts):
        path = folder / f"file{number}"
        path.write_text(text)
        names.append(str(path))
    return list(explain_files(names, options or Options()).answers)


def table(rates: dict[int, float], per_node: int | None = 8, head: str = "tok/s") -> str:
    rows = (f"net,{count},{per_node or ''},{value}" for count, value in rates.items())
    return "\n".join([f"series,gpus,gpus_per_node,{head}", *rows]) + "\n"


def names(finding: Finding) -> list[str]:
    return [cause.name for cause in finding.causes]


def test_a_curve_that_saturates_stalls_at_the_first_count_that_is_as_good(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, table({1: 10, 2: 20, 4: 39, 8: 70, 16: 88, 32: 86, 64: 88}))
    assert one.verdict == "stalls"
    assert (one.value, one.low, one.high, one.unit) == (16, 16, 32, "workers")
    assert one.words == "stops getting faster at 16 GPUs, 55 % efficient"
    assert names(one) == ["shared_limit"]
    assert one.beyond.startswith("128: ")
    assert "all_reduce_perf" in one.ask[0]


def test_laws_are_fitted_to_as_many_series_of_a_file_however_many_tables_it_has(tmp_path: Path) -> None:
    """300 tables of one series each took 38 s, one table of 300 series 1 s."""
    text = table({1: 10, 2: 20, 4: 39, 8: 70, 16: 88, 32: 86, 64: 88}) + "\n"
    few, many = answers(tmp_path, text * 12), answers(tmp_path, text * 13)
    assert {one.beyond.partition(":")[0] for one in few} == {"128"}
    assert {one.beyond for one in many} == {"not predicted: more than 12 series in the file"}


def test_more_workers_that_make_it_slower_are_contention(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, table({1: 10, 2: 19, 4: 30, 8: 24, 16: 15}))
    assert (one.verdict, one.value, names(one)) == ("stalls", 4, ["contention"])


def test_a_plateau_at_the_node_boundary_is_no_stall(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, table({4: 40, 8: 80, 16: 81, 32: 160, 64: 318}))
    assert one.verdict == "scales"
    assert names(one) == ["node_boundary"]
    assert "first node boundary costs 49 %" in one.causes[0].words
    assert one.causes[0].share == pytest.approx(1 - (318 / 64) / 10, abs=1e-3), "of what workers of one node reach"


@pytest.mark.parametrize(
    ("columns", "row", "options"),
    [
        ("nodes,gpus_per_node,global batch", "{nodes},8,{batch}", Options()),
        ("gpus,nodes,global batch", "{gpus},{nodes},{batch}", Options()),
        ("nodes,global batch", "{nodes},{batch}", Options(workers_per_node=8)),
    ],
)
def test_nodes_with_several_workers_are_counted_in_workers(
    columns: str, row: str, options: Options, tmp_path: Path
) -> None:
    rows = [
        f"{row.format(nodes=nodes, gpus=8 * nodes, batch=256 * nodes)},{rate}"
        for nodes, rate in ((1, 800), (2, 1500), (4, 2000), (8, 2000), (16, 1980))
    ]
    (one,) = answers(tmp_path, "\n".join([f"{columns},img/s", *rows]), options=options)
    assert (one.verdict, one.value) == ("stalls", 32)
    assert "nodes" not in one.words
    assert "(8 a node)" in one.subject
    assert re.match(r"after 32 (GPUs|workers) \(4 nodes\)", one.causes[0].words)
    assert "time an all-reduce of the gradients' size on 4 and 8 nodes" in one.ask[0]


def test_nodes_of_unknown_size_are_counted_as_nodes(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, "nodes,img/s\n1,800\n2,1500\n4,2000\n8,2000\n16,1990\n")
    assert one.words == "stops getting faster at 4 nodes, 62 % efficient"
    assert "after 4 nodes every one added" in one.causes[0].words


def test_what_is_lost_inside_the_node_is_not_the_network(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, table({1: 10, 8: 48, 16: 95, 32: 189}))
    assert names(one) == ["inside_node"]
    assert one.causes[0].share == pytest.approx(0.4)
    (gap,) = answers(tmp_path, table({1: 10, 4: 38, 16: 140}, None))
    assert gap.ask[0] == "a rate on 8 GPUs: between 4 and 16 nothing is measured"


def test_rates_that_stay_may_be_those_of_each_worker_and_that_is_asked(tmp_path: Path) -> None:
    text = table({1: 100, 2: 99, 4: 98.5, 8: 99})
    (one,) = answers(tmp_path, text)
    assert one.verdict == "undecided"
    assert "as rates of each, 8 are 7.92 times as fast as one" in one.words
    assert "--rates each" in one.ask[0]
    (told,) = answers(tmp_path, text, options=Options(of="each"))
    assert told.verdict == "scales"
    (whole,) = answers(tmp_path, text, options=Options(of="all"))
    assert (whole.verdict, whole.value) == ("stalls", 1)
    (heading,) = answers(tmp_path, table({1: 100, 2: 99, 4: 98.5, 8: 99}, head="tok/s/gpu"))
    assert heading.verdict == "scales"


def test_times_of_iterations_ask_for_weak_or_strong_where_the_answer_depends_on_it(tmp_path: Path) -> None:
    text = table({1: 1.0, 2: 1.02, 4: 1.05, 8: 1.06}, head="s/iter")
    (one,) = answers(tmp_path, text)
    assert one.verdict == "undecided"
    assert "--scaling" in one.ask[0]
    assert [answers(tmp_path, text, options=Options(scaling=how))[0].verdict for how in ("weak", "strong")] == [
        "scales", "stalls",
    ]  # fmt: skip


def test_times_that_fall_with_the_workers_are_those_of_one_mini_batch_that_is_split(tmp_path: Path) -> None:
    times = {1: 1.0, 2: 0.55, 4: 0.33, 8: 0.2}
    rows = [f"{count},{seconds * part}" for count, seconds in times.items() for part in (1, 1.02)]
    (one,) = answers(tmp_path, "\n".join(["gpus,s/iter", *rows]))
    assert one.verdict == "scales"
    assert "-> 4.95 iterations/s" in one.fits
    last = one.points[-1]  # repeats are no times where rates are predicted
    assert 5 < (last["low"] or 0) < (last["high"] or 0) < 10


def test_more_than_twice_the_rate_names_the_odd_count_and_no_cause(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, table({8: 80, 16: 158, 32: 344, 64: 610}))
    assert one.causes == ()
    assert "so 32 ran with other settings" in one.notes[0]


def test_counts_that_are_hardly_apart_are_answered_too(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, table({4021: 8121, 4022: 15121}))
    assert "not of the same settings" in one.words or one.verdict == "scales"


def test_two_counts_say_what_one_more_would_tell(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, table({4: 48, 8: 72}, per_node=4))
    assert "first node boundary costs 25 %" in one.causes[0].words
    assert one.ask[0].startswith("a rate on 16 GPUs")
    (single,) = answers(tmp_path, table({4: 48}))
    assert single.verdict == "undecided"
    assert "8 GPUs" in single.ask[0]


def test_as_many_workers_on_more_nodes_that_are_slower_name_the_link(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, "gpus,gpus_per_node,epoch time\n4,4,7:57\n4,2,27:27\n")
    assert names(one) == ["link_between_nodes"]
    assert "4 GPUs on 2 nodes are 3.45 times as slow" in one.causes[0].words
    rows = "1,4,22:40\n2,4,12:50\n4,4,7:57\n4,2,27:27\n"
    (whole,) = answers(tmp_path, f"gpus,gpus_per_node,epoch time\n{rows}")
    assert (whole.verdict, names(whole)) == ("scales", ["link_between_nodes", "inside_node"])
    assert whole.fits.startswith("2.65 -> 4.68 -> 7.55 epochs/h")
    assert whole.beyond.startswith("not predicted: rates inside a node")
    assert whole.ask[-1].startswith("a rate on 8 GPUs, spread alike")


def test_a_prediction_is_withheld_where_gains_fall_faster_and_faster(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, table({8: 80, 16: 152, 32: 275, 64: 470}))
    assert one.verdict == "scales"
    assert one.beyond.startswith("not predicted: each doubling gains less than the one before (90 %, 81 %, 71 %)")


def test_a_good_curve_is_predicted_beyond_its_last_count(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, table({8: 80, 16: 158, 32: 315, 64: 628}))
    last = one.points[-1]
    assert last["workers"] == 128
    assert (last["low"] or 0) < 1250 < (last["high"] or 0)


def test_the_text_has_at_most_twenty_lines_however_many_series(tmp_path: Path) -> None:
    rows = [f"net{number},{count},{count}" for number in range(40) for count in (1, 2, 4)]
    path = tmp_path / "many"
    path.write_text("\n".join(["series,gpus,img/s", *rows]))
    words = explain_files([str(path)], Options()).in_words()
    assert words.count("\n") == 20
    assert "--json has all 40 answers" in words
    path.write_text("\n".join(["series,gpus,img/s", *rows, *(f"last,{count},7" for count in (1, 2, 4, 8))]))
    words = explain_files([str(path)], Options(of="all")).in_words()
    assert words.startswith("last, 1-8 GPUs: stops getting faster at 1")


# --- logs of all-reduces and of NCCL --------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:", "0: ", " 3: ", "[pod/job-worker-0/main] ", "[default0]:"])
def test_a_log_is_read_behind_the_prefix_of_any_launcher(prefix: str, tmp_path: Path) -> None:
    text = nccl_tests().replace("all_reduce_perf", "all_reduce_perf_mpi")
    (one,) = answers(tmp_path, "".join(f"{prefix}{line}\n" for line in text.splitlines()))
    assert one.subject == "all-reduce of 8 ranks on 2 nodes, NVIDIA V100"
    assert one.words.startswith("17.5 GB/s")  # 2 · 7/8 of 10 GB/s


def test_runs_in_one_file_are_repeats_and_noise_between_them_is_none(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, "Authorization required\n".join([nccl_tests()] * 3))
    assert one.fits.startswith("3 runs; ")


def test_expected_stands_beside_got(tmp_path: Path) -> None:
    (slow,) = answers(tmp_path, nccl_tests(), options=Options(link="ndr"))
    assert slow.words == "17.5 of 50 GB/s of NDR, 35 %"
    assert names(slow) == ["slow_path"]
    (good,) = answers(tmp_path, nccl_tests(), options=Options(link="hdr"))
    assert names(good) == []
    with pytest.raises(InputError, match="--link: token ring is no link that is known"):
        answers(tmp_path, nccl_tests(), options=Options(link="token ring"))


def test_a_break_in_bandwidth_is_named_and_no_law_is_fitted_across_it(tmp_path: Path) -> None:
    rows = "\n".join(f"{size} {time}" for size, time in ((4096, 20), (65536, 160), (131072, 3600), (8388608, 13000)))
    text = f"$ mpirun -n 4 osu_allreduce\n# OSU MPI Allreduce Latency Test v7.5\n# Size    Avg Latency(us)\n{rows}\n$\n"
    (one,) = answers(tmp_path, text)
    assert names(one) == ["break"]
    assert "between 64 KiB and 128 KiB" in one.causes[0].words
    assert "no law fitted across the break" in one.fits
    assert answers(tmp_path, osu())[0].causes == ()


def test_a_link_that_is_slow_between_nodes_alone_is_named(tmp_path: Path) -> None:
    fast = "\n".join(line for line in nccl_tests(4).splitlines())
    slow = nccl_tests(8, sizes=(), extra="268435456 67108864 float sum -1 900000 0.3 0.5 0 900000 0.3 0.5 0")
    one, two = answers(tmp_path, fast, slow)
    assert names(one) in ([], ["slow_path"])
    assert names(two)[0] == "link_between_nodes"


def test_nccl_says_which_path_it_takes_and_what_it_leaves_idle(tmp_path: Path) -> None:
    lead = "n1:7:9 [0] NCCL INFO "
    ports = " ".join(f"[{at}]mlx5_{at}:1/IB" for at in range(4))
    start = f"{lead}NET/IB : Using {ports} [RO]; OOB eth0:10.0.0.1<0>\n"
    channel = f"{lead}Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
    (idle,) = answers(tmp_path, f"{start}{lead}Using network IB\n{channel}")
    assert names(idle) == ["idle_nics"]
    assert idle.causes[0].share == 0.75
    (socket,) = answers(tmp_path, f"{start}{lead}Using network Socket\n")
    assert names(socket) == ["socket"]
    (off,) = answers(tmp_path, f"{lead}NCCL_IB_DISABLE set by environment to 1.\n{lead}Using network Socket\n")
    assert names(off) == ["ib_disabled"]
    assert off.causes[0].words.startswith("line 1: NCCL_IB_DISABLE=1")
    every = "".join(channel.replace("NET/IB/0", f"NET/IB/{at}") for at in range(4))
    (good,) = answers(tmp_path, f"{start}{lead}Using network IB\n{every}")
    assert names(good) == []
    (efa,) = answers(tmp_path, f"{lead}NET/OFI Selected Provider is efa (found 4 nics)\n{channel}")
    (tcp,) = answers(tmp_path, f"{lead}NET/OFI Selected Provider is tcp (found 2 nics)\n{channel}")
    assert (names(efa), names(tcp)) == ([], ["provider"])
    assert tcp.causes[0].words.startswith("line 1: the plugin's provider is tcp")


def test_a_network_that_nothing_crosses_is_no_cause(tmp_path: Path) -> None:
    lead = "n1:7:9 [0] NCCL INFO "
    start = f"{lead}Using network Socket\n{lead}comm 0x55 rank 0 nranks 2 cudaDev 0 - Init START\n"
    (node,) = answers(tmp_path, f"{start}{lead}Channel 00 : 0[0] -> 1[1] via P2P/IPC\n")
    assert names(node) == []
    assert "path between workers is P2P" in node.words
    larger = start.replace("nranks 2", "nranks 16")
    (part,) = answers(tmp_path, f"{larger}{lead}Channel 00 : 0[0] -> 1[1] via P2P/IPC\n")
    assert names(part) == ["socket"]


def test_files_that_belong_together_are_put_together(tmp_path: Path) -> None:
    log = "n1:7:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\nn1:7:9 [0] NCCL INFO Using network Socket\n"
    rates, transport = answers(tmp_path, table({8: 80, 16: 120, 32: 121, 64: 120}), log)
    assert names(transport) == ["socket"]
    assert "the log beside it names the path" in rates.causes[0].evidence


def test_a_test_of_the_link_is_judged_by_what_it_should_carry_and_stands_beside_rates(tmp_path: Path) -> None:
    perftest = (
        " #bytes #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536  5000  9.81  9.70  0.1\n"
    )
    head = "[ ID] Interval           Transfer     Bitrate         Retr\n"
    rows = "".join(f"[  5]  {at}.00-{at + 1}.00   sec  1.16 GBytes  10.0 Gbits/sec    0\n" for at in range(3))
    (slow,) = answers(tmp_path, perftest, options=Options(link="100"))
    assert names(slow) == ["slow_path"]
    assert slow.causes[0].share == 0.903
    (cut,) = answers(tmp_path, head + rows)
    assert "as much as 10 GbE carries" in cut.words
    rates, link = answers(tmp_path, table({8: 80, 16: 120, 32: 121, 64: 120}), head + rows)
    assert "iperf3: 1.25 GB/s between two nodes" in rates.causes[0].evidence
    assert link.kind == "link"


# --- training logs and scripts --------------------------------------------------------------------


LOGS = {
    "Lightning's rich bar": "world_size={workers}\nEpoch 0/1  ━━━━━━ {n}/100 0:00:00 • 0:00:01 {its:.4f}it/s "
    "v_num: 0\n",
    "OLMo": "[step={n}/700000,epoch=0]\n    throughput/device/tokens_per_second={each:,.1f}\nworld_size={workers}\n",
    "transformers": "***** train metrics *****\n  train_samples_per_second = {all}\nworld_size={workers}\n",
    "a line of one's own": "[10:00] INFO: step {n} | loss 4.2 | {each:,.1f} tokens/s/gpu | "
    "mfu 41.2% | world_size={workers}\n",
    "keys of one's own": '{{"iter": {n}, "loss": 4.2, "samples_per_sec": {all}, "world_size": {workers}}}\n',
}


@pytest.mark.parametrize("program", LOGS)
def test_logs_of_several_worker_counts_are_a_curve(program: str, tmp_path: Path) -> None:
    """Samples per second 1000, 1900 and 3500 of all, in lines as the programs write them; others: test_strangers.py."""
    texts = []
    for workers, rate in ((1, 1000), (2, 1900), (4, 3500)):
        line = LOGS[program]
        values = {"each": rate / workers, "all": rate, "its": rate / 100 / workers, "workers": workers}
        texts.append("".join(line.format(n=n, **values) for n in range(1, 12)))
    found = answers(tmp_path, *texts, options=Options(scaling="weak"))
    assert [one.verdict for one in found] == ["scales"]
    rates = [point["rate"] or 0 for point in found[0].points[:3]]
    assert [rate / rates[0] for rate in rates] == pytest.approx([1, 1.9, 3.5], rel=4e-3)


def test_metrics_of_a_logger_are_a_log_of_steps(tmp_path: Path) -> None:
    """Written by Lightning 2.6 (CSVLogger, ThroughputMonitor), with other rates."""
    rows = "0,{n},10,{b},{s},320,0.09,\n0,{n},,,,,,2.35\n"
    head = "epoch,step,train/batches,train/device/batches_per_sec,train/device/samples_per_sec,train/samples,train/time"
    texts = [
        f"{head},train_loss\n" + "".join(rows.format(n=n, b=each / 32, s=each) for n in range(9, 99, 10))
        for each in (1000, 950)
    ]
    (one,) = answers(tmp_path, *texts, options=Options(workers=(1, 2)))
    assert [point["rate"] for point in one.points[:2]] == [1000, 1900]


def test_a_log_that_does_not_say_its_workers_is_asked_for_them(tmp_path: Path) -> None:
    (one,) = answers(tmp_path, "step: 1  tps: 100\n")
    assert "--workers" in one.ask[0]


def test_more_workers_than_there_are_anywhere_are_none(tmp_path: Path) -> None:
    log = f"world_size: 000000001{900 * '9'}\n" + "".join(f"step: {step} loss: 2.0 tps: 100\n" for step in range(1, 40))
    (one,) = answers(tmp_path, log)
    assert (one.verdict, "--workers" in one.ask[0]) == ("undecided", True)


def test_two_rows_of_one_step_are_no_step(tmp_path: Path) -> None:
    rows = "".join(f"{step},{2 * step},1\n{step},{2 * step}.5,2\n" for step in range(1, 12))
    (one,) = answers(tmp_path, f"step,_timestamp,loss\n{rows}")
    assert one.words.endswith("2 s an iteration")


def test_any_log_is_read_by_a_pattern(tmp_path: Path) -> None:
    texts = [f"speed is {rate} wolpertinger\n" * 3 for rate in (10, 19)]
    options = Options(pattern=r"speed is (?P<rate>\S+)", workers=(1, 2))
    (one,) = answers(tmp_path, *texts, options=options)
    assert [point["rate"] for point in one.points[:2]] == [10, 19]
    with pytest.raises(InputError, match="no regular expression"):
        answers(tmp_path, *texts, options=Options(pattern="(?P<rate"))
    with pytest.raises(InputError, match="names no group"):
        answers(tmp_path, *texts, options=Options(pattern="speed"))
    with pytest.raises(InputError, match=r"--pattern .* is found in no line"):
        answers(tmp_path, *texts, options=Options(pattern="velocity (?P<rate>.*)"))


def test_a_table_comes_through_standard_input_or_gzip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = table({8: 80, 16: 120, 32: 121, 64: 120}).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    packed = tmp_path / "input.csv.gz"
    packed.write_bytes(gzip.compress(text))
    assert main(["explain", "-"]) == main(["explain", str(packed)]) == 1
    first, second = capsys.readouterr().out.split("net, ")[1:]
    assert first.split() == second.split()
    packed.write_bytes(gzip.compress(text)[:-12])
    with pytest.raises(InputError, match="not a whole gzip file"):
        explain_files([str(packed)], Options())


def test_rates_of_each_gpu_by_nodes_are_no_totals_until_gpus_per_node_are_known(tmp_path: Path) -> None:
    text = "nodes,tokens/s/gpu\n1,3200\n2,3100\n4,3000\n8,1500\n"
    (unknown,) = answers(tmp_path, text)
    (known,) = answers(tmp_path, text, options=Options(workers_per_node=8))
    assert "12,000 tokens/s of one worker on each node;" in unknown.fits
    assert "96,000 tokens/s;" in known.fits
    with pytest.raises(InputError, match="rates are of each worker, counts of nodes; --workers-per-node"):
        list(curves([str(tmp_path / "file0")], Options(), Training()))


def test_files_come_in_a_zip_as_issues_attach_them_and_are_named_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, nodes in (("a/run.zip", 64), ("b/run.zip", 32)):
        Path(name).parent.mkdir()
        with zipfile.ZipFile(name, "w") as file:
            file.writestr("logs/rates.csv", table({8: 80, 16: 90, nodes: 91}))
            file.writestr("__MACOSX/logs/._rates.csv", b"\0\1")
    found = explain_files(["a/run.zip", "b/run.zip"], Options())
    assert [one.file for one in found.inputs] == ["a/run.zip/logs/rates.csv", "b/run.zip/logs/rates.csv"]
    assert len(found.answers) == 2
    with zipfile.ZipFile("a/run.zip", "a") as file:
        file.writestr("notes.txt", "nothing to read\n")
    with pytest.raises(InputError, match=r"^a/run\.zip/notes\.txt, line 1: "):
        explain_files(["a/run.zip"], Options())
    Path("cut.zip").write_bytes(Path("b/run.zip").read_bytes()[:100])
    with pytest.raises(InputError, match=r"cut\.zip: a damaged zip"):
        explain_files(["cut.zip"], Options())


HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:a100:4\n"
TORCHRUN = "srun torchrun --nnodes=2 --rdzv-endpoint=$HEAD"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#SBATCH --ntasks-per-node=4\n#SBATCH -c 8\nsrun --gpu-bind=closest python t.py\n", ["cpus_per_task"]),
        ("#SBATCH --ntasks-per-node=4\n#SBATCH -c 8\nsrun -c 8 --gpu-bind=closest python t.py\n", []),
        ("#SBATCH --ntasks-per-node=4\n#SBATCH -c 8\nexport SRUN_CPUS_PER_TASK=8\nsrun --gpu-bind=none a\n", []),
        ("srun python t.py\n", ["one_task"]),
        (TORCHRUN + " --nproc-per-node=4 \\\n  t.py\n", []),
        ("srun torchrun --nproc-per-node=4 \\\n  t.py\n", ["nodes_apart"]),
        ("srun torchrun --standalone --nnodes=2 --nproc-per-node=4 t.py\n", ["nodes_apart"]),
        ("srun python -m torch.distributed.run --nnodes 2 --nproc_per_node=4 t.py\n", ["nodes_apart"]),
        ("torchrun --nproc-per-node=4 --nnodes=2 --rdzv-endpoint=$HEAD t.py\n", ["nodes_apart"]),
        ("ssh $NODE torchrun --nproc-per-node=4 --nnodes=2 --node-rank=1 --master_addr=$HEAD t.py\n", []),
        ("export NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=0\n" + TORCHRUN + " t.py\n", ["switched_off"]),
        ("#SBATCH --ntasks-per-node=4\nsrun python t.py\n", ["cpus_per_task", "gpu_bind"]),
        ("#SBATCH --ntasks-per-node=4\n" + TORCHRUN + " --nproc_per_node=4 t.py\n", ["launcher_in_launcher"]),
        ("export OMP_NUM_THREADS=1\n" + TORCHRUN + " --nproc-per-node=4 t.py\n", ["one_thread"]),
        (TORCHRUN + " --nproc-per-node=4 t.py --data-path ~/imagenet\n", ["data_at_home"]),
        (TORCHRUN + " --nproc-per-node=4 t.py --data-path /scratch/imagenet --out ~/out\n", []),
    ],
)  # fmt: skip
def test_each_mistake_of_a_batch_script_is_found_with_its_line_and_none_where_there_is_none(
    text: str, found: list[str], tmp_path: Path
) -> None:
    (one,) = answers(tmp_path, HEAD + text)
    assert names(one) == found
    assert all(cause.words.startswith("line ") for cause in one.causes)


@pytest.mark.parametrize("alone", ["--standalone", "--nnodes=1", "no --nnodes"])
def test_a_launcher_of_one_node_is_quoted(alone: str, tmp_path: Path) -> None:
    option = "" if alone.startswith("no") else f"{alone} "
    (one,) = answers(tmp_path, f"{HEAD}srun torchrun {option}--nproc-per-node=4 t.py\n")
    assert f"torchrun has {alone}: each of the 2 nodes" in one.causes[0].words


def test_a_time_beside_a_numbered_epoch_is_that_of_the_epoch(tmp_path: Path) -> None:
    rows = [(count, epoch, 800 / count + epoch) for count in (1, 2, 4) for epoch in (1, 2)]
    (one,) = answers(tmp_path, "world_size,epoch,time_s\n" + "\n".join(",".join(map(str, row)) for row in rows))
    assert one.fits.startswith("4.49 -> 8.97 -> 17.9 epochs/h")


def test_a_table_of_key_averages_says_the_share_of_communication(tmp_path: Path) -> None:
    line = "-" * 20
    text = (
        f"{line}\n    Name    Self CPU %    Self CPU    Self CUDA    # of Calls\n{line}\n"
        "    aten::mm    1.00%    1.000ms    30.000ms    9\n"
        "    ncclDevKernel_AllReduce_Sum_f32    0.00%    0.000us    10.000ms    9\n"
    )
    (one,) = answers(tmp_path, text)
    assert one.causes[0].share == 0.25


def test_a_trace_without_durations_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """The message of Chakra's metadata, and one node that has an id and a name alone."""
    path = tmp_path / "trace.et"
    path.write_bytes(bytes([2, 10, 0, 5, 8, 1, 18, 1, 97]))
    with pytest.raises(InputError, match=r"trace\.et: no node has a duration"):
        explain_files([str(path)], Options())


@pytest.mark.parametrize(
    ("begin", "end"),
    [('{"traceEvents": [{"a":', "}]}"), ('[{"a":', "}]"), ('{"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id":', "}]}")],
)
def test_json_that_lies_too_deep_is_refused_in_one_sentence(begin: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(f"{begin}{50_000 * '['}{50_000 * ']'}{end}")
    with pytest.raises(InputError, match=r"trace\.json: lists or objects that lie too deep in each other"):
        explain_files([str(path)], Options())


# --- the program ----------------------------------------------------------------------------------


def test_the_exit_status_says_how_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rates.csv"
    for rates, status in (({1: 10, 2: 20, 4: 39}, 0), ({1: 10, 2: 20, 4: 20, 8: 20}, 1), ({1: 10}, 3)):
        path.write_text(table(rates))
        assert main(["explain", str(path), "--json"]) == status
        told = json.loads(capsys.readouterr().out)
        assert told["inputs"] == [{"file": str(path), "recognised": ["rates"]}]
        assert told["answers"][0]["verdict"] == {0: "scales", 1: "stalls", 3: "undecided"}[status]
    decided = "a,1,,10\na,2,,20\na,4,,39\n"
    for other, status in (("b,1,,10\n", 3), ("b,1,,10\nb,2,,20\nb,4,,20\nb,8,,20\n", 1)):
        path.write_text(f"series,gpus,gpus_per_node,tok/s\n{decided}{other}")
        assert main(["explain", str(path)]) == status
        path.write_text(f"series,gpus,gpus_per_node,tok/s\n{other}{decided}")
        assert main(["explain", str(path)]) == status
    capsys.readouterr()
    path.write_text("gpus,img/s\n1,fast\n")
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(path)])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {path}, line 2: img/s is fast;")


def test_a_page_has_the_words_and_the_curve(tmp_path: Path) -> None:
    path, page = tmp_path / "rates.csv", tmp_path / "page.html"
    path.write_text(table({1: 10, 2: 20, 4: 20, 8: 20}))
    main(["explain", str(path), "--html", str(page)])
    text = page.read_text()
    assert "stops getting faster at 2 GPUs" in text
    assert "vegaEmbed" in text


def test_the_page_shows_what_the_program_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = blocks(ROOT / "docs/own-numbers.md")
    (tmp_path / "rates.csv").write_text(next(block.text for block in page if block.title == "rates.csv"))
    monkeypatch.chdir(tmp_path)
    statuses = []
    for command, lines in (one for block in page if block.language == "console" for one in commands(block.text)):
        statuses.append(main(shlex.split(command)[1:]))
        assert capsys.readouterr().out.startswith("\n".join(lines))
    assert statuses == [1, 1, 0]
