# Debian: pgbouncer
# pgbouncer with transaction pooling: many clients, few server connections, each
# transaction by another one.

try_pgbouncer()
{
	local port=$((next_port + 500)) bouncer

	make_server bounced "" && make_database shop && make_items || return 1
	cat >"$scratch/pgbouncer.ini" <<-INI
		[databases]
		shop = host=127.0.0.1 port=$PGPORT dbname=shop
		[pgbouncer]
		listen_addr = 127.0.0.1
		listen_port = $port
		unix_socket_dir =
		auth_type = any
		pool_mode = transaction
		default_pool_size = 4
		max_client_conn = 200
		server_lifetime = 2
		logfile = $scratch/pgbouncer.log
		pidfile = $scratch/pgbouncer.pid
	INI
	# (any: every client is the user of the database's line)
	sed -i 's/dbname=shop$/dbname=shop user=postgres/' "$scratch/pgbouncer.ini"
	"$(command -v pgbouncer || echo /usr/sbin/pgbouncer)" "$scratch/pgbouncer.ini" \
		>"$scratch/pgbouncer.out" 2>&1 &
	bouncer=$!
	PGPORT=$port check "it runs" until_is 60 1 "SELECT 1"
	cat >"$scratch/bounced.sql" <<-'SQL'
		\set k random(1, 500)
		\set id random(1, 20000)
		BEGIN;
		SELECT count(*) FROM item WHERE grp = :k;
		SAVEPOINT s;
		UPDATE item SET grp = :k WHERE id = :id;
		SELECT count(*) FROM item WHERE sku = 'sku-' || md5(:id::text);
		ROLLBACK TO s;
		UPDATE item SET price = 900 + :k % 100 WHERE id = :id;
		END;
	SQL
	check "transactions of 40 clients over 4 connections" "$bindir/pgbench" -p "$port" -n -c 40 -j 2 \
		-t 100 -f "$scratch/bounced.sql" shop
	check "no more than 4 connections" is_at_most 4 \
		"SELECT count(*) FROM pg_stat_activity WHERE datname = 'shop' AND pid <> pg_backend_pid()"
	kill "$bouncer"
	wait "$bouncer" 2>/dev/null
	same_answers "after it"
	stop_server bounced
}

is_at_most()				# number statement
{
	[ "$(value "$2")" -le "$1" ]
}
