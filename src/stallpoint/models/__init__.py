"""Models of what limits scaling: tidy tables in, model tables out. Nothing here reads or writes files.

`fitting.fit` makes all tables, each when first read; parts of the package can be imported without the rest.
"""
