/*-------------------------------------------------------------------------
 *
 * workloads.c
 *	  What is done to the table under test.  To add a workload, write a
 *	  function and name it in the table at the end.
 *
 * A workload begins with no file.  What it does while armed is crashed at
 * every fence and at the end of every operation.  Hashes are made to order,
 * so that few entries do what otherwise takes a thousand: a bucket is full
 * with 18 entries of one home, a segment with 72 of one home and one
 * alternative bucket.  What buckets, segments and the directory do the random
 * operations come by; the others are what takes too long for that.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "crash.h"
#include "error.h"
#include "handle.h"
#include "layout.h"
#include "list.h"
#include "segment.h"
#include "space.h"
#include "table.h"

/* Entries of one home and one alternative bucket that a segment holds. */
#define FULL	(4 * PMH_SLOTS)

/* Pairs that were inserted, for deletes to choose from. */
typedef struct Pairs
{
	PmhEntry	pair[4096];
	size_t		n;
} Pairs;

static uint64_t nvalues;

/* A table with nothing in it, in the place of the one that is there; not armed. */
static void
new_table(void)
{
	arm(false);
	if (crash.table != NULL)
		pmh_close(crash.table);
	crash.table = NULL;
	recorder_reset();
	model_clear(&crash.model);
	nvalues = 0;
	op_create();
}

/* A value that no other entry has, with bits in all its parts. */
static uint64_t
new_value(void)
{
	nvalues++;
	return (nvalues & 0x1fff) << 32 | ((nvalues * UINT64_C(2654435761)) & 0xffffffff);
}

/* A hash from its parts: 24 bits of prefix, home and alternative, the rest. */
static uint64_t
make_hash(uint64_t prefix, uint32_t home, uint32_t alt, uint32_t fingerprint)
{
	return prefix << 40 | (uint64_t) (alt & 0xffff) << 24 |
		(uint64_t) (home & 0xffff) << 8 | (fingerprint & 0xff);
}

/* The bits of n from the highest of 23 prefix bits downwards. */
static uint64_t
spread(uint32_t n)
{
	uint64_t	bits = 0;

	for (int i = 22; i >= 0 && n != 0; i--, n >>= 1)
		bits |= (uint64_t) (n & 1) << i;
	return bits;
}

/*
 * The n-th key of two buckets.  The keys differ in the prefix bits below the
 * highest one, so that a split deals them out.
 */
static uint64_t
nth_key(uint64_t prefix, uint32_t bucket, uint32_t n)
{
	return make_hash(prefix ^ spread(n), 1 + bucket * 1057, 30000 + bucket * 1057, n * 37);
}

static void
add(Pairs *pairs, uint64_t hash, bool fence_first)
{
	pairs->pair[pairs->n].hash = hash;
	pairs->pair[pairs->n].value = new_value();
	op_insert(hash, pairs->pair[pairs->n].value, fence_first);
	pairs->n++;
}

static void
drop(Pairs *pairs, size_t i)
{
	PmhEntry	pair = pairs->pair[i];

	pairs->pair[i] = pairs->pair[--pairs->n];
	op_delete(pair.hash, pair.value);
}

static void
drop_all(Pairs *pairs)
{
	while (pairs->n > 0)
		drop(pairs, pairs->n - 1);
}

/* ---- life of a file ---- */

static void
run_create(void)
{
	arm(true);
	op_create();
}

static void
run_recovery(void)
{
	Pairs		pairs = {0};

	new_table();
	for (uint32_t i = 0; i < 30; i++)
		add(&pairs, nth_key(0, i % 3, i), false);
	for (uint32_t i = 0; i < 12; i++)
		add(&pairs, nth_key(0, 7, 0), false);
	arm(true);
	op_restart();
	for (uint32_t i = 0; i < 3; i++)
		add(&pairs, nth_key(0, 7, 0), false);
	op_restart();
}

/* Split the segments of prefix 0 until the directory is so deep. */
static void
deepen(uint32_t depth)
{
	Pairs		pairs = {0};
	bool		armed = crash.armed;
	uint32_t	n = 0;

	while (pmh_dirword_depth(pmh_live(crash.table)->dirword) < depth)
	{
		uint32_t	next = pmh_dirword_depth(pmh_live(crash.table)->dirword);
		uint64_t	bit = UINT64_C(1) << (23 - next);

		add(&pairs, make_hash((n & 1) * bit | (n >> 9), 99, 40000, n >> 1), false);
		n++;
		if (pmh_dirword_depth(pmh_live(crash.table)->dirword) != next)
		{
			arm(false);
			drop_all(&pairs);
			arm(armed);
		}
	}
	arm(false);
	drop_all(&pairs);
	arm(armed);
}

/* ---- value lists ---- */

/* Is the buffer full to which values are added to the key's list? */
static bool
list_is_full(uint64_t hash)
{
	PmhProbe	probe;
	uint64_t	payload;

	if (pmh_probe(crash.table, hash, &probe) != PMH_OK || probe.list == 0)
		return false;
	for (payload = probe.list; pmh_pointer_level(payload) > 0 && payload != 0;)
	{
		uint32_t	hint = pmh_hint_place(pmh_buffer_header(crash.table, payload)->fill_hint);

		payload = *pmh_index_slot(crash.table, payload, hint) & PMH_SLOT_POINTER;
	}
	return pmh_buffer_count(crash.table, payload) ==
		pmh_class_capacity(pmh_pointer_class(payload));
}

/* Slots of the index of a list that are used; of an index of indexes, 100 and these. */
static uint32_t
index_slots_used(uint64_t hash)
{
	PmhProbe	probe;
	uint32_t	n = 0;

	if (pmh_probe(crash.table, hash, &probe) != PMH_OK || pmh_pointer_level(probe.list) == 0)
		return 0;
	for (uint32_t i = 0; i < pmh_index_slots(probe.list); i++)
		n += *pmh_index_slot(crash.table, probe.list, i) != 0;
	return n + (pmh_pointer_level(probe.list) > 1 ? 100 : 0);
}

/*
 * A list through all sizes that it grows to, around each new buffer.  Its index: its first
 * slots, a larger one, one above it, the first of another
 * one below that; then buffers go, with the indexes that named nothing else.
 */
static void
run_list_growth(void)
{
	uint64_t	hash = nth_key(0, 4, 1);
	static PmhEntry entry[65536];
	size_t		some;
	uint32_t	n = 0;

	new_table();
	while (index_slots_used(hash) < 102)
	{
		uint32_t	used = index_slots_used(hash);
		bool		full = list_is_full(hash);

		arm(n < PMH_INLINE_MAX + 2 ||
			(full && (used == 0 || used == 2 || used == 12 || used == 20)));
		n++;
		op_insert(hash, n, n & 1);
		if (full && used == 0)
		{
			n++;
			op_insert(hash, n, n & 1);
		}
		arm(false);
		if (n == sizeof(entry) / sizeof(entry[0]))
		{
			fprintf(stderr, "%s: no index of indexes\n", crash.workload);
			exit(1);
		}
	}
	/* The one value below the second index, and some more there. */
	arm(true);
	op_delete(hash, n--);
	op_insert(hash, ++n, false);
	arm(false);
	some = 0;
	for (uint32_t i = 21; i <= n; i++)
	{
		if (i < 700 || i > 705)
			entry[some++] = (PmhEntry) {hash, i};
	}
	op_delete_group(entry, some);
	arm(true);
	for (some = 0; some < 6; some++)
		entry[some] = (PmhEntry) {hash, 700 + (uint64_t) some};
	op_delete_group(entry, some);
	op_insert(hash, ++n, true);
	op_delete(hash, n);
	for (some = 0; some < 20; some++)
		entry[some] = (PmhEntry) {hash, 1 + (uint64_t) some};
	op_delete_group(entry, some);
}

/*
 * Lists of a bulk load fit exactly, and lie in one cache line with others; those of
 * the odd class have their short line past the other one, and in front: each of
 * their cells gets another value.  Then each list grows with its next values, which
 * may be in what another one has left.
 */
static void
run_list_loaded(void)
{
	static PmhEntry entries[400];
	PmhEntry	odd[5 * 7];
	uint32_t	n = 0;

	new_table();
	for (uint32_t i = 0; i < 5 * 7; i++)
		entries[n++] = odd[i] = (PmhEntry) {nth_key(0, 5, i % 5), new_value()};
	for (uint32_t length = 3; length < 24; length += length < 12 ? 1 : 5)
	{
		for (uint32_t i = 0; i < length; i++)
			entries[n++] = (PmhEntry) {nth_key(0, 4, length), new_value()};
	}
	arm(true);
	op_bulk(entries, n, 90);
	for (uint32_t i = 0; i < 5 * 7; i++)
	{
		op_delete(odd[i].hash, odd[i].value);
		odd[i].value = new_value();
		op_insert(odd[i].hash, odd[i].value, i & 1);
	}
	for (uint32_t length = 3; length < 24; length += length < 12 ? 1 : 5)
	{
		op_insert(nth_key(0, 4, length), new_value(), length & 1);
	}
	for (uint32_t i = 0; i < n; i++)
	{
		if (model_find(&crash.model, entries[i].hash, entries[i].value) != NO_ENTRY)
			op_delete(entries[i].hash, entries[i].value);
	}
	for (uint32_t i = 0; i < 5 * 7; i++)
		op_delete(odd[i].hash, odd[i].value);
}

/* Buffers of a list that become empty at either end and in the middle. */
static void
run_chain_delete(void)
{
	uint64_t	hash = nth_key(0, 4, 1);
	uint32_t	full = pmh_class_capacity(PMH_CHUNK_CLASS);

	for (uint32_t which = 0; which < 3; which++)
	{
		new_table();
		for (uint32_t i = 0; i < 3 * full - 5; i++)
			op_insert(hash, 1 + i, false);
		for (uint32_t i = 0; i < full; i++)
		{
			arm(i < 2 || i + 3 > full || i == 500);
			if (model_find(&crash.model, hash, 1 + which * full + i) != NO_ENTRY)
				op_delete(hash, 1 + which * full + i);
		}
		arm(true);
		op_insert(hash, 100000, false);
		op_insert(hash, 100001, true);
	}
}

/* ---- sweeps ---- */

static bool
dead_third(const PmhEntry *entry)
{
	return entry->value % 3 == 0;
}

static bool
dead_most(const PmhEntry *entry)
{
	return entry->value % 30 != 0;
}

/* ---- many at a time ---- */

static void
run_bulk(void)
{
	static PmhEntry entries[3000];

	new_table();
	arm(true);
	for (uint32_t i = 0; i < 40; i++)
		entries[i] = (PmhEntry) {nth_key(i % 5, i % 4, i / 3), 1 + i};
	op_bulk(entries, 40, 94);

	new_table();
	for (uint32_t i = 0; i < 3000; i++)
		entries[i] = (PmhEntry) {crash_mix(i % 100 == 0 ? 7 : i % 40 == 0 ? i % 9 : i), 1 + i};
	arm(true);
	op_bulk(entries, 3000, 90);
}

/* The bucket of the primary table that is the home of a hash. */
static PmhBucket *
home_of(uint64_t hash)
{
	PmhPlace	place;

	if (pmh_locate(crash.table, hash, &place) != PMH_OK)
		abort();
	return pmh_bucket(crash.table, &place, pmh_home_bucket(hash, place.hashing));
}

/*
 * A full bucket, as a crash in compaction has left it: the list is there, and the
 * entries that were to go into it still are in their slots.  The next value goes into the
 * list, others of its group elsewhere.
 */
static void
run_shadowed(void)
{
	uint64_t	hash = nth_key(0, 10, 0);
	PmhEntry	entries[PMH_INLINE_MAX];
	Pairs		pairs = {0};
	PmhBucket  *b;

	new_table();
	for (uint32_t i = 0; i < PMH_INLINE_MAX; i++)
		add(&pairs, hash, false);
	for (uint32_t i = PMH_INLINE_MAX; i < PMH_SLOTS; i++)
		add(&pairs, nth_key(0, 10, i), false);
	add(&pairs, hash, false);
	b = home_of(hash);
	if (pmh_state_count(pmh_bucket_state(b)) != PMH_SLOTS - PMH_INLINE_MAX + 1)
		abort();
	pm_store32(pmh_bucket_state_at(b), pmh_bucket_state(b) | PMH_STATE_OCCUPIED);
	pm_flush(&crash.table->file, b, PMH_LINE);
	pm_fence(&crash.table->file);
	arm(true);
	for (uint32_t i = 0; i < PMH_INLINE_MAX; i++)
		entries[i] = (PmhEntry) {i == 0 ? hash : nth_key(0, 10, 100 + i), new_value()};
	op_insert_group(entries, PMH_INLINE_MAX, false);
}

/* ---- space ---- */

static uint64_t last_kept;

static bool
dead_late(const PmhEntry *entry)
{
	return entry->value > last_kept;
}

/*
 * Value blocks come one after the other.  They are emptied, by the processes that use them,
 * and by a sweep after a restart; segments get them.
 */
static void
run_value_blocks(void)
{
	for (unsigned restarted = 0; restarted < 2; restarted++)
	{
		uint64_t	n = 0;

		new_table();
		while (pmh_run(crash.table)->value_blocks < 3)
		{
			arm(!restarted && n % 60 == 0);
			op_insert(nth_key(0, 4, (uint32_t) n / 900), n + 1, false);
			n++;
		}
		arm(false);
		last_kept = n - n % 900 - 900;
		if (restarted)
		{
			op_sweep(dead_late);
			for (uint64_t i = 31; i <= last_kept; i++)
				op_delete(nth_key(0, 4, (uint32_t) (i - 1) / 900), i);
			arm(true);
			op_restart();
			op_sweep(NULL);
		}
		else
		{
			for (uint64_t i = 31; i <= n; i++)
			{
				arm(i % 900 < 5 || i % 900 > 895);
				op_delete(nth_key(0, 4, (uint32_t) (i - 1) / 900), i);
			}
			arm(true);
		}
		deepen(3);
	}
}

/* ---- shrinking ---- */

static void
must_shrink(void)
{
	if (!op_shrink())
	{
		fprintf(stderr, "%s: a shrink does not pay\n", crash.workload);
		exit(1);
	}
}

/* Segments of several depths are merged, extensions become smaller, the file is punched. */
static void
run_merge(void)
{
	new_table();
	deepen(4);
	for (uint32_t i = 0; i < 16000; i++)
		op_insert(crash_mix(i), 1 + i, false);
	op_sweep(dead_most);
	arm(true);
	must_shrink();
	op_insert(crash_mix(1), 20001, true);
	op_restart();
	op_insert(crash_mix(2), 20002, false);
}

/* Of what dead_most leaves most. */
static bool
dead_nearly_all(const PmhEntry *entry)
{
	return entry->value % 40 != 0;
}

/*
 * Lists lose most of their values and are rewritten, value blocks are given back.  (Armed when
 * there are few values: images are checked as a whole.)
 */
static void
run_list_shrink(void)
{
	static const uint32_t values[] = {700, 40, 9, 3000, 12, 200};
	uint32_t	n = 0;

	new_table();
	for (uint32_t round = 0; round < 12; round++)
	{
		for (uint32_t k = 0; k < 6; k++)
		{
			for (uint32_t i = 0; i < values[k]; i++, n++)
				op_insert(nth_key(0, k % 3, 6 * round + k), 1 + n, false);
		}
	}
	arm(false);
	op_sweep(dead_most);
	arm(true);
	op_sweep(dead_nearly_all);
	must_shrink();
	op_insert(nth_key(0, 1, 1), 1 + n, true);
	op_restart();
	op_insert(nth_key(0, 1, 1), 2 + n, false);
}

/* Two segments at the end of a directory of this depth that cannot be merged. */
static void
deepest_pair(uint32_t depth, uint32_t *n)
{
	for (uint32_t i = 0; i < 2 * 60; i++)
		op_insert(make_hash((uint64_t) (i & 1) << (24 - depth), 5, 9, i >> 1), 30001 + (*n)++, false);
}

static bool
few_blocks_are_free(void)
{
	unsigned	n = 0;

	for (uint64_t block = 0; block < pmh_blocks(crash.table); block++)
		n += *pmh_space_map(crash.table, block) == 0;
	return n < 2;
}

/*
 * Blocks are punched, and taken back when entries come again, some of them after a restart.
 */
static void
run_punch(void)
{
	uint64_t	blocks;
	uint64_t	punched;
	unsigned	taken_back = 0;
	uint32_t	n = 20000;

	new_table();
	for (uint32_t i = 0; i < 16000; i++)
		op_insert(crash_mix(i), 1 + i, false);
	op_sweep(dead_most);
	must_shrink();
	blocks = pmh_blocks(crash.table);
	for (; taken_back < 4 && n < 40000; n++)
	{
		const PmhRun *run = pmh_run(crash.table);

		punched = run->punched_blocks;
		arm(few_blocks_are_free());
		op_insert(crash_mix(n), n, false);
		if (run->punched_blocks < punched && ++taken_back == 2)
			op_restart();
		arm(false);
	}
	if (taken_back < 4 || pmh_blocks(crash.table) != blocks)
	{
		fprintf(stderr, "%s: blocks that were punched are not taken back\n", crash.workload);
		exit(1);
	}
	arm(true);
	op_insert(crash_mix(n), n, true);
}

static uint32_t
size_of(uint64_t hash)
{
	PmhPlace	place;

	if (pmh_locate(crash.table, hash, &place) != PMH_OK)
		return PMH_MAX_SIZE;
	return pmh_elem_size(place.elem);
}

/*
 * Let the segment of a prefix get an extension, and leave few entries in it.
 * The homes are one bucket without the extension and two with it, and so are
 * the alternatives.
 */
static void
grow_and_leave(uint64_t prefix, uint32_t *n)
{
	Pairs		pairs = {0};

	while (size_of(prefix << 40) <= PMH_UNITS_PER_BLOCK)
	{
		bool		odd = *n % 2 != 0;

		add(&pairs, make_hash(prefix, odd ? 1000 : 1, odd ? 39600 : 39000, (*n)++), false);
	}
	while (pairs.n > 10)
		drop(&pairs, pairs.n - 1);
}

/*
 * Extensions become smaller, and nothing else can be done: each segment's buddy
 * is split further, down to two that hold too much of one bucket.  The first
 * one still needs a smaller extension, the others need none.
 */
static void
run_reduce(void)
{
	const uint32_t depth = 9;
	const uint64_t first = UINT64_C(1) << 63;
	uint64_t	merges;
	uint32_t	n = 0;
	uint32_t	i = 0;

	new_table();
	deepen(depth);
	deepest_pair(depth, &n);
	for (uint32_t d = 2; d < depth; d++)
		grow_and_leave(UINT64_C(1) << (24 - d), &n);
	for (; size_of(first) <= PMH_UNITS_PER_BLOCK; i++)
		op_insert(crash_mix(i) | first, 50000 + i, false);
	while (i-- > 900)
		op_delete(crash_mix(i) | first, 50000 + i);
	merges = pmh_run(crash.table)->merges;
	arm(true);
	must_shrink();
	if (pmh_run(crash.table)->merges != merges + depth - 1 ||
		pmh_dirword_depth(pmh_live(crash.table)->dirword) != depth ||
		size_of(first) <= PMH_UNITS_PER_BLOCK ||
		size_of(first) > PMH_GROWN_SIZE - PMH_REDUCE_UNITS)
	{
		fprintf(stderr, "%s: other than the extensions has changed\n", crash.workload);
		exit(1);
	}
	op_insert(crash_mix(900) | first, 50900, true);
	op_restart();
	op_insert(crash_mix(901) | first, 50901, false);
}

/* Many values of a key at once: parts of buffers, whole ones, the whole list. */
static void
run_list_drain(void)
{
	static PmhEntry entry[8192];
	uint64_t	hash = nth_key(0, 4, 1);
	uint32_t	full = pmh_class_capacity(PMH_CHUNK_CLASS);
	uint32_t	n = 7 * full - 5;	/* more than is looked at under one lock */

	new_table();
	for (uint32_t i = 0; i < n; i++)
		op_insert(hash, 1 + i, false);
	arm(true);
	for (uint32_t part = 0; part < 3; part++)
	{
		/* Every seventh, then the middle buffer, then what is left. */
		size_t		some = 0;

		for (uint32_t i = 0; i < n; i++)
		{
			if (model_find(&crash.model, hash, 1 + i) != NO_ENTRY &&
				(part == 0 ? i % 7 == 0 : part == 2 || (i >= full && i < 2 * full)))
				entry[some++] = (PmhEntry) {hash, 1 + i};
		}
		op_delete_group(entry, some);
		op_insert(hash, 10001 + part, part & 1);
	}
}

/* ---- anything ---- */

static Pairs random_pairs;

/* A few keys have many values, most one; all in few buckets. */
static uint64_t
random_key(void)
{
	uint64_t	r = crash_random();
	uint32_t	bucket = (uint32_t) (r >> 8) % 3;

	if (r % 4 == 0)
		return nth_key((r >> 20 & 1) << 23, bucket, (uint32_t) (r >> 32) % 2);
	return nth_key((r >> 20 & 3) << 22, bucket, (uint32_t) (r >> 32) % 1000);
}

/* Know again which pairs there are, after a crash. */
static void
pairs_from_model(Pairs *pairs)
{
	pairs->n = 0;
	for (uint32_t i = 0; i < crash.model.n; i++)
		pairs->pair[pairs->n++] = crash.model.entry[i].pair;
}

static void
random_group(Pairs *pairs)
{
	PmhEntry	group[6];
	size_t		n = 2 + crash_random() % 5;

	for (size_t i = 0; i < n; i++)
		group[i] = (PmhEntry) {random_key(), new_value()};
	op_insert_group(group, n, crash_random() & 1);
	for (size_t i = 0; i < n; i++)
		pairs->pair[pairs->n++] = group[i];
}

static void
random_operation(Pairs *pairs, bool shrinking)
{
	uint64_t	r = crash_random() % 1000;

	if (r < 3)
		op_restart();
	else if (r < 6)
		op_sweep(NULL);
	else if (r < 20)
	{
		op_sweep(dead_third);
		pairs_from_model(pairs);
	}
	else if (r < 60)
		random_group(pairs);
	else if (pairs->n > 0 && (shrinking ? r < 700 : r < 350))
		drop(pairs, crash_random() % pairs->n);
	else
		add(pairs, random_key(), r & 1);
}

/*
 * Take so many steps, armed.  Now and then go on from a crash image instead, so that what
 * recovery leaves is met by all operations: with this probability, only at fences of the
 * function 'at' if that is given.
 */
static void
take_steps(uint64_t nsteps, void (*step) (uint64_t i), double adopt, const char *at)
{
	jmp_buf		adopted;
	volatile uint64_t i = 0;

	arm(true);
	crash.adopt_at = at;
	crash.adopt = adopt;
	if (setjmp(adopted) != 0)
	{
		crash.adopted = NULL;
		op_after_adoption();
		pairs_from_model(&random_pairs);
	}
	crash.adopted = adopt > 0 ? &adopted : NULL;
	while (i++ < nsteps)
		step(i);
	crash.adopted = NULL;
	arm(false);
}

static void
fill_buckets(uint64_t i)
{
	if (random_pairs.n > 0 && crash_random() % 8 == 0)
		drop(&random_pairs, crash_random() % random_pairs.n);
	else
		add(&random_pairs, nth_key((uint64_t) (crash_random() & 1) << 23,
								   crash_random() % 64 == 0, (uint32_t) i), crash_random() & 1);
}

/*
 * Fill one home and one alternative bucket of a segment that many elements
 * name: strategies, growth and splits follow each other closely.  What goes on from
 * a crash at adopt_at's fences has elements that differ.
 */
static void
random_structure(const char *adopt_at, double adopt)
{
	uint32_t	depth = (uint32_t) (crash_random() % 8);

	new_table();
	random_pairs.n = 0;
	deepen(depth);
	take_steps(3 * FULL, fill_buckets, adopt, adopt_at);
}

/* Recovery has something to do, and what it did is relied on. */
static void
run_redo(void)
{
	for (unsigned round = 0; round < 8; round++)
	{
		random_structure("store_elements", 0.5);
		random_pairs.n = 0;
	}
}

static void
any_operation(uint64_t i)
{
	random_operation(&random_pairs, random_pairs.n > 250 || i % 200 > 120);
}

/* Random operations on a small table. */
static void
random_operations(uint64_t noperations, double adopt)
{
	new_table();
	random_pairs.n = 0;
	for (uint64_t k = crash_random() % 100; k > 0; k--)
		add(&random_pairs, random_key(), false);
	take_steps(noperations, any_operation, adopt, NULL);
}

static void
shrink_and_go_on(uint64_t round)
{
	(void) op_shrink();
	for (unsigned i = 0; i < 20; i++)
		random_operation(&random_pairs, round % 2 == 0);
}

/* A table that has lost most of its entries is shrunk, perhaps again after a crash. */
static void
random_shrink(void)
{
	new_table();
	deepen((uint32_t) (crash_random() % 5));
	for (uint64_t i = 1500 + crash_random() % 2500; i > 0; i--)
		op_insert(crash_random() % 3 == 0 ? random_key() : crash_random(), new_value(), false);
	op_sweep(crash_random() % 4 == 0 ? dead_third : dead_most);
	pairs_from_model(&random_pairs);
	take_steps(4, shrink_and_go_on, 0.003, NULL);
}

const char	random_name[] = "random";

void
run_random(uint64_t seed)
{
	crash.rng = seed;
	switch (crash_random() % 8)
	{
		case 0:
			random_structure(NULL, 0);
			break;
		case 1:
			random_structure("store_elements", 0.01);
			break;
		case 2:
			random_shrink();
			break;
		default:
			random_operations(400, 0.0005);
			break;
	}
}

static void
run_killed(void)
{
	recorder_persist = false;
	random_operations(1500, 0);
}

/* The quick ones first: a search for one failure need not wait for the others. */
const Workload workloads[] = {
	{"create", run_create},
	{"recovery", run_recovery},
	{"list_growth", run_list_growth},
	{"list_loaded", run_list_loaded},
	{"shadowed", run_shadowed},
	{"bulk", run_bulk},
	{"chain_delete", run_chain_delete},
	{"value_blocks", run_value_blocks},
	{"killed", run_killed},
	{"merge", run_merge},
	{"reduce", run_reduce},
	{"list_drain", run_list_drain},
	{"list_shrink", run_list_shrink},
	{"punch", run_punch},
	{"redo", run_redo},
};

const unsigned nworkloads = sizeof(workloads) / sizeof(workloads[0]);
