# Sourced by test/packages.sh: the steps of docker/Dockerfile, each stage in a
# chroot.  A container tool would run the same lines, but is not needed.

# docker_stage ROOT FROM-LINE: the lines of one stage of the Dockerfile, done in ROOT
# up to the account's line; others' files come from the roots of earlier stages.
docker_stage()
{
	local root=$1 lines=$2 word

	while read -r word rest; do
		case $word in
			COPY) docker_copy "$root" $rest || return 1 ;;
			RUN) in_chroot "$root" sh -c "$rest" || return 1 ;;
		esac
	done <<<"$lines"
}

# docker_copy ROOT [--from=STAGE] SOURCE... DESTINATION
docker_copy()
{
	local root=$1 from=$top/ destination=${*: -1}

	shift
	case $1 in
		--from=*) from=$work/docker-${1#--from=}; shift ;;
	esac
	mkdir -p "$root$destination"
	while [ $# -gt 1 ]; do
		if [ "$1" = . ]; then
			(put_tree "$root" && cp -a "$root/pmhash/tree/." "$root$destination/")
		elif [ -d "$from$1" ]; then
			cp -a "$from$1/." "$root$destination/"
		else
			cp -a "$from$1" "$root$destination/"
		fi || return 1
		shift
	done
}

# The stages of the Dockerfile: "NAME<tab>number of its line<tab>what it is from", the
# last one "run"
docker_stages()
{
	awk '/^FROM /{ print ($3 == "AS" ? $4 : "run") "\t" NR "\t" $2 }' "$top/docker/Dockerfile"
}

# docker_lines LINE: what comes after the line that begins a stage
docker_lines()
{
	sed -n "$(($1 + 1)),/^FROM /p" "$top/docker/Dockerfile"
}

docker_release()
{
	sed -n 's/^ARG DEBIAN=//p' "$top/docker/Dockerfile"
}

# The image's command, as its account, with an empty volume.
docker_start()				# root seconds
{
	in_chroot "$1" bash -c 'mkdir -p /var/lib/postgresql && chown postgres: /var/lib/postgresql
		runuser -u postgres -- env -u HOME POSTGRES_PASSWORD=secret timeout -s INT '"$2"' \
			sh /usr/local/lib/pmhash/start.sh >/tmp/log 2>&1 &
		server=$!
		export PGPASSWORD=secret PGHOST=127.0.0.1 PGUSER=postgres
		for i in $(seq 300); do psql -qc "SELECT 1" >/dev/null 2>&1 && break; sleep 0.2; done
		psql -X -qAt -v ON_ERROR_STOP=1 -f /docker.sql || { status=$?; cat /tmp/log; }
		kill -INT $server; wait $server
		exit ${status:-0}'
}

try_docker()
{
	local name line from root

	while read -r name line from; do
		[ "$from" != scratch ] || continue	# try_extension
		root=$work/docker-$name
		make_chroot "$root" "$(docker_release)" || return 1
		check "stage $name" docker_stage "$root" "$(docker_lines "$line")" || return 1
	done < <(docker_stages)
	cat >"$root/docker.sql" <<-'SQL'
		CREATE EXTENSION IF NOT EXISTS pmhash;
		CREATE TABLE IF NOT EXISTS item AS SELECT g AS id FROM generate_series(1, 10000) g;
		CREATE INDEX IF NOT EXISTS item_id ON item USING pmhash (id);
		ANALYZE item;
		SELECT 1 / (count(*) = 1)::int FROM item WHERE id = 77;
		SELECT pmhash.check('item_id');
		SELECT 1 / (state = 'valid')::int FROM pmhash.indexes;
	SQL
	check "the container runs, and uses the index" docker_start "$root" 300
	check "it runs again with its volume" docker_start "$root" 300
	check "no compiler is in it" no_compiler "$root"
	check "a first start without a password is refused" docker_refuses "$root"
}

# ---- the image for CloudNativePG ----

# The stages build and extension on a Debian with PostgreSQL 18, and the result mounted,
# read only, beside a server that has never seen pmhash or libpmem, as the operator does.
try_extension()
{
	local name line from base=$work/docker-base root

	rm -rf --one-file-system "$work"/docker-*
	make_chroot "$base" forky && check "$part: a server" install_18 "$base" || return 1
	while read -r name line from; do
		case $name in
			build) cp -a "$base" "$work/docker-build" ;;
			extension) mkdir "$work/docker-extension" ;;
			*) continue ;;
		esac
		root=$work/docker-$name
		check "$part: stage $name" docker_stage "$root" "$(docker_lines "$line")" || return 1
	done < <(docker_stages)
	check "$part: what is in the image" extension_contents "$root" || return 1
	mkdir -p "$base/extensions/pmhash" && cp -a "$root/." "$base/extensions/pmhash/" &&
		chmod -R a-w "$base/extensions" && cp "$top/test/packages/extension.sh" "$base/" || return 1
	for name in create kill group; do
		check "$part: $name" in_chroot "$base" bash /extension.sh "$name" || return 1
	done
	check "$part: nothing of it elsewhere" nothing_beside "$base"
}

install_18()				# root
{
	in_chroot "$1" sh -c 'mkdir -p /etc/postgresql-common/createcluster.d
			echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/none.conf
			apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install postgresql-18'
}

# Each file has its place, and a license goes with each library.
extension_contents()		# root
{
	local file

	(cd "$1" && find . -type f)
	for file in lib/pmhash.so share/extension/pmhash.control share/extension/pmhash--1.0.sql \
		licenses/pmhash/LICENSE licenses/libpmem1/copyright; do
		[ -f "$1/$file" ] || { echo "$file is missing"; return 1; }
	done
	[ -f "$(ls "$1"/system/libpmem.so.1)" ] &&
		[ "$(ls "$1/system" | wc -l)" -lt "$(find "$1/licenses" -type f | wc -l)" ] &&
		[ "$(ls "$1" | sort | tr '\n' ' ')" = "lib licenses share system " ]
}

nothing_beside()			# root
{
	local left

	left=$(cd "$1" && find . -xdev \( -path ./extensions -o -path ./var/lib/postgresql/data \) -prune -o \
		\( -name '*pmhash*' -o -name 'libpmem*' \) -print)
	[ -z "$left" ] || { echo "$left"; return 1; }
}

no_compiler()
{
	! in_chroot "$1" sh -c 'command -v gcc make'
}

docker_refuses()
{
	! in_chroot "$1" runuser -u postgres -- env PGDATA=/var/lib/postgresql/other \
		sh /usr/local/lib/pmhash/start.sh
}
