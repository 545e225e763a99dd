"""Tables of rates and layouts, training logs, and at how many workers they stop getting faster."""
