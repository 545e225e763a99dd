"""Times to a target: tables, result logs of MLPerf, and the count that trains fastest."""
