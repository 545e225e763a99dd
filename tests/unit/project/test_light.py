"""What each way to install needs: reading and modelling, and the probe, do without what the extras add."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from all_reduce_samples import nccl_tests

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REFUSING = """
import importlib, pkgutil, sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refused())
"""
"""Begins a program in which the modules that its first argument lists cannot be imported."""
READING = """
import stallpoint

import stallpoint_files, stallpoint_traces

rooms = "errors text records strategies inputs study base slurm schedule models questions".split()
packages = (stallpoint, stallpoint_files, stallpoint_traces)
workflow = ("stallpoint.study.collect", "stallpoint.study.bounds")
pages = ("answer_page", "proposal_page", "rank_chart", "trace_page", "comparison_page", "history_page")
for module in (one for of in packages for one in pkgutil.walk_packages(of.__path__, f"{of.__name__}.")):
    room = module.name.split(".")[1]
    beside = not module.name.startswith("stallpoint.") and room not in pages
    compared = module.name.startswith("stallpoint.archive.comparison") and not module.name.endswith(pages)
    if beside or compared or room in rooms and module.name not in workflow:
        importlib.import_module(module.name)
"""
"""Imports every module of the rooms that read and model; what collects millions of records is the workflow's."""
PROBING = """
import torch
import stallpoint

model = torch.nn.Linear(2, 2)
with stallpoint.probe(model, folder=sys.argv[2]) as probe:
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        probe.step()
"""

LOADED = (
    ("import stallpoint", "torch numpy pyarrow pandas mpi4py"),
    ("import stallpoint.networks, stallpoint.strategies.presets, stallpoint.measure as m; "
     "assert stallpoint.networks.NETWORKS and stallpoint.strategies.presets.PRESETS", "torch numpy mpi4py"),
    ("import stallpoint.report.charts", "altair pandas numpy vl_convert"),
    ("import stallpoint.cli; stallpoint.cli.main(['explain', 'log'])", "pandas scipy torch mpi4py snakemake altair"),
    ("stallpoint.cli.main(['explain', 'pair'])", "pandas pyarrow scipy numba"),
    ("import stallpoint.storage", "torch PIL mpi4py"),
    ("from stallpoint.networks.own import own_network; "
     "own_network('mine', {'build': 'my_package.my_nets:logits', 'image_size': 8})", "torch my_package"),
    ("stallpoint.cli.main(['explain', 'curve'])", "torch mpi4py snakemake altair polars numba scipy.stats"),
)  # fmt: skip
"""Steps of one process, and what none of them may have loaded by then."""


def modules(requirements: list[str]) -> set[str]:
    """Names by which the packages of `requirements` are imported, of those that are installed here."""
    packages = {re.split(r"[\[<>=]", one)[0].lower() for one in requirements}
    found = importlib.metadata.packages_distributions()
    return {module for module, owners in found.items() if packages & {owner.lower() for owner in owners}}


def of_extras() -> set[str]:
    extras = PROJECT["optional-dependencies"]
    return modules([one for requirements in extras.values() for one in requirements]) - {
        "stallpoint",
        "stallpoint_files",
        "stallpoint_traces",
        "stallpoint_papers",
    }


def run_without(refused: set[str], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", REFUSING + code, ",".join(sorted(refused)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


DRAWING = """
for sys.argv[1] in (sys.argv[1], "altair", "vl_convert"):
    try:
        main(["explain", *sys.argv[2:]])
    except SystemExit as end:
        print(end.code)
"""
"""Asks for a page where one package that draws it is missing after the other."""


def test_reading_modelling_and_the_check_of_a_node_need_no_package_of_an_extra_and_a_page_names_its_own(
    tmp_path: Path,
) -> None:
    rates = tmp_path / "rates.csv"
    rates.write_text("nodes,images/s\n1,100\n2,190\n4,350\n")
    refused = of_extras()
    assert {"torch", "mpi4py", "polars", "snakemake", "PIL", "altair", "jsonschema"} <= refused
    code = f"{READING}\nfrom stallpoint.cli import main\nmain(['check'])\n{DRAWING}"
    ended = run_without(refused, code, str(rates), "--html", str(tmp_path / "page.html"))
    *said, first, second, third = ended.stdout.splitlines()
    lines = {line[6:17].strip(): line for line in said}
    assert len(lines) == 11, ended.stderr
    assert "needs PyTorch: pip install 'stallpoint[measure]'" in lines["all-reduce"]
    assert "mpi4py is not installed" in lines["MPI"]
    assert [first, second, third] == ["2"] * 3
    assert re.fullmatch(r"(error: this needs .+: pip install 'stallpoint\[report\]'\n){3}", ended.stderr)


def test_the_probe_needs_torch_numpy_and_pyarrow_alone(tmp_path: Path) -> None:
    brought = {"torch", "torchgen", "functorch", "typing_extensions", "numpy", "pyarrow"}  # by torch, the first four
    refused = (of_extras() | modules(PROJECT["dependencies"])) - brought
    assert {"pandas", "scipy", "altair", "numba", "snakemake", "mpi4py"} <= refused
    ended = run_without(refused, PROBING, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert list(tmp_path.glob("rank~0/*/iterations~*.parquet"))


@pytest.mark.parametrize("extra", ["measure", "report"])
def test_the_workflow_has_what_measures_and_draws(extra: str) -> None:
    (own,) = (one for one in PROJECT["optional-dependencies"]["workflow"] if one.startswith("stallpoint["))
    assert extra in re.findall(r"\w+", own)[1:]


def test_nothing_is_loaded_before_it_is_needed(tmp_path: Path) -> None:
    for name, text in (
        ("log", nccl_tests()),
        ("pair", "gpus,img/s\n8,100\n"),
        ("curve", "gpus,img/s\n1,100\n2,190\n4,350\n"),
    ):
        (tmp_path / name).write_text(text)
    steps = [
        f"{code}\nfound = {{*{names.split()}}} & {{*sys.modules}}\nassert not found, found" for code, names in LOADED
    ]
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(["import sys", *steps])], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
