/*-------------------------------------------------------------------------
 *
 * logged.h
 *	  Logged indexes on a primary: which files are, and what their users write.
 *
 * Include postgres.h first.  src/README, "Standbys", has the rules P1 to P6.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_LOGGED_H
#define PMHASH_LOGGED_H

#include "access/xlogdefs.h"

#include "cluster/cluster.h"
#include "cluster/wal/dead_tids.h"

/*
 * Insert up to PMHASH_WAL_MAX_ENTRIES entries into a logged file, and log those that
 * are in (P1).  *done: how many those are.  Result as of pmh_insert_group; the
 * caller has made its journal notes.
 */
extern PmhResult pmhash_insert_and_log(PmhashFile *file, const PmhEntry *entries,
									   int n, size_t *done);

/* ---- for the cluster layer ---- */

extern bool pmhash_wants_wal(Relation index);
extern void pmhash_tell_of_wal(Relation index);
extern XLogRecPtr pmhash_log_dead_tids(const PmhashFile *file, const PmhashDeadTids *set);
extern XLogRecPtr pmhash_log_deletes(const PmhashFile *file, TransactionId horizon,
									 const PmhEntry *entries, int n);
extern bool pmhash_conflict_horizon(Relation heap, const PmhEntry *entries, int n,
									TransactionId *horizon);

#endif							/* PMHASH_LOGGED_H */
