/*-------------------------------------------------------------------------
 *
 * value_space.h
 *	  Space for value buffers (value_space.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_VALUE_SPACE_H
#define PMH_VALUE_SPACE_H

#include "error.h"
#include "table.h"

/*
 * Value buffers of pmh_class_bytes(class), where such may be (pmh_class_may_be_at).
 * Contents of a new one are undefined.  PMH_OK or PMH_NEED.  Freeing counts the version
 * of the buffer up first; whatever pointed to it must have been changed and its
 * version counted up after that change.
 */
extern PmhResult pmh_value_alloc(PmhTable *t, uint32_t class, uint64_t *offset);
extern void pmh_value_free(PmhTable *t, uint64_t offset, uint32_t class);

/*
 * For the reclaim, which finds out what is free: give [offset, offset + len) of a
 * region to the free lists; and, when it starts, forget all free lists and the
 * rest of the newest region (so that all space of existing regions is either
 * reachable or found free by the reclaim).  For the latter the caller holds the
 * space lock, from before the reclaim is recorded: what they free from then
 * on is marked, and must not be forgotten.
 */
extern void pmh_value_free_span(PmhTable *t, uint64_t offset, uint64_t len);
extern void pmh_value_forget_free(PmhTable *t);

/* There is space in the regions now that is neither in use nor free: for a reclaim. */
extern void pmh_value_lose(PmhTable *t);

/* Provide a value region, unless there is room for a buffer of 'class' again. */
extern PmhResult pmh_region_provide(PmhTable *t, uint32_t class);

#endif							/* PMH_VALUE_SPACE_H */
