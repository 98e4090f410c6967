#!/bin/bash
#
# test/tools.sh - pmhash beside the tools that people use with PostgreSQL, in a
# chroot of Debian with its packages.
#
#	tools.sh [OPTION...] [TOOL...]
#		TOOL			of those in test/tools (default: all)
#		--major N		PostgreSQL 15, 17 or 18 (default 17), of the Debian that has it
#		--long			an hour of sqlsmith, minutes of sysbench
#		--keep			leave the chroot
#
# Each tool is one file in test/tools, with the Debian packages it needs in its first
# line; it is run as docs/tools.md says, and what indexes find afterwards is
# compared with sequential scans.  Needs what test/versions.sh needs.
#
# Prints a line "ok TOOL: ..." or "not ok TOOL: ..." for each test and at the end
#	N passed, N failed
# Exit status 0 if nothing failed.

set -u

top=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
. "$top/test/lib/packages.sh"
. "$top/test/lib/count.sh"
. "$top/test/lib/chroot.sh"

usage()
{
	sed -n '3,/^# line;/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

major=17
long=
keep=false
tools=
arguments=("$@")
while [ $# -gt 0 ]; do
	case $1 in
		--major) [ $# -ge 2 ] || usage; major=$2; shift ;;
		--long) long=1 ;;
		--keep) keep=true ;;
		-*) usage ;;
		*) [ -f "$top/test/tools/$1.sh" ] || usage; tools="$tools $1" ;;
	esac
	shift
done
suites=$(release_of "$major") || usage
if [ -z "$tools" ]; then
	tools=$(cd "$top/test/tools" && grep -l '^# Debian:' *.sh | sed 's/\.sh$//' | tr '\n' ' ')
fi

be_root "${arguments[@]}"

# An older version from which pg_upgrade comes, and its release.
old_major=
case $major in
	17) old_major=15 ;;
	18) old_major=17 ;;
esac

# wanted_packages: what the tools name in their first lines
wanted_packages()
{
	local tool

	for tool in $tools; do
		sed -n '1s/^# Debian: //p' "$top/test/tools/$tool.sh"
	done | sed "s/@MAJOR@/$major/g; s/postgresql-@OLD@/${old_major:+postgresql-$old_major postgresql-server-dev-$old_major}/g"
}

# with_older_release: packages of the older Debian can be installed, too
with_older_release()
{
	local list=$root/etc/apt/sources.list

	[ -n "$old_major" ] || return 0
	sed "s/ $suite / $(release_of "$old_major") /" "$list" >"$list.d/older.list" &&
		! cmp -s "$list" "$list.d/older.list"
}

# build_in_chroot MAJOR: pmhash for that server, installed
build_in_chroot()
{
	quietly in_chroot "$root" bash -c 'set -e; . /pmhash/tree/test/lib/packages.sh
		rm -rf /pmhash/build; cp -r /pmhash/tree /pmhash/build
		make -s -C /pmhash/build -j"$(nproc)" with_llvm=no COPT=-Werror PG_CONFIG=/usr/lib/postgresql/$1/bin/pg_config install' \
		bash "$1"
}

prepare()
{
	root=$work/$suite
	say "making a chroot of $suite"
	make_chroot "$root" "$suite" && put_tree "$root" && with_older_release || return 1
	# (certificates of this machine's network, if it has its own)
	[ ! -d /usr/local/share/ca-certificates ] || cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
	say "installing" $(wanted_packages)
	quietly in_chroot "$root" env PMHASH_PG_MAJOR="$major" bash -c \
		'. /pmhash/tree/test/lib/packages.sh && install_server "$@"' bash $(wanted_packages) || return 1
	say "building"
	build_in_chroot "$major" || return 1
	case " $tools " in
		*" pg_upgrade "*) [ -z "$old_major" ] || build_in_chroot "$old_major" ;;
	esac
}

cd /
scratch_parent >/dev/null || exit 1
install_packages debootstrap || exit 1
make_work tools
made=false
for suite in $suites; do
	! prepare || { made=true; break; }
	rm -rf --one-file-system "${root:?}"
done
if ! $made; then
	count_failed "preparing"
	report_counts
	exit 1
fi

log=$work/log
old_pg_config=
case " $tools " in
	*" pg_upgrade "*) old_pg_config=${old_major:+/usr/lib/postgresql/$old_major/bin/pg_config} ;;
esac
in_chroot "$root" runuser -u postgres -- env TOOLS_LONG="$long" HA_FAILOVERS="${HA_FAILOVERS:-}" \
	SQLSMITH_SEED="${SQLSMITH_SEED:-}" \
	PG_CONFIG="/usr/lib/postgresql/$major/bin/pg_config" \
	OLD_PG_CONFIG="$old_pg_config" \
	bash /pmhash/tree/test/tools/run.sh $tools 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
count_tap "$log"
add_counts tools "$status"
say "PostgreSQL $major ($suite), with:" $(in_chroot "$root" dpkg-query -W -f '${Package}=${Version} ' $(wanted_packages))
report_counts
