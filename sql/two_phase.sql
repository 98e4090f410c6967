--
-- Two-phase commit.  Needs max_prepared_transactions.
--
CREATE TABLE twophase (k int4);
CREATE INDEX twophase_k ON twophase USING pmhash (k);
INSERT INTO twophase SELECT generate_series(1, 1000);

BEGIN;
INSERT INTO twophase SELECT generate_series(1001, 2000);
DELETE FROM twophase WHERE k <= 100;
PREPARE TRANSACTION 'rows';
SELECT * FROM every_key('twophase', 'k', 'twophase_k');
COMMIT PREPARED 'rows';
SELECT * FROM every_key('twophase', 'k', 'twophase_k');

BEGIN;
INSERT INTO twophase SELECT generate_series(2001, 3000);
PREPARE TRANSACTION 'rows';
ROLLBACK PREPARED 'rows';
VACUUM twophase;
SELECT * FROM every_key('twophase', 'k', 'twophase_k');

-- an index created, and dropped
BEGIN;
CREATE TABLE twophase_new (k int4);
INSERT INTO twophase_new SELECT generate_series(1, 100);
CREATE INDEX twophase_new_k ON twophase_new USING pmhash (k);
PREPARE TRANSACTION 'create';
COMMIT PREPARED 'create';
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');
INSERT INTO twophase_new SELECT generate_series(1, 100);
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');

BEGIN;
DROP INDEX twophase_new_k;
PREPARE TRANSACTION 'drop';
ROLLBACK PREPARED 'drop';
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');
BEGIN;
REINDEX INDEX twophase_new_k;
PREPARE TRANSACTION 'reindex';
ROLLBACK PREPARED 'reindex';
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');
BEGIN;
REINDEX INDEX twophase_new_k;
INSERT INTO twophase_new SELECT generate_series(201, 300);
PREPARE TRANSACTION 'reindex';
COMMIT PREPARED 'reindex';
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');
BEGIN;
TRUNCATE twophase_new;
INSERT INTO twophase_new SELECT generate_series(1, 10);
PREPARE TRANSACTION 'truncate';
COMMIT PREPARED 'truncate';
SELECT * FROM every_key('twophase_new', 'k', 'twophase_new_k');
BEGIN;
CREATE INDEX twophase_abort ON twophase_new USING pmhash (k);
PREPARE TRANSACTION 'create';
ROLLBACK PREPARED 'create';
SELECT count(*) FROM pg_class WHERE relname = 'twophase_abort';
BEGIN;
DROP INDEX twophase_new_k;
PREPARE TRANSACTION 'drop';
COMMIT PREPARED 'drop';
SELECT count(*) FROM pg_class WHERE relname = 'twophase_new_k';

DROP TABLE twophase, twophase_new;
