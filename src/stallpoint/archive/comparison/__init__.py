"""Two studies beside each other, and many in a row: what changed between them. Tables in, tables out.

`compared_results` takes archives and studies, `visits` reduces their records to one time for each visit, `change` tests
whether times differ, `changes` does so for everything both measured; `history` follows one machine over time.
"""
