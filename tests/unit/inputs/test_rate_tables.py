"""Tables of rates as people write them."""

import zipfile
from pathlib import Path
from typing import Any

import pytest

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files import readers
from stallpoint_files.rates.rate_rows import ALL, EACH, Rates
from stallpoint_files.rates.rate_tables import read
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


READ: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "what is in proportion to rates": [
        ("GPUs,speedup\n1,1\n2,1.9\n", {"unit": "times the first", "of": ALL, "value": [1, 1.9]}),
        ("GPUs,TFLOPS/GPU\n8,410\n16,402\n", {"unit": "TFLOP/s", "of": EACH, "value": [410, 402]}),
        ("GPUs,loss,MFU (%)\n8,1,45.1\n16,2,44\n", {"unit": "workers at peak", "of": EACH, "value": [0.451, 0.44]}),
        ("GPUs,efficiency\n8,1\n16,0.9\n", {"unit": "ideal workers", "of": EACH, "value": [1, 0.9]}),
        ("nodes,parallel efficiency\n1,1\n2,0.9\n", {"of": EACH}),
        ("gpus,tokens/s/GPU\n1,10\n2,9\n", {"of": EACH}),
    ],
    "times": [
        ("gpus,ms/iter\n1,250\n2,260\n", {"seconds": "iteration", "value": [0.25, 0.26]}),
        ("gpus,mini-batch time,gpu hours\n1,250 ms,1\n2,0.13,1\n", {"seconds": "iteration", "value": [0.25, 0.13]}),
        ("GPUs,step\n1,210 ms\n2,0.22 s\n", {"seconds": "iteration", "value": [0.21, 0.22]}),
        ("GPUs,iteration time (us)\n1,210000\n2,220000\n", {"seconds": "iteration", "value": [0.21, 0.22]}),
        ("GPUs,it/s\n1,5\n2,4\n", {"seconds": "iteration", "value": [0.2, 0.25]}),
        ("gpus,epoch time\n4,7:57 min\n8,1:01:01\n", {"seconds": "epoch", "value": [477, 3661]}),
        ("n,data time,epoch time\n1,7,1h 20m\n2,7,42m30s\n", {"unit": "epochs/h", "value": [4800, 2550]}),
        ("n,time to train (hours)\n1,20\n2,6.5 ± 0.2\n",
         {"seconds": "epoch", "unit": "runs/h", "value": [72000, 23400]}),
        ("n,mins\n1,20\n2,11\n", {"seconds": "epoch", "value": [1200, 660]}),
        ("n,data time,walltime\n1,7,90 min\n2,7,2700\n", {"seconds": "epoch", "unit": "runs/h", "value": [5400, 2700]}),
    ],
    "a unit, which wins over the word in the heading": [
        ("gpus,speed\n2,2.46s/iter\n4,8.68s/iter\n", {"seconds": "iteration", "value": [2.46, 8.68]}),
        ("gpus,speed\n2,2.46s\n4,8.68s\n", {"seconds": "iteration", "value": [2.46, 8.68]}),
        ("gpus,throughput\n2,210 ms\n4,0.22 s\n", {"seconds": "iteration", "value": [0.21, 0.22]}),
        ("gpus,Speed (s/it)\n1,2.1\n4,0.7\n", {"seconds": "iteration", "value": [2.1, 0.7]}),
        ("gpus,performance [ms]\n1,210\n4,70\n", {"seconds": "iteration", "value": [0.21, 0.07]}),
        ("gpus,time\n1,5 it/s\n2,4 it/s\n", {"seconds": "iteration", "value": [0.2, 0.25]}),
    ],
    "names of hardware, which are no units": [
        (f"gpus,{heading}\n1,10\n2,19\n", {"value": [10, 19]})
        for heading in ("GB200 img/s", "A100 80GB img/s", "POWER9 img/s")
    ],
    "points and commas, by the whole column": [
        ("GPUs;img/s\n1;360\n4;1.350\n", {"value": [360, 1350]}),
        ("GPUs;img/s\n1;1.180,5\n4;4.502,9\n", {"value": [1180.5, 4502.9]}),
        ("GPUs\timg/s\n1\t0,210\n4\t1,100\n", {"value": [0.21, 1.1]}),
        ("GPUs,speedup\n1,1.000\n4,3.812\n", {"value": [1, 3.812]}),
    ],
    "series": [
        ("gpus,ResNet50,VGG16\n1,100,50\n2,190,80\n",
         {"series": ["ResNet50", "VGG16"] * 2, "value": [100, 50, 190, 80]}),
        ("model\tGPUs\timg/s\na\t1\t10\n\t2\t19\nb\t1\t5\n\t2\t9\n", {"series": ["a", "a", "b", "b"]}),
        ("gpus,seq_len,img/s\n1,512,10\n1,1024,5\n2,512,19\n2,1024,9\n",
         {"series": ["seq_len 512", "seq_len 1024"] * 2, "value": [10, 5, 19, 9]}),
        ("GPU,n,img/s\nA100,1,10\nA100,2,19\nV100,1,5\nV100,2,9\n",
         {"series": ["A100", "A100", "V100", "V100"], "workers": [1, 2, 1, 2]}),
    ],
    "repeats and scatter, which are no series": [
        ("gpus,rep,img/s\n1,1,10\n1,2,11\n2,1,19\n2,2,20\n", {"series": ["table"] * 4}),
        ("GPUs,run1,run2\n1,10,11\n2,19,20\n",
         {"series": ["table"] * 4, "workers": [1, 1, 2, 2], "value": [10, 11, 19, 20]}),
        ("gpus,min img/s,mean img/s,std img/s,max_img/s\n2,1100,1200.5,40,1300\n4,2250,2300,30,2350\n",
         {"workers": [2, 4], "value": [1200.5, 2300]}),
        ("world_size,avg_step_ms,std_ms\n1,100,5\n2,80,2\n", {"value": [0.1, 0.08], "deviation": [0.05, 0.025]}),
        ("gpus,img/s,loss,std loss\n1,10 ± 20 %,1,2\n2,20 +/- 1,1,2\n",
         {"deviation": [0.2, 0.05], "notes": ("not understood and not read: std loss",)}),
    ],
    "a table for each count, which goes on with the one before it": [
        ("# 1 GPU\n| GPUs | img/s |\n|--|--|\n| 1 | 10 |\n\n# 2 GPUs\n| GPUs | img/s |\n|--|--|\n| 2 | 19 |\n",
         {"workers": [1, 2], "value": [10, 19]}),
    ],
    "sizes that grow with the workers": [
        ("size | ranks | median\n-- | -- | --\n(64, 8) | (1, 1) | 2 ms\n(64, 16) | (1, 2) | 3 ms\n",
         {"workers": [1, 2], "scaling": "weak"}),
    ],
    "what counts workers, threads only where nothing else does": [
        ("threads,time (s)\n1,2\n4,1.1\n", {"workers": [1, 4], "counted": "threads"}),
        ("gpus,threads,s/it\n1,4,2\n2,4,1.1\n", {"workers": [1, 2], "counted": "GPUs"}),
    ],
    "workers of a node": [
        ("Why, is it the network?\n1 GPU: 2 s/it\n4 GPUs: 3 s/it\n8 GPUs (2 nodes): 5 s/it\n",
         {"seconds": "iteration", "workers": [1, 4, 8], "value": [2, 3, 5], "workers_per_node": [1, 4, 4]}),
        ("nodes,gpus,img/s\n1,8,10\n2,8,19\n", {"workers": [8, 16]}),
        ("nodes,gpus,img/s\n1,8,10\n2,8,7\n", {"workers": [8, 8], "workers_per_node": [8, 4]}),
    ],
    "a mini-batch, that of all where it grows with the workers and not guessed where it stays": [
        ("GPUs,batch,s/it\n1,64,2\n2,128,2.1\n", {"batch_per_worker": [None, None], "global_batch": [64, 128]}),
        ("GPUs,batch,s/it\n1,256,2\n2,256,1.05\n", {"batch_per_worker": [None, None]}),
        ("GPUs,batch per GPU,s/it\n1,64,2\n2,64,2.1\n", {"batch_per_worker": [64, 64]}),
    ],
    "what was not measured": [
        ("gpus,tok/s\n1,10\n2,OOM\n4,ERROR: NCCL\n8,\n16,-\n32,n/a\n",
         {"value": [10, None, None, None, None, None],
          "notes": ("line 3: OOM is no rate", "line 4: ERROR: NCCL is no rate", "line 7: n/a is no rate")}),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"), [case for cases in READ.values() for case in cases], ids=[k for k, c in READ.items() for _ in c]
)
def test_a_table_tells(text: str, told: dict[str, Any]) -> None:
    found = rates(text)
    of_rows = {name for name in told if not hasattr(found, name)}
    assert {name: getattr(found, name) for name in told.keys() - of_rows} == {n: told[n] for n in told.keys() - of_rows}
    for name in of_rows:
        assert [getattr(row, name) for row in found.rows] == pytest.approx(told[name]), name


def test_an_encoding_is_told_by_the_bytes(tmp_path: Path) -> None:
    text = "gpus,img/s\n2,1200.5\n4,2300\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"):
        path = tmp_path / encoding
        path.write_bytes(text.encode(encoding))
        assert [(row.workers, row.value) for row in read(Document.read(path))[0].rows] == EXPECTED


def test_columns_for_counts_without_a_word_of_what_they_hold_are_asked_for_it() -> None:
    with pytest.raises(InputError, match=r"table, line 2: a column for each count \(model, 1 GPU, 2 GPUs\); what its"):
        rates("\nmodel,1 GPU,2 GPUs\nnet,100,190\n")
    assert rates("epoch time\nmodel,1 GPU,2 GPUs\nnet,1:40,50\n").seconds == "epoch"


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
    path.write_text("It is late.\nWhy?\n")
    with pytest.raises(
        InputError, match=r"line 1: 'It is late\.' begins nothing that is known; known are .*nccl-tests"
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
    with pytest.raises(InputError, match="line 1: no heading of worker counts in 'batch,img/s'; numbers are below"):
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
        ("1.2T", 1.2e12),
        ("3 TFLOP", 3),
    ],
)
def test_numbers_are_read_past_their_units(text: str, value: float) -> None:
    assert number_in(text) == value
