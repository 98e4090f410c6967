#!/bin/sh
# Install the server that the library was built for, without a cluster.  For
# docker/Dockerfile; as root.
set -eu
export DEBIAN_FRONTEND=noninteractive
version=$(ls /usr/lib/postgresql | sort -V | tail -n 1)
mkdir -p /etc/postgresql-common/createcluster.d
echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/pmhash.conf
apt-get update -q
apt-get install -q -y --no-install-recommends "postgresql-$version" libpmem1
rm -rf /var/lib/apt/lists/*
