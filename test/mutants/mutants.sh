#!/bin/bash
#
# mutants.sh [OPTION]...: mutants.pl with what it needs: packages, an account that is
# not root, a small file system.  PMHASH_KEEP=1 keeps the scratch directory.

set -eu
export LC_ALL=C.UTF-8

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/test/lib/packages.sh"
. "$top/test/lib/count.sh"
. "$top/test/lib/small_fs.sh"

work=
cleanup()
{
	unmount_small_fs
	if [ -n "$work" ] && [ -z "${PMHASH_KEEP:-}" ]; then
		rm -rf "$work"
	fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

cd /
install_server $PMHASH_TEST_PACKAGES
work=$(account_directory mutants)
as_account mkdir "$work/source" "$work/scratch"
copy_sources "$top" "$work/source"
mount_small_fs "${work%/*}"
export SOURCE_PG_CONFIG=$pg_config
as_account env PMHASH_SMALL_FS="$small_fs" perl "$work/source/test/mutants/mutants.pl" --work="$work/scratch" "$@"
