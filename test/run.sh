#!/bin/bash
#
# test/run.sh - the test ladder, from nothing.
#
#	run.sh [STAGE...]
#
# Stages of the default ladder, in minutes: engine regress isolation tap.
# Further ones: sanitizers crash fuzz models mutants first_steps fs_shutdown, and tap_long,
# which are the files of test/t that have a line "# long", searchers, and once more those
# with a load_time(), which is longer there, or some_of() the cases, which are all there.
# "all" is all of them (make test-all).  first_steps, isolation and regress run beside each
# other, and engine beside these, and tap.
#
# Needs a Debian (12 to 14) with a shell, git and apt; root or sudo for packages
# that are missing.  The server is the newest that is installed, or that apt has;
# PMHASH_PG_MAJOR names the major version of another one.  Builds and runs everything in a scratch directory under TMPDIR
# (default /tmp), as an account that is not root: PostgreSQL refuses root.
# Nothing else of the machine is touched.  Prints what each test runner says
# and at the end one line
#	N passed, N failed
# The exit status is 0 if nothing failed.
#
# PMHASH_KEEP=1 keeps the scratch directory; PMHASH_CRASH_IMAGES=N enumerates N
# crash states instead of 20 million; PMHASH_LARGE_PAGES=1 runs the engine's tests
# with pages of 64 KiB, too.  PMHASH_REGRESS and PMHASH_PROVE_TESTS name some files of a stage,
# PMHASH_REGRESS_CONFIG a file of settings for the server of regress.

set -u

top=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
. "$top/test/lib/packages.sh"
. "$top/test/lib/count.sh"
. "$top/test/lib/small_fs.sh"

work=
runner=as_account				# which account runs a stage

cleanup()
{
	unmount_small_fs
	if [ -n "$work" ] && [ -z "${PMHASH_KEEP:-}" ]; then
		rm -rf "$work"
	fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# give_up MESSAGE: nothing could be tested
give_up()
{
	echo "$1" >&2
	echo "$passed passed, $((failed + 1)) failed"
	exit 1
}

# begin NAME COMMAND...: run a stage as the account; gives its status
begin()
{
	local name=$1

	shift
	say "$name"
	(cd "$build" && $runner "$@") 2>&1 | as_account tee "$work/$name.log"
	return "${PIPESTATUS[0]}"
}

# finish NAME COUNTER STATUS START: count the results of a stage that has ended
finish()
{
	"$2" "$work/$1.log"
	add_counts "$1" "$3"
	say "$1: $stage_passed passed, $stage_failed failed, $((SECONDS - $4)) s"
}

# stage NAME COUNTER COMMAND...: run a stage, show its output, count its results
stage()
{
	local name=$1 counter=$2 start=$SECONDS

	shift 2
	begin "$name" "$@"
	finish "$name" "$counter" $? "$start"
}

# beside NAME COUNTER COMMAND...: begin a stage that runs beside others
others=
beside()
{
	begin "$1" "${@:3}" >/dev/null 2>&1 &
	others="$others $1:$2:$!:$SECONDS"
}

# wait_for_others [NAME...]: show what those say, or all, and count their results
wait_for_others()
{
	local other name counter pid start status rest=

	for other in $others; do
		IFS=: read -r name counter pid start <<<"$other"
		if [[ " ${*:-$name} " != *" $name "* ]]; then
			rest="$rest $other"
			continue
		fi
		wait "$pid"
		status=$?
		cat "$work/$name.log"
		finish "$name" "$counter" "$status" "$start"
	done
	others=$rest
}

# wanted STAGE: is it to be run?
wanted()
{
	case " $stages " in
		*" $1 "*) return 0 ;;
	esac
	return 1
}

# show_diffs FILE: where regression tests differ from what is expected
show_diffs()
{
	if [ -s "$1" ]; then
		head -n 400 "$1"
	fi
}

default_stages="engine regress isolation tap"
all_stages="$default_stages sanitizers crash fuzz models mutants first_steps tap_long fs_shutdown"
stages=${*:-$default_stages}
[ "$stages" != all ] || stages=$all_stages
for name in $stages; do
	case " $all_stages " in
		*" $name "*) ;;
		*)
			echo "usage: $0 [STAGE...], of: $all_stages" >&2
			exit 2
			;;
	esac
done

cd /
# what is wrong with it is better said now than when everything is installed
scratch_parent >/dev/null || give_up "no scratch directory"
install_server $PMHASH_TEST_PACKAGES || give_up "could not install packages"
server=$pg_config
say "PostgreSQL $pg_major"

work=$(account_directory test) || give_up "no scratch directory"
build=$work/build
as_account mkdir "$build"
copy_sources "$top" "$build"

mount_small_fs "${work%/*}"

# ---- build: a warning is an error; without code for the JIT compiler, which takes as long again ----
say "build"
if ! pg_config=$(cd "$build" && SOURCE_PG_CONFIG="$server" as_account_logged "$work/build.log" \
		bash test/lib/private_install.sh "$work/server" -j"$(nproc)" with_llvm=no COPT=-Werror); then
	cat "$work/build.log" >&2
	give_up "the extension does not build"
fi
if grep -n 'warning:' "$work/build.log"; then
	give_up "the extension does not build without warnings"
fi
count_one ok

run_make="make -s --no-print-directory PG_CONFIG=$pg_config"

# ---- crash states of the engine and of the undo journal ----
if wanted crash; then
	stage crash count_tap make -s --no-print-directory PG_CONFIG="$pg_config" \
		${PMHASH_CRASH_IMAGES:+IMAGES="$PMHASH_CRASH_IMAGES"} -C test/crash check
fi

# ---- damaged files ----
if wanted fuzz; then
	stage fuzz count_tap make -s --no-print-directory -C test/fuzz check check-asan
fi

# ---- models of standbys and rebuilds: every rule is needed, and they suffice ----
if wanted models; then
	stage models count_sums python3 test/models/check.py
fi

# ---- the tool that tests the tests ----
if wanted mutants; then
	as_account mkdir "$work/mutants"
	stage mutants count_sums env SOURCE_PG_CONFIG="$server" perl test/mutants/mutants.pl \
		--set=smoke --no-baseline --work="$work/mutants"
fi

# ---- the engine alone: beside all that follows, as most of that waits much of its time ----
targets=
wanted engine && targets=check
wanted sanitizers && targets="$targets check-asan check-tsan check-long"
# all again with larger pages takes three minutes; what they are about is in check
targets="$targets ${PMHASH_LARGE_PAGES:+check-pages}"
if [ -n "${targets// /}" ]; then
	beside engine count_tap make -k -j"$(nproc)" --output-sync -s --no-print-directory -C test/engine $targets
fi

# ---- SQL against a server, and what a new user meets ----
# (each does one thing at a time, so one beside the other)
if wanted first_steps; then
	beside first_steps count_tap env PMHASH_SMALL_FS="$small_fs" PG_CONFIG="$pg_config" bash test/first_steps.sh
fi
if wanted isolation; then
	beside isolation count_pg_regress $run_make installcheck REGRESS= TAP_TESTS= \
		ISOLATION_OPTS="--temp-instance=$work/isolation --temp-config=test/regress.conf --outputdir=output_iso"
fi
if wanted regress; then
	stage regress count_pg_regress $run_make installcheck ISOLATION= TAP_TESTS= \
		${PMHASH_REGRESS:+REGRESS="setup $PMHASH_REGRESS"} \
		REGRESS_OPTS="--temp-instance=$work/regress --temp-config=test/regress.conf${PMHASH_REGRESS_CONFIG:+ --temp-config=$PMHASH_REGRESS_CONFIG}"
	show_diffs "$build/regression.diffs"
fi
# ---- servers of their own ----
# tap_files STAGE FILES: three times as many at a time as processors: a file waits much of its
# time, for servers that start, stop and replay
tap_files()
{
	local failed_before=$failed

	stage "$1" count_prove env PMHASH_SMALL_FS="$small_fs" $run_make installcheck REGRESS= ISOLATION= \
		PROVE_TESTS="$2" PROVE_FLAGS="-j$((3 * $(nproc))) --timer"
	if [ "$failed" -ne "$failed_before" ]; then
		show_tap_failures "$build/tmp_check/log"
	fi
}

long=$(cd "$build" && grep -l '^# long$' test/t/*/*.pl | tr '\n' ' ')
more=$(cd "$build" && grep -lE "load_time\(|some_of\(|PMHASH_CASES" test/t/*/*.pl | tr "\n" " ")
# (those that take longest first: they would run alone at the end; then large ones)
slow="start/promotion start/journal standby/dead_rows standby/standby_setups files/launcher standby/standby_build
	standby/standby_restart standby/standby_bad_cases standby/wal_records files/removed"
short=$(cd "$build" && { printf 'test/t/%s.pl\n' $slow; ls -S $(grep -L '^# long$' test/t/*/*.pl); } |
	awk '!seen[$0]++' | tr '\n' ' ')
if wanted tap; then
	tap_files tap "${PMHASH_PROVE_TESTS:-$short}"
fi
wait_for_others
show_diffs "$build/output_iso/regression.diffs"
if wanted tap_long && [ -z "${PMHASH_PROVE_TESTS:-}" ]; then
	PMHASH_LOADS=6 PMHASH_CASES=all tap_files tap_long "$(printf "%s\n" $long $more | sort -u | tr "\n" " ")"
fi

# ---- a file system that is lost and mounted again, where one can be mounted ----
if wanted fs_shutdown && [ "$(id -u)" -eq 0 ] && losetup -f >/dev/null 2>&1; then
	runner=
	# our own script, as root: the copy is one that the account could have changed
	stage fs-shutdown count_sums bash "$top/test/lib/fs_shutdown.sh" "$pg_config" "$(account)"
fi
report_counts
