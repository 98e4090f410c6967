#!/bin/bash
#
# test/soak/run.sh [cycles] [faults] [append] [failover]: the long tests, from nothing.
#
#	cycles	the server killed again and again under load: the same test as
#			test/t/start/kill_cycles.pl, SOAK_CYCLES times (default 200)
#	faults	every call that can fail made to fail, each in turn: the same test
#			as test/t/files/injected_faults.pl, without a bound
#	append	transactions on lists and sets, whose histories must have no anomaly: the same
#			test as test/t/standby/list_append.pl, for LIST_APPEND_SECONDS (1,200)
#
#	failover a primary and its standby under load, the primary lost again and
#			again: the same test as test/t/standby/failover.pl, FAILOVER_CYCLES times
#			(default 220)
#
# In all of them processes are stopped for moments at random; PMHASH_PAUSES=0 leaves that out.
# Without arguments the first three are run.  Needs what test/run.sh needs.  Works in a
# scratch directory under TMPDIR, which is removed.  May be interrupted at any
# time: it says how far it has come.  SOAK_SEED repeats the random choices of
# an earlier run (not its timing).  The exit status is 0 if nothing failed.

set -u
export LC_ALL=C.UTF-8

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/test/lib/packages.sh"

work=
status=1
child=

# end_child: have the test in progress stop its servers and end
end_child()
{
	local try

	if [ -z "$child" ]; then
		return
	fi
	kill -TERM -- "-$child" 2>/dev/null
	for try in $(seq 150); do
		if ! kill -0 -- "-$child" 2>/dev/null; then
			break
		fi
		sleep 0.2
	done
}

finish()
{
	end_child
	if [ -n "$work" ]; then
		cat "$work"/build/*.progress 2>/dev/null
		if [ "$status" -ne 0 ] && [ -n "${PMHASH_KEEP:-}" ]; then
			echo "kept: $work"
		else
			rm -rf "$work"
		fi
	fi
	exit "$status"
}
trap finish EXIT
trap 'status=130; exit 130' INT TERM

# test_file NAME VARIABLE=VALUE...: run one TAP file as the account, in the
# background and in a session of its own, so that a signal reaches us first
test_file()
{
	local name=$1 result

	shift
	say "$name"
	(cd "$build" && exec setsid "${as[@]}" env "$@" SOAK_PROGRESS="$work/build/${name##*/}.progress" \
		make -s --no-print-directory PG_CONFIG="$pg_config" installcheck REGRESS= ISOLATION= \
		PROVE_TESTS="test/t/$name.pl" PROVE_FLAGS=--verbose) &
	child=$!
	wait "$child"
	result=$?
	child=
	return "$result"
}

parts=${*:-cycles faults append}
as=()
if [ "$(id -u)" -eq 0 ]; then
	as=(runuser -u "$(account)" --)
fi

cd /
install_server $PMHASH_TEST_PACKAGES || exit 1
work=$(account_directory soak) || exit 1
build=$work/build
as_account mkdir "$build"
copy_sources "$top" "$build"
say "build"
pg_config=$(cd "$build" && SOURCE_PG_CONFIG="$pg_config" as_account \
	bash test/lib/private_install.sh "$work/server" -j"$(nproc)" COPT=-Werror) || exit 1

status=0
for part in $parts; do
	case $part in
		cycles) test_file start/kill_cycles SOAK_CYCLES="${SOAK_CYCLES:-200}" || status=1 ;;
		faults) test_file files/injected_faults PMHASH_FAULTS=all || status=1 ;;
		append) test_file standby/list_append LIST_APPEND_SECONDS="${LIST_APPEND_SECONDS:-1200}" || status=1 ;;
		failover) test_file standby/failover FAILOVER_CYCLES="${FAILOVER_CYCLES:-220}" || status=1 ;;
		*) echo "usage: $0 [cycles] [faults] [append] [failover]" >&2; status=2 ;;
	esac
done
