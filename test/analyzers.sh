#!/bin/bash
#
# test/analyzers.sh - what programs that read programs say of pmhash: gcc -fanalyzer and
# cppcheck of src, pgspot of the script of the extension.  test/analyzers/judged has what
# is no fault; anything else is a failure.
#
#	analyzers.sh [gcc|cppcheck|pgspot]...
#
# Packages that are missing need root or sudo; pgspot comes by pip, into a scratch
# directory.  Prints a line "NAME: N passed, N failed" a program, and at the end the sum.

set -u

top=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
. "$top/test/lib/packages.sh"
. "$top/test/lib/count.sh"

PGSPOT=pgspot==0.9.4

# Each prints its findings, one of the kind "PROGRAM: FILE: WHAT" a line, and fails if it
# could not look.  A file of cppcheck's is left out by it where it does not understand it:
# that is a finding too (syntaxError, unknownMacro).
find_gcc()
{
	local includes

	includes=$("$pg_config" --includedir-server)
	find src -name '*.c' -print0 | xargs -0 -n 8 -P "$(nproc)" sh -c '
		includes=$1; shift
		for file do
			gcc -O1 -fPIC -fanalyzer -D_GNU_SOURCE -Isrc -isystem "$includes" -c -o /dev/null "$file" || exit 255
		done' sh "$includes" 2>"$work/gcc" || { tail -n 20 "$work/gcc" >&2; return 1; }
	sed -nE 's/^(src[^:]*):[0-9:]* warning: .*\[-W([a-z-]*)\]$/gcc: \1: \2/p' "$work/gcc"
}

# (uninitvar: it takes what is passed to a function to be filled in for used, and gcc knows
# better)
find_cppcheck()
{
	cppcheck -q -j"$(nproc)" --std=c11 --enable=warning,portability,performance -DPG_VERSION_NUM=150000 \
		-Isrc --include=test/analyzers/server_macros.h --suppress=missingInclude --suppress=missingIncludeSystem \
		--suppress=uninitvar --suppress=ctuuninitvar --template='cppcheck: {file}: {id}' src 2>"$work/cppcheck" || return 1
	grep '^cppcheck: ' "$work/cppcheck" || true
}

find_pgspot()
{
	local script

	quietly python3 -m venv "$work/venv" && quietly "$work/venv/bin/pip" install -q "$PGSPOT" || return 1
	for script in pmhash--*.sql; do
		"$work/venv/bin/pgspot" "$script" >"$work/pgspot"
		grep -q '^ *Errors: [0-9]* Warnings: ' "$work/pgspot" || { cat "$work/pgspot" >&2; return 1; }
		sed -nE '/^PS[0-9]+: /{s/ in .*//; s/ at line [0-9]+$//; s/^/pgspot: /; p}' "$work/pgspot"
	done
}

look()						# program
{
	stage_passed=1 stage_failed=0
	if ! "find_$1" >"$work/found"; then
		echo "$1: could not look" >&2
		stage_passed=0 stage_failed=1
	else
		sort -u -o "$work/found" "$work/found"
		comm -23 "$work/found" "$work/judged" >"$work/new"
		comm -13 "$work/found" "$work/judged" | sed -n "/^$1: /s/^/judged, and not found any more: /p" >&2
		if [ -s "$work/new" ]; then
			cat "$work/new" >&2
			stage_passed=0 stage_failed=1
		fi
	fi
	add_counts "$1" 0
	echo "$1: $stage_passed passed, $stage_failed failed"
}

install_server cppcheck python3-venv || exit 1
export LC_ALL=C
work=$(mktemp -d "$(scratch_parent)/pmhash-analyzers.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$top" || exit 1
grep -v '^#' test/analyzers/judged | grep . | sort >"$work/judged"
for program in ${*:-gcc cppcheck pgspot}; do
	look "$program"
done
report_counts
