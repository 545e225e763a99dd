"""Format ``redis``: images in a database server, as mentioned by Keuper & Pfreundt (2016, section IV).

The server has two hashes, one of encoded images and one of labels; a sample has the same field in both. The storage's
folder has only a file with the server's address. A new set copies the address from the nearest such file above it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from typing_extensions import override

from stallpoint.errors import InputError, Unavailable, Unreadable
from stallpoint.storage.images import EncodedImages
from stallpoint.storage.samples import ADVICE, PART, IndexEntry, Made, SampleShape

FILE = "redis.json"
TIMEOUT_SECONDS = 30
"""Maximum time to wait for an answer of the server, s."""


class RedisImages(EncodedImages):
    """Images in a Redis server. The index holds each sample's field, where other formats have a file name."""

    layout = f'{FILE}, {{"url": "redis://HOST:PORT", "key": KEY}}; hashes KEY:images and KEY:labels of equal fields'

    @property
    @override
    def server(self) -> tuple[str, str]:
        return "redis", _address(self._database[0])

    @cached_property
    def _database(self) -> tuple[Any, str]:
        return _client_and_key(self.path)

    @classmethod
    @override
    def scan(cls, path: Path) -> Iterator[IndexEntry]:
        """Yield an entry for each field, sorted by field."""
        if not (path / FILE).exists():
            return
        client, key = _client_and_key(path)
        with _server_errors(path, client):
            labels = sorted(client.hgetall(f"{key}:labels").items())
            for first in range(0, len(labels), PART):
                part = labels[first : first + PART]
                pipeline = client.pipeline(transaction=False)
                for field, _ in part:
                    pipeline.hstrlen(f"{key}:images", field)
                for (field, label), size in zip(part, pipeline.execute(), strict=True):
                    name = field.decode("latin-1")
                    if not size or not label.isdigit():
                        raise InputError(f"{path / FILE}: field {name} has no image or no label; expected {cls.layout}")
                    yield IndexEntry(name, 0, size, int(label))

    @override
    def read(self, index: int) -> bytes:
        client, key = self._database
        with _server_errors(self.path, client, close=False):
            found: bytes | None = client.hget(f"{key}:images", self._field(index).encode("latin-1"))
        if found is None or len(found) != self.size(index):
            raise Unavailable(f"{self.name(index)}: is not there any more, or of another size; {ADVICE}")
        return found

    @override
    def extent(self, index: int) -> None:
        """Return None, because a server has no files of samples."""

    @override
    def name(self, index: int) -> str:
        return f"{self.path / FILE}, field {self._field(index)}"

    @override
    def files(self) -> list[Path]:
        return [self.path / FILE]

    @override
    def close(self) -> None:
        self._database[0].close()

    def _field(self, index: int) -> str:
        return str(self._files[self._file[index]])

    @classmethod
    @override
    def begin(cls, path: Path, samples: int, shape: SampleShape | None) -> None:
        """Create the folder with a new key, and the server's address from the nearest parent folder that has one."""
        address_file = next((folder / FILE for folder in path.resolve().parents if (folder / FILE).exists()), None)
        if address_file is None:
            example = '{"url": "redis://HOST:PORT"}'
            raise InputError(f"{path.parent / FILE}: missing; it names the server of sets made below it: {example}")
        path.mkdir(parents=True)
        (path / FILE).write_text(json.dumps({**_server_description(address_file), "key": uuid4().hex}))

    @classmethod
    @override
    def write_part(cls, path: Path, first: int, part: Sequence[Made]) -> None:
        """Write the part; the fields are the numbers of the samples."""
        client, key = _client_and_key(path)
        with _server_errors(path, client):
            pipeline = client.pipeline(transaction=False)
            for number, (data, label) in enumerate(part, first):
                pipeline.hset(f"{key}:images", f"{number:08d}", data).hset(f"{key}:labels", f"{number:08d}", label)
            pipeline.execute()


def _server_description(file: Path) -> dict[str, Any]:
    """Return the server's URL and the samples' key from a file."""
    try:
        description: dict[str, Any] = json.loads(file.read_text())
        return {"key": "", **description, "url": str(description["url"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: names no server ({error!r}); expected {RedisImages.layout}") from None


def _client_and_key(path: Path) -> tuple[Any, str]:
    """Return a client of the folder's server, which connects at its first request, and the key of the samples."""
    try:
        import redis
    except ImportError:
        raise InputError("format redis needs its client: pip install 'stallpoint[redis]'") from None
    description = _server_description(path / FILE)
    try:
        return redis.Redis.from_url(description["url"], socket_timeout=TIMEOUT_SECONDS), str(description["key"])
    except ValueError as error:
        raise InputError(f"{path / FILE}: {error}; expected {RedisImages.layout}") from None


def _address(client: Any) -> str:
    """Return the server's ``HOST:PORT``, or the path of its socket; a user's name and password are left out."""
    server = client.get_connection_kwargs()
    return f"{server['host']}:{server.get('port', 6379)}" if "host" in server else str(server.get("path", ""))


@contextmanager
def _server_errors(path: Path, client: Any, *, close: bool = True) -> Iterator[None]:
    """Raise `Unreadable` if the server does not answer."""
    import redis

    try:
        yield
    except redis.RedisError as error:
        raise Unreadable(f"{path / FILE}: {_address(client)} cannot be read or written ({error}); {ADVICE}") from error
    finally:
        if close:
            client.close()
