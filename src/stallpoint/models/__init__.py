"""Models of what limits scaling: they make model tables from tidy tables. No module here reads or writes files.

`fitting.fit` returns all model tables; each is computed when first read. Parts of the package can be imported without
others.
"""
