/*-------------------------------------------------------------------------
 *
 * fuzz.c
 *	  Damaged files: no crash, no hang, no access out of bounds, and no wrong
 *	  answer that the check could have found.
 *
 *	fuzz [CASES [FIRST-SEED]]	so many cases, from that seed on
 *	fuzz -1 SEED				one case in this process, with all it does
 *
 * A case is its seed: which file, which damage, under which instance.  Children
 * run them one after the other; when one dies, the parent tells in which case
 * and at which step, and the next child goes on after it.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "fuzz.h"

#define DEFAULT_CASES		10000
#define CASES_PER_CHILD		400
#define CPU_SECONDS			10	/* of one case: more is a hang */
#define REAL_SECONDS		120
#define LONGEST_FILE		((rlim_t) 64 * 1024 * 1024)

typedef enum Outcome
{
	REFUSED,
	FOREIGN,
	NOTICED,
	HARMLESS,
	OTHER_ENTRIES,
	OTHER_DIRECTORY,
	FAILED,
	OUTCOMES
} Outcome;

static const char *const outcome_name[OUTCOMES] = {
	"refused when opened",
	"another file, by its identity",
	"noticed: errors, or findings of the check",
	"harmless: every answer right, then and after changes",
	"now a valid table with other entries (no checksum covers them)",
	"now a valid table with other segments (a parity covers the directory)",
	"failed"
};

/* Shared with the children. */
typedef struct Progress
{
	uint64_t	seed;			/* of the case at work */
	const char *volatile step;
	char		what[640];		/* about the case */
	uint64_t	count[OUTCOMES];
} Progress;

typedef struct Case
{
	const Image *image;
	Damage		damage;
	bool		new_instance;
	bool		force_pmem;
	bool		later;			/* damage comes while the file is open */
	bool		short_too;		/* a second handle, from before the changes, reads after them */
	uint64_t	seed;
} Case;

static Progress *progress;
static const char *path;
static bool verbose;

/* ---- one case ---- */

static uint64_t
below(uint64_t *seed, uint64_t n)
{
	return fixture_random(seed) % n;
}

static void
make_case(uint64_t number, const Image *images, size_t nimages, char *bytes, Case *c)
{
	uint64_t	seed = fixture_hash(number);
	uint64_t	times;

	memset(c, 0, sizeof(*c));
	c->seed = number;
	c->image = &images[below(&seed, nimages)];
	c->force_pmem = below(&seed, 4) == 0;
	c->new_instance = c->image->needs_recovery || below(&seed, 2) == 0;
	c->later = !c->new_instance && below(&seed, 3) == 0;
	c->damage.image = c->image;
	do
		c->damage.other = &images[below(&seed, nimages)];
	while (c->damage.other == c->image);
	c->damage.bytes = bytes;
	c->damage.size = c->image->size;
	memcpy(bytes, c->image->bytes, c->image->size);
	times = 1 + (below(&seed, 4) == 0) + (below(&seed, 8) == 0);
	while (times-- > 0)
		damage_once(&c->damage, &seed, !c->later);
	c->short_too = below(&seed, 2) == 0;
	snprintf(progress->what, sizeof(progress->what), "\"%s\", %s%s%s%s:%s", c->image->name,
			 c->new_instance ? "new instance" : "same instance",
			 c->force_pmem ? ", flushed" : "", c->later ? ", while open" : "",
			 c->short_too ? ", two handles" : "", c->damage.what);
	if (verbose)
		printf("%s\n", progress->what);
}

static void
write_file(const char *bytes, size_t size)
{
	int			fd = open(path, O_RDWR | O_CREAT, 0600);

	if (fd < 0 || pwrite(fd, bytes, size, 0) != (ssize_t) size ||
		ftruncate(fd, (off_t) size) != 0)
	{
		perror(path);
		abort();
	}
	(void) close(fd);
}

static PmhResult
open_file(const Case *c, uint64_t instance, PmhTable **t, Seen *seen)
{
	PmhEnv		env = fixture_env_on(c->force_pmem, instance);
	PmhError	error;
	PmhResult	result;

	*exercise_step = "open";
	result = pmh_open(path, &env, t, &error);
	if (result != PMH_OK)
	{
		seen->errors++;
		seen->strange += result != PMH_ERR_FORMAT && result != PMH_ERR_VERSION &&
			result != PMH_ERR_CORRUPT && result != PMH_ERR_LOST;
		seen_note(seen, "open: result %d: %s", (int) result, error.detail);
	}
	return result;
}

/* Has the damage changed the identity that a caller compares? */
static bool
is_foreign(const Case *c)
{
	PmhHead		head;
	PmhError	error;

	*exercise_step = "identity";
	return pmh_examine(path, &head, &error) == PMH_OK &&
		memcmp(head.identity, c->image->identity, sizeof(head.identity)) != 0;
}

static void
tell(const char *phase, const Seen *seen)
{
	if (verbose)
		printf("%s: %llu errors (%llu strange), %llu findings, %llu wrong, %llu disagree; %s\n",
			   phase, (unsigned long long) seen->errors, (unsigned long long) seen->strange,
			   (unsigned long long) seen->findings, (unsigned long long) seen->wrong,
			   (unsigned long long) seen->disagree, seen->first);
}

/* Is the damage one flipped bit?  In directory and header that must be noticed. */
static bool
is_one_bit(const Case *c)
{
	unsigned	bits = 0;

	if (c->damage.size != c->image->size)
		return false;
	for (size_t i = 0; i < c->image->size && bits <= 1; i++)
		bits += (unsigned) __builtin_popcount((unsigned char) c->damage.bytes[i] ^
											  (unsigned char) c->image->bytes[i]);
	return bits == 1;
}

/* What the damage has done, by what was seen before and after changes. */
static Outcome
judge(const Case *c, const Seen *before, const Seen *after)
{
	if (before->strange > 0 || after->strange > 0)
		return FAILED;
	if (c->damage.foreign)
		return FOREIGN;
	if (before->errors > 0 || before->findings > 0)
		return NOTICED;
	if (before->disagree > 0)
		return FAILED;
	if (before->wrong > 0)
	{
		if (c->damage.uses[USE_ENTRIES])
			return OTHER_ENTRIES;

		/* With the space map it could be noticed. */
		if (c->new_instance && !is_one_bit(c) && (c->damage.uses[USE_DIRECTORY] || c->damage.uses[USE_HEADER]))
			return OTHER_DIRECTORY;
		return FAILED;
	}
	/* What is cut off of a file in use, and free, is missed when it is needed, or by recovery. */
	if (c->damage.size < c->image->size && after->errors > 0 && after->wrong == 0 && after->disagree == 0)
		return NOTICED;
	if (after->errors > 0 || after->findings > 0 || after->wrong > 0 || after->disagree > 0)
		return FAILED;
	return HARMLESS;
}

static Outcome
run_case(Case *c, Seen *before, Seen *after)
{
	PmhTable   *t;
	PmhTable   *short_one = NULL;

	(void) pmh_locks_init(fixture_locks(), FIXTURE_STRIPES);
	write_file(c->later ? c->image->bytes : c->damage.bytes,
			   c->later ? c->image->size : c->damage.size);
	if (open_file(c, IMAGE_INSTANCE + c->new_instance, &t, before) != PMH_OK)
	{
		tell("open", before);
		return before->strange > 0 ? FAILED : REFUSED;
	}
	if (c->short_too)
		(void) open_file(c, IMAGE_INSTANCE + c->new_instance, &short_one, before);
	if (c->later)
		write_file(c->damage.bytes, c->damage.size);
	c->damage.foreign = c->damage.foreign || is_foreign(c);
	exercise_read(t, c->image, before);
	tell("before", before);
	exercise_change(t, c->image, c->seed, after);
	if (short_one != NULL)
	{
		exercise_read_changed(short_one, c->image, c->seed, after);
		pmh_close(short_one);
	}
	pmh_close(t);
	tell("after", after);
	if (open_file(c, IMAGE_INSTANCE + 2, &t, after) == PMH_OK)
	{
		exercise_read_changed(t, c->image, c->seed, after);
		pmh_close(t);
	}
	tell("after reopening", after);
	return judge(c, before, after);
}

/* ---- many ---- */

static void
guard(void)
{
	struct itimerval cpu = {.it_value.tv_sec = CPU_SECONDS};

	(void) setitimer(ITIMER_PROF, &cpu, NULL);
	(void) alarm(REAL_SECONDS);
}

static void
run_cases(uint64_t from, uint64_t to, const Image *images, size_t nimages)
{
	char	   *bytes = malloc(DAMAGE_ROOM);

	for (uint64_t number = from; number < to; number++)
	{
		Case		c;
		Seen		before = {0};
		Seen		after = {0};
		Outcome		outcome;

		progress->seed = number;
		guard();
		make_case(number, images, nimages, bytes, &c);
		outcome = run_case(&c, &before, &after);
		progress->count[outcome]++;
		if (outcome == FAILED || verbose)
			fprintf(stderr, "seed %llu: %s: %s\n  before changes: %s\n  after: %s\n",
					(unsigned long long) number, outcome_name[outcome], progress->what,
					before.first, after.first);
	}
	free(bytes);
}

/* A child has died, or has ended with an error: of which case? */
static void
report_death(int status)
{
	progress->count[FAILED]++;
	fprintf(stderr, "seed %llu: %s %d at step \"%s\": %s\n",
			(unsigned long long) progress->seed,
			WIFSIGNALED(status) ? "signal" : "exit status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
			progress->step, progress->what);
}

static void
run_in_children(uint64_t from, uint64_t to, const Image *images, size_t nimages)
{
	while (from < to)
	{
		uint64_t	end = from + CASES_PER_CHILD < to ? from + CASES_PER_CHILD : to;
		int			status;
		pid_t		pid = fork();

		if (pid == 0)
		{
			struct rlimit limit = {LONGEST_FILE, LONGEST_FILE};

			(void) signal(SIGXFSZ, SIG_IGN);
			(void) setrlimit(RLIMIT_FSIZE, &limit);
			run_cases(from, end, images, nimages);
			exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
		{
			perror("fork");
			exit(1);
		}
		from = end;
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		{
			report_death(status);
			from = progress->seed + 1;
		}
	}
}

int
main(int argc, char **argv)
{
	const Image *images;
	size_t		nimages;
	uint64_t	cases = FIXTURE_SCALE(DEFAULT_CASES);
	uint64_t	first = 1;

	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (progress == MAP_FAILED)
	{
		perror("mmap");
		return 1;
	}
	exercise_step = &progress->step;
	path = fixture_path("fuzz");
	(void) fixture_locks();
	nimages = images_build(path, &images);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && strcmp(argv[1], "-1") == 0)
	{
		verbose = true;
		first = strtoull(argv[2], NULL, 10);
		run_cases(first, first + 1, images, nimages);
		(void) unlink(path);
		return progress->count[FAILED] > 0;
	}
	if (argc > 1)
		cases = strtoull(argv[1], NULL, 10);
	if (argc > 2)
		first = strtoull(argv[2], NULL, 10);
	run_in_children(first, first + cases, images, nimages);
	(void) unlink(path);
	for (int i = 0; i < OUTCOMES; i++)
	{
		printf("%8llu %s\n", (unsigned long long) progress->count[i], outcome_name[i]);
		if (i != FAILED)
			unit_passed += progress->count[i];
	}
	unit_failed = progress->count[FAILED];
	return unit_done("fuzz");
}
