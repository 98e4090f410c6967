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

# The stages of the Dockerfile: "NAME<tab>number of its line", the last one "run"
docker_stages()
{
	awk '/^FROM /{ print ($3 == "AS" ? $4 : "run") "\t" NR }' "$top/docker/Dockerfile"
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
	local name line next lines root

	while read -r name line; do
		root=$work/docker-$name
		make_chroot "$root" "$(docker_release)" || return 1
		lines=$(sed -n "$((line + 1)),/^FROM /p" "$top/docker/Dockerfile")
		check "stage $name" docker_stage "$root" "$lines" || return 1
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

no_compiler()
{
	! in_chroot "$1" sh -c 'command -v gcc make'
}

docker_refuses()
{
	! in_chroot "$1" runuser -u postgres -- env PGDATA=/var/lib/postgresql/other \
		sh /usr/local/lib/pmhash/start.sh
}
