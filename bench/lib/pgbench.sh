# pgbench.sh: pgbench's point selects through an index; sourced, not run
#
# Needs bench/lib/cluster.sh, and a cluster with pg_prewarm that runs.

# The tables of pgbench, without its primary keys.
load_pgbench()					# scale
{
	as_account "$cluster_bindir/pgbench" -i -q -I dtg -s "$1" >/dev/null 2>&1 ||
		die "pgbench cannot make its tables"
	sql -c 'VACUUM (FREEZE, ANALYZE)' -c "SELECT pg_prewarm('pgbench_accounts')" >/dev/null
}

# The index that the selects go through.
index_accounts()				# method
{
	sql -c "CREATE INDEX accounts_index ON pgbench_accounts USING $1 (aid)" \
		-c "SELECT pg_prewarm('accounts_index')" >/dev/null
}

# Transactions a second.
select_tps()					# clients seconds scale
{
	local tps

	tps=$(PGOPTIONS='-c enable_seqscan=off' as_account "$cluster_bindir/pgbench" \
		-n -S -M prepared -c "$1" -j "$1" -T "$2" -s "$3" 2>/dev/null | awk '/^tps/ { print $3 }')
	echo "${tps:?pgbench failed}"
}
