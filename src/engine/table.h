/*-------------------------------------------------------------------------
 *
 * table.h
 *	  Public face of the pmhash engine: a persistent, extendible, adaptive
 *	  hash table of (64-bit hash, 47-bit value) pairs in one mapped file.
 *
 * The engine is plain C11.  It includes no PostgreSQL header, never longjmps,
 * never allocates memory while it holds a lock, does no I/O while it holds one
 * that look-ups, inserts or deletes need (the file grows, and is punched, under
 * a grow lock of its own), and reports every failure as a PmhResult plus a
 * PmhError in the handle.
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

#include "error.h"

/* Values are 47 bits wide: the 48th bit of a slot tells a pointer from one. */
#define PMH_VALUE_BITS		47
#define PMH_VALUE_MAX		((UINT64_C(1) << PMH_VALUE_BITS) - 1)

/* Bytes of opaque identity the caller stores in the format header. */
#define PMH_IDENTITY_SIZE	144

/* Words of the caller's note, which stands beside the format header: 0 at first. */
#define PMH_NOTE_WORDS		8

/* Target load, in percent of all slots, that bulk load accepts. */
#define PMH_MIN_FILL		10
#define PMH_MAX_FILL		98
#define PMH_DEFAULT_FILL	94

typedef struct PmhTable PmhTable;
typedef struct PmhLocks PmhLocks;

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
 * ---- file descriptors ----
 *
 * A handle keeps no file descriptor.  Each function here that needs one opens
 * the file (by the path that pmh_open was given, so that must stay valid: mind
 * relative ones), and has closed it when it returns; it never has two at a time.
 * The one exception is a bulk load: from pmh_bulk_begin until pmh_bulk_finish,
 * pmh_bulk_abandon or pmh_close one descriptor may be held.  Which functions
 * need one: all that take a path; and any other that writes, if the
 * file gets more space or gives some back.
 *
 * A file that was unlinked or replaced while a handle is open on it can be read
 * for as long as the handle lives, and be written until it has to grow; then
 * there is PMH_ERR_NO_FILE.  PMH_ERR_NO_DESCRIPTOR leaves the table as it was.
 */

/* ---- memory (memory.c) ---- */

/*
 * Bytes of memory that pages of files could take without others having to be swapped
 * out, within the limits of the cgroups of this process.  0: nobody knows.  root:
 * "", or a directory with the files of a test.
 */
extern uint64_t pmh_available_memory(const char *root);

/* ---- lock table (lock.c) ---- */

/* Bytes needed for a table of nstripes stripes (a power of two, >= 64). */
extern size_t pmh_locks_size(uint32_t nstripes);

/* Make a lock table, all free, in 64-byte aligned shared memory. */
extern PmhLocks *pmh_locks_init(void *memory, uint32_t nstripes);

/*
 * What a process does about waits.  A holder of a lock executes a bounded number
 * of instructions, but may be stopped meanwhile (a debugger, a frozen container).
 *
 * begin, end	called around the sleeping part of a wait, not for short ones
 * cancelled	called now and then in waits in which nothing is held and nothing
 *				is half done, and by what may take long: for each segment by
 *				statistics, for each buffer of a list by what reads all of it, and
 *				each time that others have spoilt one, for each thousand entries by
 *				the end of a bulk load; true gives the wait up, and the operation
 *				returns PMH_CANCELLED
 *
 * Each may be NULL.  begin and end are called with locks held, also in a signal
 * handler: they must not allocate, lock, or report anything.  cancelled must come back
 * to its caller, and not call the engine.
 */
typedef struct PmhWaitHooks
{
	void		(*begin) (void);
	void		(*end) (void);
	bool		(*cancelled) (void);
} PmhWaitHooks;

/* Set them for this process; to be called before it uses any file. */
extern void pmh_set_wait_hooks(const PmhWaitHooks *wanted);

/* ---- life of a file ---- */

/*
 * Create path exclusively, mode 0600, format it with one empty segment and
 * open it.  The header is made valid last, so that a crash leaves a file that
 * pmh_open refuses.  On failure *table is NULL, the file is gone again and
 * *error says why.
 */
extern PmhResult pmh_create(const char *path, const void *identity,
							const PmhEnv *env, PmhTable **table, PmhError *error);

/*
 * Open an existing file, running recovery first if this is the first open
 * under env->instance (other openers wait meanwhile).
 */
extern PmhResult pmh_open(const char *path, const PmhEnv *env, PmhTable **table,
						  PmhError *error);

/* Unmap and free the handle.  Does not sync. */
extern void pmh_close(PmhTable *table);

/* What the inode of a file tells, without its being mapped. */
typedef struct PmhInode
{
	uint64_t	size;			/* in bytes */
	uint64_t	allocated;		/* likewise: what it occupies */
	bool		never_pmem;		/* surely not persistent memory: Linux says so since
								 * 5.8; false: ask an open handle */
} PmhInode;

/* Ask the inode of the file at path.  False, with errno, if that can't be. */
extern bool pmh_look(const char *path, PmhInode *inode);

/*
 * The system is being shut down and no process uses the file any more: stamp it, so
 * that an older copy differs from it, and write it back.  A file that this
 * run has not used keeps what it has if pmh_open would refuse it.  env: as for
 * pmh_open in this run.  stamp: not 0, another one at each shutdown.  synced: the
 * device (st_dev) of which the caller writes back all files afterwards, so that
 * those need no fsync here; 0: none.  Maps nothing.  PMH_OK also if the file is too
 * short to be one of ours.  PMH_ERR_LOST: it was opened, and could not be stamped or
 * written back, so pages of it may go; any other error: it was not opened.
 */
extern PmhResult pmh_shut(const char *path, const PmhEnv *env, uint64_t stamp,
						  uint64_t synced, PmhError *error);

/* Tell the file's identity: PMH_IDENTITY_SIZE bytes in the handle. */
extern const void *pmh_identity(const PmhTable *table);

/* The path that the file was made or opened by; as long as the handle. */
extern const char *pmh_path(const PmhTable *table);

/* Write words of the note of the file at path.  False with errno.  Flushes nothing. */
extern bool pmh_write_note(const char *path, int first, const uint64_t *words, int n);

/* Store a word of it through a mapping: in order with all other stores of the caller. */
extern PmhResult pmh_store_note(PmhTable *table, int word, uint64_t value);

/*
 * What the header of a file tells, without its being mapped.  instance: the run that has
 * opened it last; if it is the present one, pmh_open has found it sound and recovered it.
 */
typedef struct PmhHead
{
	uint64_t	identity[PMH_IDENTITY_SIZE / sizeof(uint64_t)];
	uint64_t	note[PMH_NOTE_WORDS];
	uint64_t	instance;
	PmhInode	inode;
} PmhHead;

/*
 * Read it: magic, version and checksum are right, the file is as long as it says, and its
 * directory within.  Others may be using the file.  Touches no lock.  Results as pmh_open.
 */
extern PmhResult pmh_examine(const char *path, PmhHead *head, PmhError *error);

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
 * Take many pairs out, in steps: what a caller has found to be dead.
 *
 * As many as are handed in, in any order; they are copied.  Where many go, what is left in
 * a buffer of a list goes into a smaller one.  Those of one hash go
 * in one walk along its list, which is read without any lock but for its first
 * 32 KiB; while a segment is locked no more is done than looking through these, and making
 * some 30 buffers smaller, or clearing one buffer of the list (less than 200 us).
 *
 * If not 'wait' (readers must not wait for a writer) a pair that could only be
 * taken out by waiting for a lock stays.
 *
 * pmh_removal_step goes on where the last step has stopped.  effort: pieces to
 * be done, each one a group of up to 16 pairs in buckets, or a buffer of a list
 * (up to 16 KiB, 2,550 values): some 10 us.  No lock is held when it returns, and
 * what has been taken out is durably gone.  PMH_OK: there is more to do; PMH_DONE:
 * all pairs have been seen to.
 *
 * removed counts pairs taken out so far.  pmh_removal_end frees the memory, at any point; it
 * needs no handle.
 */
typedef struct PmhRemoval
{
	size_t		removed;
	struct PmhRemovalPrivate *priv;
} PmhRemoval;

extern PmhResult pmh_removal_begin(PmhTable *table, const PmhEntry *entries,
								   size_t n, bool wait, PmhRemoval *removal);
extern PmhResult pmh_removal_step(PmhTable *table, PmhRemoval *removal,
								  size_t effort);
extern void pmh_removal_end(PmhRemoval *removal);

/* All steps at once, with waiting.  *removed counts, also if there is an error. */
extern PmhResult pmh_delete_group(PmhTable *table, const PmhEntry *entries,
								  size_t n, size_t *removed);

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

/* Where a walk over all segments is, in the order of hashes, for the engine itself. */
typedef struct PmhPosition
{
	uint64_t	next;			/* where the next segment begins */
	bool		through;		/* there is none */
} PmhPosition;

/* Where a walk along a list is, for the engine itself (list.h). */
typedef struct PmhListPosition
{
	uint64_t	below;			/* slots below this one are left, and of ... */
	uint32_t	line;			/* ... the last of them lines from here on, if it is not 0 */
	uint32_t	start;			/* where in each buffer reading begins: 2^32 is its end */
	uint64_t	word;			/* of the slot that was read last */
	bool		again;			/* another buffer was there before */
	uint64_t	met[4];			/* the buffers that the last step came by, 0: none */
} PmhListPosition;

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
 *
 * The work for a key is bounded: of one whose list is more than a buffer of less than
 * 4 KiB (up to 555 values) at most that much is read, and found() is called for it once,
 * with PMH_VALUE_MANY.  Its values are read by pmh_lookup or a cursor.
 */
#define PMH_VALUE_MANY		UINT64_MAX

typedef void (*PmhFound) (void *arg, size_t key, uint64_t value);
extern PmhResult pmh_lookup_group(PmhTable *table, const uint64_t *hashes,
								  size_t n, PmhFound found, void *arg);

/*
 * A cursor hands the values of one hash out in batches.  Values present when
 * it was opened and not deleted since are returned exactly once, whatever
 * happens to the table between calls (insert, split, vacuum, list rewrite).
 * Zero-initialise once; reopen at will; free with pmh_cursor_free.  Holds no
 * lock and pins nothing between calls.
 *
 * leave_out, which may be set after each pmh_cursor_open, is called before batches are
 * counted and sorted: it drops the values that are not wanted of value[0 .. n), keeps
 * the order of the others and returns how many these are.
 *
 * start, which may be set before the first batch, tells where in each buffer of a long
 * list to begin, as a part of 2^32 of it: what is before that comes last.  So processes
 * that each look for any one value of a key do not all meet the same ones.
 */
typedef struct PmhCursor
{
	uint64_t	hash;
	size_t		(*leave_out) (const void *argument, uint64_t *value, size_t n);
	const void *leave_out_argument;
	uint32_t	start;
	PmhValues	batch;			/* what the last pmh_cursor_next gave: to be read only */
	/* private to cursor.c */
	PmhListPosition at;
	bool		begun;			/* a batch has been read */
	PmhValues	given;			/* see cursor.c */
	size_t		plain;			/* of these, from buckets */
	uint64_t	slot;			/* the others: from this slot of the list */
} PmhCursor;

extern void pmh_cursor_open(PmhTable *table, PmhCursor *cursor, uint64_t hash);

/*
 * Next batch, ascending within itself, in cursor->batch: about 'want' values (> 0)
 * at the most if the key has a long list.  PMH_DONE when there are no more.  A batch may be
 * empty: many buffers may have nothing that is wanted and was not given before, and the
 * caller sees whether the values are still wanted.
 */
extern PmhResult pmh_cursor_next(PmhTable *table, PmhCursor *cursor,
								 size_t want);

/* Memory that a cursor has now: its batch and what it remembers. */
extern size_t pmh_cursor_bytes(const PmhCursor *cursor);
extern void pmh_cursor_free(PmhCursor *cursor);

/* ---- sweep ---- */

/*
 * Walk the whole table, a segment a step, in hash order.  Every entry present
 * throughout is seen exactly once, whatever splits meanwhile.
 *
 * pmh_sweep_next copies the entries of the next segment (and of the value
 * lists hanging on it) into sweep->entries[0 .. sweep->n); no lock is held
 * when it returns.  Long lists come in several steps.  There may be none, if what it
 * comes by is empty, or has been given before: so the caller sees whether the sweep is
 * still wanted.  PMH_DONE at the end.
 * The caller decides, and takes the dead of many steps out together (PmhRemoval).
 *
 * If it is unknown what is free in value blocks (after a restart), a complete sweep finds
 * out which value buffers nothing points to and frees them, and for that it takes locks
 * that writers hold.  One that was begun with pmh_sweep_begin_reading does not: it never
 * waits for a writer.
 *
 * pmh_sweep_end may be called at any point, also when the handle is closed.
 */
typedef struct PmhSweep
{
	PmhEntry   *entries;
	size_t		n;
	uint64_t	segments_done;
	uint64_t	segments_total; /* an estimate: splits go on */
	bool		reclaims;		/* it will find out what is free */
	struct PmhSweepPrivate *priv;
} PmhSweep;

extern PmhResult pmh_sweep_begin(PmhTable *table, PmhSweep *sweep);
extern PmhResult pmh_sweep_begin_reading(PmhTable *table, PmhSweep *sweep);
extern PmhResult pmh_sweep_next(PmhTable *table, PmhSweep *sweep);
extern void pmh_sweep_end(PmhSweep *sweep);

/* ---- shrink ---- */

/*
 * Give space back after mass deletes: buddies are merged, and what is free goes back
 * to the file system.  The file keeps its length.  Readers and writers may be at work; no
 * process is held up for longer than by a split.
 *
 * pmh_shrink_begin looks at a sample, and says PMH_DONE if nothing would come
 * of it.  fill_percent is the load the table was made for (PMH_MIN_FILL ..
 * PMH_MAX_FILL): segments are not filled higher than that, nor emptier ones
 * merged that it explains.  pmh_shrink_step does a bounded piece of work; no
 * lock is held when it returns; PMH_DONE when all is done.
 */
typedef struct PmhShrink
{
	uint64_t	bytes_before;	/* of the file that have space */
	uint64_t	bytes_after;
	uint64_t	bytes_seen;		/* that the steps have looked at, about: what they cost */
	/* private to shrink.c */
	uint32_t	percent;		/* how full segments may become */
	bool		no_space;		/* the file can't grow: merging passes over what does not fit */
	PmhPosition at;				/* of the walk that merges; when that is through: */
	uint64_t	block;			/* where to go on punching, ... */
	uint64_t	spare;			/* ... and how many free blocks are still to be left */
} PmhShrink;

extern PmhResult pmh_shrink_begin(PmhTable *table, int fill_percent,
								  PmhShrink *shrink);
extern PmhResult pmh_shrink_step(PmhTable *table, PmhShrink *shrink);

/* ---- bulk load ---- */

/*
 * Fill a fresh, empty, private table.  The caller tells the number of keys that
 * it expects and the load wanted (percent of slots); the engine answers with
 * the number of top hash bits that make one segment range (*depth), of which
 * the caller takes any prefix for its partitions.  All partitions are then
 * handed over in ascending order of hash, empty ones, too, each with all its entries
 * in memory (their order within is free; the array is used as scratch).
 * partition_bits <= *depth.  Entries that do not fit in memory may be left out and
 * inserted the ordinary way after pmh_bulk_finish.  A crash before pmh_bulk_finish
 * leaves an empty table.  So does pmh_bulk_abandon, or an error of pmh_bulk_finish, but
 * space of the file is lost: it is to be thrown away.
 */
typedef struct PmhBulk PmhBulk;

extern PmhResult pmh_bulk_begin(PmhTable *table, uint64_t expected,
								int fill_percent, uint32_t *depth,
								PmhBulk **bulk);
extern PmhResult pmh_bulk_partition(PmhBulk *bulk, uint32_t partition_bits,
									PmhEntry *entries, size_t n);
extern PmhResult pmh_bulk_finish(PmhBulk *bulk);
extern void pmh_bulk_abandon(PmhBulk *bulk);

/* ---- statistics and check ---- */

typedef struct PmhStats
{
	uint64_t	file_bytes;		/* allocated for the file: its length but for holes */
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
	uint64_t	value_bytes;	/* bytes of all value blocks */
	uint64_t	splits;			/* counted since the last recovery: */
	uint64_t	grows;
	uint64_t	doublings;
	uint64_t	compactions;
	uint64_t	strategy_changes;
} PmhStats;

/* Exact figures by walking everything.  Blocks no process. */
extern PmhResult pmh_stats(PmhTable *table, PmhStats *stats);

/*
 * Is it known what is free in value blocks?  If not, a complete sweep that was begun
 * with pmh_sweep_begin finds out.  A load, no lock.
 */
extern bool pmh_value_space_is_known(const PmhTable *table);

/*
 * A cheap estimate of the entries, from a sample of segments.  For VACUUM, and for scans by
 * several arrays.
 */
extern PmhResult pmh_estimate(PmhTable *table, uint64_t *entries);

/*
 * Check the structure: header, directory, every bucket, every list.  report() gets one
 * complete sentence per finding; the result is PMH_ERR_CORRUPT if there was any.  Writers
 * may be at work.
 */
typedef void (*PmhReport) (void *arg, uint64_t offset, const char *finding);
extern PmhResult pmh_check(PmhTable *table, PmhReport report, void *arg);

/*
 * All values of hash as pmh_lookup gives them, but in no order, piece by piece, with no
 * memory that grows with them; and a value that stands in the table several times is
 * given as often.  One may also come twice because it has been taken out and put in
 * again, or has been moved into a value list, while we read: then it does not when read
 * again.  give() gets each piece, with no lock held; it must not longjmp and not call the
 * engine.
 */
typedef void (*PmhGive) (void *arg, const uint64_t *value, size_t n);
extern PmhResult pmh_lookup_repeats(PmhTable *table, uint64_t hash, PmhGive give, void *arg);

#endif							/* PMH_TABLE_H */
