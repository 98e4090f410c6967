# Sourced by test/first_steps.sh, test/packages.sh: tests whose results are lines of TAP.

failures=0

# check NAME COMMAND...: a test: does the command succeed?  What it prints is kept in
# the file $check_output, and shown if it does not; then failures is one more.
check()
{
	local name=$1

	shift
	if "$@" >"$check_output" 2>&1; then
		echo "ok $name"
	else
		echo "not ok $name"
		tail -n 60 "$check_output" | sed 's/^/# /'
		failures=$((failures + 1))
		return 1
	fi
}
