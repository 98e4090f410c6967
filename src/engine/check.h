/*-------------------------------------------------------------------------
 *
 * check.h
 *	  What the parts of the check share (check.c, check_space.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CHECK_H
#define PMH_CHECK_H

#include "bucket.h"
#include "error.h"
#include "table.h"

typedef struct PmhCheck
{
	PmhTable   *t;
	bool		exclusive;
	PmhReport	report;
	PmhStop		stop;			/* or NULL */
	void	   *arg;
	uint64_t	findings;
	uint64_t	blocks;			/* live.blocks when we began */
	uint8_t    *units;			/* per block: units something claims; if exclusive */
	uint64_t   *grains;			/* bit per grain: claimed by a value buffer; likewise */
	PmhBucket  *copy;			/* of a segment */
	uint64_t   *keys;			/* hashes of pointer slots of a segment */
	size_t		nkeys;
} PmhCheck;

/* Report something found; text: a printf format for a sentence. */
extern void pmh_check_finding(PmhCheck *c, uint64_t offset, const char *text, ...)
			__attribute__((format(printf, 3, 4)));

/* What a function of the engine found damaged is a finding, not a failure. */
extern PmhResult pmh_check_absorb(PmhCheck *c, PmhResult result);

/* Claim units of a block for something; complain if they are claimed already. */
extern void pmh_check_claim_units(PmhCheck *c, uint64_t block, uint32_t mask,
								  const char *what);

extern void pmh_check_claim_extent(PmhCheck *c, uint64_t block, uint64_t nblocks,
								const char *what);

/* Does an offset, that a buffer may have, lie in a value block? */
extern bool pmh_check_in_value_block(const PmhCheck *c, uint64_t offset);

/* Claim the bytes of a buffer; false if some of them are claimed already. */
extern bool pmh_check_claim_bytes(PmhCheck *c, uint64_t offset, uint64_t len);

/* Claim the value blocks. */
extern void pmh_check_kinds(PmhCheck *c);

/* Everything about space, after the walk that has claimed what is in use. */
extern void pmh_check_space(PmhCheck *c);

#endif							/* PMH_CHECK_H */
