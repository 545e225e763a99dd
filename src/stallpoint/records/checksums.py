"""Checksums of the files in an archive; one file of the archive lists them."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable

from stallpoint.errors import InputError

CHECKSUMS = "checksums.sha256"


def verified_reader(file: zipfile.ZipFile, archive_name: str) -> Callable[[str], bytes]:
    """Return a function that reads a member of an archive and checks it against the archive's checksums."""
    if CHECKSUMS not in file.namelist():
        raise InputError(f"{archive_name}: it has no {CHECKSUMS}; copy the archive again")
    lines = file.read(CHECKSUMS).decode(errors="replace").splitlines()
    digests = {member: digest for digest, _, member in (line.partition("  ") for line in lines)}

    def read(member: str) -> bytes:
        if member not in digests:
            raise InputError(f"{archive_name}: {CHECKSUMS} has no checksum of {member}")
        try:
            data = file.read(member)
        except KeyError:
            raise InputError(f"{archive_name}: it has no {member}") from None
        except (zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"{archive_name}: {member} is damaged: {error}") from None
        if hashlib.sha256(data).hexdigest() != digests[member]:
            raise InputError(
                f"{archive_name}: {member} is not what it was archived as, its checksum differs; copy the archive again"
            )
        return data

    return read
