"""Words for where the bytes of a storage came from, as tables have them and as pages say them."""

from __future__ import annotations

PAGE_CACHE, SERVER_CACHE, DEVICE, NETWORK = "page cache", "server cache", "local device", "network"
MIXED, UNKNOWN = "mixed", "unknown"
ORIGINS = (PAGE_CACHE, SERVER_CACHE, DEVICE, NETWORK, MIXED, UNKNOWN)
"""Values of the column ``origin``; mixed: of the bytes, or of the workers' passes, some came from elsewhere."""
SEEN, NONE, EXCLUDED = "seen", "none", "excluded"
"""With `UNKNOWN` the values of the column ``server_cache``."""
BEYOND_CACHE = 5.0
"""A set so many times as large as a memory is not held by it: what MLPerf Storage asks of a training set against the
memory of all clients (submission guidelines v2.0, Dataset generation)."""


def of_storage(came_from: str, server_cache: str) -> bool:
    """Whether such a pass tells how fast the storage is, and not how fast a cache."""
    return came_from in (DEVICE, NETWORK) and server_cache in (NONE, EXCLUDED)


def in_words(came_from: str, server_cache: str) -> str:
    """Where the bytes came from, for people."""
    if came_from in (DEVICE, NETWORK):
        doubt = "" if of_storage(came_from, server_cache) else ", or from a cache behind it"
        return f"from the {came_from}{doubt}"
    if came_from == PAGE_CACHE:
        return "from the page cache"
    if came_from == SERVER_CACHE:
        return "from a cache below the file system"
    return "partly from a cache" if came_from == MIXED else "nobody counted from where"
