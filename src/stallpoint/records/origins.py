"""Origins of a storage's bytes, in tables and in words."""

from __future__ import annotations

PAGE_CACHE, SERVER_CACHE, DEVICE, NETWORK = "page cache", "server cache", "local device", "network"
MIXED, UNKNOWN = "mixed", "unknown"
ORIGINS = (PAGE_CACHE, SERVER_CACHE, DEVICE, NETWORK, MIXED, UNKNOWN)
"""Values of the column ``origin``; mixed: bytes, or workers' passes, have several origins."""
SEEN, NONE, EXCLUDED = "seen", "none", "excluded"
"""With `UNKNOWN` the values of the column ``server_cache``."""
BEYOND_CACHE = 5.0
"""Size of a training set over a memory from which the memory cannot cache it: the rule of MLPerf Storage for the memory
of all clients (submission guidelines v2.0, Dataset generation)."""


def uncached(came_from: str, server_cache: str) -> bool:
    """Return whether no cache served passes of this origin, so that their speed is that of the storage."""
    return came_from in (DEVICE, NETWORK) and server_cache in (NONE, EXCLUDED)


def in_words(came_from: str, server_cache: str) -> str:
    """Return the origin in words."""
    if came_from in (DEVICE, NETWORK):
        doubt = "" if uncached(came_from, server_cache) else ", or from a cache behind it"
        return f"from the {came_from}{doubt}"
    if came_from == PAGE_CACHE:
        return "from the page cache"
    if came_from == SERVER_CACHE:
        return "from a cache below the file system"
    return "partly from a cache" if came_from == MIXED else "nobody counted from where"
