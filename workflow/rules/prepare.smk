# What jobs need: training data, generated or checked and indexed; and what each network is made of.


localrules:
    describe_network,


rule prepare_storage:
    input:
        # Entries of one set (staged, and where it is) one after the other; what is converted, after what it is made of.
        lambda wildcards: [
            f"{RESULTS}/storage/{name}.json" for name in STUDY.entries_made_before(wildcards.storage)
        ],
    output:
        manifest=f"{RESULTS}/storage/{{storage}}.json",
    log:
        f"{LOGS}/storage/{{storage}}.log",
    resources:
        runtime=lambda wildcards: time_limits.storage_minutes(
            wildcards.storage, STUDY.config["storage"], Path(RESULTS)
        ),
    params:
        entry=lambda wildcards: STUDY.config["storage"][wildcards.storage],
        source=lambda wildcards: STUDY.converted_from(wildcards.storage),
        seed=STUDY.config["seed"],
    script:
        "../../scripts/prepare_storage.py"


rule describe_network:
    input:
        own=network_file,
        traces=network_traces,
        layers=command_layers,
    output:
        f"{RESULTS}/networks/{{network}}.parquet",
    log:
        f"{LOGS}/networks/{{network}}.log",
    params:
        own=lambda wildcards: STUDY.config["networks"].get(wildcards.network),
    script:
        "../../scripts/describe_network.py"
