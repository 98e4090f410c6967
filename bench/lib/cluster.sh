# cluster.sh: a throw-away cluster in one directory; sourced, not run
#
# Needs test/lib/packages.sh for as_account.  Sets, and the functions use:
#   cluster_dir		everything of the cluster: data, socket, log
#   cluster_bindir	directory of the server programs

die()						# text...
{
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# The moment, in seconds with a decimal point whatever the locale is.
now()
{
	printf '%s\n' "${EPOCHREALTIME/,/.}"
}

# Seconds from one moment to another.
elapsed()					# from to
{
	awk -v from="$1" -v to="$2" 'BEGIN { printf "%.3f", to - from }'
}

# What is going on, and how many seconds the script has run.
progress()					# text...
{
	printf '[%4ds] %s\n' "$SECONDS" "$*"
}

shared_buffers_most=2048		# MB; a benchmark with larger tables sets it

# A quarter of the memory for shared buffers, from 128 MB on.
shared_buffers_mb()
{
	awk -v most="$shared_buffers_most" '/^MemTotal:/ {
			mb = int($2 / 4096)
			print (mb < 128 ? 128 : (mb > most ? most : mb))
		}' /proc/meminfo
}

# Create the cluster.  Autovacuum and timed checkpoints are off: they would
# fall into one method's measurement and not into another's.  Settings of pmhash are the
# default ones.
cluster_create()				# cluster_dir bindir preload-libraries
{
	cluster_dir=$1
	cluster_bindir=$2
	[ ${#cluster_dir} -le 90 ] ||
		die "\"$cluster_dir\" is too long for a socket directory; set TMPDIR to a shorter one"
	export PGHOST=$cluster_dir PGPORT=5432 PGUSER=pmhash_demo PGDATABASE=postgres
	as_account_logged "$cluster_dir/initdb.log" "$cluster_bindir/initdb" -D "$cluster_dir/data" -U "$PGUSER" \
		--auth=trust --encoding=UTF8 --locale=C --no-instructions \
		>/dev/null ||
		{
			cat "$cluster_dir/initdb.log" >&2
			die "initdb failed"
		}
	as_account tee -a "$cluster_dir/data/postgresql.conf" >/dev/null <<-CONF
		listen_addresses = ''
		unix_socket_directories = '$cluster_dir'
		shared_preload_libraries = '$3'
		shared_buffers = $(shared_buffers_mb)MB
		maintenance_work_mem = 512MB
		max_wal_size = 8GB
		checkpoint_timeout = 1h
		autovacuum = off
		jit = off
		client_min_messages = warning
		log_min_messages = warning
	CONF
}

# Start the cluster, and tell the log if it does not come up.
cluster_start()
{
	as_account "$cluster_bindir/pg_ctl" -D "$cluster_dir/data" -l "$cluster_dir/log" \
		-w -t 120 start >/dev/null ||
		{
			tail -n 30 "$cluster_dir/log" >&2
			die "the server does not start"
		}
}

# Stop the cluster at once, if it runs.
cluster_stop()
{
	[ -n "${cluster_dir-}" ] && [ -f "$cluster_dir/data/postmaster.pid" ] || return 0
	as_account "$cluster_bindir/pg_ctl" -D "$cluster_dir/data" -m immediate -w stop \
		>/dev/null 2>&1 || true
}

# Kill the postmaster and all its children with SIGKILL, all at once: the
# postmaster is stopped first so that it starts no new one meanwhile.  By the account,
# since the number comes from a file of its own.
cluster_kill_hard()
{
	local postmaster process status children=()

	postmaster=$(as_account head -n 1 "$cluster_dir/data/postmaster.pid")
	as_account kill -STOP "$postmaster"
	while read -r status; do
		status=${status#/proc/}
		children+=("${status%/status}")
	done < <(grep -l "^PPid:[[:space:]]*$postmaster\$" /proc/[0-9]*/status 2>/dev/null)
	as_account kill -KILL "$postmaster" "${children[@]}" 2>/dev/null || true

	# A server does not start as long as one of them is there with its shared memory.
	# Where orphans are not reaped the dead postmaster stays in the process
	# table, and its lock files would be believed.
	for process in "$postmaster" "${children[@]}"; do
		while grep -q '^State:[[:space:]]*[^ZX]' "/proc/$process/status" 2>/dev/null; do
			sleep 0.02
		done
	done
	[ ! -d "/proc/$postmaster" ] ||
		as_account rm -f "$cluster_dir/data/postmaster.pid" "$cluster_dir/.s.PGSQL.$PGPORT.lock"
}

# Run psql: quiet, bare output, and any error is the end.
sql()						# psql argument...
{
	as_account "$cluster_bindir/psql" -X -q -A -t -v ON_ERROR_STOP=1 "$@"
}
