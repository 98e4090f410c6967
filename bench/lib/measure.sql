--
-- measure.sql: how a figure is taken and an answer is checked
--
-- Everything stands in the schema "bench" of the throw-away cluster.  A
-- figure is a row of bench.result; what it means is a row of bench.metric.
--
CREATE SCHEMA bench;

-- The columns of the table that is printed, in this order.
CREATE TABLE bench.method
(
	position	int NOT NULL,
	method		text PRIMARY KEY
);

-- The rows of the table that is printed.  unit: s, us, bytes, tps.  charted: with
-- bars, too.
CREATE TABLE bench.metric
(
	position	int GENERATED ALWAYS AS IDENTITY,
	metric		text PRIMARY KEY,
	label		text NOT NULL,
	unit		text NOT NULL CHECK (unit IN ('s', 'us', 'bytes', 'tps')),
	charted		bool NOT NULL
);

CREATE TABLE bench.result
(
	method		text REFERENCES bench.method,
	metric		text REFERENCES bench.metric,
	value		double precision NOT NULL,
	PRIMARY KEY (method, metric)
);

-- What the first method that was asked has answered to a question.
CREATE TABLE bench.answer
(
	question	text PRIMARY KEY,
	method		text NOT NULL,
	answer		text NOT NULL,
	confirmed	int NOT NULL DEFAULT 0
);

CREATE FUNCTION bench.record(method text, metric text, value double precision)
RETURNS void LANGUAGE sql AS
$$
	INSERT INTO bench.result VALUES ($1, $2, $3);
$$;

-- Seconds since a moment.
CREATE FUNCTION bench.since(moment timestamptz)
RETURNS double precision LANGUAGE sql AS
$$
	SELECT extract(epoch FROM clock_timestamp() - moment)::double precision;
$$;

--
-- Seconds that this backend has been on a processor.  For queries that wait
-- for nothing it advances as the clock does, but not while other programs
-- have the processor.  Linux brings the figure up to date when the process
-- leaves the processor, hence the sleep.  Where it does not tell, it is the
-- clock.
--
CREATE FUNCTION bench.processor_time()
RETURNS double precision LANGUAGE sql AS
$$
	SELECT pg_sleep(0.001);
	SELECT coalesce(split_part(pg_read_file('/proc/self/schedstat', 0, 100, true),
							   ' ', 1)::double precision / 1e9,
					extract(epoch FROM clock_timestamp())::double precision);
$$;

-- Pseudo-random keys: one sequence of distinct bigints for each stream.
CREATE FUNCTION bench.key(n bigint, stream int)
RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$
	SELECT hashint8extended(n, stream);
$$;

-- Pseudo-random numbers from 1 to "most".
CREATE FUNCTION bench.pick(n bigint, stream int, most bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$
	SELECT 1 + (hashint8extended(n, stream) & x'7fffffffffffffff'::bigint) % most;
$$;

--
-- All methods must give the same answer to the same question.  The first one
-- asked is a sequential scan.
--
CREATE FUNCTION bench.confirm(method text, question text, answer text)
RETURNS void LANGUAGE plpgsql AS
$$
DECLARE
	known bench.answer;
BEGIN
	IF answer IS NULL THEN
		RAISE EXCEPTION '% gives no answer to "%"', method, question;
	END IF;
	SELECT * INTO known FROM bench.answer AS a WHERE a.question = confirm.question;
	IF NOT FOUND THEN
		INSERT INTO bench.answer VALUES (question, method, answer);
	ELSIF known.answer = confirm.answer THEN
		UPDATE bench.answer AS a SET confirmed = confirmed + 1
			WHERE a.question = confirm.question;
	ELSE
		RAISE EXCEPTION 'WRONG ANSWER: % and % disagree', method, known.method
			USING DETAIL = format('To "%s" %s says "%s" and %s says "%s".',
								  question, method, answer,
								  known.method, known.answer);
	END IF;
END
$$;

--
-- Raise an error unless the plan of a query uses an index (NULL: unless it
-- uses none).  Settings that force a plan only make others expensive; a
-- figure of another plan would be worthless.
--
CREATE FUNCTION bench.require_plan(query text, index text)
RETURNS void LANGUAGE plpgsql AS
$$
DECLARE
	line text;
	plan text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		plan := plan || line || E'\n';
	END LOOP;
	IF index IS NULL AND plan ~ 'Index' OR
	   index IS NOT NULL AND plan !~ ('(using |on |Index Name: )' || index || '\M') THEN
		RAISE EXCEPTION 'the plan does not use %', coalesce(index, 'a sequential scan')
			USING DETAIL = plan;
	END IF;
END
$$;

--
-- Ask a query and confirm its answer; tell how many seconds of the processor
-- it took.  The query returns one text, the answer.
--
CREATE FUNCTION bench.ask(method text, question text, query text, index text)
RETURNS double precision LANGUAGE plpgsql AS
$$
DECLARE
	started double precision;
	spent double precision;
	answer text;
BEGIN
	PERFORM bench.require_plan(query, index);
	started := bench.processor_time();
	EXECUTE query INTO answer;
	spent := bench.processor_time() - started;
	PERFORM bench.confirm(method, question, answer);
	RETURN spent;
END
$$;

--
-- Ask "runs" times and tell the median of the seconds.  "{run}" in the query
-- and in the question stands for the number of the run, so that each run can
-- use keys of its own: a repeated one would find its lines in the processor's
-- cache.  No further run is begun when "patience" seconds are over.
--
CREATE FUNCTION bench.median_time(method text, question text, query text,
								  index text, runs int,
								  patience double precision)
RETURNS double precision LANGUAGE plpgsql AS
$$
DECLARE
	spent double precision[] := '{}';
	total double precision := 0;
BEGIN
	FOR run IN 1 .. runs LOOP
		spent := spent || bench.ask(method, replace(question, '{run}', run::text),
									replace(query, '{run}', run::text), index);
		total := total + spent[run];
		EXIT WHEN total > patience;
	END LOOP;
	RETURN (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY s) FROM unnest(spent) AS s);
END
$$;

-- Insert the rows of each run; the median of the seconds that took.
CREATE FUNCTION bench.median_insert_time(runs int)
RETURNS double precision LANGUAGE plpgsql AS
$$
DECLARE
	started timestamptz;
	spent double precision[] := '{}';
BEGIN
	FOR run IN 1 .. runs LOOP
		started := clock_timestamp();
		EXECUTE format('INSERT INTO bench.item SELECT k, v FROM bench.fresh_%s', run);
		spent := spent || bench.since(started);
	END LOOP;
	RETURN (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY s) FROM unnest(spent) AS s);
END
$$;

-- Bytes of an index: pmhash keeps only a stub page where PostgreSQL looks.
CREATE FUNCTION bench.index_bytes(index regclass)
RETURNS bigint LANGUAGE plpgsql AS
$$
BEGIN
	IF (SELECT a.amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam
		WHERE c.oid = index) = 'pmhash' THEN
		RETURN pmhash.size(index);
	END IF;
	RETURN pg_relation_size(index);
END
$$;

--
-- Bytes per entry of an index while it grows from nothing to "entries"
-- random keys: the average over "steps" equal steps.
--
CREATE FUNCTION bench.size_while_growing(method text, entries bigint, steps int)
RETURNS double precision LANGUAGE plpgsql AS
$$
DECLARE
	total double precision := 0;
BEGIN
	CREATE TABLE bench.growing (k bigint);
	EXECUTE format('CREATE INDEX growing_index ON bench.growing USING %I (k)', method);
	FOR step IN 1 .. steps LOOP
		INSERT INTO bench.growing
			SELECT bench.key(n, 1)
			FROM generate_series(1 + (step - 1) * entries / steps, step * entries / steps) AS n;
		total := total + bench.index_bytes('bench.growing_index') /
			(step * entries / steps)::double precision;
	END LOOP;
	DROP TABLE bench.growing;
	RETURN total / steps;
END
$$;
