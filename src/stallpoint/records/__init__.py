"""Tables, columns and files of records: atomic writing, checksums and reading."""
