"""A network, a storage, a strategy, a reader and a section for stallpoint, each found by its entry point."""
