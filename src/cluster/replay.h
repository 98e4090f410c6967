/*-------------------------------------------------------------------------
 *
 * replay.h
 *	  Where replay begins and ends, noted in the control file.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_REPLAY_H
#define PMHASH_REPLAY_H

extern void pmhash_replay_init(void);

#endif							/* PMHASH_REPLAY_H */
