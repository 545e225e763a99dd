# What changed from one study to another: `snakemake compare --config old=OLD new=NEW [fail_on=slower]`. It needs no
# study of its own: OLD and NEW are archives, or finished studies in results/.
from stallpoint.archive.comparison.comparison_files import FORMATS, name_of


localrules:
    compare,
    comparison,


PAIR = "-".join(name_of(str(config.get(entry, entry))) for entry in ("old", "new"))


rule comparison:
    input:
        old=files_compared("old"),
        new=files_compared("new"),
        code=code_of("write_comparison.py"),
    output:
        **{name: f"results/compare/{PAIR}/comparison.{name}" for name in FORMATS},
    log:
        f"logs/compare/{PAIR}.log",
    params:
        old=lambda wildcards: compared("old"),
        new=lambda wildcards: compared("new"),
        between=float(config.get("between", 0)),
    script:
        "../../scripts/write_comparison.py"


# A rule of its own: what a rule writes is removed where it fails.
rule compare:
    input:
        **rules.comparison.output,
    log:
        f"logs/compare/{PAIR}.judged.log",
    params:
        fail_on=config.get("fail_on"),
    script:
        "../../scripts/judge_comparison.py"
