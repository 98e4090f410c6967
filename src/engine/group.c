/*-------------------------------------------------------------------------
 *
 * group.c
 *	  Inserting and deleting many entries at a time.
 *
 * A processor waits for its flushes at every fence, and at every locked instruction, which
 * taking a lock needs.  So a group locks the segments of several entries first, does all its
 * stores and flushes, fences once before the commit stores and once after them, and then
 * unlocks.  No one else sees an entry that is not durable yet.  Cache lines are prefetched
 * well before.  See src/README, "Locks" and "Order of stores".  Pairs of one key that have a
 * long list are taken out in one walk along it.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "segment.h"
#include "sort.h"

/* So many pairs of one hash are deleted in one walk along its list. */
#define DRAIN_MIN	4

/* A bit for each of the values wanted there, by a hash: most others are sorted out at once. */
#define FILTER_BITS	12

/* The entries at work: each in a segment that is locked. */
typedef struct Group
{
	unsigned	n;
	unsigned	nlocked;
	PmhPlace	locked[PMH_GROUP_MAX];	/* their segments ... */
	uint64_t	prefix[PMH_GROUP_MAX];	/* ... and the first of the hash bits ... */
	uint64_t	mask[PMH_GROUP_MAX];	/* ... that tell their entries */
	uint8_t		which[PMH_GROUP_MAX];	/* which of these an entry is in */
} Group;

/* ---- asking for cache lines ---- */

#define RING	(4 * PMH_GROUP_MAX) /* homes kept: of more than are ahead */

/*
 * How far each stage has come, in entries counted from the first, and the homes
 * that the second has found.
 */
typedef struct Ahead
{
	size_t		page;
	size_t		element;
	size_t		bucket;
	size_t		line;
	PmhHome		home[RING];
} Ahead;

/* Inline all of it: a compiler may leave out the call of what only prefetches. */
typedef void (*PrefetchLine) (const PmhTable *t, const PmhHome *h, uint64_t hash);

/* The lock stripe and line 0 of the home bucket, if that is mapped here. */
static inline void __attribute__((always_inline))
prefetch_home(const PmhTable *t, uint64_t hash, PmhHome *h)
{
	if (unlikely(!pmh_home_find(t, hash, h)))
	{
		h->base = NULL;
		return;
	}
	__builtin_prefetch(h->version, 1);
	__builtin_prefetch(h->bucket, 1);
}

/*
 * The line an insert is likely to write, or the alternative bucket if the home is
 * so full that it will be needed.
 */
static inline void __attribute__((always_inline))
prefetch_free_line(const PmhTable *t, const PmhHome *h, uint64_t hash)
{
	uint32_t	state = pmh_bucket_state(h->bucket);

	if (unlikely(pmh_state_balances(state)))
		__builtin_prefetch(pmh_home_alternative(t, hash, h), 1);
	if (!pmh_state_full(state))
		__builtin_prefetch(h->bucket->bytes + PMH_LINE *
						   pmh_slot_line((unsigned) __builtin_ctz(~state)), 1);
}

/* The line of a slot with the right fingerprint. */
static inline void __attribute__((always_inline))
prefetch_slot_line(const PmhTable *t, const PmhHome *h, uint64_t hash)
{
	uint32_t	state;
	uint32_t	mask = pmh_bucket_match(h->bucket, pmh_hash_fingerprint(hash), &state) &
		~PMH_LINE0_MASK;

	(void) t;
	if (mask != 0)
		__builtin_prefetch(h->bucket->bytes + PMH_LINE *
						   pmh_slot_line((unsigned) __builtin_ctz(mask)), 1);
}

/*
 * The entries from 'at' on are next: prefetch what those after them need, each
 * stage for the lines that the next one reads.
 */
static inline void __attribute__((always_inline))
prefetch(PmhTable *t, const PmhEntry *entries, size_t n, size_t at,
		 Ahead *ahead, PrefetchLine line)
{
	if (unlikely(ahead->page < n && ahead->page < at + PMH_ASK_KEYS / 2))
		ahead->page += pmh_ask_for_homes(t, &entries[ahead->page].hash, 2,
										 n - ahead->page, line == prefetch_free_line);
	for (; ahead->element < n && ahead->element < at + 4 * PMH_GROUP_MAX;
		 ahead->element++)
		pmh_prefetch_element(t, entries[ahead->element].hash);
	for (; ahead->bucket < n && ahead->bucket < at + 3 * PMH_GROUP_MAX; ahead->bucket++)
		prefetch_home(t, entries[ahead->bucket].hash, &ahead->home[ahead->bucket % RING]);
	for (; ahead->line < n && ahead->line < at + 2 * PMH_GROUP_MAX; ahead->line++)
	{
		const PmhHome *h = &ahead->home[ahead->line % RING];

		if (likely(h->base == t->file.base))
			line(t, h, entries[ahead->line].hash);
	}
}

/* ---- locking ---- */

/* The segment of a hash among those that are locked, or nlocked. */
static inline unsigned
find_locked(const Group *g, uint64_t hash)
{
	PMH_ASSERT(g->nlocked <= PMH_GROUP_MAX);
	for (unsigned i = g->nlocked; i-- > 0;)
	{
		if ((hash & g->mask[i]) == g->prefix[i])
			return i;
	}
	return g->nlocked;
}

/*
 * Begin with the first of n entries and those after it, as far as their
 * segments can be locked at once; no process waits while it holds a lock.  PMH_OK, else
 * as pmh_segment_lock_or_leave (nothing locked).
 */
static PmhResult
lock_group(PmhTable *t, Group *g, const PmhEntry *entries, size_t n, bool wait)
{
	PMH_ASSERT(n > 0);
	g->nlocked = 0;
	for (g->n = 0; g->n < n && g->n < PMH_GROUP_MAX; g->n++)
	{
		uint64_t	hash = entries[g->n].hash;
		unsigned	which = find_locked(g, hash);

		if (which == g->nlocked)
		{
			PmhResult	result = which == 0 ?
				pmh_segment_lock_or_leave(t, hash, wait, &g->locked[which]) :
				pmh_segment_trylock(t, hash, &g->locked[which]);

			/* What keeps a later one away is seen to when it is the first. */
			if (result != PMH_OK)
				return which == 0 ? result : PMH_OK;
			g->mask[which] = pmh_segment_mask(pmh_elem_depth(g->locked[which].elem));
			g->prefix[which] = hash & g->mask[which];
			g->nlocked++;
		}
		g->which[g->n] = (uint8_t) which;
	}
	return PMH_OK;
}

/* What the group has done becomes durable before others go on from it. */
static void
unlock_group(PmhTable *t, const Group *g)
{
	PMH_ASSERT(g->nlocked <= g->n && !t->space_held);
	pm_fence(&t->file);
	for (unsigned i = 0; i < g->nlocked; i++)
		pmh_segment_unlock(&g->locked[i]);
}

/* ---- insert ---- */

/*
 * Insert the entries of a locked group, as far as that takes nothing but free
 * slots and lists; unlocks it.  *done: how many are in.  PMH_OK; or what
 * pmh_segment_prepare says of the first that is not.
 */
static PmhResult
insert_locked(PmhTable *t, const Group *g, const PmhEntry *entries, unsigned *done)
{
	PmhPending	pending;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(g->n > 0 && g->nlocked > 0);
	pending.n = 0;
	pending.ordered = false;
	for (*done = 0; *done < g->n; (*done)++)
	{
		const PmhEntry *e = &entries[*done];
		const PmhPlace *place = &g->locked[g->which[*done]];

		result = pmh_segment_prepare(t, place, e->hash, e->value, &pending);
		if (result == PMH_RETRY)
		{
			pmh_segment_commit(t, &pending);
			result = pmh_segment_prepare(t, place, e->hash, e->value, &pending);
		}
		if (result != PMH_OK)
			break;
	}
	pmh_segment_commit(t, &pending);
	unlock_group(t, g);
	return result;
}

/*
 * Insert some entries, the first of n at least.  *done: how many are in.  Where
 * fences cost nothing, one by one is quicker.
 */
static PmhResult
insert_some(PmhTable *t, const PmhEntry *entries, size_t n, unsigned *done)
{
	Group		g;
	PmhResult	result;

	*done = 0;
	if (!t->file.persist)
	{
		result = pmh_insert_one(t, entries->hash, entries->value, false);
		*done = result == PMH_OK;
		return result;
	}
	result = lock_group(t, &g, entries, n, true);
	if (result != PMH_OK)
		return result;
	result = insert_locked(t, &g, entries, done);
	if (result == PMH_NEED)
		return pmh_provide(t);
	if (result == PMH_NOT_FOUND)
	{
		result = pmh_insert_one(t, entries[*done].hash, entries[*done].value, false);
		*done += result == PMH_OK;
	}
	return result;
}

PmhResult
pmh_insert_group(PmhTable *table, const PmhEntry *entries, size_t n,
				 bool fence_first, size_t *done)
{
	Ahead		ahead;
	PmhResult	result = PMH_OK;

	*done = 0;
	ahead.page = ahead.element = ahead.bucket = ahead.line = 0;
	if (fence_first)
		pm_fence(&table->file);
	while (*done < n && result == PMH_OK)
	{
		unsigned	some;

		prefetch(table, entries, n, *done, &ahead, prefetch_free_line);
		result = insert_some(table, entries + *done, n - *done, &some);
		*done += some;
	}
	return pmh_conclude(table, result);
}

/* ---- many values of one key, in one walk along its list ---- */

/*
 * To look for each value from the end of the list on would take time in proportion to the
 * square of its length.  Here each buffer is compared with all wanted values at once.
 *
 * No process may have to wait for the length of a list.  So only the last buffers, where
 * most changes are, are worked on while the segment is locked; another one is read without a
 * lock, as a cursor reads it.  If there is a wanted value in it, the segment is locked, and
 * it is read once more.
 */

typedef struct Drain
{
	const PmhEntry *entry;		/* what is to go: of one hash, by value */
	size_t		n;
	size_t		left;			/* not claimed */
	bool		wait;
	bool		begun;
	bool		passed_over;	/* something has stayed since a lock was held */
	uint64_t	hash;
	PmhListPosition at;
	uint64_t	filter[(1 << FILTER_BITS) / 64];

	/* the buffer at hand: */
	uint16_t	mask[PMH_MAX_LINES];	/* cells that are to be cleared */
	uint32_t	nclaimed;
	size_t		claimed[PMH_STEP_MAX];

	bool		taken[];		/* each of the pairs: has been claimed */
} Drain;

static inline uint32_t
filter_bit(uint64_t value)
{
	return (uint32_t) (value * UINT64_C(0x9e3779b97f4a7c15) >> (64 - FILTER_BITS));
}

/* The first of the wanted pairs that is not seen to and has this value, or d->n. */
static inline size_t
find_wanted(const Drain *d, uint64_t value)
{
	uint32_t	bit = filter_bit(value);
	size_t		low = 0;
	size_t		high = d->n;

	if ((d->filter[bit / 64] >> (bit % 64) & 1) == 0)
		return d->n;
	while (low < high)
	{
		size_t		middle = (low + high) / 2;

		if (d->entry[middle].value < value)
			low = middle + 1;
		else
			high = middle;
	}
	while (low < d->n && d->entry[low].value == value && d->taken[low])
		low++;
	return low < d->n && d->entry[low].value == value ? low : d->n;
}

/* If the value is (still) wanted, it is claimed for the buffer at hand. */
static inline bool
claim(Drain *d, uint64_t value)
{
	size_t		at = find_wanted(d, value);

	if (at == d->n)
		return false;
	d->taken[at] = true;
	d->left--;
	d->claimed[d->nclaimed++] = at;
	return true;
}

/*
 * Take the plain entries that are wanted out of the buckets of a locked
 * segment.  To be done before the list is looked at: an entry may come from a
 * bucket into the list, but not the other way.
 */
static void
drain_buckets(PmhTable *t, const PmhPlace *place, Drain *d)
{
	uint32_t	bucket[4];
	unsigned	n = pmh_segment_buckets_of(t, place, d->hash, bucket);

	PMH_ASSERT(!d->begun && pmh_is_locked(&place->stripe->lock));
	d->nclaimed = 0;
	for (unsigned i = 0; i < n; i++)
	{
		PmhBucket  *b = pmh_bucket(t, place, bucket[i]);
		uint32_t	state;
		int			pointer;
		uint32_t	mask = pmh_bucket_find(b, d->hash, &state, &pointer);
		uint32_t	out = 0;

		for (; pointer < 0 && mask != 0; mask &= mask - 1)
		{
			unsigned	slot = (unsigned) __builtin_ctz(mask);

			if (claim(d, pmh_word_payload(pmh_slot_load_word(b, slot))))
				out |= UINT32_C(1) << slot;
		}
		if (out != 0)
			pmh_bucket_take(&t->file, b, pmh_bucket_version(place, bucket[i]), state, out);
	}
}

/* Take what is wanted out of the buffer of values that a path leads to. */
static PmhResult
drain_buffer(PmhTable *t, Drain *d, PmhListPath *path)
{
	uint64_t	payload = path->payload[0];
	uint32_t	class = pmh_pointer_class(payload);
	PmhResult	result = PMH_OK;

	PMH_ASSERT(payload != 0 && pmh_is_locked(&path->place->stripe->lock));
	d->nclaimed = 0;
	memset(d->mask, 0, sizeof(d->mask));
	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
	{
		const PmhValueLine *line = pmh_buffer_line(t, payload, i);

		for (uint32_t m = pm_load(&line->state) & pmh_line_cells(payload, i); m != 0; m &= m - 1)
		{
			unsigned	k = (unsigned) __builtin_ctz(m);

			if (claim(d, pmh_line_value(line, k)))
				d->mask[i] |= (uint16_t) (1u << k);
		}
	}
	if (d->nclaimed > 0)
		result = pmh_list_take_out(t, path, d->wait, d->mask);
	if (result != PMH_BUSY)
		return result;
	/* What was claimed stays for now. */
	for (uint32_t i = 0; i < d->nclaimed; i++)
		d->taken[d->claimed[i]] = false;
	d->left += d->nclaimed;
	PMH_ASSERT(d->left <= d->n);
	d->passed_over = true;
	return PMH_OK;
}

/*
 * With the segment locked: if it begins, the plain entries and the last buffers of the list;
 * else the last one in a slot below 'below'.
 */
static PmhResult
drain_locked(PmhTable *t, Drain *d, uint64_t *below)
{
	PmhPlace	place;
	uint32_t	lines = 0;
	PmhResult	result;

	PMH_ASSERT(*below > 0 && !t->space_held);
	PMH_STOP_POINT("drain_before_lock");
	result = pmh_segment_lock_or_leave(t, d->hash, d->wait, &place);
	if (result != PMH_OK)
		return result;
	if (!d->begun)
		drain_buckets(t, &place, d);
	do
	{
		PmhListPath path;

		if (!pmh_segment_find_list(t, &place, d->hash, &path))
		{
			*below = 0;
			break;
		}
		result = pmh_list_find_below(t, d->hash, &path, below);
		lines += pmh_class_lines(pmh_pointer_class(path.payload[0]));
		if (result == PMH_OK && path.payload[0] != 0)
			result = drain_buffer(t, d, &path);
		if (!d->wait)
			pmh_space_release(t);
	} while (result == PMH_OK && !d->begun && d->left > 0 && *below > 0 &&
			 lines + PMH_MAX_LINES <= PMH_LOCKED_LINES);
	pm_fence(&t->file);
	PMH_STOP_POINT("drain_before_unlock");
	pmh_segment_unlock(&place);
	d->begun |= result == PMH_OK;
	return result;
}

/*
 * See to the next buffer of the list.  It is read without a lock; has it anything that is
 * wanted?
 */
static PmhResult
drain_next(PmhTable *t, Drain *d)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = d->at;
	uint64_t	below = at.below;
	uint32_t	n;
	bool		found = false;
	PmhResult	result;

	PMH_ASSERT(d->begun && below > 0);
	result = pmh_list_next(t, d->hash, &at, UINT32_MAX, value, &n);
	for (uint32_t i = 0; d->n == 1 && i < n; i++)
		found |= value[i] == d->entry->value;
	for (uint32_t i = 0; d->n > 1 && i < n && !found; i++)
		found = find_wanted(d, value[i]) < d->n;
	/* A slot may have another buffer by now, but none that was there is in front of it. */
	if (result == PMH_OK && found)
	{
		below = at.below + 1;
		result = drain_locked(t, d, &below);
	}
	if (result == PMH_OK)
		d->at = at;
	/* The list does not stand still: who does not wait leaves the rest to others. */
	return result == PMH_RETRY && !d->wait ? PMH_BUSY : result;
}

/* Begin with n pairs.  NULL for want of memory (t->error set).  Keeps entries. */
static Drain *
begin_drain(PmhTable *t, const PmhEntry *entries, size_t n, bool wait)
{
	Drain	   *d = malloc(sizeof(*d) + n * sizeof(bool));

	PMH_ASSERT(n > 0 && entries[0].hash == entries[n - 1].hash);
	PMH_ASSERT(entries[0].value <= entries[n - 1].value);
	if (d == NULL)
	{
		(void) pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
						"There is no memory to delete %zu values of one key.", n);
		return NULL;
	}
	memset(d, 0, offsetof(Drain, mask));
	memset(d->taken, 0, n * sizeof(bool));
	d->entry = entries;
	d->n = d->left = n;
	d->wait = wait;
	d->hash = entries[0].hash;
	d->at = PMH_LIST_START;
	for (size_t i = 0; i < n; i++)
	{
		uint32_t	bit = filter_bit(entries[i].value);

		d->filter[bit / 64] |= UINT64_C(1) << (bit % 64);
	}
	return d;
}

/*
 * A piece: begin, or see to a buffer.  PMH_OK: there is more; PMH_DONE; or a real error.
 * When it is done, what is left is not there, unless something was passed over.
 */
static PmhResult
drain_step(PmhTable *t, Drain *d)
{
	PmhResult	result;

	if (d->left == 0 || (d->begun && d->at.below == 0))
		return PMH_DONE;
	result = d->begun ? drain_next(t, d) : drain_locked(t, d, &d->at.below);
	if (result == PMH_NEED)
		return pmh_provide(t);
	if (result == PMH_BUSY)
	{
		d->passed_over = true;
		return PMH_DONE;
	}
	return result == PMH_RETRY ? PMH_OK : result;
}

PmhResult
pmh_drain_one(PmhTable *t, uint64_t hash, uint64_t value)
{
	const PmhEntry entry = {hash, value};
	Drain	   *d = begin_drain(t, &entry, 1, true);
	PmhResult	result = PMH_OK;

	if (d == NULL)
		return PMH_ERR_NO_MEMORY;
	while (result == PMH_OK)
		result = drain_step(t, d);
	PMH_ASSERT(!d->passed_over);
	if (result == PMH_DONE)
		result = d->left == 0 ? PMH_OK : PMH_NOT_FOUND;
	free(d);
	return result;
}

/* ---- delete ---- */

struct PmhRemovalPrivate
{
	PmhEntry   *entry;			/* in order of (hash, value) */
	size_t		n;
	size_t		at;				/* those before it have been seen to */
	bool		wait;
	bool		far;			/* the next one is far down a long list */
	Drain	   *drain;			/* at work on the next ones, or NULL */
};

/* How many entries from the first on have its hash? */
static size_t
same_hash(const PmhEntry *entries, size_t n)
{
	size_t		same = 1;

	PMH_ASSERT(n > 0);
	while (same < n && entries[same].hash == entries[0].hash)
		same++;
	return same;
}

/* The entries up to the next ones of one hash for a drain. */
static size_t
up_to_many(const PmhEntry *entries, size_t n)
{
	size_t		up_to = 0;

	while (up_to < n && up_to < PMH_GROUP_MAX)
	{
		size_t		same = same_hash(entries + up_to, n - up_to);

		if (same >= DRAIN_MIN)
			break;
		up_to += same;
	}
	return up_to;
}

/*
 * Take the next entries, a locked group, out; unlocks it.  PMH_OK; PMH_FAR: the next one
 * is in a long list; PMH_NEED, or a real error.
 */
static PmhResult
delete_locked(PmhTable *t, PmhRemoval *removal, const Group *g)
{
	struct PmhRemovalPrivate *p = removal->priv;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(g->n > 0 && g->nlocked > 0);
	for (unsigned i = 0; i < g->n; i++, p->at++)
	{
		const PmhEntry *e = &p->entry[p->at];

		result = pmh_segment_delete(t, &g->locked[g->which[i]], e->hash, e->value, p->wait);
		if (!p->wait)
			pmh_space_release(t);
		if (result != PMH_OK && result != PMH_NOT_FOUND && result != PMH_BUSY)
			break;
		removal->removed += result == PMH_OK;
		removal->left -= result != PMH_BUSY;
		result = PMH_OK;
	}
	unlock_group(t, g);
	return result;
}

/*
 * Take some of the next n entries out, one at least.  If not 'wait', pass over
 * what is locked just now.
 */
static PmhResult
delete_some(PmhTable *t, PmhRemoval *removal, size_t n)
{
	struct PmhRemovalPrivate *p = removal->priv;
	Group		g;
	PmhResult	result = lock_group(t, &g, p->entry + p->at, n, p->wait);

	if (result == PMH_BUSY)
	{
		p->at++;
		return PMH_OK;
	}
	if (result == PMH_OK)
		result = delete_locked(t, removal, &g);
	p->far = result == PMH_FAR;
	if (p->far)
		return PMH_OK;
	return result == PMH_NEED ? pmh_provide(t) : result;
}

/* A piece of the walk along the list of the next key. */
static PmhResult
delete_in_list(PmhTable *t, PmhRemoval *removal)
{
	struct PmhRemovalPrivate *p = removal->priv;
	Drain	   *d = p->drain;
	size_t		before;
	PmhResult	result;

	PMH_ASSERT(p->at < p->n);
	if (d == NULL)
	{
		d = p->drain = begin_drain(t, p->entry + p->at,
								   same_hash(p->entry + p->at, p->n - p->at), p->wait);
		if (d == NULL)
			return PMH_ERR_NO_MEMORY;
	}
	before = d->left;
	result = drain_step(t, d);
	removal->removed += before - d->left;
	removal->left -= before - d->left;
	if (result != PMH_DONE)
		return result;
	if (!d->passed_over)
		removal->left -= d->left;
	p->at += d->n;
	p->far = false;
	p->drain = NULL;
	free(d);
	return PMH_OK;
}

PmhResult
pmh_removal_begin(PmhTable *table, const PmhEntry *entries, size_t n, bool wait,
				  PmhRemoval *removal)
{
	struct PmhRemovalPrivate *p = calloc(1, sizeof(*p));

	memset(removal, 0, sizeof(*removal));
	removal->left = n;
	removal->priv = p;
	if (p != NULL)
		p->entry = malloc((n + 1) * sizeof(PmhEntry));
	if (p == NULL || p->entry == NULL)
	{
		pmh_removal_end(removal);
		return pmh_fail(table, PMH_ERR_NO_MEMORY, ENOMEM, 0,
						"There is no memory to sort %zu entries.", n);
	}
	p->n = n;
	p->wait = wait;
	if (n > 0)
		memcpy(p->entry, entries, n * sizeof(PmhEntry));
	(void) pmh_sort_entries(p->entry, n, NULL);
	return PMH_OK;
}

static PmhResult
removal_on(PmhTable *t, PmhRemoval *removal, size_t effort)
{
	struct PmhRemovalPrivate *p = removal->priv;
	Ahead		ahead;
	PmhResult	result = PMH_OK;

	ahead.page = ahead.element = ahead.bucket = ahead.line = p->at;
	for (; effort > 0 && p->at < p->n && result == PMH_OK; effort--)
	{
		size_t		some = 0;

		if (p->drain == NULL && !p->far)
		{
			if (ahead.line < p->at)
				ahead.element = ahead.bucket = ahead.line = p->at;
			prefetch(t, p->entry, p->n, p->at, &ahead, prefetch_slot_line);
			some = up_to_many(p->entry + p->at, p->n - p->at);
		}
		/* Durable when it unlocks. */
		result = some > 0 ? delete_some(t, removal, some) : delete_in_list(t, removal);
	}
	PMH_ASSERT(removal->removed + removal->left <= p->n);
	return result == PMH_OK && p->at == p->n ? PMH_DONE : result;
}

PmhResult
pmh_removal_step(PmhTable *table, PmhRemoval *removal, size_t effort)
{
	return pmh_conclude(table, removal_on(table, removal, effort));
}

void
pmh_removal_end(PmhRemoval *removal)
{
	struct PmhRemovalPrivate *p = removal->priv;

	if (p != NULL)
	{
		free(p->drain);
		free(p->entry);
		free(p);
	}
	removal->priv = NULL;
}

/* All of it at once. */
PmhResult
pmh_delete_group(PmhTable *table, const PmhEntry *entries, size_t n,
				 size_t *removed)
{
	PmhRemoval	removal;
	PmhResult	result;

	*removed = 0;
	result = pmh_removal_begin(table, entries, n, true, &removal);
	if (result == PMH_OK)
	{
		result = removal_on(table, &removal, SIZE_MAX);
		*removed = removal.removed;
		pmh_removal_end(&removal);
	}
	return pmh_conclude(table, result == PMH_DONE ? PMH_OK : result);
}
