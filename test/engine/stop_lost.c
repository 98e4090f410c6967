/*-------------------------------------------------------------------------
 *
 * stop_lost.c
 *	  Pages are lost in the middle of an operation, also while it holds locks:
 *	  what it has read once is zeroes when it reads it again.  It ends, with no
 *	  lock held.
 *
 * faults.c loses pages before an operation begins.  Here the file is cut off at
 * every stop point that an operation comes by.  Then, as the engine is compiled
 * so that each load is a stop point, the file is cut off before any load, or a
 * page of the mapping replaced by one that cannot be read, which more often than
 * not is the page that is about to be read.
 *
 *-------------------------------------------------------------------------
 */
#define main faults_main
#include "error.h"
#include "faults.c"
#include "stop_point.h"
#include "sweeps.h"
#include "table.h"
#undef main

#define CUTS			3		/* of each operation at each stop point */
#define ALWAYS_USED		8		/* pages in front that every walk comes by */
#define TRIALS			200		/* of each operation at loads; or: stop_lost TRIALS SEED */
#define POINTS			512
#define LOOSE_KEY		UINT64_C(11)	/* its list is to be rewritten */
#define LOOSE_VALUES	UINT64_C(30000)

/* How often an operation comes by a stop point, or by loads of a function. */
typedef struct Reached
{
	const char *name;
	uint64_t	times;
	bool		is_load;
} Reached;

static Reached reached[POINTS];
static unsigned nreached;
static bool counting;

/* Where to lose what. */
typedef struct Loss
{
	const char *at;				/* NULL: nowhere */
	uint64_t	time;			/* the how many-th time */
	uint64_t	page;
	bool		this;			/* rather the page that is about to be read */
	bool		rest;			/* all from that page on */
	bool		changed;		/* a walk along a list has to look for its
								 * place again */
} Loss;

static Loss loss;
static PmhTable *lose_from;

/*
 * Let all buffers look as if they had changed: at worst a reader reads once more,
 * since buffers share versions.
 */
static void
change_versions(void)
{
	PmhLocks   *locks = fixture_locks();
	uint64_t   *version = (uint64_t *) (void *) &locks->stripe[locks->nstripes];

	for (uint64_t i = 0; i < locks->nstripes; i++)
		pmh_version_bump_shared(&version[i]);
}

static void
count_point(const char *name, bool is_load)
{
	unsigned	i = 0;

	while (i < nreached && reached[i].name != name)
		i++;
	REQUIRE(i < POINTS);
	if (i == nreached)
		reached[nreached++] = (Reached) {name, 0, is_load};
	reached[i].times++;
}

/* At a stop point or before a load of 'addr'. */
static void
come_by(const char *name, const void *addr)
{
	uint64_t	offset = (uint64_t) ((const char *) addr - lose_from->file.base);

	if (counting)
		count_point(name, addr != NULL);
	if (loss.at != name || --loss.time > 0)
		return;
	loss.at = NULL;
	if (loss.this && addr != NULL && offset < lose_from->file.bound)
		loss.page = offset / PAGE;
	if (loss.rest)
		REQUIRE(truncate(path, (off_t) (loss.page * PAGE)) == 0);
	else
		break_page(lose_from, loss.page);
	if (loss.changed)
		change_versions();
}

void
pmh_stop_load(const char *function, const void *addr)
{
	if (counting || loss.at != NULL)
		come_by(function, addr);
}

void
pmh_stop_point(const char *name)
{
	if (counting || loss.at != NULL)
		come_by(name, NULL);
}

/* All steps of shrinking. */
static PmhResult
do_shrink(PmhTable *t, uint64_t *seed)
{
	(void) seed;
	return fixture_shrink(t, 90);
}

/* Buckets that are full of groups of three: the largest becomes a list. */
static PmhResult
do_compact(PmhTable *t, uint64_t *seed)
{
	PmhResult	result = PMH_OK;

	(void) seed;
	for (uint64_t i = 0; i < 6 * 40 && result == PMH_OK; i++)
	{
		uint64_t	home = i / 40;
		uint64_t	hash = UINT64_C(0xabcd) << 48 | home << 20 | i % 40 / 3;

		result = pmh_insert(t, hash, i, false);
	}
	return result;
}

/* Many values of one key at once, and all buffers of its list but the last. */
static PmhResult
do_drain(PmhTable *t, uint64_t *seed)
{
	static PmhEntry entry[LONG_VALUES];
	size_t		removed;

	(void) seed;
	for (uint64_t v = 0; v < LONG_VALUES; v++)
		entry[v] = (PmhEntry) {fixture_hash(LONG_KEY), v << 20 | LONG_KEY};
	return pmh_delete_group(t, entry, LONG_VALUES - 5, &removed);
}

static bool
is_loose(const PmhEntry *entry, uint64_t *seed)
{
	return entry->hash == fixture_hash(LOOSE_KEY) && fixture_random(seed) % 20 != 0;
}

/* Leave few values in the list of LOOSE_KEY. */
static void
loosen(PmhTable *t)
{
	Sweeper		s;
	const PmhEntry *pair;
	uint64_t	seed = 3;

	sweeper_begin(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		if (is_loose(pair, &seed))
			sweeper_take_out(&s);
	}
	REQUIRE(sweeper_end(&s) == PMH_OK);
}

/* ---- losses ---- */

/* Where an operation comes by, when nothing is lost. */
static void
count_points(const void *image, size_t size, Operation op)
{
	uint64_t	seed = 1;
	PmhTable   *t;

	write_image(image, size);
	lose_from = t = fixture_open(path, 1);
	nreached = 0;
	counting = true;
	CHECK(op(t, &seed) == PMH_OK);
	counting = false;
	CHECK(fixture_no_lock_held());
	pmh_close(t);
}

/* An operation that loses something ends as it should; was it noticed? */
static bool
lose_and_see(const void *image, size_t size, Operation op, Loss what)
{
	uint64_t	seed = 1;
	PmhTable   *t;
	PmhResult	result;

	write_image(image, size);
	lose_from = t = fixture_open(path, 1);
	loss = what;
	(void) alarm(20);
	result = op(t, &seed);
	(void) alarm(0);
	REQUIRE(loss.at == NULL);
	if (!CHECK(result == PMH_OK || result == PMH_ERR_LOST ||
			   (what.rest && result == PMH_ERR_CORRUPT) ||
			   (!what.rest && result == PMH_ERR_IO && pmh_error(t)->sys_errno == EFAULT)))
		fprintf(stderr, "result %d at %s\n", (int) result, what.at);
	if (!CHECK(fixture_no_lock_held()))
		fprintf(stderr, "a lock is held, after %s\n", what.at);
	if (loss.rest && loss.page < ALWAYS_USED)
		CHECK(do_check(t, &seed) == PMH_ERR_LOST);
	pmh_close(t);
	return result == PMH_ERR_LOST;
}

/* Cut the file off at each stop point. */
static void
cut_at_points(const void *image, size_t size, Operation op, uint64_t *random,
			  unsigned *cuts, unsigned *noticed)
{
	for (unsigned i = 0; i < nreached * CUTS; i++)
	{
		const Reached *point = &reached[i / CUTS];
		Loss		cut = {.at = point->name, .rest = true};

		if (point->is_load)
			continue;
		cut.time = 1 + fixture_random(random) % point->times;
		cut.page = fixture_random(random) % (i % CUTS == 0 ? size / PAGE : ALWAYS_USED);
		cut.changed = i % CUTS == 1;
		*noticed += lose_and_see(image, size, op, cut);
		(*cuts)++;
	}
}

/* Lose a page, or all from one on, at random moments. */
static void
lose_anywhere(const void *image, size_t size, Operation op, uint64_t *random,
			  unsigned trials)
{
	unsigned	noticed = 0;

	for (unsigned trial = 0; nreached > 0 && trial < trials; trial++)
	{
		const Reached *point = &reached[fixture_random(random) % nreached];
		Loss		some = {.at = point->name};

		some.time = 1 + fixture_random(random) % point->times;
		some.page = fixture_random(random) % (size / PAGE);
		some.this = fixture_random(random) % 4 != 0;
		some.rest = fixture_random(random) % 2 == 0;
		some.changed = fixture_random(random) % 2 == 0;
		noticed += lose_and_see(image, size, op, some);
	}
	CHECK(nreached == 0 || noticed > 0);
}

static void
no_end(int signal_number)
{
	static const char text[] = "stop_lost: an operation does not end\n";

	(void) signal_number;
	(void) !write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(1);
}

int
main(int argc, char **argv)
{
	static const Operation more[] = {do_shrink, do_drain, do_compact};
	unsigned	trials = argc > 1 ? (unsigned) atoi(argv[1]) : TRIALS;
	PmhTable   *t;
	char	   *image;
	size_t		size;
	uint64_t	random = argc > 2 ? strtoull(argv[2], NULL, 10) : 11;
	unsigned	cuts = 0;
	unsigned	noticed = 0;

	signal(SIGALRM, no_end);
	path = strdup(fixture_path("stop_lost"));
	hole_path = strdup(fixture_path("stop_lost_hole"));
	REQUIRE(path != NULL && hole_path != NULL);
	t = make_table(path);
	for (uint64_t v = 0; v < LOOSE_VALUES; v++)
		REQUIRE(pmh_insert(t, fixture_hash(LOOSE_KEY), v << 20 | LOOSE_KEY, false) == PMH_OK);
	loosen(t);
	pmh_close(t);
	image = read_image(&size);
	for (size_t i = 0; i < OPERATIONS + sizeof(more) / sizeof(more[0]); i++)
	{
		Operation	op = i < OPERATIONS ? operation[i] : more[i - OPERATIONS];

		count_points(image, size, op);
		cut_at_points(image, size, op, &random, &cuts, &noticed);
		lose_anywhere(image, size, op, &random, trials);
	}
	CHECK(noticed > cuts / 2);
	free(image);
	unlink(path);
	pmh_values_free(&values);
	return unit_done("stop_lost");
}
