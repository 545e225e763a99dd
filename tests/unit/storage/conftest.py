"""A database server for the formats that need one."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

REDIS = shutil.which("redis-server") is not None or "CI" in os.environ


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only where tests/cluster/install.sh did not install it."""
    for item in items:
        values = getattr(getattr(item, "callspec", None), "params", {}).values()
        if not REDIS and any(isinstance(value, str) and value == "redis" for value in values):
            item.add_marker(pytest.mark.skip(reason="without redis-server, which tests/cluster/install.sh installs"))


@pytest.fixture(scope="session", autouse=REDIS)
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server for the sets that are made below the folder of all tests."""
    folder = tmp_path_factory.getbasetemp()
    command = ["redis-server", "--port", "0", "--unixsocket", str(folder / "redis.sock"), "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert any("ready to accept connections" in line for line in server.stdout)
        url = f"unix://{folder}/redis.sock"
        (folder / "redis.json").write_text(json.dumps({"url": url}))
        yield url
        server.terminate()
