# Training data: generate it, or check and index what the study names.


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
