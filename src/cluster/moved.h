/*-------------------------------------------------------------------------
 *
 * moved.h
 *	  Tables and indexes that this transaction has given other files.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_MOVED_H
#define PMHASH_MOVED_H

#include "nodes/pg_list.h"
#include "storage/buf.h"

#include "cluster/cluster.h"
#include "cluster/stub.h"

/* A main fork that an index has had in this transaction, of one that is not temporary. */
typedef struct PmhashLeftFork
{
	SubTransactionId subid;		/* its abort makes it the present one again, or one
								 * that was left before it */
	PmhashNode	node;
	Oid			heap;			/* its table: a file stays with that */
	bool		permanent;		/* else unlogged */
} PmhashLeftFork;

/* An index file with entries of rows that an abort takes away without a trace. */
typedef struct PmhashMoved
{
	SubTransactionId subid;		/* whose abort gives the table its old files back */
	bool		taken_back;		/* that has come; subid is InvalidSubTransactionId */
	bool		permanent;		/* else unlogged, if not temporary */
	uint16		flags;			/* PMHASH_STUB_FILLED, if the stub said so before */
	uint64		file_id;
	Oid			heap;
	Oid			index;
	Buffer		stub;			/* from pre-commit on: pinned, or InvalidBuffer */
} PmhashMoved;

extern void pmhash_moved_note_fork(Oid relid);
extern List *pmhash_left_forks(void);
extern List *pmhash_moved_files(void);
extern PmhashMoved *pmhash_moved_add(uint64 file_id, SubTransactionId subid,
									 bool temporary);
extern PmhashMoved *pmhash_moved_find(uint64 file_id, SubTransactionId subid,
									  bool temporary);
extern bool pmhash_moved_stands(uint64 file_id);
extern void pmhash_moved_stub(Relation index, PmhashStub *stub);
extern bool pmhash_moved_level_aborted(SubTransactionId subid);
extern void pmhash_moved_level_committed(SubTransactionId subid,
										 SubTransactionId parent);
extern bool pmhash_moved_over(bool committed);

#endif							/* PMHASH_MOVED_H */
