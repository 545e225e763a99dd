"""Lets a process of the tests measure quickly; Python runs this when it starts with this folder on its path."""

import os

if "VIRTUAL_TIME" in os.environ:
    import virtual_time

    virtual_time.install()

import little

little.be_quick()
