#!/bin/bash
#
# test/versions.sh - pmhash on each version of PostgreSQL that Debian has, in
# chroots made for it.
#
#	versions.sh [OPTION...] [MAJOR...]
#		MAJOR				15, 16, 17, 18, 19; none named: all of them.  19 is a release
#							candidate: without it, if apt has it no more
#		--arch ARCH			of another architecture than the machine's, by qemu:
#							arm64, ppc64el, riscv64; without first steps and demo, and with
#							the stages regress isolation by default
#		--stages LIST		stages of test/run.sh (default: "engine first_steps
#							regress isolation tap")
#		--one				only the first of them whose chroot can be made; the
#							others are no failures
#		--within SECONDS	that long a chroot may take to be made; with --one all
#							that are tried, together
#		--no-first-steps	leave out what is tried before anything is installed,
#							and the demo as a user with sudo
#		--keep				leave the chroots
#
# Each chroot is Debian's base system and nothing more.  In it, in this order:
# what a new user meets on an empty system (test/first_steps.sh --empty),
# bench/demo.sh as a user with sudo and a umask of 077, and
# test/run.sh as root.  The machine needs debootstrap (installed if it is missing), root or
# sudo, namespaces (unshare), and a mirror of Debian in its apt configuration
# that has those releases.  PostgreSQL 16 was in no release of Debian: it comes from a
# Python package, by pip, into a chroot of bookworm.  19 comes from Debian's experimental,
# as long as that has it, into a chroot of sid.  Both are without first steps and demo.
#
# Prints what the runners say, a line for each version, and at the end
#	N passed, N failed
# Exit status 0 if nothing failed.  Chroots are in TMPDIR, 1.5 GB each.

set -u

top=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
. "$top/test/lib/packages.sh"
. "$top/test/lib/count.sh"
. "$top/test/lib/chroot.sh"

usage()
{
	sed -n '3,/^# sudo, name/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

stages="engine first_steps regress isolation tap"
one=false
within=1800
first_steps=true
keep=false
architecture=
stages_named=
majors=
arguments=("$@")
while [ $# -gt 0 ]; do
	case $1 in
		--arch|--stages|--within) [ $# -ge 2 ] || usage ;;&
		--arch) architecture=$2; first_steps=false; stages=${stages_named:-regress isolation}; shift ;;
		--stages) stages=$2 stages_named=$2; shift ;;
		--within) within=$2; shift ;;
		--one) one=true ;;
		--no-first-steps) first_steps=false ;;
		--keep) keep=true ;;
		*)
			case " $PMHASH_PG_MAJORS $PMHASH_PG_PREPARED " in
				*" $1 "*) majors="$majors $1" ;;
				*) usage ;;
			esac
			;;
	esac
	shift
done

be_root "${arguments[@]}"

# begins_empty MAJOR: is what a new user meets tried there?  He gets a released version
begins_empty()
{
	case " 16 $PMHASH_PG_PREPARED " in
		*" $1 "*) return 1 ;;
	esac
	$first_steps
}

# prepare ROOT SUITE MAJOR: the chroot, the sources, the packages unless the suite has to
# do without them
prepare()
{
	make_chroot "$1" "$2" || return 1
	put_tree "$1" || return 1
	if [ "$3" = 16 ]; then
		put_server_16 "$1"
		return
	fi
	if ! begins_empty "$3"; then
		quietly in_chroot "$1" env PMHASH_PG_MAJOR="$3" bash -c \
			'. /pmhash/tree/test/lib/packages.sh && install_server $PMHASH_TEST_PACKAGES'
	fi
}

# bounded SECONDS COMMAND...: in a process of its own, ended after that time
bounded()
{
	local seconds=$1 child watch status

	shift
	set -m
	"$@" &
	child=$!
	(sleep "$seconds"; kill -TERM -- "-$child") 2>/dev/null &
	watch=$!
	set +m
	wait "$child"
	status=$?
	kill -- "-$watch" 2>/dev/null
	return "$status"
}

# The chroot for a major version: into root; false if there is none.
chroot_for()				# major
{
	local suite limit=$within

	for suite in $(release_of "$1"); do
		root=$work/$1-$suite
		! $one || limit=$((within - SECONDS))
		[ "$limit" -gt 0 ] || return 1
		say "PostgreSQL $1: making a chroot of $suite"
		if bounded "$limit" prepare "$root" "$suite" "$1"; then
			return 0
		fi
		rm -rf --one-file-system "$root"
	done
	return 1
}

# before_anything ROOT: an empty system, then a user with sudo
before_anything()
{
	local log=$work/log status

	quietly in_chroot "$1" sh -c 'apt-get -q update && apt-get -q -y --no-install-recommends install make sudo' || return 1
	in_chroot "$1" bash /pmhash/tree/test/first_steps.sh --empty 2>&1 | tee "$log"
	status=${PIPESTATUS[0]}
	count_tap "$log"
	add_counts "first steps on an empty system" "$status"
	in_chroot "$1" sh -c 'useradd -m -s /bin/bash tester &&
		echo "tester ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/tester &&
		cp -r /pmhash/tree /home/tester/pmhash && chown -R tester: /home/tester/pmhash' || return 1
	in_chroot "$1" runuser -u tester -- env HOME=/home/tester LC_ALL=de_DE.UTF-8 bash -c \
		'umask 077; cd && pmhash/bench/demo.sh --quick --rows=100000' 2>&1 | tee "$log"
	if [ "${PIPESTATUS[0]}" -eq 0 ] && grep -q 'answers were compared' "$log"; then
		count_one "demo as a user with sudo"
	else
		count_failed "demo as a user with sudo"
	fi
}

# run_suites ROOT MAJOR: test/run.sh there; its last line is its result
run_suites()
{
	local log=$work/log status which=PMHASH_PG_MAJOR=$2

	[ "$2" != 16 ] || which=PMHASH_PG_CONFIG=/opt/postgresql-16/bin/pg_config
	in_chroot "$1" env "$which" PMHASH_PROVE_TESTS="${PMHASH_PROVE_TESTS-}" \
		bash /pmhash/tree/test/run.sh $stages 2>&1 | tee "$log"
	status=${PIPESTATUS[0]}
	count_run "$log"
	add_counts "suites on $2" "$status"
}

server_version()			# root major
{
	in_chroot "$1" bash -c 'for bin in "/opt/postgresql-$1/bin" "/usr/lib/postgresql/$1/bin"; do
		[ ! -x "$bin/postgres" ] || "$bin/postgres" --version
	done' bash "$2"
}

# version MAJOR: everything; false if it has no chroot
version()
{
	local root passed_before=$passed failed_before=$failed start=$SECONDS

	chroot_for "$1" || return 1
	! begins_empty "$1" || before_anything "$root" || count_failed "preparing $1"
	run_suites "$root" "$1"
	say "PostgreSQL $1 ($(in_chroot "$root" sh -c '. /etc/os-release; echo $PRETTY_NAME')," \
		"$(server_version "$root" "$1")):" \
		"$((passed - passed_before)) passed, $((failed - failed_before)) failed, $((SECONDS - start)) s"
	$keep || rm -rf --one-file-system "$root"
}

cd /
scratch_parent >/dev/null || exit 1
install_packages debootstrap || exit 1
make_work versions
[ -z "$architecture" ] || emulate "$architecture" || exit 1

made=false
for major in ${majors:-$PMHASH_PG_MAJORS $PMHASH_PG_PREPARED}; do
	if version "$major"; then
		made=true
		! $one || break
	elif $one; then
		say "PostgreSQL $major: NOT TRIED, no chroot could be made within $within s"
	elif [ -z "$majors" ] && [[ " $PMHASH_PG_PREPARED " = *" $major "* ]]; then
		say "PostgreSQL $major: SKIPPED, no chroot could be made: Debian's experimental may not have it any more"
	else
		say "PostgreSQL $major: no chroot could be made"
		count_failed "chroot for $major"
	fi
done
$made || say "no version was tried"
report_counts
