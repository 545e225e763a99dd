"""Parts of a training iteration, and how each is timed."""
