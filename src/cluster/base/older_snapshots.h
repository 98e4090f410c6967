/*-------------------------------------------------------------------------
 *
 * older_snapshots.h
 *	  Transactions that may have a snapshot which nobody waits for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_OLDER_SNAPSHOTS_H
#define PMHASH_OLDER_SNAPSHOTS_H

extern Size pmhash_imports_size(void);
extern void pmhash_imports_init(void);
extern void pmhash_snapshot_is_imported(void);
extern bool pmhash_snapshot_may_be_older(void);

#endif							/* PMHASH_OLDER_SNAPSHOTS_H */
