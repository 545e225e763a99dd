"""Distribution of training steps: presets, strategies and their options, and the division of networks."""
