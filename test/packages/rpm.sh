#!/bin/bash
#
# test/packages/rpm.sh STEP: rpm/pmhash.spec, in a chroot of Debian that has PostgreSQL 15;
# test/packages.sh calls it there, as root.  The server is Debian's, and a pg_config names
# the directories of PGDG's packages instead of its own.  What the spec requires has
# other names in Debian: --nodeps.

set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
major=15
root=/usr/pgsql-$major
tree=/pmhash/tree
package=pmhash_$major

fail()
{
	echo "$*"
	exit 1
}

prepare()
{
	mkdir -p /etc/postgresql-common/createcluster.d "$root/bin"
	echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/none.conf
	apt-get -q update
	apt-get -q -y --no-install-recommends install rpm unzip gcc libc6-dev make libpmem-dev libxxhash-dev \
		"postgresql-$major" "postgresql-server-dev-$major"
	cat >"$root/bin/pg_config" <<-SH
		#!/bin/sh
		case \$1 in
			--pkglibdir) echo $root/lib ;;
			--sharedir) echo $root/share ;;
			--docdir) echo $root/doc ;;
			*) exec /usr/lib/postgresql/$major/bin/pg_config "\$@" ;;
		esac
	SH
	chmod 755 "$root/bin/pg_config"
	useradd -m builder
}

# From what "make dist" has made, by an account that is not root.
build()
{
	runuser -u builder -- sh -c "mkdir -p ~/rpmbuild/SOURCES && cp /packages/pmhash-*.zip ~/rpmbuild/SOURCES &&
		rpmbuild -bb --nodeps --define 'pgmajorversion $major' --define 'debug_package %{nil}' $tree/rpm/pmhash.spec"
	cp /home/builder/rpmbuild/RPMS/*/"$package"-*.rpm /packages/
	rm -rf /home/builder/rpmbuild
}

# All that a user looks for, each in its place, and nothing else.
contents()
{
	local listed version

	version=$(sed -n 's/^   "version": "\(.*\)",$/\1/p' "$tree/META.json")
	[ "$(rpm -qp --queryformat '%{NAME} %{VERSION} %{LICENSE}' /packages/*.rpm)" = "$package $version PostgreSQL" ] ||
		fail "another name or version"
	rpm -qp --requires /packages/*.rpm
	rpm -qp --requires /packages/*.rpm | grep -q '^libpmem\.so\.1' || fail "libpmem is not required"
	rpm -qpl /packages/*.rpm
	listed=$(rpm -qpl /packages/*.rpm | grep -Ev '^/usr/(share/(doc|licenses)/|lib/\.build-id)' | sort | tr '\n' ' ')
	[ "$listed" = "$root/lib/pmhash.so $root/share/extension/pmhash--1.0.sql $root/share/extension/pmhash.control " ] ||
		fail "files: $listed"
	for file in README.md CHANGELOG.md docs/operations.md LICENSE; do
		rpm -qpl /packages/*.rpm | grep -q "/$file\$" || fail "$file is not in the package"
	done
}

# Installed, the library works in the server that it was built for.
job()
{
	local cluster=/etc/postgresql/$major/main

	rpm -i --nodeps /packages/*.rpm
	ln -s "$root/lib/pmhash.so" "/usr/lib/postgresql/$major/lib/"
	ln -s "$root/share/extension"/* "/usr/share/postgresql/$major/extension/"
	pg_createcluster "$major" main
	echo "shared_preload_libraries = 'pmhash'" >"$cluster/conf.d/pmhash.conf"
	pg_ctlcluster "$major" main start
	runuser -u postgres -- psql -X -q -v ON_ERROR_STOP=1 <<-'SQL'
		CREATE EXTENSION pmhash;
		CREATE TABLE item AS SELECT g AS id FROM generate_series(1, 10000) g;
		CREATE INDEX item_id ON item USING pmhash (id);
		SELECT pmhash.check('item_id');
		SELECT 1 / (state = 'valid')::int FROM pmhash.indexes;
		SET enable_seqscan = off;
		SELECT 1 / (count(*) = 1)::int FROM item WHERE id = 77;
	SQL
	pg_ctlcluster "$major" main stop
	rpm -e --nodeps "$package"
	[ -z "$(find "$root" /usr/share/doc /usr/share/licenses -name '*pmhash*')" ] || fail "something is left"
}

"$1"
