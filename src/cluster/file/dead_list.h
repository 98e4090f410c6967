/*-------------------------------------------------------------------------
 *
 * dead_list.h
 *	  Shared lists of entries that are known to be dead and not removed yet.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_DEAD_LIST_H
#define PMHASH_DEAD_LIST_H

#include "cluster/cluster.h"

/* What waits in the list of a file at some moment. */
typedef struct PmhashDeadWaiting
{
	int			n;				/* entries, at least one */
	int64		since;			/* when the first was noted; pmhash_clock_coarse */
	XLogRecPtr	lsn;			/* what it waits for, and ... */
	XLogRecPtr	end;			/* ... the end of all WAL at that time */
	XLogRecPtr	last;			/* what the last one waits for */
	XLogRecPtr	requested;		/* the flush that has been requested */
} PmhashDeadWaiting;

/* What a session is removing of the entries of a file. */
typedef struct PmhashDeadBatch
{
	PmhashFile *file;
	uint64		epoch;			/* removal epoch of the entries' reading */
	PmhRemoval	removal;
	PmhEntry   *known;			/* of the file's list, known to be dead */
	int			nknown;
} PmhashDeadBatch;

extern Size pmhash_dead_lists_size(void);
extern void pmhash_dead_lists_init(void);
extern int	pmhash_dead_list_room(const PmhashFile *file, uint64 epoch);
extern void pmhash_dead_list_add(const PmhashFile *file, uint64 epoch,
								 XLogRecPtr lsn, XLogRecPtr end,
								 const PmhEntry *entries, int n);
extern bool pmhash_dead_list_look(const PmhashFile *file, PmhashDeadWaiting *waiting);
extern void pmhash_dead_list_requested(const PmhashFile *file, XLogRecPtr lsn);
extern int	pmhash_dead_list_take(const PmhashFile *file,
								  XLogRecPtr flushed, XLogRecPtr *noted,
								  PmhEntry *entries, int room, uint64 *epoch);
extern void pmhash_dead_list_forget(const PmhashFile *file, uint64 epoch,
									const PmhEntry *entries, int n);

extern PmhashDeadBatch *pmhash_dead_batch(const PmhashFile *file);
extern void pmhash_dead_batch_keep(PmhashDeadBatch *batch);
extern void pmhash_dead_batch_drop(const PmhashFile *file);

#endif							/* PMHASH_DEAD_LIST_H */
