/*-------------------------------------------------------------------------
 *
 * older_snapshots.h
 *	  Waiting for transactions that have an older snapshot; see older_snapshots.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_OLDER_SNAPSHOTS_H
#define PMHASH_OLDER_SNAPSHOTS_H

extern Size pmhash_imports_size(void);
extern void pmhash_imports_init(void);
extern void pmhash_snapshot_is_imported(void);
extern bool pmhash_snapshot_may_be_older(void);
extern void pmhash_wait_for_older_snapshots(TransactionId limit);

#endif							/* PMHASH_OLDER_SNAPSHOTS_H */
