-- Latencies of transactions beside a rebuild, for rebuild.sh: a phase is what a
-- transaction has met anything of, so those that a rebuild has held up count for
-- it whenever they end.

CREATE SCHEMA rebuild;

-- a line of pgbench's log; the moment is that of the transaction's end
CREATE UNLOGGED TABLE rebuild.latency (client int, number int8, us int8, script int,
	second int8, fraction int);

-- times in milliseconds, since and lasted in seconds
CREATE TABLE rebuild.phase (rows int8, phase text, since numeric, lasted numeric, transactions int8,
	p50 numeric, p99 numeric, p999 numeric, longest numeric);
CREATE TABLE rebuild.by_second (rows int8, second int, phase text, transactions int8,
	p50 numeric, p99 numeric, p999 numeric, longest numeric);

-- begun, ended: of the rebuild, seconds since 1970
CREATE PROCEDURE rebuild.note(rows int8, begun float8, ended float8) LANGUAGE plpgsql AS $$
DECLARE
	first float8 := (SELECT min(second + fraction / 1e6 - us / 1e6) FROM rebuild.latency);
BEGIN
	CREATE TEMP TABLE done ON COMMIT DROP AS
	SELECT us, at, CASE WHEN at < begun THEN 'before' WHEN at - us / 1e6 > ended THEN 'after'
			ELSE 'during' END AS phase
	FROM (SELECT us, second + fraction / 1e6 AS at FROM rebuild.latency) l;

	INSERT INTO rebuild.phase
	SELECT rows, phase, round((min(at) - first)::numeric, 1), round((max(at) - min(at))::numeric, 1), count(*),
		round(p[1] / 1000.0, 3), round(p[2] / 1000.0, 3), round(p[3] / 1000.0, 3), round(max(us) / 1000.0, 3)
	FROM done JOIN (SELECT phase, percentile_disc(ARRAY[0.5, 0.99, 0.999]) WITHIN GROUP (ORDER BY us) AS p
			FROM done GROUP BY phase) q USING (phase)
	GROUP BY phase, p;

	INSERT INTO rebuild.by_second
	SELECT rows, floor(at - first), min(phase), count(*),
		round(p[1] / 1000.0, 3), round(p[2] / 1000.0, 3), round(p[3] / 1000.0, 3), round(max(us) / 1000.0, 3)
	FROM done JOIN (SELECT floor(at - first) AS s, percentile_disc(ARRAY[0.5, 0.99, 0.999]) WITHIN GROUP (ORDER BY us) AS p
			FROM done GROUP BY 1) q ON q.s = floor(at - first)
	GROUP BY floor(at - first), p;
	TRUNCATE rebuild.latency;
END $$;
