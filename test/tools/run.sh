#!/bin/bash
#
# test/tools/run.sh TOOL...: try tools on a server with pmhash; test/tools.sh calls
# it in a chroot, as an account that is not root.
#
# Environment: PG_CONFIG (of a server that has pmhash installed), OLD_PG_CONFIG (of
# an older one, for pg_upgrade), TOOLS_LONG (anything: long runs).  A line
# "ok TOOL: ..." or "not ok TOOL: ..." a test; exit status 0 if none failed.

set -u
here=$(CDPATH= cd "$(dirname "$0")" && pwd)
bindir=$("$PG_CONFIG" --bindir)
major=$("$PG_CONFIG" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
old_bindir=
[ -z "${OLD_PG_CONFIG:-}" ] || old_bindir=$("$OLD_PG_CONFIG" --bindir)
long=false
[ -z "${TOOLS_LONG:-}" ] || long=true
export LC_ALL=C.UTF-8
scratch=$(mktemp -d "${TMPDIR:-/tmp}/pmhash-tools.XXXXXX") || exit 1
. "$here/lib.sh"

cleanup()
{
	stop_servers
	cd /
	rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
cd "$scratch" || exit 1

failed=0
for tool in "$@"; do
	. "$here/$tool.sh"
	start=$SECONDS
	"try_$tool" 2>&1 | tee "$scratch/result"
	status=${PIPESTATUS[0]}
	if [ "$status" -ne 0 ] && ! grep -q '^not ok' "$scratch/result"; then
		echo "not ok $tool: could not be tried"
	fi
	if grep -q '^not ok' "$scratch/result" || ! grep -q '^ok' "$scratch/result"; then
		failed=1
		tail -v -n 15 "$scratch"/*/log 2>/dev/null | sed 's/^/# /'
	fi
	stop_servers
	rm -rf "${scratch:?}"/*
	echo "# $tool: $((SECONDS - start)) s"
done
exit "$failed"
