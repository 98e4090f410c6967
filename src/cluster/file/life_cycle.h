/*-------------------------------------------------------------------------
 *
 * life_cycle.h
 *	  Index files follow the transactions and sessions that make and drop them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_LIFE_CYCLE_H
#define PMHASH_LIFE_CYCLE_H

#include "nodes/parsenodes.h"

#include "cluster/cluster.h"

/* ---- life_cycle.c ---- */
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

/* ---- session_files.c ---- */
extern void pmhash_session_file_made(const PmhashFile *file, Relation index);
extern bool pmhash_session_file_of(Relation index, char *path);
extern void pmhash_unlink(const char *path);
extern void pmhash_remove_file(const char *path);
extern void pmhash_session_file_replaced(Oid heap);
extern void pmhash_session_files_look(void (*look) (const char *path, Oid heap,
													uint64 file_id));

/* ---- new_database.c ---- */
extern void pmhash_remove_dropped(Oid database);
extern void pmhash_note_statement(const Node *statement);
extern void pmhash_database_is_new(Oid database);

#endif							/* PMHASH_LIFE_CYCLE_H */
