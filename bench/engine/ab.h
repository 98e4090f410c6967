/*-------------------------------------------------------------------------
 *
 * ab.h
 *	  What pmh_ab.c and a build of the engine (ab_side.c) have in common: plain
 *	  types alone, so that builds of different sources can be compared.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_AB_H
#define PMH_AB_H

#include <stdbool.h>
#include <stdint.h>

typedef enum AbOp
{
	AB_INSERT,
	AB_HIT,
	AB_MISS,
	AB_DEPENDENT_HIT,			/* the next key depends on this one's answer */
	AB_DEPENDENT_MISS,
	AB_DELETE,
	AB_GROUP_INSERT,
	AB_GROUP_HIT,
	AB_GROUP_DELETE,
	AB_OPS
} AbOp;

typedef struct AbSpace
{
	uint64_t	entries;
	double		bytes_per_entry;
	double		load_factor;
} AbSpace;

/*
 * One build.  Keys are 0 .. keys - 1 (absent ones: keys .. 2 * keys - 1), the
 * value of a key is the key; or 'rows' of them are the values of one key.
 *
 * begin	make a table in the file 'path', open it, and reserve 'reserve' bytes,
 *			which are touched; reserve 0: open what a run before has kept.
 *			durable: every store is flushed and fenced.  *locks: the locks of those
 *			that have the file open already; NULL: there are none, and it is set
 * run		operations at .. at + n - 1 of a series of 'keys' of them; returns how
 *			many answers were wrong
 * space	tell of the space
 * end		close the file, and remove it unless it is to be kept
 *
 * A failure ends the program.
 */
typedef struct AbSide
{
	void		(*begin) (const char *path, uint64_t keys, uint64_t rows,
						  uint64_t reserve, bool durable, void **locks);
	uint64_t	(*run) (AbOp op, uint64_t at, uint64_t n);
	void		(*space) (AbSpace *space);
	void		(*end) (bool keep);
} AbSide;

/* The one thing that such a shared object exports. */
extern const AbSide pmh_ab_side;

#endif							/* PMH_AB_H */
