/*-------------------------------------------------------------------------
 *
 * invalid.h
 *	  Invalid indexes: why they are, and making it known.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_INVALID_H
#define PMHASH_INVALID_H

#include "cluster/cluster.h"

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
pg_noreturn extern void pmhash_raise_younger(Relation index, bool fit);
extern bool pmhash_table_is_moved(Relation index);
extern void pmhash_mark_invalid(Relation index, uint64 file_id, uint64 standby_life,
								PmhashReason reason);
extern void pmhash_notice_invalid(Relation index, const PmhashTrouble *trouble);
extern const char *pmhash_reason_text(PmhashReason reason);

#endif							/* PMHASH_INVALID_H */
