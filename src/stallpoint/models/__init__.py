"""Models of what limits scaling: tidy tables in, model tables out. Nothing here reads or writes files.

`fitting.fit` makes all tables; whoever needs one room imports that alone.
"""
