/*-------------------------------------------------------------------------
 *
 * layout.h
 *	  The pmhash file as it stands on the medium.
 *
 * Everything here is format: change it only with PMH_FORMAT_VERSION.  All
 * integers are little-endian, all offsets are bytes from the start of the
 * file, all structures are naturally aligned.  See src/README, "File format".
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_LAYOUT_H
#define PMH_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler.h"
#include "table.h"

/*
 * What is stored here is stored as the processor has it, and fields are taken out of
 * words by shifts (states and fingerprints of a bucket, bucket.h; lines, list_read.c):
 * with the other byte order files would not be each other's, and look-ups be wrong.
 * Words are loaded and stored as a whole, which takes registers of 64 bits, and files are
 * mapped as a whole, which takes addresses of 64 bits.
 */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
			   "pmhash runs on little-endian machines only");
_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8,
			   "pmhash runs on 64-bit machines only");

#define PMH_MAGIC			UINT64_C(0x31485341484d50ff)	/* "\377PMHASH1" */
#define PMH_FORMAT_VERSION	10

#define PMH_LINE			64	/* cache line: the unit of flushing */
#define PMH_BUCKET_SIZE		256
#define PMH_SLOTS			18
#define PMH_STASH_BUCKETS	2	/* a segment's last two, by number */
#define PMH_BLOCK_SHIFT		14	/* log2 of the bytes of a block */
#define PMH_BLOCK_SIZE		(UINT64_C(1) << PMH_BLOCK_SHIFT)
#define PMH_UNIT_SHIFT		11	/* and of a unit */
#define PMH_UNIT_SIZE		(UINT64_C(1) << PMH_UNIT_SHIFT)
#define PMH_UNITS_PER_BLOCK	8
#define PMH_UNIT_BUCKETS	8
#define PMH_SEGMENT_BUCKETS	(PMH_UNITS_PER_BLOCK * PMH_UNIT_BUCKETS)	/* M */
#define PMH_IN_MAIN			(PMH_SEGMENT_BUCKETS - PMH_STASH_BUCKETS)

#define PMH_MAX_DEPTH		23	/* directory bits: hash bits 63..41 */

/* ---- which hash bits are used for what: disjoint on purpose ---- */

#define pmh_hash_fingerprint(h)	((uint8_t) (h))
#define pmh_hash_home_bits(h)	((uint32_t) (((h) >> 8) & 0xffff))
#define pmh_hash_alt_bits(h)	((uint32_t) (((h) >> 24) & 0xffff))
#define pmh_hash_prefix(h, depth) \
	((depth) == 0 ? UINT64_C(0) : (h) >> (64 - (depth)))

/*
 * The hashes of a segment of depth d are all that agree in their first d bits.
 * That many hashes (0: all 2^64 of depth 0), the bits they agree in, the first of
 * them, and the first one after them (0: there is none).
 */
static inline uint64_t
pmh_segment_span(uint32_t depth)
{
	PMH_ASSERT(depth < 64);
	return depth == 0 ? 0 : UINT64_C(1) << (64 - depth);
}

static inline uint64_t
pmh_segment_mask(uint32_t depth)
{
	PMH_ASSERT(depth < 64);
	return depth == 0 ? 0 : ~UINT64_C(0) << (64 - depth);
}

static inline uint64_t
pmh_segment_start(uint64_t hash, uint32_t depth)
{
	return hash & pmh_segment_mask(depth);
}

static inline uint64_t
pmh_segment_end(uint64_t hash, uint32_t depth)
{
	return depth == 0 ? 0 : pmh_segment_start(hash, depth) + pmh_segment_span(depth);
}

/*
 * ---- bucket: 256 bytes, 4 cache lines, 18 slots ----
 *
 * A slot's 64 hash bits are its fingerprint (bits 0-7), 16 bits in its word
 * (8-23), a 32-bit (24-55) and an 8-bit field (56-63): the whole hash stands
 * in every entry wherever it sits.  Every field is naturally aligned, so each
 * store is atomic for readers and for power loss, and no slot straddles cache
 * lines: a slot is in line 0 (slots 0-2) or in one other line (5 slots each),
 * apart from one byte of slots 7, 12 and 17 that stands in line 0, which is
 * read anyway.
 *
 *	line 0	 0	uint32 state		22	uint8 top[0..2]		40	uint64 word[0..2]
 *			 4	uint8 fp[18]		25	uint8 top of slots 7, 12, 17
 *									28	uint32 mid[0..2]
 *	line k	 0	uint8 top[4]		 4	uint32 mid[5]		24	uint64 word[5]
 *			(k = 1..3: slots 5k-2 .. 5k+2)
 *
 * The state word is the commit point of a bucket.
 */
#define PMH_SLOT_FINGERPRINT	4	/* offset of that of slot 0 in a bucket */

#define PMH_STATE_OCCUPIED		UINT32_C(0x0003ffff)	/* a bit per slot */
#define PMH_STATE_POINTERS		UINT32_C(0x00040000)	/* may hold pointers */
#define PMH_STATE_STASHED		UINT32_C(0x00080000)	/* some of ours in stash */
#define PMH_STATE_ELSEWHERE		UINT32_C(0xfff00000)	/* filter: ours in alt */
#define PMH_STATE_ELSEWHERE_SHIFT	20
#define PMH_ELSEWHERE_BITS		12

/* slot word: value or pointer in 47 bits, the flag, 16 bits of hash */
#define PMH_WORD_POINTER		(UINT64_C(1) << PMH_VALUE_BITS)
#define PMH_WORD_PAYLOAD		PMH_VALUE_MAX
#define PMH_WORD_HASH_SHIFT		48

/* a pointer: offset / PMH_GRAIN, level (2 bits) and size class (5 bits) */
#define PMH_POINTER_CLASS_BITS	5
#define PMH_POINTER_LEVEL_BITS	2
#define PMH_POINTER_KIND_BITS	(PMH_POINTER_CLASS_BITS + PMH_POINTER_LEVEL_BITS)

/*
 * ---- value buffers: PMH_GRAIN * pmh_class_grains[class] bytes, made of value lines ----
 *
 * A value line is half a cache line: a 16-bit state of which bits 0-4 tell which of
 * the five 6-byte values are there, and the values, low parts and high parts apart
 * so that each is aligned and stored and loaded atomically.  The other bits of the
 * state mean nothing.
 *
 *	0	uint16 state	2	uint16 high[0]	4	uint32 low[0]
 *	8	uint32 low[1]	12	uint16 high[1], high[2]
 *	16	uint32 low[2]	20	uint32 low[3]
 *	24	uint16 high[3], high[4]		28	uint32 low[4]
 *
 * The first half of a line is a short line, of two values.  Only buffers of
 * PMH_ODD_CLASS have one, after their one whole line or, in a place that is no
 * multiple of 32, in front of it: so no line straddles two cache lines.
 *
 * Classes below PMH_HEADER_CLASS are nothing but lines.  From there on the first
 * line is a header.  Buffers of class < PMH_CHUNK_CLASS grow by copying into a larger
 * class; from there on a list grows by further buffers, and an index names them (see
 * below).  Every buffer of a list holds a value, every index names a buffer.
 * There is no class 0.
 */
#define PMH_GRAIN				16	/* buffers begin and end at multiples of this */
#define PMH_VALUE_LINE			32
#define PMH_VALUES_PER_LINE		5
#define PMH_VALUES_SHORT_LINE	2
#define PMH_LEAST_CLASS			1	/* 32 bytes: the smallest of a list */
#define PMH_ODD_CLASS			2	/* 48 bytes: a line and a short one */
#define PMH_HEADER_CLASS		10	/* 320 bytes: first class with a header */
#define PMH_CHUNK_CLASS			26	/* 4032 bytes: no larger list is one buffer */
#define PMH_MAX_CLASS			29	/* 16128 bytes: a whole value block */
#define PMH_CHUNK_LINES			126 /* lines of a buffer of PMH_CHUNK_CLASS, ... */
#define PMH_MAX_LINES			504 /* ... and of the largest */

/* Bytes of each class, in grains; 0: there is no such class. */
static const uint16_t pmh_class_grains[1 << PMH_POINTER_CLASS_BITS] = {
	0, 2, 3, 4, 6, 8, 10, 12, 14, 16,	/* lines alone */
	20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224,
	252, 336, 504, 1008, 0, 0			/* four, three, two and one in a block */
};

typedef union PmhValueLine
{
	uint16_t	state;
	uint64_t	word[PMH_VALUE_LINE / sizeof(uint64_t)];
	uint8_t		bytes[PMH_VALUE_LINE];
} PmhValueLine;

#define PMH_LINE_OCCUPIED	((1u << PMH_VALUES_PER_LINE) - 1)

typedef struct PmhBufferHeader
{
	uint64_t	hash;			/* whose list this is (for the check) */
	uint32_t	fill_hint;		/* volatile: the first line that may have room, or the slot
								 * of an index below which values are added; from bit
								 * PMH_HINT_KIND_SHIFT on, not volatile: level and class */
	uint32_t	pad[5];
} PmhBufferHeader;

#define PMH_HINT_KIND_SHIFT		24

_Static_assert(sizeof(PmhBufferHeader) == PMH_VALUE_LINE, "a header is a line");
_Static_assert(PMH_MAX_LINES < 1 << PMH_HINT_KIND_SHIFT &&
			   PMH_HINT_KIND_SHIFT + PMH_POINTER_KIND_BITS <= 32,
			   "a fill hint would reach into level and class");

/*
 * ---- index of a long list: a header, and slots to the end of the buffer ----
 *
 * Of level 1 its slots name buffers of values, of level l others of level l - 1.  A slot is
 * 0 or a pointer, and from bit PMH_SLOT_COUNT_SHIFT on a number that counts what has been
 * stored to it since it was 0: so a slot that is the same names the same buffer.
 */
#define PMH_INDEX_CLASS			5	/* 128 bytes: the smallest index */
#define PMH_MAX_LEVEL			((1u << PMH_POINTER_LEVEL_BITS) - 1)
#define PMH_SLOT_COUNT_SHIFT	41
#define PMH_SLOT_POINTER		((UINT64_C(1) << PMH_SLOT_COUNT_SHIFT) - 1)
#ifdef PMH_SMALL_INDEXES		/* for tests: several levels in a list of some values */
#define PMH_MAX_INDEX_CLASS		7
#define PMH_MAX_INDEX_SLOTS		20
#else
#define PMH_MAX_INDEX_CLASS		PMH_MAX_CLASS
#define PMH_MAX_INDEX_SLOTS		2012	/* of the largest index */

_Static_assert(PMH_MAX_INDEX_SLOTS * sizeof(uint64_t) + sizeof(PmhBufferHeader) ==
			   PMH_MAX_LINES * PMH_VALUE_LINE,
			   "the slots are not the rest of the largest index");
#endif

/*
 * ---- value block: a block that buffers are allocated in ----
 *
 * Its first lines have a bit for each grain (those of the lines themselves are set).  In a
 * block of this server life 'used' tells which grains are allocated.  In one of an earlier
 * life it tells which have not been freed since, and 'mark' what a walk has found in lists;
 * once a walk is complete, what is in both is what is used (value_space.c).
 *
 * That it is a value block is what its kind byte says (see the space map).
 */
#define PMH_BLOCK_GRAINS	(PMH_BLOCK_SIZE / PMH_GRAIN)
#define PMH_GRAIN_WORDS		(PMH_BLOCK_GRAINS / 64)

typedef struct PmhValueBlock
{
	uint64_t	used[PMH_GRAIN_WORDS];	/* volatile */
	uint64_t	mark[PMH_GRAIN_WORDS];	/* likewise */
} PmhValueBlock;

/* The grains of these lines, in the first word. */
#define PMH_HEAD_GRAINS		(sizeof(PmhValueBlock) / PMH_GRAIN)

_Static_assert(PMH_HEAD_GRAINS < 64 && PMH_BLOCK_GRAINS % 64 == 0,
			   "the bits of a value block are not whole words");
_Static_assert(PMH_MAX_LINES * PMH_VALUE_LINE == PMH_BLOCK_SIZE - sizeof(PmhValueBlock),
			   "the largest buffer is not all of a value block");

/*
 * ---- directory element ----
 *
 * bits 0-23	offset of the main part, in blocks; 0 if there is none
 * bits 24-50	offset of the extension, in units; 0 if no ext
 * bits 51-54	size, in units of 8 buckets, with those of the main part: 8 if there is
 *				no extension, up to 15; below 8 the segment is a small one
 * bits 55-59	local depth
 * bits 60-61	strategy
 * bit 62		parity of the other even bits, bit 63 that of the other odd ones
 *
 * The parity tells of a flipped bit, before what it says is followed by recovery or by a
 * writer; look-ups do not compute it.
 *
 * A block is M buckets: the main part of a segment.  Its hashing buckets come first, the
 * two of the stash last; further hashing buckets are in the extension.  A small segment
 * is units of one block and nothing else.  There the stash comes first, and the element
 * has the offset of its units with PMH_SMALL_SHIFT added: so look-ups find a bucket of
 * it as they find one of an extension, whose first bucket has the number PMH_IN_MAIN.
 */
#define PMH_ELEM_MAIN_BITS		24
#define PMH_ELEM_EXT_SHIFT		24
#define PMH_ELEM_EXT_BITS		27
#define PMH_ELEM_SIZE_SHIFT		51
#define PMH_ELEM_SIZE_BITS		4
#define PMH_ELEM_DEPTH_SHIFT	55
#define PMH_ELEM_STRATEGY_SHIFT	60
#define PMH_ELEM_STRATEGY_BITS	2
#define PMH_ELEM_PARITY_SHIFT	62
#define PMH_SMALL_SHIFT			PMH_UNITS_PER_BLOCK

_Static_assert(PMH_SMALL_SHIFT * PMH_UNIT_SIZE ==
			   (PMH_IN_MAIN + PMH_STASH_BUCKETS) * PMH_BUCKET_SIZE,
			   "bucket 0 of a small segment is not the one after its stash");

/*
 * ---- how large a file may be ----
 *
 * Nearly 2^24 blocks, 256 GiB.  A segment of its own for each of the 2^PMH_MAX_DEPTH
 * elements of the largest directory takes about as much.  A file that would have to
 * grow beyond is PMH_ERR_TOO_LARGE; what is in it can be read and taken out.
 *
 * No extent of blocks is longer than what lies between two map blocks, each of which
 * tells of a block with a byte.
 */
#define PMH_MAX_BLOCKS_SHIFT	24
#define PMH_MAX_BLOCKS			((UINT64_C(1) << PMH_MAX_BLOCKS_SHIFT) - 1)
#define PMH_LONGEST_EXTENT		(PMH_ZONE_BLOCKS - 2)

_Static_assert(PMH_MAX_BLOCKS_SHIFT <= PMH_ELEM_MAIN_BITS &&
			   PMH_ELEM_MAIN_BITS <= PMH_ELEM_EXT_SHIFT,
			   "an element cannot name every block");
_Static_assert(PMH_MAX_BLOCKS * PMH_UNITS_PER_BLOCK + PMH_SMALL_SHIFT <=
			   UINT64_C(1) << PMH_ELEM_EXT_BITS &&
			   PMH_ELEM_EXT_SHIFT + PMH_ELEM_EXT_BITS <= PMH_ELEM_SIZE_SHIFT,
			   "an element cannot name every unit");
_Static_assert(PMH_ELEM_SIZE_SHIFT + PMH_ELEM_SIZE_BITS <= PMH_ELEM_DEPTH_SHIFT,
			   "an element cannot tell every size");
_Static_assert(1 << (PMH_ELEM_SIZE_BITS - 1) == PMH_UNITS_PER_BLOCK,
			   "the highest bit of the size does not tell whether there is a main part");
_Static_assert(PMH_MAX_BLOCKS * PMH_BLOCK_SIZE <=
			   (UINT64_C(1) << (PMH_SLOT_COUNT_SHIFT - PMH_POINTER_KIND_BITS)) * PMH_GRAIN,
			   "a pointer cannot name every grain");
_Static_assert(PMH_MAX_CLASS < 1 << PMH_POINTER_CLASS_BITS,
			   "a pointer cannot tell every class");
_Static_assert(PMH_MAX_DEPTH < 1 << (PMH_ELEM_STRATEGY_SHIFT - PMH_ELEM_DEPTH_SHIFT),
			   "an element cannot tell every depth");

typedef enum PmhStrategy
{
	PMH_SINGLE = 0,
	PMH_TWO_CHOICE = 1,
	PMH_STASH = 2
} PmhStrategy;

_Static_assert(PMH_STASH < 1 << PMH_ELEM_STRATEGY_BITS,
			   "an element cannot tell every strategy");
_Static_assert(PMH_ELEM_STRATEGY_SHIFT + PMH_ELEM_STRATEGY_BITS ==
			   PMH_ELEM_PARITY_SHIFT && PMH_ELEM_PARITY_SHIFT % 2 == 0,
			   "the parity is not the last two bits of an element");

/*
 * ---- directory word: the commit point of a doubling ----
 *
 * bits 0-41	offset of the current directory / 64
 * bits 42-46	global depth
 * bits 47-63	a checksum of these (pmh_seal)
 *
 * A directory only becomes larger, so no word comes a second time in a file's life.
 */
#define PMH_DIRWORD_DEPTH_SHIFT	42
#define PMH_DIRWORD_BITS		47

_Static_assert(PMH_MAX_BLOCKS_SHIFT + PMH_BLOCK_SHIFT - 6 <= PMH_DIRWORD_DEPTH_SHIFT,
			   "dirword cannot name every line");
_Static_assert(PMH_MAX_DEPTH < 1 << (PMH_DIRWORD_BITS - PMH_DIRWORD_DEPTH_SHIFT),
			   "dirword cannot tell every depth");

/*
 * ---- file header: the first two units, 4096 bytes ----
 *
 * format	written once at creation; magic is stored last
 * note		the caller's, of which the engine knows nothing
 * live		persistent, changed by 8-byte commit stores
 * run		volatile: trusted only while run.instance is the current one;
 *			rebuilt by recovery, never flushed
 */
typedef struct PmhFormat
{
	uint64_t	magic;
	uint32_t	version;
	uint32_t	unused[4];
	uint32_t	crc;			/* CRC-32C of this struct with crc = 0 */
	uint64_t	file_id;		/* random; tells files apart in the lock table */
	uint64_t	reserved[1];
	uint8_t		identity[PMH_IDENTITY_SIZE];	/* the caller's */
} PmhFormat;					/* 192 bytes */

typedef struct PmhLive
{
	uint64_t	dirword;		/* line of its own: every look-up reads it */
	uint64_t	pad0[7];
	uint64_t	blocks;			/* file length in blocks (handle.h); never less than before */
	uint64_t	pad1[7];
} PmhLive;						/* 128 bytes */

/* blocks has a checksum in its upper half. */
#define PMH_LIVE_CRC_SHIFT	32

#define PMH_CLASSES		(PMH_MAX_CLASS + 1)

typedef struct PmhRun
{
	uint64_t	instance;		/* stored last by recovery */
	uint64_t	space_hint;		/* first block that may have free units */
	uint64_t	unit_hint;		/* first partly used block for extensions */
	uint64_t	free_units;		/* units free in the map */
	uint64_t	shut;			/* stamp of a clean shutdown, durable while no
								 * run has opened the file after it; else 0 */
	uint64_t	punched_blocks; /* how many there are: see the space map */
	uint64_t	pad0[4];
	uint64_t	value_blocks;	/* how many there are, ... */
	uint64_t	old_blocks;		/* ... and of these, of an earlier life */
	uint64_t	newest_block;	/* the value block that was taken last, or 0 */
	uint64_t	value_hint[PMH_CLASSES];	/* first block that may have room */
	uint64_t	splits;
	uint64_t	grows;
	uint64_t	doublings;
	uint64_t	compactions;
	uint64_t	strategy_changes;
	uint64_t	merges;
	uint64_t	list_rewrites;	/* by removals */
} PmhRun;

#define PMH_FORMAT_OFFSET		0
#define PMH_LIVE_OFFSET			256
#define PMH_RUN_OFFSET			512
#define PMH_NOTE_OFFSET			960 /* the caller's note: PMH_NOTE_WORDS words */
#define PMH_HEADER_SIZE			4096
#define PMH_HEADER_UNITS		2

/*
 * Two small directories stand in the header, one of them current and the other
 * free for the next doubling; larger ones get blocks.
 */
#define PMH_SMALL_DIR_OFFSET(i)	(2048 + (uint64_t) (i) * 1024)
#define PMH_SMALL_DIR_DEPTH		7	/* 128 elements of 8 bytes */

/*
 * ---- space map ----
 *
 * Two bytes per block.  The first one is volatile, made anew by recovery: a bit per unit
 * (set: in use, or not to be had).  The upper three bits of the second one are the kind of
 * the block: 0, a value block, or one that was punched; no flipped bit makes one of them
 * another.  In the lower five bits is, volatile, of a value block: the largest class that
 * may have room in there (0: none has), or that it is of an earlier life.
 *
 * Those of the first PMH_HEADER_MAP_BLOCKS blocks stand in the header, kinds after bits;
 * those of the others among blocks [z * Z, (z + 1) * Z), Z = PMH_ZONE_BLOCKS, fill
 * the block z * Z, for z = 0 the block PMH_HEADER_MAP_BLOCKS.
 */
#define PMH_HEADER_MAP_OFFSET	1024
#define PMH_HEADER_MAP_BLOCKS	512
#define PMH_ZONE_BLOCKS			(PMH_BLOCK_SIZE / 2)

#define PMH_KIND_MASK			0xe0
#define PMH_KIND_VALUES			0xa0
#define PMH_KIND_PUNCHED		0x60
#define PMH_ROOM_MASK			0x1f
#define PMH_ROOM_SEEN			30	/* of an earlier life, with bits for a walk ... */
#define PMH_ROOM_OLD			31	/* ... and without */

_Static_assert(PMH_MAX_CLASS < PMH_ROOM_SEEN, "a kind cannot tell every class");

/*
 * ---- guards: offsets and sizes of what outlives a server life ----
 *
 * A change of one of them is another format: it takes another PMH_FORMAT_VERSION.
 */
#define PMH_AT(type, field, offset) \
	_Static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")
#define PMH_SIZE(type, size) \
	_Static_assert(sizeof(type) == (size), #type " has another size")

PMH_SIZE(PmhValueLine, 32);

PMH_AT(PmhBufferHeader, hash, 0);
PMH_AT(PmhBufferHeader, fill_hint, 8);
PMH_SIZE(PmhBufferHeader, 32);

PMH_AT(PmhFormat, magic, 0);
PMH_AT(PmhFormat, version, 8);
PMH_AT(PmhFormat, crc, 28);
PMH_AT(PmhFormat, file_id, 32);
PMH_AT(PmhFormat, reserved, 40);
PMH_AT(PmhFormat, identity, 48);
PMH_SIZE(PmhFormat, 192);

PMH_AT(PmhLive, dirword, 0);
PMH_AT(PmhLive, blocks, 64);
PMH_SIZE(PmhLive, 128);

/* (The others are made anew in each server life.) */
PMH_AT(PmhRun, instance, 0);
PMH_AT(PmhRun, shut, 32);
PMH_SIZE(PmhRun, 400);

PMH_AT(PmhValueBlock, used, 0);
PMH_AT(PmhValueBlock, mark, 128);
PMH_SIZE(PmhValueBlock, 256);

#undef PMH_AT
#undef PMH_SIZE

_Static_assert(PMH_FORMAT_OFFSET + sizeof(PmhFormat) <= PMH_LIVE_OFFSET &&
			   PMH_LIVE_OFFSET + sizeof(PmhLive) <= PMH_RUN_OFFSET &&
			   PMH_RUN_OFFSET + sizeof(PmhRun) <= PMH_NOTE_OFFSET &&
			   PMH_NOTE_OFFSET + PMH_NOTE_WORDS * sizeof(uint64_t) <= PMH_HEADER_MAP_OFFSET &&
			   PMH_HEADER_MAP_OFFSET + 2 * PMH_HEADER_MAP_BLOCKS <= PMH_SMALL_DIR_OFFSET(0) &&
			   PMH_SMALL_DIR_OFFSET(2) <= PMH_HEADER_SIZE &&
			   PMH_HEADER_SIZE <= PMH_HEADER_UNITS * PMH_UNIT_SIZE,
			   "the parts of the header overlap");
_Static_assert(offsetof(PmhLive, blocks) % PMH_LINE == 0 &&
			   PMH_LIVE_OFFSET % PMH_LINE == 0,
			   "dirword is to have a line of its own");

/*
 * Eighteen slots are what 256 bytes hold.  The state has a bit for each, a filter
 * and two flags; fingerprints begin after it and end before the bytes of the
 * tops (bucket.h), and pmh_bucket_match loads state and fingerprints as three
 * words.  A slot more needs another bucket, not another number.
 */
_Static_assert(PMH_SLOTS == 18 && PMH_BUCKET_SIZE == 256 && PMH_LINE == 64,
			   "the slots of a bucket are laid out by hand, here and in bucket.h");
_Static_assert(PMH_SEGMENT_BUCKETS * PMH_BUCKET_SIZE == PMH_BLOCK_SIZE &&
			   PMH_UNIT_BUCKETS * PMH_BUCKET_SIZE == PMH_UNIT_SIZE,
			   "a block or a unit is not its buckets");
_Static_assert(PMH_STATE_OCCUPIED == (UINT32_C(1) << PMH_SLOTS) - 1,
			   "the state has not one bit for each slot");
_Static_assert((PMH_STATE_OCCUPIED & PMH_STATE_POINTERS) == 0 &&
			   (PMH_STATE_OCCUPIED | PMH_STATE_POINTERS | PMH_STATE_STASHED |
				PMH_STATE_ELSEWHERE) == UINT32_MAX &&
			   PMH_STATE_ELSEWHERE == UINT32_MAX << PMH_STATE_ELSEWHERE_SHIFT &&
			   PMH_STATE_ELSEWHERE_SHIFT + PMH_ELSEWHERE_BITS == 32,
			   "the parts of the state overlap, or leave bits out");
_Static_assert(PMH_SLOT_FINGERPRINT == sizeof(uint32_t) &&
			   PMH_SLOT_FINGERPRINT + PMH_SLOTS <= 3 * sizeof(uint64_t) - 2,
			   "the fingerprints do not lie in the first three words after the state");
_Static_assert(PMH_WORD_HASH_SHIFT == PMH_VALUE_BITS + 1,
			   "value, flag and hash do not make up a slot word");
_Static_assert((UINT64_C(1) << PMH_SMALL_DIR_DEPTH) * 8 ==
			   PMH_SMALL_DIR_OFFSET(1) - PMH_SMALL_DIR_OFFSET(0),
			   "a small directory is not as long as its place");

/* ---- directory word and directory elements, taken apart ---- */

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

/* Elements and bytes of a directory. */
static inline uint64_t
pmh_directory_elements(uint32_t depth)
{
	PMH_ASSERT(depth < 64);
	return UINT64_C(1) << depth;
}

static inline uint64_t
pmh_directory_size(uint32_t depth)
{
	return pmh_directory_elements(depth) * sizeof(uint64_t);
}

static inline uint64_t
pmh_elem_main_block(uint64_t elem)
{
	return elem & ((UINT64_C(1) << PMH_ELEM_MAIN_BITS) - 1);
}

/* In units; 0 in what is no element. */
static inline uint32_t
pmh_elem_size(uint64_t elem)
{
	return (uint32_t) (elem >> PMH_ELEM_SIZE_SHIFT) & ((1 << PMH_ELEM_SIZE_BITS) - 1);
}

static inline bool
pmh_elem_has_main(uint64_t elem)
{
	return pmh_elem_size(elem) >= PMH_UNITS_PER_BLOCK;
}

/* Units besides the main part: the extension, or all of a small segment. */
static inline uint32_t
pmh_elem_units(uint64_t elem)
{
	return pmh_elem_size(elem) % PMH_UNITS_PER_BLOCK;
}

/* The first of these units. */
static inline uint64_t
pmh_elem_ext_unit(uint64_t elem)
{
	return ((elem >> PMH_ELEM_EXT_SHIFT) & ((UINT64_C(1) << PMH_ELEM_EXT_BITS) - 1)) -
		(pmh_elem_has_main(elem) ? 0 : PMH_SMALL_SHIFT);
}

static inline uint32_t
pmh_elem_depth(uint64_t elem)
{
	return (uint32_t) (elem >> PMH_ELEM_DEPTH_SHIFT) & 31;
}

static inline PmhStrategy
pmh_elem_strategy(uint64_t elem)
{
	return (PmhStrategy) ((elem >> PMH_ELEM_STRATEGY_SHIFT) &
						  ((1 << PMH_ELEM_STRATEGY_BITS) - 1));
}

/* An element has room for one that is none: such a file is damaged. */
static inline bool
pmh_strategy_exists(PmhStrategy strategy)
{
	return strategy <= PMH_STASH;
}

/* May an entry be in its alternative bucket? */
static inline bool
pmh_strategy_has_alternative(PmhStrategy strategy)
{
	return strategy == PMH_TWO_CHOICE || strategy == PMH_STASH;
}

/* May it be in the stash? */
static inline bool
pmh_strategy_has_stash(PmhStrategy strategy)
{
	return strategy == PMH_STASH;
}

/* The parity of the even bits of a word, and that of the odd ones: two bits. */
static inline uint64_t
pmh_parities(uint64_t word)
{
	word ^= word >> 32;
	word ^= word >> 16;
	word ^= word >> 8;
	word ^= word >> 4;
	return (word ^ word >> 2) & 3;
}

/* An element with its parity right, whatever that was.  That of 0 is 0. */
static inline uint64_t
pmh_elem_seal(uint64_t elem)
{
	elem &= (UINT64_C(1) << PMH_ELEM_PARITY_SHIFT) - 1;
	return elem | pmh_parities(elem) << PMH_ELEM_PARITY_SHIFT;
}

/* Is its parity right? */
static inline bool
pmh_elem_whole(uint64_t elem)
{
	return pmh_parities(elem) == 0;
}

/* A segment of 'size' units has a main part (else main_block is 0) if they are 8. */
static inline uint64_t
pmh_make_elem(uint64_t main_block, uint64_t ext_unit, uint32_t size,
			  uint32_t depth, PmhStrategy strategy)
{
	if (size < PMH_UNITS_PER_BLOCK)
		ext_unit += PMH_SMALL_SHIFT;
	return pmh_elem_seal(main_block | ext_unit << PMH_ELEM_EXT_SHIFT |
						 (uint64_t) size << PMH_ELEM_SIZE_SHIFT |
						 (uint64_t) depth << PMH_ELEM_DEPTH_SHIFT |
						 (uint64_t) strategy << PMH_ELEM_STRATEGY_SHIFT);
}

/* CRC-32C (file_life.c). */
extern uint32_t pmh_crc32c(const void *data, size_t len);

#endif							/* PMH_LAYOUT_H */
