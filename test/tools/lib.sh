# Sourced by test/tools/run.sh and read by the files of tools beside it: servers in
# a scratch directory, tests, and the comparison of indexes with tables.
#
# Set by run.sh: scratch (a directory of ours), bindir (programs of the server),
# major, long (true or false), here (this directory).

next_port=55432
initdb_options=

# say_ok NAME; say_bad NAME [FILE]: one test's result, with what was printed
say_ok()
{
	echo "ok $tool: $1"
}

say_bad()
{
	echo "not ok $tool: $1"
	[ -z "${2-}" ] || tail -n 40 "$2" | sed 's/^/# /'
}

# check NAME COMMAND...: a test: does the command succeed?
check()
{
	local name=$1

	shift
	if "$@" >"$scratch/output" 2>&1; then
		say_ok "$name"
	else
		say_bad "$name" "$scratch/output"
		return 1
	fi
}

# is NAME WANTED GOT
is()
{
	if [ "$2" = "$3" ]; then
		say_ok "$1"
	else
		printf 'wanted: %s\ngot: %s\n' "$2" "$3" >"$scratch/output"
		say_bad "$1" "$scratch/output"
		return 1
	fi
}

# like NAME PATTERN TEXT: an extended regular expression
like()
{
	if [[ $3 =~ $2 ]]; then
		say_ok "$1"
	else
		printf 'wanted: %s\ngot: %s\n' "$2" "$3" >"$scratch/output"
		say_bad "$1" "$scratch/output"
		return 1
	fi
}

# make_server NAME PRELOAD [LINE...]: a cluster with pmhash and what else is to be
# preloaded, and further lines of configuration; runs, and is where psql goes.
make_server()
{
	local name=$1 preload=$2 directory=$scratch/$1

	shift 2
	mkdir -p "$directory"
	"$bindir/initdb" -D "$directory/data" -U postgres --auth=trust --encoding=UTF8 \
		--locale=C --no-instructions $initdb_options >"$directory/initdb.log" 2>&1 || return 1
	next_port=$((next_port + 1))
	{
		echo "listen_addresses = '127.0.0.1'"
		echo "port = $next_port"
		echo "unix_socket_directories = '$directory'"
		echo "shared_preload_libraries = 'pmhash${preload:+, $preload}'"
		echo "fsync = off"
		echo "log_min_messages = warning"
		printf '%s\n' "$@"
	} >>"$directory/data/postgresql.conf"
	echo "host replication all 127.0.0.1/32 trust" >>"$directory/data/pg_hba.conf"
	start_server "$name"
}

start_server()				# name
{
	use_server "$1"
	"$bindir/pg_ctl" -D "$scratch/$1/data" -l "$scratch/$1/log" -w -t 120 start >/dev/null || {
		tail -n 30 "$scratch/$1/log" >&2
		return 1
	}
}

stop_server()				# name [mode]
{
	"$bindir/pg_ctl" -D "$scratch/$1/data" -m "${2:-fast}" -w -t 120 stop >/dev/null
}

stop_servers()
{
	local pid

	for pid in "$scratch"/*/data/postmaster.pid; do
		[ ! -f "$pid" ] || "$bindir/pg_ctl" -D "${pid%/*}" -m immediate -w stop >/dev/null
	done
}

# use_server NAME [DATABASE]: where psql and other programs go
use_server()
{
	export PGHOST=127.0.0.1 PGUSER=postgres PGDATABASE=${2:-postgres}
	PGPORT=$(sed -n 's/^port = //p' "$scratch/$1/data/postgresql.conf" | tail -n 1)
	export PGPORT
}

# sql [PSQL-ARGUMENT...]: statements of -c or standard input; stops at errors
sql()
{
	"$bindir/psql" -X -q -A -t -v ON_ERROR_STOP=1 "$@"
}

# value STATEMENT: what it returns, or the message
value()
{
	sql -c "$1" 2>&1
}

# until_is SECONDS WANTED STATEMENT: wait until it returns that
until_is()
{
	local end=$((SECONDS + $1))

	until [ "$(value "$3")" = "$2" ]; do
		if [ "$SECONDS" -ge "$end" ]; then
			echo "after $1 s: $3: $(value "$3")"
			return 1
		fi
		sleep 0.2
	done
}

# make_database NAME: with the extension and the functions of compare.sql
make_database()
{
	sql -d postgres -c "CREATE DATABASE \"$1\"" || return 1
	export PGDATABASE=$1
	sql -c "CREATE EXTENSION pmhash" && sql -f "$here/compare.sql"
}

# make_items [ROWS]: the table that most tools are tried on
make_items()
{
	sql -v rows="${1:-20000}" -f "$here/items.sql"
}

# same_answers NAME: every pmhash index of the database is valid, finds what
# sequential scans find, and is sound.  Twice: the functions that do so have to be
# there (a tool may have brought a database without them).
same_answers()
{
	local got

	got=$(sql -c "SET pmhash.enable_join = off" -c "SELECT * FROM compare_indexes()" 2>&1) &&
		[ -n "$got" ] && ! grep -v ': same, ' <<<"$got" >/dev/null
	if [ $? -eq 0 ]; then
		say_ok "$1: $(wc -l <<<"$got") indexes find what sequential scans find"
	else
		printf '%s\n' "${got:-no index}" >"$scratch/output"
		say_bad "$1: same answers" "$scratch/output"
		return 1
	fi
}

# all_valid NAME: wait until no index is being rebuilt
all_valid()
{
	check "$1: indexes are valid" until_is 120 0 \
		"SELECT count(*) FROM pmhash.indexes WHERE state <> 'valid'"
}

# installed EXTENSION: can it be created?  Else a test that fails.
installed()
{
	is "extension $1 is installed" 1 \
		"$(value "SELECT count(*) FROM pg_available_extensions WHERE name = '$1'")"
}
