"""Comparison of two studies, and of many over time: what changed between them. Tables in, tables out.

`compared_results` takes archives and studies, `visits` reduces their records to one time for each visit, `change` tests
whether times differ, `changes` does so for everything both measured; `history` follows one machine over time.
"""
