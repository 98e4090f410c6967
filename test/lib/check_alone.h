/*-------------------------------------------------------------------------
 *
 * check_alone.h
 *	  What pmh_check looks at, and more, where no process is at work: nothing in the file
 *	  is used twice, and the space map and the bits of value blocks say what is in use.
 *
 * Everything claims its space: the directory, segments, value blocks, and in these the
 * buffers of lists.  What is claimed is compared with what the file says.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CHECK_ALONE_H
#define PMH_CHECK_ALONE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "segment.h"

typedef struct CheckAlone
{
	PmhTable   *t;
	PmhReport	report;
	void	   *arg;
	uint64_t	findings;
	uint64_t	blocks;
	uint8_t    *units;			/* per block: units something claims */
	uint64_t   *grains;			/* bit per grain: claimed by a value buffer */
} CheckAlone;

static inline void alone_finding(CheckAlone *c, uint64_t offset, const char *text, ...)
			__attribute__((format(printf, 3, 4)));

static inline void
alone_finding(CheckAlone *c, uint64_t offset, const char *text, ...)
{
	char		sentence[256];
	va_list		args;

	va_start(args, text);
	vsnprintf(sentence, sizeof(sentence), text, args);
	va_end(args);
	c->findings++;
	c->report(c->arg, offset, sentence);
}

static inline void
alone_finding_of_block(CheckAlone *c, uint64_t block, const char *text)
{
	alone_finding(c, block << PMH_BLOCK_SHIFT, "Block %llu %s.", (unsigned long long) block, text);
}

/* ---- what claims space ---- */

static inline void
alone_claim(CheckAlone *c, uint64_t unit, uint64_t n)
{
	for (uint64_t end = unit + n; unit < end; unit++)
	{
		uint64_t	block = unit / PMH_UNITS_PER_BLOCK;
		uint8_t		bit = (uint8_t) (1 << unit % PMH_UNITS_PER_BLOCK);

		if (block >= c->blocks)
		{
			alone_finding_of_block(c, block, "is in use and lies beyond the end of the file");
			return;
		}
		if ((c->units[block] & bit) != 0)
			alone_finding_of_block(c, block, "is claimed, where something else is as well");
		c->units[block] |= bit;
	}
}

static inline bool
alone_in_value_block(const CheckAlone *c, uint64_t offset)
{
	uint64_t	block = offset >> PMH_BLOCK_SHIFT;

	return block < c->blocks &&
		(pm_load(pmh_space_kind(c->t, block)) & PMH_KIND_MASK) == PMH_KIND_VALUES;
}

/* A buffer of a list. */
static inline void
alone_claim_buffer(CheckAlone *c, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint64_t	offset = pmh_pointer_offset(payload);
	uint64_t	end = (offset + pmh_class_bytes(class)) / PMH_GRAIN;
	bool		twice = false;

	if (!alone_in_value_block(c, offset))
	{
		alone_finding(c, offset, "A value buffer is in no value block.");
		return;
	}
	for (uint64_t grain = offset / PMH_GRAIN; grain < end; grain++)
	{
		uint64_t	bit = UINT64_C(1) << (grain % 64);

		twice |= (c->grains[grain / 64] & bit) != 0;
		c->grains[grain / 64] |= bit;
	}
	if (twice)
		alone_finding(c, offset, "A value buffer is used twice.");
	for (uint32_t i = pmh_class_first_line(class);
		 pmh_pointer_level(payload) == 0 && i < pmh_class_lines(class); i++)
	{
		const PmhValueLine *line = pmh_buffer_line(c->t, payload, i);
		uint32_t	cells = pmh_line_cells(payload, i);

		if ((line->state & PMH_LINE_OCCUPIED & ~cells) != 0)
			alone_finding(c, pmh_line_offset(payload, i), "A line tells of more values than it holds.");
		for (uint32_t left = line->state & cells; left != 0; left &= left - 1)
		{
			if (*pmh_cell_high(line, (unsigned) __builtin_ctz(left)) >> (PMH_VALUE_BITS - 32) != 0)
				alone_finding(c, pmh_line_offset(payload, i), "A value in a line is too large.");
		}
	}
}

/* The buffers of a list, each when a walk along it comes to it first. */
static inline PmhResult
alone_claim_list(CheckAlone *c, uint64_t hash)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = PMH_LIST_START;

	while (at.below != 0)
	{
		PmhListPosition before = at;
		uint32_t	n;
		PmhResult	result = pmh_list_whole(c->t, hash, &at, value, &n);

		if (result != PMH_OK)
			return result == PMH_ERR_CORRUPT ? PMH_OK : result;	/* pmh_check tells */
		for (unsigned i = 0; i <= PMH_MAX_LEVEL; i++)
		{
			if (at.met[i] != 0 && (i == 0 || at.met[i] != before.met[i]))
				alone_claim_buffer(c, at.met[i]);
		}
	}
	return PMH_OK;
}

/* A segment, and the lists that hang on it. */
static inline PmhResult
alone_claim_segment(CheckAlone *c, uint64_t elem)
{
	PmhPlace	place = {.elem = elem};
	PmhResult	result = PMH_OK;

	if (pmh_elem_has_main(elem))
		alone_claim(c, pmh_elem_main_block(elem) * PMH_UNITS_PER_BLOCK, PMH_UNITS_PER_BLOCK);
	alone_claim(c, pmh_elem_ext_unit(elem), pmh_elem_units(elem));
	if (!pmh_place_decode(c->t, &place))
		return PMH_OK;
	for (uint32_t b = 0; b < place.buckets; b++)
	{
		const PmhBucket *bucket = pmh_bucket(c->t, &place, b);
		uint32_t	left = pmh_bucket_state(bucket) & PMH_STATE_OCCUPIED;

		for (; result == PMH_OK && left != 0; left &= left - 1)
		{
			unsigned	slot = (unsigned) __builtin_ctz(left);
			uint64_t	word = pmh_slot_load_word(bucket, slot);

			if (pmh_word_is_pointer(word))
				result = alone_claim_list(c, pmh_slot_load_hash(bucket, slot, word));
		}
	}
	return result;
}

static inline PmhResult
alone_claim_directory(CheckAlone *c)
{
	uint64_t	dirword = pmh_live(c->t)->dirword;
	uint32_t	depth = pmh_dirword_depth(dirword);
	uint64_t	size = pmh_directory_elements(depth);
	const uint64_t *dir = pmh_at(c->t, pmh_dirword_offset(dirword));
	PmhResult	result = PMH_OK;

	alone_claim(c, pmh_dirword_offset(dirword) >> PMH_UNIT_SHIFT,
				pmh_directory_blocks(depth) * PMH_UNITS_PER_BLOCK);
	for (uint64_t i = 0; result == PMH_OK && i < size;)
	{
		uint32_t	local = pmh_elem_depth(dir[i]);
		uint64_t	group = local > depth ? 1 : UINT64_C(1) << (depth - local);

		if (local <= depth && i % group == 0 && pmh_elem_sane(dir[i], i, depth, c->blocks))
			result = alone_claim_segment(c, dir[i]);
		i = (i / group + 1) * group;
	}
	return result;
}

/* Value blocks, and those without space. */
static inline void
alone_claim_kinds(CheckAlone *c)
{
	const PmhRun *run = pmh_run(c->t);
	uint64_t	all = 0;
	uint64_t	old = 0;
	uint64_t	punched = 0;

	for (uint64_t block = 0; block < c->blocks; block++)
	{
		uint8_t		kind = pm_load(pmh_space_kind(c->t, block));
		bool		values = (kind & PMH_KIND_MASK) == PMH_KIND_VALUES;

		all += values;
		old += values && (kind & PMH_ROOM_MASK) >= PMH_ROOM_SEEN;
		punched += kind == PMH_KIND_PUNCHED;
		if (values || kind == PMH_KIND_PUNCHED)
			alone_claim(c, block * PMH_UNITS_PER_BLOCK, PMH_UNITS_PER_BLOCK);
		else if (kind != 0)
			alone_finding_of_block(c, block, "is of a damaged kind of block");
	}
	if (all != run->value_blocks || old != run->old_blocks)
		alone_finding(c, PMH_RUN_OFFSET, "The header miscounts value blocks.");
	if (punched != run->punched_blocks)
		alone_finding(c, PMH_RUN_OFFSET, "The header miscounts blocks without space.");
}

/* ---- what the file says of it ---- */

static inline void
alone_check_grains(CheckAlone *c)
{
	uint64_t	lost = 0;

	for (uint64_t block = 1; block < c->blocks; block++)
	{
		const PmhValueBlock *b = pmh_at(c->t, block << PMH_BLOCK_SHIFT);
		unsigned	room = pm_load(pmh_space_kind(c->t, block)) & PMH_ROOM_MASK;
		uint64_t	in_use = 0;

		if (!alone_in_value_block(c, block << PMH_BLOCK_SHIFT) || room == PMH_ROOM_OLD)
			continue;
		for (uint32_t i = 0; i < PMH_GRAIN_WORDS; i++)
		{
			uint64_t	found = c->grains[block * PMH_GRAIN_WORDS + i] |
				(i == 0 ? (UINT64_C(1) << PMH_HEAD_GRAINS) - 1 : 0);
			uint64_t	used = pm_load(&b->used[i]);

			in_use |= found & ~used;
			if (room < PMH_ROOM_SEEN)
				lost += PMH_GRAIN * (uint64_t) __builtin_popcountll(used & ~found);
		}
		if (in_use != 0)
			alone_finding_of_block(c, block, "says that something is free which is in use");
	}
	if (lost > 0)
		alone_finding(c, 0, "%llu bytes of value blocks are neither in use nor free.",
					  (unsigned long long) lost);
}

static inline void
alone_check_space_map(CheckAlone *c)
{
	uint64_t	free_units = 0;

	for (uint64_t block = 0; block < c->blocks; block++)
	{
		uint8_t		reserved = pmh_space_reserved(block);
		uint8_t		claimed = c->units[block] | reserved;
		uint8_t		used = pm_load(pmh_space_map(c->t, block));

		if ((c->units[block] & reserved) != 0)
			alone_finding_of_block(c, block, "belongs to the space map and to something else");
		if ((claimed & ~used) != 0)
			alone_finding_of_block(c, block, "is in use, the space map says it is free");
		if ((used & ~claimed) != 0)
			alone_finding_of_block(c, block, "is not in use, the space map says it is");
		free_units += PMH_UNITS_PER_BLOCK - (unsigned) __builtin_popcount(used);
	}
	if (free_units != pm_load(&pmh_run(c->t)->free_units))
		alone_finding(c, PMH_RUN_OFFSET, "The header miscounts free units.");
}

/* As pmh_check. */
static inline PmhResult
check_alone(PmhTable *t, PmhReport report, void *arg)
{
	CheckAlone	c = {.t = t, .report = report, .arg = arg};
	PmhResult	found = pmh_check(t, report, arg);
	PmhResult	result = PMH_OK;
	PmhError	error;

	if ((found != PMH_OK && found != PMH_ERR_CORRUPT) || pmh_map_all(t) != PMH_OK)
		return found;
	c.blocks = pmh_blocks(t);
	c.units = calloc(c.blocks, 1);
	c.grains = calloc(c.blocks, PMH_BLOCK_GRAINS / 8);
	if (c.units == NULL || c.grains == NULL)
		abort();
	alone_claim_kinds(&c);
	if (pmh_check_live_words(pmh_live(t), UINT64_MAX, &error) == PMH_OK)
		result = alone_claim_directory(&c);
	if (result == PMH_OK)
	{
		alone_check_grains(&c);
		alone_check_space_map(&c);
	}
	free(c.units);
	free(c.grains);
	result = pmh_conclude(t, result);
	return result != PMH_OK ? result : c.findings > 0 ? PMH_ERR_CORRUPT : found;
}

#endif							/* PMH_CHECK_ALONE_H */
