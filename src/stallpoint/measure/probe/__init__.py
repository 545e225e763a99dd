"""A probe for training loops that are not stallpoint's: two lines in a script, records in stallpoint's own tables.

- `probe`: what the script calls; `probe_phases`: what an iteration was spent on;
- `parallelism`: how the script brings gradients together, and when its messages begin and end;
- `ranks`: who the script's workers are, under any launcher; `probe_files`: its records, written while it runs;
- `huggingface`, `pytorch_lightning`: the probe as a callback of these.

Nothing here needs MPI, a study or the workflow.
"""

from stallpoint.measure.probe.probe import Probe

__all__ = ["Probe"]
