#!/bin/bash
#
# The guest's process 1 once the disk is mounted: does the steps that the
# kernel's command line names (dax_steps=STEP,STEP:SERVER,...), in order, and tells
# the host on the first serial line:
#	@ok NAME, @not ok NAME: DETAIL		a test
#	@info TEXT							for the reader
#	@mark NAME							the host waits for these
# The servers' log goes to the second serial line, the clients'
# acknowledgements to the third.

export PATH=$(echo /usr/lib/postgresql/*/bin):/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
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
class() { case $1 in a) echo dax ;; b) echo cache ;; esac; }

# sql SERVER [PSQL-ARGUMENT...]: as superuser; rows without ornament
sql()
{
	local server=$1

	shift
	as_postgres psql -X -A -t -q -v ON_ERROR_STOP=1 -h /tmp -p "$(port "$server")" -d postgres "$@" 2>&1
}

# as_postgres COMMAND...: without the cost of PAM, which counts in an emulator
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }

# ---- steps; $1 is the server, if it is for one ----

# Until it takes connections.
step_start()
{
	local from

	from=$(now_ms)
	as_postgres postgres -D "/var/lib/dax/$1" -p "$(port "$1")" -k /tmp \
		-c "pmhash.directory=$(pool "$1")" ${server_options:-} >>/dev/ttyS1 2>&1 &
	for ((try = 0; try < 600; try++)); do
		if pg_isready -q -h /tmp -p "$(port "$1")" -U postgres; then
			info "server $1 takes connections after $(($(now_ms) - from)) ms"
			return
		fi
		sleep 0.2
	done
	not_ok "server $1 starts" "no connections after 120 s"
}

step_stop()
{
	as_postgres pg_ctl -D "/var/lib/dax/$1" -m fast -w -t 120 stop >/dev/null
	is "server $1 shut down cleanly" "shut down" \
		"$(pg_controldata "/var/lib/dax/$1" | sed -n 's/^Database cluster state: *//p')"
}

step_boot_id() { echo "@boot_id $(cat /proc/sys/kernel/random/boot_id)"; }

# A namespace in fsdax mode and a file system on it.
step_namespace()
{
	ndctl create-namespace -m fsdax -M mem -f -e namespace0.0 >/dev/null || not_ok "namespace" "ndctl"
	mkfs.ext4 -q -b 4096 /dev/pmem0 || not_ok "file system" "mkfs"
	step_mount always
	install -d -o postgres -g postgres -m 700 /pmem/pool
}

# With dax, or without ($1: never): what was persistent memory is a file like others then.
step_mount()
{
	mount -t ext4 -o "dax=${1:-always}" /dev/pmem0 /pmem || not_ok "mount" "$(dmesg | tail -n 3)"
	chmod 666 /dev/ttyS1 /dev/ttyS2
}

# What kind of memory the guest sees; libpmem and the kernel must agree with
# what the machine was built as.
step_domain()
{
	local found

	found=$(/dax/pm_probe domain /pmem)
	info "kernel: persistence domain $(cat /sys/bus/nd/devices/region0/persistence_domain 2>/dev/null || echo "not known"); libpmem: is_pmem, auto_flush = $found"
	is "libpmem: persistent memory, $(parameter dax_domain)" \
		"1 $([ "$(parameter dax_domain)" = eADR ] && echo 1 || echo 0)" "$found"
}

# The engine alone: many files that move, and which claim to be persistent.
step_probe()
{
	is "files that grow and move" ok "$(/dax/pm_probe remap /pmem)"
	is "class of a file on persistent memory" dax "$(/dax/pm_probe class /pmem)"
	is "class of a file on the disk" cache "$(/dax/pm_probe class /dax)"
}

# A file that has just grown, with a file system that writes its journal only
# when it must; the host cuts the power at the mark.
step_grow()
{
	mount -o remount,commit=300 /pmem
	/dax/pm_probe grow /pmem/grown
}

step_grown() { is "a file that had just grown" ok "$(/dax/pm_probe grown /pmem/grown "$(parameter dax_keys)")"; }

step_schema() { sql "$1" -f /dax/schema.sql || not_ok "schema" "$1"; }

# The files, for the host to compare: a rebuilt index has another one.
tell_files() { sql "$1" -c "SELECT '@file $1 ' || index || ' ' || file FROM pmhash.indexes ORDER BY index"; }

states() { sql "$1" -c "SELECT DISTINCT durability || ', ' || state FROM pmhash.indexes"; }

step_valid()
{
	is "all indexes of class $(class "$1") are valid" "$(class "$1"), valid" "$(states "$1")"
	tell_files "$1"
}

# Each line of check.sql is a test.
step_check()
{
	local name answer lines=0 from

	from=$(now_ms)
	sql "$1" -c "SELECT count(*) FROM t WHERE id = -1" >/dev/null
	info "first query through an index of $1: $(($(now_ms) - from)) ms"
	sql "$1" -f /dax/check.sql >/dax/answers
	while IFS='|' read -r name answer; do
		lines=$((lines + 1))
		case $answer in
			ok | same) ok "$1: $name" ;;
			*) not_ok "$1: $name" "$answer" ;;
		esac
	done </dax/answers
	is "$1: all checks were made" 12 "$lines"
	info "$1: rows in t: $(sql "$1" -c 'SELECT count(*) FROM t'), done: $(sql "$1" -c 'SELECT count(*) FROM done')"
}

# base CUT CLIENT: its transactions of that boot are numbered from here
base() { echo $((($1 * 10 + $2) * 1000000)); }

# All that was acknowledged to client 0 is there: the first dax_acked of its
# transactions before the cut.
step_acknowledged()
{
	local n

	n=$(parameter dax_acked)
	is "$n acknowledged transactions are there" "$n" \
		"$(sql a -c "SELECT count(*) FROM done WHERE n - $(base "$(parameter dax_cut)" 0) BETWEEN 1 AND $n")"
}

# end_prepared SERVER: nothing stays prepared
end_prepared()
{
	local gid

	for gid in $(sql "$1" -c "SELECT gid FROM pg_prepared_xacts"); do
		sql "$1" -c "ROLLBACK PREPARED '$gid'"
	done
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
	end_prepared a
}

step_start_no_rebuild() { server_options="-c pmhash.rebuild=off" step_start "$1"; }

# all_valid SERVER: wait for it
all_valid()
{
	for ((try = 0; try < 300; try++)); do
		[ "$(sql "$1" -c "SELECT count(*) FROM pmhash.indexes WHERE state <> 'valid'")" != 0 ] || return
		sleep 0.3
	done
}

# Class cache after a power cut: known to be unfit, answers are right all the
# same, then rebuilt.  The server was started with pmhash.rebuild = off.
step_invalid()
{
	is "all indexes of server $1 are invalid after the cut" 0 \
		"$(sql "$1" -c "SELECT count(*) FROM pmhash.indexes WHERE state NOT LIKE 'invalid: %'")"
	info "their state: $(sql "$1" -c "SELECT DISTINCT state FROM pmhash.indexes" | tr '\n' ' ')"
	is "queries are answered without them" "$(sql "$1" -c "SELECT count(*) FROM t WHERE d + 0 = 7")" \
		"$(sql "$1" -c "SELECT count(*) FROM t WHERE d = 7")"
	sql "$1" -c "INSERT INTO t VALUES (-100000, 7, 'while invalid')"
	end_prepared "$1"			# a rebuild waits for transactions that have written to the table
	step_stop "$1"
	step_start "$1"
	all_valid "$1"
	is "they are rebuilt" "$(class "$1"), valid" "$(states "$1")"
	tell_files "$1"
}

# Files of class dax say nothing of what has been written back: they are built anew.
step_cache()
{
	all_valid a
	is "without dax all indexes are of class cache" "cache, valid" "$(states a)"
}

# ---- a session that lives through faults ----

open_session()
{
	rm -f /dax/in
	mkfifo /dax/in
	sql a -v ON_ERROR_STOP=0 </dax/in >>/dax/out &
	exec 7>/dax/in
	questions=0
}

# ask SQL: its output is in /dax/out
ask()
{
	questions=$((questions + 1))
	: >/dax/out
	printf "%s\n;SELECT 'answered %d';\n" "$1" $questions >&7
	for ((try = 0; try < 600; try++)); do
		! grep -q "answered $questions" /dax/out || return
		sleep 0.1
	done
	not_ok "a session answers" "$1"
}

answer() { grep -v '^answered ' /dax/out; }

file_of() { sql a -c "SELECT file FROM pmhash.indexes WHERE index = '$1'"; }

# Is the session's mapping of pool files one that is durable without the file
# system's help (MAP_SYNC: "sf")?
step_map_sync()
{
	local pid

	open_session
	ask "SELECT pmhash.check('t_id'); INSERT INTO t VALUES (-200000, 1, 'map_sync'); SELECT pg_backend_pid();"
	pid=$(answer | tail -n 1)
	is "all pool files are mapped with MAP_SYNC" "$(grep -c ' /pmem/pool/' /proc/$pid/maps) 0" \
		"$(awk '/^[0-9a-f]+-[0-9a-f]+ / { pool = / \/pmem\/pool\//; name = $6 }
				pool && /^VmFlags:/ { if (/ sf( |$)/) with++; else without++ }
				END { print with + 0, without + 0 }' /proc/$pid/smaps)"
	info "mapped: $(grep -c 'journal\.' /proc/$pid/maps) journal, $(grep -c '\.pmh$' /proc/$pid/maps) index files"
	exec 7>&-
}

# lost INDEX WHAT: the index's file has just been damaged under an open session
lost()
{
	local pid answer

	pid=$(answer | tail -n 1)
	ask "SELECT pmhash.check('$1');"
	answer=$(answer)
	case $answer in
		*ERROR:*) ok "$2: an error" ;;
		*) not_ok "$2: an error" "$answer" ;;
	esac
	info "$2: $(printf '%s' "$answer" | head -n 1)"
	ask "SELECT pg_backend_pid();"
	is "$2: the session lives" "$pid" "$(answer | tail -n 1)"
	all_valid a
	is "$2: rebuilt" "dax, valid" "$(states a)"
	is "$2: another file" yes "$([ "$(file_of "$1")" != "$file" ] && echo yes)"
	is "$2: index = table" same "$(sql a -c "SELECT by_index FROM every_key('t', '${1#t_}', '$1')")"
}

# map INDEX: have it mapped by the session, and keep the blocks of its file
# (hard link), lest a new file gets them
map()
{
	ask "SELECT pmhash.check('$1'); SELECT pg_backend_pid();"
	file=$(file_of "$1")
	ln "$file" "/pmem/kept.$1"
}

step_faults()
{
	local started file block

	started=$(sql a -c "SELECT pg_postmaster_start_time()")
	open_session

	map t_d
	truncate -s 32768 "$file"
	lost t_d "a file that is cut off"

	map t_s
	block=$(filefrag -v -b512 "$file" | awk '$1 == "0:" { sub(/\.\..*/, "", $4); print $4 }')
	info "bad block: $file, sector $block"
	echo "$block 8" >/sys/block/pmem0/badblocks
	exec 7>&-
	open_session
	ask "SELECT pg_backend_pid();"
	lost t_s "a bad block"

	map t_id
	info "madvise: $(/dax/pm_probe poison "$file" 2>&1 | tr '\n' ' ')"
	info "kernel: $(dmesg | grep -i 'memory failure' | tail -n 1)"
	# a kernel that maps the page again for the next process hides nothing
	if [ "$(/dax/pm_probe read "$file" 2>&1)" = read ]; then
		info "a poisoned page: this kernel lets every process read it"
	else
		lost t_id "a poisoned page"
	fi

	fallocate -l "$(df --output=avail -B1 /pmem | tail -n 1)" /pmem/fill
	ask "INSERT INTO t SELECT -300000 - i, i, 'full ' || i, '' FROM generate_series(1, 40000) i;"
	info "full: $(answer | head -n 2 | tr '\n' ' ')"
	is "a full file system is an error" 1 "$(grep -c 'ERROR: .*No space left on device' /dax/out)"
	rm /pmem/fill
	ask "INSERT INTO t SELECT -300000 - i, i, 'full ' || i, '' FROM generate_series(1, 40000) i;"
	is "and none when there is space again" "" "$(answer)"

	exec 7>&-
	is "the server was not restarted" "$started" "$(sql a -c "SELECT pg_postmaster_start_time()")"
	step_check a
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
				# the line has left the machine when the end becomes durable
				echo "\\echo r $kept"
				echo "SELECT pg_sleep(0.2);"
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

# Of a two clients: 0 waits for its commits and pauses, 1 waits for nothing.
step_load()
{
	client a 0 "$(parameter dax_load)" on &
	client a 1 "$(parameter dax_load)" off &
	mark loading
	wait
}

# One client on class cache meanwhile.
step_load_beside() { client b 2 "$(parameter dax_load)" on & }

step_off()
{
	umount /pmem
	mark off
	sync
	/dax/busybox poweroff -f
}

for step in $(parameter dax_steps | tr , ' '); do
	IFS=: read -r name server <<<"$step"
	"step_$name" "$server"
done
mark end
while :; do sleep 60; done
