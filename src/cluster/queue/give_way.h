/*-------------------------------------------------------------------------
 *
 * give_way.h
 *	  Builds in the background leave the processors to others.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_GIVE_WAY_H
#define PMHASH_GIVE_WAY_H

extern void pmhash_give_way_from_now_on(void);
extern bool pmhash_gives_way(void);
extern int	pmhash_give_way_workers(int wanted);
extern void pmhash_give_way(void);

#endif							/* PMHASH_GIVE_WAY_H */
