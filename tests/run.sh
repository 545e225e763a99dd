#!/usr/bin/env bash
# All checks and tests (make test). As root on Debian or Ubuntu it first installs what the cluster and browser tests
# need; elsewhere those are skipped, and the summaries say so. With CI=true a skipped test is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

install() {
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        tests/cluster/install.sh
        command -v chromium >/dev/null || apt-get install -y -q --no-install-recommends chromium >/dev/null
    fi
}
install &  # mostly waits for the disk; checks compute
make --no-print-directory check
wait $!
# What mostly waits goes first, and what computes fills the gaps (nice): jobs of the Slurm cluster, which wait for each
# other and for the controller, then MPI ranks, which wait for each other. Beside the cluster ranks would starve. Files of
# tests with ranks stay whole (loadfile), as what they share takes long to measure.
{
    status=0
    .venv/bin/pytest tests/cluster --durations=8 || status=1
    .venv/bin/pytest tests/unit -m ranks --durations=8 --numprocesses logical --dist loadfile || status=1
    exit $status
} > .venv/waiting.log 2>&1 &
waiting=$!
failed=0
nice .venv/bin/pytest tests/workflow --durations=8 --numprocesses logical --dist loadgroup || failed=1
nice .venv/bin/pytest tests/unit -m "not ranks" --durations=8 --numprocesses logical --dist worksteal || failed=1
wait $waiting || failed=1
cat .venv/waiting.log
exit $failed
