/*-------------------------------------------------------------------------
 *
 * images.c
 *	  Sound files of many kinds, with what they hold and what stands where.
 *
 *-------------------------------------------------------------------------
 */
#include <fcntl.h>

#include "fuzz.h"

#define CREATED_FOR_OTHERS	(UINT64_C(1) << 40)	/* keys of images that are not ours */
#define MAX_PAIRS			32768

static void
give_up(const char *what)
{
	fprintf(stderr, "fuzz: %s\n", what);
	exit(1);
}

static void
must(PmhTable *t, PmhResult result)
{
	if (result != PMH_OK)
		give_up(t != NULL ? pmh_error(t)->detail : "cannot make an image");
}

/* ---- what an image holds ---- */

static void
put(PmhTable *t, Image *image, uint64_t hash, uint64_t value)
{
	must(t, pmh_insert(t, hash, value, false));
	if (image->npairs == MAX_PAIRS)
		give_up("an image has too many pairs");
	image->pair[image->npairs].hash = hash;
	image->pair[image->npairs].value = value;
	image->npairs++;
}

/* n keys with one value each, from key 'first' on. */
static void
put_keys(PmhTable *t, Image *image, uint64_t first, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		put(t, image, fixture_hash(first + i), 1000 + i);
}

/* n values of one key. */
static void
put_list(PmhTable *t, Image *image, uint64_t key, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		put(t, image, fixture_hash(key), (i * 77773 + key) & PMH_VALUE_MAX);
}

/* Take out every step-th pair. */
static void
take_out(PmhTable *t, Image *image, size_t step)
{
	size_t		kept = 0;

	for (size_t i = 0; i < image->npairs; i++)
	{
		if (i % step == 0)
			must(t, pmh_delete(t, image->pair[i].hash, image->pair[i].value));
		else
			image->pair[kept++] = image->pair[i];
	}
	image->npairs = kept;
}

/* ---- the kinds ---- */

static void
fill_small(PmhTable *t, Image *image)
{
	put_keys(t, image, 0, 40);
	put_list(t, image, 100, 12);
}

/* Every strategy, lists of every size class and longer, holes everywhere. */
static void
fill_mixed(PmhTable *t, Image *image)
{
	static const uint64_t sizes[] = {2, 3, 7, 9, 12, 25, 30, 70, 100, 160, 300, 310, 620, 900};

	put_keys(t, image, 0, 2500);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		put_list(t, image, 100000 + i, sizes[i]);
	put_keys(t, image, 2500, 700);
	take_out(t, image, 7);
}

/* A list with an index of indexes (PMH_SMALL_INDEXES), and its neighbours. */
static void
fill_long_list(PmhTable *t, Image *image)
{
	put_keys(t, image, 0, 300);
	put_list(t, image, 100000, 13500);
	put_keys(t, image, 300, 300);
	take_out(t, image, 5);
}

/* Hashes that begin alike, so that the directory is large. */
static void
fill_deep(PmhTable *t, Image *image)
{
	uint64_t	seed = 11;

	for (uint64_t i = 0; i < 3000; i++)
		put(t, image, fixture_random(&seed) >> 9 | UINT64_C(5) << 55, i);
	put_keys(t, image, 0, 100);
	put_list(t, image, 100000, 20);
}

/* Another file of the same make, for blocks and files that come from elsewhere. */
static void
fill_foreign(PmhTable *t, Image *image)
{
	put_keys(t, image, CREATED_FOR_OTHERS, 2500);
	put_list(t, image, CREATED_FOR_OTHERS + 100000, 700);
	take_out(t, image, 3);
}

static void
fill_bulk(PmhTable *t, Image *image)
{
	static PmhEntry entry[4000];
	uint64_t	seed = 7;
	size_t		n = sizeof(entry) / sizeof(entry[0]);

	for (size_t i = 0; i < n; i++)
	{
		uint64_t	key = fixture_random(&seed) % (i % 8 == 0 ? 20 : 3000);

		entry[i].hash = fixture_hash(key);
		entry[i].value = i;
	}
	memcpy(image->pair, entry, sizeof(entry));
	image->npairs = n;
	fixture_load(t, entry, n, n, PMH_DEFAULT_FILL);
}

/* ---- what crashes leave ---- */

/* A split that has come to its first element; the left half is without entries. */
static void
leave_split(PmhTable *t)
{
	PmhLive    *live = pmh_live(t);
	uint32_t	depth = pmh_dirword_depth(live->dirword);
	uint64_t   *dir = pmh_at(t, pmh_dirword_offset(live->dirword));
	uint64_t	i = 0;
	uint64_t	offset;

	while (pmh_elem_depth(dir[i]) == depth)
	{
		if (++i >> depth != 0)
			give_up("no segment has several directory elements");
	}
	must(t, pmh_provide_extent(t, 1, &offset));
	memset(pmh_at(t, offset), 0, PMH_BLOCK_SIZE);
	dir[i] = pmh_make_elem(offset >> PMH_BLOCK_SHIFT, 0, PMH_UNITS_PER_BLOCK,
						   pmh_elem_depth(dir[i]) + 1, PMH_SINGLE);
}

/* Plain entries beside the pointer slot of their key: they do not count. */
static void
leave_shadowed(PmhTable *t)
{
	PmhPlace	place;
	uint64_t	hash = fixture_hash(100012);

	must(t, pmh_locate(t, hash, &place));
	for (uint32_t bucket = 0; bucket < place.buckets; bucket++)
	{
		PmhBucket  *b = pmh_bucket(t, &place, bucket);
		uint32_t	state;
		int			pointer;
		uint32_t	free_slots;

		(void) pmh_bucket_find(b, hash, &state, &pointer);
		free_slots = ~state & PMH_STATE_OCCUPIED;
		if (pointer < 0 || free_slots == 0)
			continue;
		pmh_slot_store(b, (unsigned) __builtin_ctz(free_slots), hash,
					   pmh_make_word(hash, UINT64_C(123456789)));
		pm_store32(pmh_bucket_state_at(b), pmh_bucket_state(b) | (free_slots & -free_slots));
		return;
	}
	give_up("there is no room for a shadowed entry");
}

/* A sweep that never came to its end. */
static void
leave_sweep(PmhTable *t)
{
	PmhSweep	sweep;

	fixture_forget_space(t);
	must(t, pmh_sweep_begin(t, &sweep));
	for (int i = 0; i < 3; i++)
		must(t, pmh_sweep_next(t, &sweep));
	pmh_sweep_end(&sweep);
}

typedef struct Kind
{
	const char *name;
	void		(*fill) (PmhTable *t, Image *image);
	void		(*leave) (PmhTable *t);
	bool		force_pmem;
	bool		needs_recovery;
} Kind;

static const Kind kinds[] = {
	{"mixed", fill_mixed, NULL, false, false},
	{"mixed, flushed", fill_mixed, NULL, true, false},
	{"chain", fill_long_list, NULL, false, false},
	{"bulk", fill_bulk, NULL, false, false},
	{"deep", fill_deep, NULL, false, false},
	{"small", fill_small, NULL, false, false},
	{"empty", NULL, NULL, false, false},
	{"half split", fill_deep, leave_split, false, true},
	{"shadowed", fill_mixed, leave_shadowed, false, false},
	{"being swept", fill_mixed, leave_sweep, false, false},
	{"not swept", fill_long_list, fixture_forget_space, false, false},
	{"foreign", fill_foreign, NULL, false, false}
};

#define KINDS	(sizeof(kinds) / sizeof(kinds[0]))

/* ---- what stands where ---- */

static void
add_offset(Offsets *o, uint64_t offset)
{
	if (o->n == o->room)
	{
		o->room = o->room ? 2 * o->room : 64;
		o->at = realloc(o->at, o->room * sizeof(uint64_t));
		if (o->at == NULL)
			give_up("no memory");
	}
	o->at[o->n++] = offset;
}

static void
set_use(Image *image, uint64_t offset, uint64_t len, LineUse use)
{
	for (uint64_t line = offset / PMH_LINE; line * PMH_LINE < offset + len; line++)
		image->use[line] = (uint8_t) use;
}

static void
map_list(PmhTable *t, Image *image, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint64_t	offset = pmh_pointer_offset(payload);
	uint32_t	slots = pmh_pointer_level(payload) > 0 ? pmh_index_slots(payload) : 0;

	add_offset(&image->payload, payload);
	set_use(image, offset, pmh_class_bytes(class), USE_ENTRIES);
	if (pmh_pointer_has_header(payload))
		add_offset(&image->spot[SPOT_HEADER], offset);
	for (uint32_t i = pmh_class_first_line(class); slots == 0 && i < pmh_class_lines(class); i++)
		add_offset(&image->spot[SPOT_LINE], pmh_line_offset(payload, i));
	for (uint32_t i = 0; i < slots; i++)
	{
		uint64_t   *slot = pmh_index_slot(t, payload, i);

		if (i > 0 && *slot == 0)
			continue;
		add_offset(&image->spot[SPOT_SLOT], (uint64_t) ((char *) slot - t->file.base));
		if (*slot != 0)
			map_list(t, image, *slot & PMH_SLOT_POINTER);
	}
}

static void
map_bucket(PmhTable *t, Image *image, const PmhPlace *place, uint32_t bucket)
{
	PmhBucket  *b = pmh_bucket(t, place, bucket);
	uint64_t	offset = pmh_bucket_offset(place, bucket);

	set_use(image, offset, PMH_BUCKET_SIZE, USE_ENTRIES);
	if (pmh_state_count(pmh_bucket_state(b)) > 0)
		add_offset(&image->spot[SPOT_BUCKET], offset);
	for (unsigned slot = 0; slot < PMH_SLOTS; slot++)
	{
		uint64_t	word = pmh_slot_load_word(b, slot);

		if ((pmh_bucket_state(b) >> slot & 1) == 0 || !pmh_word_is_pointer(word))
			continue;
		add_offset(&image->spot[SPOT_POINTER], offset + pmh_slot_word[slot]);
		map_list(t, image, pmh_word_payload(word));
	}
}

static void
map_segments(PmhTable *t, Image *image)
{
	uint64_t	dirword = pmh_live(t)->dirword;
	uint32_t	depth = pmh_dirword_depth(dirword);
	uint64_t	offset = pmh_dirword_offset(dirword);
	const uint64_t *dir = pmh_at(t, offset);

	set_use(image, offset, pmh_directory_size(depth), USE_DIRECTORY);
	for (uint64_t i = 0; i < pmh_directory_elements(depth); i++)
	{
		PmhPlace	place;

		add_offset(&image->spot[SPOT_ELEMENT], offset + i * sizeof(uint64_t));
		if (i > 0 && dir[i] == dir[i - 1])
			continue;
		must(t, pmh_locate(t, depth == 0 ? 0 : i << (64 - depth), &place));
		for (uint32_t b = 0; b < place.buckets; b++)
			map_bucket(t, image, &place, b);
	}
}

static void
map_space(PmhTable *t, Image *image)
{
	uint64_t	blocks = pmh_blocks(t);

	for (uint64_t block = 0; block < blocks; block++)
	{
		uint8_t    *kind = pmh_space_kind(t, block);

		add_offset(&image->spot[SPOT_KIND], (uint64_t) ((char *) kind - t->file.base));
		if ((*kind & PMH_KIND_MASK) == PMH_KIND_VALUES)
			add_offset(&image->spot[SPOT_VALUES], block << PMH_BLOCK_SHIFT);
	}
	for (uint64_t block = 0; block < blocks; block++)
		add_offset(&image->spot[SPOT_MAP],
				   (uint64_t) ((char *) pmh_space_map(t, block) - t->file.base));
	set_use(image, 0, PMH_RUN_OFFSET, USE_HEADER);
}

/* Keep the file's bytes as they are now. */
static void
keep_bytes(PmhTable *t, Image *image)
{
	image->size = pmh_blocks(t) << PMH_BLOCK_SHIFT;
	image->bytes = malloc(image->size);
	if (image->bytes == NULL || image->size > DAMAGE_ROOM / 4)
		give_up("no memory for an image, or it is too large");
	memcpy(image->bytes, t->file.base, image->size);
}

static void
build_image(const char *path, const Kind *kind, Image *image)
{
	PmhEnv		env = fixture_env_on(kind->force_pmem, IMAGE_INSTANCE);
	PmhError	error;
	PmhTable   *t;

	image->name = kind->name;
	image->needs_recovery = kind->needs_recovery;
	image->pair = malloc(MAX_PAIRS * sizeof(PmhEntry));
	if (image->pair == NULL)
		give_up("no memory");
	snprintf((char *) image->identity, sizeof(image->identity), "this is the file \"%s\"",
			 kind->name);
	if (pmh_create(path, image->identity, &env, &t, &error) != PMH_OK)
		give_up(error.detail);
	if (kind->fill != NULL)
		kind->fill(t, image);
	must(t, check_alone(t, fixture_report, NULL));
	image->use = calloc((pmh_blocks(t) << PMH_BLOCK_SHIFT) / PMH_LINE, 1);
	if (image->use == NULL)
		give_up("no memory");
	if (kind->leave != NULL && !kind->needs_recovery)
		kind->leave(t);
	map_segments(t, image);
	map_space(t, image);
	if (kind->leave != NULL && kind->needs_recovery)
		kind->leave(t);
	keep_bytes(t, image);
	pmh_close(t);
	(void) unlink(path);
	qsort(image->pair, image->npairs, sizeof(PmhEntry), fixture_compare_entries);
}

size_t
images_build(const char *path, const Image **images)
{
	static Image image[KINDS];

	for (size_t i = 0; i < KINDS; i++)
		build_image(path, &kinds[i], &image[i]);
	*images = image;
	return KINDS;
}
