--
-- load.sql: what is probed for and inserted, the same for every method
--
-- Variables: rows (of the table measured), item_file (where the server keeps
-- them), runs, probes and keys (of a run), fresh (rows inserted in a run),
-- after_checkpoint (rows inserted after a checkpoint).
--
-- Stream 1 holds the keys of the table, stream 2 keys that are not in it,
-- stream 3 chooses what is probed for.
--
COPY (SELECT bench.key(n, 1) AS k, 'v' || n AS v
	  FROM generate_series(1::bigint, :rows) AS n)
	TO :'item_file' (FORMAT binary);

SELECT format('CREATE TABLE bench.probe_%s AS
	SELECT bench.key(bench.pick(n, 3, %s), 1) AS hit, bench.key(n, 2) AS miss
	FROM generate_series(%s::bigint, %s) AS n',
	run, :rows, 1 + (run - 1) * :probes, run * :probes)
FROM generate_series(1, :runs) AS run \gexec

CREATE TABLE bench.key_array AS
	SELECT run, (SELECT array_agg(bench.key(bench.pick(run * 100000000::bigint + n, 3, :rows), 1))
				 FROM generate_series(1, :keys) AS n) AS keys
	FROM generate_series(1, :runs) AS run;

-- "Immutable", so that the planner takes the array for a constant.
CREATE FUNCTION bench.keys(run int) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS
$$
	SELECT keys FROM bench.key_array AS a WHERE a.run = keys.run;
$$;

-- "fresh_0" is what is inserted after a checkpoint.
SELECT format('CREATE TABLE bench.fresh_%s AS
	SELECT bench.key(%s + n, 1) AS k, ''v'' || n AS v
	FROM generate_series(%s::bigint, %s) AS n',
	run, :rows, 1 + run * :fresh, CASE run WHEN 0 THEN :after_checkpoint
		ELSE (run + 1) * :fresh END)
FROM generate_series(0, :runs) AS run \gexec

VACUUM (ANALYZE, FREEZE);
