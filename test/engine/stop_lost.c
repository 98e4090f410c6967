/*-------------------------------------------------------------------------
 *
 * stop_lost.c
 *	  Pages that cannot be read or written (SIGBUS), under every operation and in the
 *	  middle of it, also while it holds locks: what it has read once is zeroes when it
 *	  reads it again.  It ends, with no lock held, every handle on the file fails
 *	  from then on, and other files do not care.
 *
 * A file cut off under its mapping is one way; the other puts a mapping of an
 * empty file in place of a page, which hits one handle only: so that the other
 * one would go on, with what the first has left half done.  The file is cut off at
 * every stop point that an operation comes by.  Then, as the engine is compiled
 * so that each load is a stop point, the file is cut off before any load, or a
 * page replaced, which more often than not is the page that is about to be read.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "content.h"
#include "sweeps.h"

#define KEYS		3000
#define LONG_KEY	UINT64_C(7)		/* has a list of several buffers */
#define LONG_VALUES	UINT64_C(9000)
#define PAGE		((uint64_t) 4096)
#define CUTS		3			/* of each operation at each stop point */
#define ALWAYS_USED	8			/* pages in front that every walk comes by */
#define TRIALS		80			/* of each operation at loads; or: stop_lost TRIALS SEED */
#define POINTS		512
#define LOOSE_KEY	UINT64_C(11)	/* its list is to be rewritten */
#define LOOSE_VALUES	UINT64_C(30000)

static const char *path;
static const char *bystander_path;
static const char *hole_path;		/* for a moment: an empty file */
static PmhValues values;

/* ---- a file ---- */

/* Put that there; the file has the same id as before: it is not lost any more. */
static void
write_image(const void *image, size_t size)
{
	write_bytes(path, image, size);
	pmh_locks_init(fixture_locks(), FIXTURE_STRIPES);
}

/* A file with KEYS keys, one of them with a long list, and short lists. */
static PmhTable *
make_table(const char *name)
{
	PmhTable   *t = fixture_create(name);

	for (uint64_t k = 0; k < KEYS; k++)
	{
		REQUIRE(pmh_insert(t, fixture_hash(k), k, false) == PMH_OK);
		for (uint64_t v = 1; k % 40 == 0 && v < 20; v++)
			REQUIRE(pmh_insert(t, fixture_hash(k), v << 20 | k, false) == PMH_OK);
	}
	for (uint64_t v = 0; v < LONG_VALUES; v++)
		REQUIRE(pmh_insert(t, fixture_hash(LONG_KEY), v << 20 | LONG_KEY, false) == PMH_OK);
	return t;
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
		if (pair->hash == fixture_hash(LOOSE_KEY) && fixture_random(&seed) % 20 != 0)
			sweeper_take_out(&s);
	}
	REQUIRE(sweeper_end(&s) == PMH_OK);
}

/* ---- operations: PMH_OK means that the answer was right ---- */

/* Plain keys that no operation here changes. */
static uint64_t
some_key(uint64_t *seed)
{
	return 1 + 40 * (fixture_random(seed) % (KEYS / 40));
}

static PmhResult
do_lookup(PmhTable *t, uint64_t *seed)
{
	for (int i = 0; i < 100; i++)
	{
		uint64_t	k = some_key(seed);
		PmhResult	result = pmh_lookup(t, fixture_hash(k), &values);

		if (result != PMH_OK)
			return result;
		CHECK(values.n == 1 && values.value[0] == k);
	}
	return PMH_OK;
}

static PmhResult
do_lookup_group(PmhTable *t, uint64_t *seed)
{
	uint64_t	hashes[200];
	uint64_t	found = 0;
	PmhResult	result;

	for (int i = 0; i < 200; i++)
		hashes[i] = fixture_hash(some_key(seed));
	result = pmh_lookup_group(t, hashes, 200, count_found, &found);
	CHECK(result != PMH_OK || found == 200);
	return result;
}

static PmhResult
do_repeats(PmhTable *t, uint64_t *seed)
{
	PmhResult	result = fixture_lookup_repeats(t, fixture_hash(some_key(seed)), &values);

	CHECK(result != PMH_OK || values.n == 1);
	return result;
}

static PmhResult
do_cursor(PmhTable *t, uint64_t *seed)
{
	uint64_t	n;
	PmhResult	result = fixture_count_by_cursor(t, fixture_hash(LONG_KEY), 500, &n);

	CHECK(result != PMH_OK || n == LONG_VALUES);
	return result;
}

static PmhResult
do_whole_key(PmhTable *t, uint64_t *seed)
{
	PmhCursor	cursor = {0};
	PmhResult	result;

	pmh_cursor_open(t, &cursor, fixture_hash(LONG_KEY));
	result = pmh_cursor_next(t, &cursor, SIZE_MAX);
	CHECK(result != PMH_OK || cursor.batch.n == LONG_VALUES);
	pmh_cursor_free(&cursor);
	return result;
}

/* Enough for growth of segments, splits, a doubling, growth of the file. */
static PmhResult
do_insert(PmhTable *t, uint64_t *seed)
{
	for (uint64_t i = 0; i < 2 * KEYS; i++)
	{
		PmhResult	result = pmh_insert(t, fixture_random(seed), i, i % 2 == 0);

		if (result != PMH_OK)
			return result;
	}
	return PMH_OK;
}

static PmhResult
do_insert_group(PmhTable *t, uint64_t *seed)
{
	PmhEntry	entry[500];
	size_t		done;

	for (uint64_t i = 0; i < 500; i++)
		entry[i] = (PmhEntry) {fixture_random(seed), i};
	return pmh_insert_group(t, entry, 500, true, &done);
}

/* Lists that begin, grow by copy and by chaining. */
static PmhResult
do_append(PmhTable *t, uint64_t *seed)
{
	uint64_t	hash = fixture_hash(some_key(seed) - 1);

	for (uint64_t v = 0; v < 2000; v++)
	{
		PmhResult	result = pmh_insert(t, v % 2 == 0 ? hash : 42, v << 30 | v, false);

		if (result != PMH_OK)
			return result;
	}
	return PMH_OK;
}

static PmhResult
do_delete(PmhTable *t, uint64_t *seed)
{
	PmhEntry	entry[200];
	size_t		removed;

	for (int i = 0; i < 200; i++)
	{
		uint64_t	k = some_key(seed) + 1;

		entry[i] = (PmhEntry) {fixture_hash(k), k};
	}
	return pmh_delete_group(t, entry, 200, &removed);
}

/* Short lists, value by value until nothing is left of them. */
static PmhResult
do_delete_list(PmhTable *t, uint64_t *seed)
{
	uint64_t	k = some_key(seed) - 1;
	PmhResult	result = PMH_OK;

	for (uint64_t v = 0; v < 20; v++)
	{
		result = pmh_delete(t, fixture_hash(k), v << 20 | k);
		if (result != PMH_OK && result != PMH_NOT_FOUND)
			return result;
	}
	return PMH_OK;
}

/* Takes a share of what the others do not look for out. */
static PmhResult
do_sweep(PmhTable *t, uint64_t *seed)
{
	Sweeper		s;
	const PmhEntry *pair;

	sweeper_begin(&s, t);
	while ((pair = sweeper_next(&s)) != NULL)
	{
		if (pair->value % 40 > 1 && pair->hash != fixture_hash(LONG_KEY) &&
			fixture_random(seed) % 20 == 0)
			sweeper_take_out(&s);
	}
	return sweeper_end(&s);
}

static PmhResult
do_stats(PmhTable *t, uint64_t *seed)
{
	PmhStats	stats;

	return pmh_stats(t, &stats);
}

static PmhResult
do_estimate(PmhTable *t, uint64_t *seed)
{
	uint64_t	entries;

	return pmh_estimate(t, &entries);
}

static void
ignore(void *arg, uint64_t offset, const char *finding)
{
}

static PmhResult
do_check(PmhTable *t, uint64_t *seed)
{
	return pmh_check(t, ignore, NULL);
}

/* Fills the table that is there: allowed as long as no process looks at it. */
static PmhResult
do_bulk(PmhTable *t, uint64_t *seed)
{
	PmhEntry	entry[2000];
	PmhBulk    *bulk;
	uint32_t	depth;
	PmhResult	result = pmh_bulk_begin(t, 2000, 90, &depth, &bulk);

	if (result != PMH_OK)
		return result;
	for (uint64_t i = 0; i < 2000; i++)
		entry[i] = (PmhEntry) {i % 10 == 0 ? 99 : fixture_random(seed), i};
	result = pmh_bulk_partition(bulk, 0, entry, 2000);
	if (result == PMH_OK)
		return pmh_bulk_finish(bulk);
	pmh_bulk_abandon(bulk);
	return result;
}

/* All steps of shrinking. */
static PmhResult
do_shrink(PmhTable *t, uint64_t *seed)
{
	return fixture_shrink(t, 90);
}

/* Buckets that are full of groups of three: the largest becomes a list. */
static PmhResult
do_compact(PmhTable *t, uint64_t *seed)
{
	PmhResult	result = PMH_OK;

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

	for (uint64_t v = 0; v < LONG_VALUES; v++)
		entry[v] = (PmhEntry) {fixture_hash(LONG_KEY), v << 20 | LONG_KEY};
	return pmh_delete_group(t, entry, LONG_VALUES - 5, &removed);
}

typedef PmhResult (*Operation) (PmhTable *t, uint64_t *seed);

static const Operation operation[] = {
	do_lookup, do_lookup_group, do_repeats, do_cursor, do_whole_key,
	do_insert, do_insert_group, do_append, do_delete, do_delete_list, do_sweep,
	do_stats, do_estimate, do_check, do_shrink, do_drain, do_compact, do_bulk
};

#define OPERATIONS	(sizeof(operation) / sizeof(operation[0]))
#define FIRST_WRITE	5				/* the others give right answers as well */

/* ---- where an operation comes by ---- */

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

/* Put a mapping that cannot be read in place of a page. */
static void
break_page(PmhTable *t, uint64_t page)
{
	FILE	   *hole = fopen(hole_path, "w+");

	REQUIRE(hole != NULL);
	REQUIRE(mmap(t->file.base + page * PAGE, PAGE, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_FIXED, fileno(hole), 0) != MAP_FAILED);
	fclose(hole);
	unlink(hole_path);
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
		fixture_count_buffers_up();
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

/* ---- losses ---- */

/* All operations give PMH_ERR_LOST, on every handle, old or new. */
static void
everybody_knows(PmhTable *t, PmhTable *other)
{
	PmhEnv		env = fixture_env(1);
	PmhTable   *late;
	PmhError	error;
	uint64_t	seed = 1;

	for (size_t i = 0; i < OPERATIONS; i++)
	{
		if (operation[i] == do_bulk)
			continue;
		CHECK(operation[i] (t, &seed) == PMH_ERR_LOST);
		CHECK(operation[i] (other, &seed) == PMH_ERR_LOST);
	}
	CHECK(pmh_error(other)->code == PMH_ERR_LOST);
	CHECK(strstr(pmh_error(other)->detail, "bus error") != NULL);
	CHECK(pmh_open(path, &env, &late, &error) != PMH_OK);
	CHECK(fixture_no_lock_held());
}

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
	PmhTable   *other;
	PmhResult	result;

	write_image(image, size);
	lose_from = t = fixture_open(path, 1);
	other = fixture_open(path, 1);
	loss = what;
	(void) alarm(20);
	result = op(t, &seed);
	(void) alarm(0);
	REQUIRE(loss.at == NULL);

	/*
	 * A file that is too short is noticed without a fault when more of it is to
	 * be mapped; a mapping with a foreign piece in it cannot be made longer.
	 */
	if (!CHECK(result == PMH_OK || result == PMH_ERR_LOST ||
			   (what.rest && result == PMH_ERR_CORRUPT) ||
			   (!what.rest && result == PMH_ERR_IO && pmh_error(t)->sys_errno == EFAULT)))
		fprintf(stderr, "result %d at %s\n", (int) result, what.at);
	if (!CHECK(fixture_no_lock_held()))
		fprintf(stderr, "a lock is held, after %s\n", what.at);
	if (loss.rest && loss.page < ALWAYS_USED)
		CHECK(do_check(t, &seed) == PMH_ERR_LOST);
	if (result == PMH_ERR_LOST)
	{
		CHECK(pmh_error(t)->offset < t->file.bound);
		everybody_knows(t, other);
	}
	else if (!what.rest && op != do_bulk)
		CHECK(do_lookup(other, &seed) == PMH_OK);
	pmh_close(t);
	pmh_close(other);
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
		/* The first page has the header: with it goes all that is looked for again. */
		cut.page = i % CUTS == 2 ? 0 : fixture_random(random) % (i % CUTS == 0 ? size / PAGE : ALWAYS_USED);
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

/* Every operation. */
static void
test_losses(unsigned trials, uint64_t random)
{
	PmhTable   *t = make_table(path);
	PmhTable   *bystander;
	char	   *image;
	size_t		size;
	uint64_t	seed = 5;
	unsigned	cuts = 0;
	unsigned	noticed = 0;

	for (uint64_t v = 0; v < LOOSE_VALUES; v++)
		REQUIRE(pmh_insert(t, fixture_hash(LOOSE_KEY), v << 20 | LOOSE_KEY, false) == PMH_OK);
	loosen(t);
	pmh_close(t);
	image = read_bytes(path, &size);
	bystander = make_table(bystander_path);
	for (size_t i = 0; i < OPERATIONS; i++)
	{
		count_points(image, size, operation[i]);
		cut_at_points(image, size, operation[i], &random, &cuts, &noticed);
		lose_anywhere(image, size, operation[i], &random, trials);
		for (size_t j = 0; j < FIRST_WRITE; j++)
			CHECK(operation[j] (bystander, &seed) == PMH_OK);
	}
	CHECK(noticed > cuts / 2);
	CHECK(do_check(bystander, &seed) == PMH_OK);
	pmh_close(bystander);
	unlink(bystander_path);
	free(image);
}

/* A file that was cut off does not grow again, with zeroes where data was. */
static void
test_no_growth(void)
{
	PmhTable   *t = make_table(path);
	uint64_t	size = fixture_file_size(path);
	PmhResult	result = PMH_OK;

	REQUIRE(truncate(path, (off_t) (size - pmh_whole_pages(1))) == 0);
	for (uint64_t k = 0; k < 1000000 && result == PMH_OK; k++)
		result = pmh_insert(t, fixture_hash(KEYS + k), k, false);
	CHECK(result == PMH_ERR_LOST || result == PMH_ERR_CORRUPT);
	CHECK(fixture_file_size(path) == size - pmh_whole_pages(1));
	CHECK(fixture_no_lock_held());
	pmh_close(t);
}

/* ---- faults that are not ours ---- */

static sigjmp_buf foreign;

static void
on_foreign_fault(int number, siginfo_t *info, void *context)
{
	siglongjmp(foreign, 1);
}

/* A page that is none of the engine's and cannot be read. */
static volatile char *
foreign_page(void)
{
	FILE	   *file = fopen(hole_path, "w+");
	void	   *page;

	REQUIRE(file != NULL);
	page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fileno(file), 0);
	REQUIRE(page != MAP_FAILED);
	fclose(file);
	unlink(hole_path);
	return page;
}

typedef struct Foreign
{
	struct sigaction action;
	bool		sent;			/* by raise */
} Foreign;

static void
fault_elsewhere(const void *arg)
{
	const Foreign *foreign_case = arg;
	volatile char *page = foreign_page();

	(void) sigaction(SIGBUS, &foreign_case->action, NULL);
	(void) fixture_open(path, 1);
	if (sigsetjmp(foreign, 1) != 0)
		_exit(42);
	if (foreign_case->sent)
		(void) raise(SIGBUS);
	else
		(void) *page;
	_exit(1);
}

/* A child opens a table under this SIGBUS action, then faults elsewhere. */
static int
foreign_fault(const struct sigaction *action, bool sent)
{
	Foreign		foreign_case = {*action, sent};

	return in_child(fault_elsewhere, &foreign_case);
}

/*
 * A child has a table open and meets SIGBUS with this code at one of its pages, as
 * often as an instruction that is repeated does.
 */
static void
fault_of_kind(const void *code)
{
	PmhTable   *t = fixture_open(path, 1);
	siginfo_t	info = {.si_signo = SIGBUS, .si_code = *(const int *) code,
						.si_addr = t->file.base + PAGE};

	for (int i = 0; i < 3; i++)
		REQUIRE(syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGBUS, &info) == 0);
}

/*
 * What the processor refuses for another reason than that the page cannot be had is no
 * loss: the process ends, the file goes on.
 */
static void
test_other_kinds(void)
{
	static const int lost[] = {BUS_ADRERR, BUS_OBJERR, BUS_MCEERR_AR, BUS_MCEERR_AO};
	uint64_t	seed = 1;
	PmhTable   *t;

	pmh_close(make_table(path));
	for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++)
	{
		pmh_locks_init(fixture_locks(), FIXTURE_STRIPES);
		t = fixture_open(path, 1);
		CHECK(in_child(fault_of_kind, &lost[i]) == 0);
		CHECK(do_lookup(t, &seed) == PMH_ERR_LOST);
		pmh_close(t);
	}
	for (int code = BUS_ADRALN; code <= SI_KERNEL; code += SI_KERNEL - BUS_ADRALN)
	{
		int			status;

		pmh_locks_init(fixture_locks(), FIXTURE_STRIPES);
		t = fixture_open(path, 1);
		status = in_child(fault_of_kind, &code);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
		CHECK(do_lookup(t, &seed) == PMH_OK);
		pmh_close(t);
	}
}

static void
make_file(const void *arg)
{
	pmh_close(make_table(path));
}

/* Runs first: the handler must not be installed yet. */
static void
test_foreign_faults(void)
{
	struct sigaction action;
	int			status;

	/* Made in a child, lest this process has mapped a file already. */
	REQUIRE(in_child(make_file, NULL) == 0);

	memset(&action, 0, sizeof(action));
	action.sa_handler = SIG_DFL;
	for (int sent = 0; sent < 2; sent++)
	{
		status = foreign_fault(&action, sent);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	}
	action.sa_handler = SIG_IGN;
	status = foreign_fault(&action, false);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	status = foreign_fault(&action, true);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	action.sa_sigaction = on_foreign_fault;
	action.sa_flags = SA_SIGINFO;
	for (int sent = 0; sent < 2; sent++)
	{
		status = foreign_fault(&action, sent);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	}
}

static void
no_end(int signal_number)
{
	static const char text[] = "stop_lost: an operation does not end\n";

	(void) !write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(1);
}

int
main(int argc, char **argv)
{
	unsigned	trials = argc > 1 ? (unsigned) atoi(argv[1]) : TRIALS;

	signal(SIGALRM, no_end);
	path = strdup(fixture_path("stop_lost"));
	bystander_path = strdup(fixture_path("stop_lost_bystander"));
	hole_path = strdup(fixture_path("stop_lost_hole"));
	REQUIRE(path != NULL && bystander_path != NULL && hole_path != NULL);
	TEST(test_foreign_faults());
	TEST(test_other_kinds());
	TEST(test_losses(trials, argc > 2 ? strtoull(argv[2], NULL, 10) : 11));
	TEST(test_no_growth());
	unlink(path);
	pmh_values_free(&values);
	return unit_done("stop_lost");
}
