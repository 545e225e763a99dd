"""The plan of a run before anything is submitted: the cells to measure, and the expected time."""
