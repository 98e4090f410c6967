#!/bin/bash
#
# check.sh FEATURE... - after an edit: build what has changed, and run the tests of a
# feature (make check-FEATURE).
#
# A feature is a folder of test/t (start, standby, ...), a file in one (failover) or a section
# of one (lock_file: "# ======== lock file ========"), a file of sql/ (join) or of specs/
# (ssi), or a program of test/engine (shrink): all of that name are run.  The server is a
# copy that stays, in TMPDIR/pmhash-check, one for each tree, so the second time takes seconds.

set -euo pipefail

top=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
. "$top/test/lib/packages.sh"

# files_of FEATURE: the TAP files
files_of()
{
	(
		cd "$top"
		ls "test/t/$1/"*.pl "test/t/"*"/$1.pl" 2>/dev/null || true
		grep -l "^# ======== ${1//_/ } ========\$" test/t/*/*.pl || true
	) | sort -u
}

tap=
regress=
isolation=
engine=
for feature in "$@"; do
	files=$(files_of "$feature" | tr '\n' ' ')
	tap="$tap$files"
	[ ! -f "$top/sql/$feature.sql" ] || { regress="$regress $feature"; files=yes; }
	[ ! -f "$top/specs/$feature.spec" ] || { isolation="$isolation $feature"; files=yes; }
	[ ! -f "$top/test/engine/$feature.c" ] || { engine="$engine check-one-$feature"; files=yes; }
	[ -n "$files" ] || { echo "there is no test of \"$feature\"" >&2; exit 2; }
done
[ $# -gt 0 ] || { echo "usage: $0 FEATURE..." >&2; exit 2; }

cd /
install_server $PMHASH_TEST_PACKAGES
work=$(scratch_parent)/pmhash-check
# (a directory of somebody else's is refused by what follows)
[ -d "$work" ] || as_account mkdir -m 700 "$work"
as_account test -O "$work" || { echo "\"$work\" belongs to another user" >&2; exit 1; }
# (objects of another tree, whose files may be older, would be taken for those of this one)
work=$work/${top//\//_}
as_account mkdir -p "$work/build"
as_account find "$work/build" -path '*/test/build' -prune -o -name '*.[ch]' -type f -exec rm {} +
copy_sources "$top" "$work/build"
# (the engine's programs need no server)
[ -z "$tap$regress$isolation" ] || pg_config=$(cd "$work/build" && SOURCE_PG_CONFIG="$pg_config" as_account \
	bash test/lib/private_install.sh "$work/server" -j"$(nproc)" with_llvm=no COPT=-Werror)

run()
{
	(cd "$work/build" && as_account make -s --no-print-directory "$@")
}
status=0
[ -z "$engine" ] || run -C test/engine -j"$(nproc)" $engine || status=1
[ -z "$regress" ] || run PG_CONFIG="$pg_config" installcheck ISOLATION= TAP_TESTS= REGRESS="setup$regress" \
	REGRESS_OPTS="--temp-instance=$work/regress --temp-config=test/regress.conf" || status=1
[ -z "$isolation" ] || run PG_CONFIG="$pg_config" installcheck REGRESS= TAP_TESTS= ISOLATION="$isolation" \
	ISOLATION_OPTS="--temp-instance=$work/isolation --temp-config=test/regress.conf --outputdir=output_iso" ||
	status=1
[ -z "$tap" ] || run PG_CONFIG="$pg_config" installcheck REGRESS= ISOLATION= PROVE_TESTS="$tap" \
	PROVE_FLAGS="-j$((2 * $(nproc))) --timer" || status=1
exit "$status"
