#!/bin/bash
#
# test/packages/build.sh STEP: build Debian's package in a chroot; test/packages.sh
# calls it there, as root.

set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
tree=/pmhash/tree
version=$(sed -n '1s/^pmhash (\(.*\)-[^-]*) .*/\1/p' "$tree/debian/changelog")
source=/build/pmhash-$version

as_builder()
{
	(cd "$source" && runuser -u builder -- env HOME=/home/builder LC_ALL=C.UTF-8 "$@")
}

# The packages that building takes, from debian/control; the account; the sources.
prepare()
{
	apt-get -q update
	apt-get -q -y --no-install-recommends install build-essential lintian autopkgtest postgresql-common-dev ||
		apt-get -q -y --no-install-recommends install build-essential lintian autopkgtest postgresql-server-dev-all
	useradd -m builder
	mkdir /build
	cp -r "$tree" "$source"
	(cd /build && tar --exclude=debian -czf "pmhash_$version.orig.tar.gz" "pmhash-$version")
	chown -R builder: /build
	# debian/control names the packages of the versions that this Debian has
	apt-get -q -y --no-install-recommends install postgresql-server-dev-all
	as_builder pg_buildext updatecontrol
	apt-get -q -y --no-install-recommends build-dep "$source"
}

package()
{
	as_builder env DEB_BUILD_OPTIONS="parallel=$(nproc)" dpkg-buildpackage -us -uc
	ls -l /build/*.deb
}

# Warnings count.  Tags that are wrong of us are overridden in debian/, with a reason.
lint()
{
	(cd /build && runuser -u builder -- lintian --fail-on error,warning --tag-display-limit 0 -i *.changes)
}

# As Debian's machines do it, with the package installed; this chroot is the testbed.
autopkgtest()
{
	local status=0

	command autopkgtest --apt-upgrade /build/*.deb "$source" -- null || status=$?
	# 2: tests were skipped
	[ "$status" -eq 0 ]
}

"$1"
