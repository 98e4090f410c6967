#!/bin/sh
# Run the server; make its cluster the first time.  For docker/Dockerfile, as
# the account postgres.
#
#	PGDATA					default /var/lib/postgresql/data
#	POSTGRES_PASSWORD		of the role postgres; needed the first time
#
# Further arguments are passed to the server.
set -eu
umask 077
: "${PGDATA:=/var/lib/postgresql/data}"
export PGDATA
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)

if [ ! -s "$PGDATA/PG_VERSION" ]; then
	if [ -z "${POSTGRES_PASSWORD:-}" ]; then
		echo "set POSTGRES_PASSWORD: the cluster in $PGDATA has yet to be made" >&2
		exit 1
	fi
	password=$(mktemp)
	trap 'rm -f "$password"' EXIT
	printf '%s\n' "$POSTGRES_PASSWORD" >"$password"
	"$bin/initdb" --auth=scram-sha-256 --pwfile="$password"
	rm -f "$password"
	echo "shared_preload_libraries = 'pmhash'" >>"$PGDATA/postgresql.conf"
	echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
	echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
fi
unset POSTGRES_PASSWORD
exec "$bin/postgres" "$@"
