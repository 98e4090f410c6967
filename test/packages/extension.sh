#!/bin/bash
#
# test/packages/extension.sh STEP: a server as CloudNativePG runs it, with the extension
# image mounted at /extensions/pmhash; test/packages.sh calls it in a chroot, as root.
# A server that is still running at the end of a step is killed with it.

set -eu
export LC_ALL=C.UTF-8
bin=/usr/lib/postgresql/18/bin
volume=/var/lib/postgresql/data
data=$volume/pgdata

sql()
{
	runuser -u postgres -- psql -X -q -A -t -v ON_ERROR_STOP=1 -d postgres "$@"
}

fail()
{
	echo "$*"
	exit 1
}

start()
{
	rm -f "$data/postmaster.pid"
	runuser -u postgres -- env LD_LIBRARY_PATH=/extensions/pmhash/system \
		"$bin/pg_ctl" -D "$data" -w -l "$volume/log" start
}

# The answer is right, and the index is used, or is not.
answers()				# by the index? t or f
{
	local plan

	[ "$(sql -c "SELECT count(*) FROM item WHERE id = 77")" = 1 ] || fail "another answer"
	plan=$(sql -c "EXPLAIN SELECT count(*) FROM item WHERE id = 77")
	[[ $plan = *item_id* ]] && plan=t || plan=f
	[ "$plan" = "$1" ] || fail "index used: $plan"
}

create()
{
	install -d -o postgres -g postgres -m 2770 "$volume"
	runuser -u postgres -- "$bin/initdb" -D "$data" >/dev/null
	# What is lost is not made again: who finds an index valid finds the one of before.
	cat >>"$data/postgresql.conf" <<-'CONF'
		extension_control_path = '$system:/extensions/pmhash/share'
		dynamic_library_path = '$libdir:/extensions/pmhash/lib'
		shared_preload_libraries = 'pmhash'
		pmhash.rebuild = off
	CONF
	start
	sql <<-'SQL'
		CREATE EXTENSION pmhash;
		CREATE TABLE item AS SELECT g AS id FROM generate_series(1, 20000) g;
		CREATE INDEX item_id ON item USING pmhash (id);
		ANALYZE item;
		SELECT pmhash.check('item_id');
	SQL
	answers t
	[ -d "$data.pmhash" ] || fail "the pool is not in the volume"
}

# As it was when the step before ended, in the middle of everything.
kill()
{
	start
	answers t
	sql -c "SELECT pmhash.check('item_id')"
}

# The volume is mounted for a group, without fsGroupChangePolicy: OnRootMismatch.  The
# operator sees to the data directory only.
group()
{
	chmod -R g+rwX "$volume"
	find "$volume" -type d -exec chmod g+s {} +
	chmod 0700 "$data"
	chmod 0700 "$data.pmhash"
	start
	answers t
	runuser -u postgres -- "$bin/pg_ctl" -D "$data" -w stop
	chmod 0770 "$data.pmhash"
	start
	answers f
	grep -q "other users can write in directory" "$volume/log" || fail "no message"
}

"$1"
