/*-------------------------------------------------------------------------
 *
 * pmh_ab.c
 *	  Builds of the engine, as shared objects, against each other in one process.
 *
 *	  pmh_ab [-n KEYS] [-r ROWS] [-s SLICE] [-1] [-c] [-k] [-e] [-d DIRECTORY] [-o OP,...]
 *			 NAME=FILE.so ...
 *
 *	  -r	so many of KEYS, which is a multiple of it, are values of one key: an
 *			operation is one value inserted or deleted, or all of a key looked up
 *	  -1	all builds work on one table, each on its share of the keys: where the
 *			system has put a table's pages makes up to a tenth, more than most
 *			changes.  (For builds whose files and locks are the same.)
 *	  -c	class cache: nothing is flushed or fenced
 *	  -k	keep the tables (DIRECTORY/pmh_ab.NAME)
 *	  -e	use tables that were kept.  So can valgrind count instructions, where
 *			a mapping cannot grow: reserve and keep, then count
 *
 * Without -1 each build has a table of its own.  They take turns at slices of operations,
 * another one first in each round, so that whatever the machine does meanwhile
 * comes to all of them.  Of a slice its processor time counts, of an operation
 * the median slice; and beside it the median, and the quartiles, of the ratio to
 * the first build's slice of the same round.  Where a build is named twice, the
 * ratio shows the noise.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ab.h"

#define MAX_SIDES	8

/* Bytes to be reserved for an entry, the directory included. */
#define RESERVE_EACH	24
#define RESERVE_LEAST	((uint64_t) 8 * 1024 * 1024)

static const char *const op_name[AB_OPS] = {
	"insert", "hit", "miss", "dependent-hit", "dependent-miss", "delete",
	"group-insert", "group-hit", "group-delete"
};

typedef struct Side
{
	const char *name;
	const AbSide *engine;
	char		path[256];
	uint64_t	wrong;
	double	   *ns;				/* per operation, by slice */
	double	   *ratio;			/* speed by that of the first side */
} Side;

static Side side[MAX_SIDES];
static int	nsides;
static uint64_t keys = 20000000;
static uint64_t rows = 1;
static uint64_t slice = 500000;
static bool one_table = false;
static bool durable = true;
static bool keep = false;
static bool existing = false;
static const char *directory = "/dev/shm";

static void
die(const char *what)
{
	fprintf(stderr, "pmh_ab: %s\n", what);
	exit(1);
}

static double
processor_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double) ts.tv_sec * 1e9 + (double) ts.tv_nsec;
}

static int
compare_doubles(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

/* NAME=FILE.  To have one build twice takes two copies of it. */
static void
add_side(char *arg)
{
	Side	   *s = &side[nsides];
	char	   *file = strchr(arg, '=');
	void	   *handle;

	if (nsides == MAX_SIDES || file == NULL)
		die("NAME=FILE.so, at most 8 times");
	*file++ = '\0';
	handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL)
		die(dlerror());
	s->name = arg;
	s->engine = dlsym(handle, "pmh_ab_side");
	if (s->engine == NULL)
		die("the shared object is not one of ours");
	for (int i = 0; i < nsides; i++)
	{
		if (side[i].engine == s->engine)
			die("a shared object is loaded once: copy it to have it twice");
	}
	nsides++;
}

static void
print_op(AbOp op, uint64_t n)
{
	for (int i = 0; i < nsides; i++)
	{
		Side	   *s = &side[i];

		qsort(s->ns, n, sizeof(double), compare_doubles);
		qsort(s->ratio, n, sizeof(double), compare_doubles);
		printf("%-15s %-12s %7.3f Mops/s  ratio %.3f (%.3f .. %.3f)  slices %llu  wrong %llu\n",
			   op_name[op], s->name, 1e3 / s->ns[n / 2], s->ratio[n / 2], s->ratio[n / 4],
			   s->ratio[n - 1 - n / 4], (unsigned long long) n,
			   (unsigned long long) s->wrong);
		if (s->wrong != 0)
			die("wrong answers");
	}
	fflush(stdout);
}

static void
run_op(AbOp op)
{
	uint64_t	n = 0;

	for (int i = 0; i < nsides; i++)
		side[i].wrong = 0;
	for (uint64_t at = 0; at < keys; at += one_table ? 0 : slice, n++)
	{
		for (int j = 0; j < nsides; j++)
		{
			Side	   *s = &side[(n + (uint64_t) j) % (uint64_t) nsides];
			uint64_t	m = keys - at < slice ? keys - at : slice;
			double		begin = processor_ns();

			s->wrong += s->engine->run(op, at, m);
			s->ns[n] = (processor_ns() - begin) / (double) m;
			if (one_table)
				at += m;
		}
		for (int j = 0; j < nsides; j++)
			side[j].ratio[n] = side[0].ns[n] / side[j].ns[n];
	}
	print_op(op, n);
}

static void
print_space(void)
{
	for (int i = 0; i < (one_table ? 1 : nsides); i++)
	{
		AbSpace		space;

		side[i].engine->space(&space);
		printf("%-15s %-12s %llu entries, %.2f bytes each, load factor %.3f\n", "space",
			   side[i].name, (unsigned long long) space.entries, space.bytes_per_entry,
			   space.load_factor);
	}
}

static void
begin_sides(void)
{
	void	   *locks = NULL;

	for (int i = 0; i < nsides; i++)
	{
		Side	   *s = &side[i];
		bool		open = existing || (one_table && i > 0);

		if (!one_table)
			locks = NULL;
		s->ns = calloc(keys / slice + 1, sizeof(double));
		s->ratio = calloc(keys / slice + 1, sizeof(double));
		if (s->ns == NULL || s->ratio == NULL)
			die("out of memory");
		snprintf(s->path, sizeof(s->path), "%s/pmh_ab.%s", directory,
				 side[one_table ? 0 : i].name);
		s->engine->begin(s->path, keys, rows, open ? 0 : keys * RESERVE_EACH + RESERVE_LEAST,
						 durable, &locks);
	}
}

static AbOp
find_op(const char *name)
{
	for (int op = 0; op < AB_OPS; op++)
	{
		if (strcmp(op_name[op], name) == 0)
			return (AbOp) op;
	}
	die("there is no such operation");
	return AB_OPS;
}

int
main(int argc, char **argv)
{
	char		ops[] = "insert,hit,miss,dependent-hit,dependent-miss,delete";
	char	   *wanted = ops;
	int			option;

	while ((option = getopt(argc, argv, "n:r:s:1cked:o:")) != -1)
	{
		switch (option)
		{
			case 'n':
				keys = strtoull(optarg, NULL, 10);
				break;
			case 'r':
				rows = strtoull(optarg, NULL, 10);
				break;
			case 's':
				slice = strtoull(optarg, NULL, 10);
				break;
			case '1':
				one_table = true;
				break;
			case 'c':
				durable = false;
				break;
			case 'k':
				keep = true;
				break;
			case 'e':
				existing = true;
				break;
			case 'd':
				directory = optarg;
				break;
			case 'o':
				wanted = optarg;
				break;
			default:
				die("see the head of pmh_ab.c");
		}
	}
	while (optind < argc)
		add_side(argv[optind++]);
	if (nsides == 0 || keys == 0 || slice == 0)
		die("no build, no keys, or no slice");
	if (rows == 0 || keys % rows != 0)
		die("KEYS has to be a multiple of ROWS");
	if (one_table && keys % (slice * (uint64_t) nsides) != 0)
		die("with -1, KEYS has to be a multiple of SLICE times the number of builds");
	begin_sides();
	for (char *op = strtok(wanted, ","); op != NULL; op = strtok(NULL, ","))
	{
		run_op(find_op(op));
		if (strstr(op, "insert") != NULL)
			print_space();
	}
	for (int i = 0; i < nsides; i++)
		side[i].engine->end(keep);
	return 0;
}
