/*-------------------------------------------------------------------------
 *
 * values_lists.c
 *	  Value lists of one handle: through all classes and into long chains
 *	  against a model, in buffers that fit when made from an array, read by
 *	  cursors in batches of any size, and deleted one by one and in groups.  One that
 *	  begins in the stash.  One that is read while removals rewrite
 *	  its buffers; and those whose values come and go, which do not become larger.
 *
 *-------------------------------------------------------------------------
 */
#include "sweeps.h"
#include "table_alone.h"

/* ---- buffers of a list by their slots ---- */

/*
 * The way to the last buffer in a slot below 'below' of a key's list, which nobody else
 * changes.  payload[0] == 0: there is none.  If 'rewrite', what is in the buffer is put into
 * another one.
 */
static inline PmhListPath
slot_below(PmhTable *t, uint64_t hash, uint64_t below, bool rewrite)
{
	PmhListPath path = {0};
	PmhPlace	place;
	PmhResult	result;

	do
	{
		uint64_t	number = below;

		REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
		memset(&path, 0, sizeof(path));
		result = PMH_OK;
		if (pmh_segment_find_list(t, &place, hash, &path))
		{
			result = pmh_list_find_below(t, hash, &path, &number);
			if (result == PMH_OK && rewrite && path.payload[0] != 0)
				result = pmh_list_rewrite(t, &path, hash, pmh_pointer_class(path.payload[0]), NULL);
		}
		pmh_segment_unlock(&place);
	} while (result == PMH_NEED && pmh_provide(t) == PMH_OK);
	REQUIRE(result == PMH_OK);
	path.place = NULL;
	return path;
}

/* Bytes of all buffers of a list, and of its index or indexes. */
static inline uint64_t
list_bytes(PmhTable *t, uint64_t head)
{
	uint64_t	bytes = pmh_class_bytes(pmh_pointer_class(head));

	for (uint32_t i = 0; pmh_pointer_level(head) > 0 && i < pmh_index_slots(head); i++)
	{
		uint64_t	word = *pmh_index_slot(t, head, i);

		if (word != 0)
			bytes += list_bytes(t, word & PMH_SLOT_POINTER);
	}
	return bytes;
}

/* ---- against a model ---- */

/* The model: which of the values 0 .. range - 1 key k has. */
typedef struct Model
{
	uint64_t	hash;
	uint64_t	range;
	uint8_t    *has;
	uint64_t	n;
} Model;

/* Values are spread over all 47 bits, the least and the greatest included. */
static uint64_t
value_of(const Model *m, uint64_t i)
{
	if (i == 0)
		return 0;
	if (i == m->range - 1)
		return PMH_VALUE_MAX;
	return i * (PMH_VALUE_MAX / m->range) + i % 7;
}

static void
compare_lookup(PmhTable *t, const Model *m, PmhValues *values)
{
	size_t		k = 0;
	bool		same = true;

	REQUIRE(pmh_lookup(t, m->hash, values) == PMH_OK);
	CHECK(values->n == m->n);
	for (uint64_t i = 0; i < m->range && same; i++)
	{
		if (m->has[i])
			same = k < values->n && values->value[k++] == value_of(m, i);
	}
	CHECK(same);
}

/* leave_out of a cursor: all values but those that leave 1 modulo *argument. */
static size_t
only_ones(const void *argument, uint64_t *value, size_t n)
{
	size_t		kept = 0;

	for (size_t i = 0; i < n; i++)
	{
		if (value[i] % *(const uint64_t *) argument == 1)
			value[kept++] = value[i];
	}
	return kept;
}

/*
 * All batches of a cursor together are the same, each value once, wherever in the
 * buffers it begins; with a modulus only those of the values that leave 1, by its
 * leave_out, and hardly a batch is empty.
 */
static void
compare_cursor(PmhTable *t, const Model *m, size_t want, PmhCursor *cursor, uint64_t modulus,
			   uint32_t start)
{
	uint64_t	expected = 0;
	uint64_t	empty = 0;
	PmhValues	all = {0};
	PmhResult	result;
	size_t		n = 0;

	for (uint64_t i = 0; i < m->range; i++)
		expected += m->has[i] && (modulus == 0 || value_of(m, i) % modulus == 1);
	pmh_cursor_open(t, cursor, m->hash);
	cursor->start = start;
	if (modulus != 0)
	{
		cursor->leave_out = only_ones;
		cursor->leave_out_argument = &modulus;
	}
	while ((result = pmh_cursor_next(t, cursor, want)) == PMH_OK)
	{
		empty += cursor->batch.n == 0;
		REQUIRE(pmh_values_reserve(t, &all, cursor->batch.n) == PMH_OK);
		memcpy(all.value + all.n, cursor->batch.value, cursor->batch.n * sizeof(uint64_t));
		all.n += cursor->batch.n;
		for (size_t i = 1; i < cursor->batch.n; i++)
			CHECK(cursor->batch.value[i - 1] < cursor->batch.value[i]);
		CHECK(cursor->batch.n <= want + PMH_PROBE_MAX + pmh_class_capacity(PMH_CHUNK_CLASS));
	}
	CHECK(result == PMH_DONE);
	CHECK(pmh_cursor_next(t, cursor, want) == PMH_DONE);
	n = all.n;
	CHECK(n == expected);
	CHECK(empty <= 1);
	pmh_values_finish(&all);
	CHECK(all.n == n);
	for (uint64_t i = 0, k = 0; i < m->range && k < all.n; i++)
	{
		if (m->has[i] && (modulus == 0 || value_of(m, i) % modulus == 1))
			CHECK(all.value[k++] == value_of(m, i));
	}
	pmh_values_free(&all);
}

static void
step(PmhTable *t, Model *m, uint64_t *seed, unsigned insert_percent)
{
	uint64_t	i = fixture_random(seed) % m->range;

	if (fixture_random(seed) % 100 < insert_percent)
	{
		if (m->has[i])
			return;
		REQUIRE(pmh_insert(t, m->hash, value_of(m, i), false) == PMH_OK);
		m->has[i] = 1;
		m->n++;
	}
	else
	{
		CHECK(pmh_delete(t, m->hash, value_of(m, i)) ==
			  (m->has[i] ? PMH_OK : PMH_NOT_FOUND));
		m->n -= m->has[i];
		m->has[i] = 0;
	}
}

static void
check_table(PmhTable *t, uint64_t entries)
{
	PmhStats	stats;

	CHECK_SOUND(t);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == entries);
}

/* Three quarters go, in groups at random, each with values that are not there any more. */
static void
delete_in_groups(PmhTable *t, Model *m, uint64_t *seed)
{
	PmhEntry   *entry = malloc(m->range * sizeof(PmhEntry));
	PmhValues	values = {0};
	size_t		n = 0;

	REQUIRE(entry != NULL);
	for (uint64_t i = 0; i < m->range; i++)
	{
		size_t		j = fixture_random(seed) % (n + 1);

		if (!m->has[i] || i % 4 == 1)
			continue;
		m->has[i] = 0;
		m->n--;
		entry[n++] = entry[j];
		entry[j] = (PmhEntry) {m->hash, value_of(m, i)};
	}
	for (size_t done = 0, group; done < n; done += group)
	{
		size_t		again = done > 100 ? 50 : 0;
		size_t		removed;

		group = 1 + fixture_random(seed) % 997;
		if (group > n - done)
			group = n - done;
		REQUIRE(pmh_delete_group(t, entry + done - again, group + again, &removed) == PMH_OK);
		CHECK(removed == group);
	}
	compare_lookup(t, m, &values);
	check_table(t, m->n);
	pmh_values_free(&values);
	free(entry);
}

/* Grow a list and let it shrink to nothing again, comparing all the way. */
static void
against_model(PmhTable *t, uint64_t range, uint64_t number)
{
	static const uint32_t starts[] = {0, UINT32_C(0x9e3779b9), UINT32_MAX};
	Model		m = {fixture_hash(number), range, calloc(range, 1), 0};
	PmhValues	values = {0};
	PmhCursor	cursor = {0};
	uint64_t	seed = range;
	uint64_t	pause = range / 4 + 1;

	REQUIRE(m.has != NULL);
	for (unsigned percent = 90; percent > 0; percent -= 30)
	{
		for (uint64_t i = 0; i < 3 * range; i++)
		{
			step(t, &m, &seed, percent);
			if (i % pause == 0 || range < 50)
				compare_lookup(t, &m, &values);
		}
		for (uint64_t modulus = 0; modulus < 60; modulus += 29)
		{
			for (unsigned k = 0; k < sizeof(starts) / sizeof(starts[0]); k++)
			{
				compare_cursor(t, &m, 1, &cursor, modulus, starts[k]);
				compare_cursor(t, &m, 100, &cursor, modulus, starts[k]);
				compare_cursor(t, &m, 1000, &cursor, modulus, starts[k]);
				compare_cursor(t, &m, range, &cursor, modulus, starts[k]);
			}
		}
		check_table(t, m.n);
	}
	if (number % 2 == 0)
		delete_in_groups(t, &m, &seed);
	for (uint64_t i = 0; i < range; i++)
	{
		if (m.has[i])
			CHECK(pmh_delete(t, m.hash, value_of(&m, i)) == PMH_OK);
	}
	m.n = 0;
	memset(m.has, 0, range);
	compare_lookup(t, &m, &values);
	check_table(t, 0);
	pmh_values_free(&values);
	pmh_cursor_free(&cursor);
	free(m.has);
}

/* A pair that is there twice, and is to go once, or twice, among others. */
static void
repeated_pair(PmhTable *t, uint64_t n, size_t times)
{
	uint64_t	hash = fixture_hash(n);
	PmhEntry	entry[4];
	PmhValues	values = {0};
	size_t		removed;

	put_values(t, hash, 0, n);
	put_values(t, hash, n - 1, n);
	for (size_t i = 0; i < 4; i++)
		entry[i] = (PmhEntry) {hash, n - 1 + i / times};
	REQUIRE(pmh_delete_group(t, entry, 4, &removed) == PMH_OK);
	CHECK(removed == times);
	REQUIRE(fixture_lookup_repeats(t, hash, &values) == PMH_OK);
	CHECK(values.n == n + 1 - times);
	take_values(t, hash, 0, n - 1, 1);
	CHECK(pmh_delete(t, hash, n - 1) == (times == 1 ? PMH_OK : PMH_NOT_FOUND));
	pmh_values_free(&values);
	check_table(t, 0);
}

/* Make a list from an array: is it right, and what does it cost? */
static void
from_array(PmhTable *t, size_t n)
{
	uint64_t	hash = fixture_hash(n);
	PmhEntry   *entry = malloc(n * sizeof(*entry));
	PmhListPosition at = PMH_LIST_START;
	uint64_t	payload;
	uint64_t	version;
	uint64_t	bytes;
	PmhValues	values = {0};
	bool		same = true;

	REQUIRE(entry != NULL);
	for (size_t i = 0; i < n; i++)
		entry[i] = (PmhEntry) {fixture_hash(n), fixture_random(&hash) & PMH_VALUE_MAX & ~UINT64_C(0xff)};
	hash = fixture_hash(n);
	REQUIRE(pmh_list_make(t, entry, n, &payload) == PMH_OK);
	version = pmh_buffer_version(t, pmh_pointer_offset(payload));
	while (at.below != 0)
	{
		uint32_t	k;

		REQUIRE(pmh_values_reserve(t, &values, PMH_STEP_MAX) == PMH_OK);
		REQUIRE(pmh_list_step(t, hash, payload, version, &at, UINT32_MAX,
							  values.value + values.n, &k) == PMH_OK);
		values.n += k;
	}
	CHECK(values.n == n);
	pmh_values_finish(&values);
	for (size_t i = 0; i < n; i++)
		same = same && bsearch(&entry[i].value, values.value, values.n, sizeof(uint64_t),
							   fixture_compare_numbers) != NULL;
	CHECK(same);
	bytes = list_bytes(t, payload);
	if (n <= 7)
		CHECK(bytes == (n <= 5 ? 32 : 48));
	else if (n <= 40)
		CHECK(bytes == (n + PMH_VALUES_PER_LINE - 1) / PMH_VALUES_PER_LINE * PMH_VALUE_LINE);
	else
		CHECK(bytes * 100 <= n * (n < 556 ? 835 : n < 1000 ? 726 : n < 2000 ? 706 : n < 10000 ? 690 :
							  648));
	fixture_forget_space(t);	/* nothing points to it */
	pmh_values_free(&values);
	free(entry);
}

/* An expected order of magnitude of the slack of a list that grew one by one. */
static void
grown_cost(PmhTable *t, uint64_t n)
{
	uint64_t	hash = fixture_hash(n);
	PmhStats	stats;

	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_insert(t, hash, i, i % 2 == 0) == PMH_OK);
	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.lists == 1);
	CHECK(stats.list_entries == n);
	CHECK(stats.list_bytes <= 8 * n);
	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_delete(t, hash, n - 1 - i) == PMH_OK);
	check_table(t, 0);
}

/* Keys that share their buckets, and differ in the fingerprint. */
static uint64_t
crowd_hash(uint64_t key)
{
	return fixture_hash(0) ^ (key << 53 | key);
}

/*
 * Home and alternative are full, so a key's entries go to the stash, whose readers are
 * told, and become a list there.  What comes later goes to that list, though there is room
 * at home again.
 */
static void
list_in_stash(void)
{
	PmhTable   *t = create();
	uint64_t	hash = crowd_hash(0);
	uint64_t	n = 0;
	uint64_t	key;
	unsigned	told = 0;
	PmhPlace	place;
	PmhListPath at;
	PmhProbe	probe;

	for (key = 1; key <= PMH_SLOTS + 1; key++)
		put_values(t, crowd_hash(key), 0, 2);
	for (; n <= PMH_INLINE_MAX; n++)
	{
		uint32_t	state;
		uint64_t	version;

		REQUIRE(pmh_locate(t, hash, &place) == PMH_OK);
		state = pmh_bucket_state(pmh_bucket(t, &place, place.hashing));
		version = *pmh_bucket_version(&place, place.hashing);
		REQUIRE(pmh_insert(t, hash, n, false) == PMH_OK);
		if (pmh_bucket_state(pmh_bucket(t, &place, place.hashing)) == state)
			continue;
		CHECK(*pmh_bucket_version(&place, place.hashing) > version);
		told++;
	}
	CHECK(told == PMH_INLINE_MAX + 1);
	REQUIRE(pmh_segment_find_list(t, &place, hash, &at));
	CHECK(at.bucket == place.hashing);
	while (pmh_state_full(pmh_bucket_state(
		pmh_bucket(t, &place, pmh_home_bucket(hash, place.hashing)))))
		REQUIRE(pmh_delete(t, crowd_hash(--key), 0) == PMH_OK);
	REQUIRE(pmh_insert(t, hash, n++, false) == PMH_OK);
	REQUIRE(pmh_probe(t, hash, &probe) == PMH_OK);
	CHECK(probe.list != 0 && probe.n == 0);
	check_number(t, hash, n);
	CLOSE_SOUND(t);
}

/*
 * A cursor stands in a buffer.  That is rewritten into another one and back again,
 * while values in front are taken out: what the cursor has not read yet is in front of
 * the line where it stands.
 */
static void
test_cursor_and_rewrite(void)
{
	PmhTable   *t = create();
	uint64_t	hash = fixture_hash(1);
	uint8_t    *seen = calloc(LONG_VALUES, 1);
	uint64_t	given[1000];	/* of the buffer where the cursor stands */
	size_t		ngiven = 0;
	PmhCursor	cursor = {0};
	uint64_t	below = 0;
	uint64_t	buffer;
	uint64_t	other;
	PmhResult	result;

	REQUIRE(seen != NULL);
	put_values(t, hash, 0, LONG_VALUES);
	pmh_cursor_open(t, &cursor, hash);
	do
	{
		REQUIRE(pmh_cursor_next(t, &cursor, 50) == PMH_OK);
		if (cursor.at.below != below)
			ngiven = 0;
		below = cursor.at.below;
		for (size_t i = 0; i < cursor.batch.n; i++)
		{
			seen[cursor.batch.value[i]]++;
			if (ngiven < 1000)
				given[ngiven++] = cursor.batch.value[i];
		}
		buffer = cursor.at.met[0];
	} while (cursor.at.line < 30 || below < 2 ||
			 pmh_buffer_count(t, buffer) < pmh_class_capacity(pmh_pointer_class(buffer)));

	other = slot_below(t, hash, below, true).payload[0];
	CHECK(other != buffer);
	for (size_t i = 0; i < ngiven; i += 3)
		REQUIRE(pmh_delete(t, hash, given[i]) == PMH_OK);
	REQUIRE(slot_below(t, hash, below, true).payload[0] == buffer);

	while ((result = pmh_cursor_next(t, &cursor, 50)) == PMH_OK)
	{
		for (size_t i = 0; i < cursor.batch.n; i++)
			seen[cursor.batch.value[i]]++;
	}
	CHECK(result == PMH_DONE);
	for (uint64_t i = 0; i < LONG_VALUES; i++)
		CHECK(seen[i] == 1);
	pmh_cursor_free(&cursor);
	CHECK_SOUND(t);
	free(seen);
	pmh_close(t);
}

/*
 * ---- values that come at one end and go at the other, or at the same one ----
 *
 * The buffers of such a list are as small as those of a short one, and the slots of its
 * index are used again.  pmh_estimate counts what is there.
 */

#define LIVE		UINT64_C(1000)
#define MOST_LIVE	(4 * LIVE)
#define PASSED		FIXTURE_SCALE(UINT64_C(50000))
#define GROUP		50
#define TURNS		(PASSED / LIVE / 2)
#define MOST_INDEX_BYTES	256

static const uint64_t queue = UINT64_C(0x123456789abcdef1);
static uint64_t first;			/* the values first .. next - 1 are there */
static uint64_t next;

static PmhTable *
begin(void)
{
	first = next = 0;
	return create();
}

static void
append(PmhTable *t, uint64_t n)
{
	put_values(t, queue, next, next + n);
	next += n;
}

/* The values from 'from' on go: one by one, or in one walk. */
static void
take_out(PmhTable *t, uint64_t from, uint64_t n, bool walk)
{
	for (uint64_t i = 0; i < n; i++)
	{
		if (!walk)
			REQUIRE(pmh_delete(t, queue, from + i) == PMH_OK);
		else if (i % GROUP == 0)
			take_values(t, queue, from + i, from + i + GROUP, 1);
	}
}

/* No buffer is larger than it should be, and the index is not much longer than it has to be. */
static void
check_size(PmhTable *t)
{
	uint64_t	entries;
	uint64_t	below = UINT64_MAX;
	uint64_t	n = 0;
	PmhProbe	probe;

	while (below > 0)
	{
		PmhListPath at = slot_below(t, queue, below, false);

		if (at.payload[0] == 0)
			break;
		CHECK(pmh_pointer_class(at.payload[0]) <= PMH_CHUNK_CLASS);
		below = at.number;
		n++;
	}
	REQUIRE(pmh_probe(t, queue, &probe) == PMH_OK && probe.list != 0);
	CHECK(list_bytes(t, probe.list) <= n * pmh_class_bytes(PMH_CHUNK_CLASS) + MOST_INDEX_BYTES);
	CHECK(pmh_estimate(t, &entries) == PMH_OK);
	CHECK(entries >= (next - first) / 3 && entries <= 3 * MOST_LIVE);
}

static void
end(PmhTable *t)
{
	check_size(t);
	CLOSE_SOUND(t);
}

/* What comes first goes first. */
static void
test_queue(bool walk)
{
	PmhTable   *t = begin();

	append(t, LIVE);
	while (next < PASSED)
	{
		append(t, GROUP);
		take_out(t, first, GROUP, walk);
		first += GROUP;
	}
	end(t);
}

/*
 * In turns: values come, the oldest go, and the newest go too, so that the first
 * buffer is one that was the first when older ones were there.
 */
static void
test_both_ends(bool walk)
{
	PmhTable   *t = begin();

	append(t, LIVE);
	for (uint64_t i = 0; i < TURNS; i++)
	{
		append(t, 3 * LIVE);
		take_out(t, first, LIVE, walk);
		first += LIVE;
		check_size(t);
		take_out(t, next - 2 * LIVE, 2 * LIVE, walk);
		next -= 2 * LIVE;
		check_size(t);
	}
	end(t);
}

static void
against_models(void)
{
	PmhTable   *t = create();

	for (uint64_t range = 2; range <= (uint64_t) FIXTURE_SCALE(6000); range = range * 3 + 1)
		against_model(t, range, range);
	grown_cost(t, FIXTURE_SCALE(100000));
	for (size_t times = 1; times <= 2; times++)
		repeated_pair(t, FIXTURE_SCALE(15000), times);
	for (size_t n = 1; n < 100; n++)
		from_array(t, n);
	for (size_t n = 100; n < 6000; n += 101)
		from_array(t, n);
	from_array(t, 10000);
	from_array(t, 10001);
	from_array(t, 123456);
	check_table(t, 0);
	pmh_close(t);
}

int
main(void)
{
	path = fixture_path("values_lists");
	for (int round = 0; round < 2; round++)
	{
		force_pmem = round == 1;
		TEST(against_models());
		TEST(test_cursor_and_rewrite());
	}
	force_pmem = false;
	TEST(list_in_stash());
	for (int walk = 0; walk < 2; walk++)
	{
		TEST(test_queue(walk));
		TEST(test_both_ends(walk));
	}
	unlink(path);
	return unit_done("values_lists");
}
