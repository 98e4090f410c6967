#!/bin/bash
#
# ssi.sh: false serialization failures of btree, hash and pmhash
#
# The same SERIALIZABLE transactions on the same rows, with an index of each
# method in turn: read the rows of some keys, then add rows under other keys.
# Two such transactions conflict in truth only if each has read a key that the
# other has written; what an access method locks beyond that makes failures
# that need not be.  Prints a table of transactions and failures by method and
# by number of keys; last for transactions that read 100 keys which follow each other,
# with as many locks as a server allows by itself.
#
#   ssi.sh BINDIR [SECONDS]
#
# BINDIR: programs of a server that has pmhash installed.  SECONDS: of each of
# nine runs, 5 by default.  Everything else is done in a temporary directory and
# removed at the end.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"

[ $# -ge 1 ] && [ -x "$1/postgres" ] ||
	die "usage: $0 BINDIR [SECONDS]"
bindir=$1
seconds=${2:-5}

make_work_directory ssi 1000000 cluster
cluster_create "$work/cluster" "$bindir" pmhash
cluster_start
sql -c 'CREATE EXTENSION pmhash'

# As many rows for each method, and index plans whatever the statistics say.
# Page locks are what is to be compared, so there may be as many as are needed.
sql >/dev/null <<-SQL
	ALTER SYSTEM SET enable_seqscan = off;
	ALTER SYSTEM SET enable_bitmapscan = off;
	ALTER SYSTEM SET default_transaction_isolation = 'serializable';
	ALTER SYSTEM SET max_pred_locks_per_relation = 10000;
	SELECT pg_reload_conf();
SQL

as_account tee "$work/transaction.sql" >/dev/null <<-'SQL'
	\set a random(1, :keys)
	\set b random(1, :keys)
	BEGIN;
	SELECT count(v) FROM account WHERE k = :a;
	INSERT INTO account VALUES (:b, 1);
	COMMIT;
SQL

as_account tee "$work/many.sql" >/dev/null <<-'SQL'
	\set a random(1, :keys - 99)
	\set b random(1, :keys)
	BEGIN;
	SELECT count(v) FROM account WHERE k = ANY (ARRAY(SELECT generate_series(:a, :a + 99)));
	INSERT INTO account VALUES (:b, 1);
	COMMIT;
SQL

measure()					# method keys rows-per-key transaction
{
	local output processed failed

	sql <<-SQL
		DROP TABLE IF EXISTS account;
		CREATE TABLE account (k int4, v int4);
		INSERT INTO account SELECT i % $2 + 1, 0 FROM generate_series(0, $3 * $2 - 1) i;
		CREATE INDEX account_k ON account USING $1 (k);
		VACUUM ANALYZE account;
	SQL
	output=$(as_account "$bindir/pgbench" -n -c 8 -j 2 -T "$seconds" -D "keys=$2" \
		-f "$work/$4.sql" 2>/dev/null)
	processed=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' <<<"$output")
	failed=$(sed -n 's/^number of failed transactions: \([0-9]*\) .*/\1/p' <<<"$output")
	printf '%-8s %8d %14d %10d %9.2f %%\n' "$1" "$2" "$processed" "$failed" \
		"$(awk -v f="$failed" -v p="$processed" 'BEGIN { print f + p ? 100 * f / (f + p) : 0 }')"
}

printf '%-8s %8s %14s %10s %11s\n' method keys committed failed share
for keys in 1000 20000; do
	for method in btree hash pmhash; do
		measure "$method" "$keys" 10 transaction
	done
done
sql >/dev/null -c 'ALTER SYSTEM RESET max_pred_locks_per_relation' -c 'SELECT pg_reload_conf()'
echo '100 keys that follow each other'
for method in btree hash pmhash; do
	measure "$method" 20000 1 many
done
