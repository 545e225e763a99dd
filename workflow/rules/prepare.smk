# What jobs need: training data, generated or checked and indexed; and what each network is made of.
from stallpoint.networks.own import file_of


localrules:
    describe_network,


rule prepare_storage:
    output:
        manifest=f"{RESULTS}/storage/{{storage}}.json",
    log:
        f"{LOGS}/storage/{{storage}}.log",
    params:
        entry=lambda wildcards: STUDY.config["storage"][wildcards.storage],
        seed=STUDY.config["seed"],
    script:
        "../../scripts/prepare_storage.py"


def network_file(wildcards):
    """The file of one of the study's own networks: what is measured with it is stale once the file changes."""
    file = file_of(STUDY.config["networks"].get(wildcards.network, {"build": ""}))
    return [str(file)] if file else []


rule describe_network:
    input:
        network_file,
    output:
        f"{RESULTS}/networks/{{network}}.parquet",
    log:
        f"{LOGS}/networks/{{network}}.log",
    params:
        own=lambda wildcards: STUDY.config["networks"].get(wildcards.network),
    script:
        "../../scripts/describe_network.py"
