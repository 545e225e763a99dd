# The study, expanded once, and the few functions that rules look things up with.
import gc
import inspect
import os
import shlex
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake.utils import update_config

from stallpoint.study.cells import Cell
from stallpoint.report.charts import CHARTS, PAPERS
from stallpoint.questions.claims.claim_files import PAPERS_FILES, claim_files, read_claims
from stallpoint.study.configuration import BASE, check_keys, load_file, load_yaml, typed, merged_into_base
from stallpoint.errors import InputError
from stallpoint.study.kinds import KINDS, MEASURED
from stallpoint.measure.machine.usable_cores import usable_cores
from stallpoint.networks import NETWORKS
from stallpoint.networks.own import file_of
from stallpoint.schedule import earlier_run, next_round
from stallpoint.schedule.planning import memory_forecast, time_limits
from stallpoint.schedule.planning import plan as plans
from stallpoint.schedule.planning.plan_text import check_budget
from stallpoint.schedule.planning.plan_text import text as plan_text
from stallpoint.schedule.planning.plan_text import warnings as plan_warnings
from stallpoint.schedule.planning.visit_durations import other_studies
from stallpoint.sources import sources_of
from stallpoint.schedule import requested
from stallpoint.schedule.agenda import Agenda, Limits
from stallpoint.schedule.processes import LOCAL_LAUNCHER, LaunchShape

SCHEMA_FILE = file_of_workflow("workflow/schemas/study.schema.yaml")
SCHEMA = load_yaml(Path(SCHEMA_FILE).read_text(), SCHEMA_FILE)
PAPERS_CLAIMS = [file_of_workflow(f"resources/claims/{name}") for name in PAPERS_FILES]

# The study that this one builds on comes below all that is given.
if BASE in config:
    try:
        naming = [Path(file) for file in workflow.configfiles if BASE in (load_file(Path(file)) or {})]
        upon = merged_into_base(config, naming[-1] if naming else Path("config"))
    except InputError as error:
        raise WorkflowError(f"The study is not valid.\n{error}") from None
    config.clear()
    config.update(upon)

# A cell can stand on the command line, its numbers as numbers.
update_config(
    config, {key: typed(value) for key, value in given_structures().items() if key in SCHEMA["properties"]}
)

# Cells that could not run stay so, until they are asked for: what was in their way is not among their settings.
RETRY = config.pop("retry", None)
if RETRY not in (None, "failed"):
    raise WorkflowError(f"retry: {RETRY!r} is not known; --config retry=failed measures failed cells again")

# No rule measures the cells of one kind.
if (told := command_line()) and (kinds := sorted({*MEASURED} & {*(told.until or ())})):
    raise WorkflowError(
        f"--until {kinds[0]}: one job measures all kinds of cells of a hardware entry: --until measure_ENTRY,"
        f" or the path of a cell (scripts/plan.py lists them); -R {kinds[0]} measures all of the kind again"
    )

# Tables that are too large for the machine that Snakemake runs on.
SUBMIT = config.pop("submit", None)
if SUBMIT not in (None, "tables"):
    raise WorkflowError(
        f"submit: {SUBMIT!r} is not known; --config submit=tables makes tables and charts in jobs"
    )


def with_next_round(study):
    """The study with another round of cells, where `snakemake next` asks for it and it is measured so far."""
    told = command_line()
    if told is None or "next" not in told.targets:
        return study
    results = Path("results", study.name)
    if any(not (results / "raw" / path).exists() for path in study.cells):
        logger.info("Next: what is missing of the study comes first.")
        return study
    chosen = next_round.next_round(
        results / "models", study.cells, study.config["hardware"], **study.config["next"]
    )
    logger.info(f"Next: {chosen.outcome}.")
    if not chosen.cells:
        return study
    study = next_round.expanded(config, SCHEMA, chosen.cells)
    if not told.dryrun:
        next_round.write(results, [*next_round.added(results), *chosen.cells])
    return study


def take_over():
    """End what a run left that was killed here: without it Snakemake would ask for `--unlock`, and be told to wait.

    Returns whether another run holds the lock still: one that measures other cells may go on beside this one.
    """
    if locks := locks_folder():
        try:
            for line in earlier_run.take_over(locks.parent, locks):
                logger.warning(f"! {line}")
        except InputError as error:
            raise WorkflowError(str(error)) from None
    locked = bool(locks and locks.is_dir() and any(locks.iterdir()))
    if locked:
        say_when_locked(earlier_run.lock_message(locks.parent, locks))
    return locked


LOCKED = take_over()


try:
    if workflow.is_main_process:
        for file in workflow.configfiles:
            check_keys(Path(file))
    STUDY = with_next_round(next_round.expanded(config, SCHEMA))
    CLAIM_FILES = claim_files(STUDY.config["claims"], PAPERS_CLAIMS)
    # What is misspelt in a claim is found before anything is measured.
    if workflow.is_main_process:
        read_claims(CLAIM_FILES, STUDY.config["claims"], CHARTS)
except InputError as error:
    raise WorkflowError(f"The study is not valid.\n{error}") from None

RESULTS = f"results/{STUDY.name}"
NETWORKS_DESCRIBED = expand(f"{RESULTS}/networks/{{network}}.parquet", network=STUDY.values("network"))


def publications():
    """The papers whose figures and tables the study makes: all, where it judges the papers' claims."""
    if "papers" not in STUDY.config["claims"]:
        return {}
    try:
        from stallpoint_papers.exhibits import PAPERS
    except ModuleNotFoundError:
        logger.warning(
            "! Figures and tables of the papers: not made, because stallpoint_papers is not installed."
        )
        return {}
    return PAPERS


PUBLICATIONS = publications()
EXHIBITS = expand(f"{RESULTS}/papers/{{publication}}", publication=PUBLICATIONS)
ARCHIVED = STUDY.config["archived"]
LOGS = f"logs/{STUDY.name}"

# A plan is millions of objects that all stay: looking through them for garbage again and again takes a fifth of the
# time and finds none. Once jobs run, it goes on as usual.
gc.freeze()
gc.disable()


if workflow.is_main_process:
    logger.info(STUDY.plan(), extra={"stallpoint": {"results": RESULTS, "excluded": STUDY.reasons}})


wildcard_constraints:
    **{
        axis: "|".join(map(re.escape, map(str, STUDY.values(axis)))) or "(?!)"
        for kind in KINDS.values()
        for axis in kind.cell.axes
    }
    # Imported training names storages that the study has not; runs to a target validate on some that no cell names.
    | {
        "storage": "|".join(map(re.escape, sorted({*STUDY.config["storage"], *STUDY.values("storage")})))
        or "(?!)"
    },
    chart="|".join(CHARTS),
    paper="|".join(PAPERS),


def cell_pattern(kind, folder):
    """Path of a cell of this kind below a folder, with a wildcard for each axis."""
    return os.path.join(folder, kind, *(f"{axis}~{{{axis}}}" for axis in KINDS[kind].cell.axes))


def files_of(rule):
    """Names and paths of a rule's output; the output itself would bring the rule along, --allowed-rules or not."""
    return {name: str(file) for name, file in rule.output.items()}


def cell_folders(*kinds):
    return [f"{RESULTS}/raw/{cell.path}" for kind in kinds for cell in STUDY.cells_of_kind(kind)]


def all_traces(wildcards):
    """Traces and timeline of every training cell."""
    cells = [cell for kind in ("train", "command", "imported-train") for cell in STUDY.cells_of_kind(kind)]
    return [f"{RESULTS}/traces/{cell.path}/{name}" for cell in cells for name in ("layers", "timeline.json")]


def of_cell(kind, value):
    """Function from wildcards (the cell's axes, in their order) to a value of the cell that they name."""
    cells = {
        tuple(str(getattr(cell, axis)) for axis in cell.axes): cell for cell in STUDY.cells_of_kind(kind)
    }

    def lookup_cell(wildcards):
        try:
            return value(cells[tuple(wildcards)])
        except KeyError:
            path = cell_pattern(kind, "").format_map(wildcards)
            raise WorkflowError(
                f"{path} is not a cell of study {STUDY.name} (snakemake -n lists them)"
            ) from None

    # Snakemake inspects the parameters several times for each job; found ready-made, planning is a tenth faster.
    lookup_cell.__signature__ = inspect.signature(lookup_cell)
    return lookup_cell


def chart_topic(wildcards):
    """The chart's part of the argument, numbered, as Snakemake's report sorts by name."""
    topics = list(dict.fromkeys(chart.topic for chart in CHARTS.values()))
    topic = CHARTS[wildcards.chart].topic
    return f"{1 + topics.index(topic)} {topic}"


def chart_labels(wildcards):
    chart = CHARTS[wildcards.chart]
    return {"figure": chart.title, "after": chart.source or "-"}


def own_network(cell):
    """The description of a network of the study's own: one that does not work is found before it is measured."""
    return f"{RESULTS}/networks/{cell.network}.parquet" if cell.own_network else ""


def on_cluster():
    """Whether jobs are submitted, or would be: not so in a dry run, for Snakemake."""
    return command_line() is not None and command_line().executor not in (None, "local", "dryrun", "touch")


def asked():
    """What the command line asks for."""
    if not (arguments := command_line()):
        return requested.RequestedTargets()
    forced = set(arguments.forcerun) | set(arguments.targets if arguments.force else ())
    return requested.RequestedTargets(frozenset(arguments.targets), frozenset(forced), arguments.forceall)


def measurements():
    """Where the visits to each cell that is measured are, by path."""
    question = asked()

    def again(cell):
        record = f"{RESULTS}/raw/{cell.path}"
        return question.again(cell.kind, record) or (RETRY is not None and requested.has_failed(record))

    return requested.measurements(STUDY, Path(RESULTS), again)


def place_records():
    """Make records the raw ones that are not: of former settings, or whose raw records were deleted."""
    if (told := command_line()) and not told.dryrun:
        for one in MEASUREMENTS.values():
            if one.done.exists() and not one.placed:
                one.finish()


def agendas():
    """What the workflow wrote down for a job, in the job itself."""
    names = {} if workflow.is_main_process else {f"measure_{name}": name for name in WHOLE_BLOCKS}
    return {names[rule]: Agenda.read(agenda_file(names[rule])) for rule in called(names)}


def blocks():
    """The measurements that are to be made now, by job."""
    if workflow.is_main_process:
        return requested.blocks(MEASUREMENTS.values(), asked(), RESULTS, STUDY.nested)
    return {name: agenda.measurements() for name, agenda in AGENDAS.items()}


def mark(name):
    """The mark of a block that is complete after its job; none where other cells are still to be measured."""
    if not workflow.is_main_process:
        return AGENDAS[name].mark
    return str(MARKS[name]) if requested.all_done(WHOLE_BLOCKS[name], BLOCKS[name]) else ""


def marks_of(name, block):
    """What a job is done with; the hardware is a wildcard, by which profiles find nodes."""
    # The mark first, as Snakemake compiles a pattern for each output up to the one that is needed.
    files = [*filter(None, [mark(name)]), *(str(one.done) for one in block)]
    return [f"{file.rpartition('~')[0]}~{{hardware}}" for file in files]


def last_marked(name):
    """When the block was last measured as a whole: with this parameter its job runs whenever it has something to do."""
    return MARKS[name].stat().st_mtime_ns if MARKS[name].exists() else 0


def agenda_file(block):
    return Path(RESULTS, "schedule", f"{block}.json")


def agenda_of(name, block, job):
    planned = {order.cell.path: order.seconds.values() for order in job.orders}
    raw = [str(one.raw) for one in WHOLE_BLOCKS[name]]
    return replace(Agenda.of(block, limits(), STUDY.config["seed"], planned), mark=mark(name), raw=raw)


def limits():
    return Limits(
        STUDY.config["precision"],
        **STUDY.config["budget"],
        threshold=STUDY.config["models"]["threshold"],
    )


def planned(blocks):
    """What the blocks are expected to take, printed; raises where that exceeds the budget."""
    if not workflow.is_main_process:
        return None
    plan = plans.planned(
        STUDY.name,
        blocks,
        limits(),
        Path(RESULTS),
        storages=STUDY.config["storage"],
        cores=None if on_cluster() else min(workflow.cores or usable_cores(), usable_cores()),
        concurrent=on_cluster(),
        requests=scheduler_settings(),
        other_folders=other_studies(Path(RESULTS)),
    )
    wanted = {
        "study": plan.study,
        "wanted": plan.wanted,
        "seconds": plan.seconds.values(),
        "limit": plan.limit,
        "warnings": list(plan_warnings(plan)),
    }
    logger.info(plan_text(plan), extra={"stallpoint": wanted})
    try:
        check_budget(plan)
    except InputError as error:
        raise WorkflowError(f"The study does not fit its budget.\n{error}") from None
    return plan


def scheduler_settings():
    """Partition and account as the profile says them, which may be expressions that differ from job to job."""
    given = (workflow.resource_settings.default_resources or {}) if on_cluster() else {}
    names = {"slurm_partition": "partition", "slurm_account": "account"}
    return {word: str(given[name]) for name, word in names.items() if name in given}


def runtime(block):
    """Minutes to ask a scheduler for; a job that had too few goes on from its visits, with twice as many."""
    minutes = {job.name: job.runtime for job in PLAN.jobs} if PLAN else {}
    return lambda wildcards, attempt: attempt * minutes.get(block, plans.MIN_MINUTES)


def shape_of(block):
    """What the processes are like that measure all of it."""
    return LaunchShape.of([one.cell for one in block])


def storage_and_networks(block):
    """The training data that cells read, and descriptions of the study's own networks that they train."""
    storages = {name for one in block for name in one.cell.storages}
    networks = {file for one in block if "network" in one.cell.axes and (file := own_network(one.cell))}
    return [*(f"{RESULTS}/storage/{name}.json" for name in sorted(storages)), *sorted(networks)]


def network_file(wildcards):
    """The file of one of the study's own networks: what is measured with it is stale once the file changes."""
    file = file_of(STUDY.config["networks"].get(wildcards.network, {"build": ""}))
    return [str(file)] if file else []


def traced_runs(wildcards):
    """The imported runs of a network that is neither stallpoint's nor the study's own: they alone tell of it."""
    if wildcards.network in NETWORKS or wildcards.network in STUDY.config["networks"]:
        return []
    return [cell for cell in STUDY.cells_of_kind("imported-train") if cell.network == wildcards.network]


def network_traces(wildcards):
    """The traces of `traced_runs`."""
    return list(dict.fromkeys(file for cell in traced_runs(wildcards) for file in cell.files))


def command_layers(wildcards):
    """The layers of a command, which its records alone tell of."""
    return [f"{RESULTS}/tables/layers.parquet"] if wildcards.network in STUDY.config["commands"] else []


def folder_of_workflow(wildcards):
    """Where the workflow itself is, which goes into the archive too."""
    if not ROOT.is_dir():
        raise WorkflowError(
            "An archive holds the workflow too: name a clone of it on this machine as `snakefile`."
        )
    return os.path.relpath(ROOT)


def final_targets():
    pages = [
        f"{RESULTS}/{name}"
        for name in (
            "report.html",
            "slides",
            "conclusions.md",
            "conclusions.json",
        )
    ]
    return [*pages, *EXHIBITS, *rules.typeset.output]
