"""From a configuration to the cells of a study: what can be named, how it is checked and expanded."""
