/*-------------------------------------------------------------------------
 *
 * standby_state.h
 *	  Logged indexes on a server in recovery: the table of their files, in shared memory
 *	  and in the pool; which file is in which state.
 *
 * Include postgres.h first.  src/README, "Standbys", has the rules S1 to S7.
 *
 * A file is known by its id.  Its state is under PMHASH_STANDBY_LOCK, held shared
 * by the startup process while it applies a record and exclusively by a process
 * that changes a state:
 *   NONE	records are dropped; a file that is not in the table is NONE
 *   DELTA	records are appended to <id>.delta; a builder is at work, and fills the file
 *   LIVE	records are applied; scans may use it (pmhash_standby_serves)
 *
 * None of these functions raises an ERROR while it holds the lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STANDBY_STATE_H
#define PMHASH_STANDBY_STATE_H

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"

typedef enum PmhashStandbyStatus
{
	PMHASH_STANDBY_NONE,
	PMHASH_STANDBY_DELTA,
	PMHASH_STANDBY_LIVE
} PmhashStandbyStatus;

#ifndef PMHASH_STANDBY_FILES	/* that it knows of; those that find no row are NONE */
#define PMHASH_STANDBY_FILES	4096	/* fewer in tests with stop points */
#endif

/* A file.  status and what goes with it change under the lock, exclusively. */
typedef struct PmhashStandbyRow
{
	uint64		file_id;		/* 0: a free row */
	Oid			database;
	PmhashStandbyStatus status;
	bool		restored;		/* LIVE since before this server life: of the
								 * record that ends at 'begun' it may have a part */
	XLogRecPtr	begun;
	TimeLineID	noted_timeline; /* of the last record that its header has noted */
	Oid			heap;			/* the table, or InvalidOid: not known */
	Oid			index;			/* that it was made for: it may be another one's by now */
	TimeLineID	timeline;		/* of the primary under which it was made (S4) */
	uint64		life;			/* changes with each change of status */
	FullTransactionId usable_xmin;	/* of snapshots; 0: of all */

	/* if DELTA */
	pg_atomic_uint64 delta_ops; /* complete operations in <id>.delta */
	TransactionId xid;			/* the builder's, without a lock, for views: waits for it, */
	uint64		done;			/* or has scanned so many blocks of the table */
	uint64		total;
} PmhashStandbyRow;

typedef struct PmhashStandby
{
	bool		active;			/* this run is, or was, a standby's with a pool */
	bool		newer;			/* the primary writes what we do not know */
	pg_atomic_uint64 changes;	/* steps with each change of a status */
	pg_atomic_uint64 applied;	/* the end of the last record of RM_XLOG_ID that LIVE
								 * files have something of, here or in the life before */
	TimeLineID	applied_timeline;
	TimeLineID	replay_timeline;	/* of the last record of RM_XLOG_ID replayed */

	/* Of the files that are 'restored': not used before it is reached (S3). */
	XLogRecPtr	last_begun;		/* the highest 'begun', and its timeline */
	TimeLineID	last_timeline;
	pg_atomic_uint32 reached;

	pg_atomic_uint64 usable_xmin;	/* the highest of all files */
	pg_atomic_uint32 full;		/* the log says that there was no free row */
	uint64		lives;			/* what life and build are drawn from */

	uint64		id[PMHASH_STANDBY_FILES];	/* file_id of each row, to search: a file is in
											 * the first one that was free, from the
											 * place on that its id gives */
	PmhashStandbyRow row[PMHASH_STANDBY_FILES];
} PmhashStandby;

#define pmhash_standby_lock		pmhash_lwlock(PMHASH_STANDBY_LOCK)

extern bool pmhash_standby_is_active(void);
extern PmhashStandbyRow *pmhash_standby_find(uint64 file_id);
extern PmhashStandbyRow *pmhash_standby_enter(uint64 file_id, Oid database);
extern void pmhash_standby_set_status(PmhashStandbyRow *row, PmhashStandbyStatus status);
extern FullTransactionId pmhash_standby_widen(TransactionId xid);
extern void pmhash_standby_raise_usable_xmin(PmhashStandbyRow *row, FullTransactionId xmin);
extern bool pmhash_standby_reached(void);
extern uint64 pmhash_standby_life(uint64 file_id);
extern bool pmhash_standby_look(uint64 file_id, PmhashStandbyRow *copy);
extern void pmhash_standby_delta_path(Oid database, uint64 file_id, char *path);
extern bool pmhash_standby_remove(const char *path);
extern bool pmhash_standby_note(const char *path, PmhashStandbyRow *row,
								XLogRecPtr begun, TimeLineID timeline);
extern PmhResult pmhash_standby_note_begun(PmhTable *table, PmhashStandbyRow *row,
										   XLogRecPtr end, TimeLineID timeline);
extern bool pmhash_standby_load(PmhashStandbyStart how,
								const PmhashServerState *server, char *reason);
extern void pmhash_standby_remove_deltas(void);

/* ---- scans ---- */

extern bool pmhash_standby_serves(uint64 file_id, uint64 life, Snapshot snapshot);
extern bool pmhash_standby_fits_promoted(uint64 file_id, Snapshot snapshot);

#endif							/* PMHASH_STANDBY_STATE_H */
