"""What measuring is expected to take, before it is submitted.

`work` says what a cell asks for, `expected` how long a visit to it takes after all that was measured before
(`durations`), `precision` how many visits there will be; `plan` puts it together for each kind, hardware and node
count, `plan_text` prints it, and `budget` refuses what does not fit. Records hold what was planned of each cell beside
what it took (`records.RUNS`).
"""
