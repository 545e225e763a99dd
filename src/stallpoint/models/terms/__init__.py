"""Cost of each part of an iteration: computing, messages, training data, and their slowdown of each other."""
