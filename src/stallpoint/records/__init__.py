"""Tables, columns and files: how records are written whole, sealed and read."""
