"""Distribution of a training step: presets, their collectives, and the division of networks."""
