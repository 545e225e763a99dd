"""What a study says: one module for each question, with its columns, rows, words and section."""
