"""Parts of a training iteration, and their timing."""
