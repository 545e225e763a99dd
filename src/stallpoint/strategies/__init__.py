"""How a step is distributed: presets, what they send, and how a network is divided."""
