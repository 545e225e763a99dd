# Rules that measure. One job measures the cells of a hardware entry in an interleaved schedule, so that they are compared
# within the same minutes and processes start once.
#
#   measure_<hardware>      visits the cells that are to be measured now, writes their records, and in the end one mark,
#                           which `collect` takes: ten thousand cells are no files and jobs to Snakemake
#   train, sgemm, ...       a cell that is asked for by its path, or that traces are made of (a copy of its record:
#                           Snakemake removes outputs of jobs that are interrupted, and must not remove what was measured)
#
# Which cells are to be measured now is known when the workflow starts (what is missing, what the command line forces,
# what it asks for alone) and written down for the jobs. On this machine a job takes every core (threads), so that
# nothing runs beside a measurement; on a cluster it gets the nodes of its largest cell. How its processes are started
# there is a matter of the site: resources.launcher in the profile. In an archive nothing is measured.
#
# What that is expected to take is printed first, and asked of the scheduler. A job that was killed (by its time limit,
# or preempted) leaves its visits: on a cluster it is submitted again and goes on from there.

from stallpoint.records.atomic import remove_scratch_folders
from stallpoint.slurm import orphaned_jobs
from stallpoint.slurm.asking import output_of
from stallpoint.study.kinds import MEASURED

MEASUREMENTS = measurements()
place_records()
WHOLE_BLOCKS = requested.group_by_block(MEASUREMENTS.values(), STUDY.nested)
MARKS = {name: requested.mark_file(name, block, RESULTS) for name, block in WHOLE_BLOCKS.items()}
AGENDAS = agendas()
BLOCKS = blocks()
PLAN = planned(BLOCKS)


def cancel_orphaned_jobs():
    """Jobs in Slurm's queue of a run that was killed would be submitted twice."""
    if name := run_of_executor():
        this = orphaned_jobs.WorkflowRun.create(name)
        file = Path(RESULTS, "schedule", orphaned_jobs.FILE)
        for line in orphaned_jobs.cancel(file, this, output_of, locked=LOCKED):
            logger.warning(f"! {line}")


def prepare_jobs(log):
    gc.enable()
    end_within(seconds=2)
    # Folders of visits, of which there may be ten thousand, are looked into by the job that measures there.
    remove_scratch_folders(Path(RESULTS), skipped_names=("raw", "visits"))
    remove_scratch_folders(Path("archives"))
    try:
        cancel_orphaned_jobs()
        for (name, block), job in zip(BLOCKS.items(), PLAN.jobs, strict=True):
            agenda_of(name, block, job).write(agenda_file(name))
        PLAN.append(Path(RESULTS, "schedule", plans.FILE))
    except InputError as error:  # the results cannot be written
        raise WorkflowError(str(error)) from None


def tasks_of(shape):
    """Resources that say how many tasks a job has, to Snakemake's Slurm plugin.

    With `mpi` the job starts its own srun, and the plugin asks for tasks on GPUs too: by node, or, where a node has one,
    in all. An MPI job of one rank is refused. Without `tasks_per_gpu` all tasks of a node would be asked for on each GPU.
    """
    by_node = shape.workers_per_node > 1
    return {
        "mpi": "srun" if shape.ranks > 1 else "",
        "tasks": 0 if by_node else shape.ranks,
        "tasks_per_node": shape.workers_per_node if by_node else 0,
        "tasks_per_gpu": 0,
    }


before_jobs(prepare_jobs)


for name, block in BLOCKS.items():

    rule:
        name:
            f"measure_{name}"
        input:
            storage_and_networks(block),
        output:
            marks_of(name, block),
        log:
            f"{LOGS}/schedule/{{hardware}}{name.removeprefix(block[0].cell.hardware)}.log",
        retries: 2 if on_cluster() else 0
        localrule: all(one.is_recorded for one in block)
        threads: workflow.cores or 1
        resources:
            **tasks_of(shape_of(block)),
            runtime=runtime(name),
            nodes=shape_of(block).nodes,
            cpus_per_task=shape_of(block).threads_per_worker,
        params:
            program=file_of_workflow("scripts/measure.py"),
            agenda=agenda_file(name),
            last_marked=last_marked(name),
            launcher=lambda wildcards, resources: resources.get("launcher", LOCAL_LAUNCHER),
            container=lambda wildcards, resources: resources.get("container", ""),
            interface=lambda wildcards, resources: resources.get("interface", ""),
        shell:
            "python {params.program:q} {params.agenda:q} {log:q} {params.launcher:q}"
            " container={params.container:q} interface={params.interface:q}"


for kind in [] if ARCHIVED else MEASURED:

    rule:
        name:
            kind
        input:
            ancient(of_cell(kind, lambda cell: str(MEASUREMENTS[cell.path].done))),
        output:
            folder=directory(cell_pattern(kind, f"{RESULTS}/raw")),
        log:
            cell_pattern(kind, LOGS) + ".log",
        localrule: True
        params:
            cell=of_cell(kind, Cell.to_json),
        shell:
            # What a job that was killed left of its copy would else be copied into.
            "(rm -rf {output.folder:q}.part && cp -rp $(dirname {input:q})/record {output.folder:q}.part"
            " && mv {output.folder:q}.part {output.folder:q}) 2> {log:q}"
