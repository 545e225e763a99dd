"""Steps that are a sum of phases: of reinforcement learning, or of computing, communication and waiting for data."""
