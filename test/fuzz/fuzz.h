/*-------------------------------------------------------------------------
 *
 * fuzz.h
 *	  Damaged index files: what the parts of the fuzzer know of each other.
 *
 * images.c	sound files of many kinds, with what they hold and what stands where
 * damage.c	ways to damage one
 * exercise.c	everything an engine can do, against what should be there
 * mapping.c	mappings between guard pages
 * fuzz.c	cases, child processes, verdicts
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_FUZZ_H
#define PMH_FUZZ_H

#include "fixture.h"

/* ---- images ---- */

/* What a line of a file is for, as far as a check could tell. */
typedef enum LineUse
{
	USE_NONE = 0,				/* free, map, volatile */
	USE_HEADER,					/* format header, live words */
	USE_DIRECTORY,				/* elements of the current directory */
	USE_ENTRIES					/* buckets, value buffers: no checksum */
} LineUse;

typedef enum Spot
{
	SPOT_ELEMENT,				/* directory elements */
	SPOT_BUCKET,				/* buckets with entries */
	SPOT_POINTER,				/* slot words that are pointers */
	SPOT_HEADER,				/* headers of value buffers */
	SPOT_SLOT,					/* slots of the indexes of lists */
	SPOT_LINE,					/* value lines in use */
	SPOT_VALUES,				/* value blocks: their bits */
	SPOT_KIND,					/* bytes that tell the kind of a block */
	SPOT_MAP,					/* bytes of the space map */
	SPOT_KINDS,					/* of these each image has a list; and there are: */
	SPOT_RUN = SPOT_KINDS,		/* the run area */
	SPOT_ANY					/* any word */
} Spot;

typedef struct Offsets
{
	uint64_t   *at;
	size_t		n;
	size_t		room;
} Offsets;

typedef struct Image
{
	const char *name;
	char	   *bytes;
	size_t		size;
	uint8_t		identity[PMH_IDENTITY_SIZE];
	PmhEntry   *pair;			/* what it holds, ascending, none twice */
	size_t		npairs;
	bool		needs_recovery; /* left by a crash: for a new instance only */
	uint8_t    *use;			/* LineUse of each line */
	Offsets		spot[SPOT_KINDS];
	Offsets		payload;		/* pointers in use */
} Image;

/* Instance that the images were made under. */
#define IMAGE_INSTANCE		UINT64_C(1)

/* Build all images with files at 'path'; returns their number. */
extern size_t images_build(const char *path, const Image **images);

/* ---- damage ---- */

typedef struct Damage
{
	const Image *image;			/* what 'bytes' was a copy of */
	const Image *other;			/* where foreign blocks come from */
	char	   *bytes;			/* room for DAMAGE_ROOM */
	size_t		size;
	bool		foreign;		/* now another file altogether */
	bool		uses[USE_ENTRIES + 1];	/* what was changed, by LineUse */
	char		what[512];		/* for people */
} Damage;

#define DAMAGE_ROOM		((size_t) 8 * 1024 * 1024)

/* Do one thing to the file; 'length_too': it may become shorter or longer. */
extern void damage_once(Damage *d, uint64_t *seed, bool length_too);

/* ---- exercise ---- */

/*
 * What an exercise has seen.  'wrong' counts answers that are not what the
 * image says, given without an error.
 */
typedef struct Seen
{
	uint64_t	errors;			/* operations that have failed as they may */
	uint64_t	strange;		/* ... with a result that damage cannot explain */
	uint64_t	findings;		/* of pmh_check */
	uint64_t	wrong;
	uint64_t	disagree;		/* readers that do not agree with each other */
	char		first[256];		/* the first thing of interest */
} Seen;

/* Where a case is, for the parent of the process that dies in it. */
extern const char *volatile *exercise_step;

/* Read everything; 'seen' says what was found. */
extern void exercise_read(PmhTable *t, const Image *image, Seen *seen);

/*
 * Insert, delete, sweep; then what the table should hold is the image with
 * these changes, which is checked.  'salt' makes new keys.
 */
extern void exercise_change(PmhTable *t, const Image *image, uint64_t salt, Seen *seen);

/* Read everything again, after exercise_change with the same salt. */
extern void exercise_read_changed(PmhTable *t, const Image *image, uint64_t salt, Seen *seen);

extern void seen_note(Seen *seen, const char *what, ...)
			__attribute__((format(printf, 2, 3)));

#endif							/* PMH_FUZZ_H */
