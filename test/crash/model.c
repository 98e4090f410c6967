/*-------------------------------------------------------------------------
 *
 * model.c
 *	  The pairs that the table should hold: an array with a hash table.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "crash.h"

static inline uint32_t
chain_of(const Model *m, uint64_t hash, uint64_t value)
{
	uint64_t	x = (hash ^ value * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);

	return (uint32_t) (x >> 32) & (m->nheads - 1);
}

/* Of all that an entry means to a check. */
static uint64_t
entry_hash(const ModelEntry *e)
{
	return crash_mix(crash_mix(e->pair.hash ^ crash_mix(e->pair.value + e->maybe)) + e->lsn);
}

static void *
grow(void *array, size_t n, size_t size)
{
	array = realloc(array, n * size);
	if (array == NULL)
		abort();
	return array;
}

static void
link_entry(Model *m, uint32_t i)
{
	uint32_t   *head = &m->head[chain_of(m, m->entry[i].pair.hash, m->entry[i].pair.value)];

	m->entry[i].next = *head;
	*head = i;
}

static void
unlink_entry(Model *m, uint32_t i)
{
	uint32_t   *at = &m->head[chain_of(m, m->entry[i].pair.hash, m->entry[i].pair.value)];

	while (*at != i)
		at = &m->entry[*at].next;
	*at = m->entry[i].next;
}

void
model_clear(Model *m)
{
	m->n = 0;
	m->nmaybe = 0;
	m->sum = 0;
	m->all_or_nothing = false;
	if (m->nheads == 0)
	{
		m->nheads = 256;
		m->head = grow(NULL, m->nheads, sizeof(uint32_t));
	}
	memset(m->head, 0xff, m->nheads * sizeof(uint32_t));
}

uint32_t
model_find(const Model *m, uint64_t hash, uint64_t value)
{
	uint32_t	i = m->head[chain_of(m, hash, value)];

	while (i != NO_ENTRY &&
		   (m->entry[i].pair.hash != hash || m->entry[i].pair.value != value))
		i = m->entry[i].next;
	return i;
}

uint32_t
model_add(Model *m, uint64_t hash, uint64_t value)
{
	uint32_t	i = m->n++;

	if (i == m->room)
	{
		m->room = m->room ? 2 * m->room : 1024;
		m->entry = grow(m->entry, m->room, sizeof(ModelEntry));
	}
	memset(&m->entry[i], 0, sizeof(ModelEntry));
	m->entry[i].pair.hash = hash;
	m->entry[i].pair.value = value;
	m->sum += entry_hash(&m->entry[i]);
	if (m->n <= 2 * m->nheads)
		link_entry(m, i);
	else
	{
		m->nheads *= 4;
		m->head = grow(m->head, m->nheads, sizeof(uint32_t));
		memset(m->head, 0xff, m->nheads * sizeof(uint32_t));
		for (uint32_t k = 0; k < m->n; k++)
			link_entry(m, k);
	}
	return i;
}

void
model_remove(Model *m, uint32_t i)
{
	uint32_t	last = m->n - 1;

	model_set_maybe(m, i, false);
	m->sum -= entry_hash(&m->entry[i]);
	unlink_entry(m, i);
	if (i != last)
	{
		unlink_entry(m, last);
		m->entry[i] = m->entry[last];
		link_entry(m, i);
	}
	m->n--;
}

void
model_set_maybe(Model *m, uint32_t i, bool maybe)
{
	m->nmaybe = m->nmaybe + maybe - m->entry[i].maybe;
	m->sum -= entry_hash(&m->entry[i]);
	m->entry[i].maybe = maybe;
	m->sum += entry_hash(&m->entry[i]);
}

void
model_set_lsn(Model *m, uint32_t i, uint64_t lsn)
{
	m->sum -= entry_hash(&m->entry[i]);
	m->entry[i].lsn = lsn;
	m->sum += entry_hash(&m->entry[i]);
}
