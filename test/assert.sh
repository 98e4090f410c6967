#!/bin/bash
#
# test/assert.sh - the suites on servers that check themselves: built from Debian's source
# with assertions and injection points.
#
#	assert.sh [OPTION...] [MAJOR...]
#		MAJOR				18 and 19, if none is named.  Of 19 there may be no source: it
#							is left out then
#		--parts LIST		of: plain release discard valgrind (default: all)
#		--tests LIST		TAP files of the part plain (default: all)
#		--server PREFIX		a server that was built before as these parts need it
#		--source DIRECTORY	its source (for valgrind)
#		--keep				leave builds and logs
#
# plain		regress, isolation and all TAP files
# release	a server that forgets each relation and catalog entry that nobody holds, and
#			copies, writes and reads each tree of a query: regress and isolation
# discard	debug_discard_caches = 1: some files of regress (all take a day)
# valgrind	some files of regress, each process of the server under valgrind; the server has no
#			assertions then
#
# "TRAP:" in any log of a server is a failure, and an error of valgrind's with pmhash in
# its stack.  Root or sudo for packages.  Takes hours.  Prints at the end
#	N passed, N failed

set -u

top=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
. "$top/test/lib/packages.sh"
. "$top/test/lib/count.sh"
. "$top/test/lib/chroot.sh"

FORGETFUL="-DRELCACHE_FORCE_RELEASE -DCATCACHE_FORCE_RELEASE -DCOPY_PARSE_PLAN_TREES
	-DWRITE_READ_PARSE_PLAN_TREES -DRAW_EXPRESSION_COVERAGE_TEST"
# What forgets each catalog entry at once takes a hundred times as long, or more: files with
# many kinds of statements and few rows.  valgrind takes forty times as long, and does not
# know how a mapping is made longer: files whose indexes stay small.
SOME="privileges refused stats candidates"
FEW="boolean two_phase held_cursors exclusion partition join_cases candidates vacuum"

keep=false
parts="plain release discard valgrind"
tests=
server=
source=
majors=
arguments=("$@")
while [ $# -gt 0 ]; do
	case $1 in
		--parts|--tests|--server|--source) [ $# -ge 2 ] || exit 2 ;;&
		--parts) parts=$2; shift ;;
		--tests) tests=$2; shift ;;
		--server) server=$2; shift ;;
		--source) source=$2; shift ;;
		--keep) keep=true ;;
		18|19) majors="$majors $1" ;;
		*) sed -n '3,/^#	N passed/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
	esac
	shift
done
be_root "${arguments[@]}"

# get_source MAJOR: Debian's source of it, without Debian's patches (they fix paths), into
# $work/MAJOR.  Apt's own lists are left alone.
get_source()
{
	local suite apt=$work/apt-$1

	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$work/$1" || return 1
	for suite in $(release_of "$1"); do
		echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(machine_mirror) $suite main"
	done >"$apt/sources.list"
	set -- "$1" apt-get -q -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" \
		-o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root
	quietly "${@:2}" update &&
		(cd "$apt" && quietly "${@:2}" source --download-only "postgresql-$1" &&
			quietly dpkg-source --skip-patches -x postgresql-"$1"_*.dsc "$work/$1/source") &&
		chown -R "$(account)" "$work/$1"
}

# build_server MAJOR NAME FLAG...: into $work/MAJOR/NAME.  What runs under valgrind is slow
# enough without assertions.
build_server()
{
	local directory=$work/$1 assertions=--enable-cassert

	[ "$2" != watched ] || assertions=--disable-cassert

	say "PostgreSQL $1, $2: building the server"
	as_account mkdir "$directory/build-$2" &&
		(cd "$directory/build-$2" && quietly as_account sh -c '
			../source/configure --prefix="$1" "$2" --enable-debug --enable-injection-points \
				--enable-tap-tests --with-icu --with-lz4 --with-zstd --with-ssl=openssl --with-libxml \
				CFLAGS="-O1 -g -fno-omit-frame-pointer" CPPFLAGS="$3" &&
				make -s -j"$4" world-bin && make -s install-world-bin' \
			sh "$directory/$2" "$assertions" "${*:3}" "$(nproc)")
}

# suites NAME SERVER VARIABLE=VALUE...: test/run.sh with that server, and what its logs say
suites()
{
	local name=$1 scratch=$work/tmp status

	say "$name"
	install -d -m 1777 "$scratch"
	env TMPDIR="$scratch" PMHASH_KEEP=1 PMHASH_PG_CONFIG="$2/bin/pg_config" "${@:3}" \
		bash "$top/test/run.sh" $stages 2>&1 | tee "$work/log"
	status=${PIPESTATUS[0]}
	count_run "$work/log"
	if grep -rah --include='*.log' --include='regress_log_*' 'TRAP: ' "$scratch" >"$work/traps"; then
		sort "$work/traps" | uniq -c >&2
		stage_failed=$((stage_failed + 1))
	fi
	add_counts "$name" "$status"
	$keep && mv "$scratch" "$work/${name// /-}" || rm -rf "$scratch"
}

# under_valgrind PREFIX LOGS SOURCE: its server runs under valgrind from now on
under_valgrind()
{
	mv "$1/bin/postgres" "$1/bin/postgres.real" &&
		install -d -m 1777 "$2" &&
		install -m 644 "$top/test/analyzers/valgrind.supp" "$2.supp" &&
		cat >"$1/bin/postgres" <<-EOF &&
			#!/bin/sh
			# (what it does not know of a processor's ways to flush)
			export PMEM_NO_CLWB=1 PMEM_NO_CLFLUSHOPT=1
			# (initdb's part has nothing of pmhash, and would take longer than all else)
			case "\$1" in --boot|--single|--check|-V) exec "\${0%/*}/postgres.real" "\$@" ;; esac
			# (the one beside it, wherever it is copied to: the server finds its files by its path)
			exec valgrind -q --leak-check=no --error-limit=no --suppressions="$3/src/tools/valgrind.supp" \\
				--suppressions="$2.supp" --log-file="$2/%p" "\${0%/*}/postgres.real" "\$@"
		EOF
		chmod 755 "$1/bin/postgres"
}

# valgrind_found LOGS: what has pmhash in its stack
valgrind_found()
{
	cat "$1"/* 2>/dev/null | awk -v RS='==[0-9]+== \n' '/pmhash/' >"$work/found"
	[ -s "$work/found" ] || return 1
	head -n 200 "$work/found" >&2
}

part()						# major part
{
	local directory=$work/$1 plain=${server:-$work/$1/plain} release=${server:-$work/$1/release}
	local watched=${server:-$work/$1/watched}

	case $2 in
		plain|discard) [ -x "$plain/bin/postgres" ] || build_server "$1" plain || return 1 ;;
		release) [ -x "$release/bin/postgres" ] || build_server "$1" release $FORGETFUL || return 1 ;;
		valgrind) [ -x "$watched/bin/postgres" ] || build_server "$1" watched -DUSE_VALGRIND || return 1 ;;
	esac
	stages=regress
	case $2 in
		plain)
			stages="regress isolation tap"
			suites "$1 plain" "$plain" PMHASH_PROVE_TESTS="$tests"
			;;
		release)
			stages="regress isolation"
			suites "$1 release" "$release"
			;;
		discard)
			# (all of the server's processes, but not initdb, which takes half an hour then)
			echo "debug_discard_caches = 1" >"$work/discard.conf"
			suites "$1 discard" "$plain" PMHASH_REGRESS="$SOME" PMHASH_REGRESS_CONFIG="$work/discard.conf"
			;;
		valgrind)
			cp -a "$watched" "$work/valgrind" && chown -R "$(account)" "$work/valgrind" &&
				under_valgrind "$work/valgrind" "$directory/valgrind" "${source:-$directory/source}" || return 1
			suites "$1 valgrind" "$work/valgrind" PMHASH_REGRESS="$FEW" PGCTLTIMEOUT=600
			stage_passed=1 stage_failed=0
			! valgrind_found "$directory/valgrind" || stage_passed=0 stage_failed=1
			add_counts "$1 valgrind's errors" 0
			;;
	esac
}

cd /
install_packages dpkg-dev bison flex pkg-config libicu-dev libreadline-dev zlib1g-dev libssl-dev liblz4-dev \
	libzstd-dev libxml2-dev $(case $parts in *valgrind*) echo valgrind ;; esac) || exit 1
make_work assert
for major in ${majors:-18 19}; do
	if [ -z "$server" ] && ! get_source "$major"; then
		say "PostgreSQL $major: its source is not to be had"
		[ "$major" = 19 ] || count_failed "source of $major"
		continue
	fi
	for part in $parts; do
		part "$major" "$part" || count_failed "$major $part"
	done
done
report_counts
