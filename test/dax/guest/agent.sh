#!/bin/bash
#
# The guest's process 1 once the disk is mounted: does the steps that the
# kernel's command line names (dax_steps=a,b,...), in order, and tells the host
# on the first serial line:
#	@ok NAME, @not ok NAME: DETAIL		a test
#	@info TEXT							for the reader
#	@mark NAME							the host waits for these
# The servers' log goes to the second serial line, the clients'
# acknowledgements to the third.

export PATH=/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
export PAGER=cat
exec </dev/null >/dev/ttyS0 2>&1
cd /

# ---- talking ----

ok() { echo "@ok $1"; }
not_ok() { echo "@not ok $1: $2"; }
info() { echo "@info $*"; }
mark() { echo "@mark $1"; }

# is NAME EXPECTED FOUND
is()
{
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		not_ok "$1" "expected \"$2\", found \"$3\""
	fi
}

# parameter NAME: from the kernel's command line
parameter() { tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p"; }

now_ms() { awk '{ print int($1 * 1000) }' /proc/uptime; }

# ---- servers: a has its pool on persistent memory, b on the disk ----

port() { case $1 in a) echo 5432 ;; b) echo 5433 ;; esac; }
pool() { case $1 in a) echo /pmem/pool ;; b) echo /var/lib/dax/pool ;; esac; }

# sql SERVER [PSQL-ARGUMENT...]: as superuser; rows without ornament
sql()
{
	local server=$1

	shift
	as_postgres psql -X -A -t -q -v ON_ERROR_STOP=1 -h /tmp -p "$(port "$server")" -d postgres "$@" 2>&1
}

# as_postgres COMMAND...: without the cost of PAM, which counts in an emulator
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }

# launch SERVER: start the postmaster, do not wait
launch()
{
	as_postgres postgres -D "/var/lib/dax/$1" -p "$(port "$1")" -k /tmp \
		-c "pmhash.directory=$(pool "$1")" ${server_options:-} >>/dev/ttyS1 2>&1 &
}

# start SERVER: and wait until it takes connections
start()
{
	local from

	from=$(now_ms)
	launch "$1"
	for ((try = 0; try < 600; try++)); do
		if pg_isready -q -h /tmp -p "$(port "$1")" -U postgres; then
			info "server $1 takes connections after $(($(now_ms) - from)) ms"
			return
		fi
		sleep 0.2
	done
	not_ok "server $1 starts" "no connections after 120 s"
}

stop()
{
	as_postgres pg_ctl -D "/var/lib/dax/$1" -m fast -w -t 120 stop >/dev/null
	is "server $1 shut down cleanly" "shut down" \
		"$(pg_controldata "/var/lib/dax/$1" | sed -n 's/^Database cluster state: *//p')"
}

# ---- steps ----

step_boot_id() { echo "@boot_id $(cat /proc/sys/kernel/random/boot_id)"; }

# A namespace in fsdax mode and a file system on it.
step_namespace()
{
	ndctl create-namespace -m fsdax -M mem -f -e namespace0.0 >/dev/null || not_ok "namespace" "ndctl"
	mkfs.ext4 -q -b 4096 /dev/pmem0 || not_ok "file system" "mkfs"
	step_mount
	install -d -o postgres -g postgres -m 700 /pmem/pool
}

step_mount()
{
	mount -t ext4 -o dax=always /dev/pmem0 /pmem || not_ok "dax mount" "$(dmesg | tail -n 3)"
	chmod 666 /dev/ttyS1 /dev/ttyS2
}

# What kind of memory the guest sees; libpmem and the kernel must agree with
# what the machine was built as.
step_domain()
{
	local found

	found=$(/dax/pm_domain /pmem)
	info "kernel: persistence domain $(cat /sys/bus/nd/devices/region0/persistence_domain 2>/dev/null || echo "not told"); libpmem: is_pmem, auto_flush = $found"
	is "libpmem: persistent memory, $(parameter dax_domain)" \
		"1 $([ "$(parameter dax_domain)" = eADR ] && echo 1 || echo 0)" "$found"
}

step_start_a() { start a; }
step_start_b() { start b; }
step_launch_a() { launch a; }
step_stop_a() { stop a; }
step_stop_b() { stop b; }

step_schema_a() { sql a -f /dax/schema.sql || not_ok "schema" "a"; }
step_schema_b() { sql b -f /dax/schema.sql || not_ok "schema" "b"; }

# The files, for the host to compare: a rebuilt index has another one.
tell_files() { sql "$1" -c "SELECT '@file $1 ' || index || ' ' || file FROM pmhash_indexes ORDER BY index"; }

states() { sql "$1" -c "SELECT DISTINCT durability || ', ' || state FROM pmhash_indexes"; }

step_valid_a()
{
	is "all indexes of class dax are valid" "dax, valid" "$(states a)"
	tell_files a
}

step_valid_b()
{
	is "all indexes of class cache are valid" "cache, valid" "$(states b)"
	tell_files b
}

# check SERVER: each line of check.sql is a test
check()
{
	local name answer lines=0

	sql "$1" -f /dax/check.sql >/dax/answers
	while IFS='|' read -r name answer; do
		lines=$((lines + 1))
		case $answer in
			ok | same) ok "$1: $name" ;;
			*) not_ok "$1: $name" "$answer" ;;
		esac
	done </dax/answers
	is "$1: all checks were made" 12 "$lines"
}

step_check_a()
{
	local from

	from=$(now_ms)
	sql a -c "SELECT count(*) FROM t WHERE id = -1" >/dev/null
	info "first query through an index: $(($(now_ms) - from)) ms"
	check a
	info "rows in t: $(sql a -c 'SELECT count(*) FROM t'), done: $(sql a -c 'SELECT count(*) FROM done')"
}

step_check_b() { check b; }

# base CUT CLIENT: its transactions of that boot are numbered from here
base() { echo $((($1 * 10 + $2) * 1000000)); }

# All that client 0 was told of is there: the first dax_acked of its
# transactions before the cut.
step_acknowledged()
{
	local n

	n=$(parameter dax_acked)
	is "$n acknowledged transactions are there" "$n" \
		"$(sql a -c "SELECT count(*) FROM done WHERE n - $(base "$(parameter dax_cut)" 0) BETWEEN 1 AND $n")"
}

# Transactions that were left prepared are still prepared, with their rows
# invisible; then one half is committed and the other rolled back.
step_prepared()
{
	local gid n commit=1

	for gid in $(parameter dax_prepared | tr , ' '); do
		n=${gid##*-}
		is "$gid is still prepared" 1 \
			"$(sql a -c "SELECT count(*) FROM pg_prepared_xacts WHERE gid = '$gid'")"
		is "its row is invisible" 0 "$(sql a -c "SELECT count(*) FROM kept WHERE id = $n")"
		if [ $commit -eq 1 ]; then
			sql a -c "COMMIT PREPARED '$gid'"
		else
			sql a -c "ROLLBACK PREPARED '$gid'"
		fi
		is "its row after the end of $gid" $commit \
			"$(sql a -c "SET enable_seqscan = off; SELECT count(*) FROM kept WHERE id = $n")"
		commit=$((1 - commit))
	done
	for gid in $(sql a -c "SELECT gid FROM pg_prepared_xacts"); do
		sql a -c "ROLLBACK PREPARED '$gid'"
	done
}

# Class cache after a power cut: known to be unfit, answers are right all the
# same, then rebuilt.  The server was started with pmhash.rebuild = off.
step_start_b_no_rebuild() { server_options="-c pmhash.rebuild=off" start b; }

step_invalid_b()
{
	is "all indexes of class cache are invalid after the cut" 0 \
		"$(sql b -c "SELECT count(*) FROM pmhash_indexes WHERE state NOT LIKE 'invalid: %'")"
	info "state of class cache: $(sql b -c "SELECT DISTINCT state FROM pmhash_indexes")"
	is "queries are answered without them" "$(sql b -c "SELECT count(*) FROM t WHERE d + 0 = 7")" \
		"$(sql b -c "SELECT count(*) FROM t WHERE d = 7")"
	sql b -c "INSERT INTO t VALUES (-100000, 7, 'while invalid')"
	stop b
	start b
	for ((try = 0; try < 300; try++)); do
		[ "$(sql b -c "SELECT count(*) FROM pmhash_indexes WHERE state <> 'valid'")" != 0 ] || break
		sleep 0.3
	done
	is "they are rebuilt, class cache" "cache, valid" "$(states b)"
	tell_files b
}

# script SERVER CLIENT CUT: the endless work of one client, as psql's input.
# "a CLIENT N" acknowledges a commit, "k GID" a transaction left prepared, until
# "r GID" announces its end.
script()
{
	local c=$2 n kept=

	n=$(base "$3" "$2")
	while :; do
		n=$((n + 1))
		case $((n % 8)) in
			3) echo "BEGIN; SELECT work($c, $n); PREPARE TRANSACTION 'w-$c-$n'; COMMIT PREPARED 'w-$c-$n';" ;;
			5) echo "BEGIN; SELECT work($c, $n); ROLLBACK; SELECT work($c, $n);" ;;
			7) echo "BEGIN; SELECT work($c, $n); PREPARE TRANSACTION 'w-$c-$n'; ROLLBACK PREPARED 'w-$c-$n'; SELECT work($c, $n);" ;;
			*) echo "SELECT work($c, $n);" ;;
		esac
		echo "\\echo a $c $n"
		if [ $((n % 25)) -eq 10 ]; then
			echo "VACUUM t; VACUUM e;"
		fi
		if [ $((n % 25)) -eq 12 ]; then
			if [ -n "$kept" ]; then
				echo "\\echo r $kept"
				echo "COMMIT PREPARED '$kept';"
			fi
			kept=keep-$c-$n
			echo "BEGIN; INSERT INTO kept VALUES ($n); INSERT INTO kept VALUES (-$n); PREPARE TRANSACTION '$kept';"
			echo "\\echo k $kept"
		fi
		if [ "$c" = 0 ] && [ $((n % 4)) -eq 0 ]; then
			echo "SELECT pg_sleep(0.15);"
		fi
	done
}

# client SERVER CLIENT CUT SYNCHRONOUS_COMMIT
client()
{
	script "$1" "$2" "$3" |
		PGOPTIONS="-c synchronous_commit=$4" sql "$1" -o /dev/null >>/dev/ttyS2
	not_ok "client $2" "it has ended"
}

# Two clients: 0 waits for its commits and pauses, 1 waits for nothing.
step_load_a()
{
	client a 0 "$(parameter dax_load)" on &
	client a 1 "$(parameter dax_load)" off &
	mark loading
	wait
}

# One client on class cache meanwhile.
step_load_b() { client b 2 "$(parameter dax_load)" on & }

step_off()
{
	umount /pmem
	mark off
	sync
	/dax/busybox poweroff -f
}

for step in $(parameter dax_steps | tr , ' '); do
	"step_$step"
done
mark end
while :; do sleep 60; done
