/*-------------------------------------------------------------------------
 *
 * read_ahead.c
 *	  Pages of the file, read from disk before an operation waits for them.
 *
 * The kernel reads a page at a time for us (map.c, MADV_RANDOM): hashes have no
 * neighbours.  What is known to be needed soon is asked for here, all at once, and the
 * device reads it together.
 *
 * Each page that is asked for, or looked at, is a system call of half a microsecond, as
 * long as eight keys of a group take.  So one page of a group is looked at first: if it is
 * in memory, nothing is asked for, and the next look is some keys later, the more the more
 * looks have found so; if it is not, this group and the next ones are asked for.  Of a file
 * of which a part is in memory that finds the groups that would wait, soon enough.
 *
 *-------------------------------------------------------------------------
 */
#include "segment.h"

/* Groups of fewer keys are not worth the look. */
#define LEAST_KEYS		8

/* Keys between looks that find all in memory, at most. */
#define KEYS_ON			1024

/* After a page that was not in memory so many groups are asked for without one. */
#define GROUPS_ON		16

/* Segments of a walk that are asked for together. */
#define SEGMENTS		32

/* Are pages to be asked for, if those at 'address' are next? */
static bool
is_cold(PmhTable *t, const void *address)
{
	if (!pm_is_resident(&t->file, address))
		t->cold = GROUPS_ON;
	else if (t->cold > 0)
		t->cold--;
	return t->cold > 0;
}

size_t
pmh_ask_for_homes(PmhTable *t, const uint64_t *hash, size_t stride,
				  size_t n, bool alternatives)
{
	PmhPlace	place;			/* of the first; found in the directory as it is now */
	PmhHome		h;

	PMH_ASSERT(stride > 0);
	n = n < PMH_ASK_KEYS ? n : PMH_ASK_KEYS;
	if (t->keys_warm >= n)
	{
		t->keys_warm -= n;
		return n;
	}
	if (n < LEAST_KEYS || pmh_locate(t, *hash, &place) != PMH_OK ||
		!pmh_home_find(t, *hash, &h))
		return n;
	if (!is_cold(t, h.bucket))
	{
		t->look_each = t->look_each < KEYS_ON / 2 ? 2 * t->look_each + n : KEYS_ON;
		t->keys_warm = t->look_each;
		return n;
	}
	t->look_each = 0;
	for (size_t i = 0; i < n; i++)
	{
		if (!pmh_home_find(t, hash[i * stride], &h))
			continue;
		pm_read_ahead(&t->file, h.bucket, PMH_BUCKET_SIZE);
		if (alternatives)
			pm_read_ahead(&t->file, pmh_home_alternative(t, hash[i * stride], &h),
						  PMH_BUCKET_SIZE);
	}
	return n;
}

/* The word of the first slot of a mask; 0 if that is empty. */
static uint64_t
first_word(const PmhBucket *b, uint32_t mask)
{
	return mask == 0 ? 0 : pmh_slot_load_word(b, (unsigned) __builtin_ctz(mask));
}

static void
ask_for_buffer(const PmhTable *t, uint64_t payload)
{
	pm_read_ahead(&t->file, pmh_unchecked(t, pmh_pointer_offset(payload)),
				  pmh_class_bytes(pmh_pointer_class(payload)));
}

void
pmh_ask_further(const PmhTable *t, uint64_t hash, const PmhHome *h, uint32_t mask)
{
	uint64_t	word = first_word(h->bucket, mask);
	uint64_t	payload = pmh_word_payload(word);

	if ((pmh_bucket_state(h->bucket) & pmh_filter_bit(hash)) != 0)
		pm_read_ahead(&t->file, pmh_home_alternative(t, hash, h), PMH_BUCKET_SIZE);
	if (pmh_word_is_pointer(word))
		ask_for_buffer(t, payload);
}

void
pmh_ask_for_buffer(PmhTable *t, uint64_t payload)
{
	if (is_cold(t, pmh_unchecked(t, pmh_pointer_offset(payload))))
		ask_for_buffer(t, payload);
}

void
pmh_ask_for_lists(PmhTable *t, const PmhBucket *copy, uint32_t n)
{
	bool		looked = false;

	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	state = pmh_bucket_state(&copy[i]);
		uint32_t	mask = (state & PMH_STATE_POINTERS) != 0 ? state & PMH_STATE_OCCUPIED : 0;

		for (; mask != 0; mask &= mask - 1)
		{
			uint64_t	word = first_word(&copy[i], mask);
			uint64_t	payload = pmh_word_payload(word);

			if (!pmh_word_is_pointer(word))
				continue;
			if (!looked && !is_cold(t, pmh_unchecked(t, pmh_pointer_offset(payload))))
				return;
			looked = true;
			ask_for_buffer(t, payload);
		}
	}
}

/* The pages of a segment, in as many calls as it has parts. */
static void
ask_for_segment(const PmhTable *t, const PmhPlace *place)
{
	uint32_t	units = pmh_elem_units(place->elem);

	if (place->main != 0)
		pm_read_ahead(&t->file, pmh_unchecked(t, place->main), PMH_BLOCK_SIZE);
	if (units > 0)
		pm_read_ahead(&t->file, pmh_unchecked(t, place->ext), units * PMH_UNIT_SIZE);
}

void
pmh_ask_for_next_segments(PmhTable *t, uint64_t hash)
{
	const uint64_t *dir = (const uint64_t *) pmh_at(t, t->seen_offset);
	uint64_t	at = (uint64_t) (((unsigned __int128) hash * t->seen_elements) >> 64);
	uint32_t	depth = (uint32_t) __builtin_ctzll(t->seen_elements);
	bool		walks = hash == t->walk_next;
	unsigned	wanted = walks ? SEGMENTS : 1;
	uint64_t	elem = pm_load_acquire(&dir[at]);
	PmhPlace	place;

	if (pmh_elem_depth(elem) > depth)
		return;
	t->walk_next = pmh_segment_end(hash, pmh_elem_depth(elem));
	if (t->walk_left > 0)
		t->walk_left--;
	if (!walks || t->walk_left == 0)
	{
		t->walk_left = 0;
		t->walk_at = at;
	}
	place.elem = elem;
	if (t->walk_left > SEGMENTS / 2 || !pmh_place_decode(t, &place) ||
		!is_cold(t, pmh_at(t, place.first)))
		return;
	for (; t->walk_left < wanted && t->walk_at < t->seen_elements; t->walk_left++)
	{
		place.elem = pm_load_acquire(&dir[t->walk_at]);
		if (!pmh_place_decode(t, &place) || pmh_elem_depth(place.elem) > depth)
			break;
		ask_for_segment(t, &place);
		t->walk_at += UINT64_C(1) << (depth - pmh_elem_depth(place.elem));
	}
	PMH_ASSERT(t->walk_left <= SEGMENTS);
}

/* ---- before a lock ---- */

/* The class of the buffer of a list that an insert makes (bucket.c). */
#define FIRST_CLASS		3

static inline void
touch(const PmhTable *t, uint64_t offset)
{
	(void) pm_load_acquire((const uint64_t *) pmh_at(t, offset));
}

/* The place of a hash in the directory that was seen last.  False: there is none. */
static bool
find_place(const PmhTable *t, uint64_t hash, PmhHome *h, PmhPlace *place)
{
	if (!pmh_home_find(t, hash, h))
		return false;
	place->elem = h->elem;
	return pmh_place_decode(t, place);
}

static void
touch_place(const PmhTable *t, const PmhPlace *place)
{
	if (!pm_is_resident(&t->file, pmh_at(t, place->first)))
		ask_for_segment(t, place);
	for (uint32_t i = 0; place->main != 0 && i < PMH_UNITS_PER_BLOCK; i++)
		touch(t, place->main + i * PMH_UNIT_SIZE);
	for (uint32_t i = 0; i < pmh_elem_units(place->elem); i++)
		touch(t, place->ext + i * PMH_UNIT_SIZE);
}

/* The bits of a value block, and where its first free grain is.  (The number is a hint.) */
static void
touch_value_block(const PmhTable *t, uint64_t block)
{
	const PmhValueBlock *b;
	uint32_t	i = 0;

	if (block >= PMH_MAX_BLOCKS ||
		!pmh_within(t, block << PMH_BLOCK_SHIFT, sizeof(PmhValueBlock)))
		return;
	(void) pm_load(pmh_space_kind(t, block));
	b = pmh_at(t, block << PMH_BLOCK_SHIFT);
	while (i < PMH_GRAIN_WORDS && pm_load(&b->used[i]) == ~UINT64_C(0))
		i++;
	if (i < PMH_GRAIN_WORDS && pmh_within(t, block << PMH_BLOCK_SHIFT, PMH_BLOCK_SIZE))
		touch(t, (block << PMH_BLOCK_SHIFT) + i * 64 * PMH_GRAIN +
			  (uint64_t) __builtin_ctzll(~pm_load(&b->used[i]) | UINT64_C(1) << 63) * PMH_GRAIN);
}

/*
 * The buffer of a list to which values are added, and the indexes above, as it seems.
 * False if it has room: the list will not take another one.
 */
static bool
touch_list(const PmhTable *t, uint64_t payload)
{
	for (uint32_t level = pmh_pointer_level(payload);; level--)
	{
		uint64_t	at = pmh_pointer_offset(payload);
		uint32_t	hint;

		if (!pmh_within(t, at, sizeof(PmhBufferHeader)))
			return true;
		touch(t, at);
		hint = pmh_hint_place(pm_load(&pmh_buffer_header(t, payload)->fill_hint));
		if (level == 0 && pmh_pointer_has_header(payload) &&
			hint + 1 < pmh_class_lines(pmh_pointer_class(payload)))
			return false;
		if (level == 0)
		{
			/* And the bits of its block, for when the buffer is freed. */
			touch(t, at & ~(PMH_BLOCK_SIZE - 1));
			return true;
		}
		at += sizeof(PmhBufferHeader) + sizeof(uint64_t) * hint;
		if (!pmh_within(t, at, sizeof(uint64_t)))
			return true;
		payload = pm_load((const uint64_t *) pmh_at(t, at)) & PMH_SLOT_POINTER;
	}
}

uint64_t
pmh_touch_segment(const PmhTable *t, uint64_t hash)
{
	PmhHome		h;
	PmhPlace	place;

	if (t->file.persist || !find_place(t, hash, &h, &place))
		return hash;
	touch_place(t, &place);
	return pmh_segment_end(hash, pmh_elem_depth(place.elem));
}

void
pmh_touch_for_insert(const PmhTable *t, uint64_t hash)
{
	PmhHome		h;
	PmhPlace	place;
	uint32_t	alt;
	uint32_t	state;
	uint64_t	word;
	bool		full;

	if (t->file.persist || !find_place(t, hash, &h, &place))
		return;
	alt = pmh_alt_bucket(hash, place.hashing, pmh_home_bucket(hash, place.hashing));
	word = first_word(h.bucket,
					  pmh_bucket_match(h.bucket, pmh_hash_fingerprint(hash), &state));
	/* The bits of the block that a buffer for a list will come from. */
	if (pmh_word_is_pointer(word) ? touch_list(t, pmh_word_payload(word)) : pmh_state_full(state))
	{
		touch_value_block(t, pm_load(&pmh_run(t)->value_hint[FIRST_CLASS]));
		touch_value_block(t, pm_load(&pmh_run(t)->newest_block));
	}
	full = pmh_state_full(state);
	full &= pmh_state_full(pmh_bucket_state(pmh_bucket(t, &place, alt)));
	for (uint32_t b = place.hashing; b < place.buckets; b++)
		full &= pmh_state_full(pmh_bucket_state(pmh_bucket(t, &place, b)));

	/* Then a larger one is made of it. */
	if (full)
		touch_place(t, &place);
}
