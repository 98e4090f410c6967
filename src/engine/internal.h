/*-------------------------------------------------------------------------
 *
 * internal.h
 *	  What the files of the engine know of each other.
 *
 * Results beyond table.h, never seen by callers of the engine:
 *
 *	PMH_RETRY	a writer has changed what we were reading: start again
 *	PMH_NEED	something is missing that may only be had without locks (file
 *				space, a longer mapping, a larger directory).  It is noted in
 *				table->need.  The caller drops its locks, calls pmh_provide()
 *				and starts again.
 *	PMH_FAR		the key's list is too long to be searched while its segment is
 *				locked: pmh_drain_one() does it
 *	PMH_BUSY	it takes a lock that somebody else holds, and we are not to wait
 *	PMH_CROWDED	there is no room for the entry in the primary table, and no
 *				larger segment would help; its home tells so.  It belongs in the
 *				overflow table.
 *
 * Pointers into the mapping (pmh_at) are good until the public function returns
 * that they were made in, also across pmh_provide() and pmh_map_all(): nothing
 * is unmapped before pmh_conclude().  So no public function calls another one
 * that maps, and no pointer is kept in a handle or in the state of a sweep, a
 * shrink, a cursor or a bulk load: offsets are.  See src/README, "Mapping".
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_INTERNAL_H
#define PMH_INTERNAL_H

#include "bucket.h"
#include "layout.h"
#include "lock.h"
#include "pm.h"
#include "stop_point.h"
#include "table.h"

#define likely(x)			__builtin_expect((x) != 0, 1)
#define unlikely(x)			__builtin_expect((x) != 0, 0)

#define PMH_RETRY			((PmhResult) 100)
#define PMH_NEED			((PmhResult) 101)
#define PMH_FAR				((PmhResult) 102)
#define PMH_BUSY			((PmhResult) 103)
#define PMH_CROWDED			((PmhResult) 104)

/* Entries of one key that stay in a bucket; the next one makes it a list. */
#define PMH_INLINE_MAX		6

/* A full bucket compacts the largest group of equal hashes of this size. */
#define PMH_COMPACT_MIN		3

/* Two choices count from this many entries in the home bucket on. */
#define PMH_BALANCE_FROM	14

/* Units a segment grows by before it is split. */
#define PMH_GROW_UNITS		4
#define PMH_MAX_UNITS		7

/*
 * A segment of the primary table becomes larger only if it is so full, and is
 * split only if that leaves either half so much of its entries (percent).
 *
 * Hashes drawn at random fill .9 and more of a segment, keys with some twenty
 * values each, one after the other, .46 to .8, since what a bucket has of a key
 * stays beside its list; and halves of 600 entries are nearly ten standard
 * deviations away from such a share.  Hostile hashes can make segments so empty:
 * of a split of 12 units at .45 one half has 230 entries, which is .2 of 8 units,
 * and it takes as many new ones until the other half is split again.  That is
 * four times the space of others.
 */
#define PMH_FULL_PERCENT	45
#define PMH_SHARE_PERCENT	30

#ifdef PMH_RECORD
/* test/crash: with few entries, have segments do what otherwise takes a thousand. */
extern bool pmh_record_splits;
#define PMH_SPLITS_ANYWAY	pmh_record_splits
#else
#define PMH_SPLITS_ANYWAY	false
#endif

/* Of n entries, 'second' have a 1 for their next hash bit: is a split of use? */
static inline bool
pmh_halves_even(uint64_t n, uint64_t second)
{
	return second * 100 >= n * PMH_SHARE_PERCENT &&
		(n - second) * 100 >= n * PMH_SHARE_PERCENT;
}

/* A segment is rebuilt with a smaller extension if it saves so many units. */
#define PMH_REDUCE_UNITS	2

/* What pmh_provide() is to see to. */
typedef struct PmhNeed
{
	bool		map;			/* map as far as live.blocks tells */
	bool		doubling;		/* double the directory ... */
	uint32_t	doubling_depth; /* ... if it still has this depth */
	uint64_t	blocks;			/* a run of so many free blocks */
	bool		value_region;	/* a value region that ... */
	uint32_t	value_class;	/* ... holds at least a buffer of this class */
} PmhNeed;

/* The key of overflow.c, ready for use. */
typedef struct PmhPermutation
{
	uint64_t	flip[2];
	uint64_t	multiplier[3];
	uint64_t	inverse[3];		/* of the multipliers, modulo 2^64 */
} PmhPermutation;

struct PmhTable
{
	PmFile		file;
	PmhLocks   *locks;
	PmhFileLock *file_lock;
	uint64_t	instance;
	uint64_t	file_id;
	uint32_t	segment_buckets;	/* M */
	uint32_t	unit_buckets;	/* M / 8 */
	uint32_t	block_shift;	/* log2 of the bytes of a block */
	uint64_t	seen_dirword;	/* a directory seen to lie in our mapping, ... */
	uint64_t	seen_offset;	/* ... where, ... */
	uint64_t	seen_elements;	/* ... and of how many elements in a half */
	uint64_t	block_size;
	uint64_t	unit_size;
	uint32_t	in_main;		/* hashing buckets of a main part */
	uint64_t	in_main_size;	/* bytes of these */
	PmhPermutation permutation; /* from a hash to that in the overflow table */
	uint64_t	stripe_mask;	/* number of stripes - 1 */
	PmhNeed		need;
	bool		space_held;		/* the space lock is: pmh_space_trylock */
	PmhError	error;
	uint8_t		identity[PMH_IDENTITY_SIZE];
	struct PmhBuild *build[2];	/* segments being built */
	struct PmhItem *overflow[2];	/* their entries with no room at home */
	struct PmhRegionSpan *discard;	/* regions that a shrink of ours empties ... */
	size_t		ndiscard;
	uint64_t	discard_serial; /* ... as long as this is run.mark_serial */
};

/* ---- places in the file ---- */

static inline void *
pmh_at(const PmhTable *t, uint64_t offset)
{
	return t->file.base + offset;
}

static inline PmhFormat *
pmh_format(const PmhTable *t)
{
	return (PmhFormat *) (t->file.base + PMH_FORMAT_OFFSET);
}

static inline PmhLive *
pmh_live(const PmhTable *t)
{
	return (PmhLive *) (t->file.base + PMH_LIVE_OFFSET);
}

static inline PmhRun *
pmh_run(const PmhTable *t)
{
	return (PmhRun *) (t->file.base + PMH_RUN_OFFSET);
}

static inline uint64_t
pmh_block_size(const PmhTable *t)
{
	return t->block_size;
}

static inline uint64_t
pmh_unit_size(const PmhTable *t)
{
	return t->unit_size;
}

static inline void
pmh_count(uint64_t *counter, uint64_t by)
{
	(void) __atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

/*
 * May [offset, offset + len) be touched?  PMH_OK; PMH_NEED if it lies in the
 * file but not yet in our mapping; PMH_ERR_CORRUPT (with the error set) if it
 * is outside of the file.  Before a reader believes PMH_ERR_CORRUPT it validates,
 * after this call, what it got the offset from: the file may have been cut since.
 * What was got under a lock that keeps it from being freed may be believed.
 */
extern PmhResult pmh_check_span(PmhTable *t, uint64_t offset, uint64_t len);

/*
 * Do what t->need says.  No lock may be held.  PMH_OK tells no more than that
 * another look is due: what was to be mapped may be gone.
 */
extern PmhResult pmh_provide(PmhTable *t);

/* Map as far as live.blocks tells.  No lock may be held. */
extern PmhResult pmh_map_all(PmhTable *t);

extern PmhResult pmh_fail_lost(PmhTable *t);
extern PmhResult pmh_fail_cancelled(PmhTable *t);

/*
 * What a public function returns at its end that cannot have mapped more of the
 * file: 'result', unless the file is lost.  Ordered after everything that the
 * caller has read.
 */
static inline PmhResult
pmh_conclude_reading(PmhTable *t, PmhResult result)
{
	pmh_read_fence();
	/* Whoever loses a page posts it, so mostly the board says it all. */
	if (unlikely(pmh_lost_count(t->file_lock->lost) != 0) &&
		(pm_is_lost(&t->file) || pmh_lost_posted(t->file_lock->lost, t->file_id)))
		return pmh_fail_lost(t);
	return result;
}

/*
 * The same for a function that may have mapped more of the file: the pointers
 * that it had are forgotten, so what was outgrown can go.  Hence none of these
 * functions may be called inside of another one.
 */
static inline PmhResult
pmh_conclude(PmhTable *t, PmhResult result)
{
	if (unlikely(t->file.nold != 0))
		pmh_map_forget_old(&t->file);
	return pmh_conclude_reading(t, result);
}

/* The result code for a system call that has failed with this errno. */
extern PmhResult pmh_result_of_errno(int err);

/*
 * Open a file (O_CLOEXEC, mode 0600), and close it, telling the caller of the
 * engine before and after; -1 with errno set.  The two first are for what opens
 * a descriptor of its own and closes it again.  (descriptor.c)
 */
extern bool pmh_descriptor_begin(void);
extern void pmh_descriptor_end(void);
extern int	pmh_descriptor_open(const char *path, int flags);
extern void pmh_descriptor_close(int fd);

/* Set t->error and return code.  detail: a printf format for a sentence. */
extern PmhResult pmh_fail(PmhTable *t, PmhResult code, int sys_errno,
						  uint64_t offset, const char *detail, ...)
			__attribute__((format(printf, 5, 6)));
extern PmhResult pmh_fill_error(PmhError *error, PmhResult code, int sys_errno,
								uint64_t offset, const char *detail, ...)
			__attribute__((format(printf, 5, 6)));

/* ---- directory and segments (directory.c) ---- */

static inline uint64_t
pmh_dirword_offset(uint64_t dirword)
{
	return (dirword & ((UINT64_C(1) << PMH_DIRWORD_DEPTH_SHIFT) - 1)) * 64;
}

static inline uint32_t
pmh_dirword_depth(uint64_t dirword)
{
	return (uint32_t) (dirword >> PMH_DIRWORD_DEPTH_SHIFT) & 31;
}

/* Elements and bytes of a directory: both halves. */
static inline uint64_t
pmh_directory_elements(uint32_t depth)
{
	return UINT64_C(2) << depth;
}

static inline uint64_t
pmh_directory_size(uint32_t depth)
{
	return pmh_directory_elements(depth) * sizeof(uint64_t);
}

/* Which of the two tables, i.e. which half of the directory. */
typedef enum PmhSide
{
	PMH_PRIMARY = 0,
	PMH_OVERFLOW = 1
} PmhSide;

#define PMH_SIDES	2

static inline uint64_t
pmh_elem_main_block(uint64_t elem)
{
	return elem & ((UINT64_C(1) << PMH_ELEM_MAIN_BITS) - 1);
}

static inline uint64_t
pmh_elem_ext_unit(uint64_t elem)
{
	return (elem >> PMH_ELEM_EXT_SHIFT) & ((UINT64_C(1) << PMH_ELEM_EXT_BITS) - 1);
}

static inline uint32_t
pmh_elem_units(uint64_t elem)
{
	return (uint32_t) (elem >> PMH_ELEM_UNITS_SHIFT) & 7;
}

static inline uint32_t
pmh_elem_depth(uint64_t elem)
{
	return (uint32_t) (elem >> PMH_ELEM_DEPTH_SHIFT) & 31;
}

static inline PmhStrategy
pmh_elem_strategy(uint64_t elem)
{
	return (PmhStrategy) ((elem >> PMH_ELEM_STRATEGY_SHIFT) & 3);
}

/*
 * Where a segment is.  Buckets are numbered 0 .. hashing - 1, then the two of
 * the stash (hashing, hashing + 1).
 */
typedef struct PmhPlace
{
	uint64_t	dirword;
	uint64_t	elem;
	uint64_t	index;			/* of the element in the directory */
	uint64_t	main;			/* offset of the main part */
	uint64_t	ext;			/* offset of the extension, or 0 */
	uint32_t	hashing;		/* N */
	uint32_t	buckets;		/* N + PMH_STASH_BUCKETS */
	PmhStripe  *stripe;
} PmhPlace;

/* Which table it belongs to. */
static inline PmhSide
pmh_place_side(const PmhPlace *p)
{
	return (PmhSide) (p->index >> pmh_dirword_depth(p->dirword));
}

/* A place, and the versions from before it was last seen to be current. */
typedef struct PmhSnapshot
{
	PmhPlace	place;
	uint64_t	version[PMH_VERSIONS];
} PmhSnapshot;

static inline uint64_t
pmh_bucket_offset(const PmhTable *t, const PmhPlace *p, uint32_t bucket)
{
	uint32_t	in_main = t->in_main;

	if (bucket < in_main && bucket < p->hashing)
		return p->main + (uint64_t) bucket * PMH_BUCKET_SIZE;
	if (bucket < p->hashing)
		return p->ext + (uint64_t) (bucket - in_main) * PMH_BUCKET_SIZE;
	return p->main + (uint64_t) (in_main + bucket - p->hashing) * PMH_BUCKET_SIZE;
}

static inline PmhBucket *
pmh_bucket(const PmhTable *t, const PmhPlace *p, uint32_t bucket)
{
	return (PmhBucket *) pmh_at(t, pmh_bucket_offset(t, p, bucket));
}

/*
 * Which of a stripe's versions: the remainder, computed with fewer instructions
 * than a compiler does that has to be right above 2 * MAX_SEGMENT_BUCKETS too.
 */
static inline uint32_t
pmh_version_of(uint32_t bucket)
{
	uint32_t	quotient = bucket * (65536 / PMH_VERSIONS + 1) >> 16;

	return bucket - quotient * PMH_VERSIONS;
}

static inline uint64_t *
pmh_bucket_version(const PmhPlace *p, uint32_t bucket)
{
	return &p->stripe->version[pmh_version_of(bucket)];
}

static inline uint32_t
pmh_home_bucket(uint64_t hash, uint32_t hashing)
{
	return (pmh_hash_home_bits(hash) * hashing) >> 16;
}

static inline uint32_t
pmh_alt_bucket(uint64_t hash, uint32_t hashing, uint32_t home)
{
	uint32_t	alt = (pmh_hash_alt_bits(hash) * (hashing - 1)) >> 16;

	return alt + (alt >= home);
}

/*
 * Fill the rest of a place in from its element.  False if that does not lie
 * within our mapping (pmh_locate finds out why).
 */
static inline bool
pmh_place_decode(const PmhTable *t, PmhPlace *p)
{
	uint64_t	block = pmh_elem_main_block(p->elem);
	uint32_t	units = pmh_elem_units(p->elem);
	uint64_t	mapped = t->file.mapped;

	p->main = block << t->block_shift;
	p->ext = units == 0 ? 0 : pmh_elem_ext_unit(p->elem) << (t->block_shift - 3);
	p->hashing = t->in_main + units * t->unit_buckets;
	p->buckets = p->hashing + PMH_STASH_BUCKETS;
	p->stripe = pmh_segment_stripe(t->locks, t->file_id, block);
	return block > 1 &&
		p->main + pmh_block_size(t) <= mapped &&
		p->ext + ((uint64_t) units << (t->block_shift - 3)) <= mapped;
}

/*
 * Find the segment of hash.  PMH_OK, PMH_NEED (map further), or
 * PMH_ERR_CORRUPT; PMH_NOT_FOUND if there is no overflow table (yet).  Nothing
 * is locked: the place may be outdated already.
 *
 * This and all that look a segment up by a hash come twice: 'in' one of the two
 * tables, whose own hash is given (pmh_side_hash), and in the primary table.
 */
extern PmhResult pmh_locate_in(PmhTable *t, PmhSide side, uint64_t hash,
							   PmhPlace *place);

static inline PmhResult
pmh_locate(PmhTable *t, uint64_t hash, PmhPlace *place)
{
	return pmh_locate_in(t, PMH_PRIMARY, hash, place);
}

/* Is there anything to walk through in this table? */
extern PmhResult pmh_side_exists(PmhTable *t, PmhSide side, bool *exists);

/*
 * The home bucket of a hash as a look-up finds it: the little of a PmhPlace that
 * nearly all of them need.  The pointers are good as long as the mapping stays
 * where it is.
 */
typedef struct PmhHome
{
	const char *base;			/* of the mapping */
	uint64_t	dirword;
	const uint64_t *at;			/* the element, and ... */
	uint64_t	elem;			/* ... what it was */
	const PmhBucket *bucket;
	const uint64_t *version;	/* of the bucket */
} PmhHome;

/*
 * Find the home bucket of hash in the directory that was seen last.  False if
 * the bucket does not lie within our mapping, or the element cannot be one
 * (pmh_locate finds out why).  As there, nothing is locked.  Whether the
 * directory is the right one is left to pmh_home_current, which has to look at
 * dirword anyway: an element of one that is not any more leads to nothing that
 * would be believed.
 *
 * Every look-up goes through here, and the next one's can begin only as far
 * behind as the processor has registers for what lies between: so it is
 * written for few instructions.  Shifts by what the file's geometry tells are
 * multiplications, and whether a bucket is in the extension, which nobody can
 * foresee, takes no branch.
 */
static inline bool __attribute__((always_inline))
pmh_home_find_in(const PmhTable *t, PmhSide side, uint64_t hash, PmhHome *h)
{
	uint64_t	index = (uint64_t) (((unsigned __int128) hash * t->seen_elements) >> 64) +
		(side == PMH_PRIMARY ? 0 : t->seen_elements);
	uint64_t	elem;
	uint64_t	block;
	uint32_t	number;
	uint64_t	offset;
	uint64_t	in_main;		/* all bits or none */

	h->base = t->file.base;
	h->dirword = t->seen_dirword;
	h->at = (const uint64_t *) (h->base + t->seen_offset) + index;
	elem = h->elem = pm_load_acquire(h->at);
	block = pmh_elem_main_block(elem);
	number = pmh_home_bucket(hash, t->in_main + pmh_elem_units(elem) * t->unit_buckets);
	offset = pmh_elem_ext_unit(elem) * pmh_unit_size(t) - t->in_main_size;
	in_main = -(uint64_t) (number < t->in_main);
	offset += (block * pmh_block_size(t) - offset) & in_main;
	offset += (uint64_t) number * PMH_BUCKET_SIZE;
	h->bucket = (const PmhBucket *) (h->base + offset);
	h->version = &t->locks->stripe[(t->file_id + block) & t->stripe_mask]
		.version[pmh_version_of(number)];
	return block > 1 && offset + PMH_BUCKET_SIZE <= t->file.mapped;
}

static inline bool
pmh_home_find(const PmhTable *t, uint64_t hash, PmhHome *h)
{
	return pmh_home_find_in(t, PMH_PRIMARY, hash, h);
}

/* The alternative bucket beside a home that was found; it may not be mapped. */
static inline const PmhBucket *
pmh_home_alternative(const PmhTable *t, uint64_t hash, const PmhHome *h)
{
	PmhPlace	place;

	place.elem = h->elem;
	(void) pmh_place_decode(t, &place);
	return pmh_bucket(t, &place,
					  pmh_alt_bucket(hash, place.hashing,
									 pmh_home_bucket(hash, place.hashing)));
}

/* Ask for the directory element of a hash. */
static inline void __attribute__((always_inline))
pmh_prefetch_element(const PmhTable *t, uint64_t hash)
{
	const uint64_t *dir = (const uint64_t *) pmh_at(t, t->seen_offset);

	__builtin_prefetch(&dir[((unsigned __int128) hash * t->seen_elements) >> 64]);
}

/* Is it what the directory says?  To be asked behind a load of the version. */
static inline bool
pmh_home_current(const PmhHome *h)
{
	const PmhLive *live = (const PmhLive *) (const void *) (h->base + PMH_LIVE_OFFSET);

	pmh_read_fence();
	return pm_load_acquire(h->at) == h->elem &&
		pm_load_acquire(&live->dirword) == h->dirword;
}

/* Is the place still what the directory says? */
static inline bool
pmh_place_current(const PmhTable *t, const PmhPlace *p)
{
	const uint64_t *dir = (const uint64_t *) pmh_at(t, pmh_dirword_offset(p->dirword));

	pmh_read_fence();
	return pm_load_acquire(&dir[p->index]) == p->elem &&
		pm_load_acquire(&pmh_live(t)->dirword) == p->dirword;
}

/*
 * Reader: locate the segment of hash and take the versions of its buckets.
 * Maps further as needed.  PMH_OK or a real error; PMH_NOT_FOUND as above.
 */
extern PmhResult pmh_snapshot_in(PmhTable *t, PmhSide side, uint64_t hash,
								 PmhSnapshot *snap);

static inline PmhResult
pmh_snapshot(PmhTable *t, uint64_t hash, PmhSnapshot *snap)
{
	return pmh_snapshot_in(t, PMH_PRIMARY, hash, snap);
}

/* Has nothing a reader of this bucket relied on changed since the snapshot? */
static inline bool
pmh_snapshot_valid(const PmhSnapshot *snap, uint32_t bucket)
{
	return pmh_version_same(pmh_bucket_version(&snap->place, bucket),
							snap->version[bucket % PMH_VERSIONS]);
}

/*
 * The condition for following a pointer slot: to be checked after loading the
 * version of the buffer, so that this version is from before a free.  (The
 * version of the bucket alone would not do: after a split it is the new
 * segment's versions that tell.)  The place first: if it is current and the
 * version has not changed after that, the segment was there all the time.  The
 * other way round it may have been moved away in between, and back again.
 */
static inline bool
pmh_snapshot_current(const PmhTable *t, const PmhSnapshot *snap, uint32_t bucket)
{
	if (!pmh_place_current(t, &snap->place))
		return false;
	PMH_STOP_POINT("current_between_checks");
	return pmh_snapshot_valid(snap, bucket);
}

/*
 * Reader: copy a whole segment out: snap->place.buckets buckets in the order
 * of their numbers into 'copy' (room for pmh_max_segment_size bytes).  The
 * snapshot's versions are those of the copy.  It is all of one state, but for
 * the last operation to count a version up before the copy began: of a put
 * that was under way then, the entry may be in the copy of its bucket and the
 * announcement not in that of its home.
 */
extern PmhResult pmh_segment_read_in(PmhTable *t, PmhSide side, uint64_t hash,
									 PmhSnapshot *snap, PmhBucket *copy);

static inline PmhResult
pmh_segment_read(PmhTable *t, uint64_t hash, PmhSnapshot *snap, PmhBucket *copy)
{
	return pmh_segment_read_in(t, PMH_PRIMARY, hash, snap, copy);
}

static inline size_t
pmh_max_segment_size(const PmhTable *t)
{
	return (size_t) 2 * t->segment_buckets * PMH_BUCKET_SIZE;
}

/*
 * Writer: lock the segment of hash; the place is current until it is
 * unlocked.  PMH_OK (locked) or a real error, or PMH_NOT_FOUND as above (not
 * locked).  pmh_segment_trylock gives PMH_RETRY if it is locked, or PMH_NEED; the
 * caller may hold others.
 */
extern PmhResult pmh_segment_lock_in(PmhTable *t, PmhSide side, uint64_t hash,
									 PmhPlace *place);
extern PmhResult pmh_segment_trylock_in(PmhTable *t, PmhSide side, uint64_t hash,
										PmhPlace *place);

static inline PmhResult
pmh_segment_lock(PmhTable *t, uint64_t hash, PmhPlace *place)
{
	return pmh_segment_lock_in(t, PMH_PRIMARY, hash, place);
}

static inline PmhResult
pmh_segment_trylock(PmhTable *t, uint64_t hash, PmhPlace *place)
{
	return pmh_segment_trylock_in(t, PMH_PRIMARY, hash, place);
}

/*
 * The same for one that may have to leave it: unless 'wait' it tries for a
 * moment, then PMH_BUSY.  Maps further.  No lock may be held.
 */
extern PmhResult pmh_segment_lock_or_leave(PmhTable *t, PmhSide side, uint64_t hash,
										   bool wait, PmhPlace *place);

static inline void
pmh_segment_unlock(const PmhPlace *place)
{
	pmh_unlock(&place->stripe->lock);
}

/*
 * Double the directory if its depth is still 'depth'.  No lock may be held;
 * takes the directory lock, and space.
 */
extern PmhResult pmh_directory_double(PmhTable *t, uint32_t depth);

/*
 * Is what is in the file enough to warrant a directory of this depth?  No more
 * than a small share of the file is to be directory, or hashes that agree in
 * their first bits would make it anything.
 */
extern bool pmh_directory_warranted(const PmhTable *t, uint32_t depth);

/*
 * Let the segment 'elem' (of depth 0) be the overflow table.  PMH_OK; PMH_RETRY
 * if there is one; PMH_NEED.  No lock may be held.
 */
extern PmhResult pmh_directory_enter_overflow(PmhTable *t, uint64_t elem);

/*
 * Blocks a directory of this depth takes: 0 if it stands in block 0; and the
 * place for a small directory there that is not the current one's.
 */
extern uint64_t pmh_directory_blocks(const PmhTable *t, uint32_t depth);
extern uint64_t pmh_small_directory(const PmhTable *t);

/*
 * Let all elements of the segment of 'place' (locked by the caller) say 'low'
 * in the first half of their range and 'high' in the second; logged.  The range
 * is that of the depth in place->elem.  PMH_OK or PMH_NEED (nothing done).
 */
extern PmhResult pmh_directory_publish(PmhTable *t, const PmhPlace *place,
									   uint64_t low, uint64_t high);

/*
 * Let the directory be as small as the depth of the deepest segment allows, and
 * lie below the block 'limit', if there is room just now.  PMH_OK or a real
 * error.  No lock may be held.
 */
extern PmhResult pmh_directory_fold(PmhTable *t, uint64_t limit);

extern void pmh_directory_store(PmhTable *t, uint64_t dirword, uint64_t first,
								uint64_t count, uint64_t low, uint64_t high);

/*
 * Change the strategy of a locked segment; place->elem follows.  PMH_OK or
 * PMH_NEED (nothing done).
 */
extern PmhResult pmh_directory_strategy(PmhTable *t, PmhPlace *place,
										PmhStrategy strategy);

extern uint32_t pmh_dirlog_crc(const PmhDirLog *log, uint64_t count);

static inline uint64_t
pmh_make_elem(uint64_t main_block, uint64_t ext_unit, uint32_t units,
			  uint32_t depth, PmhStrategy strategy)
{
	return main_block | ext_unit << PMH_ELEM_EXT_SHIFT |
		(uint64_t) units << PMH_ELEM_UNITS_SHIFT |
		(uint64_t) depth << PMH_ELEM_DEPTH_SHIFT |
		(uint64_t) strategy << PMH_ELEM_STRATEGY_SHIFT;
}

/* Is the element possible in a directory of this depth and file length? */
extern bool pmh_elem_sane(const PmhTable *t, uint64_t elem, uint64_t index,
						  uint32_t depth, uint64_t blocks);

/* ---- entries of a locked segment (segment.c) ---- */

/*
 * Insert, delete.  PMH_OK, PMH_NOT_FOUND (delete); PMH_RETRY: the segment has
 * been replaced, unlock and start again; PMH_NEED; PMH_FAR, PMH_BUSY (delete, as
 * pmh_list_remove); PMH_CROWDED (insert, primary table: to be inserted into the
 * other one; delete, primary table: not found, but may be in the other one); or a
 * real error.  Inserts are
 * durable on return, deletes if 'fence', else after the next pm_fence.  'wait' as
 * for pmh_list_remove; who passes false calls pmh_space_release afterwards.
 */
extern PmhResult pmh_segment_insert(PmhTable *t, PmhPlace *place, uint64_t hash,
									uint64_t value, bool fence_first);
extern PmhResult pmh_segment_delete(PmhTable *t, const PmhPlace *place,
									uint64_t hash, uint64_t value,
									bool wait, bool fence);

/* Entries that a group works on together, each in a locked segment. */
#define PMH_GROUP_MAX	16

/*
 * Entries of a group that stand in their slots and wait for the commit stores of
 * their buckets, which no two of them share.
 */
typedef struct PmhPending
{
	unsigned	n;
	bool		ordered;		/* a fence has to come first */
	PmhBucket  *bucket[PMH_GROUP_MAX];
	uint32_t	change[PMH_GROUP_MAX];
} PmhPending;

/*
 * Insert into a locked segment as far as that is one commit store.  PMH_OK: added
 * to 'pending', or in the key's list (durable after the next pm_fence);
 * PMH_RETRY: the bucket is pending, commit first; PMH_NOT_FOUND: it takes
 * pmh_segment_insert; PMH_NEED; or a real error.
 */
extern PmhResult pmh_segment_prepare(PmhTable *t, const PmhPlace *place,
									 uint64_t hash, uint64_t value,
									 PmhPending *pending);

/*
 * Replace two locked buddies by one segment, a locked segment by one with a
 * smaller extension, or by a copy of it elsewhere.  Entries take no more than
 * 'percent' of the slots of what is made.  PMH_OK: done, the places are void;
 * PMH_NOT_FOUND: it does not fit, or does not pay; PMH_NEED (nothing done).
 */
extern PmhResult pmh_segment_merge(PmhTable *t, const PmhPlace *left,
								   const PmhPlace *right, uint32_t percent);
extern PmhResult pmh_segment_reduce(PmhTable *t, const PmhPlace *place,
									uint32_t percent);
extern PmhResult pmh_segment_move(PmhTable *t, const PmhPlace *place);

/*
 * The buckets of a locked segment that may hold entries of a hash, home first;
 * returns how many.
 */
extern unsigned pmh_segment_buckets_of(const PmhTable *t, const PmhPlace *place,
									   uint64_t hash, uint32_t bucket[4]);

/* For qsort: pairs by hash, then by value. */
static inline int
pmh_compare_entries(const void *a, const void *b)
{
	const PmhEntry *x = a;
	const PmhEntry *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return (x->value > y->value) - (x->value < y->value);
}

/*
 * Take n pairs of one hash, ascending by value, out in one walk along the key's
 * list; and along that which it has in the overflow table, as far as the primary
 * table does not have them.  No lock may be held.  Its buffers are read without a lock, but for the
 * first ones, and the segment is locked for the commit stores of one buffer at a
 * time.  state[] (n bytes, zeroes) tells what has become of each pair.  Unless
 * 'wait', nobody is waited for.
 *
 * pmh_drain_step does a piece: begins, or sees to a buffer.  PMH_OK: there is
 * more; PMH_DONE; or a real error.  Durable after the next pm_fence.  Memory
 * beyond the Drain is freed by pmh_drain_end, always.  (drain.c)
 */
typedef enum PmhPairState
{
	PMH_PAIR_LEFT = 0,			/* not seen to, or only by waiting */
	PMH_PAIR_REMOVED,
	PMH_PAIR_ABSENT
} PmhPairState;

typedef struct PmhDrain PmhDrain;

extern PmhDrain *pmh_drain_begin(PmhTable *t, const PmhEntry *entries, size_t n,
								 bool wait, uint8_t *state);
extern PmhResult pmh_drain_step(PmhTable *t, PmhDrain *drain);
extern void pmh_drain_end(PmhDrain *drain);

/*
 * All of it, waiting, for one pair, in the table 'from', whose hash is given, and
 * the one past it.  PMH_OK, PMH_NOT_FOUND or a real error.
 */
extern PmhResult pmh_drain_one(PmhTable *t, PmhSide from, uint64_t hash,
							   uint64_t value);

/* Where the list of a key hangs in its locked segment. */
typedef struct PmhListSlot
{
	uint32_t	bucket;
	unsigned	slot;
	uint64_t	payload;		/* of the pointer */
} PmhListSlot;

/* False if the key has no list. */
extern bool pmh_segment_find_list(const PmhTable *t, const PmhPlace *place,
								  uint64_t hash, PmhListSlot *at);

/* Free the space that an element names: nothing refers to it. */
extern void pmh_segment_free(PmhTable *t, uint64_t elem);

/*
 * The locked segment of 'place' has been replaced in the directory: let its
 * readers notice, then free its space.
 */
extern void pmh_segment_retire(PmhTable *t, const PmhPlace *place);

/* ---- space (space.c) ---- */

/*
 * Take the space lock, for what frees space further on, if it is free; false
 * if it is not.  Release it, if it was taken.
 */
extern bool pmh_space_trylock(PmhTable *t);
extern void pmh_space_release(PmhTable *t);

/*
 * Take space from the map: offsets.  PMH_OK, or PMH_NEED.  No I/O; may be
 * called under stripe and directory lock.  What is handed out lies inside our
 * mapping.  Contents are undefined.
 *
 *	block	a whole block
 *	units	1..7 adjacent units within a block (an extension that bulk load
 *			has placed may reach from one block into the next)
 *	run		nblocks adjacent blocks
 */
extern PmhResult pmh_space_alloc_block(PmhTable *t, uint64_t *offset);
extern PmhResult pmh_space_alloc_units(PmhTable *t, uint32_t units,
									   uint64_t *offset);
extern PmhResult pmh_space_alloc_run(PmhTable *t, uint64_t nblocks,
									 uint64_t *offset);
extern void pmh_space_free_block(PmhTable *t, uint64_t offset);
extern void pmh_space_free_units(PmhTable *t, uint64_t offset, uint32_t units);
extern void pmh_space_free_run(PmhTable *t, uint64_t offset, uint64_t nblocks);

/*
 * A run of blocks if there is one just now (below the limit of a shrink): asks
 * for nothing, and lets no shrink be given up.
 */
extern bool pmh_space_try_run(PmhTable *t, uint64_t nblocks, uint64_t *offset);

/*
 * End the file behind its last block in use, though not before 'keep' blocks,
 * durably, and give what is behind back to the file system; clears
 * run.shrink_limit.  No lock may be held.
 */
extern PmhResult pmh_space_cut(PmhTable *t, uint64_t keep);

/*
 * Take a value region of which nothing is in use, and nothing in a free list,
 * off their list, durably, and free its blocks.  No lock may be held.
 */
extern PmhResult pmh_region_return(PmhTable *t, uint64_t block);

/* Where a value region is. */
typedef struct PmhRegionSpan
{
	uint64_t	from;			/* offsets of its first and behind its last byte */
	uint64_t	to;
	uint64_t	live;			/* bytes of buffers in it that lists have */
} PmhRegionSpan;

/*
 * All value regions, ascending, in an array to be freed by the caller.  PMH_OK
 * or a real error.  No lock may be held.
 */
extern PmhResult pmh_regions(PmhTable *t, PmhRegionSpan **span, size_t *n);

/* The one of n that an offset lies in, or NULL. */
extern PmhRegionSpan *pmh_region_of(PmhRegionSpan *span, size_t n, uint64_t offset);

/*
 * From now on no space behind 'limit' blocks is given out (0: no limit), and
 * new value regions have 'region_blocks' (0: no matter).  Whoever finds no
 * other space lifts the limit.
 */
extern void pmh_space_set_limit(PmhTable *t, uint64_t limit,
								uint64_t region_blocks);

/* How full the table is, by a sample of segments. */
typedef struct PmhFill
{
	double		segments;
	double		slots;
	double		used_slots;
	double		lists;
	double		list_entries;
	double		list_bytes;
} PmhFill;

/* PMH_OK or a real error.  (stats.c) */
extern PmhResult pmh_estimate_fill(PmhTable *t, PmhFill *fill);

/* Do what live.region_unlink says (again, after a crash), and clear it. */
extern void pmh_region_redo_unlink(PmhTable *t);

/*
 * The byte of the space map for a block (bit i: unit i in use).  The block
 * must be inside our mapping.  Racing access: use pm_load.
 */
extern uint8_t *pmh_space_map(const PmhTable *t, uint64_t block);

/* Is this block a map block (or block 0)? */
static inline bool
pmh_space_is_map_block(const PmhTable *t, uint64_t block)
{
	return block <= 1 || (block & (pmh_block_size(t) - 1)) == 0;
}

/*
 * Value buffers of 64 << class bytes, 64-byte aligned.  Contents of a new one
 * are undefined.  PMH_OK or PMH_NEED.  Freeing counts the version of the
 * buffer up first; whatever pointed to it must have been changed and its
 * version counted up after that change.
 */
extern PmhResult pmh_value_alloc(PmhTable *t, uint32_t class, uint64_t *offset);
extern void pmh_value_free(PmhTable *t, uint64_t offset, uint32_t class);

/*
 * For a sweep that finds out what is free: give [offset, offset + len) of a
 * region to the free lists; and, when it starts, forget all free lists and the
 * rest of the newest region (so that all space of existing regions is either
 * reachable or found free by the sweep).  For the latter the caller holds the
 * space lock, from before others are told of the sweep: what they free from then
 * on is marked, and must not be forgotten.
 */
extern void pmh_value_free_span(PmhTable *t, uint64_t offset, uint64_t len);
extern void pmh_value_forget_free(PmhTable *t);

static inline uint64_t
pmh_buffer_version(const PmhTable *t, uint64_t offset)
{
	return pmh_version_load(pmh_buffer_version_word(t->locks, t->file_id, offset));
}

static inline bool
pmh_buffer_valid(const PmhTable *t, uint64_t offset, uint64_t before)
{
	return pmh_version_same(pmh_buffer_version_word(t->locks, t->file_id, offset),
							before);
}

static inline void
pmh_buffer_bump(const PmhTable *t, uint64_t offset)
{
	pmh_version_bump_shared(pmh_buffer_version_word(t->locks, t->file_id, offset));
}

/* Pointer payloads. */
static inline uint64_t
pmh_pointer_offset(uint64_t payload)
{
	return (payload >> PMH_POINTER_CLASS_BITS) * 64;
}

static inline uint32_t
pmh_pointer_class(uint64_t payload)
{
	return (uint32_t) payload & ((1 << PMH_POINTER_CLASS_BITS) - 1);
}

static inline uint64_t
pmh_make_pointer(uint64_t offset, uint32_t class)
{
	return (offset / 64) << PMH_POINTER_CLASS_BITS | class;
}

/*
 * Called by space.c under the space lock when run.sweep_mark is not 0, for
 * what is allocated or freed in value regions: it is accounted for, the sweep
 * must not free it.  (reclaim.c)
 */
extern void pmh_sweep_account(PmhTable *t, uint64_t offset, uint64_t len);

/*
 * A buffer is freed, but not put into a free list: the sweep is to find it
 * free.  If there is none, a later one will.  The space lock is held.
 */
extern void pmh_sweep_discard(PmhTable *t, uint64_t offset, uint64_t len);

/*
 * May it be called, i.e. is there no such sweep, or is its mark map inside our
 * mapping?  (If a buffer has to be freed where it is not, the sweep is told to
 * give up.)  The space lock is held.
 */
extern bool pmh_sweep_account_ready(const PmhTable *t);

/*
 * The same for a process that is about to allocate: PMH_OK, PMH_NEED (map further), or
 * PMH_ERR_CORRUPT: the map is said to be where it cannot be.
 */
extern PmhResult pmh_sweep_account_check(PmhTable *t);

/* ---- the overflow table (overflow.c) ---- */

/* Make the permutation of a file from the key in its header. */
extern void pmh_permutation_make(PmhPermutation *p, const uint64_t key[2]);

/*
 * From the hash of a key to that under which a table has it, and back.  (That
 * of the overflow table is a keyed permutation of the first one.)
 */
extern uint64_t pmh_permute(const PmhPermutation *p, uint64_t hash);
extern uint64_t pmh_permute_back(const PmhPermutation *p, uint64_t hash);

static inline uint64_t
pmh_side_hash(const PmhTable *t, PmhSide side, uint64_t hash)
{
	return side == PMH_PRIMARY ? hash : pmh_permute(&t->permutation, hash);
}

static inline uint64_t
pmh_key_hash(const PmhTable *t, PmhSide side, uint64_t side_hash)
{
	return side == PMH_PRIMARY ? side_hash :
		pmh_permute_back(&t->permutation, side_hash);
}

/* Make an empty overflow table if there is none.  No lock may be held. */
extern PmhResult pmh_overflow_begin(PmhTable *t);

/*
 * A position in a walk over all segments: the primary table in the order of
 * hashes, then the overflow table in that of its own.  Zero-initialise.
 */
typedef struct PmhPosition
{
	PmhSide		side;
	uint64_t	next;			/* where the next segment begins */
	bool		through;		/* there is none */
} PmhPosition;

/*
 * Go on past the segment, of this depth, that has position->next.  PMH_OK or
 * a real error.
 */
extern PmhResult pmh_position_advance(PmhTable *t, PmhPosition *position,
									  uint32_t depth);

/* ---- writing one entry (table.c) ---- */

/* Insert, delete: as pmh_insert and pmh_delete.  No lock may be held. */
extern PmhResult pmh_insert_one(PmhTable *t, uint64_t hash, uint64_t value,
								bool fence_first);
extern PmhResult pmh_delete_one(PmhTable *t, uint64_t hash, uint64_t value);

/* As pmh_delete_group, inside of another public function.  (group.c) */
extern PmhResult pmh_delete_many(PmhTable *t, const PmhEntry *entries, size_t n,
								 size_t *removed);

/* The same in one of the tables; and besides PMH_CROWDED in the primary one. */
extern PmhResult pmh_insert_in(PmhTable *t, PmhSide side, uint64_t hash,
							   uint64_t value, bool fence_first);

/*
 * Take one entry out of the overflow table; the key's hash.  PMH_OK, PMH_NOT_FOUND,
 * PMH_FAR; PMH_BUSY, unless 'wait'; or a real error.  Durable after the next
 * pm_fence.
 */
extern PmhResult pmh_delete_overflow(PmhTable *t, uint64_t hash, uint64_t value,
									 bool wait);

/* ---- reading one key (table.c) ---- */

#define PMH_PROBE_MAX	(4 * PMH_SLOTS)

/* Everything the buckets of a table know of a key, all of one state. */
typedef struct PmhProbe
{
	uint32_t	n;				/* plain entries */
	bool		overflowed;		/* there may be more in the overflow table */
	uint64_t	list;			/* pointer payload of its list, or 0 */
	uint64_t	list_version;	/* of the list's first buffer: from before list
								 * was last seen to be current */
	uint64_t	value[PMH_PROBE_MAX];	/* as found: unsorted, maybe twice */
} PmhProbe;

/*
 * PMH_OK or a real error; the list's first buffer is inside our mapping.  In the
 * overflow table, hash is its own; if there is none, nothing is found.
 */
extern PmhResult pmh_probe_in(PmhTable *t, PmhSide side, uint64_t hash,
							  PmhProbe *probe);

extern PmhResult pmh_probe(PmhTable *t, uint64_t hash, PmhProbe *probe);

/* ---- writing buckets (bucket.c); the segment is locked ---- */

extern void pmh_bucket_put(PmhTable *t, const PmhPlace *place, uint32_t bucket,
						   uint64_t hash, uint64_t word, PmhBucket *home,
						   uint32_t announce, bool fence_first);

/*
 * The two halves of it.  The first one fills a slot and flushes what has to be
 * durable before the second one, if anything has: then *ordered is set (if the
 * caller has set it, it is going to fence anyway).  It returns what is to change
 * in the state of the bucket.  Until that has been committed nothing else may
 * change the bucket, but for the filter bits of its state.  The second one is
 * the commit store; durable after the next pm_fence.
 */
extern uint32_t pmh_bucket_prepare(PmhTable *t, const PmhPlace *place,
								   uint32_t bucket, uint64_t hash, uint64_t word,
								   PmhBucket *home, uint32_t announce,
								   bool *ordered);
extern void pmh_bucket_commit(PmhTable *t, PmhBucket *b, uint32_t change);

extern PmhResult pmh_bucket_compact(PmhTable *t, const PmhPlace *place,
									uint32_t bucket, uint64_t hash,
									uint32_t mask, const uint64_t *extra);

/*
 * Take slots out of a bucket with one commit store: mask.  Also clears
 * shadowed entries of any key whose pointer slot goes with it.  Durable on
 * return if fence, else after the next pm_fence.
 */
extern void pmh_bucket_clear(PmhTable *t, const PmhPlace *place, uint32_t bucket,
							 uint32_t mask, bool fence);

/*
 * Store another payload in a pointer slot (one 8-byte commit store, durable on
 * return), and count the version up before and after, so that what it pointed
 * to may be freed.
 */
extern void pmh_bucket_repoint(PmhTable *t, const PmhPlace *place,
							   uint32_t bucket, unsigned slot, uint64_t payload);

/*
 * Take a pointer slot out (as pmh_bucket_clear, durable on return), counting
 * the version up before and after, so that the list may be freed.
 */
extern void pmh_bucket_unpoint(PmhTable *t, const PmhPlace *place,
							   uint32_t bucket, unsigned slot);

/* ---- value lists (values.c) ---- */

/*
 * Make a list of n values (n >= 1; order free) in buffers that fit, chained if
 * need be; durable on return.  Nothing points to it yet.  PMH_OK or PMH_NEED
 * (nothing was kept then).  May be called under the stripe.
 */
extern PmhResult pmh_list_create(PmhTable *t, uint64_t hash,
								 const uint64_t *values, size_t n,
								 uint64_t *payload);

/*
 * Add a value to the list at payload; the segment is locked.  If there is room
 * it is in, durable if 'fence', else after the next pm_fence (fence_first as for
 * pmh_insert, between value and line state), and *new_payload == payload.  Else
 * *new_payload is a list that has the value too (a larger copy, or a new buffer
 * chained in front), durable; the caller publishes it with pmh_bucket_repoint
 * and then calls pmh_list_retire(payload, *new_payload).  PMH_OK, PMH_NEED
 * (nothing done), or PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_list_append(PmhTable *t, uint64_t hash, uint64_t payload,
								 uint64_t value, bool fence_first, bool fence,
								 uint64_t *new_payload);

/*
 * Take one value out; the segment is locked.  PMH_OK: durably gone;
 * *new_payload == payload as a rule, 0 if the list is empty now (the caller
 * removes the pointer slot with pmh_bucket_unpoint), or another head (the
 * caller publishes it with pmh_bucket_repoint); in both latter cases it then
 * calls pmh_list_retire(payload, *new_payload).  PMH_NOT_FOUND; PMH_FAR: not in
 * the first buffers of a long list; PMH_NEED (map further), PMH_ERR_CORRUPT.
 * Unless 'wait', the last value of a buffer, which then has to be freed, stays
 * (PMH_BUSY) if the space lock is not free; if it is, it is held on return.
 */
extern PmhResult pmh_list_remove(PmhTable *t, uint64_t hash, uint64_t payload,
								 uint64_t value, bool wait,
								 uint64_t *new_payload);

/*
 * Free the buffers of the list 'old' that are not part of the list 'new' (0:
 * all).  Nothing points to old any more.
 */
extern void pmh_list_retire(PmhTable *t, uint64_t old, uint64_t new_payload);

/*
 * Reader: add all values of the list to *values (unsorted).  version: of the
 * first buffer, from when payload was current (PmhProbe).  PMH_OK; PMH_RETRY
 * (values->n is what it was before; probe again); PMH_NEED; PMH_ERR_NO_MEMORY;
 * PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_list_read(PmhTable *t, uint64_t hash, uint64_t payload,
							   uint64_t version, PmhValues *values);

/* Room for n more; PMH_OK or PMH_ERR_NO_MEMORY (t->error set). */
extern PmhResult pmh_values_reserve(PmhTable *t, PmhValues *values, size_t n);

/* Sort ascending and drop repetitions. */
extern void pmh_values_finish(PmhValues *values);

/* ---- recovery (recover.c) ---- */

/*
 * Make the volatile parts true again; the caller holds the grow lock and has
 * seen that run.instance is not the current one.  Idempotent.  Whatever was
 * flushed before is durable behind it.
 */
extern PmhResult pmh_recover(PmhTable *t);

/* Is there a sound region header at this block?  PMH_OK or PMH_ERR_CORRUPT. */
extern PmhResult pmh_region_check(PmhTable *t, uint64_t block, uint64_t blocks);

/* CRC-32C (crc.c). */
extern uint32_t pmh_crc32c(const void *data, size_t len);

#endif							/* PMH_INTERNAL_H */
