/*-------------------------------------------------------------------------
 *
 * dead_list.c
 *	  Shared lists of entries that are known to be dead and not removed yet.
 *
 * An entry that a scan has found dead may have to wait for a flush of WAL before it can be
 * removed (dead_entries.c), and a queue would visit such rows thousands of times.  While it is
 * in the list of its file scans pass over it (pmhash_known_dead), and any of them removes it
 * when it may go.
 *
 * The list is of one file and one removal epoch, the one from before its entries were read.
 * If that is still the file's after a TID was found in the list, a visit of the row at that
 * moment would have found it dead (src/README, "Scans and VACUUM").  The list goes by the TID
 * alone: what is dead is the row, whatever leads to it.
 *
 * A list has two parts.  The ring has all that waits, in the order of what it waits
 * for.  The words are for looking up a TID: a set of one cache line, which is read
 * without a lock.  A word stands for 16 neighbours, a bit each: what is dead in a queue
 * are neighbouring rows, so a look-up that passes over hundreds meets few words, which
 * are in its cache.  What finds no word in its set waits all the same, and is
 * visited.  The list belongs to another file, or to another epoch, after a change of
 * the number 'change', which is odd meanwhile; a reader that finds the same even
 * number before and after has read of one owner.
 *
 * A file's list is one of two.  If other files have both, and still need them, nothing can be
 * noted: it is found again, and visited again.  A list is not needed any more if WAL is flushed
 * up to what its last entry waits for: scans of its file would have come and taken all of it.
 *
 * What is taken out of the ring to be removed keeps its word until that is done
 * (drop_batch): the process that does it may lose the processor for
 * milliseconds, and all others would visit those rows again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/file/files.h"

#define LISTS			PMHASH_DEAD_LISTS	/* 448 kB each */
#define SETS			1024	/* a power of two */
#define SET_WORDS		8		/* one cache line */
#define GROUP_BITS		4		/* neighbours in a word */
#define GROUP			(1 << GROUP_BITS)

/* An entry that waits. */
typedef struct Waiting
{
	PmhEntry	entry;
	XLogRecPtr	end;			/* for a flush up to here, the end of a record; what made
								 * it dead is not past it */
} Waiting;

/* Words in one cache line or another, whatever is before them. */
#define CACHE_LINE		64

/* What readers look at when nothing has changed is on a cache line of its own. */
typedef struct PmhashDeadList
{
	pg_atomic_uint64 change;
	pg_atomic_uint64 file_id;	/* 0: no file's */
	pg_atomic_uint64 epoch;
	pg_attribute_aligned(CACHE_LINE)
	pg_atomic_uint32 n;			/* that wait; changed with the lock held */
	pg_atomic_uint32 known;		/* values in words; likewise */
	uint32		head;			/* the first of them in the ring; the rest needs the lock */
	XLogRecPtr	last_end;		/* of the last of them */
	int64		since;
	Waiting		ring[PMHASH_DEAD_MAX];

	/*
	 * The number of a group of values in the upper bits, and a bit for each of it that
	 * is known; 0: free.
	 */
	pg_attribute_aligned(CACHE_LINE)
	pg_atomic_uint64 word[SETS][SET_WORDS];
} PmhashDeadList;

StaticAssertDecl(PMH_VALUE_BITS - GROUP_BITS + GROUP <= 64,
				 "a word has room for the number of a group and a bit for each value");

/* Bytes of shared memory. */
Size
pmhash_dead_lists_size(void)
{
	return mul_size(LISTS, sizeof(PmhashDeadList));
}

/* Called once, when shared memory is made. */
void
pmhash_dead_lists_init(void)
{
	PmhashDeadList *lists;
	bool		found;

	lists = ShmemInitStruct("pmhash dead entries", pmhash_dead_lists_size(), &found);
	memset(lists, 0, pmhash_dead_lists_size());
	for (int i = 0; i < LISTS; i++)
	{
		pg_atomic_init_u64(&lists[i].change, 0);
		pg_atomic_init_u64(&lists[i].file_id, 0);
		pg_atomic_init_u64(&lists[i].epoch, 0);
		pg_atomic_init_u32(&lists[i].n, 0);
		pg_atomic_init_u32(&lists[i].known, 0);
	}
	pmhash_shared->dead_lists = lists;
}

/* ---- the words ---- */

static inline uint64
group_of(uint64 value)
{
	return value >> GROUP_BITS;
}

static inline uint64
bit_of(uint64 value)
{
	return UINT64CONST(1) << (value % GROUP);
}

static inline pg_atomic_uint64 *
set_of(PmhashDeadList *list, uint64 group)
{
	uint64		mixed = group * UINT64CONST(0x9e3779b97f4a7c15);

	return list->word[(mixed >> 40) % SETS];
}

/* Add to a number that only holders of the lock change. */
static inline void
add_to(pg_atomic_uint32 *number, int summand)
{
	pg_atomic_write_u32(number, pg_atomic_read_u32(number) + summand);
}

/* The word of a group, or NULL, and what was in it; 0 if there is none. */
static inline pg_atomic_uint64 *
find_word(PmhashDeadList *list, uint64 group, uint64 *bits)
{
	pg_atomic_uint64 *set = set_of(list, group);

	for (int i = 0; i < SET_WORDS; i++)
	{
		*bits = pg_atomic_read_u64(&set[i]);
		if (*bits != 0 && *bits >> GROUP == group)
			return &set[i];
	}
	*bits = 0;
	return NULL;
}

/* ---- whose list it is ---- */

static LWLock *
lock_of(const PmhashDeadList *list)
{
	return pmhash_lwlock(PMHASH_NLOCKS + (list - pmhash_shared->dead_lists));
}

/* Which list may be a file's: 0 and 1. */
static inline PmhashDeadList *
list_of_file(const PmhashFile *file, int choice)
{
	return &pmhash_shared->dead_lists[(file->file_id % LISTS) ^ choice];
}

static inline bool
belongs_to(PmhashDeadList *list, const PmhashFile *file)
{
	return pg_atomic_read_u64(&list->file_id) == file->file_id;
}

/* The list that belongs to a file, or NULL; it may be another's at any moment. */
static inline PmhashDeadList *
find_list(const PmhashFile *file)
{
	for (int i = 0; i < 2; i++)
	{
		PmhashDeadList *list = list_of_file(file, i);

		if (belongs_to(list, file))
			return list;
	}
	return NULL;
}

/* Give a list to a file, empty.  The lock is held. */
static void
change_owner(PmhashDeadList *list, const PmhashFile *file, uint64 epoch)
{
	pg_atomic_fetch_add_u64(&list->change, 1);	/* a full barrier, as below */
	for (int i = 0; i < SETS; i++)
	{
		for (int j = 0; j < SET_WORDS; j++)
			pg_atomic_write_u64(&list->word[i][j], 0);
	}
	pg_atomic_write_u32(&list->n, 0);
	pg_atomic_write_u32(&list->known, 0);
	pg_atomic_write_u64(&list->file_id, file->file_id);
	pg_atomic_write_u64(&list->epoch, epoch);
	list->last_end = InvalidXLogRecPtr;
	pg_atomic_fetch_add_u64(&list->change, 1);
}

/* Is it a file's, and for entries read in this epoch?  The lock is held. */
static inline bool
is_for(PmhashDeadList *list, const PmhashFile *file, uint64 epoch)
{
	return belongs_to(list, file) && pg_atomic_read_u64(&list->epoch) == epoch;
}

/*
 * Lock the list of a file for entries read in this epoch, which is still that of the
 * file; gives it a list, if it has none and there is one.  NULL: there is none; else
 * the lock is held.  (If the epoch has advanced meanwhile, the list is one that no
 * reader uses, and the next that notes something begins it anew.)
 */
static PmhashDeadList *
lock_list(const PmhashFile *file, uint64 epoch)
{
	PmhashDeadList *list = find_list(file);
	XLogRecPtr	flushed;

	if (list != NULL)
	{
		LWLockAcquire(lock_of(list), LW_EXCLUSIVE);
		if (is_for(list, file, epoch))
			return list;
		LWLockRelease(lock_of(list));
	}
	flushed = GetFlushRecPtr(NULL);
	for (int i = 0; i < 2; i++)
	{
		list = list_of_file(file, i);
		LWLockAcquire(lock_of(list), LW_EXCLUSIVE);
		if (belongs_to(list, file) || list->last_end <= flushed)
		{
			change_owner(list, file, epoch);
			return list;
		}
		LWLockRelease(lock_of(list));
	}
	return NULL;
}

/* ---- noting ---- */

/* For how many more entries the file's list has room; gives it one if it has none. */
int
pmhash_dead_list_room(const PmhashFile *file, uint64 epoch)
{
	PmhashDeadList *list;
	int			room = 0;

	if (pmhash_removal_epoch(file) != epoch)
		return 0;
	list = lock_list(file, epoch);
	if (list != NULL)
	{
		room = PMHASH_DEAD_MAX - pg_atomic_read_u32(&list->n);
		LWLockRelease(lock_of(list));
	}
	PMH_STOP_POINT("dead_room");
	return room;
}

/*
 * Put a value that is not there into the word of its group, or into a free one if its
 * set has one.  The lock is held.
 */
static void
add_to_word(PmhashDeadList *list, uint64 value)
{
	uint64		group = group_of(value);
	uint64		bits;
	pg_atomic_uint64 *word = find_word(list, group, &bits);

	if (word == NULL)
		bits = group << GROUP;
	for (int i = 0; word == NULL && i < SET_WORDS; i++)
	{
		pg_atomic_uint64 *other = &set_of(list, group)[i];

		if (pg_atomic_read_u64(other) == 0)
			word = other;
	}
	if (word == NULL)
		return;
	pg_atomic_write_u64(word, bits | bit_of(value));
	add_to(&list->known, 1);
}

/* Take a value out of its word, if it is in one.  The lock is held. */
static void
take_from_word(PmhashDeadList *list, uint64 value)
{
	uint64		bits;
	pg_atomic_uint64 *word = find_word(list, group_of(value), &bits);

	if ((bits & bit_of(value)) == 0)
		return;
	bits &= ~bit_of(value);
	pg_atomic_write_u64(word, bits % (1 << GROUP) == 0 ? 0 : bits);
	add_to(&list->known, -1);
}

/* Put an entry last, unless it is there.  False: there is no room.  The lock is held. */
static bool
push(PmhashDeadList *list, const Waiting *waiting)
{
	uint32		n = pg_atomic_read_u32(&list->n);
	Waiting    *last = &list->ring[(list->head + n) % PMHASH_DEAD_MAX];
	uint64		bits;

	(void) find_word(list, group_of(waiting->entry.value), &bits);
	if ((bits & bit_of(waiting->entry.value)) != 0)
		return true;
	if (n == PMHASH_DEAD_MAX)
		return false;
	last->entry = waiting->entry;
	last->end = list->last_end = Max(waiting->end, list->last_end);
	add_to_word(list, waiting->entry.value);
	add_to(&list->n, 1);
	return true;
}

/*
 * Note entries, n of them, read in removal epoch 'epoch', whose rows are dead to all.
 * They may be removed when WAL is flushed up to end, the end of a record, which what made
 * them dead is not past.  What there is no room for is not noted.
 */
void
pmhash_dead_list_add(const PmhashFile *file, uint64 epoch,
					 XLogRecPtr end, const PmhEntry *entries, int n)
{
	Waiting		waiting = {.end = end};
	PmhashDeadList *list = NULL;

	Assert(n >= 0);
	if (pmhash_removal_epoch(file) == epoch)
		list = lock_list(file, epoch);
	if (list == NULL)
		return;
	if (pg_atomic_read_u32(&list->n) == 0)
		list->since = pmhash_clock_ms();
	for (int i = 0; i < n; i++)
	{
		waiting.entry = entries[i];
		if (!push(list, &waiting))
			break;
	}
	LWLockRelease(lock_of(list));
}

/* ---- passing over ---- */

/* Is any row of a file known to be dead?  Costs next to nothing. */
bool
pmhash_any_known_dead(const PmhashFile *file)
{
	PmhashDeadList *list = find_list(file);

	return list != NULL && pg_atomic_read_u32(&list->known) > 0;
}

/*
 * Of n values, at most 64: which are in the words, if the list is the file's, and its epoch
 * still the file's?  A bit each.
 */
static uint64
known_of(const PmhashFile *file, PmhashDeadList *list, const uint64 *value, int n)
{
	uint64		change = pg_atomic_read_u64(&list->change);
	uint64		found = 0;
	uint64		group = PG_UINT64_MAX;	/* of the value before */
	uint64		bits = 0;
	uint64		epoch;

	Assert(n > 0 && n <= 64);
	pg_read_barrier();
	if (change % 2 != 0 || !belongs_to(list, file))
		return 0;
	for (int i = 0; i < n; i++)
	{
		if (group_of(value[i]) != group)
		{
			group = group_of(value[i]);
			(void) find_word(list, group, &bits);
		}
		if ((bits & bit_of(value[i])) != 0)
			found |= UINT64CONST(1) << i;
	}
	if (found == 0)
		return 0;
	epoch = pg_atomic_read_u64(&list->epoch);
	pg_read_barrier();
	return pg_atomic_read_u64(&list->change) == change &&
		pmhash_removal_epoch(file) == epoch ? found : 0;
}

/*
 * pmhash_known_dead
 *		Is the row at a TID (as a value) of a file known to be dead to all?
 *
 * True: a visit at the moment of the call would have found it so.  False: not known.
 * Not for transactions that began during recovery, whose snapshots may be older than
 * this server's horizons (indexam.c says the same with ignore_killed_tuples).
 */
bool
pmhash_known_dead(const PmhashFile *file, uint64 value)
{
	return pmhash_drop_known_dead(file, &value, 1) == 0;
}

/* The same for value[0 .. n), as a cursor calls it: drops those that are; returns how many stay. */
size_t
pmhash_drop_known_dead(const void *file, uint64_t *value, size_t n)
{
	PmhashDeadList *list = find_list(file);
	size_t		kept = 0;

	if (list == NULL)
		return n;
	for (size_t from = 0; from < n; from += 64)
	{
		int			some = Min(n - from, 64);
		uint64		found = known_of(file, list, value + from, some);

		for (int i = 0; i < some; i++)
		{
			value[kept] = value[from + i];
			kept += (found >> i & 1) == 0;
		}
	}
	return kept;
}

/* ---- taking out ---- */

/* What waits in the list of a file?  False: nothing, or that is not known just now. */
bool
pmhash_dead_list_look(const PmhashFile *file, PmhashDeadWaiting *waiting)
{
	PmhashDeadList *list = find_list(file);

	if (likely(list == NULL || pg_atomic_read_u32(&list->n) == 0) ||
		!LWLockConditionalAcquire(lock_of(list), LW_SHARED))
		return false;
	waiting->n = belongs_to(list, file) ? pg_atomic_read_u32(&list->n) : 0;
	waiting->since = list->since;
	waiting->first = list->ring[list->head].end;
	waiting->last = list->last_end;
	LWLockRelease(lock_of(list));
	return waiting->n > 0;
}

/*
 * pmhash_dead_list_take
 *		Take what may be removed out of the list of a file, 'room' entries at most.
 *
 * flushed: how far WAL is.  Returns how many;
 * *epoch is the one of their reading, and *noted a record's end, not before what made
 * them dead and not past 'flushed', to be noted in the journal before they go.  They are
 * known to be dead until they are forgotten.
 */
int
pmhash_dead_list_take(const PmhashFile *file, XLogRecPtr flushed,
					  XLogRecPtr *noted, PmhEntry *entries, int room, uint64 *epoch)
{
	PmhashDeadList *list = find_list(file);
	int			n = 0;

	Assert(room > 0);
	if (list == NULL)
		return 0;
	LWLockAcquire(lock_of(list), LW_EXCLUSIVE);
	*epoch = pg_atomic_read_u64(&list->epoch);
	while (n < room && belongs_to(list, file) && pg_atomic_read_u32(&list->n) > 0)
	{
		const Waiting *first = &list->ring[list->head];

		if (first->end > flushed)
			break;
		*noted = first->end;
		entries[n++] = first->entry;
		list->head = (list->head + 1) % PMHASH_DEAD_MAX;
		add_to(&list->n, -1);
	}
	LWLockRelease(lock_of(list));
	return n;
}

/* ---- what this session is removing ---- */

static PmhashDeadBatch *own_batch = NULL;

/* The batch of a file, or NULL. */
PmhashDeadBatch *
pmhash_dead_batch(const PmhashFile *file)
{
	return own_batch != NULL && own_batch->file == file ? own_batch : NULL;
}

/*
 * It is over, or its file is about to be unmapped: its entries are not known to be dead any
 * more, and those that are still there will be found again.  Raises no error.
 */
static void
drop_batch(void)
{
	PmhashDeadBatch *batch = own_batch;
	PmhashDeadList *list;

	if (batch == NULL)
		return;
	own_batch = NULL;
	pmh_removal_end(&batch->removal);
	list = find_list(batch->file);
	if (list != NULL)
	{
		LWLockAcquire(lock_of(list), LW_EXCLUSIVE);
		for (int i = 0; i < batch->n && is_for(list, batch->file, batch->epoch); i++)
			take_from_word(list, batch->entry[i].value);
		LWLockRelease(lock_of(list));
	}
	pfree(batch);
}

void
pmhash_dead_batch_drop(const PmhashFile *file)
{
	if (pmhash_dead_batch(file) != NULL)
		drop_batch();
}

/* The process ends: what its batch has taken may be found by others. */
static void
batch_exit(int code, Datum arg)
{
	drop_batch();
}

/* A file has a batch from now on, in the place of another file's. */
void
pmhash_dead_batch_keep(PmhashDeadBatch *batch)
{
	static bool registered = false;

	if (!registered)
		before_shmem_exit(batch_exit, (Datum) 0);
	registered = true;
	drop_batch();
	own_batch = batch;
}
