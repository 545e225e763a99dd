"""What the study found: numbers.py says it as data, words.py for readers."""
