/*-------------------------------------------------------------------------
 *
 * exercise.c
 *	  Everything an engine can do, against what should be there.
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>

#include "fuzz.h"
#include "sweeps.h"

#define NEW_PAIRS			240
#define NEW_VALUE			(UINT64_C(1) << 40) /* values of images are below */
#define NEW_KEY				(UINT64_C(1) << 50)
#define ABSENT_KEY			(UINT64_C(1) << 51)
#define ABSENT_KEYS			300
#define CURSOR_EVERY		7	/* every so many keys are read by a cursor too */
#define CURSOR_WANT			100

const char *volatile *exercise_step;

static void
step(const char *what)
{
	*exercise_step = what;
}

void
seen_note(Seen *seen, const char *what, ...)
{
	va_list		args;

	if (seen->first[0] != '\0')
		return;
	va_start(args, what);
	vsnprintf(seen->first, sizeof(seen->first), what, args);
	va_end(args);
}

/*
 * An operation has ended like this: true if it has succeeded.  A result that is
 * neither success nor damage comes first in the report.
 */
static bool
succeeded(PmhTable *t, PmhResult result, Seen *seen)
{
	if (result == PMH_OK || result == PMH_DONE)
		return true;
	if (result == PMH_NOT_FOUND)
	{
		seen->wrong++;
		seen_note(seen, "%s: not found", *exercise_step);
		return false;
	}
	seen->errors++;
	/* LOST: the file is shorter than its header says */
	if (result != PMH_ERR_CORRUPT && result != PMH_ERR_LOST && seen->strange++ == 0)
		seen->first[0] = '\0';
	seen_note(seen, "%s: result %d: %s", *exercise_step, (int) result, pmh_error(t)->detail);
	return false;
}

/* Order does not count: sums of these tell whether two readers saw the same. */
static uint64_t
pair_sum(uint64_t hash, uint64_t value)
{
	return fixture_hash(hash ^ fixture_hash(value));
}

static void
note_finding(void *arg, uint64_t offset, const char *finding)
{
	Seen	   *seen = arg;

	seen->findings++;
	seen_note(seen, "check, offset %llu: %s", (unsigned long long) offset, finding);
}

static void
check(PmhTable *t, Seen *seen)
{
	for (int alone = 0; alone < 2; alone++)
	{
		PmhResult	result;
		uint64_t	before = seen->findings;

		step(alone ? "check, alone" : "check");
		result = alone ? check_alone(t, note_finding, seen) : pmh_check(t, note_finding, seen);
		if (result == PMH_ERR_CORRUPT && seen->findings == before)
			seen->findings++;
		else if (result != PMH_OK && result != PMH_ERR_CORRUPT)
			(void) succeeded(t, result, seen);
	}
}

/* ---- reading ---- */

/* What look-ups one by one and in groups have seen. */
typedef struct Sums
{
	uint64_t	lookup;
	uint64_t	group;
	const uint64_t *hashes;
	uint64_t   *of_key;			/* of look-ups one by one */
} Sums;

static bool
same_values(const PmhValues *values, const PmhEntry *pair, size_t n)
{
	if (values->n != n)
		return false;
	for (size_t i = 0; i < n; i++)
	{
		if (values->value[i] != pair[i].value)
			return false;
	}
	return true;
}

static void
not_as_it_should(Seen *seen, uint64_t hash, size_t n, size_t expected)
{
	seen->wrong++;
	seen_note(seen, "%s: hash %016llx has %zu values, should have %zu", *exercise_step,
			  (unsigned long long) hash, n, expected);
}

static void
read_by_cursor(PmhTable *t, const PmhEntry *pair, size_t n, Seen *seen)
{
	PmhCursor	cursor = {0};
	PmhValues	all = {0};
	PmhResult	result;

	step("cursor");
	pmh_cursor_open(t, &cursor, pair->hash);
	cursor.start = (uint32_t) pair->value << 28;
	while ((result = pmh_cursor_next(t, &cursor, CURSOR_WANT)) == PMH_OK)
	{
		if (pmh_values_reserve(t, &all, cursor.batch.n) != PMH_OK)
			break;
		for (size_t i = 0; i < cursor.batch.n; i++)
			all.value[all.n++] = cursor.batch.value[i];
	}
	if (succeeded(t, result, seen))
	{
		size_t		given = all.n;

		pmh_values_finish(&all);
		if (given != all.n || !same_values(&all, pair, n))
			not_as_it_should(seen, pair->hash, given, n);
	}
	pmh_values_free(&all);
	pmh_cursor_free(&cursor);
}

static void
group_found(void *arg, size_t key, uint64_t value)
{
	Sums	   *sums = arg;

	sums->group += value == PMH_VALUE_MANY ? sums->of_key[key] :
		pair_sum(sums->hashes[key], value);
}

static void
count_repeats(void *arg, const uint64_t *value, size_t n)
{
	*(size_t *) arg += n;
}

/* Look all keys up, in every way there is. */
static void
look_up(PmhTable *t, const PmhEntry *pair, size_t n, Seen *seen)
{
	Sums		sums = {0};
	uint64_t   *hashes = malloc((n + 1) * sizeof(uint64_t));
	size_t		keys = 0;
	PmhValues	values = {0};
	size_t		repeats = 0;
	uint64_t	errors = seen->errors;

	sums.of_key = calloc(n + 1, sizeof(uint64_t));
	if (hashes == NULL || sums.of_key == NULL)
		abort();
	for (size_t from = 0, to; from < n; from = to)
	{
		for (to = from + 1; to < n && pair[to].hash == pair[from].hash; to++)
			;
		hashes[keys++] = pair[from].hash;
		step("look-up");
		if (succeeded(t, pmh_lookup(t, pair[from].hash, &values), seen))
		{
			if (!same_values(&values, pair + from, to - from))
				not_as_it_should(seen, pair[from].hash, values.n, to - from);
			for (size_t i = 0; i < values.n; i++)
				sums.of_key[keys - 1] += pair_sum(pair[from].hash, values.value[i]);
			sums.lookup += sums.of_key[keys - 1];
		}
		if (keys % CURSOR_EVERY == 0)
			read_by_cursor(t, pair + from, to - from, seen);
		step("look-up with repeats");
		repeats = 0;
		if (succeeded(t, pmh_lookup_repeats(t, pair[from].hash, count_repeats, &repeats), seen) &&
			repeats != to - from)
			not_as_it_should(seen, pair[from].hash, repeats, to - from);
	}
	sums.hashes = hashes;
	step("look-up in groups");
	(void) succeeded(t, pmh_lookup_group(t, hashes, keys, group_found, &sums), seen);
	if (seen->errors == errors && sums.group != sums.lookup)
	{
		seen->disagree++;
		seen_note(seen, "look-ups one by one and in groups differ");
	}
	pmh_values_free(&values);
	free(hashes);
	free(sums.of_key);
}

static void
look_absent_up(PmhTable *t, Seen *seen)
{
	PmhValues	values = {0};

	step("look-up of absent keys");
	for (uint64_t i = 0; i < ABSENT_KEYS; i++)
	{
		uint64_t	hash = fixture_hash(ABSENT_KEY + i);

		if (succeeded(t, pmh_lookup(t, hash, &values), seen) && values.n > 0)
			not_as_it_should(seen, hash, values.n, 0);
	}
	pmh_values_free(&values);
}

/* Does a look-up of each hash that a sweep has given give what the sweep gave? */
static void
compare_readers(PmhTable *t, PmhEntry *pair, size_t n, Seen *seen)
{
	PmhValues	values = {0};

	qsort(pair, n, sizeof(PmhEntry), fixture_compare_entries);
	for (size_t from = 0, to; from < n; from = to)
	{
		size_t		kept = 1;

		for (to = from + 1; to < n && pair[to].hash == pair[from].hash; to++)
		{
			if (pair[to].value != pair[to - 1].value)
				pair[from + kept++].value = pair[to].value;
		}
		if (succeeded(t, pmh_lookup(t, pair[from].hash, &values), seen) &&
			!same_values(&values, pair + from, kept))
		{
			seen->disagree++;
			seen_note(seen, "hash %016llx: the sweep gives %zu values, a look-up %zu",
					  (unsigned long long) pair[from].hash, kept, values.n);
		}
	}
	pmh_values_free(&values);
}

/*
 * Sweep, taking nothing out: it must give all pairs.  If it does not, look-ups
 * should at least say the same.
 */
static void
sweep_all(PmhTable *t, const PmhEntry *pair, size_t n, Seen *seen)
{
	Sweeper		s;
	const PmhEntry *next;
	PmhEntry   *given = NULL;
	size_t		ngiven = 0;
	uint64_t	sum = 0;
	uint64_t	expected = 0;
	uint64_t	errors = seen->errors;

	step("sweep");
	for (size_t i = 0; i < n; i++)
		expected += pair_sum(pair[i].hash, pair[i].value);
	sweeper_begin(&s, t);
	while ((next = sweeper_next(&s)) != NULL)
	{
		if ((ngiven & (ngiven + 1)) == 0)
			given = realloc(given, (2 * ngiven + 2) * sizeof(PmhEntry));
		if (given == NULL)
			abort();
		sum += pair_sum(next->hash, next->value);
		given[ngiven++] = *next;
	}
	(void) succeeded(t, sweeper_end(&s), seen);
	if (seen->errors == errors && (ngiven != n || sum != expected))
	{
		seen->wrong++;
		seen_note(seen, "sweep: %zu pairs, should be %zu", ngiven, n);
		if (given != NULL)
			compare_readers(t, given, ngiven, seen);
	}
	free(given);
}

static void
tell_figures(PmhTable *t, size_t n, Seen *seen)
{
	PmhStats	stats;
	uint64_t	entries;

	step("statistics");
	if (succeeded(t, pmh_stats(t, &stats), seen) && stats.entries != n)
	{
		seen->wrong++;
		seen_note(seen, "statistics: %llu entries, should be %zu",
				  (unsigned long long) stats.entries, n);
	}
	step("estimate");
	(void) succeeded(t, pmh_estimate(t, &entries), seen);
}

static void
read_all(PmhTable *t, const PmhEntry *pair, size_t n, Seen *seen)
{
	check(t, seen);
	look_up(t, pair, n, seen);
	look_absent_up(t, seen);
	sweep_all(t, pair, n, seen);
	tell_figures(t, n, seen);
	check(t, seen);
}

void
exercise_read(PmhTable *t, const Image *image, Seen *seen)
{
	read_all(t, image->pair, image->npairs, seen);
}

/* ---- changing ---- */

static PmhEntry
new_pair(const Image *image, uint64_t salt, uint64_t i)
{
	PmhEntry	pair = {fixture_hash(NEW_KEY + salt * NEW_PAIRS + i), NEW_VALUE + i};

	if (i % 3 == 0 && image->npairs > 0)
		pair.hash = image->pair[fixture_hash(salt + i) % image->npairs].hash;
	return pair;
}

static bool
goes_by_delete(const PmhEntry *pair)
{
	return pair->value < NEW_VALUE && pair_sum(pair->hash, pair->value) % 16 == 1;
}

static bool
goes_by_group(const PmhEntry *pair)
{
	return pair->value < NEW_VALUE && pair_sum(pair->hash, pair->value) % 16 == 3;
}

static bool
goes_by_sweep(const PmhEntry *pair)
{
	return pair->value < NEW_VALUE && pair_sum(pair->hash, pair->value) % 4 == 2;
}

static void
insert_new(PmhTable *t, const Image *image, uint64_t salt, Seen *seen)
{
	PmhEntry	group[NEW_PAIRS / 2];
	size_t		done;

	step("insert");
	for (uint64_t i = 0; i < NEW_PAIRS / 2; i++)
	{
		PmhEntry	pair = new_pair(image, salt, i);

		(void) succeeded(t, pmh_insert(t, pair.hash, pair.value, i % 2 == 0), seen);
	}
	step("insert in a group");
	for (uint64_t i = 0; i < NEW_PAIRS / 2; i++)
		group[i] = new_pair(image, salt, NEW_PAIRS / 2 + i);
	(void) succeeded(t, pmh_insert_group(t, group, NEW_PAIRS / 2, true, &done), seen);
}

static void
delete_some(PmhTable *t, const Image *image, Seen *seen)
{
	PmhEntry   *group = malloc((image->npairs + 1) * sizeof(PmhEntry));
	size_t		n = 0;
	size_t		removed;
	uint64_t	errors = seen->errors;

	if (group == NULL)
		abort();
	step("delete");
	for (size_t i = 0; i < image->npairs; i++)
	{
		const PmhEntry *pair = &image->pair[i];

		if (goes_by_delete(pair))
			(void) succeeded(t, pmh_delete(t, pair->hash, pair->value), seen);
		if (goes_by_group(pair))
			group[n++] = *pair;
	}
	step("delete in a group");
	if (succeeded(t, pmh_delete_group(t, group, n, &removed), seen) &&
		removed != n && seen->errors == errors)
	{
		seen->wrong++;
		seen_note(seen, "delete in a group: %zu removed, should be %zu", removed, n);
	}
	free(group);
}

static void
sweep_out(PmhTable *t, Seen *seen)
{
	Sweeper		s;
	const PmhEntry *pair;

	step("sweep that removes");
	sweeper_begin(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		if (goes_by_sweep(pair))
			sweeper_take_out(&s);
	}
	(void) succeeded(t, sweeper_end(&s), seen);
}

void
exercise_change(PmhTable *t, const Image *image, uint64_t salt, Seen *seen)
{
	insert_new(t, image, salt, seen);
	delete_some(t, image, seen);
	sweep_out(t, seen);
	exercise_read_changed(t, image, salt, seen);
}

void
exercise_read_changed(PmhTable *t, const Image *image, uint64_t salt, Seen *seen)
{
	PmhEntry   *pair = malloc((image->npairs + NEW_PAIRS) * sizeof(PmhEntry));
	size_t		n = 0;

	if (pair == NULL)
		abort();
	for (size_t i = 0; i < image->npairs; i++)
	{
		const PmhEntry *p = &image->pair[i];

		if (!goes_by_delete(p) && !goes_by_group(p) && !goes_by_sweep(p))
			pair[n++] = *p;
	}
	for (uint64_t i = 0; i < NEW_PAIRS; i++)
		pair[n++] = new_pair(image, salt, i);
	qsort(pair, n, sizeof(PmhEntry), fixture_compare_entries);
	read_all(t, pair, n, seen);
	free(pair);
}
