/*-------------------------------------------------------------------------
 *
 * shrink.h
 *	  What the parts of shrinking share (shrink.c, shrink_lists.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_SHRINK_H
#define PMH_SHRINK_H

#include "bucket.h"
#include "error.h"
#include "place.h"
#include "table.h"
#include "value_space.h"

/* A buffer to which values are added, and that is rewritten, has room for a share more. */
#define PMH_HEAD_ROOM	4

typedef enum PmhShrinkPhase
{
	PMH_SHRINK_MERGING,
	PMH_SHRINK_LISTING,
	PMH_SHRINK_EMPTYING,
	PMH_SHRINK_PUNCHING
} PmhShrinkPhase;

struct PmhShrinkPrivate
{
	PmhShrinkPhase		phase;
	uint32_t	percent;		/* how full segments may become */
	PmhPosition at;				/* where the next segment begins */
	bool		no_space;		/* the file can't grow: merging passes over what does not fit,
								 * later walks build nothing new */
	bool		gained;			/* this walk has merged or reduced a segment */
	uint64_t	limit;			/* when emptying: of blocks in which buffers may stay */
	uint64_t	block;			/* when punching: where to go on, ... */
	uint64_t	spare;			/* ... and how many free blocks are still to be left */
	uint64_t	list_bytes;		/* that lists occupy */
	uint64_t	bytes_seen;		/* by all steps so far */
	PmhValueWalk values;		/* when listing: what is used in value blocks */
	PmhBucket  *copy;			/* of a segment */
	uint64_t   *keys;			/* of its lists: hashes */
	size_t		nkeys;
	size_t		key;			/* the one at hand */
	uint64_t	below;			/* slots of its list below this one are left */
};

/* Get what PMH_NEED asks for.  A full file system is no error: p->no_space. */
extern PmhResult pmh_shrink_provide(PmhTable *t, struct PmhShrinkPrivate *p);

extern PmhResult pmh_shrink_list_step(PmhTable *t, struct PmhShrinkPrivate *p);

/* Begin with the next segment: see which lists it has. */
extern PmhResult pmh_shrink_segment_step(PmhTable *t, struct PmhShrinkPrivate *p);

#endif							/* PMH_SHRINK_H */
