"""What each part of an iteration costs: computing, messages, training data, and what they take from each other."""
