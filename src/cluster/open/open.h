/*-------------------------------------------------------------------------
 *
 * open.h
 *	  Index files found, opened and made; what is wrong with an index, and making it known.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_OPEN_H
#define PMHASH_OPEN_H

#include "cluster/cluster.h"
#include "cluster/wal/stub.h"

/* ---- file_open.c ---- */
extern PmhashReason pmhash_index_doubt(Relation index, bool *pmem);
extern bool pmhash_index_plannable(Relation index, bool *later);
extern bool pmhash_stub_wants_look(const PmhashStub *stub);
extern PmhashFile *pmhash_file_open_filling(Relation index, uint64 file_id);
extern int64 pmhash_inode_bytes(const PmhInode *inode);

/* ---- file_create.c ---- */
extern uint64 pmhash_file_begin_filling(Relation index);

/* ---- invalid.c ---- */
pg_noreturn extern void pmhash_file_error(Relation index, const char *path,
										  const char *what,
										  const PmhError *error);
extern PmhashReason pmhash_reason_of(const PmhError *error);
/*
 * Why an index can't be opened: its file is not to be used, now and in future
 * (reason), or something that may pass is in the way (reason NONE, error).
 */
typedef struct PmhashTrouble
{
	PmhashReason reason;
	PmhError	error;			/* of the engine, or code PMH_OK */
	uint64		file_id;		/* that the stub named when it was read, or 0 */
	uint64		standby_life;	/* of that which was LIVE when it was looked at, or 0 */
	bool		marked;			/* the stub said that it is invalid */
	char		path[MAXPGPATH];	/* of the file, or empty */
} PmhashTrouble;

extern bool pmhash_enforces_constraint(Relation index);
pg_noreturn extern void pmhash_raise_trouble(Relation index,
											 const PmhashTrouble *trouble);
pg_noreturn extern void pmhash_raise_younger(Relation index);
extern bool pmhash_table_is_moved(Relation index);
extern void pmhash_mark_invalid(Relation index, uint64 file_id, uint64 standby_life,
								PmhashReason reason);
extern void pmhash_notice_invalid(Relation index, const PmhashTrouble *trouble);
extern const char *pmhash_reason_text(PmhashReason reason);

/* ---- planner_hook.c ---- */

/* If it is set, plans have no other index, of any table (pmhash.explain). */
extern Oid	pmhash_only_index;

extern void pmhash_planner_hook_init(void);

/* ---- dead_entries.c ---- */
extern long pmhash_flush_for_scans(void);

#endif							/* PMHASH_OPEN_H */
