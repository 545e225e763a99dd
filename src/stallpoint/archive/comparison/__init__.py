"""Comparison of two studies, and of many over time, from tables to tables.

`compared_results` reads archives and studies. `change` reduces their records to one time per visit and tests whether
times differ. `changes` tests all quantities that both studies measured; `history` follows a machine over time.
"""
