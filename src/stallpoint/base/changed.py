"""What is said of a quantity that was measured twice: words of comparisons of studies and of logs."""

from enum import StrEnum


class Change(StrEnum):
    """What is said of a quantity that two studies, or two logs, both measured."""

    SLOWER = "slower"
    FASTER = "faster"
    LOWER = "lower"
    """Of a speedup, as is `HIGHER`."""
    HIGHER = "higher"
    SAME = "same"
    UNDECIDED = "undecided"
