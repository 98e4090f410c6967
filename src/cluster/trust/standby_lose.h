/*-------------------------------------------------------------------------
 *
 * standby_lose.h
 *	  Files of a server in recovery are given up, or become a primary's.
 *
 * Include postgres.h first.  None of these functions raises an ERROR while it holds the
 * lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STANDBY_LOSE_H
#define PMHASH_STANDBY_LOSE_H

#include "cluster/standby/standby_state.h"

extern void pmhash_standby_lose(PmhashStandbyRow *row, bool wanted, int sqlstate,
								const char *why);
extern void pmhash_standby_lose_all(bool restored_only, int sqlstate,
									const char *why);
extern bool pmhash_standby_lost(uint64 file_id, uint64 life, const char *why);
extern void pmhash_standby_promote(PmhashControl *control);

/* A database has been dropped: WAL does not say which files go with it. */
extern void pmhash_standby_database_dropped(Oid database);

/*
 * What is in the files of a server in recovery cannot be believed any more: none of them
 * is used from here on, nor after a restart or a promotion, and all are built anew.
 * False, and nothing done, if they are not a standby's, or not any more.  Takes the lock.
 */
extern bool pmhash_standby_distrust(const char *why);

#endif							/* PMHASH_STANDBY_LOSE_H */
