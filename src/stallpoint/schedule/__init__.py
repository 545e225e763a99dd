"""Schedule of measurements: the order of visits to cells, the end of visits, and the expected time.

Cells that are compared are measured in an interleaved schedule: several short visits to each cell, in random order,
within the same minutes.

A *block* is all cells of one hardware entry, which one job measures. `agenda` lists the cells that are to be measured
now, `next_visit` chooses the next cell and decides when to stop, `ledger` keeps finished visits on disk, and `session`
leads the processes that visit cells (`stallpoint.measure.visiting`), which run from the first visit to the last.
`planning` predicts, before anything is submitted, what a run will measure and how long it will take.
"""
