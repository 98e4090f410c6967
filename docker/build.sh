#!/bin/sh
# build.sh SOURCES DESTINATION: build with Debian's newest server packages and
# install below DESTINATION.  For docker/Dockerfile; as root.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends gcc libc6-dev make libpmem-dev \
	libxxhash-dev postgresql-server-dev-all
pg_config=$(ls -d /usr/lib/postgresql/*/bin/pg_config | sort -V | tail -n 1)
make -s -C "$1" with_llvm=no PG_CONFIG="$pg_config" clean all
make -s -C "$1" with_llvm=no PG_CONFIG="$pg_config" DESTDIR="$2" install
