# Sourced by test/run.sh and bench/demo.sh: packages, and an account that is
# not root.  Needs nothing but a shell and apt.

# say MESSAGE...: progress, on standard error
say()
{
	printf '== %s\n' "$*" >&2
}

# as_root COMMAND...: run with root's rights, by sudo if we are not root
as_root()
{
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo "$@"
	else
		echo "root's rights are needed for: $*" >&2
		echo "run this as root, or install sudo, or install the packages yourself" >&2
		return 1
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

# apt COMMAND...: apt-get, without questions, with patience for the network
# and for another apt at work
apt()
{
	local try

	for try in 1 2 3; do
		if quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
			-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 \
			-o Dpkg::Options::=--force-confold "$@"; then
			return 0
		fi
		sleep $((try * 5))
	done
	return 1
}

# missing_packages PACKAGE...: prints those that are not installed
missing_packages()
{
	local package

	for package in "$@"; do
		if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
			echo "$package"
		fi
	done
}

# install_packages PACKAGE...: install what is missing.  Debian's PostgreSQL
# packages create and start a server of their own; we want none.
install_packages()
{
	local missing conf=/etc/postgresql-common/createcluster.d/pmhash-test.conf
	local status=0

	missing=$(missing_packages "$@")
	if [ -z "$missing" ]; then
		return 0
	fi
	say "installing" $missing
	as_root mkdir -p "${conf%/*}"
	echo "create_main_cluster = false" | as_root tee "$conf" >/dev/null
	apt update && apt install --no-install-recommends $missing || status=$?
	as_root rm -f "$conf"
	as_root rmdir --ignore-fail-on-non-empty "${conf%/*}"
	return "$status"
}

# PostgreSQL refuses to run as root.  Root lends its work to the account that
# Debian's packages create for the purpose; everybody else does it himself.
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

# account_directory NAME: make an empty directory that the account owns, in
# TMPDIR, and print its path
account_directory()
{
	local directory

	directory=$(mktemp -d "${TMPDIR:-/tmp}/pmhash-$1.XXXXXX")
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

# pg_config_of_server: path of the pg_config that belongs to the server
# packages (the one in PATH may be of another version)
pg_config_of_server()
{
	local path

	for path in /usr/lib/postgresql/15/bin/pg_config "$(command -v pg_config)"; do
		if [ -x "$path" ] && [ -f "$("$path" --pgxs)" ]; then
			echo "$path"
			return 0
		fi
	done
	return 1
}

# packages for building and for the tests
PMHASH_BUILD_PACKAGES="gcc libc6-dev make postgresql-15 postgresql-server-dev-15
	libpmem-dev libxxhash-dev"
PMHASH_TEST_PACKAGES="$PMHASH_BUILD_PACKAGES perl libipc-run-perl"

# what test/dax/run.sh needs besides
PMHASH_DAX_PACKAGES="qemu-system-x86 busybox-static kmod cpio ndctl e2fsprogs
	debootstrap"
