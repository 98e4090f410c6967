--
-- Two-phase commit.  Without max_prepared_transactions transactions end without
-- being prepared, with the same results.
--
SELECT current_setting('max_prepared_transactions')::int > 0 AS two_phase \gset
CREATE TABLE twophase (k int4);
CREATE INDEX twophase_k ON twophase USING pmhash (k);
INSERT INTO twophase SELECT generate_series(1, 1000);

BEGIN;
INSERT INTO twophase SELECT generate_series(1001, 2000);
DELETE FROM twophase WHERE k <= 100;
\if :two_phase
PREPARE TRANSACTION 'rows';
\else
ROLLBACK;
\endif
SELECT * FROM every_key('twophase', 'k', 'twophase_k');
\if :two_phase
COMMIT PREPARED 'rows';
\else
INSERT INTO twophase SELECT generate_series(1001, 2000);
DELETE FROM twophase WHERE k <= 100;
\endif
SELECT * FROM every_key('twophase', 'k', 'twophase_k');

BEGIN;
INSERT INTO twophase SELECT generate_series(2001, 3000);
\if :two_phase
PREPARE TRANSACTION 'rows';
ROLLBACK PREPARED 'rows';
\else
ROLLBACK;
\endif
VACUUM twophase;
SELECT * FROM every_key('twophase', 'k', 'twophase_k');

-- an index created, and dropped
BEGIN;
CREATE TABLE twophase_new (k int4);
INSERT INTO twophase_new SELECT generate_series(1, 100);
CREATE INDEX twophase_new_k ON twophase_new USING pmhash (k);
\if :two_phase
PREPARE TRANSACTION 'create';
COMMIT PREPARED 'create';
\else
COMMIT;
\endif
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');
INSERT INTO twophase_new SELECT generate_series(1, 100);
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');

BEGIN;
DROP INDEX twophase_new_k;
\if :two_phase
PREPARE TRANSACTION 'drop';
ROLLBACK PREPARED 'drop';
\else
ROLLBACK;
\endif
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');
BEGIN;
REINDEX INDEX twophase_new_k;
\if :two_phase
PREPARE TRANSACTION 'reindex';
ROLLBACK PREPARED 'reindex';
\else
ROLLBACK;
\endif
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');
BEGIN;
REINDEX INDEX twophase_new_k;
INSERT INTO twophase_new SELECT generate_series(201, 300);
\if :two_phase
PREPARE TRANSACTION 'reindex';
COMMIT PREPARED 'reindex';
\else
COMMIT;
\endif
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');
BEGIN;
TRUNCATE twophase_new;
INSERT INTO twophase_new SELECT generate_series(1, 10);
\if :two_phase
PREPARE TRANSACTION 'truncate';
COMMIT PREPARED 'truncate';
\else
COMMIT;
\endif
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');
BEGIN;
CREATE INDEX twophase_abort ON twophase_new USING pmhash (k);
\if :two_phase
PREPARE TRANSACTION 'create';
ROLLBACK PREPARED 'create';
\else
ROLLBACK;
\endif
SELECT count(*) FROM pg_class WHERE relname = 'twophase_abort';
BEGIN;
DROP INDEX twophase_new_k;
\if :two_phase
PREPARE TRANSACTION 'drop';
COMMIT PREPARED 'drop';
\else
COMMIT;
\endif
SELECT count(*) FROM pg_class WHERE relname = 'twophase_new_k';

DROP TABLE twophase, twophase_new;
