/*-------------------------------------------------------------------------
 *
 * group.c
 *	  Inserting and deleting many entries at a time.
 *
 * A processor waits for its flushes at every fence, and at every locked instruction, which
 * taking a lock needs.  So a group locks the segments of several entries first, does all its
 * stores and flushes, fences once before the commit stores and once after them, and then
 * unlocks.  No one else sees an entry that is not durable yet.  Cache lines are prefetched
 * well before.  See src/README, "Locks" and "Order of stores".
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "segment.h"
#include "sort.h"

/*
 * So many pairs of one hash that are to go are a group of their own; and there is a bit for
 * each of them, by a hash of its value: most other values are sorted out at once.
 */
#define MANY_PAIRS	4
#define FILTER_BITS	12

/* Lines of lists that are searched while a segment is locked: some 5,000 values, 100 us. */
#define LOCKED_LINES	1024

/* What it costs to put what stays of a buffer into a smaller one, in such lines. */
#define PACK_LINES		32

/* A buffer to which values are added, and that becomes smaller, has room for a share more. */
#define HEAD_ROOM		4

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

/* ---- delete ---- */

/*
 * What goes of one key goes together.  To look for each value from the end of its list on
 * would take time in proportion to the square of the list's length: so each buffer is
 * compared with all wanted values at once.
 *
 * No process may have to wait for the length of a list.  So only the last buffers, where
 * most changes are, are worked on while the segment is locked with those of a group; another
 * one is read without a lock, as a cursor reads it.  If there is a wanted value in it, the
 * segment is locked, and it is read once more.
 */

/* Set in the value of a pair that has been taken out. */
#define TAKEN	(UINT64_C(1) << 63)

struct PmhRemovalPrivate
{
	PmhEntry   *entry;			/* in order of (hash, value) */
	size_t		n;
	size_t		at;				/* those before it have been seen to */
	bool		wait;
	bool		wants_space;	/* to put what stays of a buffer into a smaller one */
	bool		has_asked;		/* for it, once: what is free has to do now */

	/* the key at hand, that of the next pair: */
	size_t		pairs;			/* it has so many; ... */
	size_t		wanted;			/* ... of these, not taken out */
	bool		far;			/* all is done but for the list, ... */
	PmhListPosition list;		/* ... from here on */
	uint64_t	filter[(1 << FILTER_BITS) / 64];	/* of the values, if they are many */
};

/* How many of the next pairs make a group: a key with many is alone in one. */
static size_t
group_size(const struct PmhRemovalPrivate *p)
{
	const PmhEntry *e = p->entry + p->at;
	size_t		left = p->n - p->at;
	size_t		n = 0;

	PMH_ASSERT(left > 0);
	while (n < left && n < PMH_GROUP_MAX &&
		   (left - n < MANY_PAIRS || e[n + MANY_PAIRS - 1].hash != e[n].hash))
		n++;
	return n > 0 ? n : 1;
}

static inline uint32_t
filter_bit(uint64_t value)
{
	return (uint32_t) ((value & ~TAKEN) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - FILTER_BITS));
}

/* Begin with the key of the next pair, perhaps once more. */
static void
begin_key(struct PmhRemovalPrivate *p)
{
	const PmhEntry *e = p->entry + p->at;

	PMH_ASSERT(p->at < p->n);
	p->wanted = 0;
	p->far = false;
	for (p->pairs = 0; p->at + p->pairs < p->n && e[p->pairs].hash == e->hash; p->pairs++)
		p->wanted += (e[p->pairs].value & TAKEN) == 0;
	if (p->pairs < MANY_PAIRS)
		return;
	memset(p->filter, 0, sizeof(p->filter));
	for (size_t i = 0; i < p->pairs; i++)
	{
		uint32_t	bit = filter_bit(e[i].value);

		p->filter[bit / 64] |= UINT64_C(1) << (bit % 64);
	}
}

static void
end_key(struct PmhRemovalPrivate *p)
{
	PMH_ASSERT(p->wanted <= p->pairs && p->pairs > 0);
	p->at += p->pairs;
	p->far = false;
	PMH_ASSERT(p->at <= p->n);
}

/* The first of the pairs with this value that has not been taken out, or NULL. */
static inline PmhEntry *
find_wanted(const struct PmhRemovalPrivate *p, uint64_t value)
{
	PmhEntry   *e = p->entry + p->at;
	uint32_t	bit = filter_bit(value);
	size_t		low = 0;
	size_t		high = p->pairs;

	if (p->pairs == 1)
		return e->value == value ? e : NULL;
	if (p->pairs >= MANY_PAIRS && (p->filter[bit / 64] >> (bit % 64) & 1) == 0)
		return NULL;
	while (low < high)
	{
		size_t		middle = (low + high) / 2;

		if ((e[middle].value & ~TAKEN) < value)
			low = middle + 1;
		else
			high = middle;
	}
	while (low < p->pairs && e[low].value == (value | TAKEN))
		low++;
	return low < p->pairs && e[low].value == value ? &e[low] : NULL;
}

/* If the value is (still) wanted, it counts as taken out. */
static inline bool
claim(PmhRemoval *removal, uint64_t value)
{
	PmhEntry   *e = find_wanted(removal->priv, value);

	if (e == NULL)
		return false;
	PMH_ASSERT(removal->priv->wanted > 0);
	e->value |= TAKEN;
	removal->priv->wanted--;
	removal->removed++;
	return true;
}

/*
 * Take what is wanted out of the buffer of values that a path leads to.  If that may free it,
 * who does not wait passes it over unless the space lock is free.
 *
 * Where many go, what stays in a buffer goes into a smaller one if that is no more than half of
 * it, and with the buffer of the first slot, the last that a walk comes to, the index too: where
 * there is room nearest to the start of the file.  So value blocks further on become empty.  If
 * there is no room at all, it stays as it is.
 *
 * Returns what that has cost, in lines that are looked at.
 */
static uint32_t
delete_in_buffer(PmhTable *t, PmhRemoval *removal, PmhListPath *path)
{
	struct PmhRemovalPrivate *p = removal->priv;
	uint64_t	hash = p->entry[p->at].hash;
	uint64_t	payload = path->payload[0];
	uint32_t	class = pmh_pointer_class(payload);
	uint32_t	lines = pmh_class_lines(class);
	uint32_t	needed;			/* class for what stays */
	uint32_t	last = 0;
	uint64_t	value[PMH_VALUES_PER_LINE];
	uint16_t	mask[PMH_MAX_LINES];
	uint32_t	rest = 0;		/* values that stay */
	bool		any = false;	/* is wanted */
	PmhResult	result;

	PMH_ASSERT(payload != 0 && pmh_is_locked(&path->place->stripe->lock));
	if (!p->wait && pmh_buffer_count(t, payload) <= p->wanted && !pmh_space_trylock(t))
		return lines;
	for (uint32_t i = pmh_class_first_line(class); i < lines; i++)
	{
		const PmhValueLine *line = pmh_buffer_line(t, payload, i);
		uint32_t	cells = pm_load(&line->state) & pmh_line_cells(payload, i);
		uint32_t	n = pmh_line_read(line, cells, value);

		mask[i] = 0;
		for (uint32_t k = 0; k < n; k++, cells &= cells - 1)
		{
			if (claim(removal, value[k]))
				mask[i] |= (uint16_t) (cells & -cells);
			else
				rest++;
		}
		any |= mask[i] != 0;
	}
	PMH_ASSERT(rest <= pmh_class_capacity(class));
	if (any)
		pmh_list_take_out(t, path, rest > 0 ? mask : NULL);
	pmh_space_release(t);
	if (!any || rest == 0 || rest * 2 > pmh_class_capacity(class) || p->pairs < MANY_PAIRS ||
		!p->wait)
		return lines;

	/* To the buffer of the last slot values are added. */
	if (path->payload[1] != 0)
		(void) pmh_index_last(t, path->payload[1], UINT32_MAX, &last);
	if (path->payload[1] == 0 || path->slot[1] == last)
		rest += rest / HEAD_ROOM;
	needed = pmh_buffer_class_for(rest);
	if (needed >= class)
		return lines;
	PMH_ASSERT(path->payload[0] == payload && path->head != 0);
	result = pmh_list_rewrite(t, path, hash, needed, NULL);
	if (result == PMH_OK)
		pmh_count(&pmh_run(t)->list_rewrites, 1);
	if (result == PMH_OK && path->payload[1] != 0 && path->slot[1] == 0)
		result = pmh_list_move_index(t, path, hash);
	if (result == PMH_NEED && p->has_asked)
		memset(&t->need, 0, sizeof(t->need));
	else if (result == PMH_NEED)
		p->wants_space = true;
	return lines + PACK_LINES;
}

/*
 * Take what is wanted of the key at hand out of its buckets in a locked segment, and out of
 * the last buffers of its list, of which 'lines' may still be looked at.  Then p->far tells
 * whether the list goes on.  PMH_OK, PMH_NEED, or a real error.
 */
static PmhResult
delete_key(PmhTable *t, const PmhPlace *place, PmhRemoval *removal, uint32_t *lines)
{
	struct PmhRemovalPrivate *p = removal->priv;
	uint64_t	hash = p->entry[p->at].hash;
	uint64_t	below = UINT64_MAX;
	uint32_t	bucket[4] = {pmh_home_bucket(hash, place->hashing)};
	unsigned	n = 1;
	PmhListPath path;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock) && !p->far);
	path.head = 0;
	for (unsigned i = 0; i < n && p->wanted > 0; i++)
	{
		PmhBucket  *b = pmh_bucket(t, place, bucket[i]);
		uint32_t	state;
		int			pointer;
		uint32_t	mask = pmh_bucket_find(b, hash, &state, &pointer);
		uint32_t	out = 0;

		if (pointer >= 0)
		{
			path = (PmhListPath) {
				.head = pmh_word_payload(pmh_slot_load_word(b, (unsigned) pointer)),
				.place = place, .bucket = bucket[i], .bucket_slot = (unsigned) pointer
			};
			mask = 0;
		}
		for (; mask != 0; mask &= mask - 1)
		{
			unsigned	slot = (unsigned) __builtin_ctz(mask);

			if (claim(removal, pmh_word_payload(pmh_slot_load_word(b, slot))))
				out |= UINT32_C(1) << slot;
		}
		if (out != 0)
			pmh_bucket_take(&t->file, b, pmh_bucket_version(place, bucket[i]), state, out);
		/* Nearly all are at home: the others are looked for when it is not. */
		if (i == 0 && p->wanted > 0)
			n = pmh_segment_buckets_of(t, place, hash, bucket);
	}
	while (path.head != 0 && below > 0 && p->wanted > 0)
	{
		if (*lines < PMH_MAX_LINES + PACK_LINES)
		{
			p->far = true;
			p->list = PMH_LIST_START;
			p->list.below = below;
			break;
		}
		result = pmh_list_find_below(t, hash, &path, &below);
		if (result != PMH_OK || path.payload[0] == 0)
			break;
		*lines -= delete_in_buffer(t, removal, &path);
	}
	return result;
}

/* The next pairs, as a group.  As delete_key, or PMH_BUSY: nothing is done. */
static PmhResult
delete_group(PmhTable *t, PmhRemoval *removal)
{
	struct PmhRemovalPrivate *p = removal->priv;
	uint32_t	lines = LOCKED_LINES;
	size_t		begin = p->at;
	Group		g;
	PmhResult	result = lock_group(t, &g, p->entry + p->at, group_size(p), p->wait);

	PMH_ASSERT(p->pairs > 0 && !p->far);
	if (result != PMH_OK)
		return result;
	for (;;)
	{
		result = delete_key(t, &g.locked[g.which[p->at - begin]], removal, &lines);
		if (result != PMH_OK || p->far)
			break;
		end_key(p);
		if (p->at - begin >= g.n)
			break;
		begin_key(p);
	}
	unlock_group(t, &g);
	return result;
}

/*
 * See to the next buffer of the list of the key at hand.  It is read without a lock; has it
 * anything that is wanted?
 */
static PmhResult
delete_far(PmhTable *t, PmhRemoval *removal)
{
	struct PmhRemovalPrivate *p = removal->priv;
	uint64_t	hash = p->entry[p->at].hash;
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = p->list;
	uint32_t	n;
	bool		found = false;
	PmhPlace	place;
	PmhResult	result = pmh_list_next(t, hash, &at, UINT32_MAX, value, &n);

	PMH_ASSERT(p->far && p->wanted > 0 && !t->space_held);
	for (uint32_t i = 0; i < n && !found; i++)
		found = find_wanted(p, value[i]) != NULL;
	if (result == PMH_OK && found)
	{
		PMH_STOP_POINT("drain_before_lock");
		result = pmh_segment_lock_or_leave(t, hash, p->wait, &place);
	}
	if (result == PMH_OK && found)
	{
		/* A slot may have another buffer by now; none that was there is in front of it. */
		uint64_t	below = at.below + 1;
		PmhListPath path;

		if (pmh_segment_find_list(t, &place, hash, &path) &&
			(result = pmh_list_find_below(t, hash, &path, &below)) == PMH_OK &&
			path.payload[0] != 0)
			(void) delete_in_buffer(t, removal, &path);
		pm_fence(&t->file);
		PMH_STOP_POINT("drain_before_unlock");
		pmh_segment_unlock(&place);
	}
	if (result == PMH_OK)
	{
		p->list = at;
		if (at.below == 0 || p->wanted == 0)
			end_key(p);
	}
	return result;
}

/* So many groups, or buffers of long lists.  PMH_DONE: these were the last ones. */
static PmhResult
removal_on(PmhTable *t, PmhRemoval *removal, size_t effort)
{
	struct PmhRemovalPrivate *p = removal->priv;
	Ahead		ahead;
	PmhResult	result = PMH_OK;

	ahead.page = ahead.element = ahead.bucket = ahead.line = p->at;
	for (; effort > 0 && p->at < p->n && result == PMH_OK; effort--)
	{
		if (p->far)
			result = delete_far(t, removal);
		else
		{
			if (ahead.line < p->at)
				ahead.element = ahead.bucket = ahead.line = p->at;
			prefetch(t, p->entry, p->n, p->at, &ahead, prefetch_slot_line);
			begin_key(p);
			result = delete_group(t, removal);
		}
		if (result == PMH_NEED || (result == PMH_OK && p->wants_space))
		{
			result = pmh_provide_if_possible(t, &p->has_asked);
			p->has_asked |= p->wants_space;
			p->wants_space = false;
		}
		else if (result == PMH_BUSY)
		{
			end_key(p);
			result = PMH_OK;
		}
	}
	PMH_ASSERT(removal->removed <= p->n);
	return result == PMH_OK && p->at == p->n ? PMH_DONE : result;
}

PmhResult
pmh_removal_begin(PmhTable *table, const PmhEntry *entries, size_t n, bool wait,
				  PmhRemoval *removal)
{
	struct PmhRemovalPrivate *p = calloc(1, sizeof(*p));

	memset(removal, 0, sizeof(*removal));
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
		free(p->entry);
		free(p);
	}
	removal->priv = NULL;
}

PmhResult
pmh_delete_one(PmhTable *t, uint64_t hash, uint64_t value)
{
	PmhEntry	entry = {hash, value};
	struct PmhRemovalPrivate p = {.entry = &entry, .n = 1, .wait = true};
	PmhRemoval	removal = {.priv = &p};
	PmhResult	result = removal_on(t, &removal, SIZE_MAX);

	PMH_ASSERT(result != PMH_OK && value <= PMH_VALUE_MAX);
	if (result != PMH_DONE)
		return result;
	return removal.removed == 1 ? PMH_OK : PMH_NOT_FOUND;
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
