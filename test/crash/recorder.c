/*-------------------------------------------------------------------------
 *
 * recorder.c
 *	  The recording implementation of pm.h; see recorder.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "error.h"
#include "handle.h"
#include "layout.h"
#include "lock.h"
#include "pm.h"
#include "recorder.h"

/* More pending stores than this in a line: the cache has evicted the oldest. */
#define MAX_STORES		40

typedef struct Saved
{
	uint32_t	number;
	char		bytes[PMH_LINE];
} Saved;

typedef struct Memory
{
	char	   *base;
	size_t		length[FILES];
	size_t		rest_length[FILES]; /* to return to */
	uint32_t   *stamp;			/* by line: last round it was saved in */
	uint32_t	round;
	Saved	   *saved;
	size_t		nsaved;
	size_t		saved_room;
	size_t		round_from;		/* of these, those of this round begin here */
	uint64_t	sum;			/* of line_hash, of all lines as they were then */
	uint64_t	rest_sum;		/* at rest */
	bool		hole[FILES][FILE_BYTES / PMH_BLOCK_SIZE];
	bool		hole_used;		/* something was stored to one */
} Memory;

static Memory memories[LEVELS];
static char *all_memory;
static char file_name[FILES][256];

Recorder	recorders[LEVELS - 1];
static bool level1_started;
static Line *free_lines;

unsigned	recorder_level;
bool		recorder_persist = true;
bool		recorder_armed;
void		(*recorder_at_fence) (unsigned level, const PmSite *site);
void		(*recorder_at_store) (void *addr, size_t size, uint64_t value, const PmSite *site);
void		(*recorder_at_unlock) (const uint64_t *lock);
void		(*recorder_at_killed) (const PmSite *site);

/* ---- sites ---- */

extern PmSite *const __start_pm_sites[];
extern PmSite *const __stop_pm_sites[];

static PmSite *site[MAX_SITES];
static bool site_volatile[MAX_SITES];
static bool suppressed[MAX_SITES];
static unsigned nsites;
uint64_t   *site_hits;

/*
 * Functions whose stores recovery does not need: where a list may have room, which grains
 * of a value block are used, and what its kind byte tells beside the kind.
 */
static const char *const volatile_functions[] = {
	"set_fill_hint", "set_bits", "fill_words", "pmh_value_settle", "set_room", "mark_kinds"
};

const char *
site_base_name(const PmSite *s)
{
	const char *slash = strrchr(s->file, '/');

	return slash != NULL ? slash + 1 : s->file;
}

/* Order by file, line, kind. */
static int
compare_sites(const void *a, const void *b)
{
	const PmSite *x = *(PmSite *const *) a;
	const PmSite *y = *(PmSite *const *) b;
	int			c = strcmp(site_base_name(x), site_base_name(y));

	if (c == 0)
		c = (x->line > y->line) - (x->line < y->line);
	return c != 0 ? c : strcmp(x->kind, y->kind);
}

void
sites_init(void)
{
	size_t		n = (size_t) (__stop_pm_sites - __start_pm_sites);
	PmSite	  **all = malloc(n * sizeof(PmSite *));

	memcpy(all, __start_pm_sites, n * sizeof(PmSite *));
	qsort(all, n, sizeof(PmSite *), compare_sites);
	for (size_t i = 0; i < n; i++)
	{
		/* Inline functions of headers have one in each file that has them. */
		if (i == 0 || compare_sites(&all[i], &all[i - 1]) != 0)
		{
			if (++nsites == MAX_SITES)
				abort();
			site[nsites] = all[i];
		}
		all[i]->id = (int) nsites;
		for (size_t v = 0; v < sizeof(volatile_functions) / sizeof(char *); v++)
			site_volatile[nsites] |= strcmp(all[i]->function, volatile_functions[v]) == 0;
	}
	free(all);
	site_hits = mmap(NULL, MAX_SITES * sizeof(uint64_t), PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

unsigned
sites_count(void)
{
	return nsites;
}

const PmSite *
site_of(unsigned id)
{
	return site[id];
}

bool
site_suppress(const char *kind, const char *where)
{
	bool		found = false;
	char		name[300];

	for (unsigned id = 1; id <= nsites; id++)
	{
		snprintf(name, sizeof(name), "%s:%d", site_base_name(site[id]), site[id]->line);
		if (strcmp(site[id]->kind, kind) == 0 && strcmp(name, where) == 0)
			found = suppressed[id] = true;
	}
	return found;
}

/* ---- memories ---- */

static void *
reserve(size_t bytes)
{
	void	   *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
						 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
	{
		perror("mmap");
		exit(1);
	}
	return p;
}

void
recorder_init(void)
{
	all_memory = reserve(LEVELS * FILES * FILE_BYTES);
	for (unsigned level = 0; level < LEVELS; level++)
	{
		memories[level].base = all_memory + level * FILES * FILE_BYTES;
		memories[level].stamp = reserve(MEMORY_LINES * sizeof(uint32_t));
		memories[level].round = 1;
	}
	for (unsigned level = 0; level < LEVELS - 1; level++)
	{
		recorders[level].level = level;
		recorders[level].line = reserve(MEMORY_LINES * sizeof(Line *));
		recorders[level].pending = reserve(MEMORY_LINES * sizeof(Line *));
	}
}

char *
memory_file(unsigned level, unsigned file)
{
	return memories[level].base + file * FILE_BYTES;
}

static inline char *
line_at(unsigned level, uint32_t number)
{
	return memories[level].base + (size_t) number * PMH_LINE;
}

static void
save_line(Memory *m, uint32_t number)
{
	m->stamp[number] = m->round;
	if (m->nsaved == m->saved_room)
	{
		m->saved_room = m->saved_room ? 2 * m->saved_room : 4096;
		m->saved = realloc(m->saved, m->saved_room * sizeof(Saved));
		if (m->saved == NULL)
			abort();
	}
	m->saved[m->nsaved].number = number;
	memcpy(m->saved[m->nsaved].bytes, m->base + (size_t) number * PMH_LINE, PMH_LINE);
	m->nsaved++;
}

void
memory_touch(unsigned level, uint32_t number)
{
	if (memories[level].stamp[number] != memories[level].round)
		save_line(&memories[level], number);
}

void
memory_put_line(unsigned level, uint32_t number, const void *bytes)
{
	memory_touch(level, number);
	memcpy(line_at(level, number), bytes, PMH_LINE);
}

/*
 * Take out of a line what is different after each recovery: the number of the
 * run.  Of two images that are else equal, the second need not be checked.
 */
static void
without_instance(uint32_t number, uint64_t *w)
{
	const size_t instance = PMH_RUN_OFFSET + offsetof(PmhRun, instance);

	if (number == instance / PMH_LINE)
		w[instance % PMH_LINE / sizeof(uint64_t)] = 0;
}

/* A hash of a line; 0 if it is all zeroes. */
static uint64_t
line_hash(uint32_t number, const void *bytes)
{
	uint64_t	w[8];
	uint64_t	any = 0;
	uint64_t	hash = (number + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);

	memcpy(w, bytes, sizeof(w));
	without_instance(number, w);
	for (unsigned i = 0; i < 8; i += 2)
	{
		__uint128_t product = (__uint128_t) (w[i] ^ hash) *
			(w[i + 1] ^ (UINT64_C(0xbf58476d1ce4e5b9) + i));

		any |= w[i] | w[i + 1];
		hash += (uint64_t) product ^ (uint64_t) (product >> 64);
	}
	hash = (hash ^ hash >> 29) * UINT64_C(0x94d049bb133111eb);
	return any == 0 ? 0 : hash ^ hash >> 32;
}

/* The sum of line_hash over all lines as they are. */
static uint64_t
lines_sum(const Memory *m)
{
	uint64_t	sum = m->sum;

	for (size_t i = m->round_from; i < m->nsaved; i++)
	{
		const Saved *s = &m->saved[i];

		sum += line_hash(s->number, m->base + (size_t) s->number * PMH_LINE) -
			line_hash(s->number, s->bytes);
	}
	return sum;
}

uint64_t
memory_hash(unsigned level)
{
	uint64_t	hash = lines_sum(&memories[level]);

	for (unsigned file = 0; file < FILES; file++)
		hash = (hash ^ hash >> 31 ^ memories[level].length[file]) *
			UINT64_C(0x9e3779b97f4a7c15);
	return hash;
}

/* Lines are saved anew from here on; sum: as they are now. */
static void
begin_round(Memory *m, uint64_t sum)
{
	m->round++;
	m->round_from = m->nsaved;
	m->sum = sum;
}

Mark
memory_mark(unsigned level)
{
	Memory	   *m = &memories[level];
	Mark		mark;

	mark.nsaved = m->nsaved;
	memcpy(mark.length, m->length, sizeof(mark.length));
	mark.sum = lines_sum(m);
	begin_round(m, mark.sum);
	return mark;
}

void
memory_return(unsigned level, const Mark *mark)
{
	Memory	   *m = &memories[level];

	while (m->nsaved > mark->nsaved)
	{
		const Saved *s = &m->saved[--m->nsaved];

		memcpy(m->base + (size_t) s->number * PMH_LINE, s->bytes, PMH_LINE);
	}
	begin_round(m, mark->sum);
	memcpy(m->length, mark->length, sizeof(m->length));
}

void
memory_restore(unsigned level)
{
	Mark		rest = {.sum = memories[level].rest_sum};

	memcpy(rest.length, memories[level].rest_length, sizeof(rest.length));
	memory_return(level, &rest);
}

/* Keep what is in a memory now. */
static void
memory_accept(unsigned level)
{
	Memory	   *m = &memories[level];

	m->rest_sum = lines_sum(m);
	m->nsaved = 0;
	begin_round(m, m->rest_sum);
	memcpy(m->rest_length, m->length, sizeof(m->length));
}

/* ---- pending lines ---- */

static void
count_lasting(Recorder *r, Line *line, int by)
{
	bool		before = line->lasting != 0 || line->copied != 0;
	bool		after;

	line->lasting = (uint16_t) (line->lasting + by);
	after = line->lasting != 0 || line->copied != 0;
	r->lasting_lines = r->lasting_lines + after - before;
}

static void
set_copied(Recorder *r, Line *line, uint8_t copied)
{
	bool		before = line->lasting != 0 || line->copied != 0;

	line->copied = copied;
	r->lasting_lines = r->lasting_lines + (line->lasting != 0 || copied != 0) - before;
}

static Line *
pending_line(Recorder *r, uint32_t number)
{
	Line	   *line = r->line[number];

	if (line != NULL)
		return line;
	line = free_lines;
	if (line != NULL)
		memcpy(&free_lines, line->copy, sizeof(Line *));
	else
		line = calloc(1, sizeof(Line));
	if (line == NULL)
		abort();
	line->number = number;
	line->n = line->flushed = line->lasting = line->before_copy = 0;
	line->copied = 0;
	line->place = (uint32_t) r->npending;
	r->pending[r->npending++] = line;
	r->line[number] = line;
	return line;
}

static void
drop_line(Recorder *r, Line *line)
{
	Line	   *last = r->pending[--r->npending];

	r->pending[line->place] = last;
	last->place = line->place;
	r->line[line->number] = NULL;
	memcpy(line->copy, &free_lines, sizeof(Line *));
	free_lines = line;
}

static inline void
apply_store(char *bytes, const Store *s)
{
	memcpy(bytes + s->at, &s->value, s->size);
}

void
line_content(const Recorder *r, const Line *line, unsigned n, unsigned words,
			 void *bytes)
{
	unsigned	i = 0;

	memcpy(bytes, line_at(r->level + 1, line->number), PMH_LINE);
	for (; i < n && i < line->before_copy; i++)
		apply_store(bytes, &line->store[i]);
	for (unsigned w = 0; w < 8; w++)
	{
		if ((words >> w & 1) != 0)
			memcpy((char *) bytes + 8 * w, &line->copy[w], 8);
	}
	for (; i < n; i++)
		apply_store(bytes, &line->store[i]);
}

/* Let bytes of a line be durable: in all memories above. */
static void
make_durable(const Recorder *r, uint32_t number, const void *bytes)
{
	for (unsigned level = r->level + 1; level < LEVELS; level++)
	{
		Memory	   *m = &memories[level];

		if (r->level > 0)
			memory_touch(level, number);
		else
		{
			/* Those above are at rest. */
			m->rest_sum += line_hash(number, bytes) - line_hash(number, line_at(level, number));
			m->sum = m->rest_sum;
		}
		memcpy(line_at(level, number), bytes, PMH_LINE);
	}
}

/* The first n stores of a line (and the words copied) are durable. */
static void
complete(Recorder *r, Line *line, unsigned n, bool copies)
{
	char		bytes[PMH_LINE];
	int			lasting = 0;

	line_content(r, line, n, copies ? line->copied : 0, bytes);
	make_durable(r, line->number, bytes);
	for (unsigned i = 0; i < n; i++)
		lasting += !line->store[i].is_volatile;
	memmove(line->store, line->store + n, (line->n - n) * sizeof(Store));
	line->n = (uint16_t) (line->n - n);
	line->flushed = (uint16_t) (line->flushed > n ? line->flushed - n : 0);
	line->before_copy = (uint16_t) (line->before_copy > n ? line->before_copy - n : 0);
	count_lasting(r, line, -lasting);
	if (copies)
	{
		set_copied(r, line, 0);
		line->before_copy = line->n;
	}
	if (line->n == 0 && line->copied == 0)
		drop_line(r, line);
}

static void
add_store(Recorder *r, uint32_t number, unsigned at, unsigned size, uint64_t value,
		  unsigned id)
{
	Line	   *line = pending_line(r, number);
	Store	   *s;

	if (line->n == MAX_STORES)
	{
		complete(r, line, 1, false);
		line = pending_line(r, number);
	}
	if (line->n == line->room)
	{
		line->room = line->room ? 2 * line->room : 8;
		line->store = realloc(line->store, line->room * sizeof(Store));
		if (line->store == NULL)
			abort();
	}
	if (line->copied == 0)
		line->before_copy = (uint16_t) (line->n + 1);
	s = &line->store[line->n++];
	s->value = value;
	s->site = (uint16_t) id;
	s->at = (uint8_t) at;
	s->size = (uint8_t) size;
	s->is_volatile = site_volatile[id];
	if (!s->is_volatile)
		count_lasting(r, line, 1);
}

static void
forget_pending(Recorder *r)
{
	while (r->npending > 0)
		drop_line(r, r->pending[r->npending - 1]);
	r->lasting_lines = 0;
	r->unfenced = false;
}

void
recorder_start_level1(void)
{
	level1_started = true;
}

void
recorder_stop_level1(void)
{
	forget_pending(&recorders[1]);
	level1_started = false;
}

const Line *
recorder_not_durable(unsigned file, uint64_t offset, size_t len)
{
	const Recorder *r = &recorders[0];
	uint32_t	first = (uint32_t) (file * FILE_LINES + offset / PMH_LINE);
	uint32_t	last = (uint32_t) (file * FILE_LINES + (offset + len - 1) / PMH_LINE);

	for (uint32_t number = first; number <= last; number++)
	{
		const Line *line = r->line[number];

		if (line != NULL && (line->lasting != 0 || line->copied != 0))
			return line;
	}
	return NULL;
}

void
recorder_adopt(void)
{
	forget_pending(&recorders[0]);
	for (unsigned file = 0; file < FILES; file++)
	{
		size_t		length = memories[1].length[file];

		memories[0].length[file] = memories[2].length[file] = length;
		memcpy(memory_file(0, file), memory_file(1, file), length);
	}
	memory_accept(1);
	memory_restore(2);
	for (unsigned file = 0; file < FILES; file++)
	{
		memories[2].length[file] = memories[1].length[file];
		memcpy(memory_file(2, file), memory_file(1, file), memories[1].length[file]);
	}
	memory_accept(2);
	memories[2].sum = memories[2].rest_sum = memories[1].sum;
}

void
recorder_kill(void)
{
	for (size_t i = 0; i < recorders[0].npending; i++)
		recorders[0].pending[i]->flushed = 0;
}

void
recorder_reset(void)
{
	recorder_stop_level1();
	forget_pending(&recorders[0]);
	for (unsigned level = 0; level < LEVELS; level++)
	{
		if (level > 0)
			memory_restore(level);
		for (unsigned file = 0; file < FILES; file++)
		{
			memset(memory_file(level, file), 0, memories[level].length[file]);
			memories[level].length[file] = memories[level].rest_length[file] = 0;
		}
		memories[level].sum = memories[level].rest_sum = 0;
		memset(memories[level].hole, 0, sizeof(memories[level].hole));
		memories[level].hole_used = false;
	}
	memset(file_name, 0, sizeof(file_name));
	recorder_level = 0;
	recorder_persist = true;
}

/* ---- the interface ---- */

/* Lines that recovery rebuilds and that nothing is noted of. */
static inline bool
is_run_area(size_t offset)
{
	return (offset >= PMH_RUN_OFFSET && offset < PMH_RUN_OFFSET + sizeof(PmhRun)) ||
		(offset >= PMH_HEADER_MAP_OFFSET &&
		 offset < PMH_HEADER_MAP_OFFSET + PMH_HEADER_MAP_BLOCKS) ||
		offset / PMH_BLOCK_SIZE == PMH_HEADER_MAP_BLOCKS;
}

static inline unsigned
level_of(const void *addr)
{
	size_t		at = (size_t) ((const char *) addr - all_memory);

	if (at >= LEVELS * FILES * FILE_BYTES)
		abort();
	return (unsigned) (at / (FILES * FILE_BYTES));
}

static inline uint32_t
number_of(unsigned level, const void *addr)
{
	return (uint32_t) (((const char *) addr - memories[level].base) / PMH_LINE);
}

/* A store to a block without space, on a full file system, would be SIGBUS. */
static inline void
note_use(unsigned level, size_t offset)
{
	memories[level].hole_used |=
		memories[level].hole[offset / FILE_BYTES][offset % FILE_BYTES / PMH_BLOCK_SIZE];
}

static void
store_level0(void *addr, size_t size, uint64_t value, const PmSite *s)
{
	uint32_t	number = number_of(0, addr);
	size_t		offset = (size_t) ((char *) addr - memories[0].base);

	note_use(0, offset);

	if (is_run_area(offset))
	{
		memcpy(addr, &value, size);
		return;
	}
	if (recorder_armed)
		site_hits[s->id]++;
	if (recorder_at_store != NULL && !site_volatile[s->id])
		recorder_at_store(addr, size, value, s);
	memcpy(addr, &value, size);
	if (recorder_persist)
		add_store(&recorders[0], number, (unsigned) (offset % PMH_LINE),
				  (unsigned) size, value, (unsigned) s->id);
	else
	{
		make_durable(&recorders[0], number, line_at(0, number));
		if (recorder_at_killed != NULL && !site_volatile[s->id])
			recorder_at_killed(s);
	}
}

void
pm_record_store(void *addr, size_t size, uint64_t value, const PmSite *s)
{
	unsigned	level = level_of(addr);
	size_t		offset;

	if (level == 0)
	{
		store_level0(addr, size, value, s);
		return;
	}
	offset = (size_t) ((char *) addr - memories[level].base);
	note_use(level, offset);
	memory_touch(level, (uint32_t) (offset / PMH_LINE));
	memcpy(addr, &value, size);
	if (level == 1 && level1_started && !is_run_area(offset))
		add_store(&recorders[1], (uint32_t) (offset / PMH_LINE),
				  (unsigned) (offset % PMH_LINE), (unsigned) size, value,
				  (unsigned) s->id);
}

/* As a mutant it is a store that is not flushed. */
void
pm_record_commit(const PmFile *f, void *addr, size_t size, uint64_t v, const PmSite *s)
{
	pm_record_store(addr, size, v, s);
	pm_record_flush(f, addr, size, s);
}

/* Note pm_copy to a line as words, or, for a mutant, as stores. */
static void
add_copy(Recorder *r, uint32_t number, unsigned first_word, unsigned nwords,
		 const char *src, unsigned id)
{
	Line	   *line;

	if (suppressed[id])
	{
		for (unsigned w = 0; w < nwords; w++)
		{
			uint64_t	value;

			memcpy(&value, src + 8 * w, 8);
			add_store(r, number, 8 * (first_word + w), 8, value, id);
		}
		return;
	}
	line = pending_line(r, number);
	for (unsigned w = 0; w < nwords; w++)
		memcpy(&line->copy[first_word + w], src + 8 * w, 8);
	line->copy_site = (uint16_t) id;
	set_copied(r, line, (uint8_t) (line->copied | ((1u << nwords) - 1) << first_word));
	r->unfenced = true;
}

void
pm_record_copy(const PmFile *f, void *dst, const void *src, size_t len,
			   const PmSite *s)
{
	unsigned	level = level_of(dst);
	size_t		at = (size_t) ((char *) dst - memories[level].base);
	const char *from = src;

	if (at % 8 != 0 || len % 8 != 0)
		abort();
	if (level == 0 && recorder_armed)
		site_hits[s->id]++;
	while (len > 0)
	{
		uint32_t	number = (uint32_t) (at / PMH_LINE);
		size_t		room = PMH_LINE - at % PMH_LINE;
		size_t		n = len < room ? len : room;

		note_use(level, at);
		if (level > 0)
			memory_touch(level, number);
		memcpy(memories[level].base + at, from, n);
		if (level == 0 && !f->persist)
		{
			make_durable(&recorders[0], number, line_at(0, number));
			if (recorder_at_killed != NULL)
				recorder_at_killed(s);
		}
		else if (level == 0 || (level == 1 && level1_started))
			add_copy(&recorders[level], number, (unsigned) (at % PMH_LINE) / 8,
					 (unsigned) n / 8, from, (unsigned) s->id);
		at += n;
		from += n;
		len -= n;
	}
}

void
pm_record_flush(const PmFile *f, const void *addr, size_t len, const PmSite *s)
{
	unsigned	level = level_of(addr);
	Recorder   *r;
	uint32_t	first;
	uint32_t	last;

	if (!f->persist || level > 1 || (level == 1 && !level1_started))
		return;
	r = &recorders[level];
	first = number_of(level, addr);
	last = number_of(level, (const char *) addr + len - 1);
	if (level == 0 && recorder_armed)
		site_hits[s->id]++;
	if (suppressed[s->id])
		return;
	for (uint32_t number = first; number <= last; number++)
	{
		Line	   *line = r->line[number];

		if (line == NULL || line->flushed == line->n)
			continue;
		line->flushed = line->n;
		r->unfenced = true;
	}
}

void
pm_record_fence(const PmFile *f, const PmSite *s)
{
	unsigned	level = level_of(f->base);
	Recorder   *r;

	if (!f->persist || level > 1 || (level == 1 && !level1_started))
		return;
	r = &recorders[level];
	if (level == 0 && recorder_armed)
		site_hits[s->id]++;
	if (suppressed[s->id])
		return;
	if (recorder_at_fence != NULL)
		recorder_at_fence(level, s);
	for (size_t i = r->npending; i-- > 0;)
	{
		Line	   *line = r->pending[i];

		/* A copy past the cache first writes back what the cache has. */
		if (line->copied != 0 && line->flushed < line->before_copy)
			line->flushed = line->before_copy;
		if (line->flushed > 0 || line->copied != 0)
			complete(r, line, line->flushed, true);
	}
	r->unfenced = false;
}

PmhResult
pm_sync(const PmFile *f, PmhError *error)
{
	Recorder   *r = &recorders[0];

	(void) error;
	if (level_of(f->base) > 0)
		return PMH_OK;			/* where recovery begins nothing is pending */
	for (size_t i = 0; i < r->npending; i++)
		r->pending[i]->flushed = r->pending[i]->n;
	pm_fence(f);
	return PMH_OK;
}

void
pm_record_unlock(const uint64_t *lock)
{
	if (recorder_at_unlock != NULL)
		recorder_at_unlock(lock);
}

/* ---- files ---- */

static int
find_file(const char *path)
{
	for (int i = 0; i < FILES; i++)
	{
		if (strcmp(file_name[i], path) == 0)
			return i;
	}
	return -1;
}

static void
set_file(PmFile *f, unsigned file)
{
	f->fd = -1;
	f->base = memory_file(recorder_level, file);
	f->bound = memories[recorder_level].length[file];
	f->addresses = FILE_BYTES;
	f->is_pmem = recorder_persist;
	f->persist = recorder_persist;
	f->lost = 0;
}

static unsigned
file_of(const PmFile *f)
{
	return (unsigned) ((size_t) (f->base - memories[level_of(f->base)].base) / FILE_BYTES);
}

/* Blocks of a file have space from now on, or none. */
static void
set_holes(const PmFile *f, size_t from, size_t to, bool hole)
{
	Memory	   *m = &memories[level_of(f->base)];

	for (size_t block = from / PMH_BLOCK_SIZE; block < to / PMH_BLOCK_SIZE; block++)
		m->hole[file_of(f)][block] = hole;
}

void
memory_take_holes(unsigned level)
{
	memcpy(memories[level].hole, memories[0].hole, sizeof(memories[0].hole));
	memories[level].hole_used = false;
}

bool
memory_is_hole(unsigned level, unsigned file, uint64_t block)
{
	return memories[level].hole[file][block];
}

bool
memory_hole_used(unsigned level)
{
	return memories[level].hole_used;
}

/* A file has been made so long, also after a crash: at level 0 for good, else in this recovery. */
static void
set_length(unsigned level, unsigned file, size_t length)
{
	memories[level].length[file] = length;
	for (unsigned above = level + 1; above < LEVELS; above++)
		memories[above].length[file] = memories[above].rest_length[file] = length;
}

PmhResult
pm_create(PmFile *f, const char *path, size_t size, bool force_pmem, PmhError *error)
{
	int			file = find_file("");

	(void) force_pmem;
	if (file < 0 || recorder_level != 0)
		return pmh_fill_error(error, PMH_ERR_IO, EMFILE, 0, "Too many files.");
	strcpy(file_name[file], path);
	set_length(0, (unsigned) file, size);
	set_file(f, (unsigned) file);
	return PMH_OK;
}

PmhResult
pm_open(PmFile *f, const char *path, bool force_pmem, PmhError *error)
{
	int			file = find_file(path);

	(void) force_pmem;
	if (file < 0)
		return pmh_fill_error(error, PMH_ERR_NO_FILE, ENOENT, 0, "No such file.");
	set_file(f, (unsigned) file);
	return PMH_OK;
}

void
pm_close(PmFile *f)
{
	memset(f, 0, sizeof(*f));
	f->fd = -1;
}

void
pm_read_ahead(const PmFile *f, const void *address, size_t size)
{
	(void) f;
	(void) address;
	(void) size;
}

bool
pm_is_resident(const PmFile *f, const void *address)
{
	(void) f;
	(void) address;
	return true;
}

PmhResult
pm_extend(PmFile *f, size_t from, size_t to, PmhError *error)
{
	unsigned	level = level_of(f->base);
	unsigned	file = file_of(f);

	if (to > FILE_BYTES)
		return pmh_fill_error(error, PMH_ERR_NO_SPACE, ENOSPC, 0, "The memory is full.");
	if (to > memories[level].length[file])
		set_length(level, file, to);
	set_holes(f, from, to, false);
	return PMH_OK;
}

/*
 * What is in a block without space may be anything: we leave it as it is, so that an image
 * shows what still relies on it.  A crash does not bring the space back.
 */
PmhResult
pm_punch(PmFile *f, size_t from, size_t to, PmhError *error)
{
	(void) error;
	set_holes(f, from, to, true);
	return PMH_OK;
}

PmhResult
pm_raise_bound(PmFile *f, size_t size, PmhError *error)
{
	(void) error;
	if (size > f->bound)
		f->bound = size;
	return PMH_OK;
}

void
pm_hold(PmFile *f)
{
	(void) f;
}

void
pm_let_go(PmFile *f)
{
	(void) f;
}

