"""Where bytes read from a storage came from: a cache, the local device or the network."""

from __future__ import annotations

PAGE_CACHE, SERVER_CACHE, DEVICE, NETWORK = "page cache", "server cache", "local device", "network"
MIXED, UNKNOWN = "mixed", "unknown"
ORIGINS = (PAGE_CACHE, SERVER_CACHE, DEVICE, NETWORK, MIXED, UNKNOWN)
"""Values of the column ``origin``; mixed means that bytes, or workers' passes, have several origins."""
SEEN, NONE, EXCLUDED = "seen", "none", "excluded"
"""Values of the column ``server_cache``, in addition to `UNKNOWN`."""
UNCACHED_RATIO = 5.0
"""Ratio of a training set's size to memory above which memory cannot cache the set: the rule of MLPerf Storage for the
memory of all clients (submission guidelines v2.0, Dataset generation)."""


def is_uncached(origin: str, server_cache: str) -> bool:
    """Return whether bytes came from a device or the network, not from a cache: reads then show the storage's speed."""
    return origin in (DEVICE, NETWORK) and server_cache in (NONE, EXCLUDED)


def in_words(origin: str, server_cache: str) -> str:
    """Return a phrase for the origin of bytes, such as ``from the page cache``."""
    if origin in (DEVICE, NETWORK):
        doubt_words = "" if is_uncached(origin, server_cache) else ", or from a cache behind it"
        return f"from the {origin}{doubt_words}"
    if origin == PAGE_CACHE:
        return "from the page cache"
    if origin == SERVER_CACHE:
        return "from a cache below the file system"
    return "partly from a cache" if origin == MIXED else "nobody counted from where"
