#!/bin/sh
# Installs what the Slurm test cluster and the tests of training to a target need on Debian or Ubuntu (root); does nothing where it is all there.
set -eu
# slurm-wlm: controller, node daemon and commands; munge: their authentication; iproute2: namespaces, links, tc;
# util-linux: nsenter, unshare; procps: ps, for people; libpmix-dev: Slurm's PMIx plugin opens libpmix.so, and only
# this package has the file of that name (libpmix2 has libpmix.so.2); slurmdbd, mariadb-server-core: the accounts and
# their database (the package mariadb-server would start one for the whole system); glusterfs-server, glusterfs-client:
# the storage node's volume, and how nodes mount it; redis-server: a database with training data;
# dataset-fashion-mnist: training data.
packages="slurm-wlm slurmdbd mariadb-server-core munge iproute2 util-linux procps libpmix-dev glusterfs-server glusterfs-client redis-server dataset-fashion-mnist"

missing=""
for package in $packages; do
    if ! dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed; then
        missing="$missing $package"
    fi
done
if [ -n "$missing" ]; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    # shellcheck disable=SC2086  # one word for each package
    apt-get install -q -y --no-install-recommends $missing
fi
