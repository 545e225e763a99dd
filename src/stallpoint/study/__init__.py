"""From a configuration to the cells of a study: names, checks and expansion."""
