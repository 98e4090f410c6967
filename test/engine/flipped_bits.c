/*-------------------------------------------------------------------------
 *
 * flipped_bits.c
 *	  One flipped bit in what recovery begins with: it is noticed, and nothing is
 *	  stored that spreads it.
 *
 *-------------------------------------------------------------------------
 */

#include "content.h"
#include "sweeps.h"

#define KEYS		((uint64_t) 12000)
#define LIST_KEYS	((uint64_t) 40)
#define LIST		((uint64_t) 1000)	/* values of each of these */
#define BLOCK_SHIFT	((uint32_t) __builtin_ctz(PMH_SEGMENT_BUCKETS * PMH_BUCKET_SIZE))

static const char *path;
static char *bytes;				/* a sound file */
static size_t size;

static PmhLive *
live(void)
{
	return (PmhLive *) (void *) (bytes + PMH_LIVE_OFFSET);
}

static uint64_t *
directory(void)
{
	return (uint64_t *) (void *) (bytes + pmh_dirword_offset(live()->dirword));
}

/* Some segments of one element and some of several, and lists. */
static void
make_file(void)
{
	PmhTable   *t = fixture_create(path);
	uint64_t	seed = 5;

	put_keys(t, 0, KEYS);
	/* A deep corner, so that other segments have several elements. */
	for (uint64_t k = 0; k < 3000; k++)
		REQUIRE(pmh_insert(t, fixture_random(&seed) >> 4, k, false) == PMH_OK);
	for (uint64_t k = 0; k < LIST_KEYS; k++)
	{
		for (uint64_t v = 1; v < LIST; v++)
			REQUIRE(pmh_insert(t, fixture_hash(k), v << 32 | k, false) == PMH_OK);
	}
	pmh_close(t);
	bytes = read_bytes(path, &size);
}

/* Where the kind of the first value block is. */
static uint64_t
offset_of_kind(uint64_t *block)
{
	uint64_t	first = PMH_HEADER_MAP_OFFSET + PMH_HEADER_MAP_BLOCKS;

	for (*block = 0; *block < PMH_HEADER_MAP_BLOCKS; (*block)++)
	{
		if (((uint8_t) bytes[first + *block] & PMH_KIND_MASK) == PMH_KIND_VALUES)
			return first + *block;
	}
	REQUIRE(false);
	return 0;
}

/* The sound file, with a word of it changed. */
static void
write_file(uint64_t offset, uint64_t word)
{
	uint64_t	was;

	memcpy(&was, bytes + offset, sizeof(was));
	memcpy(bytes + offset, &word, sizeof(word));
	write_bytes(path, bytes, size);
	memcpy(bytes + offset, &was, sizeof(was));
}

/* The sound file, open. */
static PmhTable *
open_sound(void)
{
	write_file(PMH_LIVE_OFFSET, live()->dirword);
	return fixture_open(path, 2);
}

static uint64_t *
directory_of(PmhTable *t)
{
	return (uint64_t *) (void *) (t->file.base + pmh_dirword_offset(live()->dirword));
}

/* Is all there, by look-ups? */
static bool
all_right(PmhTable *t)
{
	PmhValues	values = {0};
	bool		ok = true;

	for (uint64_t k = 0; k < KEYS && ok; k++)
		ok = pmh_lookup(t, fixture_hash(k), &values) == PMH_OK &&
			values.n == (k < LIST_KEYS ? LIST : 1);
	pmh_values_free(&values);
	return ok;
}

/* Live words, log and directory are what they were, but for the word at 'offset'. */
static bool
unspread(uint64_t offset)
{
	uint64_t	dir = pmh_dirword_offset(live()->dirword);
	uint64_t	end = dir + pmh_directory_size(pmh_dirword_depth(live()->dirword));
	size_t		length;
	char	   *now = read_bytes(path, &length);
	bool		same;

	REQUIRE(length == size);
	memcpy(now + offset, bytes + offset, sizeof(uint64_t));
	same = memcmp(now + PMH_LIVE_OFFSET, bytes + PMH_LIVE_OFFSET, sizeof(PmhLive)) == 0 &&
		memcmp(now + dir, bytes + dir, end - dir) == 0;
	free(now);
	return same;
}

/* Is the file refused in this run?  A recovery that has failed is not taken for done later. */
static bool
is_refused(uint64_t instance)
{
	PmhEnv		env = fixture_env(instance);
	PmhTable   *t = NULL;
	PmhError	error;

	(void) pmh_locks_init(env.locks, FIXTURE_STRIPES);
	if (pmh_open(path, &env, &t, &error) == PMH_ERR_CORRUPT &&
		pmh_open(path, &env, &t, &error) == PMH_ERR_CORRUPT)
		return fixture_no_lock_held();
	if (t != NULL)
	{
		fprintf(stderr, "opened, answers %s\n", all_right(t) ? "right" : "wrong");
		pmh_close(t);
	}
	return false;
}

/*
 * Flip each bit of a word, and open the file: it must be refused, and be left alone.  Bits
 * that are not in 'noticed' mean nothing.
 */
static void
flip_each(const char *what, uint64_t offset, uint64_t instance, uint64_t noticed)
{
	uint64_t	word;

	memcpy(&word, bytes + offset, sizeof(word));
	for (unsigned bit = 0; bit < 64; bit++)
	{
		PmhTable   *t;

		write_file(offset, word ^ UINT64_C(1) << bit);
		if ((noticed >> bit & 1) != 0)
		{
			if (!CHECK(is_refused(instance)))
				fprintf(stderr, "%s, bit %u, instance %d\n", what, bit, (int) instance);
			if (!CHECK(unspread(offset)))
				fprintf(stderr, "%s, bit %u: more is damaged now\n", what, bit);
			continue;
		}
		(void) pmh_locks_init(fixture_locks(), FIXTURE_STRIPES);
		t = fixture_open(path, instance);
		CHECK(all_right(t));
		CLOSE_SOUND(t);
	}
}

#define ALL_BITS	UINT64_MAX

static uint64_t
offset_of_element(uint64_t i)
{
	return pmh_dirword_offset(live()->dirword) + i * sizeof(uint64_t);
}

/* The first element of a segment that has several, or of one that has one. */
static uint64_t
element_of(bool several)
{
	uint64_t	i = 0;

	while ((pmh_elem_depth(directory()[i]) == pmh_dirword_depth(live()->dirword)) == several)
		REQUIRE(++i < UINT64_C(1) << pmh_dirword_depth(live()->dirword));
	return i;
}

/* The first and the last element of a segment that has several, and one that has one. */
static void
test_elements(void)
{
	flip_each("first element", offset_of_element(element_of(true)), 2, ALL_BITS);
	flip_each("second element", offset_of_element(element_of(true) + 1), 2, ALL_BITS);
	flip_each("only element", offset_of_element(element_of(false)), 2, ALL_BITS);
}

/*
 * Elements of a segment that differ in the strategy, as a change of it leaves them that a crash
 * ends: all are made to say what the lowest says, which is stored last.
 */
static void
test_strategy(void)
{
	uint64_t	several = element_of(true);
	uint64_t	elem = directory()[several];
	PmhTable   *t;

	write_file(offset_of_element(several + 1),
			   pmh_elem_seal(elem ^ UINT64_C(3) << PMH_ELEM_STRATEGY_SHIFT));
	t = fixture_open(path, 2);
	CHECK(directory_of(t)[several] == elem && directory_of(t)[several + 1] == elem);
	CHECK(all_right(t));
	CLOSE_SOUND(t);
}

/*
 * A local depth that is too small by two, in an element whose parity is right: the
 * segment's neighbours, which it seems to have the elements of, must not get lost.  (By one
 * is what a crash in a merge may leave.)
 */
static void
test_depths(void)
{
	uint32_t	depth = pmh_dirword_depth(live()->dirword);
	unsigned	refused = 0;

	for (uint64_t i = 0; i < UINT64_C(1) << depth; i += 4)
	{
		uint64_t	elem = directory()[i];

		if (pmh_elem_depth(elem) != depth)
			continue;
		write_file(offset_of_element(i),
				   pmh_elem_seal(elem - (UINT64_C(2) << PMH_ELEM_DEPTH_SHIFT)));
		CHECK(is_refused(2));
		CHECK(unspread(offset_of_element(i)));
		refused++;
	}
	CHECK(refused > 0);
}

static void
test_live_words(void)
{
	for (uint64_t instance = 1; instance <= 2; instance++)
		flip_each("blocks", PMH_LIVE_OFFSET + offsetof(PmhLive, blocks), instance, ALL_BITS);
	flip_each("directory word", PMH_LIVE_OFFSET + offsetof(PmhLive, dirword), 2, ALL_BITS);
}

/*
 * The kind of a block: of a value block it would be free, and of another one it would be in
 * use twice, or for nothing.  Room in there is found out anew.
 */
static void
test_kinds(void)
{
	uint64_t	block;

	flip_each("kinds", offset_of_kind(&block) & ~UINT64_C(7), 2,
			  PMH_KIND_MASK * UINT64_C(0x0101010101010101));
}

/* ---- beside processes that have the file open ---- */

typedef uint64_t *(*Where) (PmhTable *t);
typedef PmhResult (*Use) (PmhTable *t);

/* With a bit of a word flipped, whichever, it is damage, and the word stays as it is. */
static void
flip_in_use(const char *what, void (*prepare) (PmhTable *t), Where where, Use use)
{
	for (unsigned bit = 0; bit < 64; bit++)
	{
		PmhTable   *t = open_sound();
		uint64_t   *word = where(t);
		uint64_t	was = *word;
		PmhResult	result;

		if (prepare != NULL)
			prepare(t);
		*word = was ^ UINT64_C(1) << bit;
		result = use(t);
		if (!CHECK(result == PMH_ERR_CORRUPT && *word == (was ^ UINT64_C(1) << bit)))
			fprintf(stderr, "%s, bit %u: %d\n", what, bit, (int) result);
		*word = was;
		CHECK(prepare != NULL || all_right(t));
		CLOSE_SOUND(t);
	}
}

#define WRITTEN_HASH	fixture_hash(LIST_KEYS + 1)

static uint64_t *
element_of_hash(PmhTable *t)
{
	return &directory_of(t)[WRITTEN_HASH >> (64 - pmh_dirword_depth(live()->dirword))];
}

/* What is found under a segment's lock is not stored to. */
static PmhResult
insert_and_delete(PmhTable *t)
{
	PmhResult	result = pmh_insert(t, WRITTEN_HASH, 5, false);

	CHECK(pmh_delete(t, WRITTEN_HASH, LIST_KEYS + 1) == result);
	return result;
}

static uint64_t *
directory_word(PmhTable *t)
{
	return &pmh_live(t)->dirword;
}

/* Where a walk comes by. */
static uint64_t *
element_of_several(PmhTable *t)
{
	return &directory_of(t)[element_of(true)];
}

static uint64_t *
length(PmhTable *t)
{
	return &pmh_live(t)->blocks;
}

/*
 * The length is not made anew, checksum and all, from a damaged one: what the file is to
 * grow by would be taken from blocks in use.  Nor are blocks punched by it.
 */
static PmhResult
grow_and_punch(PmhTable *t)
{
	uint64_t	block = 0;
	uint64_t	spare = 0;
	PmhResult	result = PMH_OK;

	for (uint64_t i = 0; i < 4 * KEYS && result == PMH_OK; i++)
		result = pmh_insert(t, fixture_hash(KEYS + i), i, false);
	CHECK(pmh_space_punch(t, &block, &spare) == PMH_ERR_CORRUPT);
	return result;
}

/* Let a segment be the left one of a pair, in hash order the first one that is. */
static uint64_t
left_of_pair(const uint64_t *dir, uint32_t depth, uint64_t *right)
{
	uint64_t	count;

	for (uint64_t i = 0; i < UINT64_C(1) << depth; i += count)
	{
		count = UINT64_C(1) << (depth - pmh_elem_depth(dir[i]));
		*right = i + count;
		if ((i & count) == 0 && pmh_elem_depth(dir[i]) > 0 &&
			pmh_elem_depth(dir[*right]) == pmh_elem_depth(dir[i]))
			return i;
	}
	REQUIRE(false);
	return 0;
}

static uint64_t *
element_of_buddy(PmhTable *t)
{
	uint64_t   *dir = directory_of(t);
	uint64_t	right;

	(void) left_of_pair(dir, pmh_dirword_depth(live()->dirword), &right);
	return &dir[right];
}

static PmhShrink begun;

static void
begin_shrink(PmhTable *t)
{
	take_keys(t, LIST_KEYS, KEYS, 0);
	REQUIRE(pmh_shrink_begin(t, PMH_DEFAULT_FILL, &begun) == PMH_OK);
}

/* A segment is not merged with what a flipped bit has made of its buddy's element. */
static PmhResult
go_on_shrinking(PmhTable *t)
{
	PmhResult	result;

	do
		result = pmh_shrink_step(t, &begun);
	while (result == PMH_OK);
	return result;
}

/*
 * More than a bit: an element that is possible by itself, and names what another segment
 * is in, or a value block.
 */
static void
test_claimed_twice(void)
{
	uint64_t	main_bits = (UINT64_C(1) << PMH_ELEM_MAIN_BITS) - 1;
	uint64_t	i = element_of(false);
	uint64_t	block[2] = {pmh_elem_main_block(directory()[i ^ 1])};

	(void) offset_of_kind(&block[1]);
	for (unsigned k = 0; k < 2; k++)
	{
		write_file(offset_of_element(i),
				   pmh_elem_seal((directory()[i] & ~main_bits) | block[k]));
		CHECK(is_refused(2));
	}
}

/*
 * After a load the directory that was there before still stands in the header, whole, and
 * says that the table is empty: one bit of the word leads there.
 */
static void
test_directory_before_load(void)
{
	PmhTable   *t = fixture_create(path);
	PmhEntry   *entries = calloc(KEYS, sizeof(PmhEntry));

	REQUIRE(entries != NULL);
	for (uint64_t k = 0; k < KEYS; k++)
		entries[k] = (PmhEntry) {fixture_hash(k), k};
	fixture_load(t, entries, KEYS, KEYS, PMH_DEFAULT_FILL);
	REQUIRE(pmh_dirword_offset(pmh_live(t)->dirword) == PMH_SMALL_DIR_OFFSET(1));
	pmh_close(t);
	free(entries);
	free(bytes);
	bytes = read_bytes(path, &size);
	flip_each("directory word", PMH_LIVE_OFFSET + offsetof(PmhLive, dirword), 2, ALL_BITS);
}

int
main(void)
{
	path = fixture_path("flipped_bits");
	make_file();
	TEST(test_elements());
	TEST(test_strategy());
	TEST(test_depths());
	TEST(test_live_words());
	TEST(test_kinds());
	TEST(flip_in_use("directory", NULL, directory_word, insert_and_delete));
	TEST(flip_in_use("writers", NULL, element_of_hash, insert_and_delete));
	TEST(flip_in_use("length", NULL, length, grow_and_punch));
	TEST(flip_in_use("walk", NULL, element_of_several, sweep_through_reading));
	TEST(flip_in_use("merge", begin_shrink, element_of_buddy, go_on_shrinking));
	TEST(test_claimed_twice());
	TEST(test_directory_before_load());
	unlink(path);
	free(bytes);
	return unit_done("flipped_bits");
}
