#!/usr/bin/env bash
# All checks and tests (make test). As root on Debian or Ubuntu it first installs what the cluster and browser tests
# need; elsewhere those are skipped, and the last lines say so. With CI=true a skipped test is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    tests/cluster/install.sh
    command -v chromium >/dev/null || apt-get install -y -q --no-install-recommends chromium >/dev/null
fi
make --no-print-directory check
.venv/bin/pytest tests/unit tests/workflow tests/cluster
