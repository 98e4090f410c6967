# scratch.sh: a scratch directory with a build of pmhash and a cluster, which
# is gone when the script ends; sourced, not run
#
# Needs "tree": the source tree.  Sets, and the functions use:
#   work			the directory, empty until it is made
#   bindir			programs of the server with pmhash, or without
#   keep_cluster	true: a script that ends well leaves everything as it is
#   stop_others		a command that stops further servers of the script
#   load_before		load average when the script began

. "$tree/test/lib/packages.sh"
. "$tree/bench/lib/cluster.sh"

work=
keep_cluster=false
stop_others=:
read -r load_before _ </proc/loadavg

# Where the cluster is, and how to get rid of it.
tell_of_cluster()
{
	local stop_as=

	[ "$(id -u)" -ne 0 ] || stop_as="runuser -u $(account) -- "
	echo "The cluster runs on.  Connect, and then end and remove it, by:"
	echo "  $cluster_bindir/psql -h $cluster_dir -U $PGUSER $PGDATABASE"
	echo "  ${stop_as}$cluster_bindir/pg_ctl -D $cluster_dir/data -m fast stop; rm -rf $work"
}

# Remove everything, also on an error or Ctrl-C.
cleanup()
{
	local status=$?

	trap - EXIT
	trap '' INT TERM HUP
	if [ -n "$work" ]; then
		if $keep_cluster && [ $status -eq 0 ]; then
			tell_of_cluster
		else
			"$stop_others" || true
			cluster_stop
			cd /
			rm -rf "$work"
		fi
	fi
	exit $status
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Make the directory with sub-directories of these names, and go there.
make_work_directory()			# name kilobytes-needed directory...
{
	local free_kb need_kb=$2

	work=$(account_directory "$1") || die "no scratch directory"
	free_kb=$(df -Pk "$work" | awk 'NR == 2 { print $4 }')
	[ "$free_kb" -ge "$need_kb" ] ||
		die "$((need_kb / 1024)) MB needed in ${work%/*}, $((free_kb / 1024)) MB free; set TMPDIR"
	cd "$work"
	shift 2
	as_account mkdir "$@"
}

# How far a build has come, every few seconds.
watch_build()
{
	local files compiled last=0

	files=$(find "$work/source/src" -name '*.c' | wc -l)
	while sleep 5 && kill -0 $$; do
		# (on a slow machine the server is still being copied, and there is no such directory)
		compiled=$(find "$work/install/build" -name '*.o' 2>/dev/null | wc -l) || continue
		[ "$compiled" -eq "$last" ] || progress "building pmhash: $compiled of $files files compiled"
		last=$compiled
	done
}

# Build from a copy of the sources and install into a copy of the server: without code for
# the JIT compiler, which these clusters do not use.
build()						# pg_config of the server
{
	local log=$work/build.log pg_config watcher

	bindir=${BENCH_BINDIR-}			# programs of a server that has pmhash
	[ -z "$bindir" ] || return 0
	progress "building pmhash"
	as_account mkdir "$work/source"
	copy_sources "$tree" "$work/source"
	watch_build &
	watcher=$!
	pg_config=$(as_account_logged "$log" env SOURCE_PG_CONFIG="$1" \
		bash "$work/source/test/lib/private_install.sh" "$work/install" \
		-j"$(nproc)" with_llvm=no) ||
		{
			cat "$log" >&2
			kill "$watcher" || true
			die "the build failed"
		}
	kill "$watcher" || true
	wait "$watcher" 2>/dev/null || true
	bindir=${pg_config%/*}
	export BENCH_BINDIR=$bindir		# for scripts that this one calls
}

# A server's packages, and others; the directory; a build in it.
prepare()						# "package..." name kilobytes-needed directory...
{
	local packages

	read -ra packages <<<"$1"
	install_server "${packages[@]}" || die "no server, or not what else it takes"
	shift
	make_work_directory "$@"
	build "$pg_config"
}

# A cluster in the directory, with pmhash.
start_cluster()
{
	progress "starting a cluster in $work"
	cluster_create "$work/cluster" "$bindir" pmhash
	cluster_start
}

# What a script prints below its figures.
print_load()
{
	echo "Load average when it began: $load_before (of other programs; they spoil figures)."
}

# Run a psql script of bench.
run_sql()					# file-in-bench psql-argument...
{
	local file=$1

	shift
	sql "$@" -f - <"$tree/bench/$file"
}

# A psql script of bench/lib; what it prints is not wanted.
run_lib()					# file psql-argument...
{
	local file=$1

	shift
	run_sql "lib/$file" "$@" >/dev/null
}

# Of the sources; the results, which are being written, are none.
revision()
{
	local name

	name=$(git -C "$tree" describe --always 2>/dev/null) || { echo unknown; return; }
	git -C "$tree" diff --quiet HEAD -- . ':!bench/results' || name=$name-dirty
	echo "$name"
}

# "name,value" for the head of a report; needs a cluster that runs.
machine_lines()
{
	local cpu

	cpu=$(awk -F': *' '/^model name/ { print $2; exit }' /proc/cpuinfo)
	printf 'date,%s\n' "$(date -u '+%F %H:%M UTC')"
	printf 'revision,%s\n' "$(revision)"
	printf 'processor,"%s, %s cores"\n' "${cpu:-$(uname -m)}" "$(nproc)"
	awk '/^MemTotal/ { printf "memory,%.1f GiB\n", $2 / 1048576 }' /proc/meminfo
	printf 'kernel,%s\n' "$(uname -sr)"
	printf 'data directory on,%s\n' "$(df --output=fstype "$work" | tail -n 1)"
	printf 'load average before,%s\n' "$load_before"
	sql -c "COPY (SELECT 'version', version() UNION ALL SELECT name, current_setting(name) FROM pg_settings
		WHERE name IN ('shared_buffers', 'maintenance_work_mem', 'max_parallel_maintenance_workers'))
		TO STDOUT (FORMAT csv)"
}
