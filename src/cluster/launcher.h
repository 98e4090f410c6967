/*-------------------------------------------------------------------------
 *
 * launcher.h
 *	  The launcher: what it does itself, and its parts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_LAUNCHER_H
#define PMHASH_LAUNCHER_H

#include "postmaster/bgworker.h"

#include "cluster/cluster.h"

/* ms, before a worker is started that has found no slot */
#define PMHASH_WORKER_PAUSE		5000

/* of a pause, if what it is for did not finish */
#define PMHASH_MAX_DOUBLINGS	6

/* ---- launcher.c ---- */
extern void pmhash_launcher_interrupts(void);
extern void pmhash_launcher_wait_for(BackgroundWorkerHandle *worker);
extern void pmhash_checkpoint_made(void);

/* ---- launch_cleaners.c ---- */
extern void pmhash_clean_if_due(bool settled, int64 *last_full);
extern int64 pmhash_next_cleaning(void);

/* ---- launch_rebuilders.c ---- */
extern long pmhash_see_to_rebuilds(bool everything);

#endif							/* PMHASH_LAUNCHER_H */
