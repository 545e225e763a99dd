"""Which cell is measured when, until when, and what that is expected to take.

Cells that are compared are measured in turns: several short visits each, in random order, within the same minutes.

A *block* is what takes turns: all cells of one hardware entry. `agenda` says which of them are to be measured now,
`next_visit` which one is visited next and when it is enough, `ledger` keeps finished visits on disk, and `session`
leads the processes that visit (`stallpoint.measure.visiting`), which keep running from the first visit to the last.
`plan` says before anything is submitted what a run will measure and how long that takes.
"""
