/*-------------------------------------------------------------------------
 *
 * value_set.h
 *	  Sets of values of one key, of a bounded size (value_set.c).
 *
 * A set has bits of groups of 64 neighbours: the values of one key often are
 * neighbours (rows of one page), and come one after the other.  Groups are kept by
 * open addressing, two words each: number + 1 (0 is free), and the bits; those of
 * four neighbours in one cache line.  set->n counts groups, set->capacity entries
 * for them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_VALUE_SET_H
#define PMH_VALUE_SET_H

#include "error.h"
#include "table.h"

#define PMH_GROUP_BITS		6
#define PMH_GROUP_LINE		4	/* groups that share a cache line */

/* Bytes of an entry. */
#define PMH_GROUP_SIZE		(2 * sizeof(uint64_t))

static inline uint64_t
pmh_group_of(uint64_t value)
{
	return value >> PMH_GROUP_BITS;
}

static inline uint64_t
pmh_group_bit(uint64_t value)
{
	return UINT64_C(1) << (value & ((1 << PMH_GROUP_BITS) - 1));
}

/* The entry where a group is, if no other one is there. */
static inline size_t
pmh_set_home(const PmhValueSet *set, uint64_t group)
{
	uint64_t	line = group / PMH_GROUP_LINE * UINT64_C(0x9e3779b97f4a7c15) >> 20;

	return (size_t) (line * PMH_GROUP_LINE + group % PMH_GROUP_LINE) &
		(set->capacity - 1);
}

/* The entry of a group, or the one that it would get; the set has some. */
static inline uint64_t *
pmh_set_entry(const PmhValueSet *set, uint64_t group)
{
	size_t		mask = set->capacity - 1;
	size_t		i = pmh_set_home(set, group);

	while (set->word[2 * i] != 0 && set->word[2 * i] != group + 1)
		i = (i + 1) & mask;
	return &set->word[2 * i];
}

static inline bool
pmh_set_has(const PmhValueSet *set, uint64_t value)
{
	const uint64_t *entry;

	if (set->n == 0)
		return false;
	entry = pmh_set_entry(set, pmh_group_of(value));
	return entry[0] != 0 && (entry[1] & pmh_group_bit(value)) != 0;
}

/* Take a value out; false if it is not there. */
static inline bool
pmh_set_take(PmhValueSet *set, uint64_t value)
{
	uint64_t   *entry;

	if (set->n == 0)
		return false;
	entry = pmh_set_entry(set, pmh_group_of(value));
	if (entry[0] == 0 || (entry[1] & pmh_group_bit(value)) == 0)
		return false;
	entry[1] ^= pmh_group_bit(value);
	return true;
}

/* The line where a value's group is, unless it was the last one. */
static inline void
pmh_set_prefetch(const PmhValueSet *set, uint64_t value, uint64_t *last)
{
	uint64_t	group = pmh_group_of(value);

	if (group / PMH_GROUP_LINE == *last)
		return;
	*last = group / PMH_GROUP_LINE;
	__builtin_prefetch(&set->word[2 * pmh_set_home(set, group)], 1);
}

/* How many entries a set may have that is to take no more than these bytes. */
extern size_t pmh_set_most(size_t bytes);

/*
 * The entry of a value's group, which is made if it was not there yet; *entry is NULL
 * if there is no room and the set is not to have more than 'most' entries.  PMH_OK or
 * PMH_ERR_NO_MEMORY (t->error set).
 */
extern PmhResult pmh_set_provide(PmhTable *t, PmhValueSet *set, size_t most,
								 uint64_t value, uint64_t **entry);

/*
 * Put a value in; *fresh: it was not there yet.  *entry is that of the value before, or
 * NULL: neighbours need not be looked for; then that of this one, or NULL, with the
 * value left out, if there is no room.  Else as pmh_set_provide.
 */
static inline PmhResult
pmh_set_add(PmhTable *t, PmhValueSet *set, size_t most, uint64_t value,
			uint64_t **entry, bool *fresh)
{
	uint64_t	bit = pmh_group_bit(value);

	*fresh = false;
	if (*entry == NULL || (*entry)[0] != pmh_group_of(value) + 1)
	{
		PmhResult	result = pmh_set_provide(t, set, most, value, entry);

		if (result != PMH_OK || *entry == NULL)
			return result;
	}
	*fresh = ((*entry)[1] & bit) == 0;
	(*entry)[1] |= bit;
	return PMH_OK;
}

/* A group about in the middle of a set that has two or more; not the lowest one. */
extern uint64_t pmh_set_middle(const PmhValueSet *set);

/* Take out all groups in front of this one.  Returns how many values these had. */
extern size_t pmh_set_cut(PmhValueSet *set, uint64_t group);

/*
 * Make a set empty, at a cost that what is in it accounts for: one that has grown for
 * a much heavier key is given back.
 */
extern void pmh_set_empty(PmhValueSet *set);
extern void pmh_set_free(PmhValueSet *set);

#endif							/* PMH_VALUE_SET_H */
