"""The plan of a run, before anything is submitted: what it will measure, and the expected time."""
