"""What papers claim, as data, and what a study says of it.

reading.py: YAML -> claims; language.py: what a claim is; quantity.py: tables -> its numbers; verdict.py: a number
against the condition; judge.py: all claims against all tables; words.py and page.py: for readers.
"""
