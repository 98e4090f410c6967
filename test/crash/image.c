/*-------------------------------------------------------------------------
 *
 * image.c
 *	  Is what a crash has left all right?  It is recovered by pmh_open,
 *	  checked against the model, and used.
 *
 * Every completed operation must be there, the one in flight whole or not at
 * all, nothing twice, nothing else; the structure must be sound; after one
 * complete sweep no space may be lost; and inserts, look-ups and deletes must
 * work, with all of this true again after them.
 *
 * Each image is recovered.  What comes then depends on nothing but what
 * recovery has left, the model, and chance: an image that is now equal, byte by
 * byte, to one that was found right is done, but for one in so many, which
 * chance may lead elsewhere.
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../lib/check_alone.h"
#include "crash.h"
#include "error.h"
#include "handle.h"
#include "layout.h"
#include "space.h"
#include "table.h"

/* All keys are looked up in one of so many images, one of them in each. */
#define LOOK_UP_ALL		512

/* In one of so many images so much is added that segments and lists grow. */
#define ADD_MANY		32

/* Where a sweep has to find out what is free, one in so many is checked before. */
#define CHECK_TWICE		16

/* Of recovered images that are equal to one found right, one in so many is used. */
#define USE_AGAIN		16

/* Recovered images that are known to be right: as many as there is room for. */
#define KNOWN_ROOM		(1u << 20)

/* In one of so many images all values of a key, if they are few, are deleted. */
#define EMPTY_A_KEY		3
#define FEW_VALUES		40

#define MAX_FRESH		64

/* One recovered image. */
typedef struct Image
{
	unsigned	level;
	PmhTable   *table;
	uint32_t	walk;			/* stamp of the first walk */
	uint32_t	number;			/* stamp of the image */
	uint32_t	ngone;
	uint32_t	found;			/* entries of the first walk */
	PmhEntry	fresh[MAX_FRESH];
	bool		fresh_there[MAX_FRESH];
	bool		fresh_seen[MAX_FRESH];
	uint32_t	nfresh;
} Image;

static char wrong[400];

const char *
say(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(wrong, sizeof(wrong), format, args);
	va_end(args);
	return wrong;
}

/* ... of an entry. */
static const char *
say_entry(const PmhEntry *pair, const char *what)
{
	return say("(%016llx, %llx) %s", (unsigned long long) pair->hash, (unsigned long long) pair->value, what);
}

static void
keep_finding(void *arg, uint64_t offset, const char *finding)
{
	bool	   *any = arg;

	if (!*any)
		say("pmh_check: offset %llu: %s", (unsigned long long) offset, finding);
	*any = true;
}

static const char *
check_structure(Image *im)
{
	bool		any = false;
	PmhResult	result = check_alone(im->table, keep_finding, &any);

	if (any)
		return wrong;
	if (result != PMH_OK)
		return say("pmh_check says %d", result);
	return NULL;
}

/*
 * Leave anything in what is volatile: what the processes had written last,
 * nothing, noise, or a part.
 */
static void
scramble(unsigned level)
{
	char	   *to = memory_file(level, 0);
	const char *from = memory_file(0, 0);
	const size_t map_bytes = PMH_HEADER_MAP_BLOCKS;
	uint64_t	r = crash_random();

	for (size_t o = PMH_RUN_OFFSET; o < PMH_RUN_OFFSET + sizeof(PmhRun); o += PMH_LINE)
		memory_touch(level, (uint32_t) (o / PMH_LINE));
	for (size_t o = 0; o < map_bytes; o += PMH_LINE)
		memory_touch(level, (uint32_t) ((PMH_HEADER_MAP_OFFSET + o) / PMH_LINE));
	switch (r & 3)
	{
		case 0:
			memcpy(to + PMH_RUN_OFFSET, from + PMH_RUN_OFFSET, sizeof(PmhRun));
			memcpy(to + PMH_HEADER_MAP_OFFSET, from + PMH_HEADER_MAP_OFFSET, map_bytes);
			break;
		case 1:
			memset(to + PMH_RUN_OFFSET, 0, sizeof(PmhRun));
			memset(to + PMH_HEADER_MAP_OFFSET, 0, map_bytes);
			break;
		case 2:
			for (size_t o = 0; o + 8 <= sizeof(PmhRun); o += 8)
			{
				uint64_t	noise = crash_mix(r + o);

				memcpy(to + PMH_RUN_OFFSET + o, &noise, 8);
			}
			memset(to + PMH_HEADER_MAP_OFFSET, (int) (r >> 8), map_bytes);
			break;
		case 3:
			memset(to + PMH_RUN_OFFSET, 0, sizeof(PmhRun));
			memcpy(to + PMH_RUN_OFFSET, from + PMH_RUN_OFFSET, PMH_LINE);
			memcpy(to + PMH_HEADER_MAP_OFFSET, from + PMH_HEADER_MAP_OFFSET, map_bytes / 2);
			break;
	}
}

/* Recovery has found each block that has no space. */
static const char *
check_holes(const Image *im)
{
	for (uint64_t block = 0; block < pmh_blocks(im->table); block++)
	{
		if (memory_is_hole(im->level, 0, block) &&
			*pmh_space_kind(im->table, block) != PMH_KIND_PUNCHED)
			return say("block %llu has no space, and is not marked", (unsigned long long) block);
	}
	return NULL;
}

/* ---- images that are equal ---- */

static uint64_t known_right[KNOWN_ROOM];

/* What a memory holds together with what it should hold. */
static uint64_t
image_hash(unsigned level)
{
	return crash_mix(memory_hash(level) ^
					 crash_mix(crash.model.sum + crash.model.all_or_nothing));
}

/* ---- all entries ---- */

static int
find_fresh(const Image *im, const PmhEntry *pair)
{
	for (uint32_t i = 0; i < im->nfresh; i++)
	{
		if (im->fresh[i].hash == pair->hash && im->fresh[i].value == pair->value)
			return (int) i;
	}
	return -1;
}

/* An entry of the second walk: it must be known, and not have been seen yet. */
static const char *
note_second(Image *im, const PmhEntry *pair, uint32_t walk)
{
	uint32_t	i;
	int			f = find_fresh(im, pair);

	if (f >= 0)
	{
		if (!im->fresh_there[f] || im->fresh_seen[f])
			return say_entry(pair, im->fresh_seen[f] ? "was inserted after recovery, and is there twice" :
							 "was inserted and deleted after recovery, and is there");
		im->fresh_seen[f] = true;
		return NULL;
	}
	i = model_find(&crash.model, pair->hash, pair->value);
	if (i == NO_ENTRY)
		return say_entry(pair, "is foreign, after fresh operations");
	if (crash.model.entry[i].seen == walk)
		return say_entry(pair, "is there twice, after fresh operations");
	if (crash.model.entry[i].seen != im->walk || crash.model.entry[i].gone == im->number)
		return say_entry(pair, "has come back");
	crash.model.entry[i].seen = walk;
	return NULL;
}

/* Must an entry be gone, since the WAL it depends on is? */
static inline bool
is_undone(const ModelEntry *e)
{
	return e->lsn > crash.replay_end;
}

static const char *
note_first(const PmhEntry *pair, uint32_t walk, uint32_t *must, uint32_t *may)
{
	uint32_t	i = model_find(&crash.model, pair->hash, pair->value);

	if (i == NO_ENTRY)
		return say_entry(pair, "is foreign");
	if (crash.model.entry[i].seen == walk)
		return say_entry(pair, "is there twice");
	if (is_undone(&crash.model.entry[i]))
		return say_entry(pair, "depends on lost WAL");
	crash.model.entry[i].seen = walk;
	if (crash.model.entry[i].maybe)
		(*may)++;
	else
		(*must)++;
	return NULL;
}

/* How many entries of the model must there be? */
static uint32_t
count_certain(void)
{
	uint32_t	n = 0;

	if (crash.replay_end == UINT64_MAX)
		return crash.model.n - crash.model.nmaybe;
	for (uint32_t i = 0; i < crash.model.n; i++)
		n += !crash.model.entry[i].maybe && !is_undone(&crash.model.entry[i]);
	return n;
}

/* Which entry of the model has a walk not met? */
static const char *
name_lost(uint32_t walk)
{
	for (uint32_t i = 0; i < crash.model.n; i++)
	{
		const ModelEntry *e = &crash.model.entry[i];

		if (!e->maybe && !is_undone(e) && e->seen != walk)
			return say_entry(&e->pair, "is lost");
	}
	return say("an entry is lost");
}

/* Walk over all entries by a complete sweep. */
static const char *
walk_all(Image *im, bool second)
{
	uint32_t	walk = ++crash.walk;
	uint32_t	must = 0;
	uint32_t	may = 0;
	uint32_t	n = 0;
	const char *bad = NULL;
	PmhSweep	sweep;
	PmhResult	result = pmh_sweep_begin(im->table, &sweep);

	if (result != PMH_OK)
		return say("pmh_sweep_begin: %s", pmh_error(im->table)->detail);
	while (bad == NULL && (result = pmh_sweep_next(im->table, &sweep)) == PMH_OK)
	{
		for (size_t i = 0; i < sweep.n && bad == NULL; i++, n++)
			bad = second ? note_second(im, &sweep.entries[i], walk) :
				note_first(&sweep.entries[i], walk, &must, &may);
	}
	pmh_sweep_end(&sweep);
	if (bad != NULL)
		return bad;
	if (result != PMH_DONE)
		return say("pmh_sweep_next: %s", pmh_error(im->table)->detail);
	if (!second)
	{
		im->walk = walk;
		im->found = must + may;
		if (must != count_certain())
			return name_lost(walk);
		if (crash.model.all_or_nothing && may != 0 && may != crash.model.nmaybe)
			return say("%u of %u entries that belong together are there", may,
					   crash.model.nmaybe);
		return NULL;
	}
	must = im->found - im->ngone;
	for (uint32_t i = 0; i < im->nfresh; i++)
		must += im->fresh_there[i];
	if (n != must)
		return say("%u entries after fresh operations instead of %u", n, must);
	return NULL;
}

/* ---- look-ups ---- */

static PmhValues found[LEVELS];

/* Is (hash, value) found by a look-up, as it should be or not? */
static const char *
look_up(Image *im, uint64_t hash, uint64_t value, bool there)
{
	PmhValues  *values = &found[im->level];
	bool		is_there = false;

	if (pmh_lookup(im->table, hash, values) != PMH_OK)
		return say("pmh_lookup: %s", pmh_error(im->table)->detail);
	for (size_t i = 0; i < values->n && !is_there; i++)
		is_there = values->value[i] == value;
	if (is_there != there)
		return say_entry(&(PmhEntry) {hash, value}, there ? "is not found by a look-up" : "is found by a look-up");
	return NULL;
}

static bool
is_there(const Image *im, uint32_t i)
{
	return crash.model.entry[i].seen == im->walk && crash.model.entry[i].gone != im->number;
}

static const char *
look_up_some(Image *im)
{
	const Model *m = &crash.model;
	const char *bad = NULL;
	uint32_t	n = m->n;
	uint32_t	i = 0;

	if (n == 0)
		return NULL;
	if (crash_random() % LOOK_UP_ALL != 0)
	{
		/* Those in flight were added last, if they are inserts. */
		i = crash_random() % 2 == 0 ? n - 1 : (uint32_t) (crash_random() % n);
		return look_up(im, m->entry[i].pair.hash, m->entry[i].pair.value, is_there(im, i));
	}
	for (; i < n && bad == NULL; i += i > 2000 ? 97 : 1)
		bad = look_up(im, m->entry[i].pair.hash, m->entry[i].pair.value, is_there(im, i));
	return bad;
}

/* ---- fresh operations ---- */

static const char *
insert_fresh(Image *im, uint64_t hash)
{
	uint32_t	i = im->nfresh++;
	PmhResult	result;

	im->fresh[i].hash = hash;
	im->fresh[i].value = FRESH_VALUES + i;
	im->fresh_seen[i] = false;
	im->fresh_there[i] = true;
	result = pmh_insert(im->table, hash, im->fresh[i].value, (i & 1) != 0);
	if (result != PMH_OK)
		return say("pmh_insert after recovery: %s", pmh_error(im->table)->detail);
	return look_up(im, hash, im->fresh[i].value, true);
}

static const char *
delete_fresh(Image *im, uint32_t i)
{
	PmhResult	result = pmh_delete(im->table, im->fresh[i].hash, im->fresh[i].value);

	if (result != PMH_OK)
		return say("pmh_delete after recovery: %s", result == PMH_NOT_FOUND ?
				   "not found" : pmh_error(im->table)->detail);
	im->fresh_there[i] = false;
	return NULL;
}

/* Delete an entry of the model that is there, or see that it is not. */
static const char *
delete_known(Image *im, uint32_t i)
{
	ModelEntry *e = &crash.model.entry[i];
	bool		there = is_there(im, i);
	PmhResult	result = pmh_delete(im->table, e->pair.hash, e->pair.value);

	if (result != PMH_OK && result != PMH_NOT_FOUND)
		return say("pmh_delete after recovery: %s", pmh_error(im->table)->detail);
	if ((result == PMH_OK) != there)
		return say_entry(&e->pair, there ? "is not found by a delete" : "is found by a delete");
	if (there)
	{
		e->gone = im->number;
		im->ngone++;
	}
	return look_up(im, e->pair.hash, e->pair.value, false);
}

/*
 * Delete all values of the key in question, or of one of the youngest entries.
 * Nothing has been added to it: what a crash has left of its list, and beside
 * it, is as recovery has found it.
 */
static const char *
empty_key(Image *im, uint64_t r)
{
	const Model *m = &crash.model;
	uint64_t	hash = crash.focus;
	uint64_t	value[FEW_VALUES];
	size_t		n;
	const char *bad = NULL;

	if ((r & 1) != 0 && m->n > 0)
		hash = m->entry[m->n - 1 - (r >> 1) % (m->n < 24 ? m->n : 24)].pair.hash;
	if (pmh_lookup(im->table, hash, &found[im->level]) != PMH_OK)
		return say("pmh_lookup: %s", pmh_error(im->table)->detail);
	n = found[im->level].n;
	if (n > FEW_VALUES)
		return NULL;
	memcpy(value, found[im->level].value, n * sizeof(uint64_t));
	for (size_t i = 0; i < n && bad == NULL; i++)
	{
		uint32_t	entry = model_find(m, hash, value[i]);

		if (entry == NO_ENTRY)
			bad = say_entry(&(PmhEntry) {hash, value[i]}, "is found by a look-up, and foreign");
		else
			bad = delete_known(im, entry);
	}
	return bad;
}

/* Another key of the same buckets (and of the same segment, as a rule). */
static uint64_t
neighbour(uint64_t hash, uint64_t n)
{
	return hash ^ (n * 0x51 & 0xff) ^ (n & 0xff) << 50;
}

/*
 * Go on: other values of the key in question, other keys of its buckets, a key
 * of another bucket; take some away, also old ones.
 */
static const char *
fresh_operations(Image *im)
{
	uint64_t	r = crash_random();
	uint32_t	more = r % ADD_MANY == 0 ? 40 : 0;
	const char *bad = NULL;

	if ((r >> 40) % EMPTY_A_KEY == 0)
		bad = empty_key(im, r >> 48);
	if (bad == NULL)
		bad = insert_fresh(im, crash.focus);
	if (bad == NULL)
		bad = insert_fresh(im, neighbour(crash.focus, 1 + (r >> 8) % 255));
	if (bad == NULL)
		bad = insert_fresh(im, crash_mix(crash.focus + r % 16));
	if (bad == NULL && (r >> 16 & 1) != 0)
		bad = delete_fresh(im, 0);
	if (bad == NULL && (r >> 17 & 1) != 0)
		bad = delete_fresh(im, 1);
	if (bad == NULL && crash.model.n > 0)
		bad = delete_known(im, crash.model.n - 1);
	if (bad == NULL && crash.model.n > 1 && (r >> 18 & 1) != 0)
		bad = delete_known(im, (uint32_t) ((r >> 20) % (crash.model.n - 1)));
	for (uint32_t i = 0; i < more && bad == NULL; i++)
		bad = insert_fresh(im, (r >> 19 & 1) != 0 ? crash.focus :
						   neighbour(crash.focus, 1 + (r + i) % 255));
	crash.figures->fresh_operations += im->nfresh + 2;
	return bad;
}

/* ---- putting it together ---- */

PmhEnv
crash_env(unsigned level)
{
	PmhEnv		env = {.locks = crash.locks[level], .instance = crash.instance, .force_pmem = true};

	return env;
}

/* Recover; im->table stays NULL if there rightly is no table. */
static const char *
recover(Image *im)
{
	PmhEnv		env;
	PmhError	error;
	PmhResult	result;

	crash.instance++;
	env = crash_env(im->level);
	if (crash.before_open != NULL)
	{
		const char *bad = crash.before_open(im->level);

		if (bad != NULL)
			return bad;
	}
	result = pmh_open(TABLE_NAME, &env, &im->table, &error);
	if (result == PMH_ERR_FORMAT && crash.creating)
		return NULL;
	if (result != PMH_OK)
		return say("pmh_open: %s", error.detail);
	return NULL;
}

static const char *
check_recovered(Image *im)
{
	bool		known = pmh_value_space_is_known(im->table);
	const char *bad = NULL;

	/* After a sweep the check says more, and nothing less. */
	if (known || im->number % CHECK_TWICE == 0)
		bad = check_structure(im);
	if (bad == NULL)
		bad = walk_all(im, false);
	if (bad == NULL && !pmh_value_space_is_known(im->table))
		bad = say("the sweep has not found out what is free");
	if (bad == NULL && !known)
		bad = check_structure(im);
	if (bad == NULL)
		bad = look_up_some(im);
	if (bad == NULL)
		bad = fresh_operations(im);
	if (bad == NULL)
		bad = walk_all(im, true);
	if (bad == NULL)
		bad = check_structure(im);
	return bad;
}

/* Check and use a recovered image, unless one that is equal was right. */
static const char *
check_unless_known(Image *im)
{
	uint64_t	hash = crash_mix(image_hash(im->level) + crash.replay_end);
	uint64_t   *known = &known_right[hash % KNOWN_ROOM];
	const char *bad;

	if (*known == hash && crash_random() % USE_AGAIN != 0)
	{
		crash.figures->known++;
		return NULL;
	}
	bad = check_recovered(im);
	if (bad == NULL)
		*known = hash;
	return bad;
}

const char *
image_check(unsigned level)
{
	unsigned	caller_level = recorder_level;
	bool		crash_it;
	Image		im;
	const char *bad;

	im.level = level;
	im.table = NULL;
	im.ngone = im.nfresh = 0;
	im.number = (uint32_t) ++crash.image;
	recorder_level = level;
	memory_take_holes(level);
	scramble(level);
	crash_it = level == 1 && recorder_persist && im.number % crash.crash_recovery == 0;
	if (crash_it)
		recorder_start_level1();
	bad = recover(&im);
	if (crash_it)
	{
		if (bad == NULL && im.table != NULL)
			enumerate(1, NULL);
		recorder_stop_level1();
	}
	if (im.table != NULL)
	{
		if (bad == NULL)
			bad = check_holes(&im);
		if (bad == NULL)
			bad = check_unless_known(&im);
		if (bad == NULL && memory_hole_used(level))
			bad = say("something is stored to a block without space");
		pmh_close(im.table);
	}
	recorder_level = caller_level;
	return bad;
}
