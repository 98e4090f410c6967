/*-------------------------------------------------------------------------
 *
 * check.c
 *	  Is everything in the file as src/README says it is?
 *
 * The whole table is read as a reader reads it, so that writers may be at
 * work.  If there are none ("exclusive") what is reachable is also held
 * against the space map and the free lists.
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "segment.h"

/* Elements of the directory looked at under its lock at a time. */
#define DIRECTORY_PIECE		4096

typedef struct PmhCheck
{
	PmhTable   *t;
	bool		exclusive;
	PmhReport	report;
	void	   *arg;
	uint64_t	findings;
	uint64_t	blocks;			/* live.blocks when we began */
	uint8_t    *units;			/* per block: units something claims; if exclusive */
	uint64_t   *grains;			/* bit per grain: claimed by a value buffer; likewise */
	PmhWalk		walk;			/* its keys: hashes of pointer slots of a segment */
	size_t		nkeys;
} PmhCheck;

/* Report something found; text: a printf format for a sentence. */
static void finding(PmhCheck *c, uint64_t offset, const char *text, ...)
			__attribute__((format(printf, 3, 4)));

static void
finding(PmhCheck *c, uint64_t offset, const char *text, ...)
{
	char		sentence[256];
	va_list		args;

	va_start(args, text);
	vsnprintf(sentence, sizeof(sentence), text, args);
	va_end(args);
	c->findings++;
	if (c->report != NULL)
		c->report(c->arg, offset, sentence);
}

/* What a function of the engine found damaged is a finding, not a failure. */
static PmhResult
absorb(PmhCheck *c, PmhResult result)
{
	if (result != PMH_ERR_CORRUPT)
		return result;
	finding(c, c->t->error.offset, "%s", c->t->error.detail);
	return PMH_OK;
}

/* ---- what claims space ---- */

/* Claim units of a block for something; complain if they are claimed already. */
static void
claim_units(PmhCheck *c, uint64_t block, uint32_t mask, const char *what)
{
	PMH_ASSERT(c->units != NULL && mask != 0 && mask <= PMH_BLOCK_USED);
	if (block >= c->blocks)
	{
		finding(c, block << PMH_BLOCK_SHIFT, "%s lies beyond the end of the file.", what);
		return;
	}
	if ((c->units[block] & mask) != 0)
		finding(c, block << PMH_BLOCK_SHIFT,
				"%s lies in block %llu, where something else is as well.", what,
				(unsigned long long) block);
	c->units[block] |= (uint8_t) mask;
}

/* Does an offset, that a buffer may have, lie in a value block? */
static bool
in_value_block(const PmhCheck *c, uint64_t offset)
{
	uint64_t	block = offset >> PMH_BLOCK_SHIFT;

	return block < c->blocks &&
		(pm_load(pmh_space_kind(c->t, block)) & PMH_KIND_MASK) == PMH_KIND_VALUES;
}

/* ---- header ---- */

/* The parts of the header; false if the directory cannot be read at all. */
static bool
check_header(PmhCheck *c)
{
	const PmhLive *live = pmh_live(c->t);
	PmhLive		words = {.dirword = pm_load_acquire(&live->dirword)};
	uint32_t	depth = pmh_dirword_depth(words.dirword);
	uint64_t	offset = pmh_dirword_offset(words.dirword);
	uint64_t	size = pmh_directory_size(depth);
	PmhFormat	format;
	PmhError	error;

	memcpy(&format, pmh_format(c->t), sizeof(format));
	if (pmh_check_format(&format, &error) != PMH_OK)
		finding(c, PMH_FORMAT_OFFSET, "%s", error.detail);
	else if (format.file_id != c->t->file_id)
		finding(c, PMH_FORMAT_OFFSET, "The identity has changed.");
	PMH_STOP_POINT("check_before_blocks");
	words.blocks = pm_load_acquire(&live->blocks);
	if (pmh_check_live_words(&words, UINT64_MAX, &error) != PMH_OK)
	{
		finding(c, error.offset, "%s", error.detail);
		return false;
	}
	if (depth > PMH_SMALL_DIR_DEPTH)
	{
		if (offset % PMH_BLOCK_SIZE != 0)
			finding(c, PMH_LIVE_OFFSET, "The directory does not begin with a block.");
		if (c->exclusive)
		{
			for (uint64_t block = offset >> PMH_BLOCK_SHIFT;
				 block << PMH_BLOCK_SHIFT < offset + size; block++)
				claim_units(c, block, PMH_BLOCK_USED, "The directory");
		}
	}
	else if (offset != PMH_SMALL_DIR_OFFSET(0) && offset != PMH_SMALL_DIR_OFFSET(1))
		finding(c, PMH_LIVE_OFFSET, "The small directory is not in its place.");
	return true;
}

/* ---- directory ---- */

static void
claim_segment(PmhCheck *c, uint64_t elem)
{
	uint32_t	units = pmh_elem_units(elem);
	uint64_t	ext = pmh_elem_ext_unit(elem);

	PMH_ASSERT(pmh_elem_size(elem) != 0);
	if (pmh_elem_has_main(elem))
		claim_units(c, pmh_elem_main_block(elem), 0xff, "A segment");
	if (units > 0)
	{
		uint32_t	mask = ((1u << units) - 1) << (ext % PMH_UNITS_PER_BLOCK);

		claim_units(c, ext / PMH_UNITS_PER_BLOCK, mask & 0xff,
					"The extension of a segment");
		if (mask >> PMH_UNITS_PER_BLOCK != 0)
			claim_units(c, ext / PMH_UNITS_PER_BLOCK + 1,
						mask >> PMH_UNITS_PER_BLOCK,
						"The extension of a segment");
	}
}

/* A part of the directory, and what it must fit. */
typedef struct Piece
{
	uint64_t	elem[DIRECTORY_PIECE];
	uint64_t	n;
	uint32_t	depth;
	uint64_t	offset;			/* of the directory */
	uint64_t	blocks;			/* of the file */
} Piece;

/*
 * Check the elements of a piece, from index 'first' on: each possible, and the
 * neighbours that belong to one segment equal.
 */
static void
check_elements(PmhCheck *c, const Piece *piece, uint64_t first)
{
	const uint64_t *elem = piece->elem;
	uint64_t	n = piece->n;
	uint32_t	depth = piece->depth;
	uint64_t	dir_offset = piece->offset;

	PMH_ASSERT(piece->n <= DIRECTORY_PIECE);
	for (uint64_t i = 0; i < n;)
	{
		uint64_t	offset = dir_offset + (first + i) * sizeof(uint64_t);
		uint32_t	local = pmh_elem_depth(elem[i]);
		uint64_t	group;
		uint64_t	start;
		uint64_t	end;

		if (local > depth)
		{
			finding(c, offset, "Directory element %llu has an impossible depth.",
					(unsigned long long) (first + i));
			i++;
			continue;
		}
		group = UINT64_C(1) << (depth - local);
		start = (first + i) & ~(group - 1);
		end = start + group < first + n ? start + group : first + n;
		if (!pmh_elem_sane(elem[i], start, depth, piece->blocks))
			finding(c, offset, "Directory element %llu is impossible.",
					(unsigned long long) (first + i));
		else if (start < first + i && i > 0)
			finding(c, offset, "Directory element %llu does not begin a segment.",
					(unsigned long long) (first + i));
		else if (c->exclusive && start == first + i)
			claim_segment(c, elem[i]);
		for (i++; first + i < end && elem[i] == elem[i - 1]; i++)
			;
		if (first + i < end)
			finding(c, dir_offset + (first + i) * sizeof(uint64_t),
					"Directory element %llu differs from its neighbour of the same segment.",
					(unsigned long long) (first + i));
	}
}

/*
 * Piece by piece.  Each is copied, of one state; with the length of the file as it is under
 * the same lock: no segment that the directory names is given up meanwhile.
 */
static PmhResult
check_directory(PmhCheck *c)
{
	PmhTable   *t = c->t;
	Piece		piece;

	for (uint64_t first = 0;; first += piece.n)
	{
		PmhResult	result;

		do
		{
			const uint64_t *dir;
			uint64_t	dirword;

			if (!pmh_lock_or_cancel(&t->file_lock->directory))
				return pmh_fail_cancelled(t);
			dirword = pm_load_acquire(&pmh_live(t)->dirword);
			piece.depth = pmh_dirword_depth(dirword);
			piece.offset = pmh_dirword_offset(dirword);
			piece.blocks = pmh_blocks(t);
			piece.n = 0;
			result = pmh_check_span(t, piece.offset, pmh_directory_size(piece.depth));
			dir = pmh_unchecked(t, piece.offset);
			for (; result == PMH_OK && piece.n < DIRECTORY_PIECE &&
				 first + piece.n < pmh_directory_elements(piece.depth); piece.n++)
				piece.elem[piece.n] = pm_load_acquire(&dir[first + piece.n]);
			pmh_unlock(&t->file_lock->directory);
		} while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
		if (result != PMH_OK)
			return absorb(c, result);
		PMH_STOP_POINT("check_before_elements");
		if (piece.n == 0)
			return PMH_OK;
		check_elements(c, &piece, first);
	}
}

/* ---- value lists ---- */

/* What only shows if no process writes: bits that must be 0, buffers used twice. */
static void
check_buffer_alone(PmhCheck *c, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint64_t	offset = pmh_pointer_offset(payload);
	uint64_t	end = (offset + pmh_class_bytes(class)) / PMH_GRAIN;
	bool		twice = false;

	PMH_ASSERT(c->exclusive && end <= c->blocks * (PMH_BLOCK_SIZE / PMH_GRAIN));
	for (uint64_t grain = offset / PMH_GRAIN; grain < end; grain++)
	{
		uint64_t	bit = UINT64_C(1) << (grain % 64);

		twice |= (c->grains[grain / 64] & bit) != 0;
		c->grains[grain / 64] |= bit;
	}
	if (twice)
		finding(c, offset, "The value buffer at offset %llu is used twice.",
				(unsigned long long) offset);
	if (pmh_pointer_level(payload) > 0)
		return;
	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
	{
		const PmhValueLine *line = pmh_buffer_line(c->t, payload, i);

		if ((line->state & PMH_LINE_OCCUPIED & ~pmh_line_cells(payload, i)) != 0)
			finding(c, pmh_line_offset(payload, i),
					"A line of the value buffer at offset %llu tells of more values than it holds.",
					(unsigned long long) offset);
		for (uint32_t left = line->state & pmh_line_cells(payload, i); left != 0;
			 left &= left - 1)
		{
			unsigned	cell = (unsigned) __builtin_ctz(left);

			if (pmh_line_value(line, cell) > PMH_VALUE_MAX)
				finding(c, pmh_line_offset(payload, i),
						"A value in the value buffer at offset %llu is too large.",
						(unsigned long long) offset);
		}
	}
}

/*
 * What a walk along a list has come by: each buffer, and an index when the walk comes to
 * it.  'before' is what it came by before.
 */
static void
check_buffers(PmhCheck *c, const uint64_t *met, const uint64_t *before)
{
	for (unsigned i = 0; i <= PMH_MAX_LEVEL; i++)
	{
		uint64_t	offset = pmh_pointer_offset(met[i]);

		if (met[i] == 0 || (i > 0 && met[i] == before[i]))
			continue;
		if (!in_value_block(c, offset))
			finding(c, offset, "The value buffer at offset %llu is in no value block.",
					(unsigned long long) offset);
		else
			check_buffer_alone(c, met[i]);
	}
}

/* Check the list of a key. */
static PmhResult
check_list(PmhCheck *c, uint64_t hash)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = PMH_LIST_START;

	while (at.below != 0)
	{
		PmhListPosition before = at;
		uint32_t	n;
		PmhResult	result = pmh_list_whole(c->t, hash, &at, value, &n);

		if (result != PMH_OK)
			return result;
		if (n == 0 && at.met[0] != 0)
			finding(c, pmh_pointer_offset(at.met[0]), "The value buffer at offset %llu is empty.",
					(unsigned long long) pmh_pointer_offset(at.met[0]));
		if (c->exclusive)
			check_buffers(c, at.met, before.met);
	}
	return PMH_OK;
}

/* ---- buckets ---- */

/*
 * Does the home bucket have the bits that announce an entry?  They are set
 * before the entry is, and stay as long as the segment.  So if it is only the
 * copy that lacks them, it was made while the entry was put in; and if the
 * bucket has changed since, nothing is known.
 */
static bool
announced(const PmhCheck *c, uint32_t home, uint32_t bits)
{
	const PmhSnapshot *snap = &c->walk.snap;

	if ((pmh_bucket_state(&c->walk.copy[home]) & bits) != 0 ||
		(pmh_bucket_state(pmh_bucket(c->t, &snap->place, home)) & bits) != 0)
		return true;
	pmh_read_fence();
	return !pmh_snapshot_current(c->t, snap, home);
}

/* Why an entry may not stand in this bucket, or NULL. */
static const char *
misplaced(const PmhCheck *c, uint32_t bucket, uint64_t hash)
{
	const PmhPlace *place = &c->walk.snap.place;
	uint32_t	depth = pmh_elem_depth(place->elem);
	uint32_t	home = pmh_home_bucket(hash, place->hashing);
	PmhStrategy strategy = pmh_elem_strategy(place->elem);

	PMH_ASSERT(bucket < place->buckets && depth <= pmh_dirword_depth(place->dirword));
	if (pmh_hash_prefix(hash, depth) !=
		place->index >> (pmh_dirword_depth(place->dirword) - depth))
		return "of another segment";
	if (bucket == home)
		return NULL;
	if (bucket >= place->hashing)
	{
		if (!pmh_strategy_has_stash(strategy))
			return "in a stash that is not in use";
		return announced(c, home, PMH_STATE_STASHED) ? NULL :
			"in the stash without its home telling so";
	}
	if (bucket != pmh_alt_bucket(hash, place->hashing, home))
		return "in a bucket that is not its own";
	if (!pmh_strategy_has_alternative(strategy))
		return "in its second bucket while there is one choice";
	return announced(c, home, pmh_filter_bit(hash)) ? NULL :
		"in its second bucket without its home telling so";
}

static PmhResult
check_slot(PmhCheck *c, uint32_t bucket, unsigned slot)
{
	const PmhBucket *b = &c->walk.copy[bucket];
	uint64_t	word = pmh_slot_load_word(b, slot);
	uint64_t	hash = pmh_slot_load_hash(b, slot, word);
	uint64_t	offset = pmh_bucket_offset(&c->walk.snap.place, bucket);
	const char *wrong = misplaced(c, bucket, hash);

	if (wrong != NULL)
		finding(c, offset, "Slot %u of the bucket at offset %llu holds an entry %s.", slot,
				(unsigned long long) offset, wrong);
	if (!pmh_word_is_pointer(word))
		return PMH_OK;
	if ((pmh_bucket_state(b) & PMH_STATE_POINTERS) == 0)
		finding(c, offset, "The bucket at offset %llu holds a pointer without telling so.",
				(unsigned long long) offset);
	for (size_t i = 0; i < c->nkeys; i++)
	{
		if (c->walk.key[i] == hash)
			finding(c, offset,
					"Slot %u of the bucket at offset %llu is the second pointer of its key.",
					slot, (unsigned long long) offset);
	}
	PMH_ASSERT(c->nkeys < PMH_SEGMENT_SLOTS);
	c->walk.key[c->nkeys++] = hash;
	return absorb(c, check_list(c, hash));
}

/* The next segment of the walk: all slots, also of entries that do not count. */
static PmhResult
check_segment(PmhCheck *c)
{
	PmhResult	result = pmh_walk_segment(c->t, &c->walk);

	/* A damaged element is reported with the directory. */
	if (result != PMH_OK)
		return absorb(c, result);
	c->nkeys = 0;
	for (uint32_t b = 0; result == PMH_OK && b < c->walk.snap.place.buckets; b++)
	{
		uint32_t	left = pmh_bucket_state(&c->walk.copy[b]) & PMH_STATE_OCCUPIED;

		for (; result == PMH_OK && left != 0; left &= left - 1)
			result = check_slot(c, b, (unsigned) __builtin_ctz(left));
	}
	return result;
}

/* ---- space ---- */

/* Claim the value blocks, and those without space. */
static void
check_kinds(PmhCheck *c)
{
	uint64_t	all = 0;
	uint64_t	old = 0;
	uint64_t	punched = 0;

	for (uint64_t block = 0; block < c->blocks; block++)
	{
		uint8_t		kind = pm_load(pmh_space_kind(c->t, block));

		if ((kind & PMH_KIND_MASK) == PMH_KIND_VALUES)
		{
			claim_units(c, block, PMH_BLOCK_USED, "A value block");
			all++;
			old += (kind & PMH_ROOM_MASK) >= PMH_ROOM_SEEN;
		}
		else if (kind == PMH_KIND_PUNCHED)
		{
			claim_units(c, block, PMH_BLOCK_USED, "A block without space");
			punched++;
		}
		else if (kind != 0)
			finding(c, block << PMH_BLOCK_SHIFT,
					"The kind of block %llu is damaged in the space map.",
					(unsigned long long) block);
	}
	if (all != pm_load(&pmh_run(c->t)->value_blocks) ||
		old != pm_load(&pmh_run(c->t)->old_blocks))
		finding(c, PMH_RUN_OFFSET,
				"There are %llu value blocks, %llu of an earlier server life; the header says something else.",
				(unsigned long long) all, (unsigned long long) old);
	if (punched != pm_load(&pmh_run(c->t)->punched_blocks))
		finding(c, PMH_RUN_OFFSET,
				"There are %llu blocks without space; the header says something else.",
				(unsigned long long) punched);
}

/*
 * Do the bitmaps of value blocks agree with the lists?  Are there bytes that are marked as
 * used and belong to none?
 */
static void
check_all_grains(PmhCheck *c)
{
	uint64_t	lost = 0;
	uint64_t	where = 0;

	PMH_ASSERT(c->exclusive);
	for (uint64_t block = 1; block < c->blocks; block++)
	{
		const PmhValueBlock *b = pmh_at(c->t, block << PMH_BLOCK_SHIFT);
		const uint64_t *found = &c->grains[block * PMH_GRAIN_WORDS];
		unsigned	room = pm_load(pmh_space_kind(c->t, block)) & PMH_ROOM_MASK;
		uint64_t	in_use = 0;

		if (!in_value_block(c, block << PMH_BLOCK_SHIFT) || room == PMH_ROOM_OLD)
			continue;
		for (uint32_t i = 0; i < PMH_GRAIN_WORDS; i++)
		{
			uint64_t	head = i == 0 ? (UINT64_C(1) << PMH_HEAD_GRAINS) - 1 : 0;
			uint64_t	used = pm_load(&b->used[i]);

			in_use |= (found[i] | head) & ~used;
			if (room < PMH_ROOM_SEEN)
				lost += PMH_GRAIN * (uint64_t) __builtin_popcountll(used & ~(found[i] | head));
		}
		if (in_use != 0)
			finding(c, block << PMH_BLOCK_SHIFT,
					"Value block %llu says that something is free which is in use.",
					(unsigned long long) block);
		if (lost > 0 && where == 0)
			where = block;
	}
	if (lost > 0)
		finding(c, where << PMH_BLOCK_SHIFT,
				"%llu bytes of value blocks are neither in use nor free.",
				(unsigned long long) lost);
}

/* Does the space map say what we have found? */
static void
check_space_map(PmhCheck *c)
{
	uint64_t	free_units = 0;

	for (uint64_t block = 0; block < c->blocks; block++)
	{
		uint8_t		claimed = c->units[block];
		uint8_t		used = pm_load(pmh_space_map(c->t, block));

		if (pmh_space_reserved(block) != 0)
		{
			if ((claimed & pmh_space_reserved(block)) != 0)
				finding(c, block << PMH_BLOCK_SHIFT,
						"Block %llu belongs to the space map and to something else.",
						(unsigned long long) block);
			claimed |= pmh_space_reserved(block);
		}
		if ((claimed & ~used) != 0)
			finding(c, block << PMH_BLOCK_SHIFT,
					"Block %llu is in use, the space map says it is free.",
					(unsigned long long) block);
		if ((used & ~claimed) != 0)
			finding(c, block << PMH_BLOCK_SHIFT,
					"Block %llu is not in use, the space map says it is.",
					(unsigned long long) block);
		free_units += PMH_UNITS_PER_BLOCK - (unsigned) __builtin_popcount(used);
	}
	if (free_units != pm_load(&pmh_run(c->t)->free_units))
		finding(c, PMH_RUN_OFFSET, "The space map has %llu free units, the header says %llu.",
				(unsigned long long) free_units,
				(unsigned long long) pm_load(&pmh_run(c->t)->free_units));
}

/* ---- putting it together ---- */

static PmhResult
begin(PmhCheck *c)
{
	PmhTable   *t = c->t;
	PmhResult	result = pmh_map_all(t);

	if (result == PMH_ERR_CORRUPT)
		finding(c, PMH_LIVE_OFFSET + offsetof(PmhLive, blocks),
				"The length of the file is damaged in its header.");
	if (result != PMH_OK)
		return result;
	/* The file may be longer, if the system went down while it grew. */
	c->blocks = pmh_blocks(t);
	result = pmh_walk_begin(t, &c->walk, PMH_MAX_DEPTH);
	/* With writers about, nothing is claimed: it may come to another use. */
	if (result != PMH_OK || !c->exclusive)
		return result;
	c->units = calloc(c->blocks, 1);
	c->grains = calloc(c->blocks, PMH_BLOCK_SIZE / PMH_GRAIN / 8);
	if (c->units == NULL || c->grains == NULL)
		return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0, "There is no memory for the check.");
	return PMH_OK;
}

PmhResult
pmh_check(PmhTable *table, bool exclusive, PmhReport report, PmhStop stop, void *arg)
{
	PmhCheck	c = {.t = table, .exclusive = exclusive, .report = report,
		.arg = arg};
	PmhResult	result = begin(&c);

	if (result == PMH_OK)
	{
		bool		readable = check_header(&c);

		if (exclusive)
			check_kinds(&c);
		if (readable)
		{
			result = check_directory(&c);
			while (result == PMH_OK && !c.walk.at.through)
				result = stop != NULL && stop(arg) ? PMH_DONE : check_segment(&c);
		}
		if (result == PMH_OK && exclusive)
		{
			check_all_grains(&c);
			check_space_map(&c);
		}
	}
	pmh_walk_end(&c.walk);
	free(c.units);
	free(c.grains);
	result = pmh_conclude(table, result);
	if (result == PMH_OK && c.findings > 0)
		return pmh_fail(table, PMH_ERR_CORRUPT, 0, 0,
						"The check has found %llu faults.",
						(unsigned long long) c.findings);
	return result;
}

/* Gives the plain entries, then the list, a buffer at a time. */
PmhResult
pmh_lookup_repeats(PmhTable *table, uint64_t hash, PmhGive give, void *arg)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = PMH_LIST_START;
	PmhProbe	probe;
	PmhResult	result;

	result = pmh_probe(table, hash, &probe);
	if (result == PMH_OK && probe.n > 0)
		give(arg, probe.value, probe.n);
	while (result == PMH_OK && probe.list != 0 && at.below != 0)
	{
		uint32_t	n;

		result = pmh_list_whole(table, hash, &at, value, &n);
		if (result == PMH_OK)
			give(arg, value, n);
	}
	return pmh_conclude(table, result);
}
