#!/bin/bash
#
# test/first_steps.sh - what a new user meets before anything works.
#
#	first_steps.sh			as an account that is not root, packages installed;
#							a stage of test/run.sh
#	first_steps.sh --empty	as root, on a system that has nothing but make, and
#							sudo; test/versions.sh calls it in a fresh chroot
#
# PG_CONFIG names the pg_config of a server that has pmhash installed.  Works
# in a scratch directory under TMPDIR, and with --empty in /etc of the chroot.
# Prints "ok NAME" or "not ok NAME" for each test; exit status 0 if none failed.

set -u

top=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/pmhash-first.XXXXXX") || exit 1
data=$scratch/data
check_output=$scratch/output
. "$top/test/lib/check.sh"

cleanup()
{
	if [ -f "$data/postmaster.pid" ]; then
		"$bindir/pg_ctl" -D "$data" -m immediate -w stop >/dev/null 2>&1
	fi
	rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# refuses PATTERN COMMAND...: the command fails, and says so, at once.  (A slow
# machine may take its time; what asks or waits takes for ever.)
refuses()
{
	local pattern=$1 result=0 said

	shift
	said=$(timeout 30 "$@" 2>&1 </dev/null) || result=$?
	printf '%s\n' "$said"
	if [ "$result" -eq 0 ] || [ "$result" -eq 124 ]; then
		echo "exit status $result of: $*"
		return 1
	fi
	[[ $said =~ $pattern ]] || { echo "no such words: $pattern"; return 1; }
}

# says PATTERN COMMAND...: the command succeeds, and its output has that
says()
{
	local pattern=$1 said

	shift
	said=$("$@" 2>&1) || { printf '%s\n' "$said"; return 1; }
	printf '%s\n' "$said"
	[[ $said =~ $pattern ]] || { echo "no such words: $pattern"; return 1; }
}

# no COMMAND...: it fails
no()
{
	! "$@"
}

# COMMAND... with test/lib/packages.sh read
with_packages=(bash -c '. "$0/test/lib/packages.sh"; "$@"' "$top")

# ---- the sources ----

# Files that begin with "#!" can be run, and no others.
modes()
{
	local file bad=0

	while read -r file; do
		case $(head -c 2 "$file" | tr -d '\0') in
			'#!') [ -x "$file" ] || { echo "not executable: $file"; bad=1; } ;;
			*) [ ! -x "$file" ] || { echo "executable: $file"; bad=1; } ;;
		esac
	done < <(find "$top" \( -name .git -o -name build -o -name tmp_check -o -name results -o -name 'output_*' \) -prune \
		-o -type f ! -name '*.so' -print)
	return $bad
}

# ---- make ----

# those of the Makefile, without dist, which runs none of our scripts
# (what make expands there, $(...), is put in by hand)
without_pgxs="$(sed -n '/^WITHOUT_PGXS = /,/[^\\]$/{s/^WITHOUT_PGXS = //; s/\\$//; s/\<dist\>//; s/\$([A-Z]*)//g; p}' "$top/Makefile")
	soak-cycles soak-faults soak-failover
	$(cd "$top/bench" && for script in *.sh; do echo "bench-${script%.sh}"; done | grep -vxE 'bench-(demo|run)')"

# Targets that install what they need: what would be run is there.
targets()					# directory, arguments of make
{
	local target word words directory=$1

	shift
	for target in $without_pgxs; do
		words=$(make -C "$directory" --no-print-directory -n PG_CONFIG=/nowhere/pg_config "$@" "$target") || return 1
		for word in $words; do
			case $word in
				*/*.sh|*/bench/*|*/test/*)
					(cd "$directory" && [ -e "${word//[\";]/}" ]) || { echo "$target: $word"; return 1; }
					;;
			esac
		done
	done
}

needs_pgxs()
{
	local target

	for target in "" all install installcheck clean "demo install"; do
		refuses 'apt-get install postgresql-server-dev-([0-9]+|N) ' \
			make -C "$top" PG_CONFIG=/nowhere/pg_config $target || return 1
	done
}

make_here()
{
	make -C "$top" --no-print-directory -s with_llvm=no PG_CONFIG="$PG_CONFIG" "$@"
}

# Flags of the command line come besides ours.
flags()
{
	local compile

	compile=$(make_here -B -n PG_CFLAGS=-DTHEIRS=1 PG_CPPFLAGS=-DALSO=2 SHLIB_LINK=-lz src/pmhash.o pmhash.so) || return 1
	for word in -DTHEIRS=1 -DALSO=2 -Wextra "-I[^ ]*/src" "-lz" "-lpmem"; do
		grep -q -e "$word" <<<"$compile" || { echo "$word: $compile"; return 1; }
	done
}

# A build outside of the sources; they may be read-only.
outside()
{
	local before

	before=$(find "$top/src" | sort)
	mkdir "$scratch/outside" || return 1
	# (where files go, not how fast they are)
	make -C "$scratch/outside" -f "$top/Makefile" -s -j"$(nproc)" with_llvm=no COPT=-O0 PG_CONFIG="$PG_CONFIG" \
		DESTDIR="$scratch/root" install || return 1
	[ "$(find "$top/src" | sort)" = "$before" ] || { echo "the sources were touched"; return 1; }
	[ "$(find "$scratch/root" -name 'pmhash*' -type f | sed 's/.*\.//' | sort | tr '\n' ' ')" = "control so sql " ] ||
		{ find "$scratch/root"; return 1; }
}

# What installcheck runs: all TAP tests only if nothing else is wanted.
tap_tests()
{
	local all few none

	all=$(make_here -n installcheck REGRESS= ISOLATION=)
	few=$(make_here -n installcheck)
	none=$(make_here -n installcheck TAP_TESTS=)
	grep -q 'test/t/\*/\*\.pl' <<<"$all" || { echo "all: $all"; return 1; }
	grep -q 'test/t/[a-z]*/[a-z_]*\.pl' <<<"$few" && ! grep -q 'test/t/\*' <<<"$few" || { echo "few: $few"; return 1; }
	grep -q regress <<<"$none" && ! grep -q 'test/t/' <<<"$none" || { echo "none: $none"; return 1; }
}

# ---- a server with nothing set but what README says ----

# Some of the suite: all of it is run with test/regress.conf.
SOME="setup basic refused dml temporary partition plans counters vacuum"

default_server()
{
	bindir=${PG_CONFIG%/*}
	"$bindir/initdb" -D "$data" --no-sync -A trust >/dev/null || return 1
	echo "shared_preload_libraries = 'pmhash'" >>"$data/postgresql.conf"
	"$bindir/pg_ctl" -D "$data" -l "$scratch/log" -w -s -o "-F -c listen_addresses='' -k $scratch" start ||
		{ cat "$scratch/log"; return 1; }
	make_here -C "$top" installcheck TAP_TESTS= ISOLATION= REGRESS="$SOME" PGHOST="$scratch" \
		REGRESS_OPTS="--host=$scratch --outputdir=$scratch" ||
		{ cat "$scratch/regression.diffs"; return 1; }
}

# ---- scratch directories ----

scratch_directories()
{
	local long

	long=$scratch/$(printf '%050d' 0)/$(printf '%050d' 0)
	mkdir -p "$long"
	touch "$scratch/file"
	TMPDIR=$scratch/none refuses 'TMPDIR is ".*/none", which is no directory' "${with_packages[@]}" scratch_parent &&
		TMPDIR=$scratch/file refuses 'which is no directory' "${with_packages[@]}" scratch_parent &&
		TMPDIR=$long refuses 'too long' "${with_packages[@]}" scratch_parent &&
		TMPDIR=$long refuses 'too long' bash "$top/test/run.sh" regress &&
		TMPDIR=$scratch/none refuses 'TMPDIR' bash "$top/bench/demo.sh" &&
		says "^$scratch$" env TMPDIR=. bash -c "cd $scratch && . $top/test/lib/packages.sh && scratch_parent"
}

not_executable()			# directory of such a file system
{
	TMPDIR=$1 refuses 'no program can be run' "${with_packages[@]}" scratch_parent
}

# ---- sudo ----

# A sudo that wants a password, and no terminal to ask for it: it does not wait.
no_terminal()				# file with what fake sudo was called with
{
	mkdir -p "$scratch/bin"
	printf '#!/bin/sh\necho "$*" >>%s\n[ "$1" != -n ] && sleep 60\nexit 1\n' "$1" >"$scratch/bin/sudo"
	chmod 755 "$scratch/bin/sudo"
	PATH=$scratch/bin:$PATH refuses 'no terminal.*apt-get install pmhash-no-such-package' \
		setsid -w bash -c ". $top/test/lib/packages.sh; install_packages pmhash-no-such-package" || return 1
	[ "$(cat "$1")" = "-n true" ] || { cat "$1"; return 1; }
}

# ---- what a user has set ----

settings()
{
	(
		umask 077
		export LC_ALL=xx_YY.nonsense LANGUAGE=de CDPATH=/ MAKEFLAGS=-n PGOPTIONS=--nonsense PGHOST=nowhere PGSSLMODE=require
		says '(^|'$'\n'')C.UTF-8/0022/////$' "${with_packages[@]}" eval \
			'echo "$LC_ALL/$(umask)/${LANGUAGE-}/${MAKEFLAGS-}/${PGOPTIONS-}/${PGHOST-}/${PGSSLMODE-}" | sed "s,//////*,/////,"'
	)
}

rows()
{
	local value

	for value in abc 0100000 99999 -1 1e6 99999999999999999999; do
		refuses '--rows' "$top/bench/demo.sh" --rows "$value" &&
			refuses '--rows' "$top/bench/demo.sh" --quick --rows="$value" || return 1
	done
	refuses '--rows' "$top/bench/demo.sh" --rows && refuses '--rows' "$top/bench/demo.sh" --rows=
}

# The demo as a whole, with what spoils others.
demo()
{
	(
		umask 077
		cd "$top/bench" || exit 1
		export LC_ALL=xx_YY.nonsense LANGUAGE=de CDPATH=/ MAKEFLAGS=-n PGOPTIONS=--nonsense PGHOST=nowhere PGSSLMODE=require
		says '100000 rows of bigint.*answers were compared' bash demo.sh --quick --rows=100000
	)
}

# ---- an empty system ----

# A real sudo that wants a password.
sudo_asks()
{
	useradd -m asks || return 1
	echo 'asks ALL=(ALL) ALL' >/etc/sudoers.d/asks
	refuses 'no terminal.*apt-get install .*gcc' setsid -w runuser -u asks -- env TMPDIR=/tmp bash "$top/bench/demo.sh" --quick
}

# What keeps Debian's packages from making a server goes with the process that set it.
left=/etc/postgresql-common/createcluster.d/pmhash-test.conf

interrupted()				# signal, processes that get it: of apt too?
{
	local installer

	mkdir -p "$scratch/apt"
	printf '#!/bin/sh\n[ -f %s ] && touch %s/seen\nexec sleep 3\n' "$left" "$scratch" >"$scratch/apt/apt-get"
	chmod 755 "$scratch/apt/apt-get"
	rm -f "$scratch/seen"
	PATH=$scratch/apt:$PATH setsid sh -c "$(cat "$top/test/lib/apt_install.sh")" apt_install nothing >/dev/null 2>&1 &
	installer=$!
	for ((i = 0; i < 50; i++)); do
		[ ! -f "$scratch/seen" ] || break
		sleep 0.1
	done
	[ -f "$left" ] || { echo "no $left"; return 1; }
	kill "-$1" -- "-$installer"
	wait "$installer"
	case $1 in
		KILL)
			[ -f "$left" ] || { echo "what KILL leaves is gone?"; return 1; }
			"${with_packages[@]}" install_packages make || return 1
			# which user made the directory is not known any more
			rmdir "${left%/*}" "${left%/*/*}" || return 1
			;;
	esac
	[ ! -e "$left" ] && [ ! -e "${left%/*/*}" ] || { ls -lR /etc/postgresql-common; return 1; }
}

empty_system()
{
	check "make without pg_config names the package" needs_pgxs
	check "make test, demo and others without PGXS" targets "$top"
	check "sudo without a terminal fails at once" sudo_asks
	for signal in INT TERM HUP KILL; do
		check "nothing stays in /etc after SIG$signal" interrupted "$signal"
	done
	mkdir "$scratch/noexec"
	mount -t tmpfs -o noexec tmpfs "$scratch/noexec"
	check "a scratch directory that is noexec" not_executable "$scratch/noexec"
	umount "$scratch/noexec"
}

installed_system()
{
	check "mode bits of scripts" modes
	check "make without pg_config names the package" needs_pgxs
	check "make test, demo and others without PGXS" targets "$top"
	mkdir "$scratch/elsewhere"
	check "the same with make -f" targets "$scratch/elsewhere" -f "$top/Makefile"
	check "PG_CFLAGS, PG_CPPFLAGS and SHLIB_LINK are added to ours" flags
	check "a build outside of the sources" outside
	check "installcheck: all TAP tests only alone" tap_tests
	check "installcheck on a default server" default_server
	check "scratch directories: missing, a file, long, relative" scratch_directories
	if [ -n "${PMHASH_SMALL_FS:-}" ]; then
		check "a scratch directory that is noexec" not_executable "$PMHASH_SMALL_FS"
	fi
	check "sudo without a terminal fails at once" no_terminal "$scratch/asked"
	check "locale, umask and environment of the user" settings
	check "--rows" rows
	check "the demo" demo
}

if [ "${1-}" = --empty ]; then
	empty_system
else
	bindir=${PG_CONFIG%/*}
	installed_system
fi
exit $((failures > 0))
