/*-------------------------------------------------------------------------
 *
 * stop_short_way.c
 *	  What the short way of an insert or delete has seen without a lock is worth nothing
 *	  once it has the lock: others make a list of the key meanwhile, or take it away, fill
 *	  its buckets, split or move its segment, double the directory, shrink the file.
 *
 * The engine is compiled with PMH_STOP_POINTS here.  When an operation has looked at the
 * home bucket and is about to take the lock, others act through a second handle.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "bucket.h"
#include "error.h"
#include "fixture.h"
#include "handle.h"
#include "pm.h"
#include "segment.h"
#include "stop_point.h"
#include "table.h"
#include "unit.h"

#define CROWDS			24
#define CROWD			26		/* keys that share their buckets until they are parted */
#define KEYS			(CROWDS * CROWD)
#define MOST_VALUES		14		/* that the others give a key at a time */
#define FIRST_COLD		UINT64_C(1000)
#define MOST_COLD		UINT64_C(4000)
#define OPERATIONS		200000
#define OWN				(UINT64_C(1) << 40)

/* The values of a key that are there: numbers from the first on, to before the next. */
typedef struct Range
{
	uint64_t	first;
	uint64_t	next;
} Range;

static const char *path;
static PmhTable *self;			/* the handle under test ... */
static PmhTable *others;		/* ... and that of the others */
static Range own[KEYS];
static Range given[KEYS];
static Range cold;
static PmhValues values;
static uint64_t seed = 1;
static void (*act) (uint64_t key);	/* NULL: nobody acts */
static uint64_t focus;			/* the key of the operation */
static unsigned acted;
static unsigned lists_came;		/* where there had been none */
static unsigned lists_went;
static unsigned segments_changed;
static unsigned directories_changed;

static uint64_t
choose(uint64_t n)
{
	return fixture_random(&seed) % n;
}

/* Keys of a crowd differ in the fingerprint and in some of their first bits. */
static uint64_t
hash_of(uint64_t key)
{
	uint64_t	i = key % CROWD;

	return fixture_hash(key / CROWD) ^ (i << 53 | i);
}

static bool
has_list(uint64_t key)
{
	PmhProbe	probe;

	REQUIRE(pmh_probe(others, hash_of(key), &probe) == PMH_OK);
	return probe.list != 0;
}

void
pmh_stop_point(const char *name)
{
	void		(*once) (uint64_t key) = act;

	if (once == NULL || strcmp(name, "short_before_lock") != 0)
		return;
	act = NULL;
	once(focus);
	acted++;
}

/* ---- the others ---- */

static void
give(uint64_t key, uint64_t n)
{
	for (; n > 0; n--)
		REQUIRE(pmh_insert(others, hash_of(key), given[key].next++, false) == PMH_OK);
}

static void
take_all(uint64_t key)
{
	for (; given[key].first < given[key].next; given[key].first++)
		REQUIRE(pmh_delete(others, hash_of(key), given[key].first) == PMH_OK);
}

static void
list_comes(uint64_t key)
{
	give(key, MOST_VALUES);
}

/* The neighbours take all room in the buckets, and some that is elsewhere. */
static void
crowd_fills(uint64_t key)
{
	uint64_t	first = key / CROWD * CROWD;

	for (uint64_t i = first; i < first + CROWD; i++)
	{
		if (i != key)
			give(i, 1 + choose(2));
	}
}

static void
crowd_leaves(uint64_t key)
{
	uint64_t	first = key / CROWD * CROWD;

	for (uint64_t i = first; i < first + CROWD; i++)
		take_all(i);
}

/* Segments grow, are split, and the directory is doubled. */
static void
cold_ones_come(uint64_t key)
{
	(void) key;
	for (uint64_t n = choose(MOST_COLD); n > 0; n--, cold.next++)
		REQUIRE(pmh_insert(others, fixture_hash(FIRST_COLD + cold.next), cold.next, false) == PMH_OK);
}

/* Segments are merged, the file is punched. */
static void
cold_ones_go(uint64_t key)
{
	(void) key;
	for (; cold.first < cold.next; cold.first++)
		REQUIRE(pmh_delete(others, fixture_hash(FIRST_COLD + cold.first), cold.first) == PMH_OK);
	REQUIRE(fixture_shrink(others, PMH_DEFAULT_FILL) == PMH_OK);
}

static void
anything(uint64_t key)
{
	PmhPlace	before;
	PmhPlace	after;
	uint64_t	dirword = pm_load(&pmh_live(others)->dirword);
	bool		had_list = has_list(key);

	REQUIRE(pmh_locate(others, hash_of(key), &before) == PMH_OK);
	for (uint64_t steps = 1 + choose(2); steps > 0; steps--)
	{
		switch (choose(100))
		{
			case 0 ... 34:
				give(key, 1 + choose(MOST_VALUES));
				break;
			case 35 ... 59:
				take_all(key);
				break;
			case 60 ... 74:
				crowd_fills(key);
				break;
			case 75 ... 97:
				crowd_leaves(key);
				break;
			case 98:
				cold_ones_come(key);
				break;
			default:
				cold_ones_go(key);
		}
	}
	lists_came += has_list(key) && !had_list;
	lists_went += had_list && !has_list(key);
	REQUIRE(pmh_locate(others, hash_of(key), &after) == PMH_OK);
	segments_changed += before.elem != after.elem;
	directories_changed += dirword != pm_load(&pmh_live(others)->dirword);
}

/* ---- the operations ---- */

/* A key has the values that it should have, each once. */
static void
check_key(PmhTable *t, uint64_t key)
{
	uint64_t	wrong = 0;
	uint64_t	sum = 0;

	for (uint64_t i = own[key].first; i < own[key].next; i++)
		sum += OWN + i;
	for (uint64_t i = given[key].first; i < given[key].next; i++)
		sum += i;
	(void) pmh_lookup(t, hash_of(key), &values);
	for (size_t i = 0; i < values.n; i++)
	{
		uint64_t	value = values.value[i];
		const Range *range = value >= OWN ? &own[key] : &given[key];

		value &= OWN - 1;
		wrong += value < range->first || value >= range->next;
		sum -= values.value[i];
	}
	CHECK(wrong == 0 && sum == 0 && values.n == own[key].next - own[key].first +
		  given[key].next - given[key].first);
}

static void
put(uint64_t key)
{
	focus = key;
	REQUIRE(pmh_insert(self, hash_of(key), OWN + own[key].next++, choose(2) == 0) == PMH_OK);
}

static void
take(uint64_t key)
{
	focus = key;
	CHECK(pmh_delete(self, hash_of(key), OWN + own[key].first++) == PMH_OK);
}

static void
begin(void)
{
	others = fixture_create(path);
	self = fixture_open(path, 1);
	REQUIRE(pmh_lookup(self, hash_of(0), &values) == PMH_OK);	/* it knows the directory */
	memset(own, 0, sizeof(own));
	memset(given, 0, sizeof(given));
	memset(&cold, 0, sizeof(cold));
	acted = 0;
}

/* Nothing is left of what has been taken out. */
static void
end(void)
{
	act = NULL;
	for (uint64_t key = 0; key < KEYS; key++)
	{
		check_key(self, key);
		take_all(key);
		while (own[key].first < own[key].next)
			take(key);
		check_key(others, key);
	}
	CHECK_SOUND(others);
	pmh_close(self);
	pmh_close(others);
}

/* ---- directed ---- */

/* The key has some entries; before the next insert, or delete, has its lock others act. */
static void
one_operation(bool insert, uint64_t entries, void (*action) (uint64_t key))
{
	begin();
	for (uint64_t i = 0; i < entries; i++)
		put(0);
	act = action;
	if (insert)
		put(0);
	else
		take(0);
	CHECK(acted == 1);
	check_key(self, 0);
	check_key(others, 0);
	end();
}

/*
 * Home and alternative are full, so a key's entries go to the stash, whose readers are
 * told, and become a list there.  What comes later goes to that list, though there is room
 * at home again.
 */
static void
list_in_stash(void)
{
	uint64_t	hash = hash_of(0);
	uint64_t	key;
	unsigned	told = 0;
	PmhPlace	place;
	PmhListPath at;
	PmhProbe	probe;

	begin();
	for (key = 1; key <= PMH_SLOTS + 1; key++)
	{
		put(key);
		put(key);
	}
	for (unsigned i = 0; i <= PMH_INLINE_MAX; i++)
	{
		uint32_t	state;
		uint64_t	version;

		REQUIRE(pmh_locate(self, hash, &place) == PMH_OK);
		state = pmh_bucket_state(pmh_bucket(self, &place, place.hashing));
		version = *pmh_bucket_version(&place, place.hashing);
		put(0);
		if (pmh_bucket_state(pmh_bucket(self, &place, place.hashing)) == state)
			continue;
		CHECK(*pmh_bucket_version(&place, place.hashing) > version);
		told++;
	}
	CHECK(told == PMH_INLINE_MAX + 1);
	REQUIRE(pmh_segment_find_list(self, &place, hash, &at));
	CHECK(at.bucket == place.hashing);
	while (pmh_state_full(pmh_bucket_state(
		pmh_bucket(self, &place, pmh_home_bucket(hash, place.hashing)))))
		take(--key);
	put(0);
	REQUIRE(pmh_probe(self, hash, &probe) == PMH_OK);
	CHECK(probe.list != 0 && probe.n == 0);
	end();
}

/* ---- at random ---- */

static void
random_operations(void)
{
	begin();
	for (unsigned i = 0; i < OPERATIONS; i++)
	{
		uint64_t	key = choose(KEYS);

		act = choose(3) == 0 ? anything : NULL;
		if (own[key].first == own[key].next || choose(9) < 4)
			put(key);
		else
			take(key);
		check_key(choose(2) == 0 ? self : others, key);
	}
	CHECK(lists_came > 100 && lists_went > 10 && segments_changed > 100 &&
		  directories_changed > 0);
	end();
}

int
main(void)
{
	path = fixture_path("stop_short_way");
	for (uint64_t entries = 0; entries < 4; entries++)
	{
		TEST(one_operation(true, entries, list_comes));
		TEST(one_operation(true, entries, cold_ones_come));
		TEST(one_operation(true, entries, crowd_fills));
		if (entries == 0)
			continue;
		TEST(one_operation(false, entries, list_comes));
		TEST(one_operation(false, entries, cold_ones_come));
		TEST(one_operation(false, entries, crowd_fills));
	}
	TEST(list_in_stash());
	TEST(random_operations());
	pmh_values_free(&values);
	unlink(path);
	return unit_done("stop_short_way");
}
