#!/bin/bash
# fs_shutdown.sh PG_CONFIG [ACCOUNT]: for root.  A server whose pool is on a file
# system of its own is killed; the file system loses its device before everything is
# written back (EXT4_IOC_SHUTDOWN), or is unmounted, and is mounted again without
# a boot; then the server starts.  And one whose pool is on an overlay over a device that
# fails.  Prints a line for each case.
set -u
pg_config=$1
account=${2:-postgres}
bin=$(runuser -u "$account" -- "$pg_config" --bindir)
work=$(mktemp -d /tmp/pmhash_shutdown.XXXXXX)
own=$(mktemp -d /tmp/pmhash_shutdown.XXXXXX)	# of root's: nobody else puts a link there
passed=0
failed=0
device=

as() { runuser -u "$account" -- env -C / "$@"; }
query() { as "$bin/psql" -XqAt -h "$work" -p 54329 -d postgres -c "$1"; }
start() { as "$bin/pg_ctl" -D "$work/data" -w -l "$work/log" start >/dev/null; }

finish()
{
	as "$bin/pg_ctl" -D "$work/data" -m immediate stop >/dev/null 2>&1
	umount "$own/overlay" "$own/mount" 2>/dev/null
	[ -n "$device" ] && losetup -d "$device"
	umount "$own/memory" 2>/dev/null
	rm -rf "$work" "$own"
}
trap finish EXIT

# kill -9 of all processes of the server
kill_server()
{
	local postmaster children

	postmaster=$(head -n 1 "$work/data/postmaster.pid")
	as kill -STOP "$postmaster"
	children=$(cat "/proc/$postmaster/task/$postmaster/children")
	as kill -KILL $children "$postmaster"
	while grep -qs '^State:[[:space:]]*[^Z[:space:]]' $(printf '/proc/%s/status ' $children $postmaster); do sleep 0.05; done
	rm -f "$work/data/postmaster.pid" "$work"/.s.PGSQL.*
}

# expect NAME STATE: the index has that state and gives what the table has
expect()
{
	local state answer

	state=$(query "SELECT state FROM pmhash.indexes WHERE index = 't_k'")
	answer=$(query "SET enable_seqscan = off; SELECT count(*) FROM generate_series(1, $n) g WHERE EXISTS (SELECT FROM t WHERE k = g OFFSET 0)")
	if [[ "$state" == $2 && "$answer" = "$n" ]]; then
		echo "ok $1: $state, $answer rows"
		passed=$((passed + 1))
	else
		echo "not ok $1: $state, $answer of $n rows are found"
		failed=$((failed + 1))
	fi
}

# change [ROWS]: WAL and table are on disk, the index is in the page cache
change()
{
	local rows=${1:-1000}

	query "INSERT INTO t SELECT generate_series($((n + 1)), $((n + rows)))"
	n=$((n + rows))
}

make_fs()
{
	truncate -s 200M "$own/image" && mkfs.ext4 -q -F "$own/image" && mkdir "$own/mount" &&
		device=$(losetup -f --show "$own/image") && mount "$device" "$own/mount" &&
		mkdir "$own/mount/pool" && chown "$account" "$own/mount/pool" && chmod 700 "$own/mount/pool"
}

# An overlay over ext4 (without a journal, whose own failures would be reported) on a
# device whose blocks take up memory when they are first written.
make_overlay()
{
	mkdir "$own/memory" "$own/overlay" && mount -t tmpfs -o size=64m none "$own/memory" &&
		truncate -s 200M "$own/memory/image" && mkfs.ext4 -q -F -O ^has_journal "$own/memory/image" &&
		device=$(losetup -f --show "$own/memory/image") && mount "$device" "$own/mount" &&
		mkdir "$own/mount/lower" "$own/mount/upper" "$own/mount/work" &&
		mount -t overlay -o "lowerdir=$own/mount/lower,upperdir=$own/mount/upper,workdir=$own/mount/work" none "$own/overlay" &&
		mkdir "$own/overlay/pool" && chown "$account" "$own/overlay/pool" && chmod 700 "$own/overlay/pool"
}

# From now on blocks that are written for the first time fail, or no longer.
device_fails() { sync; dd if=/dev/zero of="$own/memory/filler" bs=4k 2>/dev/null; }
device_works() { rm -f "$own/memory/filler"; }

chown "$account" "$work"
chmod 700 "$work"			# its socket trusts
chmod 711 "$own"
if ! make_fs; then
	echo "no ext4 file system can be mounted here"
	exit 2
fi
as "$bin/initdb" -D "$work/data" -A trust --no-sync >/dev/null
as tee -a "$work/data/postgresql.conf" >/dev/null <<CONF
port = 54329
listen_addresses = ''
unix_socket_directories = '$work'
shared_preload_libraries = 'pmhash'
pmhash.directory = '$own/mount/pool'
pmhash.rebuild = off
autovacuum = off
CONF
start
n=1000
query "CREATE EXTENSION pmhash; CREATE TABLE t (k int8); INSERT INTO t SELECT generate_series(1, $n); CREATE INDEX t_k ON t USING pmhash (k); CHECKPOINT"
sync
sleep 3
change
kill_server
start
expect "killed" valid

change
kill_server
perl -e 'open(my $d, "<", $ARGV[0]) or die $!; my $how = pack("I", 2); ioctl($d, 0x8004587d, $how) or die $!' "$own/mount"
umount "$own/mount"
mount "$device" "$own/mount"
start
expect "killed, file system shut down and mounted again" 'invalid*'
query "REINDEX INDEX t_k"

change
kill_server
umount "$own/mount"
mount "$device" "$own/mount"
start
expect "killed, file system unmounted and mounted again" 'invalid*'
query "REINDEX INDEX t_k"

# an image of the device, taken while the server runs, without a freeze
change
cp --sparse=always "$own/image" "$own/snapshot"
change
kill_server
umount "$own/mount"
losetup -d "$device"
device=$(losetup -f --show "$own/snapshot")
mount "$device" "$own/mount"
start
expect "killed, a snapshot of the device mounted" 'invalid*'
query "REINDEX INDEX t_k"

change
as "$bin/pg_ctl" -D "$work/data" -w stop >/dev/null
umount "$own/mount"
mount "$device" "$own/mount"
start
expect "shut down, unmounted and mounted again" valid

# the whole pool is full: a crash of a child needs no space
change
dd if=/dev/zero of="$own/mount/filler" bs=4k 2>/dev/null
pid=$(query "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
as kill -KILL "$pid"
for ((i = 0; i < 200; i++)); do
	[ "$(query "SELECT 1" 2>/dev/null)" = 1 ] && break
	sleep 0.1
done
expect "full, a child has crashed" valid

# failed writes below an overlay: syncfs() on that says nothing of them
as "$bin/pg_ctl" -D "$work/data" -w stop >/dev/null
umount "$own/mount"
losetup -d "$device"
device=
if make_overlay; then
	as tee -a "$work/data/postgresql.conf" >/dev/null <<<"pmhash.directory = '$own/overlay/pool'"
	start
	query "REINDEX INDEX t_k; CHECKPOINT"
	sleep 3
	change
	query "CHECKPOINT"
	sleep 3
	kill_server
	start
	expect "overlay, killed past a checkpoint" valid
	device_fails
	change 20000
	query "CHECKPOINT"
	for ((i = 0; i < 100; i++)); do
		[[ "$(query "SELECT state FROM pmhash.indexes WHERE index = 't_k'")" == invalid* ]] && break
		sleep 0.1
	done
	expect "overlay, writes have failed before a checkpoint" 'invalid*'
	device_works
	query "REINDEX INDEX t_k; CHECKPOINT"
	sleep 3
	device_fails
	change 20000
	as "$bin/pg_ctl" -D "$work/data" -w stop >/dev/null
	device_works
	start
	expect "overlay, writes have failed before a shutdown" 'invalid*'
	query "REINDEX INDEX t_k"
	as "$bin/pg_ctl" -D "$work/data" -w stop >/dev/null
	start
	expect "overlay, shut down" valid
else
	echo "# no overlay can be mounted here"
fi
echo "fs_shutdown: $passed passed, $failed failed"
exit $((failed > 0))
