/*-------------------------------------------------------------------------
 *
 * try.h
 *	  Doing something that may fail, and going on if it does.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_TRY_H
#define PMHASH_TRY_H

/* What is tried: does it, or raises an ERROR. */
typedef void (*PmhashTried) (void *arg);

/*
 * The transaction has begun to end: no subtransaction may be begun any more.  From the
 * callback before commit or PREPARE (xact.c calls AfterTriggerEndXact right after it) to
 * the one at the end.
 */
extern bool pmhash_transaction_is_ending;

extern ErrorData *pmhash_try(PmhashTried tried, void *arg,
							 bool (*at_fault) (int sqlstate));

#endif							/* PMHASH_TRY_H */
