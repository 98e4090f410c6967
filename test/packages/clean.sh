#!/bin/bash
#
# test/packages/clean.sh STEP: install the package on Debian's base system, use it,
# remove it; test/packages.sh calls it in a chroot, as root.

set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

package=$(cd /packages && ls postgresql-*-pmhash_*.deb | sed 's/_.*//')
major=${package#postgresql-}
major=${major%-pmhash}
config=/etc/postgresql/$major/main

sql()
{
	runuser -u postgres -- psql -X -q -A -t -v ON_ERROR_STOP=1 -d postgres "$@"
}

fail()
{
	echo "$*"
	exit 1
}

# A cluster as apt makes it; services are not started in a chroot.  Whatever ran in
# an earlier step was killed at its end, with all other processes of the chroot.
start()
{
	rm -f "/var/lib/postgresql/$major/main/postmaster.pid"
	pg_ctlcluster "$major" main start
	until sql -c "SELECT 1" >/dev/null 2>&1; do
		[ "$SECONDS" -lt 60 ] || fail "the server does not start"
		sleep 0.2
	done
}

install()
{
	apt-get -q update
	apt-get -q -y --no-install-recommends install "/packages/$(cd /packages && ls "$package"_*.deb)" >/tmp/installed
	cat /tmp/installed
	# the first thing to do is said at once
	grep -qF "echo \"shared_preload_libraries = 'pmhash'\" | sudo tee $config/conf.d/pmhash.conf" /tmp/installed ||
		fail "nothing is said of shared_preload_libraries"
	apt-get -q -y --reinstall install "/packages/$(cd /packages && ls "$package"_*.deb)" >/tmp/again
	! grep -F shared_preload_libraries /tmp/again || fail "it is said again"
	[ -d "$config" ] || pg_createcluster "$major" main
	dpkg -s "$package" | grep -q '^Status: install ok installed'
	dpkg --audit
}

# What a user looks for; no compiler came with it.
contents()
{
	local file

	for file in "/usr/lib/postgresql/$major/lib/pmhash.so" \
		"/usr/share/postgresql/$major/extension/pmhash.control" \
		"/usr/share/doc/$package/README.md.gz" "/usr/share/doc/$package/changelog.gz" \
		"/usr/share/doc/$package/README.Debian"; do
		dpkg -L "$package" | grep -qx -e "$file" -e "${file%.gz}" || fail "$file is not in the package"
	done
	! dpkg -L "$package" | grep -E '/(usr/local|build|home|tmp)/' || fail "out of place"
	! command -v gcc || fail "a compiler was installed"
}

# The way of README.Debian, and the answers beside sequential scans.
job()
{
	echo "shared_preload_libraries = 'pmhash'" >"$config/conf.d/pmhash.conf"
	start
	sql <<-'SQL'
		CREATE EXTENSION pmhash;
		CREATE TABLE item (id bigint, sku text);
		INSERT INTO item SELECT g, 'sku-' || md5((g % 20000)::text) FROM generate_series(1, 60000) g;
		CREATE INDEX item_sku ON item USING pmhash (sku);
		CREATE INDEX item_id ON item USING pmhash (id);
		ANALYZE item;
		DELETE FROM item WHERE id % 11 = 0;
		UPDATE item SET sku = 'new' WHERE id % 100 = 1;
	SQL
	sql -c "EXPLAIN SELECT * FROM item WHERE id = 5" | grep item_id || fail "the index is not used"
	answers
	sql -c "DO \$\$ BEGIN FOR i IN 1 .. 100000 LOOP INSERT INTO item VALUES (1000000 + i, 'load ' || i % 50); COMMIT; END LOOP; END \$\$" \
		>/dev/null 2>&1 &
	sleep 2
	sql -c "SELECT count(*) FROM item WHERE id > 1000000" >/tmp/committed
	[ "$(cat /tmp/committed)" -gt 0 ] || fail "no load"
}

# Every key, by the index and by one pass over the table.
answers()
{
	local keys="SELECT md5(string_agg(k || ' ' || n, ',' ORDER BY k)) FROM" by_index by_table

	by_table=$(sql -c "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off" \
		-c "$keys (SELECT sku AS k, count(*) AS n FROM item GROUP BY 1) s")
	by_index=$(sql -c "SET enable_hashjoin = off; SET enable_mergejoin = off" -c "CREATE TEMP TABLE key AS SELECT DISTINCT sku FROM item" \
		-c "ANALYZE key" -c "SET enable_seqscan = off" \
		-c "$keys (SELECT key.sku AS k, (SELECT count(*) FROM item WHERE item.sku = key.sku) AS n FROM key) s")
	[ -n "$by_index" ] && [ "$by_index" = "$by_table" ] || fail "answers: $by_index, $by_table"
	sql -c "SELECT pmhash.check('item_sku'), pmhash.check('item_id')" >/dev/null
	[ "$(sql -c "SELECT count(*) FROM pmhash.indexes WHERE state = 'valid'")" = 2 ] || fail "not valid"
}

# A server under load is killed with all its processes, as the end of the step job
# did; then it has all that was committed.
crash()
{
	local committed

	start
	committed=$(cat /tmp/committed)
	[ "$(sql -c "SELECT count(*) >= $committed FROM item WHERE id > 1000000")" = t ] || fail "less than $committed rows"
	answers
}

# Without the extension and the setting the server does without the package.
drop()
{
	start
	sql -c "DROP EXTENSION pmhash CASCADE"
	rm "$config/conf.d/pmhash.conf"
	pg_ctlcluster "$major" main stop
	start
	[ "$(sql -c "SELECT count(*) FROM item WHERE id = 12")" = 1 ] || fail "the table"
}

purge()
{
	local files left

	files=$(dpkg -L "$package")
	apt-get -q -y purge "$package"
	start
	left=$(while read -r file; do
		case $file in
			*pmhash*) [ ! -e "$file" ] || echo "$file" ;;
		esac
	done <<<"$files")
	[ -z "$left" ] || fail "left: $left"
	! dpkg -s "$package" 2>/dev/null || fail "not purged"
	# what stays in the data directory, docs/operations.md tells to remove
	left=$(cd "/var/lib/postgresql/$major/main" && find . -name 'pmhash*' | sed 's|^./||' | while read -r file; do
		grep -qF "\`$file\`" /pmhash/tree/docs/operations.md || echo "$file"
	done)
	[ -z "$left" ] || fail "left, and nobody says so: $left"
	pg_dropcluster --stop "$major" main
	# the directory of index files is the administrator's, as README.Debian says
	rm -rf "/var/lib/postgresql/$major/main.pmhash"
	left=$(find / -xdev \( -path /pmhash -o -path /packages -o -path /proc \) -prune -o -name '*pmhash*' -print)
	[ -z "$left" ] || fail "left: $left"
}

"$1"
