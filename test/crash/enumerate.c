/*-------------------------------------------------------------------------
 *
 * enumerate.c
 *	  The images that power loss can leave at a crash point.
 *
 * A line with pending stores that matter has as many variants as its
 * prefixes differ, a word copied past the cache has two.  Their product is
 * enumerated if it is small, else sampled: nothing, everything, each variant
 * of one line alone, each line alone missing, and then at random.  Pending
 * volatile stores (links of free buffers and the like) take any prefix, at
 * random.
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "crash.h"
#include "layout.h"
#include "pm.h"

/* Lines whose volatile stores an image may have. */
#define VOLATILE_LINES	12

#define MAX_DIMS		8192

/* A point with more images is sampled: in the workload, and inside recovery; there so many. */
#define ALL_IMAGES				65536
#define ALL_RECOVERY_IMAGES		256
#define RECOVERY_SAMPLE			32

typedef struct Dim
{
	Line	   *line;
	uint16_t	nvariants;
	int16_t		word;			/* of pm_copy; -1: prefixes of stores */
	uint16_t	choice;
	uint8_t		prefix[48];		/* by variant */
} Dim;

typedef struct Point
{
	unsigned	level;			/* whose stores are pending */
	const PmSite *site;			/* of the fence; NULL: an end */
	Dim		   *dim;
	unsigned	ndims;
	double		images;
	uint64_t	tested;
} Point;

static Dim	dims[LEVELS - 1][MAX_DIMS];

/* ---- what is pending ---- */

static void
add_prefixes(Point *p, Recorder *r, Line *line)
{
	Dim		   *dim = &p->dim[p->ndims];
	char		variant[48][PMH_LINE];
	unsigned	n = 0;

	for (unsigned k = 0; k <= line->n; k++)
	{
		bool		known = false;

		line_content(r, line, k, 0, variant[n]);
		for (unsigned v = 0; v < n && !known; v++)
			known = memcmp(variant[v], variant[n], PMH_LINE) == 0;
		if (!known)
			dim->prefix[n++] = (uint8_t) k;
	}
	if (n < 2 || p->ndims == MAX_DIMS)
		return;
	dim->line = line;
	dim->nvariants = (uint16_t) n;
	dim->word = -1;
	dim->choice = 0;
	p->ndims++;
	p->images *= n;
}

static void
add_words(Point *p, Recorder *r, Line *line)
{
	char		bytes[PMH_LINE];

	line_content(r, line, 0, 0, bytes);
	for (unsigned w = 0; w < 8; w++)
	{
		Dim		   *dim = &p->dim[p->ndims];

		if ((line->copied >> w & 1) == 0 || p->ndims == MAX_DIMS ||
			memcmp(bytes + 8 * w, &line->copy[w], 8) == 0)
			continue;
		dim->line = line;
		dim->nvariants = 2;
		dim->word = (int16_t) w;
		dim->choice = 0;
		p->ndims++;
		p->images *= 2;
	}
}

static void
collect(Point *p, unsigned level, const PmSite *site)
{
	Recorder   *r = &recorders[level];

	p->level = level;
	p->site = site;
	p->dim = dims[level];
	p->ndims = 0;
	p->images = 1;
	p->tested = 0;
	for (size_t i = 0; i < r->npending; i++)
	{
		Line	   *line = r->pending[i];

		if (line->lasting > 0)
			add_prefixes(p, r, line);
		if (line->copied != 0)
			add_words(p, r, line);
	}
}

/* The line from the d-th dimension on: what is chosen of it, and where the next one begins. */
static const Line *
chosen_line(const Point *p, unsigned *d, unsigned *prefix, unsigned *words)
{
	const Line *line = p->dim[*d].line;

	*prefix = *words = 0;
	for (; *d < p->ndims && p->dim[*d].line == line; (*d)++)
	{
		if (p->dim[*d].word < 0)
			*prefix = p->dim[*d].prefix[p->dim[*d].choice];
		else
			*words |= (unsigned) p->dim[*d].choice << p->dim[*d].word;
	}
	return line;
}

/* ---- failures ---- */

static void
print_line(const Line *line, unsigned prefix, unsigned words)
{
	fprintf(stderr, "    line at %#zx: %u of %u stores", (size_t) line->number * PMH_LINE,
			prefix, line->n);
	for (unsigned i = 0; i < line->n; i++)
		fprintf(stderr, "%s%s:%d", i == prefix ? " | not: " : " ",
				site_base_name(site_of(line->store[i].site)),
				site_of(line->store[i].site)->line);
	if (line->copied != 0)
		fprintf(stderr, ", words %02x of %02x copied at %s:%d", words, line->copied,
				site_base_name(site_of(line->copy_site)), site_of(line->copy_site)->line);
	fprintf(stderr, "\n");
}

static void
report(const Point *p, const char *bad)
{
	crash_failure("%s: crash %s %s:%d, image %llu of %.0f: %s", crash.operation,
				  p->level == 0 ? "before the fence at" : "inside recovery, before",
				  p->site != NULL ? site_base_name(p->site) : "end",
				  p->site != NULL ? p->site->line : 0,
				  (unsigned long long) p->tested, p->images, bad);
	if (crash.figures->failures > 5)
		return;
	for (unsigned d = 0; d < p->ndims;)
	{
		unsigned	prefix;
		unsigned	words;
		const Line *line = chosen_line(p, &d, &prefix, &words);

		if (p->ndims < 100)
			print_line(line, prefix, words);
	}
}

/* ---- one image ---- */

static void
put_line(const Point *p, const Line *line, unsigned prefix, unsigned words)
{
	char		bytes[PMH_LINE];

	line_content(&recorders[p->level], line, prefix, words, bytes);
	for (unsigned level = p->level + 1; level < LEVELS; level++)
		memory_put_line(level, line->number, bytes);
}

static void
put_volatile(const Point *p)
{
	Recorder   *r = &recorders[p->level];
	size_t		n = r->npending;
	size_t		from;

	if (n == 0 || n == r->lasting_lines)
		return;
	from = (size_t) (crash_random() % n);
	for (size_t i = 0; i < n && i < VOLATILE_LINES; i++)
	{
		Line	   *line = r->pending[(from + i) % n];

		if (line->lasting == 0 && line->copied == 0)
			put_line(p, line, (unsigned) (crash_random() % (line->n + 1u)), 0);
	}
}

static void
put_choices(const Point *p)
{
	for (unsigned d = 0; d < p->ndims;)
	{
		unsigned	prefix;
		unsigned	words;
		const Line *line = chosen_line(p, &d, &prefix, &words);

		if (prefix != 0 || words != 0)
			put_line(p, line, prefix, words);
	}
}

/* Shall the workload go on from this image? */
static bool
wants_adoption(const Point *p)
{
	return p->level == 0 && crash.adopted != NULL && crash.adopt > 0 &&
		(crash.adopt_at == NULL ||
		 (p->site != NULL && strcmp(p->site->function, crash.adopt_at) == 0)) &&
		(double) (crash_random() >> 11) / 9007199254740992.0 < crash.adopt;
}

static void
test_image(Point *p)
{
	unsigned	above = p->level + 1;
	Mark		mark[LEVELS];
	const char *bad;

	if (crash.first_failure && shared->failures != 0)
		_exit(1);
	for (unsigned level = above; level < LEVELS; level++)
		mark[level] = memory_mark(level);
	if (wants_adoption(p))
	{
		crash.figures->adopted++;
		if (crash_random() % 2 == 0)
			recorder_kill();
		else
		{
			put_volatile(p);
			put_choices(p);
			recorder_adopt();
		}
		longjmp(*crash.adopted, 1);
	}
	put_volatile(p);
	put_choices(p);
	bad = image_check(above);
	if (bad != NULL)
		report(p, bad);
	for (unsigned level = above; level < LEVELS; level++)
		memory_return(level, &mark[level]);
	p->tested++;
	crash.figures->images++;
	crash.figures->recovery_images += p->level > 0;
}

/* ---- all images, or a sample ---- */

static bool
nothing_chosen(const Point *p)
{
	for (unsigned d = 0; d < p->ndims; d++)
	{
		if (p->dim[d].choice != 0)
			return false;
	}
	return true;
}

static bool
next_choice(Point *p)
{
	for (unsigned d = 0; d < p->ndims; d++)
	{
		if (++p->dim[d].choice < p->dim[d].nvariants)
			return true;
		p->dim[d].choice = 0;
	}
	return false;
}

static void
test_all(Point *p)
{
	do
	{
		if (nothing_chosen(p) && (p->level > 0 || crash.rest_tested))
			continue;
		test_image(p);
	} while (next_choice(p));
}

static void
choose_all(Point *p, bool everything)
{
	for (unsigned d = 0; d < p->ndims; d++)
		p->dim[d].choice = (uint16_t) (everything ? p->dim[d].nvariants - 1 : 0);
}

/* With one line only, and with all but one, if there is room for them. */
static void
test_single_lines(Point *p, uint64_t budget)
{
	for (unsigned d = 0; d < p->ndims;)
	{
		unsigned	end = d;

		while (end < p->ndims && p->dim[end].line == p->dim[d].line)
			end++;
		for (unsigned without = 0; without < 2 && p->tested < budget; without++)
		{
			choose_all(p, without);
			for (unsigned i = d; i < end; i++)
				p->dim[i].choice = (uint16_t) (without ? 0 : p->dim[i].nvariants - 1);
			test_image(p);
		}
		d = end;
	}
}

static void
choose_random(Point *p)
{
	uint64_t	density = crash_random() % 3;

	for (unsigned d = 0; d < p->ndims; d++)
	{
		Dim		   *dim = &p->dim[d];
		uint64_t	r = crash_random();

		dim->choice = (uint16_t) ((r >> 8) % dim->nvariants);
		if (density == 1 && (r & 7) != 0)
			dim->choice = 0;
		if (density == 2 && (r & 7) != 0)
			dim->choice = (uint16_t) (dim->nvariants - 1);
	}
}

static void
test_sample(Point *p, uint64_t sample)
{
	choose_all(p, false);
	if (p->level == 0 && !crash.rest_tested)
		test_image(p);
	choose_all(p, true);
	test_image(p);
	test_single_lines(p, sample / 2);
	while (p->tested < sample)
	{
		choose_random(p);
		test_image(p);
	}
	crash.figures->sampled++;
}

/* Does the fence that is about to come complete everything? */
static bool
all_flushed(unsigned level)
{
	for (size_t i = 0; i < recorders[level].npending; i++)
	{
		const Line *line = recorders[level].pending[i];

		if (line->lasting > 0 && line->flushed < line->n)
			return false;
	}
	return true;
}

/*
 * Test the images of what is pending at a level.  site: the fence that is
 * about to complete it; NULL: an operation, or recovery, has come to its end.
 */
void
enumerate(unsigned level, const PmSite *site)
{
	uint64_t	limit = level == 0 ? ALL_IMAGES : ALL_RECOVERY_IMAGES;
	Point		p;

	if (!crash.armed)
		return;
	collect(&p, level, site);
	if (p.ndims == 0 && (level > 0 || crash.rest_tested))
		return;
	crash.figures->crash_points++;
	if (p.images <= (double) limit)
		test_all(&p);
	else
		test_sample(&p, level == 0 ? crash.sample : RECOVERY_SAMPLE);
	if (level == 0)
		crash.rest_tested = p.images <= (double) limit || all_flushed(level);
}
