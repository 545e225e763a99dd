"""Commands of the user's: what starts them where, what is kept of them, and what is said of those that cannot work."""

import inspect
import math
import os
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from launching import copied
from snakemake.shell import shell

from stallpoint.archive.anonymising import Names, cell_without_names
from stallpoint.errors import CannotRun, InputError
from stallpoint.measure.jobs import command
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.models.answers import remedies
from stallpoint.models.iteration.scenarios import Scenario
from stallpoint.records.disturbances import cpu_numbers
from stallpoint.records.tables import ITERATIONS, LAYERS, PROBES
from stallpoint.schedule.processes import _environment
from stallpoint.strategies.presets import PRESETS, to_values
from stallpoint.study import work
from stallpoint.study.commands import check, drop_mpi, process_of
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.study import Study, expand

SCHEMA = yaml.safe_load((Path(__file__).parents[3] / "workflow/schemas/study.schema.yaml").read_text())
STEPS = """
import sys, torch, stallpoint
model = torch.nn.Linear(2, 2)
with stallpoint.probe(model) as probe:
    for number in range(int(sys.argv[1])):
        model(torch.zeros(1, 2)).sum().backward()
        probe.step()
"""


def cell(run: str, **changes: Any) -> CommandCell:
    one = CommandCell(
        hardware="cpu", nodes=1, repeat=1, workers_per_node=1, device="cpu", threads_per_worker=1, seed=5,
        precision="float32", anonymise=False,
        network="mine", batch=8, storage="script", scaling="weak", sync="ddp", prefetch=1,
        worker_batch=8, iterations=2, warmup=1, readers=1, storage_path="", storage_format="",
        preset=to_values(PRESETS["ddp"].preset), own_network=None, run=run, launch="workers", rate="", max_minutes=1.0,
    )  # fmt: skip
    return replace(one, **changes)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a script."""
    monkeypatch.chdir(tmp_path)
    for name, value in copied().items():
        monkeypatch.setenv(name, value)
    Path("steps.py").write_text(STEPS)
    return tmp_path


def measured(one: CommandCell, here: Path, visit: int = 1) -> Recorder:
    keep = Recorder(one, 0, visit, here / "visits/checkpoint")
    command.measure(one, World.start(1), keep)
    return keep


def test_a_cell_survives_json() -> None:
    one = cell("python train.py {seed}")
    assert cell_from_json(one.to_json()) == one
    assert one.path.startswith("command/network~mine/")
    assert one.storages == ()


@pytest.mark.parametrize(
    ("launch", "container", "expected"),
    [
        ("workers", "", [["train", "8", "r0"], ["train", "8", "r1"], ["train", "8", "r2"], ["train", "8", "r3"]]),
        (
            "workers",
            "apptainer exec my.sif",
            [["apptainer", "exec", "my.sif", "train", "8", f"r{r}"] for r in range(4)],
        ),
        ("mpirun -n {ranks}", "", [["mpirun", "-n", "4", "train", "8", "r0"], None, None, None]),
        (
            "mpirun -n {ranks}",
            "enroot start me",
            [["mpirun", "-n", "4", "enroot", "start", "me", "train", "8", "r0"], None, None, None],
        ),
    ],
)
def test_each_launcher_starts_what_it_is_to(launch: str, container: str, expected: list[list[str] | None]) -> None:
    one = cell("train {worker_batch} r{rank}", nodes=2, workers_per_node=2, launch=launch)
    processes = [process_of(one, rank, "host", 7, container) for rank in range(4)]
    assert [process and process.arguments for process in processes] == expected


def test_torchrun_is_started_on_each_node_inside_of_the_container() -> None:
    one = cell("train", nodes=2, workers_per_node=2, launch="torchrun")
    processes = [process_of(one, rank, "host", 7, "apptainer exec my.sif") for rank in range(4)]
    assert [process is not None for process in processes] == [True, False, True, False]
    second = processes[2]
    assert second
    text = " ".join(second.arguments)
    assert text.startswith("apptainer exec my.sif torchrun --no-python --nnodes 2 --node-rank 1 --nproc-per-node 2 ")
    assert text.endswith("--master-addr host --master-port 7 train")


@pytest.mark.parametrize(("nodes", "several"), [(1, False), (2, True)])
def test_accelerate_starts_a_process_for_each_worker(nodes: int, several: bool) -> None:
    started = process_of(cell("train", nodes=nodes, workers_per_node=1, launch="accelerate"), 0, "host", 7)
    assert started
    assert ("--multi_gpu" in started.arguments) == several
    assert started.arguments[-1] == "train"
    # By itself it leaves a single process without, and a script's init_process_group then fails.
    assert ("RANK" in started.variables) == (not several)


def test_options_of_pyxis_are_given_to_srun_alone() -> None:
    one = cell("train", nodes=2, launch="srun")
    process = process_of(one, 0, "host", 7, "--container-image=my.sqsh")
    assert process
    assert process.arguments[-2:] == ["--container-image=my.sqsh", "train"]
    with pytest.raises(InputError, match=r"is for srun; commands\.mine has launch: mpirun"):
        process_of(replace(one, launch="mpirun"), 0, "host", 7, "--container-image=a")


def test_a_command_is_no_rank_of_the_job_that_starts_it() -> None:
    variables = {"PMIX_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_ALLOW_RUN_AS_ROOT": "1", "PATH": "/bin"}
    assert drop_mpi(variables) == {"OMPI_ALLOW_RUN_AS_ROOT": "1", "PATH": "/bin"}


def test_a_script_is_expected_to_take_longer_where_workers_share_cores() -> None:
    known = work.KnownProperties(None, 3.0, lambda _: 0.0, 0.0)
    assert cell("python train.py").seconds(known) == work.VISIT + 3 * work.SCRIPT_SECONDS


@pytest.mark.parametrize("launch", ["workers", "torchrun", "accelerate", "srun", "mpirun", "horovodrun -np {ranks}"])
def test_a_command_computes_with_the_threads_of_its_cell_whichever_library_it_computes_with(launch: str) -> None:
    started = process_of(cell("train", nodes=2, launch=launch, threads_per_worker=3), 0, "host", 7)
    assert started
    of_snakemake = re.findall(r'envvars\["(\w+_THREADS)"\]', inspect.getsource(shell))
    assert len(of_snakemake) > 3
    assert {started.variables.get(name) for name in of_snakemake} == {"3"}
    built_in = _environment(3)
    assert {built_in.get(name) for name in of_snakemake} == {"3"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run": "train --batch {bach}"}, r"mine\.run: unknown placeholder \{bach\}; did you mean \{batch\}\?"),
        *(
            ({"run": f"train {odd}"}, r"mine\.run: .*only a name")
            for odd in ("{nodes:9999999}", "{nodes!r}", "{nodes:{x}}")
        ),
        ({"run": "train {nodes.__class__}"}, r"mine\.run: unknown placeholder"),
        ({"run": "train \0"}, r"mine\.run: holds a NUL byte"),
        ({"launch": "mpirun -n {ranks:zzz}"}, r"mine\.launch: .*only a name"),
        ({"run": "train {"}, r"commands\.mine\.run: .*braces that are no placeholder are written twice"),
        ({"run": "train 'x"}, r"commands\.mine\.run: .*No closing quotation"),
        ({"run": "  "}, r"commands\.mine\.run: an empty command"),
        ({"launch": "torchrn"}, r"commands\.mine\.launch: unknown launcher 'torchrn'; known: workers, torchrun"),
        ({"launch": "mpirun -n {rnks}"}, r"commands\.mine\.launch: unknown placeholder \{rnks\}"),
        ({"rate": "("}, r"commands\.mine\.rate: '\(' is no regular expression"),
        ({"rate": "[0-9]+"}, r"commands\.mine\.rate: .* needs one group named rate, worker_rate"),
    ],
)
def test_wrong_entries_are_named(changes: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check({"mine": {"run": "train", "launch": "workers", "rate": "", **changes}})


def test_iterations_count_on_from_visit_to_visit_and_no_more_are_kept_than_are_asked_for(here: Path) -> None:
    keep = measured(cell("python steps.py 9"), here, visit=2)
    rows = keep.arrow(ITERATIONS).to_pandas()
    assert rows["iteration"].tolist() == [3, 4, 5]
    assert rows["warmup"].tolist() == [True, False, False]
    assert keep.arrow(LAYERS)["iteration"].to_pylist() == [3, 4, 5]
    (probe,) = keep.arrow(PROBES).to_pylist()
    assert (probe["iterations"], probe["threads"]) == (3, 1)
    assert cpu_numbers(probe["cpus"]) == os.sched_getaffinity(0)
    assert keep.measuring == pytest.approx(rows["iteration_time"].sum())
    assert not list((here / "visits").iterdir()), "what is recorded is not kept twice"


@pytest.mark.parametrize(
    ("group", "printed", "seconds"),
    [("rate", "16", 0.5), ("worker_rate", "4", 2.0), ("seconds", "0.25", 0.25), ("milliseconds", "250", 0.25)],
)
def test_printed_rates_are_iterations(group: str, printed: str, seconds: float, here: Path) -> None:
    one = cell(f"printf 'step {printed} x\\n%.0s' 1 2 3 4", rate=rf"^step (?P<{group}>[\d.]+)")
    rows = measured(one, here).arrow(ITERATIONS).to_pandas()
    assert rows["iteration_time"].tolist() == [seconds] * 3
    assert rows["forward"].map(math.isnan).all(), "what is not known is not made up"


@pytest.mark.parametrize(
    ("changes", "problem", "message"),
    [
        ({"run": "true"}, InputError, "ended without an iteration: put `with stallpoint.probe"),
        ({"run": "no-such-program"}, InputError, "no program 'no-such-program': No such file"),
        ({"run": "sh -c 'echo too small; exit 4'"}, CannotRun, r"(?s)exit status 4; .*too small"),
        ({"run": "sh -c 'kill -9 $$'"}, CannotRun, "was killed .signal 9."),
        (
            {"run": "sleep 60", "max_minutes": 0.005},
            CannotRun,
            r"not ended after 0\.005 min .max_minutes., and 0 of 1 worker.s. had opened a probe;",
        ),
        ({"run": "echo 3 4", "rate": "(?P<rate>[0-9])"}, InputError, r"matches 2 times .* = 3 are needed"),
        ({"run": "echo 0 0 0", "rate": "(?P<rate>[0-9])"}, InputError, "matches what is no number above 0"),
    ],
)
def test_what_does_not_work_is_said(
    changes: dict[str, Any], problem: type[Exception], message: str, here: Path
) -> None:
    with pytest.raises(problem, match=message):
        measured(replace(cell("true"), **changes), here)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (None, r"no records of rank\(s\) 1 of 2: every worker has to open a probe"),
        ({"iterations": 0}, r"no records of rank\(s\) 1 of 2"),
        ({"iterations": 2}, r"made 2 iterations; .* warmup \+ iterations = 3"),
        ({"script_ranks": 1}, r"trains on 1 worker\(s\) where the study has 2: it has to call .*init_process_group"),
        ({"parallelism": "fsdp2"}, r"synchronise gradients differently: ddp on rank 0, fsdp2 on rank 1"),
    ],
)
def test_ranks_that_disagree_are_named(second: dict[str, Any] | None, message: str) -> None:
    first = {"iterations": 3, "script_ranks": 2, "parallelism": "ddp"}
    probes = [first, second and {**first, **second}]
    with pytest.raises(InputError, match=message):
        command._check_records(probes, cell("train", nodes=2), Path("records"))


@pytest.mark.parametrize(
    ("changes", "second", "message"),
    [
        ({}, {}, ""),
        ({}, {"threads": 2}, r"computes with 2 thread\(s\) on rank 1 of 2 .*threads_per_worker: 1: let it set none"),
        (
            {"threads_per_worker": 2},
            {},
            r"with 1 thread\(s\) on rank 0 of 2 .*hardware\.cpu says threads_per_worker: 2",
        ),
        ({}, {"cpus": "0"}, ""),
        ({"workers_per_node": 2, "nodes": 1}, {}, ""),
        ({"workers_per_node": 2, "nodes": 1}, {"cpus": "1"}, ""),
        ({"workers_per_node": 2, "nodes": 1}, {"cpus": ""}, r"1 worker\(s\) .* run on 0 CPU\(s\)"),
        ({}, {"busy_threads": 3.0}, ""),
        ({"nodes": 1}, {"busy_threads": 1.4}, ""),
        (
            {"nodes": 1, "prefetch": 0},
            {"busy_threads": 1.9},
            r"takes 1\.9 times the CPU time of the thread that trains",
        ),
        ({"nodes": 1, "prefetch": 1}, {"busy_threads": 1.9}, ""),
    ],
)
def test_a_script_whose_threads_are_not_those_of_the_study_is_refused(
    changes: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    one = replace(cell("train", nodes=2), **changes)
    probe = {"threads": 1, "cpus": "0-1", "busy_threads": 1.0}
    probes = [probe, {**probe, **second}][-one.ranks :]
    given = [{0, 1}] * one.nodes
    with pytest.raises(InputError, match=message) if message else nullcontext():
        command._check_threads(probes, one, given)


@pytest.mark.parametrize(
    ("first", "second", "sync", "message"),
    [
        ({}, {}, "ddp", ""),
        (
            {"collectives": 0},
            {"collectives": 0},
            "ddp",
            r"rank\(s\) 0, 1 of 2 called no collective: .* sync: ddp; wrap",
        ),
        (
            {},
            {"checksum": 8},
            "horovod",
            r"weights of rank\(s\) 1 of 2 are not those of rank 0.*Lightning: Trainer\(dev",
        ),
        ({"collectives": None}, {"collectives": None}, "horovod", ""),
        ({"collectives": None}, {"collectives": None, "checksum": 8}, "horovod", r"rank\(s\) 1 of 2 are not those"),
        ({"checksum": None}, {"checksum": None}, "fsdp", ""),
        ({}, {"checksum": 8}, "elastic-averaging", ""),
        ({"collectives": 0}, {"collectives": 0}, "none", ""),
    ],
)
def test_workers_that_do_not_exchange_what_the_study_says_are_refused(
    first: dict[str, Any], second: dict[str, Any], sync: str, message: str
) -> None:
    probe = {"collectives": 30, "checksum": 7}
    one = cell("train", nodes=2, sync=sync, preset=to_values(PRESETS[sync].preset))
    with pytest.raises(InputError, match=message) if message else nullcontext():
        command._check_exchange([{**probe, **first}, {**probe, **second}], one)


OF_TORCHRUN = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise ValueError("my own")
ValueError: my own
W1126 10:00:00.000000 140 site-packages/torch/distributed/elastic/multiprocessing/api.py:1010] Sending process 1 SIGTERM
E1126 10:00:00.000000 140 site-packages/torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1)
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
"""


@pytest.mark.parametrize(
    "banner",
    [OF_TORCHRUN, OF_TORCHRUN.replace("1126 10:00", "0101 00:00"), re.sub(r"(?m)^[WE]1126.*\n", "", OF_TORCHRUN)],
)
def test_of_a_crash_under_torchrun_the_traceback_is_that_of_the_script(banner: str, tmp_path: Path) -> None:
    (tmp_path / "output").write_text(banner)
    assert command._last_words(tmp_path / "output").splitlines()[-1] == "ValueError: my own"
    (tmp_path / "output").write_text(banner[banner.index("ValueError: my own\n") + 19 :])
    assert "torchrun" in command._last_words(tmp_path / "output"), "where a script says nothing, its launcher does"


def test_workers_that_share_the_cpus_of_one_are_named() -> None:
    probes = [{"threads": 1, "cpus": "0", "busy_threads": 1.0}] * 2
    one = cell("train", workers_per_node=2, launch="mpirun")
    with pytest.raises(
        InputError, match=r"2 worker\(s\) .* run on 1 CPU\(s\) of node 0 \(0\), .*launch: mpirun binds them"
    ):
        command._check_threads(probes, one, [{0, 1}])
    command._check_threads(probes, one, [{0}])


def test_a_script_that_sets_threads_of_its_own_is_refused(here: Path) -> None:
    Path("threads.py").write_text(f"import torch; torch.set_num_threads(3){STEPS}")
    with pytest.raises(InputError, match=r"computes with 3 thread\(s\) on rank 0 of 1"):
        measured(cell("python threads.py 3"), here)


STUDY: dict[str, Any] = {
    "study": "own",
    "hardware": {"cpu": {"device": "cpu", "nodes": 2}},
    "storage": {"disk": {"path": "images", "format": "files", "generate": 16}},
    "commands": {"mine": {"run": "python train.py"}},
    "matrix": [{"network": "mine", "hardware": "cpu", "nodes": [1, 2], "batch": 4, "scaling": ["strong", "compute"]}],
    "interventions": ["no-communication"],
    "sgemm": {"batches": [1]},
    "collectives": {"largest": 1024},
    "storage_reads": {},
}


def of_study(**changes: Any) -> Study:
    return expand({**STUDY, **changes}, SCHEMA)


def test_a_study_of_commands_needs_no_storage_and_no_matrix_products() -> None:
    cells = list(of_study().cells.values())
    assert {cell.kind for cell in cells} == {"command", "collectives"}
    assert {(cell.nodes, cell.storage) for cell in cells if isinstance(cell, CommandCell)} == {
        (1, "script"), (2, "script"),
    }  # fmt: skip
    block = {**STUDY["matrix"][0], "storage": "script"}
    assert of_study(matrix=[block]).cells == of_study().cells, "as `snakemake next` writes it"


def test_a_command_that_is_told_of_a_storage_has_it_read_alone_too() -> None:
    kinds = {cell.kind for cell in of_study(matrix=[{**STUDY["matrix"][0], "storage": "disk"}]).cells.values()}
    assert kinds == {"command", "collectives", "storage"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"matrix": [{**STUDY["matrix"][0], "network": ["mine", "alexnet"]}]},
            r"matrix\[0\]: missing storage, which alexnet is trained from",
        ),
        (
            {"matrix": [{**STUDY["matrix"][0], "network": "alexnet", "storage": "script"}]},
            r"matrix\[0\]: missing storage, which alexnet is trained from",
        ),
        ({"matrix": [{**STUDY["matrix"][0], "storage": "dsk"}]}, r"matrix\[0\].storage.*'dsk'.*did you mean.*disk"),
        ({"commands": {"alexnet": {"run": "train"}}}, r"commands\.alexnet: is a network already"),
        ({"storage": {"script": STUDY["storage"]["disk"]}}, r"storage\.script: is the name of commands' own data"),
    ],
)
def test_wrong_studies_of_commands_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        of_study(**changes)


@pytest.mark.parametrize(
    ("kind", "run", "confirmed"),
    [
        ("mini-batch", "train", True),
        ("bucket size", "train", False),
        ("readers", "train", False),
        ("readers", "train --workers {prefetch}", True),
    ],
)
def test_a_cell_confirms_of_remedies_only_what_the_command_is_told(kind: str, run: str, confirmed: bool) -> None:
    remedy = remedies.Remedy(kind, kind, Scenario())
    assert remedies._confirmable(remedy, cell(run)).runs is confirmed


def test_an_archive_has_no_paths_of_it() -> None:
    names = Names(users=["jdoe"], root="/home/jdoe/work")
    one = cell("/home/jdoe/work/bin/python /scratch/train.py", launch="mpirun --hostfile /home/jdoe/hosts")
    archived = cell_without_names(one, names)
    assert isinstance(archived, CommandCell)
    assert (archived.run, archived.launch) == ("bin/python path1/train.py", "mpirun --hostfile path2/hosts")


def test_what_the_study_takes_the_script_for_is_what_it_does() -> None:
    probe = {"iterations": 3, "script_ranks": 2, "parallelism": "ddp"}
    one = cell("train", nodes=2, sync="wfbp", preset=to_values(PRESETS["wfbp"].preset))
    with pytest.raises(InputError, match=r"trains by ddp, and its cells say sync: wfbp, of backend mpi: name a preset"):
        command._check_records([probe, probe], one, Path("records"))
    command._check_records([{**probe, "parallelism": "unknown"}] * 2, one, Path("records"))


def test_a_script_that_crashes_leaves_its_records(here: Path) -> None:
    Path("crash.py").write_text(STEPS + "    raise ArithmeticError('nan')\n")
    with pytest.raises(CannotRun, match=r"(?s)exit status 1; records and output so far are in .*ArithmeticError: nan"):
        measured(cell("python crash.py 2"), here)
    assert list((here / "visits/command~1").glob("rank~0/*/iterations~000000.parquet"))
