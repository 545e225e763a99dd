"""Several ranks: groups, pipelines, rings, experts, and who waits for whom."""
