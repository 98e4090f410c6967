# Sourced by test/run.sh: what test runners' summaries say, in numbers.
#
# A counter reads a log and sets stage_passed and stage_failed.

passed=0
failed=0
failed_stages=

# pg_regress and pg_isolation_regress: " All 12 tests passed. " or
# " 2 of 12 tests failed. ", since PostgreSQL 16 with "#" in front
count_pg_regress()
{
	local line

	stage_passed=0
	stage_failed=0
	line=$(sed -nE 's/^[# ] ?((All )?[0-9]+ (of [0-9]+ )?tests (passed|failed))/\1/p' "$1" | tail -n 1)
	set -- $line
	case $line in
		'All '*) stage_passed=$2 ;;
		*' of '*) stage_failed=$1; stage_passed=$(($3 - $1)) ;;
	esac
}

# prove: "Files=9, Tests=120, ..." and for each bad file
# "test/t/start/x.pl (Wstat: 256 Tests: 12 Failed: 1)", where Wstat alone may be bad
count_prove()
{
	local total

	total=$(sed -n 's/^Files=[0-9]*, Tests=\([0-9]*\),.*/\1/p' "$1" | tail -n 1)
	stage_failed=$(sed -n 's/^.*(Wstat: [0-9]*.* Tests: [0-9]* Failed: \([0-9]*\))$/\1/p' "$1" |
		awk '{ n += ($1 > 0 ? $1 : 1) } END { print n + 0 }')
	stage_passed=$((${total:-0} > stage_failed ? ${total:-0} - stage_failed : 0))
}

# TAP: a line "ok ..." or "not ok ..." a test (C programs, test/first_steps.sh)
count_tap()
{
	stage_passed=$(grep -c '^ok ' "$1")
	stage_failed=$(grep -c '^not ok ' "$1")
}

# a line "NAME: N passed, N failed" a program, counted in what it does.  Here a
# program is one test.
count_sums()
{
	stage_passed=$(grep -c -E '^[a-z_]+: [1-9][0-9]* passed, 0 failed$' "$1")
	stage_failed=$(grep -c -E '^[a-z_]+: [0-9]+ passed, [1-9][0-9]* failed$' "$1")
}

# count_one ok: a stage that is one test
count_one()
{
	stage_passed=1
	stage_failed=0
	add_counts "$1" 0
}

# count_failed NAME: what could not be tried is one failure
count_failed()
{
	stage_passed=0
	stage_failed=1
	add_counts "$1" 1
}

# count_run LOG: the last line of test/run.sh; false if that has not come to its end
count_run()
{
	stage_passed=0
	stage_failed=0
	[[ $(tail -n 1 "$1") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]] || return 1
	stage_passed=${BASH_REMATCH[1]}
	stage_failed=${BASH_REMATCH[2]}
}

# add_counts NAME STATUS: a runner that fails, or runs nothing, without saying
# so in its summary counts as one failure
add_counts()
{
	if [ "$stage_failed" -eq 0 ] && { [ "$2" -ne 0 ] || [ "$stage_passed" -eq 0 ]; }; then
		stage_failed=1
	fi
	if [ "$stage_failed" -ne 0 ]; then
		failed_stages="$failed_stages $1"
	fi
	passed=$((passed + stage_passed))
	failed=$((failed + stage_failed))
}

# show_tap_failures DIRECTORY: the not ok lines and their diagnostics
show_tap_failures()
{
	local log

	for log in "$1"/regress_log_*; do
		if [ -f "$log" ] && grep -q '^not ok\|#   Failed\|died at\|^error running\|^Bail' "$log"; then
			echo "--- ${log##*/}"
			grep -A 12 '^not ok\|#   Failed\|died at\|^error running\|^Bail' "$log" | head -n 80
		fi
	done
}

report_counts()
{
	if [ "$failed" -ne 0 ]; then
		say "failed in:$failed_stages"
	fi
	echo "$passed passed, $failed failed"
	[ "$failed" -eq 0 ]
}
