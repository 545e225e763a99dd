"""Lets a program of the tests start as a copy, and measure quickly; Python runs this when its path has this folder."""

import forked

forked.hand_over()
forked.change()
