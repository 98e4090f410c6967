/*-------------------------------------------------------------------------
 *
 * check_damage.c
 *	  The check finds damage: one fault at a time is put into a sound file, and
 *	  the finding that names it must come.  (That reads and writes end with an
 *	  error, never with a loop: test/fuzz.)
 *
 *-------------------------------------------------------------------------
 */
#include "content.h"
#include "sweeps.h"

/* Past the end of any file, and where a buffer may be. */
#define FAR_AWAY	((UINT64_C(1) << 36) + sizeof(PmhValueBlock))

#define PAIRS	((uint64_t) 60000)
#define LONG	((uint64_t) 5000)	/* values of key 0: a chain */

typedef struct Expected
{
	const char *words;
	int			matching;
	int			all;
} Expected;

static void
expect(void *arg, uint64_t offset, const char *finding)
{
	Expected   *e = arg;

	e->all++;
	e->matching += strstr(finding, e->words) != NULL;
}

/* With the damage in place: is it found, under these words? */
static void
found(PmhTable *t, const char *words)
{
	Expected	e = {words, 0, 0};

	CHECK(check_alone(t, expect, &e) == PMH_ERR_CORRUPT);
	if (!CHECK(e.matching > 0))
		fprintf(stderr, "no finding with \"%s\" among %d\n", words, e.all);
}

/* Put another value somewhere, check, and put things right again. */
#define DAMAGE(lvalue, value, words) \
	do { \
		__typeof__(lvalue) saved = (lvalue); \
		(lvalue) = (value); \
		found(t, words); \
		(lvalue) = saved; \
	} while (0)

/* ---- finding things to damage ---- */

typedef struct Spot
{
	PmhPlace	place;
	uint32_t	bucket;
	unsigned	slot;
	PmhBucket  *b;
	uint64_t	hash;
	uint64_t	word;
} Spot;

typedef bool (*Wanted) (const Spot *spot);

/* The first occupied slot of the table that is wanted. */
static Spot
find_spot(PmhTable *t, Wanted wanted)
{
	Spot		s;
	uint64_t	hash = 0;

	do
	{
		uint32_t	depth;

		REQUIRE(pmh_locate(t, hash, &s.place) == PMH_OK);
		for (s.bucket = 0; s.bucket < s.place.buckets; s.bucket++)
		{
			s.b = pmh_bucket(t, &s.place, s.bucket);
			for (s.slot = 0; s.slot < PMH_SLOTS; s.slot++)
			{
				if ((pmh_bucket_state(s.b) >> s.slot & 1) == 0)
					continue;
				s.word = pmh_slot_load_word(s.b, s.slot);
				s.hash = pmh_slot_load_hash(s.b, s.slot, s.word);
				if (wanted(&s))
					return s;
			}
		}
		depth = pmh_elem_depth(s.place.elem);
		hash = depth == 0 ? 0 : (pmh_hash_prefix(hash, depth) + 1) << (64 - depth);
	} while (hash != 0);
	fprintf(stderr, "there is nothing to damage of the kind wanted\n");
	exit(1);
}

static bool
plain_at_home(const Spot *s)
{
	return !pmh_word_is_pointer(s->word) &&
		s->bucket == pmh_home_bucket(s->hash, s->place.hashing);
}

static bool
in_alternative(const Spot *s)
{
	return s->bucket < s->place.hashing &&
		s->bucket != pmh_home_bucket(s->hash, s->place.hashing);
}

static bool
in_stash(const Spot *s)
{
	return s->bucket >= s->place.hashing;
}

static bool
pointer_with_free_slot(const Spot *s)
{
	return pmh_word_is_pointer(s->word) && !pmh_state_full(pmh_bucket_state(s->b));
}

static bool
pointer_with_header(const Spot *s)
{
	return pmh_word_is_pointer(s->word) &&
		pmh_class_has_header(pmh_pointer_class(pmh_word_payload(s->word)));
}

static bool
pointer_to_index(const Spot *s)
{
	return pmh_word_is_pointer(s->word) && s->hash == fixture_hash(0);
}

static uint32_t *
state_of(PmhBucket *b)
{
	return (uint32_t *) b->bytes;
}

static uint64_t *
word_of(const Spot *s)
{
	return (uint64_t *) (s->b->bytes + pmh_slot_word[s->slot]);
}

/* ---- damage ---- */

static void
damage_header(PmhTable *t)
{
	PmhFormat  *format = pmh_format(t);
	PmhLive    *live = pmh_live(t);

	DAMAGE(format->magic, 1, "magic number");
	DAMAGE(format->version, 77, "format version");
	DAMAGE(format->crc, format->crc ^ 1, "checksum");
	DAMAGE(format->identity[3], (uint8_t) (format->identity[3] ^ 4), "checksum");
	DAMAGE(format->unused[1], 3, "checksum");
	DAMAGE(live->dirword, live->dirword | UINT64_C(31) << PMH_DIRWORD_DEPTH_SHIFT, "directory");
	DAMAGE(live->dirword, live->dirword + 1, "directory");
}

static void
damage_directory(PmhTable *t)
{
	uint64_t	dirword = pmh_live(t)->dirword;
	uint32_t	depth = pmh_dirword_depth(dirword);
	uint64_t   *dir = pmh_at(t, pmh_dirword_offset(dirword));
	uint64_t	main_bits = (UINT64_C(1) << PMH_ELEM_MAIN_BITS) - 1;
	uint64_t	i = 0;

	DAMAGE(dir[0], dir[0] | UINT64_C(31) << PMH_ELEM_DEPTH_SHIFT, "is damaged");
	DAMAGE(dir[0], pmh_elem_seal(dir[0] | UINT64_C(31) << PMH_ELEM_DEPTH_SHIFT), "is deeper");
	DAMAGE(dir[0], pmh_elem_seal(dir[0] | UINT64_C(3) << PMH_ELEM_STRATEGY_SHIFT),
		   "is impossible");
	DAMAGE(dir[0], pmh_elem_seal(dir[0] | main_bits), "outside of the file");
	DAMAGE(dir[0], pmh_elem_seal(dir[0] & ~main_bits), "is damaged");
	for (unsigned bit = 0; bit < PMH_ELEM_DEPTH_SHIFT; bit++)
		DAMAGE(dir[0], dir[0] ^ UINT64_C(1) << bit, "");	/* (or outside of the file) */
	DAMAGE(dir[0], dir[(1 << depth) - 1], "something else");
	DAMAGE(dir[0], dir[(1 << depth) - 1], "of another segment");

	/* A segment with two elements, of which the second one is changed. */
	while (i < UINT64_C(1) << depth && pmh_elem_depth(dir[i]) == depth)
		i++;
	REQUIRE(i + 1 < UINT64_C(1) << depth);
	DAMAGE(dir[i + 1], dir[i + 1] ^ UINT64_C(1) << PMH_ELEM_STRATEGY_SHIFT, "neighbour");
	DAMAGE(dir[i], pmh_elem_seal(dir[i] + (UINT64_C(1) << PMH_ELEM_DEPTH_SHIFT)),
		   "neighbour");
}

static void
damage_buckets(PmhTable *t)
{
	Spot		s = find_spot(t, plain_at_home);
	uint8_t    *top = (uint8_t *) (s.b->bytes + pmh_slot_top[s.slot]);
	uint64_t	home_flip = UINT64_C(1) << 63;
	PmhBucket  *home;

	DAMAGE(*top, (uint8_t) (*top ^ 0x80), "another segment");
	DAMAGE(*word_of(&s), *word_of(&s) ^ home_flip, "holds an entry in");
	DAMAGE(*word_of(&s), *word_of(&s) | PMH_WORD_POINTER, "without telling so");

	s = find_spot(t, in_alternative);
	home = pmh_bucket(t, &s.place, pmh_home_bucket(s.hash, s.place.hashing));
	DAMAGE(*state_of(home), *state_of(home) & ~pmh_filter_bit(s.hash), "second bucket without");

	s = find_spot(t, in_stash);
	home = pmh_bucket(t, &s.place, pmh_home_bucket(s.hash, s.place.hashing));
	DAMAGE(*state_of(home), *state_of(home) & ~PMH_STATE_STASHED, "stash without");
}

static void
damage_pointers(PmhTable *t)
{
	Spot		s = find_spot(t, pointer_with_free_slot);
	Spot		chain = find_spot(t, pointer_to_index);
	PmhBucket	saved = *s.b;
	unsigned	free_slot = (unsigned) __builtin_ctz(~*state_of(s.b) & PMH_STATE_OCCUPIED);
	uint64_t	no_payload = s.word & ~PMH_WORD_PAYLOAD;

	DAMAGE(*state_of(s.b), *state_of(s.b) & ~PMH_STATE_POINTERS, "without telling so");
	DAMAGE(*word_of(&s), no_payload | pmh_make_pointer(1 << 20, 31), "impossible");
	DAMAGE(*word_of(&s), no_payload | pmh_make_pointer(64, PMH_LEAST_CLASS), "impossible");
	DAMAGE(*word_of(&s), no_payload | pmh_make_pointer((1 << 20) + sizeof(PmhValueBlock), 0), "impossible");
	DAMAGE(*word_of(&s), no_payload | pmh_make_pointer((1 << 20) + sizeof(PmhValueBlock) + PMH_GRAIN,
															   PMH_LEAST_CLASS), "impossible");
	DAMAGE(*word_of(&s), no_payload | pmh_make_pointer(1 << 20, PMH_LEAST_CLASS), "impossible");
	DAMAGE(*word_of(&s), no_payload | pmh_make_pointer((1 << 20) - PMH_VALUE_LINE,
															   PMH_LEAST_CLASS + 2), "impossible");
	DAMAGE(*word_of(&s), no_payload | pmh_make_pointer((UINT64_C(1) << 40) + sizeof(PmhValueBlock),
															   PMH_LEAST_CLASS), "outside of the file");
	DAMAGE(*word_of(&s), no_payload | pmh_make_pointer(s.place.main + sizeof(PmhValueBlock),
															   PMH_LEAST_CLASS), "in no value block");
	DAMAGE(*word_of(&s), no_payload | pmh_word_payload(chain.word), "another key");

	pmh_slot_store(s.b, free_slot, s.hash, s.word);
	*state_of(s.b) |= UINT32_C(1) << free_slot;
	found(t, "second pointer");
	found(t, "used twice");
	*s.b = saved;
}

static void
damage_lists(PmhTable *t)
{
	Spot		s = find_spot(t, pointer_with_header);
	uint64_t	payload = pmh_word_payload(s.word);
	PmhBufferHeader *header = pmh_buffer_header(t, payload);
	PmhValueLine *line = pmh_buffer_line(t, payload, 1);
	uint32_t	lines = pmh_class_lines(pmh_pointer_class(payload));
	PmhValueLine *saved = malloc(lines * sizeof(PmhValueLine));

	REQUIRE(saved != NULL);
	DAMAGE(header->hash, header->hash ^ 1, "another key");
	for (unsigned bit = PMH_HINT_KIND_SHIFT; bit < 32; bit++)
		DAMAGE(header->fill_hint, header->fill_hint ^ UINT32_C(1) << bit, "another kind");
	for (unsigned bit = 0; bit < PMH_POINTER_KIND_BITS; bit++)
	{
		uint64_t	class = pmh_pointer_class(payload ^ UINT64_C(1) << bit);

		if (pmh_class_has_header((uint32_t) class) && class <= PMH_MAX_CLASS)
			/* (Of another kind, or impossible if that reaches past its block.) */
			DAMAGE(*word_of(&s), *word_of(&s) ^ UINT64_C(1) << bit, "value buffer");
	}
	DAMAGE(*pmh_cell_high(line, 0), 0x8001, "too large");

	memcpy(saved, line, (lines - 1) * sizeof(PmhValueLine));
	for (uint32_t i = 0; i + 1 < lines; i++)
		line[i].state = 0;
	found(t, "is empty");
	memcpy(line, saved, (lines - 1) * sizeof(PmhValueLine));
	free(saved);
}

static void
damage_index(PmhTable *t)
{
	Spot		s = find_spot(t, pointer_to_index);
	Spot		other = find_spot(t, pointer_with_header);
	uint64_t	payload = pmh_word_payload(s.word);
	PmhBufferHeader *header = pmh_buffer_header(t, payload);
	uint64_t   *slot = pmh_index_slot(t, payload, 0);

	REQUIRE(pmh_pointer_level(payload) == 1 && slot[0] != 0 && slot[1] != 0);
	DAMAGE(header->hash, header->hash ^ 1, "another key");
	for (unsigned bit = PMH_HINT_KIND_SHIFT; bit < 32; bit++)
		DAMAGE(header->fill_hint, header->fill_hint ^ UINT32_C(1) << bit, "another kind");
	DAMAGE(slot[1], pmh_make_pointer(FAR_AWAY, PMH_CHUNK_CLASS), "outside of the file");
	DAMAGE(slot[1], payload, "another level");
	DAMAGE(slot[1], slot[1] ^ UINT64_C(1) << PMH_POINTER_CLASS_BITS, "another level");
	DAMAGE(slot[1], pmh_word_payload(other.word), "another key");
	DAMAGE(slot[1], pmh_make_pointer(UINT64_C(1) << 20, 31), "impossible");
	DAMAGE(slot[1], slot[0], "used twice");
	DAMAGE(slot[1], 0, "neither in use nor free");
}

static void
damage_space(PmhTable *t)
{
	PmhRun	   *run = pmh_run(t);
	PmhLive    *live = pmh_live(t);
	Spot		chain = find_spot(t, pointer_to_index);
	uint64_t	used = pmh_pointer_offset(pmh_word_payload(chain.word));
	PmhValueBlock *values = pmh_at(t, used & ~(PMH_BLOCK_SIZE - 1));
	uint8_t    *kind = pmh_space_kind(t, used >> PMH_BLOCK_SHIFT);
	uint64_t	grain = used % PMH_BLOCK_SIZE / PMH_GRAIN;
	uint64_t   *used_word = &values->used[grain / 64];
	uint64_t   *lost_word = NULL;
	uint8_t    *used_map = pmh_space_map(t, chain.place.main >> PMH_BLOCK_SHIFT);
	uint8_t    *free_map = NULL;

	for (uint64_t block = 0; block < pmh_blocks(t) && free_map == NULL; block++)
	{
		if (*pmh_space_map(t, block) == 0)
			free_map = pmh_space_map(t, block);
	}
	REQUIRE(free_map != NULL);
	DAMAGE(*used_map, 0, "the space map says it is free");
	DAMAGE(*free_map, 1, "the space map says it is.");
	DAMAGE(run->free_units, run->free_units + 1, "free units");
	for (unsigned i = 0; i < pmh_blocks(t) && lost_word == NULL; i++)
	{
		values = pmh_at(t, (uint64_t) i << PMH_BLOCK_SHIFT);
		if ((*pmh_space_kind(t, i) & PMH_KIND_MASK) == PMH_KIND_VALUES &&
			values->used[PMH_GRAIN_WORDS - 1] != UINT64_MAX)
			lost_word = &values->used[PMH_GRAIN_WORDS - 1];
	}
	REQUIRE(lost_word != NULL);
	DAMAGE(*used_word, *used_word & ~(UINT64_C(1) << grain % 64), "is free which is in use");
	DAMAGE(*lost_word, UINT64_MAX, "neither in use nor free");
	DAMAGE(*kind, 0, "in no value block");
	DAMAGE(*kind, *kind ^ PMH_KIND_VALUES ^ PMH_KIND_MASK, "kind of block");
	DAMAGE(run->value_blocks, run->value_blocks + 1, "value blocks");
	DAMAGE(run->old_blocks, run->old_blocks + 1, "value blocks");
	DAMAGE(live->blocks, live->blocks ^ UINT64_C(1) << 40, "length of the file is damaged");
}

static bool
in_main_part(const Spot *s)
{
	return pmh_elem_has_main(s->place.elem);
}

/* An element, its parity right, leads to block 0: the header's, which would be freed. */
static void
element_of_header(PmhTable *t)
{
	Spot		s = find_spot(t, in_main_part);
	uint64_t	main_bits = (UINT64_C(1) << PMH_ELEM_MAIN_BITS) - 1;
	uint64_t   *elem = (uint64_t *) pmh_at(t, pmh_dirword_offset(s.place.dirword)) + s.place.index;
	uint64_t	saved = *elem;
	PmhEntry	entry = {s.hash, PMH_VALUE_MAX};
	PmhSweep	sweep;
	size_t		done;

	REQUIRE(saved == s.place.elem);
	*elem = pmh_elem_seal(saved & ~main_bits);
	CHECK(pmh_insert(t, s.hash, PMH_VALUE_MAX, false) == PMH_ERR_CORRUPT);
	CHECK(pmh_insert_group(t, &entry, 1, false, &done) == PMH_ERR_CORRUPT);
	CHECK(pmh_delete(t, s.hash, PMH_VALUE_MAX) == PMH_ERR_CORRUPT);
	REQUIRE(pmh_sweep_begin(t, &sweep) == PMH_OK);
	CHECK(sweep_to_end(t, &sweep, PMH_OK) == PMH_ERR_CORRUPT);
	*elem = saved;
}

/* The directory word leads to the header, or into a block: neither is copied and freed. */
static void
directory_elsewhere(PmhTable *t)
{
	uint64_t   *dirword = &pmh_live(t)->dirword;
	uint64_t	saved = *dirword;
	uint32_t	depth = PMH_SMALL_DIR_DEPTH + 2;
	uint64_t	blocks = 1 + pmh_directory_blocks(depth);
	uint64_t	extent;

	REQUIRE(pmh_provide_extent(t, blocks, &extent) == PMH_OK);
	memset(pmh_at(t, extent), 0, blocks << PMH_BLOCK_SHIFT);
	for (int i = 0; i < 2; i++)
	{
		*dirword = (i == 0 ? 0 : (extent + 64) / 64) | (uint64_t) depth << PMH_DIRWORD_DEPTH_SHIFT;
		CHECK(pmh_directory_double(t, depth) == PMH_ERR_CORRUPT);
		CHECK(fixture_no_lock_held());
		*dirword = saved;
	}
	pmh_space_free_extent(t, extent, blocks);
}

static void
check_sound(PmhTable *t)
{
	CHECK_SOUND(t);
	CHECK(pmh_check(t, fixture_report, NULL) == PMH_OK);
}

int
main(void)
{
	const char *path = fixture_path("check_damage");
	PmhTable   *t = fixture_create(path);
	uint64_t	seed = 5;

	put_values(t, fixture_hash(0), 0, LONG);
	for (uint64_t i = 0; i < PAIRS; i++)
	{
		uint64_t	key = fixture_random(&seed) % (i % 4 == 0 ? 100 : PAIRS);

		REQUIRE(pmh_insert(t, fixture_hash(1 + key), i, false) == PMH_OK);
	}
	/* Hashes that begin alike: segments of several depths. */
	for (uint64_t i = 0; i < PAIRS / 10; i++)
		REQUIRE(pmh_insert(t, fixture_random(&seed) >> 7, i, false) == PMH_OK);
	check_sound(t);
	TEST(damage_header(t));
	TEST(damage_directory(t));
	TEST(damage_buckets(t));
	TEST(damage_pointers(t));
	TEST(damage_lists(t));
	TEST(damage_index(t));
	TEST(damage_space(t));
	check_sound(t);
	TEST(element_of_header(t));
	check_sound(t);
	TEST(directory_elsewhere(t));
	check_sound(t);
	pmh_close(t);
	unlink(path);
	return unit_done("check_damage");
}
