#!/bin/bash
#
# test/packages.sh - what is handed to users: Debian packages, the archive for PGXN,
# the container image.
#
#	packages.sh [--keep] [PART...]
#		PART	archive, docker, extension, rpm, or a release of Debian: bookworm,
#				trixie, forky (default: all)
#
# archive: META.json as PGXN wants it, "make dist" from a clone, scripts of released
# versions unchanged, nothing of a machine in the tree.  A release: the package is
# built there by an account that is not root, with its tests; lintian has nothing to
# say; autopkgtest; in another chroot, with nothing but the base system, it is
# installed, does its main job, survives a crash, and is purged without a trace.
# docker: the steps of docker/Dockerfile, each in a chroot, and the server that
# comes of it.  extension: the same for the image without a server, mounted as
# CloudNativePG does.  rpm: rpm/pmhash.spec, in a chroot of bookworm.  Needs what test/versions.sh needs; archive alone needs a clone, git,
# make and python3.
#
# Prints a line "ok PART: ..." or "not ok PART: ..." for each test and at the end
#	N passed, N failed
# Exit status 0 if nothing failed.

set -u

top=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
. "$top/test/lib/packages.sh"
. "$top/test/lib/count.sh"
. "$top/test/lib/chroot.sh"
. "$top/test/lib/check.sh"

usage()
{
	sed -n '3,/^# CloudNativePG/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

keep=false
parts=
arguments=("$@")
while [ $# -gt 0 ]; do
	case $1 in
		--keep) keep=true ;;
		archive|docker|extension|rpm|bookworm|trixie|forky) parts="$parts $1" ;;
		*) usage ;;
	esac
	shift
done
parts=${parts:-archive bookworm trixie forky docker extension rpm}

[ "$parts" = " archive" ] || be_root "${arguments[@]}"

# ---- the archive ----

# git, as the account that runs this may not own the clone
git_here()
{
	git -C "$top" -c safe.directory="$top" "$@"
}

# "make dist" gives what is committed, under one directory, with META.json on top.
archive_is_whole()
{
	local archive listed

	make -s -C "$top" dist DIST_DIR="$work" || return 1
	archive=$(ls "$work"/pmhash-*.zip) || return 1
	python3 -m zipfile -e "$archive" "$work/unpacked" || return 1
	unpacked=$(ls -d "$work"/unpacked/*)
	[ "$(basename "$archive" .zip)" = "$(basename "$unpacked")" ] || { echo "directory: $unpacked"; return 1; }
	listed=$(git_here ls-tree -r --name-only HEAD | sort)
	diff <(cd "$unpacked" && find . -type f | sed 's|^\./||' | sort) <(printf '%s\n' "$listed") &&
		[ -f "$unpacked/META.json" ]
}

# The scripts of a version that has been released are never changed: servers out
# there have run them.  Changes go into pmhash--OLD--NEW.sql.
released_scripts()
{
	local tag file

	for tag in $(git_here tag -l 'v[0-9]*'); do
		for file in $(git_here ls-tree --name-only "$tag" | grep '^pmhash--.*\.sql$'); do
			git_here diff --quiet "$tag" HEAD -- "$file" || { echo "$file is another one than in $tag"; return 1; }
		done
	done
}

# Each release, and the one that META.json announces, has its line of figures and its
# chapter in the list of changes.
releases_are_told()
{
	local version status=0

	for version in $(git_here tag -l 'v[0-9]*' | sed 's/^v//') \
		$(sed -n 's/^   "version": "\(.*\)",$/\1/p' "$top/META.json"); do
		grep -q "^| $version " "$top/bench/results/releases.md" || { echo "no figures of $version"; status=1; }
		grep -q "^## $version " "$top/CHANGELOG.md" || { echo "no changes of $version"; status=1; }
	done
	return $status
}

# Paths of a machine, addresses of mirrors and registries have no business here.
# (The words are put together: this file is looked at, too.)
nothing_of_a_machine()
{
	local words

	words="/home/[a-z]|/wor""k/|/tmp/de""v|deb\.deb""ian\.org|pypi\.o""rg|npmjs\.o""rg|crates\.i""o"
	words="$words|proxy\.gol""ang|repo1?\.mav""en|ftp\.[a-z.]*deb""ian"
	! git_here grep -nIE "$words" HEAD -- . | grep -vE "/home/(tester|builder)"
}

try_archive()
{
	check "$part: META.json" python3 "$top/test/lib/check_meta.py" "$top"
	check "$part: nothing of a machine" nothing_of_a_machine
	check "$part: scripts of released versions" released_scripts
	check "$part: each release has figures and changes" releases_are_told
	check "$part: make dist" archive_is_whole
	check "$part: META.json in the archive" python3 "$top/test/lib/check_meta.py" "$unpacked"
}

# ---- packages ----

# inside ROOT SCRIPT [ARGUMENT...]: one of test/packages, in the chroot
inside()
{
	in_chroot "$1" bash "/pmhash/tree/test/packages/$2.sh" "${@:3}"
}

try_release()				# release
{
	local build=$work/$part-build clean=$work/$part-clean major

	make_chroot "$build" "$part" && put_tree "$build" && cp -a "$build" "$clean" || {
		echo "not ok $part: no chroot could be made"
		return 1
	}
	check "$part: the build's packages" inside "$build" build prepare || return 1
	check "$part: the package is built, its tests pass" inside "$build" build package || return 1
	tail -n 3 "$work/output" | sed 's/^/# /'
	check "$part: lintian" inside "$build" build lint
	check "$part: autopkgtest" inside "$build" build autopkgtest
	mkdir "$clean/packages"
	cp "$build"/build/*.deb "$clean/packages/"
	for step in install contents job crash drop purge; do
		check "$part: $step" inside "$clean" clean "$step" || return 1
	done
	$keep || rm -rf --one-file-system "$build" "$clean"
}

try_rpm()
{
	local root=$work/rpm

	make_chroot "$root" bookworm && put_tree "$root" && mkdir "$root/packages" &&
		make -s -C "$top" dist DIST_DIR="$root/packages" || {
		echo "not ok $part: no chroot could be made"
		return 1
	}
	for step in prepare build contents job; do
		check "$part: $step" inside "$root" rpm "$step" || return 1
	done
	$keep || rm -rf --one-file-system "$root"
}

cd /
scratch_parent >/dev/null || exit 1
install_packages git make python3 || exit 1
[ "$parts" = " archive" ] || install_packages debootstrap || exit 1
make_work packages
check_output=$work/output
. "$top/test/packages/docker.sh"
: >"$work/log"
for part in $parts; do
	say "$part"
	case $part in
		archive|docker|extension|rpm) "try_$part" ;;
		*) try_release ;;
	esac 2>&1 | tee -a "$work/log"
done
count_tap "$work/log"
add_counts packages 0
report_counts
