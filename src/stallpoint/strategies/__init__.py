"""Distribution of a training step: presets, collectives, and the division of networks."""
