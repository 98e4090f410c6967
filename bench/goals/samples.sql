--
-- samples.sql: where the figures of bench/run.sh go
--
-- Needs lib/measure.sql.  A figure is taken once in each round; the report
-- makes medians of them.
--
CREATE TABLE bench.sample
(
	round	int NOT NULL,
	method	text NOT NULL,
	metric	text NOT NULL,
	value	double precision NOT NULL,
	PRIMARY KEY (round, method, metric)
);

CREATE FUNCTION bench.sample(round int, method text, metric text, value double precision)
RETURNS void LANGUAGE sql AS
$$
	INSERT INTO bench.sample VALUES ($1, $2, $3, $4);
$$;

-- Plans that use the index, or none.
CREATE FUNCTION bench.force_index(forced boolean)
RETURNS void LANGUAGE sql AS
$$
	SELECT set_config(name, 'off', false)
	FROM unnest(ARRAY['enable_seqscan', 'enable_hashjoin', 'enable_mergejoin',
					  'enable_memoize', 'enable_material', 'pmhash.enable_join']) AS name
	WHERE forced;
	SELECT set_config('max_parallel_workers_per_gather', '0', false);
$$;

--
-- The seconds that a VACUUM of a table spends in its index, by the phases
-- that it tells of: called in another session before it begins, returns when
-- a row of bench.vacuumed says that it is over.
--
CREATE TABLE bench.vacuumed (relation regclass);

CREATE FUNCTION bench.watch_vacuum(watched regclass)
RETURNS double precision LANGUAGE plpgsql AS
$$
DECLARE
	seen timestamptz;
	previous text;
	phase text;
	spent double precision := 0;
BEGIN
	LOOP
		PERFORM pg_stat_clear_snapshot();
		SELECT p.phase INTO phase FROM pg_stat_progress_vacuum AS p WHERE p.relid = watched;
		IF previous IN ('vacuuming indexes', 'cleaning up indexes') THEN
			spent := spent + bench.since(seen);
		END IF;
		seen := clock_timestamp();
		previous := phase;
		EXIT WHEN EXISTS (SELECT FROM bench.vacuumed);
		PERFORM pg_sleep(0.001);
	END LOOP;
	DELETE FROM bench.vacuumed;
	RETURN spent;
END
$$;

-- Wait until another session is at bench.watch_vacuum.
CREATE PROCEDURE bench.await_watcher() LANGUAGE plpgsql AS
$$
BEGIN
	FOR i IN 1 .. 6000 LOOP
		PERFORM pg_stat_clear_snapshot();
		IF EXISTS (SELECT FROM pg_stat_activity
				   WHERE query LIKE '%bench.watch_vacuum(%' AND state = 'active'
						AND pid <> pg_backend_pid()) THEN
			RETURN;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RAISE EXCEPTION 'no session watches';
END
$$;
