"""Models of what limits scaling: tidy tables in, model tables out. Nothing here reads or writes files.

`fitting.fit` makes all tables, each when it is read; whoever needs one room imports that alone.
"""
