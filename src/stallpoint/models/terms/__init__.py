"""Cost of each part of an iteration: computing, messages and training data. Parts also slow each other down."""
