# Sourced by test/run.sh and bench/demo.sh: packages, and an account that is
# not root.  Needs nothing but a shell and apt.

# What a caller has set for work of his own must not get into ours: his locale, a
# umask that hides from one account what another one has made, where he wants
# to connect to, what make was called with.  (PG_... is for the tests.)
export LC_ALL=C.UTF-8
umask 022
unset LANGUAGE MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES GNUMAKEFLAGS
for variable in ${!PG@}; do
	case $variable in
		PG_*) ;;
		*) unset "$variable" ;;
	esac
done
unset variable

packages_lib=$(CDPATH= cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Versions of PostgreSQL that pmhash is made for, newest first
PMHASH_PG_MAJORS="18 17 16 15"

# Those that it is prepared for, but that are not released or not tested in full: taken
# where they are named, or where their server is installed and no other
PMHASH_PG_PREPARED="19"

# say MESSAGE...: progress, on standard error
say()
{
	printf '== %s\n' "$*" >&2
}

# can_be_root: root, or sudo that does not ask, or that has a terminal to ask.
# Otherwise a message, at once: sudo without a terminal would fail later, or wait.
can_be_root()
{
	if [ "$(id -u)" -eq 0 ]; then
		return 0
	elif ! command -v sudo >/dev/null 2>&1; then
		echo "root's rights are needed, and there is no sudo" >&2
	elif sudo -n true 2>/dev/null; then
		return 0
	elif ! { : </dev/tty; } 2>/dev/null; then
		echo "root's rights are needed, and sudo asks for a password where there is no terminal" >&2
	elif sudo -v; then
		return 0
	fi
	return 1
}

# as_root COMMAND...: run with root's rights, by sudo if we are not root
as_root()
{
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

# quietly COMMAND...: show the output only if the command fails
quietly()
{
	local output status

	output=$("$@" 2>&1) && return 0
	status=$?
	printf '%s\n' "$output" >&2
	return "$status"
}

# apt_install [PACKAGE...]: what apt_install.sh does
apt_install()
{
	as_root sh -c "$(cat "$packages_lib/apt_install.sh")" apt_install "$@"
}

# is_installed PACKAGE
is_installed()
{
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# is_available PACKAGE: does apt know a version that could be installed?  (No
# pipe into grep -q: with pipefail the reader's early end would be a failure.)
is_available()
{
	[[ $(apt-cache policy "$1" 2>/dev/null) =~ Candidate:\ [0-9] ]]
}

# first_major TEST MAJOR...: the first of them whose server package passes a test
first_major()
{
	local major test=$1

	shift
	for major in "$@"; do
		if "$test" "postgresql-$major"; then
			echo "$major"
			return 0
		fi
	done
	return 1
}

# newest_major: of the server that is installed, or that apt has
newest_major()
{
	first_major is_installed $PMHASH_PG_MAJORS $PMHASH_PG_PREPARED ||
		first_major is_available $PMHASH_PG_MAJORS
}

# has_major MAJOR: its server is installed, or apt has it
has_major()
{
	is_installed "postgresql-$1" || is_available "postgresql-$1"
}

# choose_major: the major version to work with, into pg_major: that of
# PMHASH_PG_MAJOR, or the newest server installed, or the newest there is
choose_major()
{
	pg_major=${PMHASH_PG_MAJOR:-}
	if [ -n "$pg_major" ]; then
		case " $PMHASH_PG_MAJORS $PMHASH_PG_PREPARED " in
			*" $pg_major "*)
				# (who may not install anything hears that from install_packages)
				if has_major "$pg_major" || ! can_be_root 2>/dev/null ||
					{ apt_install update && has_major "$pg_major"; }; then
					return 0
				fi
				echo "apt has no postgresql-$pg_major; https://apt.postgresql.org has it for each Debian" >&2
				return 1
				;;
		esac
		echo "PMHASH_PG_MAJOR is \"$pg_major\"; pmhash is for PostgreSQL $PMHASH_PG_MAJORS" >&2
		return 1
	fi
	if pg_major=$(newest_major); then
		return 0
	fi
	# a machine whose lists apt has not read yet
	if can_be_root && apt_install update && pg_major=$(newest_major); then
		return 0
	fi
	echo "apt has no postgresql-N for N of $PMHASH_PG_MAJORS; https://apt.postgresql.org has them for each Debian" >&2
	return 1
}

# missing_packages PACKAGE...: prints those that are not installed
missing_packages()
{
	local package

	for package in "$@"; do
		is_installed "$package" || echo "$package"
	done
}

# install_packages PACKAGE...: install what is missing
install_packages()
{
	local missing left=/etc/postgresql-common/createcluster.d/pmhash-test.conf

	missing=$(missing_packages "$@")
	if [ -z "$missing" ]; then
		# an earlier run was killed when it had installed them
		if [ -f "$left" ] && can_be_root 2>/dev/null; then
			apt_install
		fi
		return 0
	fi
	if ! can_be_root; then
		echo "run this as root, or install the packages yourself:" >&2
		echo "  apt-get install" $missing >&2
		return 1
	fi
	say "installing" $missing
	apt_install $missing
}

# install_server [PACKAGE...]: choose a version of PostgreSQL, install its server
# and what building takes, and these packages.  Sets pg_major, and pg_config to
# the path of that server's pg_config (the one in PATH may be of another version).
# PMHASH_PG_CONFIG names that of a server that is no package.
# Without apt the packages have to be there, and the pg_config in PATH counts.
install_server()
{
	local server

	if ! command -v apt-get >/dev/null 2>&1; then
		pg_config=$(command -v pg_config) && [ -f "$("$pg_config" --pgxs)" ] && return 0
		echo "there is no apt-get: install what README.md names yourself, with pg_config in PATH" >&2
		return 1
	fi
	set -- gcc libc6-dev make libpmem-dev libxxhash-dev "$@"
	if [ -n "${PMHASH_PG_CONFIG:-}" ]; then
		pg_config=$PMHASH_PG_CONFIG
		pg_major=$("$pg_config" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
		install_packages "$@" || return 1
	else
		choose_major || return 1
		server=$(missing_packages "postgresql-$pg_major")
		install_packages "postgresql-$pg_major" "postgresql-server-dev-$pg_major" "$@" || return 1
		# apt makes a cluster with a new server, and apt_install.sh keeps it from that:
		# a later "apt-get install" does not make up for it
		[ -z "$server" ] ||
			say "$server has no cluster yet; for one of your own: pg_createcluster $pg_major main --start"
		pg_config=/usr/lib/postgresql/$pg_major/bin/pg_config
	fi
	[ -x "$pg_config" ] && [ -f "$("$pg_config" --pgxs)" ] && return 0
	echo "\"$pg_config\" is not there, or not whole" >&2
	return 1
}

# PostgreSQL refuses to run as root.  Root lends its work to the account that
# Debian's packages create for the purpose; other accounts do it themselves.
account()
{
	if [ "$(id -u)" -eq 0 ]; then
		echo postgres
	else
		id -un
	fi
}

# as_account COMMAND...: run as the account above
as_account()
{
	if [ "$(id -u)" -eq 0 ]; then
		runuser -u "$(account)" -- "$@"
	else
		"$@"
	fi
}

# as_account_logged FILE COMMAND...: the same, standard error into a file.  The account
# opens it: root would follow any link that has been put there
as_account_logged()
{
	local file=$1

	shift
	# shellcheck disable=SC2016
	as_account sh -c 'file=$1; shift; exec "$@" 2>"$file"' sh "$file" "$@"
}

# scratch_parent: the directory that scratch directories are made in, TMPDIR or
# /tmp, as an absolute path; or a message why it will not do.  Sockets have to
# fit in a path of 107 bytes, and programs are built there and run.
scratch_parent()
{
	local parent=${TMPDIR:-/tmp} absolute try

	if ! absolute=$(CDPATH= cd "$parent" 2>/dev/null && pwd); then
		echo "TMPDIR is \"$parent\", which is no directory; set it to another one, or unset it" >&2
		return 1
	fi
	if [ ${#absolute} -gt 60 ]; then
		echo "TMPDIR is \"$absolute\", which is too long for sockets in it; set it to one of at most 60 bytes" >&2
		return 1
	fi
	if ! try=$(mktemp "$absolute/pmhash-try.XXXXXX" 2>/dev/null); then
		echo "no file can be made in \"$absolute\"; set TMPDIR to a directory where that is possible" >&2
		return 1
	fi
	printf '#!/bin/sh\nexit 0\n' >"$try"
	chmod 700 "$try"
	if ! "$try" 2>/dev/null; then
		rm -f "$try"
		echo "no program can be run in \"$absolute\" (mounted noexec?); set TMPDIR to a directory where that is possible" >&2
		return 1
	fi
	rm -f "$try"
	echo "$absolute"
}

# account_directory NAME: make an empty directory that the account owns, in
# TMPDIR, and print its path
account_directory()
{
	local parent directory

	parent=$(scratch_parent) || return 1
	if ! as_account test -w "$parent" -a -x "$parent"; then
		echo "the user \"$(account)\" may not write in \"$parent\"; set TMPDIR to a directory where it may" >&2
		return 1
	fi
	directory=$(mktemp -d "$parent/pmhash-$1.XXXXXX") || return 1
	if [ "$(id -u)" -eq 0 ]; then
		chown "$(account)" "$directory"
	fi
	echo "$directory"
}

# copy_sources FROM TO: the source tree without build products, owned by the
# account
copy_sources()
{
	tar -C "$1" -cf - --exclude=.git --exclude='*.o' --exclude='*.bc' \
		--exclude='*.so' --exclude=./build --exclude=./test/build \
		--exclude=./tmp_check --exclude=./results . |
		as_account tar -C "$2" --no-same-owner -xf -
}

# what test/run.sh needs besides the server
PMHASH_TEST_PACKAGES="perl libipc-run-perl python3"

# what test/dax/run.sh needs besides
PMHASH_DAX_PACKAGES="qemu-system-x86 busybox-static kmod cpio ndctl e2fsprogs
	debootstrap"
