/*-------------------------------------------------------------------------
 *
 * launcher.h
 *	  The launcher: what it does itself, and its parts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_LAUNCHER_H
#define PMHASH_LAUNCHER_H

/* ---- launcher.c ---- */
extern void pmhash_launcher_interrupts(void);
extern void pmhash_checkpoint_made(void);

/* ---- launch_workers.c ---- */
extern int64 pmhash_see_to_databases(bool settled);

#endif							/* PMHASH_LAUNCHER_H */
