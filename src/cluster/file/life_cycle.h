/*-------------------------------------------------------------------------
 *
 * life_cycle.h
 *	  Index files follow the transactions that make and drop them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_LIFE_CYCLE_H
#define PMHASH_LIFE_CYCLE_H

#include "cluster/cluster.h"

extern void pmhash_note_drop(Oid relid);
extern void pmhash_note_database_drop(Oid database);
extern void pmhash_note_database(Oid database);
extern void pmhash_pending_create(const char *path, Relation index);
extern bool pmhash_pending_created(Relation index, char *path);
extern void pmhash_pending_keep(const char *path);
extern bool pmhash_goes_with_table(const char *path, Relation heap);
extern void pmhash_rebuild_at_end(void);
extern void pmhash_fork_replaced(void);
extern void pmhash_request_cleaning_at_commit(void);
extern void pmhash_files_before_commit(void);
extern void pmhash_files_committed(void);
extern void pmhash_files_prepared(void);
extern void pmhash_files_aborted(int level);
extern void pmhash_files_over(void);
extern void pmhash_files_to_parent(int level, SubTransactionId subid,
								   SubTransactionId parent);

#endif							/* PMHASH_LIFE_CYCLE_H */
