/*-------------------------------------------------------------------------
 *
 * dependency.c
 *	  Is everything durable that a commit store makes reachable, or relies on?
 *
 * Called before each store of the workload.  What depends on what is written
 * down here a second time, from src/README ("Order of stores"): the images
 * tell that something is wrong, this tells what was not flushed.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "bucket.h"
#include "crash.h"
#include "error.h"
#include "handle.h"
#include "layout.h"
#include "list.h"
#include "pm.h"
#include "segment.h"
#include "table.h"


static inline const char *
at(uint64_t offset)
{
	return memory_file(0, 0) + offset;
}

static const PmhLive *
live(void)
{
	return (const PmhLive *) at(PMH_LIVE_OFFSET);
}

/* Where has a line been stored to last? */
static const PmSite *
stored_at(const Line *line)
{
	return site_of(line->n > 0 ? line->store[line->n - 1].site : line->copy_site);
}

/* Complain if some of the bytes are not durable. */
static void
require(uint64_t offset, uint64_t len, const char *what, const PmSite *commit)
{
	const Line *line = recorder_not_durable(0, offset, len);

	if (line != NULL)
		crash_missing("%s: the %s at %s:%d relies on %s, which is not durable (stored at %s:%d)",
					  crash.operation, commit->kind, site_base_name(commit), commit->line, what,
					  site_base_name(stored_at(line)), stored_at(line)->line);
}

static void
require_segment(uint64_t elem, const PmSite *commit)
{
	if (pmh_elem_has_main(elem))
		require(pmh_elem_main_block(elem) * PMH_BLOCK_SIZE, PMH_BLOCK_SIZE, "a segment",
				commit);
	if (pmh_elem_units(elem) > 0)
		require(pmh_elem_ext_unit(elem) * PMH_UNIT_SIZE,
				pmh_elem_units(elem) * PMH_UNIT_SIZE, "the extension of a segment", commit);
}

/* (The files here are smaller than what the map in the header is for.) */
static uint64_t
offset_of_kind(uint64_t block)
{
	return PMH_HEADER_MAP_OFFSET + PMH_HEADER_MAP_BLOCKS + block;
}

/* A buffer of a list, and all that it names. */
static void
require_buffer(uint64_t payload, const PmSite *commit)
{
	const uint64_t *slot =
		(const uint64_t *) (at(pmh_pointer_offset(payload)) + sizeof(PmhBufferHeader));

	for (uint32_t i = 0; pmh_pointer_level(payload) > 0 && i < pmh_index_slots(payload); i++)
	{
		if (slot[i] != 0)
			require_buffer(slot[i] & PMH_SLOT_POINTER, commit);
	}
	require(pmh_pointer_offset(payload), pmh_class_bytes(pmh_pointer_class(payload)),
			"a value buffer", commit);
	require(offset_of_kind(pmh_pointer_offset(payload) / PMH_BLOCK_SIZE), 1,
			"the kind of its block", commit);
}

/* A directory becomes current.  Bulk load publishes its segments with it. */
static void
directory_word(uint64_t dirword, const PmSite *commit)
{
	uint64_t	size = pmh_directory_elements(pmh_dirword_depth(dirword));
	const uint64_t *dir = (const uint64_t *) at(pmh_dirword_offset(dirword));

	require(pmh_dirword_offset(dirword), size * sizeof(uint64_t), "a directory", commit);
	for (uint64_t i = 0; i < size; i++)
	{
		if (dir[i] != 0 && (i == 0 || dir[i] != dir[i - 1]))
			require_segment(dir[i], commit);
	}
}

/* A table is born: nothing may be left to flush but the magic number's line. */
static void
magic(const PmSite *commit)
{
	const Recorder *r = &recorders[0];

	for (size_t i = 0; i < r->npending; i++)
	{
		const Line *line = r->pending[i];

		if (line->number != 0 && (line->lasting > 0 || line->copied != 0))
			require((uint64_t) line->number * PMH_LINE, PMH_LINE, "the empty table", commit);
	}
}

/*
 * Complain if some of 'bits' are not set in the state of a bucket as it is
 * durable.  (Other bits of that line may be on their way.)
 */
static void
require_bits(uint64_t bucket, uint32_t bits, const char *what, const PmSite *commit)
{
	uint32_t	state;

	memcpy(&state, memory_file(1, 0) + bucket, sizeof(state));
	if ((state & bits) != bits)
		require(bucket, PMH_LINE, what, commit);
}

/* Has an entry that is not at home been announced there? */
static void
announced(const PmhBucket *b, unsigned slot, const PmSite *commit)
{
	uint64_t	hash = pmh_slot_load_hash(b, slot, pmh_slot_load_word(b, slot));
	PmhPlace	place;
	uint32_t	home;

	if (crash.table == NULL)
		return;
	if (pmh_locate(crash.table, hash, &place) != PMH_OK)
		return;
	home = pmh_home_bucket(hash, place.hashing);
	if (b == pmh_bucket(crash.table, &place, home))
		return;
	require_bits(pmh_bucket_offset(&place, home),
				 b == pmh_bucket(crash.table, &place,
								 pmh_alt_bucket(hash, place.hashing, home)) ?
				 pmh_filter_bit(hash) : PMH_STATE_STASHED,
				 "the filter of the home bucket", commit);
}

/* Entries appear in a bucket or vanish from it.  Line 0 is in order anyway. */
static void
bucket_state(const PmhBucket *b, uint32_t state, const PmSite *commit)
{
	uint32_t	old = pmh_bucket_state(b) & PMH_STATE_OCCUPIED;
	uint64_t	offset = (uint64_t) ((const char *) b - at(0));

	for (uint32_t m = state & ~old & PMH_STATE_OCCUPIED; m != 0; m &= m - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(m);

		if (pmh_slot_line(slot) != 0)
			require(offset + pmh_slot_line(slot) * PMH_LINE, PMH_LINE, "a slot", commit);
		announced(b, slot, commit);
	}
	for (uint32_t m = old & ~state; m != 0 && (state & PMH_STATE_POINTERS) != 0; m &= m - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(m);
		uint64_t	hash = pmh_slot_load_hash(b, slot, pmh_slot_load_word(b, slot));
		uint32_t	now;
		int			pointer;

		(void) pmh_bucket_find(b, hash, &now, &pointer);
		if (pointer >= 0 && (state >> pointer & 1) != 0 && pmh_slot_line((unsigned) pointer) != 0)
			require(offset + pmh_slot_line((unsigned) pointer) * PMH_LINE, PMH_LINE,
					"a pointer slot", commit);
	}
}

/* A slot gets a pointer. */
static void
pointer_word(const char *addr, uint64_t word, const PmSite *commit)
{
	uint64_t	bucket = (uint64_t) (addr - at(0)) & ~(uint64_t) (PMH_BUCKET_SIZE - 1);
	uint64_t	line = (uint64_t) (addr - at(0)) & ~(uint64_t) (PMH_LINE - 1);

	if (!pmh_word_is_pointer(word))
		return;
	require_buffer(pmh_word_payload(word), commit);
	if (line != bucket)
		require_bits(bucket, PMH_STATE_POINTERS, "the mark that a bucket has pointers",
					 commit);
}

/*
 * A segment is unlocked: nothing of the table's file may be left to flush or fence,
 * wherever it is.  (A slot that is not durably free is filled by the next writer, say:
 * a crash may then leave the new entry under the old state.)  Left out is what recovery
 * does without and the recorder does not count as lasting: hints and the bits of value
 * blocks (volatile_functions), the run area, the space map.  Versions are in shared
 * memory.
 */
static void
all_durable(void)
{
	const Recorder *r = &recorders[0];

	for (size_t i = 0; i < r->npending; i++)
	{
		const Line *line = r->pending[i];

		if (line->number < FILE_LINES && (line->lasting > 0 || line->copied != 0))
			crash_missing("%s: a segment is unlocked before the store at %s:%d is durable",
						  crash.operation, site_base_name(stored_at(line)),
						  stored_at(line)->line);
	}
}

/*
 * Another process may go on from what is stored under a lock as soon as that is
 * free, and a fence of its own does not complete our flushes.  Under a directory,
 * space or grow lock those are the live words and the directory: a segment's stores
 * may still be on their way then.
 */
void
dependency_unlock(const uint64_t *lock)
{
	static const PmSite unlock = {"unlock", "lock.h", "pmh_unlock", 0, 0};
	const PmhLocks *locks = crash.locks[0];
	uint64_t	dirword = live()->dirword;

	if (!crash.armed || recorder_level != 0 || crash.creating ||
		lock < &locks->file[0].directory)
		return;
	if (lock >= (const uint64_t *) locks->stripe)
	{
		all_durable();
		return;
	}
	require(PMH_LIVE_OFFSET, sizeof(PmhLive), "the live words", &unlock);
	require(pmh_dirword_offset(dirword), pmh_directory_size(pmh_dirword_depth(dirword)),
			"the directory", &unlock);
}

/* The state of a bucket, or the word of a slot. */
static bool
is_bucket_commit(const PmSite *site)
{
	const char *file = site_base_name(site);

	return strcmp(site->kind, "commit") == 0 &&
		(strcmp(file, "bucket.c") == 0 || strcmp(file, "bucket.h") == 0 ||
		 strcmp(file, "segment.c") == 0);
}

void
dependency_check(void *addr, size_t size, uint64_t value, const PmSite *site)
{
	const char *start = at(0);
	const char *function = site->function;

	if (!crash.armed || (const char *) addr < start ||
		(const char *) addr >= start + FILE_BYTES)
		return;
	if (addr == &live()->dirword && !crash.creating)
		directory_word(value, site);
	else if (addr == start)
		magic(site);
	else if (strcmp(function, "store_elements") == 0)
		require_segment(value, site);
	else if (is_bucket_commit(site) && size == sizeof(uint32_t))
		bucket_state(addr, (uint32_t) value, site);
	else if (is_bucket_commit(site))
		pointer_word(addr, value, site);
	else if (strcmp(function, "store_slot") == 0 && value != 0)
		require_buffer(value & PMH_SLOT_POINTER, site);
}
