/*-------------------------------------------------------------------------
 *
 * damage.c
 *	  Ways to damage a file: blind ones, and ones that know the format.
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>

#include "fuzz.h"

typedef void (*Way) (Damage *d, uint64_t *seed);

static uint64_t
below(uint64_t *seed, uint64_t n)
{
	return n == 0 ? 0 : fixture_random(seed) % n;
}

static void say(Damage *d, const char *what, ...)
			__attribute__((format(printf, 2, 3)));

static void
say(Damage *d, const char *what, ...)
{
	size_t		used = strlen(d->what);
	va_list		args;

	va_start(args, what);
	vsnprintf(d->what + used, sizeof(d->what) - used, what, args);
	va_end(args);
}

/* These bytes are going to change. */
static void
touch(Damage *d, uint64_t offset, uint64_t len)
{
	for (uint64_t line = offset / PMH_LINE;
		 line * PMH_LINE < offset + len && line < d->image->size / PMH_LINE; line++)
		d->uses[d->image->use[line]] = true;
}

/* Put bytes somewhere, as far as the file goes. */
static void
overwrite(Damage *d, uint64_t offset, const void *bytes, uint64_t len)
{
	if (offset >= d->size)
		return;
	if (len > d->size - offset)
		len = d->size - offset;
	touch(d, offset, len);
	memcpy(d->bytes + offset, bytes, len);
}

static uint64_t
word_at(const Damage *d, uint64_t offset)
{
	uint64_t	word = 0;

	if (offset + sizeof(word) <= d->size)
		memcpy(&word, d->bytes + offset, sizeof(word));
	return word;
}

static void
set_word(Damage *d, uint64_t offset, uint64_t word)
{
	say(d, " word at %llu: %llx, was %llx;", (unsigned long long) offset,
		(unsigned long long) word, (unsigned long long) word_at(d, offset));
	overwrite(d, offset, &word, sizeof(word));
}

/* A value that the code may not be made for. */
static uint64_t
interesting(const Damage *d, uint64_t *seed, uint64_t old)
{
	switch (below(seed, 14))
	{
		case 0:
			return 0;
		case 1:
			return ~UINT64_C(0);
		case 2:
			return below(seed, 64);
		case 3:
			return old + 1;
		case 4:
			return old - 1;
		case 5:
			return old ^ UINT64_C(1) << below(seed, 64);
		case 6:
			return old << (1 + below(seed, 20));
		case 7:
			return old >> (1 + below(seed, 20));
		case 8:
			return UINT64_C(1) << below(seed, 64);
		case 9:
			return (UINT64_C(1) << below(seed, 64)) - 1;
		case 10:
			return d->size + below(seed, 3) - 1;
		case 11:
			return below(seed, d->size);
		case 12:
			return word_at(d, below(seed, d->size / 8) * 8);
		default:
			return fixture_random(seed);
	}
}

static void
make_interesting(Damage *d, uint64_t *seed, uint64_t offset)
{
	set_word(d, offset, interesting(d, seed, word_at(d, offset)));
}

/* Some place of a kind; false if the image has none. */
static bool
some_spot(const Damage *d, uint64_t *seed, Spot spot, uint64_t *offset)
{
	const Offsets *o;

	if (spot >= SPOT_KINDS)
	{
		*offset = spot == SPOT_RUN ? PMH_RUN_OFFSET : below(seed, d->size / 8) * 8;
		return true;
	}
	o = &d->image->spot[spot];
	if (o->n == 0)
		return false;
	*offset = o->at[below(seed, o->n)];
	return true;
}

/* ---- blind ---- */

static void
flip_bits(Damage *d, uint64_t *seed)
{
	for (uint64_t i = below(seed, 4) + 1; i > 0; i--)
	{
		uint64_t	offset = below(seed, d->size);
		uint8_t		byte = (uint8_t) (d->bytes[offset] ^ 1 << below(seed, 8));

		say(d, " bit flipped at %llu;", (unsigned long long) offset);
		overwrite(d, offset, &byte, 1);
	}
}

static void
set_run(Damage *d, uint64_t *seed)
{
	uint64_t	offset = below(seed, d->size);
	uint64_t	len = UINT64_C(1) << below(seed, 15);
	char		bytes[1 << 14];

	if (below(seed, 2) == 0)
		memset(bytes, below(seed, 2) == 0 ? 0 : 0xff, len);
	else
	{
		for (uint64_t i = 0; i < len; i++)
			bytes[i] = (char) fixture_random(seed);
	}
	say(d, " %llu bytes at %llu;", (unsigned long long) len, (unsigned long long) offset);
	overwrite(d, offset, bytes, len);
}

/* ---- length ---- */

static void
truncate_file(Damage *d, uint64_t *seed)
{
	static const uint64_t units[] = {1, 512, 4096, 16384};
	uint64_t	unit = units[below(seed, 4)];

	d->size = below(seed, d->size / unit + 1) * unit;
	d->uses[USE_HEADER] = true;
	say(d, " cut to %llu bytes;", (unsigned long long) d->size);
}

static void
extend_file(Damage *d, uint64_t *seed)
{
	static const uint64_t units[] = {1, 4096, 16384};
	uint64_t	len = (below(seed, 64) + 1) * units[below(seed, 3)];
	bool		garbage = below(seed, 2) == 0;

	for (uint64_t i = 0; i < len; i++)
		d->bytes[d->size + i] = garbage ? (char) fixture_random(seed) : 0;
	d->size += len;
	say(d, " %llu bytes longer;", (unsigned long long) len);
}

/* ---- blocks and files ---- */

static void
swap_blocks(Damage *d, uint64_t *seed)
{
	uint64_t	size = PMH_BLOCK_SIZE;
	uint64_t	a = below(seed, d->size / size) * size;
	uint64_t	b = below(seed, d->size / size) * size;
	char		saved[PMH_BLOCK_SIZE];

	if (d->size < size)
		return;
	memcpy(saved, d->bytes + a, size);
	say(d, " blocks at %llu and %llu swapped;", (unsigned long long) a, (unsigned long long) b);
	overwrite(d, a, d->bytes + b, size);
	overwrite(d, b, saved, size);
}

static void
take_foreign_block(Damage *d, uint64_t *seed)
{
	uint64_t	size = PMH_BLOCK_SIZE;
	uint64_t	from = below(seed, d->other->size / size) * size;
	uint64_t	to = below(seed, 4) == 0 ? from : below(seed, d->size / size) * size;

	say(d, " block at %llu from \"%s\" to %llu;", (unsigned long long) from, d->other->name,
		(unsigned long long) to);
	overwrite(d, to, d->other->bytes + from, size);
}

/* The whole of another file. */
static void
become_foreign(Damage *d, uint64_t *seed)
{
	memcpy(d->bytes, d->other->bytes, d->other->size);
	d->size = d->other->size;
	d->foreign = true;
	say(d, " now it is \"%s\";", d->other->name);
}

/* ---- headers ---- */

static uint32_t
format_crc(PmhFormat format)
{
	format.crc = 0;
	return pmh_crc32c(&format, sizeof(format));
}

static void
random_header(Damage *d, uint64_t *seed)
{
	PmhFormat	format;
	unsigned char *byte = (unsigned char *) &format;

	for (size_t i = 0; i < sizeof(format); i++)
		byte[i] = (unsigned char) fixture_random(seed);
	if (below(seed, 2) == 0)
		format.magic = PMH_MAGIC;
	if (below(seed, 2) == 0)
		format.version = PMH_FORMAT_VERSION;
	if (below(seed, 2) == 0)
		format.crc = format_crc(format);
	say(d, " random header;");
	overwrite(d, 0, &format, sizeof(format));
}

/* A field of the header, and a checksum that says it is right. */
static void
wrong_header(Damage *d, uint64_t *seed)
{
	PmhFormat	format;

	memcpy(&format, d->bytes, sizeof(format));
	if (below(seed, 2) == 0)
		format.file_id = fixture_random(seed);
	else
		format.version = (uint32_t) interesting(d, seed, format.version);
	format.crc = format_crc(format);
	say(d, " header with version %u;", format.version);
	overwrite(d, 0, &format, sizeof(format));
}

static void
live_word(Damage *d, uint64_t *seed)
{
	static const size_t words[] = {offsetof(PmhLive, dirword), offsetof(PmhLive, blocks)};
	size_t		word = words[below(seed, 2)];
	uint64_t	offset = PMH_LIVE_OFFSET + word;

	make_interesting(d, seed, offset);
	if (word != offsetof(PmhLive, dirword) && below(seed, 2) == 0)
		set_word(d, offset, pmh_seal(word_at(d, offset), PMH_LIVE_CRC_SHIFT));
}

/* One bit of what checksum or parity covers, or of what must be 0. */
static void
flip_guarded_bit(Damage *d, uint64_t *seed)
{
	static const size_t words[] = {offsetof(PmhLive, dirword), offsetof(PmhLive, blocks)};
	uint64_t	offset;

	if (below(seed, 2) == 0 || !some_spot(d, seed, SPOT_ELEMENT, &offset))
		offset = PMH_LIVE_OFFSET + words[below(seed, 2)];
	set_word(d, offset, word_at(d, offset) ^ UINT64_C(1) << below(seed, 64));
}

/* One field of the directory word. */
static void
directory_word(Damage *d, uint64_t *seed)
{
	uint64_t	offset = PMH_LIVE_OFFSET + offsetof(PmhLive, dirword);
	uint64_t	word = word_at(d, offset);
	uint64_t	at = pmh_dirword_offset(word) / 64;
	uint64_t	depth = pmh_dirword_depth(word);

	if (below(seed, 2) == 0)
		depth = below(seed, 32);
	else
	{
		static const uint64_t step[] = {1, 64, 256};

		at = below(seed, d->size / 64 / step[below(seed, 3)]) * step[below(seed, 3)];
	}
	set_word(d, offset, (at & ((UINT64_C(1) << 42) - 1)) | depth << PMH_DIRWORD_DEPTH_SHIFT);
}

/* ---- directory, lists, space ---- */

static void
directory_element(Damage *d, uint64_t *seed)
{
	uint64_t	offset;
	uint64_t	other;
	uint64_t	elem;
	uint64_t	blocks = d->size / PMH_BLOCK_SIZE;

	if (!some_spot(d, seed, SPOT_ELEMENT, &offset) || !some_spot(d, seed, SPOT_ELEMENT, &other))
		return;
	elem = word_at(d, offset);
	switch (below(seed, 8))
	{
		case 0:
			elem = word_at(d, other);
			break;
		case 1:
			elem = (elem & ~((UINT64_C(1) << PMH_ELEM_MAIN_BITS) - 1)) | below(seed, blocks + 2);
			break;
		case 2:
			elem = pmh_make_elem(pmh_elem_main_block(elem), below(seed, 8 * (blocks + 2)),
								 (uint32_t) below(seed, 16), pmh_elem_depth(elem),
								 pmh_elem_strategy(elem));
			break;
		case 3:
			elem ^= UINT64_C(1) << (PMH_ELEM_SIZE_SHIFT + below(seed, PMH_ELEM_SIZE_BITS));
			break;
		case 4:
			elem ^= UINT64_C(1) << (PMH_ELEM_DEPTH_SHIFT + below(seed, 5));
			break;
		case 5:
			elem ^= UINT64_C(1) << (PMH_ELEM_STRATEGY_SHIFT + below(seed, 4));
			break;
		case 6:
			elem = (elem & ~(UINT64_C(31) << PMH_ELEM_DEPTH_SHIFT)) | below(seed, 32) << PMH_ELEM_DEPTH_SHIFT;
			break;
		default:
			elem = interesting(d, seed, elem);
	}
	set_word(d, offset, below(seed, 2) == 0 ? elem : pmh_elem_seal(elem));
}

/* A pointer that looks right, goes in a circle, or is nonsense. */
static uint64_t
some_payload(const Damage *d, uint64_t *seed, uint64_t old)
{
	const Offsets *o = &d->image->payload;
	uint64_t	offset;

	switch (below(seed, 6))
	{
		case 0:
		case 1:
			return o->n == 0 ? 0 : o->at[below(seed, o->n)];
		case 2:
			return pmh_make_pointer(below(seed, d->size), (uint32_t) below(seed, 10));
		case 3:
			return pmh_make_index_pointer(pmh_pointer_offset(old), (uint32_t) below(seed, 32),
										  (uint32_t) below(seed, PMH_MAX_LEVEL + 1));
		case 4:
			if (some_spot(d, seed, SPOT_VALUES, &offset))
				return pmh_make_pointer(offset + below(seed, PMH_BLOCK_GRAINS) * PMH_GRAIN,
										(uint32_t) below(seed, 9));
			return 0;
		default:
			return interesting(d, seed, old);
	}
}

static void
pointer_slot(Damage *d, uint64_t *seed)
{
	uint64_t	offset;
	uint64_t	word;

	if (!some_spot(d, seed, SPOT_POINTER, &offset))
		return;
	word = word_at(d, offset);
	set_word(d, offset, (word & ~PMH_WORD_PAYLOAD) |
			 (some_payload(d, seed, pmh_word_payload(word)) & PMH_WORD_PAYLOAD));
}

static void
list_slot(Damage *d, uint64_t *seed)
{
	uint64_t	offset;

	if (some_spot(d, seed, SPOT_SLOT, &offset))
		set_word(d, offset, some_payload(d, seed, word_at(d, offset)));
}

/* The bits of a value block. */
static void
value_bits(Damage *d, uint64_t *seed)
{
	uint64_t	offset;

	if (!some_spot(d, seed, SPOT_VALUES, &offset))
		return;
	offset += below(seed, sizeof(PmhValueBlock) / sizeof(uint64_t)) * sizeof(uint64_t);
	set_word(d, offset, below(seed, 2) == 0 ? 0 : word_at(d, offset) ^ fixture_random(seed));
}

/* The kind of a block, most often a possible one. */
static void
block_kind(Damage *d, uint64_t *seed)
{
	uint64_t	offset;
	uint8_t		byte = (uint8_t) fixture_random(seed);

	if (!some_spot(d, seed, SPOT_KIND, &offset))
		return;
	if (below(seed, 4) != 0)
		byte = (uint8_t) (below(seed, 3) == 0 ? 0 :
						  PMH_KIND_VALUES | (byte & PMH_ROOM_MASK));
	say(d, " kind at %llu: %x;", (unsigned long long) offset, byte);
	overwrite(d, offset, &byte, 1);
}

static void
space_map(Damage *d, uint64_t *seed)
{
	uint64_t	offset;

	for (uint64_t i = below(seed, 8) + 1; i > 0; i--)
	{
		uint8_t		byte = (uint8_t) (below(seed, 2) == 0 ? 0 : fixture_random(seed));

		if (!some_spot(d, seed, SPOT_MAP, &offset))
			return;
		say(d, " map byte at %llu: %x;", (unsigned long long) offset, byte);
		overwrite(d, offset, &byte, 1);
	}
}

/* As a word of the run area, for a value that gets far. */
static void
run_plausible(Damage *d, uint64_t *seed)
{
	static const size_t words[] = {offsetof(PmhRun, newest_block), offsetof(PmhRun, value_hint) + 8,
		offsetof(PmhRun, value_hint) + 48, offsetof(PmhRun, unit_hint),
	offsetof(PmhRun, space_hint), offsetof(PmhRun, punched_blocks)};

	set_word(d, PMH_RUN_OFFSET + words[below(seed, 6)],
			 below(seed, d->size / PMH_BLOCK_SIZE + 2));
	if (below(seed, 2) == 0)
		set_word(d, PMH_RUN_OFFSET + offsetof(PmhRun, old_blocks), below(seed, 2));
}

/* ---- the choice ---- */

static const struct
{
	Way			way;
	unsigned	weight;
	bool		length;			/* changes the length of the file */
	Spot		spot;			/* without a way: one of so many words from such a spot on becomes ... */
	uint64_t	words;			/* ... one that the code may not be made for */
}			ways[] =
{
	{flip_bits, 10, false, 0, 0},
	{NULL, 8, false, SPOT_ANY, 1},
	{set_run, 6, false, 0, 0},
	{truncate_file, 4, true, 0, 0},
	{extend_file, 3, true, 0, 0},
	{swap_blocks, 4, false, 0, 0},
	{take_foreign_block, 4, false, 0, 0},
	{become_foreign, 1, true, 0, 0},
	{random_header, 3, false, 0, 0},
	{wrong_header, 5, false, 0, 0},
	{live_word, 5, false, 0, 0},
	{flip_guarded_bit, 8, false, 0, 0},
	{directory_word, 4, false, 0, 0},
	{directory_element, 12, false, 0, 0},
	{pointer_slot, 8, false, 0, 0},
	{NULL, 3, false, SPOT_HEADER, sizeof(PmhBufferHeader) / 8},
	{list_slot, 7, false, 0, 0},
	{NULL, 4, false, SPOT_LINE, PMH_VALUE_LINE / 8},
	{NULL, 4, false, SPOT_BUCKET, 1},	/* the state */
	{NULL, 4, false, SPOT_BUCKET, PMH_BUCKET_SIZE / 8},
	{value_bits, 6, false, 0, 0},
	{block_kind, 8, false, 0, 0},
	{space_map, 5, false, 0, 0},
	{NULL, 5, false, SPOT_RUN, sizeof(PmhRun) / 8},
	{run_plausible, 6, false, 0, 0}
};

void
damage_once(Damage *d, uint64_t *seed, bool length_too)
{
	unsigned	total = 0;
	uint64_t	draw;
	uint64_t	offset;

	if (d->size < PMH_HEADER_SIZE)
		return;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		total += length_too || !ways[i].length ? ways[i].weight : 0;
	draw = below(seed, total);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
	{
		unsigned	weight = length_too || !ways[i].length ? ways[i].weight : 0;

		if (draw < weight)
		{
			if (ways[i].way != NULL)
				ways[i].way(d, seed);
			else if (some_spot(d, seed, ways[i].spot, &offset))
				make_interesting(d, seed, offset + below(seed, ways[i].words) * 8);
			return;
		}
		draw -= weight;
	}
}
