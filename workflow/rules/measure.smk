# The jobs that measure. Each writes one folder of raw records, whole or not at all.
#
# On this machine a job takes every core (threads), so that nothing runs beside a measurement; on a cluster
# it gets nodes × workers_per_node tasks of threads_per_worker cores (resources). How its processes are
# started there is a matter of the site: resources.launcher in the profile. In an archive nothing is measured.
from stallpoint.cells import MEASURED

for kind in [] if ARCHIVED else MEASURED:

    rule:
        name:
            kind
        input:
            f"{RESULTS}/storage/{{storage}}.json" if "storage" in MEASURED[kind].axes else [],
            of_cell(kind, own_network)
            if STUDY.config["networks"] and "network" in MEASURED[kind].axes
            else [],
        output:
            folder=directory(cell_pattern(kind, f"{RESULTS}/raw")),
        log:
            cell_pattern(kind, LOGS) + ".log",
        threads: workflow.cores or 1
        resources:
            nodes=of_cell(kind, attrgetter("nodes")),
            tasks=of_cell(kind, attrgetter("ranks")),
            cpus_per_task=of_hardware(kind, "threads_per_worker"),
            launcher=THIS_MACHINE,
        params:
            cell=of_cell(kind, Cell.to_json),
        shell:
            "python scripts/measure.py {params.cell:q} {output.folder:q} {log:q} {resources.launcher:q}"
