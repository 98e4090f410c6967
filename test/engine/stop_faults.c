/*-------------------------------------------------------------------------
 *
 * stop_faults.c
 *	  The operations of faults.c, with the file cut off while they are at one of
 *	  the engine's stop points: what has been read there is not what is found
 *	  behind it.  Each ends, with the error, and holds no lock.
 *
 *-------------------------------------------------------------------------
 */
#define main faults_main
#include "faults.c"
#undef main

#define CUTS		3			/* per operation and point */
#define ALWAYS_USED	8			/* pages in front that every walk comes by */
#define MAX_POINTS	64

/* The points that an operation comes by, and how often. */
static struct
{
	char		name[32];
	uint64_t	hits;
}			point[MAX_POINTS];
static size_t npoints;

static bool counting;			/* in an operation */
static const char *cut_at;		/* the point at which to cut; NULL: never */
static uint64_t cut_countdown;	/* which time */
static uint64_t cut_to;			/* pages that stay */

static void
count_hit(const char *name)
{
	size_t		i = 0;

	while (i < npoints && strcmp(point[i].name, name) != 0)
		i++;
	REQUIRE(i < MAX_POINTS && strlen(name) < sizeof(point[i].name));
	if (i == npoints)
	{
		strcpy(point[npoints].name, name);
		point[npoints++].hits = 0;
	}
	point[i].hits++;
}

void
pmh_stop_point(const char *name)
{
	if (!counting)
		return;
	if (cut_at == NULL)
		count_hit(name);
	else if (strcmp(cut_at, name) == 0 && --cut_countdown == 0)
		REQUIRE(truncate(path, (off_t) (cut_to * PAGE)) == 0);
}

/* One operation on the table of the image; returns its result. */
static PmhResult
run_once(const void *image, size_t size, Operation op, const char *at,
		 uint64_t nth, uint64_t to)
{
	uint64_t	seed = 1;
	FILE	   *file = fopen(path, "w");
	PmhTable   *t;
	PmhResult	result;

	REQUIRE(file != NULL && fwrite(image, 1, size, file) == size && fclose(file) == 0);
	pmh_locks_init(fixture_locks(), FIXTURE_STRIPES);
	t = open_table(path);
	cut_at = at;
	cut_countdown = nth;
	cut_to = to;
	counting = true;
	result = op(t, &seed);
	counting = false;
	CHECK(fixture_no_lock_held());
	if (at != NULL && to < ALWAYS_USED)
		CHECK(do_check(t, &seed) == PMH_ERR_LOST);
	pmh_close(t);
	return result;
}

int
main(void)
{
	uint64_t	seed = 5;
	uint64_t	noticed = 0;
	uint64_t	runs = 0;
	uint64_t	size;
	void	   *image;
	FILE	   *file;

	alarm(120);					/* nothing may run in circles */
	path = strdup(fixture_path("stop_faults"));
	REQUIRE(path != NULL);
	pmh_close(make_table(path));
	size = size_of(path);
	image = malloc(size);
	file = fopen(path, "r");
	REQUIRE(image != NULL && file != NULL && fread(image, 1, size, file) == size);
	fclose(file);

	for (size_t i = 0; i < OPERATIONS; i++)
	{
		npoints = 0;
		CHECK(run_once(image, size, operation[i], NULL, 0, 0) == PMH_OK);
		for (size_t j = 0; j < npoints * CUTS; j++)
		{
			uint64_t	hits = point[j / CUTS].hits;
			PmhResult	result;

			result = run_once(image, size, operation[i], point[j / CUTS].name,
							  1 + fixture_random(&seed) % hits,
							  fixture_random(&seed) % (j % CUTS == 0 ? size / PAGE : ALWAYS_USED));
			CHECK(result == PMH_OK || result == PMH_ERR_LOST || result == PMH_ERR_CORRUPT);
			noticed += result == PMH_ERR_LOST;
			runs++;
		}
	}
	CHECK(noticed > runs / 2);
	free(image);
	unlink(path);
	pmh_values_free(&values);
	return unit_done("stop_faults");
}
