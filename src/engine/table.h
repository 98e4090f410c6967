/*-------------------------------------------------------------------------
 *
 * table.h
 *	  Public face of the pmhash engine: a persistent, extendible, adaptive
 *	  hash table of (64-bit hash, 47-bit value) pairs in one mapped file.
 *
 * The engine is plain C11.  It includes no PostgreSQL header, never longjmps,
 * never allocates and never does I/O while it holds a lock, and reports every
 * failure as a PmhResult plus a PmhError in the handle.
 *
 * A PmhTable is the handle of one process (or one thread) on one file; it is
 * not itself thread safe.  Any number of handles, in any number of processes
 * that map the file at different addresses, may work on one file at a time as
 * long as all of them were given the same lock table (see PmhLocks).
 *
 * Every function that gives a PmhResult may give PMH_ERR_LOST, and gives it
 * whatever else it has found out, once any handle on the file has met a page
 * that cannot be read or written (SIGBUS; pm.c has the handler).  What it has
 * put into its output is then void.
 *
 * src/README explains the structure, the locks and every crash window.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_TABLE_H
#define PMH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values are 47 bits wide: the 48th bit of a slot tells a pointer from one. */
#define PMH_VALUE_BITS		47
#define PMH_VALUE_MAX		((UINT64_C(1) << PMH_VALUE_BITS) - 1)

/* Bytes of opaque identity the caller stores in the format header. */
#define PMH_IDENTITY_SIZE	128

/* Target load, in percent of all slots, that bulk load accepts. */
#define PMH_MIN_FILL		10
#define PMH_MAX_FILL		98
#define PMH_DEFAULT_FILL	94

typedef struct PmhTable PmhTable;
typedef struct PmhLocks PmhLocks;

typedef enum PmhResult
{
	PMH_OK = 0,
	PMH_NOT_FOUND,				/* delete: no such (hash, value) */
	PMH_DONE,					/* cursor or sweep has reached its end */
	PMH_ERR_EXISTS,				/* create: the file is already there */
	PMH_ERR_NO_FILE,			/* open: there is no such file */
	PMH_ERR_IO,					/* a system call failed; see sys_errno */
	PMH_ERR_NO_SPACE,			/* file system or quota full; see sys_errno */
	PMH_ERR_NO_MEMORY,			/* malloc failed */
	PMH_ERR_FORMAT,				/* not a pmhash file, or of another version */
	PMH_ERR_CORRUPT,			/* a checksum or an invariant does not hold */
	PMH_ERR_TOO_LARGE,			/* a limit of the format has been reached */
	PMH_ERR_LOST,				/* part of the file can't be read or written:
								 * no handle on it will do any more */
	PMH_ERR_OUTDATED			/* open: an older copy of the file */
} PmhResult;

/*
 * What went wrong, for the caller's message.  detail is a complete English
 * sentence fit for an errdetail; offset is where in the file (bytes), or 0.
 */
typedef struct PmhError
{
	PmhResult	code;
	int			sys_errno;
	uint64_t	offset;
	char		detail[160];
} PmhError;

/* A pair as it goes in: what bulk load and group operations take. */
typedef struct PmhEntry
{
	uint64_t	hash;
	uint64_t	value;			/* <= PMH_VALUE_MAX */
} PmhEntry;

/*
 * The world a handle lives in.
 *
 * locks		lock table shared by all handles on the file
 * instance		non-zero number of this run of the system, the same for all
 *				handles; volatile parts of the file that were written under
 *				another instance are rebuilt at open (this is recovery)
 * shut			the stamp that pmh_shut gave all files at the last clean
 *				shutdown of the system, or 0: not known.  A file with another
 *				one is an older copy and is refused
 * shut_begun	the stamp of a shutdown that was not completed, or 0: as good
 * all_shut		the last run was shut down cleanly: a file without a stamp is
 *				refused as well (else it may be one which that run has used)
 * force_pmem	treat the file as persistent memory even if libpmem says it is
 *				not: flush and fence everything (benchmarks, tests)
 */
typedef struct PmhEnv
{
	PmhLocks   *locks;
	uint64_t	instance;
	bool		force_pmem;
	bool		all_shut;
	uint64_t	shut;
	uint64_t	shut_begun;
} PmhEnv;

/*
 * Format parameters, chosen at creation and kept in the header.  Zeroes mean
 * the default.
 *
 * segment_buckets	256-byte buckets in the main part of a segment: a power of
 *					two from 64 to 2048 (default 64, i.e. 16 KiB)
 */
typedef struct PmhGeometry
{
	uint32_t	segment_buckets;
} PmhGeometry;

/* ---- lock table (lock.c) ---- */

/* Bytes needed for a table of nstripes stripes (a power of two, >= 64). */
extern size_t pmh_locks_size(uint32_t nstripes);

/* Make a lock table, all free, in 64-byte aligned shared memory. */
extern PmhLocks *pmh_locks_init(void *memory, uint32_t nstripes);

/* ---- life of a file ---- */

/*
 * Create path exclusively, mode 0600, format it with one empty segment and
 * open it.  The header is made valid last, so that a crash leaves a file that
 * pmh_open refuses.  On failure *table is NULL, the file is gone again and
 * *error says why.
 */
extern PmhResult pmh_create(const char *path, const PmhGeometry *geometry,
							const void *identity, const PmhEnv *env,
							PmhTable **table, PmhError *error);

/*
 * Open an existing file, running recovery first if this is the first open
 * under env->instance (other openers wait meanwhile).  recovered, if not
 * NULL, tells whether this call did it.
 */
extern PmhResult pmh_open(const char *path, const PmhEnv *env,
						  PmhTable **table, bool *recovered, PmhError *error);

/* Unmap and free the handle.  Does not sync. */
extern void pmh_close(PmhTable *table);

/* Make the whole file durable (msync and fsync where it is not pmem). */
extern PmhResult pmh_sync(PmhTable *table);

/*
 * The system is being shut down and nobody uses the file any more: stamp it, so
 * that an older copy can be told from it, and write it back.  A file that this
 * run has not used keeps what it has if pmh_open would refuse it.  env: as for
 * pmh_open in this run.  stamp: not 0, another one at each shutdown.  Maps
 * nothing.  PMH_OK also if the file is too short to be one of ours.
 */
extern PmhResult pmh_shut(const char *path, const PmhEnv *env, uint64_t stamp,
						  PmhError *error);

/* Tell the file's identity (PMH_IDENTITY_SIZE bytes inside the mapping). */
extern const void *pmh_identity(const PmhTable *table);

/*
 * Read only the format header of path, mapping nothing: verifies magic,
 * version and CRC and copies the identity out.  Touches no lock.
 */
extern PmhResult pmh_read_identity(const char *path, void *identity,
								   PmhError *error);

/*
 * Look at a file without mapping it: the header as pmh_read_identity, and
 * whether the file is as long as it says and its directory within.  For who
 * wants to know whether a file that others may be using is still there.
 * Touches no lock.  Results as pmh_open.
 */
extern PmhResult pmh_examine(const char *path, void *identity,
							 PmhError *error);

/* True if the mapping is persistent memory by libpmem's word (not forced). */
extern bool pmh_is_pmem(const PmhTable *table);

/* The last failure on this handle. */
extern const PmhError *pmh_error(const PmhTable *table);

/* ---- entries ---- */

/*
 * Insert (hash, value).  Pairs are not checked for uniqueness.  If
 * fence_first, whatever the caller has stored and flushed before (its undo
 * journal) is fenced before the entry can become visible; if the table is not
 * persistent memory this costs nothing.  When it returns PMH_OK the entry is
 * durable.  On error the table is unchanged.
 */
extern PmhResult pmh_insert(PmhTable *table, uint64_t hash, uint64_t value,
							bool fence_first);

/* Insert n pairs in groups, with prefetch.  *done tells how many are in. */
extern PmhResult pmh_insert_group(PmhTable *table, const PmhEntry *entries,
								  size_t n, bool fence_first, size_t *done);

/* Take (hash, value) out; PMH_NOT_FOUND if it is not there. */
extern PmhResult pmh_delete(PmhTable *table, uint64_t hash, uint64_t value);

/*
 * Take out what a caller has found to be dead.  Same as pmh_delete for each
 * of n pairs; absent ones are passed over.  *removed counts.
 */
extern PmhResult pmh_delete_group(PmhTable *table, const PmhEntry *entries,
								  size_t n, size_t *removed);

/*
 * The same for readers, who must not wait for a writer: pairs that only could
 * be taken out by waiting for one are passed over.
 */
extern PmhResult pmh_delete_group_nowait(PmhTable *table,
										 const PmhEntry *entries, size_t n,
										 size_t *removed);

/*
 * Values found by a look-up.  Zero-initialise once, reuse for ever, free with
 * pmh_values_free.  n values stand in value[], ascending, none twice.
 */
typedef struct PmhValues
{
	uint64_t   *value;
	size_t		n;
	size_t		capacity;
} PmhValues;

extern void pmh_values_free(PmhValues *values);

/*
 * All values of hash.  For the few that most keys have this is the quick way;
 * keys with very many values are better read with a cursor.  Never waits for
 * a writer.
 */
extern PmhResult pmh_lookup(PmhTable *table, uint64_t hash, PmhValues *values);

/*
 * Look n hashes up together, with prefetch, calling found() for each value.
 * key is the position in hashes[].  Values of one key come together,
 * ascending; keys come in the order given.  found() must not longjmp and must
 * not call the engine.
 */
typedef void (*PmhFound) (void *arg, size_t key, uint64_t value);
extern PmhResult pmh_lookup_group(PmhTable *table, const uint64_t *hashes,
								  size_t n, PmhFound found, void *arg);

/*
 * A cursor hands the values of one hash out in batches.  Values present when
 * it was opened and not deleted since are returned exactly once, whatever
 * happens to the table between calls (insert, split, vacuum, list rewrite).
 * Zero-initialise once; reopen at will; free with pmh_cursor_free.  Holds no
 * lock and pins nothing between calls.
 */
typedef struct PmhCursor
{
	uint64_t	hash;
	PmhValues	batch;			/* what the last pmh_cursor_next gave */
	/* private to cursor.c */
	PmhValues	seen;			/* what was handed out, if streaming: see cursor.c */
	uint64_t	chunk;			/* value buffer to go on with (pointer payload) */
	uint64_t	chunk_version;	/* its version when we left it */
	uint64_t	rewrites;		/* of lists, when we began to read */
	uint64_t	budget;			/* to notice a list that runs in a circle */
	uint32_t	line;			/* next line in it */
	int			state;
} PmhCursor;

extern void pmh_cursor_open(PmhTable *table, PmhCursor *cursor, uint64_t hash);

/*
 * Next batch, ascending within itself, in cursor->batch: about 'want' values
 * at the most if the key has a long list (0: no limit, everything).
 * PMH_DONE when there are no more.
 */
extern PmhResult pmh_cursor_next(PmhTable *table, PmhCursor *cursor,
								 size_t want);
extern void pmh_cursor_free(PmhCursor *cursor);

/* ---- sweep ---- */

/*
 * Walk the whole table in hash order, a segment a step.  Every entry present
 * throughout is seen exactly once, whatever splits meanwhile.
 *
 * pmh_sweep_next copies the entries of the next segment (and of the value
 * lists hanging on it) into sweep->entries[0 .. sweep->n); no lock is held
 * when it returns.  Long lists come in several steps.  PMH_DONE at the end.
 * The caller decides, then takes the dead ones out with pmh_sweep_remove,
 * which knows where they stand: one commit store per bucket that loses some.
 * dead[i] != 0 means entries[i] is to go.
 *
 * If the free map of the value space is unknown (after a crash), a complete
 * sweep finds out which value buffers nothing points to and frees them, and
 * for that it takes locks that writers hold.  One that was begun with
 * pmh_sweep_begin_reading does not: it never waits for a writer.
 *
 * pmh_sweep_end may be called at any point.  With table NULL (the handle may
 * be closed already, after an error) it only frees memory; what the sweep has
 * begun to find out is then dropped by the next one, as after a crash.
 */
typedef struct PmhSweep
{
	PmhEntry   *entries;
	size_t		n;
	uint64_t	segments_done;
	uint64_t	segments_total; /* an estimate: splits go on */
	struct PmhSweepPrivate *priv;
} PmhSweep;

extern PmhResult pmh_sweep_begin(PmhTable *table, PmhSweep *sweep);
extern PmhResult pmh_sweep_begin_reading(PmhTable *table, PmhSweep *sweep);
extern PmhResult pmh_sweep_next(PmhTable *table, PmhSweep *sweep);
extern PmhResult pmh_sweep_remove(PmhTable *table, PmhSweep *sweep,
								  const uint8_t *dead, size_t *removed);
extern void pmh_sweep_end(PmhTable *table, PmhSweep *sweep);

/* ---- shrink ---- */

/*
 * Give space back after mass deletes: buddies are merged, lists that have lost
 * most of their values are rewritten, the last part of the file is emptied into
 * free space further down, and what is free at the end goes back to the file
 * system.  Readers and writers may be at work; nobody is held up for longer
 * than by a split.
 *
 * pmh_shrink_begin looks at a sample, and says PMH_DONE if nothing would come
 * of it.  fill_percent is the load the table was made for (PMH_MIN_FILL ..
 * PMH_MAX_FILL): segments are not filled higher than that, nor emptier ones
 * merged that it explains.  pmh_shrink_step does a bounded piece of work; no
 * lock is held when it returns; PMH_DONE when all is done.  pmh_shrink_end may
 * be called at any point; with table NULL as for pmh_sweep_end.
 */
typedef struct PmhShrink
{
	uint64_t	bytes_before;	/* length of the file in use */
	uint64_t	bytes_after;
	uint64_t	steps;
	struct PmhShrinkPrivate *priv;
} PmhShrink;

extern PmhResult pmh_shrink_begin(PmhTable *table, int fill_percent,
								  PmhShrink *shrink);
extern PmhResult pmh_shrink_step(PmhTable *table, PmhShrink *shrink);
extern void pmh_shrink_end(PmhTable *table, PmhShrink *shrink);

/* ---- bulk load ---- */

/*
 * Fill a fresh, empty, private table.  The caller tells the number of entries
 * it expects and the load wanted (percent of slots); the engine answers with
 * the number of top hash bits that make one segment range (*depth), of which
 * the caller takes any prefix for its partitions.  Partitions are then handed
 * over in ascending order of hash, each with all its entries in memory (their
 * order within is free; the array is used as scratch).  partition_bits <=
 * *depth.  Entries that do not fit in memory may be left out and inserted the
 * ordinary way after pmh_bulk_finish.  A crash before pmh_bulk_finish leaves
 * an empty table.
 */
typedef struct PmhBulk PmhBulk;

extern PmhResult pmh_bulk_begin(PmhTable *table, uint64_t expected,
								int fill_percent, uint32_t *depth,
								PmhBulk **bulk);
extern PmhResult pmh_bulk_partition(PmhBulk *bulk, uint32_t partition_bits,
									uint64_t partition, PmhEntry *entries,
									size_t n);
extern PmhResult pmh_bulk_finish(PmhBulk *bulk);
extern void pmh_bulk_abandon(PmhBulk *bulk);

/* ---- statistics and check ---- */

typedef struct PmhStats
{
	uint64_t	file_bytes;		/* allocated for the file */
	uint64_t	used_bytes;		/* of these, not in the free map */
	uint64_t	entries;		/* pairs, in buckets and lists */
	uint64_t	slots;			/* slots in all segments */
	uint64_t	used_slots;		/* of these, occupied */
	double		load_factor;	/* used_slots / slots */
	uint32_t	global_depth;
	uint32_t	min_depth;		/* least and greatest local depth */
	uint32_t	max_depth;
	uint64_t	segments;
	uint64_t	segments_single;	/* by strategy */
	uint64_t	segments_two_choice;
	uint64_t	segments_stash;
	uint64_t	entries_elsewhere;	/* not in their home bucket */
	uint64_t	entries_stash;	/* of these, in stash buckets */
	uint64_t	lists;			/* keys with a value list */
	uint64_t	list_entries;	/* values in lists */
	uint64_t	list_bytes;		/* bytes of buffers that lists occupy */
	uint64_t	value_bytes;	/* bytes of all value regions */
	uint64_t	splits;			/* counted since the last recovery: */
	uint64_t	grows;
	uint64_t	doublings;
	uint64_t	compactions;
	uint64_t	strategy_changes;
	uint64_t	merges;
	bool		value_space_known;	/* false: a crash left it to be swept */
} PmhStats;

/* Exact figures by walking everything.  Blocks nobody. */
extern PmhResult pmh_stats(PmhTable *table, PmhStats *stats);

/* Cheap estimates from a sample of segments (for the planner). */
extern PmhResult pmh_estimate(PmhTable *table, uint64_t *entries,
							  uint64_t *file_bytes);

/*
 * Check the structure: header, directory, every bucket, every list, the free
 * map against what is reachable.  report() gets one complete sentence per
 * finding; the result is PMH_ERR_CORRUPT if there was any.  Needs no writer
 * at work for the free map part (exclusive), else passes that over.
 */
typedef void (*PmhReport) (void *arg, uint64_t offset, const char *finding);
extern PmhResult pmh_check(PmhTable *table, bool exclusive, PmhReport report,
						   void *arg);

/*
 * The same for callers who may be called off: stop(arg) is asked before each
 * segment, and if it says so the result is PMH_DONE.
 */
typedef bool (*PmhStop) (void *arg);
extern PmhResult pmh_check_until(PmhTable *table, bool exclusive,
								 PmhReport report, PmhStop stop, void *arg);

/*
 * All values of hash as pmh_lookup gives them, but in no order, and a value
 * that stands in the table several times is given as often.  One may also
 * come twice because it has been taken out and put in again, or has been
 * moved into a value list, while we read: then it does not when read again.
 */
extern PmhResult pmh_lookup_repeats(PmhTable *table, uint64_t hash,
									PmhValues *values);

#endif							/* PMH_TABLE_H */
