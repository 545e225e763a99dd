"""One rank: its iterations, what the device did in them, and the graph of its tasks."""
