/*-------------------------------------------------------------------------
 *
 * recorder.h
 *	  A recording implementation of the engine's pm.h, in private memory.
 *
 * There are three memories of the same layout, each with room for a few
 * files.  In memory 0 the workload runs; what it stores is noted line by line
 * until a flush and a fence have made it durable.  Memory 1 holds at rest
 * what is durable of memory 0.  To test a crash some of the noted stores are
 * added to it, and the production recovery runs there.  Its stores are noted
 * in the same way, and memory 2 holds what is durable of them: there crashes
 * inside recovery are recovered from.  Changes of memories 1 and 2 are undone
 * line by line.
 *
 * The model of what power loss leaves of a line: the bytes it had when it was
 * last flushed before a completed fence, and any prefix of the ordinary
 * stores since (each of at most 8 aligned bytes, thus whole); of what pm_copy
 * has written, any subset of its 8-byte words.  Lines are independent.
 *
 * A store is volatile if recovery must not depend on it.  Those to the run
 * area and the space map are not noted at all: there a crash leaves anything.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CRASH_RECORDER_H
#define PMH_CRASH_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"
#include "pm.h"

/* Block 1 is the first part of the space map. */

#define LEVELS			3		/* workload, recovery, recovery after that */
#define FILES			2
#define FILE_BYTES		((size_t) 16 * 1024 * 1024)
#define FILE_LINES		(FILE_BYTES / PMH_LINE)
#define MEMORY_LINES	(FILES * FILE_LINES)
#define MAX_SITES		1024

typedef struct Store
{
	uint64_t	value;
	uint16_t	site;
	uint8_t		at;				/* byte in the line */
	uint8_t		size;
	bool		is_volatile;
} Store;

/* A line with stores that are not durable. */
typedef struct Line
{
	uint32_t	number;			/* in its memory */
	uint32_t	place;			/* in recorder->pending */
	Store	   *store;
	uint16_t	n;
	uint16_t	room;
	uint16_t	flushed;		/* of these, flushed but not fenced */
	uint16_t	lasting;		/* of these, not volatile */
	uint16_t	before_copy;	/* of these, made before pm_copy */
	uint16_t	copy_site;
	uint8_t		copied;			/* words written by pm_copy since the fence */
	uint64_t	copy[8];
} Line;

/* What has been noted of one memory. */
typedef struct Recorder
{
	unsigned	level;
	Line	  **line;			/* by number; NULL: nothing pending */
	Line	  **pending;
	size_t		npending;
	size_t		lasting_lines;	/* of these, with stores that matter */
	bool		unfenced;		/* a flush or copy waits for a fence */
} Recorder;

/* ---- sites ---- */

/* Number the sites; before anything else. */
extern void sites_init(void);
extern unsigned sites_count(void);
extern const PmSite *site_of(unsigned id);
extern const char *site_base_name(const PmSite *site);

/* Times a site was reached at level 0 while armed; shared by processes. */
extern uint64_t *site_hits;

/*
 * Leave a flush, fence or copy out from now on: "list_write.c:123".  (A copy or a
 * commit store is then an ordinary store that nothing flushes.)  False if there is no
 * such site of this kind.
 */
extern bool site_suppress(const char *kind, const char *where);

/* ---- memories ---- */

extern void recorder_init(void);

/* Forget everything: no files, all memories zero. */
extern void recorder_reset(void);

/* Where pm_open and pm_create work. */
extern unsigned recorder_level;

/* Start of a file in a memory. */
extern char *memory_file(unsigned level, unsigned file);

/*
 * Blocks of a file whose space has been given back.  Memory 1 or 2 takes over those of
 * memory 0: what is punched before a crash has no space after it.  Has anything been stored
 * to one since?
 */
extern void memory_take_holes(unsigned level);
extern bool memory_is_hole(unsigned level, unsigned file, uint64_t block);
extern bool memory_hole_used(unsigned level);

/* Overwrite a line of memory 1 or 2, to be undone. */
extern void memory_put_line(unsigned level, uint32_t number, const void *bytes);

/* About to change a line of memory 1 or 2 by other means. */
extern void memory_touch(unsigned level, uint32_t number);

/*
 * Changes of a memory are undone back to a mark, the latest mark first.
 * Without a mark: to what it holds at rest.
 */
typedef struct Mark
{
	size_t		nsaved;
	size_t		length[FILES];
	uint64_t	sum;
} Mark;

extern Mark memory_mark(unsigned level);
extern void memory_return(unsigned level, const Mark *mark);
extern void memory_restore(unsigned level);

/*
 * A hash of all that memory 1 or 2 holds: equal memories, also of different
 * levels, have equal ones.  The word run.instance counts as 0.
 */
extern uint64_t memory_hash(unsigned level);

/* ---- what is pending ---- */

extern Recorder recorders[LEVELS - 1];

/* Note stores of recovery in memory 1 from now on, or forget what was noted. */
extern void recorder_start_level1(void);
extern void recorder_stop_level1(void);

/* The line as it is with the first n stores and these words of pm_copy. */
extern void line_content(const Recorder *r, const Line *line, unsigned n,
						 unsigned words, void *bytes);

/* Is any of the bytes [offset, offset + len) of a file at level 0 not durable? */
extern const Line *recorder_not_durable(unsigned file, uint64_t offset, size_t len);

/*
 * Take memory 1 as it is over as what a crash has left: memory 0 and 2 become
 * the same, nothing is pending, nothing can be undone.
 */
extern void recorder_adopt(void);

/*
 * The process of memory 0 is killed: all it stored is there and may be lost later, also
 * what it flushed, as no other one's fence waits for that.
 */
extern void recorder_kill(void);

/* ---- hooks, called at level 0 and, while started, at level 1 ---- */

/* Before a fence takes effect. */
extern void (*recorder_at_fence) (unsigned level, const PmSite *site);

/* Before a store at level 0 that is not volatile. */
extern void (*recorder_at_store) (void *addr, size_t size, uint64_t value,
								  const PmSite *site);

/* Before a lock is released. */
extern void (*recorder_at_unlock) (const uint64_t *lock);

/*
 * A process is killed, the machine goes on: each store at level 0 is durable
 * at once, and this is called after it.
 */
extern void (*recorder_at_killed) (const PmSite *site);
extern bool recorder_persist;	/* false: the file is no persistent memory */
extern bool recorder_armed;		/* sites that are met at level 0 are counted */

#endif							/* PMH_CRASH_RECORDER_H */
