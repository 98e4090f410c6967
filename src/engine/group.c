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

#include "bucket.h"
#include "compiler.h"
#include "error.h"
#include "handle.h"
#include "layout.h"
#include "lock.h"
#include "pm.h"
#include "segment.h"
#include "sort.h"
#include "space.h"
#include "table.h"

/* So many pairs of one hash are deleted in one walk along its list. */
#define DRAIN_MIN	4

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
 * segments can be locked at once; no process waits while it holds a lock.  If
 * not 'wait', not by others either: PMH_RETRY if the first one's is locked.
 * PMH_OK, PMH_NEED (nothing locked), or a real error.
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
			PmhResult	result = wait && which == 0 ?
				pmh_segment_lock(t, hash, &g->locked[which]) :
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

static void
commit_pending(PmhTable *t, PmhPending *pending)
{
	PMH_ASSERT(pending->n <= PMH_GROUP_MAX);
	if (pending->ordered)
		pm_fence(&t->file);
	for (unsigned i = 0; i < pending->n; i++)
		pmh_bucket_commit(t, pending->bucket[i], pending->change[i]);
	pending->n = 0;
	pending->ordered = false;
}

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
			commit_pending(t, &pending);
			result = pmh_segment_prepare(t, place, e->hash, e->value, &pending);
		}
		if (result != PMH_OK)
			break;
	}
	commit_pending(t, &pending);
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

struct PmhRemovalPrivate
{
	PmhEntry   *entry;			/* in order of (hash, value) */
	uint8_t    *state;			/* PmhPairState of each */
	size_t		n;
	size_t		at;				/* those before it have been seen to */
	bool		wait;
	bool		far;			/* the next one is far down a long list */
	PmhDrain   *drain;			/* at work on [at, drain_to), or NULL */
	size_t		drain_to;
	size_t		counted;		/* of those before it ... */
	size_t		counted_removed;	/* ... so many are gone ... */
	size_t		counted_left;	/* ... and so many have stayed */
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

/* The entries up to the next ones of one hash that pmh_drain is for. */
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
 * Take the entries of a locked group out; unlocks it.  *done: how many have been
 * seen to; state[] tells how.  PMH_OK; PMH_FAR: the next one is in a long list;
 * PMH_NEED, or a real error.
 */
static PmhResult
delete_locked(PmhTable *t, const Group *g, const PmhEntry *entries, bool wait,
			  unsigned *done, uint8_t *state)
{
	PmhResult	result = PMH_OK;

	PMH_ASSERT(g->n > 0 && g->nlocked > 0);
	for (*done = 0; *done < g->n; (*done)++)
	{
		result = pmh_segment_delete(t, &g->locked[g->which[*done]], entries[*done].hash,
									entries[*done].value, wait ? PMH_DELETE_WAIT : 0);
		if (!wait)
			pmh_space_release(t);
		if (result == PMH_OK)
			state[*done] = PMH_PAIR_REMOVED;
		else if (result == PMH_NOT_FOUND)
			state[*done] = PMH_PAIR_ABSENT;
		else if (result != PMH_BUSY)
			break;
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
delete_some(PmhTable *t, struct PmhRemovalPrivate *p, size_t n)
{
	const PmhEntry *entries = p->entry + p->at;
	Group		g;
	unsigned	done = 0;
	PmhResult	result = lock_group(t, &g, entries, n, p->wait);

	for (unsigned i = 0; result == PMH_RETRY && i < PMH_LOCK_TRIES; i++)
	{
		pmh_pause();
		result = lock_group(t, &g, entries, n, p->wait);
	}
	if (result == PMH_RETRY)
	{
		p->at++;
		return PMH_OK;
	}
	if (result == PMH_OK)
		result = delete_locked(t, &g, entries, p->wait, &done, p->state + p->at);
	p->at += done;
	p->far = result == PMH_FAR;
	if (p->far)
		return PMH_OK;
	return result == PMH_NEED ? pmh_provide(t) : result;
}

/* A piece of the walk along the list of the next key. */
static PmhResult
delete_in_list(PmhTable *t, struct PmhRemovalPrivate *p)
{
	PmhResult	result;

	PMH_ASSERT(p->at < p->n);
	if (p->drain == NULL)
	{
		size_t		same = same_hash(p->entry + p->at, p->n - p->at);

		p->drain = pmh_drain_begin(t, p->entry + p->at, same, p->wait, p->state + p->at);
		if (p->drain == NULL)
			return PMH_ERR_NO_MEMORY;
		p->drain_to = p->at + same;
	}
	result = pmh_drain_step(t, p->drain);
	if (result != PMH_DONE)
		return result;
	pmh_drain_end(p->drain);
	p->drain = NULL;
	p->at = p->drain_to;
	p->far = false;
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
	{
		p->entry = malloc((n + 1) * sizeof(PmhEntry));
		p->state = calloc(n + 1, 1);
	}
	if (p == NULL || p->entry == NULL || p->state == NULL)
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
	size_t		to;
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
		result = some > 0 ? delete_some(t, p, some) : delete_in_list(t, p);
	}

	/* Tell how far it has come. */
	to = p->drain != NULL ? p->drain_to : p->at;
	PMH_ASSERT(p->counted <= to && to <= p->n);
	removal->removed = p->counted_removed;
	removal->left = p->n - p->counted + p->counted_left;
	for (size_t i = p->counted; i < to; i++)
	{
		removal->removed += p->state[i] == PMH_PAIR_REMOVED;
		removal->left -= p->state[i] != PMH_PAIR_LEFT;
	}
	if (p->drain == NULL)
	{
		p->counted = to;
		p->counted_removed = removal->removed;
		p->counted_left = removal->left - (p->n - to);
	}
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
		if (p->drain != NULL)
			pmh_drain_end(p->drain);
		free(p->entry);
		free(p->state);
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
