"""A probe for users' training loops: two lines in a script, records in stallpoint's own tables.

- `probe`: the interface of a script; `probe_phases`: phases of an iteration;
- `parallelism`: how the script synchronises gradients, and when its collectives start and end;
- `ranks`: rank and number of workers, under any launcher; `probe_files`: records, written while the script runs;
- `huggingface`, `pytorch_lightning`: the probe as a callback of these libraries.

Nothing here needs MPI, a study or the workflow.
"""
