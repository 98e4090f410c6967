#!/bin/bash
#
# private_install.sh DIR [MAKE-ARGUMENT...]
#
# Copies the packaged PostgreSQL server tree to DIR (once), builds the
# extension in DIR/build from a copy of this source tree, installs it into the
# copied server and prints the path of that one's pg_config.  Nothing outside
# DIR is touched.  The copy works since PostgreSQL finds its files relative to
# its own programs.  Called again it builds and installs what has changed.
#
# SOURCE_PG_CONFIG names the pg_config of the tree to copy (default: pg_config
# in PATH).  Further arguments are passed on to make.

set -eu

if [ $# -lt 1 ]; then
	echo "usage: $0 DIR [MAKE-ARGUMENT...]" >&2
	exit 2
fi

source_tree=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
shift

pg_config=${SOURCE_PG_CONFIG:-pg_config}
bindir=$("$pg_config" --bindir)
libdir=$("$pg_config" --pkglibdir)
sharedir=$("$pg_config" --sharedir)
includedir=$("$pg_config" --includedir-server)

# Everything lies under /usr in Debian's packages; elsewhere take the longest
# common directory.
root=$bindir
while case $libdir/ in "$root"/*) false ;; *) true ;; esac ||
	case $sharedir/ in "$root"/*) false ;; *) true ;; esac ||
	case $includedir/ in "$root"/*) false ;; *) true ;; esac; do
	root=${root%/*}
done

copy()						# directory
{
	local to=$prefix/${1#"$root"/}

	if [ ! -e "$to" ]; then
		mkdir -p "$(dirname "$to")"
		cp -a "$1" "$to.$$"
		mv "$to.$$" "$to"
	fi
}

copy "$bindir"
copy "$libdir"
copy "$sharedir"
copy "$includedir"

private=$prefix/${bindir#"$root"/}/pg_config
mkdir -p "$prefix/build/src"
# what is no more among the sources is not to be built
find "$prefix/build/src" -name '*.[ch]' -delete
tar -C "$source_tree" -cf - --exclude=.git --exclude='*.o' --exclude='*.bc' \
	--exclude='*.so' --exclude=./build --exclude=./test/build --exclude=./tmp_check . |
	tar -C "$prefix/build" -xf -
make -C "$prefix/build" -s --no-print-directory PG_CONFIG="$private" "$@" install >&2
echo "$private"
