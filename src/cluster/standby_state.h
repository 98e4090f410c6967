/*-------------------------------------------------------------------------
 *
 * standby_state.h
 *	  Private to standby*.c: the table of files of a server in recovery, in shared
 *	  memory and in the pool.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STANDBY_STATE_H
#define PMHASH_STANDBY_STATE_H

#include "access/xlogreader.h"

#include "cluster/cluster.h"
#include "cluster/control_file.h"
#include "cluster/shared.h"
#include "cluster/standby.h"
#include "cluster/stub.h"

#ifndef PMHASH_STANDBY_FILES	/* that it knows of; those that find no row are NONE */
#define PMHASH_STANDBY_FILES	4096	/* fewer in tests with stop points */
#endif

/* A file.  status and what goes with it change under the lock, exclusively. */
typedef struct PmhashStandbyRow
{
	uint64		file_id;		/* 0: a free row */
	Oid			database;
	PmhashStandbyStatus status;
	bool		wanted;			/* if NONE: a build would be welcome */
	bool		restored;		/* LIVE since before this server life: it has all
								 * records up to 'applied', and may have something of
								 * the one that ends at 'begun' */
	XLogRecPtr	applied;
	XLogRecPtr	begun;
	TimeLineID	noted_timeline; /* of the last record that its header has noted */
	Oid			heap;			/* the table, or InvalidOid: not known */
	TimeLineID	timeline;		/* of the primary under which it was made (S4); 0: this
								 * server itself.  Then heap says whether its index is
								 * known to be logged */
	uint64		life;			/* changes with each change of status */
	FullTransactionId usable_xmin;	/* if LIVE; 0: for all snapshots */
	FullTransactionId removed_xmin; /* the same for those that may have been taken over:
									 * by what has been removed since.  The startup
									 * process raises it with the lock held shared */
	bool		swept;			/* if restored: what is free in it has been looked
								 * for, or that is under way (standby_sweep.c) */

	/* if DELTA */
	uint64		build;			/* its number */
	pg_atomic_uint64 delta_ops; /* complete operations in <id>.delta */
	TransactionId delta_horizon;	/* the highest of its deletes, or 0 */
	PmhashStandbyPhase phase;	/* the builder's, without a lock, for views */
	TransactionId xid;
	uint64		done;
	uint64		total;

	/* if NONE */
	int			failures;		/* in a row */
	int			sqlstate;		/* of the last one */
	int64		next_try;		/* pmhash_clock_ms */
	int			looks;			/* for its index, in vain, since WAL announced it */
	int64		next_look;
	char		message[PMHASH_KEPT_MESSAGE];
} PmhashStandbyRow;

typedef struct PmhashStandby
{
	bool		active;			/* this run is, or was, a standby's with a pool */
	bool		newer;			/* the primary writes what we do not know */
	pg_atomic_uint64 changes;	/* steps whenever a file stops or begins being LIVE,
								 * or a row gets another file */
	pg_atomic_uint64 applied;	/* the end of the last record of RM_XLOG_ID that LIVE
								 * files have, here or in the life before */
	TimeLineID	applied_timeline;
	TimeLineID	replay_timeline;	/* of the last record of RM_XLOG_ID replayed */

	/* Of the files that are 'restored': not used before it is reached (S3). */
	XLogRecPtr	last_applied;	/* the highest 'applied' of them */
	XLogRecPtr	last_begun;		/* the highest 'begun', and its timeline */
	TimeLineID	last_timeline;
	pg_atomic_uint32 reached;

	bool		complete;		/* recovery is over; LIVE files have all of it */

	pg_atomic_uint32 slot_wanted;	/* a build waits for a worker: sweepers end */
	pg_atomic_uint32 full;		/* the log says that there was no free row */
	uint64		lives;			/* what life and build are drawn from */

	uint64		id[PMHASH_STANDBY_FILES];	/* file_id of each row, to search */
	PmhashStandbyRow row[PMHASH_STANDBY_FILES];
} PmhashStandby;

#define pmhash_standby_lock		pmhash_lwlock(PMHASH_STANDBY_LOCK)

static inline bool
pmhash_standby_is_to_be_swept(const PmhashStandbyRow *row)
{
	return row->status == PMHASH_STANDBY_LIVE && row->restored && !row->swept;
}

/* ---- standby.c ---- */
extern Size pmhash_standby_shmem_size(void);
extern void pmhash_standby_shmem_init(void);
extern void pmhash_standby_reset(void);
extern bool pmhash_standby_is_active(void);
extern PmhashStandbyRow *pmhash_standby_find(uint64 file_id);
extern PmhashStandbyRow *pmhash_standby_enter(uint64 file_id, Oid database);
extern void pmhash_standby_lose(PmhashStandbyRow *row, bool wanted, int sqlstate,
								const char *why);
extern void pmhash_standby_lose_all(bool restored_only, int sqlstate,
									const char *why);
extern void pmhash_standby_forget(PmhashStandbyRow *row);
extern void pmhash_standby_set_status(PmhashStandbyRow *row, PmhashStandbyStatus status);
extern void pmhash_standby_note_failure(PmhashStandbyRow *row, int sqlstate,
										const char *why);
extern FullTransactionId pmhash_standby_widen(TransactionId xid);
extern bool pmhash_standby_reached(void);
extern uint64 pmhash_standby_life(uint64 file_id);
extern bool pmhash_standby_still_live(PmhashFile *file);
extern bool pmhash_standby_lost(uint64 file_id, uint64 life, const char *why);
extern bool pmhash_standby_look(uint64 file_id, PmhashStandbyRow *copy);

extern bool pmhash_standby_may_be_unlogged(const PmhashStandbyRow *row);

/* ---- standby_files.c ---- */
extern void pmhash_standby_paths(Oid database, uint64 file_id, char *path,
								 char *new_path, char *delta_path);
extern bool pmhash_standby_note(const char *path, PmhashStandbyRow *row,
								XLogRecPtr applied, XLogRecPtr begun,
								TimeLineID timeline);
extern bool pmhash_standby_note_heap(const PmhashStandbyRow *row);
extern bool pmhash_standby_note_lost(const char *path);
extern PmhResult pmhash_standby_note_begun(PmhTable *table, PmhashStandbyRow *row,
										   XLogRecPtr end, TimeLineID timeline);
extern PmhResult pmhash_standby_note_applied(PmhTable *table, XLogRecPtr end);
extern bool pmhash_standby_load(PmhashStandbyStart how,
								const PmhashServerState *server, char *reason);
extern void pmhash_standby_clear_work(void);
extern bool pmhash_standby_clear_database(Oid database);
extern void pmhash_standby_promote(PmhashControl *control);

/* ---- standby_handles.c ---- */
extern PmhTable *pmhash_standby_open_table(const PmhashStandbyRow *row, char *reason);
extern int	pmhash_standby_open_delta(const PmhashStandbyRow *row, char *reason);
extern void pmhash_standby_handles_at_end_of_record(void);

/* ---- standby_view.c ---- */
extern const char *pmhash_standby_index_state(const PmhashStub *stub, bool details);

/* ---- standby_redo.c ---- */
extern void pmhash_standby_redo_init(void);

#endif							/* PMHASH_STANDBY_STATE_H */
