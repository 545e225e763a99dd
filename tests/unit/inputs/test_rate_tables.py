"""Tables of rates as people write them."""

import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files import readers
from stallpoint_files.rates.rate_tables import ALL, EACH, Rates, read
from stallpoint_files.studies import study_results
from stallpoint_files.texts.numbers import number_in
from stallpoint_traces import trace_reader

EXPECTED = [(2, 1200.5), (4, 2300.0)]


def rates(text: str, encoding: str = "utf-8") -> Rates:
    (one,) = read(Document(Path("table"), text.encode(encoding).decode(encoding)))
    return one


WRITTEN = {
    "csv": "gpus,img/s\n2,1200.5\n4,2300\n",
    "thousands": 'gpus,img/s\n2,"1,200.5"\n4,"2,300 img/s"\n',
    "decimal commas": "GPUs;images per sec\n2;1200,5\n4;2300\n",
    "both": "GPUs;images per sec\n2;1.200,5\n4;2.300,0\n",
    "tsv": "n_gpus\timages/s\n2\t1200.5 ± 3\n4\t~2300 +- 10\n",
    "Markdown": "| GPUs | images/s |\n|---|:---:|\n| 2 | 1200.5 |\n| **4** | `2300` |\n",
    "aligned": "A sentence before it.\n\nGPUs   images/s\n2      1200.5\n4      2.3k\n",
    "spaces": "num_gpus,throughput (images/sec)\n2,1200.5\n4,2 300\n",
    "nodes": "nodes,gpus_per_node,images/s\n1,2,1200.5\n2,2,2300\n",
    "a column each": "| model (img/s) | 2 GPUs | 4 GPUs |\n|--|--|--|\n| net | 1200.5 | 2300 |\n",
    "counts in a row": "GPUs,2,4\nimg/s,1200.5,2300\n",
    "pandas": "   GPUs   img/s\n0     2  1200.5\n1     4  2300.0\n",
    "LaTeX": "\\toprule\nGPUs & images/s \\\\\n\\midrule\n2 & 1200.5 \\\\ \\hline\n4 & 2300 \\\\\n",
    "JSON": '[{"gpus": 2, "img/s": 1200.5},\n {"gpus": 4, "img/s": 2300, "note": null}]',
    "JSON lines": '{"gpus": 2, "img/s": 1200.5}\n{"gpus": 4, "img/s": 2300}\n',
    "nodes by GPUs": "GPUs,img/s\n1x2,1200.5\n2x2,2300\n",
    "counts in words": "| Setup | img/s |\n|---|---|\n| 2 GPUs (1 node) | 1200.5 |\n| 4 GPUs (2 nodes) | 2300 |\n",
    "counts as products": "config,images/s\n1x2,1200.5\n2x2,2300\n",
    "points and commas": 'GPUs,images/s\n2,"1.200,5"\n4,"2.300,0"\n',
    "iterations beside": "GPUs,it/s,images/s\n2,3.1,1200.5\n4,3,2300\n",
    "thousands of images": "GPUs,kimg/s\n2,1.2005\n4,2.3\n",
    "an hour": "GPUs,images/hour\n2,4321800\n4,8.28e6\n",
    "all and each": "GPUs,total img/s,img/s/GPU\n2,1200.5,600\n4,2300,575\n",
    "a name for each run": "GPUs,host,img/s\n2,n1,1200.5\n4,n[1-2],2300\n",
    "a comment": "GPUs,img/s,comment\n2,1200.5,\n4,2300,no InfiniBand\n",
    "sentences": "We get this:\n- on 2 GPUs: 1200.5 img/s\n- on 4 GPUs only 2,300 images/sec.\nWhy?\n",
    "rates before counts": "It does 1200.5 img/s on 2 GPUs, 2.3k img/s with 4 GPUs.\n",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_the_same_table_is_read_however_it_is_written(text: str) -> None:
    found = rates(text)
    assert [(row.workers, row.value) for row in found.rows] == EXPECTED
    assert found.unit == "images/s"


@pytest.mark.parametrize(
    ("text", "unit", "of", "values"),
    [
        ("GPUs,speedup\n1,1\n2,1.9\n", "times the first", ALL, [1, 1.9]),
        ("GPUs,TFLOPS/GPU\n8,410\n16,402\n", "TFLOP/s", EACH, [410, 402]),
        ("GPUs,loss,MFU (%)\n8,1,45.1\n16,2,44\n", "workers at peak", EACH, [0.451, 0.44]),
        ("GPUs,efficiency\n8,1\n16,0.9\n", "ideal workers", EACH, [1, 0.9]),
    ],
)
def test_a_table_without_rates_is_read_by_what_is_in_proportion_to_them(
    text: str, unit: str, of: str, values: list[float]
) -> None:
    found = rates(text)
    assert (found.unit, found.of) == (unit, of)
    assert [row.value for row in found.rows] == pytest.approx(values)


def test_columns_of_scatter_and_extremes_are_no_series() -> None:
    found = rates("gpus,min img/s,mean img/s,std img/s,max_img/s\n2,1100,1200.5,40,1300\n4,2250,2300,30,2350\n")
    assert [(row.workers, row.value) for row in found.rows] == EXPECTED
    assert [row.value for row in rates("world_size,avg_step_ms,std_ms\n1,95.2,1.1\n2,101.3,1.4\n").rows] == [
        pytest.approx(0.0952),
        pytest.approx(0.1013),
    ]


def test_nodes_in_sentences_say_how_many_workers_a_node_has() -> None:
    found = rates("Why, is it the network?\n1 GPU: 2 s/it\n4 GPUs: 3 s/it\n8 GPUs (2 nodes): 5 s/it\n")
    assert [(row.workers, row.value, row.workers_per_node) for row in found.rows] == [(1, 2, 1), (4, 3, 4), (8, 5, 4)]
    assert found.seconds == "iteration"


def test_an_encoding_is_told_by_the_bytes(tmp_path: Path) -> None:
    text = "gpus,img/s\n2,1200.5\n4,2300\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"):
        path = tmp_path / encoding
        path.write_bytes(text.encode(encoding))
        assert [(row.workers, row.value) for row in read(Document.read(path))[0].rows] == EXPECTED


def test_cells_that_say_that_nothing_was_measured_are_no_rates() -> None:
    found = rates("gpus,tok/s\n1,10\n2,OOM\n4,ERROR: NCCL\n8,\n16,-\n32,n/a\n")
    assert [row.value for row in found.rows] == [10, None, None, None, None, None]
    assert found.notes == ("line 3: OOM is no rate", "line 4: ERROR: NCCL is no rate", "line 7: n/a is no rate")


def test_a_heading_says_whose_the_rates_are_and_that_values_are_times() -> None:
    assert rates("gpus,tokens/s/GPU\n1,10\n2,9\n").of == EACH
    steps = rates("gpus,ms/iter\n1,250\n2,260\n")
    assert steps.seconds == "iteration"
    assert [row.value for row in steps.rows] == [0.25, 0.26]
    epochs = rates("gpus,epoch time\n4,7:57 min\n8,1:01:01\n")
    assert epochs.seconds == "epoch"
    assert [row.value for row in epochs.rows] == [477, 3661]


@pytest.mark.parametrize(
    ("heading", "cells", "seconds", "unit"),
    [
        ("epoch time", ("1h 20m", "42m30s"), (4800, 2550), "epochs/h"),
        ("time to train (hours)", ("20", "6.5 ± 0.2"), (72000, 23400), "runs/h"),
        ("walltime", ("90 min", "2700"), (5400, 2700), "runs/h"),
    ],
)
def test_times_of_the_same_work_are_read_in_the_units_that_cells_or_heading_name(
    heading: str, cells: tuple[str, str], seconds: tuple[float, float], unit: str
) -> None:
    found = rates(f"gpus,data time,{heading}\n1,7,{cells[0]}\n2,7,{cells[1]}\n")
    assert [row.value for row in found.rows] == list(seconds)
    assert (found.seconds, found.unit) == ("epoch", unit)


def test_columns_for_counts_without_a_word_of_what_they_hold_are_asked_for_it() -> None:
    with pytest.raises(InputError, match=r"table, line 2: a column for each count \(model, 1 GPU, 2 GPUs\); what its"):
        rates("\nmodel,1 GPU,2 GPUs\nnet,100,190\n")
    assert rates("epoch time\nmodel,1 GPU,2 GPUs\nnet,1:40,50\n").seconds == "epoch"


def test_time_per_mini_batch_in_milliseconds_is_that_of_an_iteration() -> None:
    found = rates("gpus,mini-batch time,gpu hours\n1,250 ms,1\n2,0.13,1\n")
    assert [row.value for row in found.rows] == [0.25, 0.13]
    assert found.seconds == "iteration"


def test_other_columns_of_numbers_are_series_of_their_own() -> None:
    found = rates("gpus,ResNet50,VGG16\n1,100,50\n2,190,80\n")
    assert [(row.series, row.value) for row in found.rows] == [
        ("ResNet50", 100), ("VGG16", 50), ("ResNet50", 190), ("VGG16", 80),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus,img/s\n1,10\n2,fast\n", "line 3: img/s is fast; a positive number is expected, or nothing"),
        ("gpus,img/s\n1,-10\n", "line 2: img/s is -10; a positive number"),
        ("gpus,img/s\n1.5,10\n", "line 2: gpus is 1.5; a whole number from 1 on"),
        ("gpus,img/s\ntwo,10\n", "line 2: gpus is two; a whole number from 1 on"),
        (
            "gpus,img/s\n2,4,800\n",
            r"line 2: 3 cells for 2 columns \(gpus, img/s\); a number with a comma in it goes in",
        ),
        (
            "gpus,epoch time\n1,1h １２20m\n",
            "line 2: epoch time is 1h １２20m; a time is expected",
        ),
        (f"gpus,epoch time\n1,1h {'9' * 400}m\n", "line 2: epoch time is 1h 9{37}; a time is expected"),
        ("gpus,img/s\n1-2,10\n4,20\n", "line 2: gpus is 1-2; a whole number"),
        ("n,t\n1,2.1\n2,1.1\n", r"line 1: t falls with the workers and is a rate or a time; a unit says which"),
        ("host,img/s\nn1,10\n", "line 2: host is n1; a whole number"),
        ("nodes,gpus,img/s\n", "no rows below the heading of line 1"),
        ("gpus,img/s\n", "no rows below the heading of line 1"),
        ("gpus,loss\n1,2.5\n", "line 1: no column of rates among gpus, loss; a unit says which"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_how_to_write_it(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rates(text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("GPUs,step\n1,210 ms\n2,0.22 s\n", [0.21, 0.22]),
        ("GPUs,iteration time (us)\n1,210000\n2,220000\n", [0.21, 0.22]),
        ("GPUs,it/s\n1,5\n2,4\n", [0.2, 0.25]),
    ],
)
def test_times_are_known_by_units_in_cells_and_by_iterations_a_second(text: str, values: list[float]) -> None:
    found = rates(text)
    assert found.seconds == "iteration"
    assert [row.value for row in found.rows] == pytest.approx(values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("gpus,speed\n2,2.46s/iter\n4,8.68s/iter\n", [2.46, 8.68]),
        ("gpus,speed\n2,2.46s\n4,8.68s\n", [2.46, 8.68]),
        ("gpus,throughput\n2,210 ms\n4,0.22 s\n", [0.21, 0.22]),
        ("gpus,Speed (s/it)\n1,2.1\n4,0.7\n", [2.1, 0.7]),
        ("gpus,performance [ms]\n1,210\n4,70\n", [0.21, 0.07]),
        ("gpus,time\n1,5 it/s\n2,4 it/s\n", [0.2, 0.25]),
    ],
)
def test_a_unit_wins_over_the_word_in_the_heading(text: str, values: list[float]) -> None:
    found = rates(text)
    assert found.seconds == "iteration"
    assert [row.value for row in found.rows] == pytest.approx(values)


@pytest.mark.parametrize(
    "heading",
    [
        "lr", "learning rate", "loss", "cost ($/hour)", "price per hour", "power", "Energy (J)", "peak mem",
        "message bytes", "bandwidth (MB/s)", "busbw", "Gbps", "top-1 accuracy", "error rate", "link speed",
    ],
)  # fmt: skip
def test_no_other_quantity_is_taken_for_a_rate(heading: str) -> None:
    with pytest.raises(InputError, match="line 1: no column of rates among workers, loss, "):
        rates(f"workers,loss,{heading}\n1,2.1,0.1\n2,2.0,0.2\n")
    assert [row.value for row in rates(f"workers,{heading},img/s\n1,0.1,10\n2,0.2,19\n").rows] == [10, 19]


def test_numbers_without_a_word_of_what_they_are_are_asked_for_it() -> None:
    with pytest.raises(InputError, match=r"line 1: nothing says whether value is a rate or a time; a unit says which"):
        rates("gpus,value\n1,10\n2,19\n")
    with pytest.raises(InputError, match="line 1: nothing says whether speed is a rate"):
        rates("gpus,speed\n1,10 GB/s\n2,19 GB/s\n")
    with pytest.raises(InputError, match="line 1: nothing says whether FP32, AMP are rates or times"):
        rates("GPUs,FP32,AMP\n1,100,200\n2,195,380\n")
    assert [row.value for row in rates("gpus,value\n1,10 img/s\n2,19 img/s\n").rows] == [10, 19]
    assert rates("gpus,seed,speedup\n1,42,1\n2,43,1.9\n").unit == "times the first"


def test_names_of_hardware_are_no_units_of_memory_or_power() -> None:
    for heading in ("GB200 img/s", "A100 80GB img/s", "POWER9 img/s"):
        assert [row.value for row in rates(f"gpus,{heading}\n1,10\n2,19\n").rows] == [10, 19]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("GPUs;img/s\n1;360\n4;1.350\n", [360, 1350]),
        ("GPUs;img/s\n1;1.180,5\n4;4.502,9\n", [1180.5, 4502.9]),
        ("GPUs\timg/s\n1\t0,210\n4\t1,100\n", [0.21, 1.1]),
        ("GPUs,speedup\n1,1.000\n4,3.812\n", [1, 3.812]),
    ],
)
def test_points_and_commas_are_read_by_the_whole_column(text: str, values: list[float]) -> None:
    assert [row.value for row in rates(text).rows] == values


def test_what_stands_once_for_the_rows_below_it_names_their_series() -> None:
    found = rates("model\tGPUs\timg/s\na\t1\t10\n\t2\t19\nb\t1\t5\n\t2\t9\n")
    assert [row.series for row in found.rows] == ["a", "a", "b", "b"]


def test_settings_in_numbers_are_series_and_no_repeats() -> None:
    swept = rates("gpus,seq_len,img/s\n1,512,10\n1,1024,5\n2,512,19\n2,1024,9\n")
    assert [(row.series, row.value) for row in swept.rows] == [
        ("seq_len 512", 10), ("seq_len 1024", 5), ("seq_len 512", 19), ("seq_len 1024", 9),
    ]  # fmt: skip
    assert {row.series for row in rates("gpus,rep,img/s\n1,1,10\n1,2,11\n2,1,19\n2,2,20\n").rows} == {"table"}


def test_gpus_beside_nodes_are_those_of_each_node_where_their_number_stays_and_more_are_faster() -> None:
    assert [row.workers for row in rates("nodes,gpus,img/s\n1,8,10\n2,8,19\n").rows] == [8, 16]
    placed = rates("nodes,gpus,img/s\n1,8,10\n2,8,7\n").rows
    assert [(row.workers, row.workers_per_node) for row in placed] == [(8, 8), (8, 4)]


def test_a_column_of_names_is_no_column_of_counts_where_another_has_them() -> None:
    found = rates("GPU,n,img/s\nA100,1,10\nA100,2,19\nV100,1,5\nV100,2,9\n")
    assert [(row.series, row.workers) for row in found.rows] == [("A100", 1), ("A100", 2), ("V100", 1), ("V100", 2)]


def test_columns_that_count_runs_are_repeats() -> None:
    found = rates("GPUs,run1,run2\n1,10,11\n2,19,20\n")
    assert [(row.series, row.workers, row.value) for row in found.rows] == [
        ("table", 1, 10),
        ("table", 1, 11),
        ("table", 2, 19),
        ("table", 2, 20),
    ]


def test_a_mini_batch_that_grows_with_the_workers_is_that_of_all_and_one_that_stays_is_not_guessed() -> None:
    growing = rates("GPUs,batch,s/it\n1,64,2\n2,128,2.1\n").rows
    assert [(row.batch_per_worker, row.global_batch) for row in growing] == [(None, 64), (None, 128)]
    assert [row.batch_per_worker for row in rates("GPUs,batch,s/it\n1,256,2\n2,256,1.05\n").rows] == [None, None]
    assert [row.batch_per_worker for row in rates("GPUs,batch per GPU,s/it\n1,64,2\n2,64,2.1\n").rows] == [64, 64]


def test_parallel_efficiency_is_that_of_each() -> None:
    assert rates("nodes,parallel efficiency\n1,1\n2,0.9\n").of == EACH


def test_a_small_json_is_a_trace_where_it_has_events(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for text, trace in (
        ('[{"gpus": 2, "img/s": 1200.5}]', False),
        ('{\n"train_samples_per_second": 9\n}', False),
        ('{"traceEvents": []}', True),
        ('[{"ph": "X"}]', True),
    ):
        path.write_text(text)
        assert (trace_reader.trace(path) == path) == trace, text


def test_a_workbook_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "table.xlsx"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("xl/workbook.xml", "<workbook/>")
    with pytest.raises(InputError, match="a workbook of Excel; save its sheet as CSV"):
        study_results.read(path)


def test_a_file_that_is_nothing_known_says_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("It is slow.\nWhy?\n")
    with pytest.raises(
        InputError, match=r"line 1: 'It is slow\.' begins nothing that is known; known are .*nccl-tests"
    ):
        readers.read(path)
    path.write_text("-|--|\n| ")
    with pytest.raises(InputError, match=r"line 1: '-\|--\|' begins nothing that is known"):
        readers.read(path)
    path.write_text("image,img/s\n224x224,10\n448x448,3\n")
    with pytest.raises(InputError, match="line 1: no heading of worker counts"):
        readers.read(path)
    path.write_text("1 360\n2 700\n")
    with pytest.raises(InputError, match="line 1: numbers without a heading: '1 360'; expected is a table"):
        readers.read(path)
    path.write_text("step 1, time 0.3\nstep 2, time 0.4\n")
    with pytest.raises(InputError, match="for a training log, --pattern"):
        readers.read(path)
    path.write_text("batch,img/s\n1,2\n")
    with pytest.raises(InputError, match="line 1: no heading of worker counts in 'batch,img/s'; expected is a table"):
        readers.read(path)
    path.write_bytes(bytes(range(1, 9)) * 100)
    with pytest.raises(InputError, match="not a text"):
        readers.read(path)
    path.write_text(" \n")
    with pytest.raises(InputError, match="empty; known are"):
        readers.read(path)
    path.write_text('"""Train."""\nimport torch, sys\nfor step in range(3): print(step, "8 GPUs")\n')
    with pytest.raises(InputError, match=r"line 2: a training script is run, not read: .*stallpoint\.probe"):
        readers.read(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12k", 12000),
        ("1.5M", 1.5e6),
        ("1'234.5", 1234.5),
        ("3e2", 300),
        ("~9200", 9200),
        ("17,5", 17.5),
        ("10 ms", 10),
    ],
)
def test_numbers_are_read_past_their_units(text: str, value: float) -> None:
    assert number_in(text) == value


_TABLES = ("gpus,img/s\n1,10\n2,19\n", "| a | GPUs | tok/s |\n|--|--|--|\n| x | 1 | 10 |\n", "n;s/it\n1;0,5\n2;0,6\n")
_LOGS = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    "        1024           256     float     sum      -1    53.88    0.02    0.04      0\n",
    "# OSU MPI Allreduce Latency Test v7.4\n# Size       Avg Latency(us)\n4   7.9\n",
    "#SBATCH --gres=gpu:4\n#SBATCH -c 8\nsrun python 'train.py' --data ~/x\n",
    "step: 1  loss: 2  tps: 1,234\nworld_size=8\n",
    "h:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\nh:1:2 [0] NCCL INFO Channel 00 : 0[1] -> 1[2] via NET/IB/0\n",
    '{"results": [{"size": 1, "in_place": {"time": 2.5}}], "devices": []}',
    "Name    Self CPU    # of Calls\naten::mm    1.5ms    3\n",
    "# Benchmarking Allreduce\n# #processes = 4\n#bytes #repetitions  t_min[usec]  t_max[usec]  "
    "t_avg[usec]\n8 9 1 2 3\n",
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(
    text=st.sampled_from(_TABLES + _LOGS),
    edits=st.lists(
        st.tuples(
            st.integers(0, 400), st.sampled_from(["", "\n", ",", "é", "-", "9" * 30, ".", "²", "\x00", ";", '"', "|"])
        ),
        max_size=6,
    ),
)
def test_a_damaged_file_is_read_or_refused_in_one_sentence(
    text: str, edits: list[tuple[int, str]], tmp_path: Path
) -> None:
    """Never a traceback, and never a message that names neither the file nor what is wrong."""
    from stallpoint_files.answering import explain_files
    from stallpoint_files.file_options import Options

    for place, new in edits:
        at = place % (len(text) + 1)
        text = text[:at] + new + text[at + (place % 3) :]
    path = tmp_path / "input"
    path.write_text(text, encoding="utf-8")
    said = ""
    try:
        found = explain_files([str(path)], Options())
    except InputError as error:
        said = str(error)
    if said:
        assert said.startswith(str(path))
        assert "\n" not in said
    else:
        assert found.answers
        assert found.in_words().count("\n") <= 20
