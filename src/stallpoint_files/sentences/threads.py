"""Threads of several authors: the author of each line, from the marks of web pages and mails."""

from __future__ import annotations

import re
from collections.abc import Sequence

_WHEN = (
    r"(?: (?:on |at )?(?:[A-Z][a-z]{2,8}\.? \d|\d{1,4}[-./]\d|(?:\d+|an?) \w{1,9} ago|yesterday|last \w)[^.;!?]{0,30})?"
    r"\W{0,4}$"
)
_POST = re.compile(
    r"\W{0,4}(?:On \S.{3,60}, )?@?(?P<by>(?!(?:I|We|You|They|He|She|It|Who|This|That)\b)"
    r"\w[\w.-]{0,38}(?: \w[\w.-]{0,38}){0,2}) (?:<\S{1,80}> )?"
    rf"(?:[·•] (?:comment|description|reply|answer)\b|(?:commented|replied|wrote|posted|answered){_WHEN})"
)
"""Line that introduces a post: ``bob commented on May 3``, ``On Monday, Bob <bob@host> wrote:``."""
_QUOTE = re.compile(r"\s*>\s")
QUOTED = "quoted"
"""Author of quoted lines."""
_MAX_TITLE = 1
"""Maximum number of lines above the first post that are its title."""


def authors(lines: Sequence[str]) -> list[str]:
    """Return the author of each line; empty above the first post, but the first author for a title."""
    by, found = "", list[str]()
    for line in lines:
        quoted = _QUOTE.match(line)
        by = post["by"] if not quoted and (post := _POST.match(line)) else by
        found.append(QUOTED if quoted else by)
    untold = sum(bool(line.strip()) for line, one in zip(lines, found, strict=True) if not one)
    first = next((one for one in found if one not in ("", QUOTED)), "")
    return [one or first for one in found] if untold <= _MAX_TITLE else found
