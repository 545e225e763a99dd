"""Sets of moments, as sorted intervals that do not touch: float64 [intervals, 2], start and end in s."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Intervals: TypeAlias = npt.NDArray[np.float64]
Seconds: TypeAlias = npt.NDArray[np.float64]
Moments: TypeAlias = npt.NDArray[np.bool_]


def union(start: npt.ArrayLike, end: npt.ArrayLike) -> Intervals:
    """Return the union of any intervals, without those of length 0."""
    begin, stop = np.asarray(start, np.float64), np.asarray(end, np.float64)
    some = stop > begin
    order = np.argsort(begin[some], kind="stable")
    begin, stop = begin[some][order], stop[some][order]
    if not len(begin):
        return np.empty((0, 2))
    reached = np.maximum.accumulate(stop)
    first = np.concatenate([[True], begin[1:] > reached[:-1]])
    last = np.concatenate([np.flatnonzero(first)[1:] - 1, [len(begin) - 1]])
    return np.stack([begin[first], reached[last]], axis=-1)


def length(intervals: Intervals) -> float:
    """Return the total length, s."""
    return float((intervals[:, 1] - intervals[:, 0]).sum())


def length_within(intervals: Intervals, begin: npt.NDArray[np.float64], end: npt.NDArray[np.float64]) -> Seconds:
    """Return the total length within each window, s; [windows]."""
    # Rounding to 1 ps: the difference of two sums of many lengths is not exactly 0 in an empty window.
    return np.round(_length_until(intervals, end) - _length_until(intervals, begin), 12)


def _length_until(intervals: Intervals, moments: npt.NDArray[np.float64]) -> Seconds:
    if not len(intervals):
        return np.zeros(len(moments))
    before = np.concatenate([[0.0], np.cumsum(intervals[:, 1] - intervals[:, 0])])
    index = np.searchsorted(intervals[:, 0], moments, side="right")
    last = np.maximum(index - 1, 0)
    # Subtract the part of the last interval that is after the moment.
    over = np.maximum(intervals[last, 1] - moments, 0.0)
    return np.asarray(before[index] - np.where(index > 0, over, 0.0))


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """Return the intersection of two sets."""
    return _combined(one, other, lambda a, b: a & b)


def without(one: Intervals, other: Intervals) -> Intervals:
    """Return `one` without `other`."""
    return _combined(one, other, lambda a, b: a & ~b)


def _combined(one: Intervals, other: Intervals, chosen: Callable[[Moments, Moments], Moments]) -> Intervals:
    edges = np.unique(np.concatenate([one.ravel(), other.ravel()]))
    if len(edges) < 2:
        return np.empty((0, 2))
    inside = chosen(_inside(one, edges[:-1]), _inside(other, edges[:-1]))
    return union(edges[:-1][inside], edges[1:][inside])


def _inside(intervals: Intervals, moments: npt.NDArray[np.float64]) -> Moments:
    """Return whether each moment is at the start of an interval or within it."""
    if not len(intervals):
        return np.zeros(len(moments), np.bool_)
    index = np.searchsorted(intervals[:, 0], moments, side="right") - 1
    inside: Moments = (index >= 0) & (moments < intervals[np.maximum(index, 0), 1])
    return inside
