# Debian: sysbench
# sysbench's OLTP mixes, with pmhash indexes where it has btrees.

try_sysbench()
{
	local mix seconds=8

	! $long || seconds=120
	make_server sysbench "" "max_connections = 50" && make_database sbtest || return 1
	check "prepare" run_sysbench oltp_read_write prepare || return 1
	sql <<-'SQL'
		DROP INDEX k_1, k_2;
		CREATE INDEX s_id1 ON sbtest1 USING pmhash (id);
		CREATE INDEX s_id2 ON sbtest2 USING pmhash (id);
		CREATE INDEX s_k1 ON sbtest1 USING pmhash (k);
		CREATE INDEX s_k2 ON sbtest2 USING pmhash (k);
		VACUUM ANALYZE;
	SQL
	for mix in oltp_read_write oltp_point_select oltp_insert oltp_delete oltp_update_index oltp_update_non_index; do
		check "$mix" run_sysbench "$mix" "--threads=8" "--time=$seconds" run
		grep -E 'transactions: ' "$scratch/output" | sed "s/^ */# $mix /"
	done
	same_answers "after all mixes"
	stop_server sysbench
}

run_sysbench()				# mix arguments
{
	sysbench "$1" --db-driver=pgsql --pgsql-host=127.0.0.1 --pgsql-port="$PGPORT" --pgsql-user=postgres \
		--pgsql-db=sbtest --tables=2 --table-size=20000 --range-size=10 "${@:2}"
}
