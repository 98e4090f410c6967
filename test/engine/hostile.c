/*-------------------------------------------------------------------------
 *
 * hostile.c
 *	  Hashes chosen by an enemy who knows all but the key of the permutation: whatever
 *	  they have in common, all of them go in, are found, and come out again; the file
 *	  does not become larger for them than for others, nor anything slow beyond measure.
 *
 *	hostile				some hundred thousand entries
 *	hostile long		a million of each of the worst kinds
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "am/keyhash.c"
#include "error.h"
#include "fixture.h"
#include "layout.h"
#include "segment.h"
#include "sweeps.h"
#include "table.h"
#include "unit.h"

/* Beside this many entries that nobody has chosen. */
#define INNOCENTS		UINT64_C(2000)

/* The file may be so many times what as many other keys would take. */
#define MOST_TIMES		4

/* A file of so many bytes is no giant: steps of growth and value regions count here. */
#define SMALL_FILE		UINT64_C(1000000)

/* What the patterns below say is for "hostile long"; a fifth of it does as a rule. */
#define SCALE(n)		((n) < 1000 || long_run ? (n) : FIXTURE_SCALE(n) / 5)

/* No operation takes longer (seconds; it is for those that would take minutes). */
#define MOST_SECONDS	0.5

typedef struct Pattern
{
	const char *name;
	uint64_t	n;
	uint64_t	(*hash) (uint64_t i);
} Pattern;

/* ---- what an enemy may choose ---- */

static uint64_t
same_40_bits(uint64_t i)
{
	return UINT64_C(0xdeadbeefcc) << 24 | (i * 11 & 0xffffff);
}

/* Home and alternative are the same as well: 256 hashes. */
static uint64_t
same_56_bits(uint64_t i)
{
	return UINT64_C(0xdeadbeefccddee) << 8 | (i & 0xff);
}

/* The bits that choose the segment differ, those that choose buckets do not. */
static uint64_t
same_buckets(uint64_t i)
{
	return (fixture_hash(i) & UINT64_C(0xffffff0000000000)) | UINT64_C(0x12345678) << 8 | (i & 0xff);
}

/* Only the bits that choose the alternative and the home differ. */
static uint64_t
same_prefix(uint64_t i)
{
	return UINT64_C(0x5a5a5a) << 40 | i << 8 | 0x77;
}

/* Each cluster is as large as makes one segment full, and cannot be divided. */
static uint64_t
clusters(uint64_t i)
{
	return fixture_hash(i / 1400) << 40 | (fixture_hash(i) >> 24);
}

/* A third of what is left differs in the next bit: all splits seem to be of use. */
static uint64_t
staircase(uint64_t i)
{
	uint32_t	depth = (uint32_t) (i % 60) / 2;
	uint64_t	low = depth >= 40 ? 0 : fixture_hash(i) >> (depth + 1);

	return low | (depth < 40 ? UINT64_C(1) << (63 - depth) : 0);
}

/* Types may have hash functions that tell little. */
static uint64_t
few_low_bits(uint64_t i)
{
	return i & 0xffff;
}

static uint64_t
one_hash(uint64_t i)
{
	(void) i;
	return UINT64_C(0x0123456789abcdef);
}

/* The hashes of one segment and bucket, and each of them several times. */
static uint64_t
pairs(uint64_t i)
{
	return same_buckets(i / 2);
}

static const Pattern patterns[] = {
	{"same 40 bits", UINT64_C(1000000), same_40_bits},
	{"same 56 bits", UINT64_C(1000000), same_56_bits},
	{"73 hashes of a bucket", 73, same_56_bits},
	{"same buckets", UINT64_C(1000000), same_buckets},
	{"same prefix", UINT64_C(300000), same_prefix},
	{"clusters", UINT64_C(300000), clusters},
	{"staircase", UINT64_C(300000), staircase},
	{"low bits only", UINT64_C(300000), few_low_bits},
	{"one hash", UINT64_C(100000), one_hash},
	{"pairs in the same buckets", UINT64_C(100000), pairs},
};

/* ---- the entries: innocents first, value i ---- */

static PmhashPermutation permutation;

static uint64_t
hash_of(const Pattern *p, uint64_t i)
{
	return i < INNOCENTS ? fixture_hash(i + (UINT64_C(1) << 40)) :
		pmhash_permute(&permutation, p->hash(i - INNOCENTS));
}

static bool long_run;

static uint64_t
count_of(const Pattern *p)
{
	return INNOCENTS + SCALE(p->n);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static PmhTable *
recover(const char *path, PmhTable *t)
{
	static PmhEnv env;

	if (env.locks == NULL)
		env = fixture_env(1);
	return fixture_recover(path, t, &env);
}

static uint64_t
file_bytes(PmhTable *t)
{
	uint64_t	entries;
	uint64_t	bytes;

	REQUIRE(pmh_estimate(t, &entries, &bytes) == PMH_OK);
	return bytes;
}

/* What the same number of keys takes that nobody has chosen. */
static uint64_t
innocent_bytes(const char *path, uint64_t n)
{
	PmhTable   *t = fixture_create(path);
	uint64_t	bytes;

	for (uint64_t i = 0; i < n; i++)
		REQUIRE(pmh_insert(t, fixture_hash(i), i, false) == PMH_OK);
	bytes = file_bytes(t);
	pmh_close(t);
	(void) unlink(path);
	return bytes;
}

/* ---- what has to be true ---- */

static void
insert_all(PmhTable *t, const Pattern *p)
{
	double		slowest = 0;

	for (uint64_t i = 0; i < count_of(p); i++)
	{
		double		from = now();
		PmhResult	result = pmh_insert(t, hash_of(p, i), i, false);
		double		took = now() - from;

		if (result != PMH_OK)
			fprintf(stderr, "%s: insert %llu: %s\n", p->name, (unsigned long long) i,
					pmh_error(t)->detail);
		REQUIRE(result == PMH_OK);
		if (took > slowest)
			slowest = took;
	}
	CHECK(slowest < MOST_SECONDS);
}

typedef struct Tally
{
	const Pattern *pattern;
	const uint64_t *hash;		/* of the group looked up */
	uint8_t    *seen;			/* per value */
	uint64_t	n;
	uint64_t	wrong;
} Tally;

static void
note(Tally *tally, uint64_t hash, uint64_t value)
{
	if (value >= count_of(tally->pattern) || hash_of(tally->pattern, value) != hash ||
		tally->seen[value])
	{
		tally->wrong++;
		return;
	}
	tally->seen[value] = 1;
	tally->n++;
}

static void
found(void *arg, size_t key, uint64_t value)
{
	Tally	   *tally = arg;

	note(tally, tally->hash[key], value);
}

static int
compare(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return (x > y) - (x < y);
}

/* The hashes of all entries from 'from' on, each once. */
static uint64_t *
all_hashes(const Pattern *p, uint64_t from, size_t *n)
{
	uint64_t   *hash = malloc(count_of(p) * sizeof(uint64_t));
	size_t		last = 0;

	for (uint64_t i = from; i < count_of(p); i++)
		hash[i - from] = hash_of(p, i);
	*n = (size_t) (count_of(p) - from);
	qsort(hash, *n, sizeof(uint64_t), compare);
	for (size_t i = 1; i < *n; i++)
	{
		last += hash[i] != hash[last];
		hash[last] = hash[i];
	}
	*n = *n == 0 ? 0 : last + 1;
	return hash;
}

static Tally
tally_of(const Pattern *p)
{
	return (Tally) {.pattern = p, .seen = calloc(count_of(p), 1)};
}

static void
is_all(Tally *tally, uint64_t from, const char *how)
{
	uint64_t	want = count_of(tally->pattern) - from;

	if (tally->n != want || tally->wrong != 0)
		fprintf(stderr, "%s, %s: %llu of %llu entries, %llu wrong\n", tally->pattern->name,
				how, (unsigned long long) tally->n, (unsigned long long) want,
				(unsigned long long) tally->wrong);
	CHECK(tally->n == want && tally->wrong == 0);
	free(tally->seen);
}

static void
look_up_all(PmhTable *t, const Pattern *p, uint64_t from)
{
	size_t		n;
	uint64_t   *hash = all_hashes(p, from, &n);
	PmhValues	values = {0};
	PmhCursor	cursor = {0};
	Tally		single = tally_of(p);
	Tally		group = tally_of(p);
	Tally		batches = tally_of(p);

	for (size_t i = 0; i < n; i++)
	{
		REQUIRE(pmh_lookup(t, hash[i], &values) == PMH_OK);
		for (size_t k = 0; k < values.n; k++)
			note(&single, hash[i], values.value[k]);
	}
	group.hash = hash;
	REQUIRE(fixture_lookup_group(t, hash, n, found, &group) == PMH_OK);
	for (size_t i = 0; i < n; i++)
	{
		PmhResult	result;

		pmh_cursor_open(t, &cursor, hash[i]);
		while ((result = pmh_cursor_next(t, &cursor, i % 4 == 0 ? 0 : 7)) == PMH_OK)
		{
			for (size_t k = 0; k < cursor.batch.n; k++)
				note(&batches, hash[i], cursor.batch.value[k]);
		}
		REQUIRE(result == PMH_DONE);
	}
	is_all(&single, from, "look-up");
	is_all(&group, from, "group");
	is_all(&batches, from, "cursor");
	pmh_values_free(&values);
	pmh_cursor_free(&cursor);
	free(hash);
}

/* Sweep, and take out those with a value below 'below'. */
static void
sweep_all(PmhTable *t, const Pattern *p, uint64_t from, uint64_t below)
{
	Sweeper		s;
	const PmhEntry *pair;
	Tally		tally = tally_of(p);

	sweeper_begin(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		note(&tally, pair->hash, pair->value);
		if (pair->value < below)
			sweeper_take_out(&s);
	}
	REQUIRE(sweeper_end(&s) == PMH_OK);
	is_all(&tally, from, "sweep");
	CHECK(s.removed == (below > from ? below - from : 0));
}

static void
counts(PmhTable *t, uint64_t n)
{
	PmhStats	stats;

	REQUIRE(pmh_stats(t, &stats) == PMH_OK);
	CHECK(stats.entries == n);
}

/* Delete entries [from, to), one by one or as a group. */
static void
delete_some(PmhTable *t, const Pattern *p, uint64_t from, uint64_t to)
{
	uint64_t	middle = from + (to - from) / 2;
	PmhEntry   *entries = malloc((to - from) * sizeof(PmhEntry));
	size_t		n = 0;
	size_t		removed;

	for (uint64_t i = from; i < middle; i++)
		REQUIRE(p->hash == one_hash || pmh_delete(t, hash_of(p, i), i) == PMH_OK);
	for (uint64_t i = p->hash == one_hash ? from : middle; i < to; i++)
		entries[n++] = (PmhEntry) {hash_of(p, i), i};
	REQUIRE(pmh_delete_group(t, entries, n, &removed) == PMH_OK);
	CHECK(removed == n);
	CHECK(pmh_delete(t, hash_of(p, from), from) == PMH_NOT_FOUND);
	free(entries);
}

static void
is_no_giant(PmhTable *t, const Pattern *p)
{
	static uint64_t others[2];	/* for how many entries, and bytes */

	if (others[0] != count_of(p))
	{
		others[0] = count_of(p);
		others[1] = innocent_bytes(fixture_path("innocent"), others[0]);
	}
	if (!CHECK(file_bytes(t) <= SMALL_FILE || file_bytes(t) <= MOST_TIMES * others[1]))
		fprintf(stderr, "%s: %.1f MB, others take %.1f\n", p->name,
				(double) file_bytes(t) / 1e6, (double) others[1] / 1e6);
}

/* The life of a table with such entries. */
static void
live(const Pattern *p, const char *path)
{
	uint64_t	n = count_of(p);
	PmhTable   *t = fixture_create(path);

	insert_all(t, p);
	is_no_giant(t, p);
	CHECK_SOUND(t);
	counts(t, n);
	look_up_all(t, p, 0);
	t = recover(path, t);
	CHECK_SOUND(t);
	sweep_all(t, p, 0, n / 4);
	delete_some(t, p, n / 4, n / 2);
	counts(t, n - n / 2);
	REQUIRE(fixture_shrink(t, 90) == PMH_OK);
	CHECK_SOUND(t);
	look_up_all(t, p, n / 2);
	delete_some(t, p, n / 2, n - n / 64);
	REQUIRE(fixture_shrink(t, 90) == PMH_OK);
	CHECK_SOUND(t);
	t = recover(path, t);
	look_up_all(t, p, n - n / 64);
	sweep_all(t, p, n - n / 64, n);
	counts(t, 0);
	for (uint64_t i = 0; i < n / 8; i++)
		REQUIRE(pmh_insert(t, hash_of(p, i), i, false) == PMH_OK);
	counts(t, n / 8);
	CLOSE_SOUND(t);
	(void) unlink(path);
}

/* The same entries by bulk load, in partitions of so many bits. */
static void
load(const Pattern *p, const char *path, uint32_t bits)
{
	PmhTable   *t = fixture_create(path);
	PmhEntry   *entries = malloc(count_of(p) * sizeof(PmhEntry));
	PmhBulk    *bulk;
	uint32_t	depth;
	uint64_t	from = 0;

	for (uint64_t i = 0; i < count_of(p); i++)
		entries[i] = (PmhEntry) {hash_of(p, i), i};
	qsort(entries, count_of(p), sizeof(PmhEntry), fixture_compare_entries);
	REQUIRE(pmh_bulk_begin(t, count_of(p), 90, &depth, &bulk) == PMH_OK);
	if (bits > depth)
		bits = depth;
	for (uint64_t part = 0; part < UINT64_C(1) << bits; part++)
	{
		uint64_t	to = from;
		PmhResult	result;

		while (to < count_of(p) && pmh_hash_prefix(entries[to].hash, bits) == part)
			to++;
		result = pmh_bulk_partition(bulk, bits, part, entries + from, to - from);
		if (result != PMH_OK)
			fprintf(stderr, "%s: bulk load: %s\n", p->name, pmh_error(t)->detail);
		REQUIRE(result == PMH_OK);
		from = to;
	}
	REQUIRE(pmh_bulk_finish(bulk) == PMH_OK);
	free(entries);
	is_no_giant(t, p);
	CHECK_SOUND(t);
	counts(t, count_of(p));
	look_up_all(t, p, 0);
	t = recover(path, t);
	sweep_all(t, p, 0, count_of(p));
	CHECK_SOUND(t);
	counts(t, 0);
	pmh_close(t);
	(void) unlink(path);
}

int
main(int argc, char **argv)
{
	const char *path = fixture_path("hostile");

	pmhash_permutation_make(&permutation, (uint64_t[]) {fixture_hash(1), fixture_hash(2)});
	long_run = argc > 1 && strcmp(argv[1], "long") == 0;
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
	{
		live(&patterns[i], path);
		load(&patterns[i], path, i % 2 == 0 ? 0 : 4);
	}
	return unit_done("hostile");
}
