# Debian: patroni etcd-server python3-etcd python3-psycopg2
# Patroni with etcd: three servers, failovers and switchovers under load.

try_patroni()
{
	python3 "$here/../ha/failovers.py" "$bindir" "$scratch/ha" "${HA_FAILOVERS:-8}" \
		"$here/../../sql/setup.sql"
}
