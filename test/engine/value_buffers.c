/*-------------------------------------------------------------------------
 *
 * value_buffers.c
 *	  Value buffers of all classes: where they may be, where their lines are, and
 *	  that no byte of a value block is lost or given out twice, by allocation, when
 *	  it is freed, by a walk.  Lists of the odd class.
 *
 *-------------------------------------------------------------------------
 */
#include "sweeps.h"
#include "table_alone.h"

#define ODD_KEYS		UINT64_C(3000)
#define ODD_VALUES		UINT64_C(6)		/* a list of them is of the odd class */

/* ---- figures ---- */

/* Bytes that are used in value blocks. */
static uint64_t
used_bytes(PmhTable *t)
{
	uint64_t	grains = 0;

	for (uint64_t block = 1; block < pmh_blocks(t); block++)
	{
		const PmhValueBlock *b = pmh_at(t, block << PMH_BLOCK_SHIFT);

		if ((*pmh_space_kind(t, block) & PMH_KIND_MASK) != PMH_KIND_VALUES)
			continue;
		CHECK((b->used[0] & UINT64_C(0xffff)) == UINT64_C(0xffff));
		for (unsigned i = 0; i < PMH_GRAIN_WORDS; i++)
			grains += (unsigned) __builtin_popcountll(b->used[i]);
		grains -= PMH_HEAD_GRAINS;
	}
	return grains * PMH_GRAIN;
}

static uint64_t
value_blocks(PmhTable *t)
{
	return pmh_run(t)->value_blocks;
}

/* ---- buffers alone ---- */

/* Has each line its bytes to itself, inside of the buffer and of one cache line? */
static void
check_lines(uint64_t offset, uint32_t class)
{
	uint64_t	payload = pmh_make_pointer(offset, class);
	uint64_t	grains_used = 0;
	uint32_t	values = 0;

	for (uint32_t line = pmh_class_first_line(class); line < pmh_class_lines(class); line++)
	{
		uint32_t	capacity = pmh_line_capacity(class, line);
		uint64_t	size = capacity == PMH_VALUES_PER_LINE ? PMH_VALUE_LINE : PMH_GRAIN;
		uint64_t	at = pmh_line_offset(payload, line);

		CHECK(at >= offset && at + size <= offset + pmh_class_bytes(class));
		CHECK(at / PMH_LINE == (at + size - 1) / PMH_LINE);
		values += capacity;
		if (class == PMH_ODD_CLASS)
		{
			uint64_t	bits = (UINT64_C(1) << size / PMH_GRAIN) - 1;

			bits <<= (at - offset) / PMH_GRAIN;
			CHECK((grains_used & bits) == 0);
			grains_used |= bits;
		}
	}
	CHECK(values == pmh_class_capacity(class));
}

static uint64_t
take(PmhTable *t, uint32_t class)
{
	uint64_t	offset = 0;
	unsigned	needs = 0;
	PmhResult	result;

	while ((result = pmh_value_alloc(t, class, &offset)) == PMH_NEED && needs++ < 3)
		REQUIRE(pmh_provide(t) == PMH_OK);
	REQUIRE(result == PMH_OK);
	CHECK(pmh_buffer_may_be_at(class, offset));
	check_lines(offset, class);
	return offset;
}

/* What was given out, so that no two have a byte in common. */
#define MOST_TAKEN		4000

static struct
{
	uint64_t	offset;
	uint32_t	class;
}			taken[MOST_TAKEN];
static unsigned ntaken;

static void
take_another(PmhTable *t, uint32_t class)
{
	uint64_t	offset = take(t, class);
	const unsigned char *byte = pmh_at(t, offset);

	REQUIRE(ntaken < MOST_TAKEN);
	/* Those that are given out are full of 0xff, and what is free is 0. */
	for (uint64_t i = 0; i < pmh_class_bytes(class); i++)
		CHECK(byte[i] == 0);
	memset(pmh_at(t, offset), 0xff, pmh_class_bytes(class));
	taken[ntaken].offset = offset;
	taken[ntaken++].class = class;
}

static void
free_one(PmhTable *t, unsigned i)
{
	const unsigned char *byte = pmh_at(t, taken[i].offset);

	for (uint64_t k = 0; k < pmh_class_bytes(taken[i].class); k++)
		CHECK(byte[k] == 0xff);
	memset(pmh_at(t, taken[i].offset), 0, pmh_class_bytes(taken[i].class));
	pmh_value_free(t, taken[i].offset, taken[i].class);
	taken[i] = taken[--ntaken];
}

/* Buffers of all classes come and go: no byte is given out twice, and none lost. */
static void
test_classes(uint32_t most)
{
	PmhTable   *t = create();
	uint64_t	seed = most;
	uint64_t	used = 0;

	ntaken = 0;
	for (unsigned i = 0; i < 20000; i++)
	{
		uint32_t	class = PMH_LEAST_CLASS + (uint32_t) (fixture_random(&seed) % most);

		if (ntaken == MOST_TAKEN || (ntaken > 0 && fixture_random(&seed) % 5 < 2 + i / 5000 % 2))
		{
			unsigned	k = (unsigned) (fixture_random(&seed) % ntaken);

			used -= pmh_class_bytes(taken[k].class);
			free_one(t, k);
		}
		else
		{
			take_another(t, class);
			used += pmh_class_bytes(class);
		}
		if (i % 100 == 0)
			CHECK(used_bytes(t) == used);
	}
	while (ntaken > 0)
		free_one(t, ntaken - 1);
	CHECK(used_bytes(t) == 0 && value_blocks(t) == 0);
	CLOSE_SOUND(t);
}

/* Each class fills a block to the end, and what is freed is one piece again. */
static void
test_block(void)
{
	for (uint32_t class = PMH_LEAST_CLASS; class <= PMH_MAX_CLASS; class++)
	{
		PmhTable   *t = create();
		unsigned	n = (PMH_BLOCK_GRAINS - PMH_HEAD_GRAINS) / pmh_class_grains[class];

		ntaken = 0;
		for (unsigned i = 0; i < n; i++)
			take_another(t, class);
		CHECK(value_blocks(t) == 1);
		/* Those between two that stay leave a hole each, for no larger one. */
		for (unsigned i = 0; i + 1 < n; i++)
		{
			free_one(t, i);
			take_another(t, class);
			CHECK(value_blocks(t) == 1);
		}
		while (ntaken > 0)
			free_one(t, (ntaken - 1) / 2);
		take_another(t, PMH_MAX_CLASS);
		CHECK(value_blocks(t) == 1);
		take_another(t, PMH_MAX_CLASS);
		CHECK(value_blocks(t) == 2);
		free_one(t, 0);
		CHECK(value_blocks(t) == 1);
		pmh_close(t);
	}
}

/* What is free anywhere, and not far, is found before a new block is taken. */
static void
test_search(void)
{
	PmhTable   *t = create();
	uint64_t	blocks;
	unsigned	again = 0;

	ntaken = 0;
	for (unsigned i = 0; i < 3000; i++)
		take_another(t, PMH_MAX_CLASS - i % 2 * 12);
	for (unsigned i = 7; i < ntaken; i += 97)
	{
		again += taken[i].class < PMH_MAX_CLASS;
		free_one(t, i);
	}
	blocks = value_blocks(t);
	while (again-- > 0)
		take_another(t, PMH_MAX_CLASS - 12);
	CHECK(value_blocks(t) == blocks);
	pmh_close(t);
}

/* ---- lists ---- */

static uint64_t
odd_value(uint64_t key, uint64_t i)
{
	return key * 16 + i;
}

/* Lists that fit exactly, neighbours in hash order being neighbours in the block. */
static PmhTable *
make_odd_lists(void)
{
	PmhTable   *t = create();
	PmhEntry   *entry = malloc(ODD_KEYS * ODD_VALUES * sizeof(*entry));
	PmhStats	stats;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < ODD_KEYS * ODD_VALUES; i++)
	{
		uint64_t	key = i / ODD_VALUES;

		entry[i] = (PmhEntry) {fixture_hash(key), odd_value(key, i % ODD_VALUES)};
	}
	fixture_load(t, entry, ODD_KEYS * ODD_VALUES, ODD_KEYS, PMH_DEFAULT_FILL);
	free(entry);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.lists == ODD_KEYS);
	CHECK(stats.list_bytes == ODD_KEYS * pmh_class_bytes(PMH_ODD_CLASS));
	return t;
}

/* Has each key its first n values, but for those that leave 0 modulo 'gone'? */
static void
check_odd_lists(PmhTable *t, uint64_t n, uint64_t gone)
{
	PmhValues	values = {0};

	for (uint64_t key = 0; key < ODD_KEYS; key++)
	{
		bool		there = gone == 0 || key % gone != 0;

		REQUIRE(pmh_lookup(t, fixture_hash(key), &values) == PMH_OK);
		CHECK(values.n == (there ? n : 0));
		for (uint64_t i = 0; i < values.n; i++)
			CHECK(values.value[i] == odd_value(key, i));
	}
	pmh_values_free(&values);
}

/* The short line is filled; then the list grows, and its neighbour is as it was. */
static void
test_grow_odd_lists(void)
{
	PmhTable   *t = make_odd_lists();

	check_odd_lists(t, ODD_VALUES, 0);
	for (uint64_t i = ODD_VALUES; i < 12; i++)
	{
		for (uint64_t key = 0; key < ODD_KEYS; key++)
			REQUIRE(pmh_insert(t, fixture_hash(key), odd_value(key, i), false) == PMH_OK);
		check_odd_lists(t, i + 1, 0);
		CHECK_SOUND(t);
	}
	pmh_close(t);
}

/*
 * Lists go, of pairs one or both, and what was free is not known after a crash, which may
 * leave anything in the bitmaps: the sweep finds all of it, and nothing of the others.
 */
static void
test_reclaim_odd_lists(uint64_t gone)
{
	PmhTable   *t = make_odd_lists();
	uint64_t	ngone = (ODD_KEYS + gone - 1) / gone;
	PmhStats	stats;
	uint64_t	blocks;

	for (uint64_t key = 0; key < ODD_KEYS; key += gone)
	{
		for (uint64_t i = 0; i < ODD_VALUES; i++)
			REQUIRE(pmh_delete(t, fixture_hash(key), odd_value(key, i)) == PMH_OK);
	}
	for (uint64_t block = 1; block < pmh_blocks(t); block++)
	{
		PmhValueBlock *b = pmh_at(t, block << PMH_BLOCK_SHIFT);

		if ((*pmh_space_kind(t, block) & PMH_KIND_MASK) != PMH_KIND_VALUES)
			continue;
		memset(b->used, 0, sizeof(b->used));
		memset(b->mark, 0xff, sizeof(b->mark));
	}
	t = reopen(t);
	sweep_out(t, 1);
	CHECK_SOUND(t);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(pmh_value_space_is_known(t));
	CHECK(stats.list_bytes == (ODD_KEYS - ngone) * pmh_class_bytes(PMH_ODD_CLASS));
	CHECK(used_bytes(t) == stats.list_bytes);
	blocks = value_blocks(t);
	for (uint64_t i = 0; i < ngone; i++)
		memset(pmh_at(t, take(t, PMH_ODD_CLASS)), 0xff, pmh_class_bytes(PMH_ODD_CLASS));
	CHECK(used_bytes(t) == stats.list_bytes + ngone * pmh_class_bytes(PMH_ODD_CLASS));
	CHECK(value_blocks(t) == blocks);
	check_odd_lists(t, ODD_VALUES, gone);
	pmh_close(t);
}

int
main(void)
{
	path = fixture_path("value_buffers");
	TEST(test_classes(8));
	TEST(test_classes(20));
	TEST(test_classes(PMH_MAX_CLASS));
	TEST(test_block());
	TEST(test_search());
	TEST(test_grow_odd_lists());
	TEST(test_reclaim_odd_lists(2));
	TEST(test_reclaim_odd_lists(3));
	TEST(test_reclaim_odd_lists(7));
	unlink(path);
	return unit_done("value_buffers");
}
