/*-------------------------------------------------------------------------
 *
 * spool.c
 *	  Entries of an index build, partitioned by the top bits of their hashes,
 *	  in memory and, beyond a limit, in a temporary file.
 *
 * A partition is a list of chunks.  When the chunks of all partitions exceed
 * the memory of the spool they are all appended to its file, partition by
 * partition, and each partition remembers its piece.
 *
 * A spool of a parallel worker has its file in a file set that the leader can
 * read.  In the end the worker writes everything to it, and after that the
 * list of pieces (export); the leader adds these to its own spool (import).
 * Nothing but this list is copied before the load takes the entries.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "am/build.h"
#include "cluster/queue/queue.h"
#include "engine/sort.h"

/*
 * Sorting entries, or hashes, of which there may be as many as
 *	  maintenance_work_mem holds: a cancel does not wait until they are sorted.
 *
 * Which qsort does not see to; sort_template.h does (ST_CHECK_FOR_INTERRUPTS), as
 * PostgreSQL has it for tuplesort.c.
 */

/* For qsort and bsearch: entries by hash, then by value. */
int
pmhash_compare_entries(const void *a, const void *b)
{
	const PmhEntry *x = a;
	const PmhEntry *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return (x->value > y->value) - (x->value < y->value);
}

/* Sort entries by hash, then by value.  ERROR if there is an interrupt. */
#define ST_SORT pmhash_sort_entries
#define ST_ELEMENT_TYPE PmhEntry
#define ST_COMPARE(a, b) pmhash_compare_entries(a, b)
#define ST_SCOPE extern
#define ST_CHECK_FOR_INTERRUPTS
#define ST_DEFINE
#include "lib/sort_template.h"

/* Sort numbers.  ERROR if there is an interrupt. */
void
pmhash_sort_numbers(uint64 *number, size_t n)
{
	while (!pmh_sort_numbers(number, n, pmhash_is_interrupted))
		CHECK_FOR_INTERRUPTS();
}

/* Chunk sizes in bytes: a partition's first, and what doubling ends at. */
#define FIRST_CHUNK		256
#define LAST_CHUNK		8192

StaticAssertDecl(PMHASH_SPOOL_BITS >= 1 && PMHASH_SPOOL_BITS < 31,
				 "partitions are counted by int, and hashes shifted by 64 - bits");

typedef struct Chunk
{
	struct Chunk *next;			/* newer chunk of the same partition */
	uint32		n;
	uint32		taken;			/* of them: the first ones */
	uint32		capacity;
	PmhEntry	entry[FLEXIBLE_ARRAY_MEMBER];
} Chunk;

/* n entries of one partition, from a position in a file on; also in an exported list. */
typedef struct FilePiece
{
	struct FilePiece *next;		/* newer piece of the same partition */
	BufFile    *file;			/* both mean nothing in a list */
	uint32		partition;
	int			fileno;
	off_t		offset;
	uint64		n;
} FilePiece;

/*
 * The newest chunk's n is brought up to date before the chunk is read
 * (close_chunk): entries are added with no other line of it touched.
 */
typedef struct Partition
{
	PmhEntry   *next;			/* where in the newest chunk to add */
	PmhEntry   *end;			/* and where it ends */
	Chunk	   *oldest;			/* chunk, or NULL */
	Chunk	   *newest;
	FilePiece  *first_piece;	/* oldest, or NULL */
	FilePiece  *last_piece;
} Partition;

typedef struct PmhashSpoolPrivate
{
	MemoryContext context;		/* all of the spool, and nothing else */
	size_t		memory;			/* bytes that chunks may take */
	size_t		bytes;			/* that they take */
	FileSet    *files;			/* NULL: the file is private */
	const char *name;			/* in the file set */
	BufFile    *file;			/* or NULL */
	bool		lasting;		/* the file outlives the transaction */
	List	   *imported;		/* of BufFile */
	Partition	partition[PMHASH_SPOOL_PARTITIONS];
} PmhashSpoolPrivate;

/*
 * Make an empty spool in a context of its own below 'context'.  memory: bytes
 * that entries may take before they are written to a file.  files: where to
 * make that file, by this name, for others to read; NULL for a private one.
 */
PmhashSpool *
pmhash_spool_make(MemoryContext context, size_t memory, int bits,
				  int partition_bits, FileSet *files, const char *name)
{
	MemoryContext own = AllocSetContextCreate(context, "pmhash spool",
											  ALLOCSET_DEFAULT_SIZES);
	PmhashSpool *spool = MemoryContextAllocZero(own, sizeof(PmhashSpool));

	Assert(partition_bits >= 1 && partition_bits <= PMHASH_SPOOL_BITS);
	Assert(bits >= 0 && bits + partition_bits <= 64);
	Assert((files == NULL) == (name == NULL));
	spool->bits = bits;
	spool->partition_bits = partition_bits;
	spool->priv = MemoryContextAllocZero(own, sizeof(PmhashSpoolPrivate));
	spool->priv->context = own;
	spool->priv->memory = memory;
	spool->priv->files = files;
	spool->priv->name = name;
	return spool;
}

/*
 * The spool is to outlive the transaction in which its first entry is added: its
 * file is closed by pmhash_spool_free alone.  Before anything is added.
 */
void
pmhash_spool_outlive_transaction(PmhashSpool *spool)
{
	Assert(spool->priv->file == NULL && spool->priv->bytes == 0);
	spool->priv->lasting = true;
}

/* Note a piece of a file. */
static void
add_piece(PmhashSpoolPrivate *priv, BufFile *file, const FilePiece *listed)
{
	FilePiece  *piece = MemoryContextAlloc(priv->context, sizeof(FilePiece));
	Partition  *partition = &priv->partition[listed->partition];

	Assert(listed->partition < PMHASH_SPOOL_PARTITIONS && listed->n > 0);
	*piece = *listed;
	piece->next = NULL;
	piece->file = file;
	if (partition->first_piece == NULL)
		partition->first_piece = piece;
	else
		partition->last_piece->next = piece;
	partition->last_piece = piece;
}

/* Add no more to the newest chunk. */
static void
close_chunk(Partition *partition)
{
	if (partition->next != NULL)
		partition->newest->n = (uint32) (partition->next - partition->newest->entry);
	Assert(partition->newest == NULL || partition->newest->n <= partition->newest->capacity);
	partition->next = partition->end = NULL;
}

/*
 * Write all entries that are in memory to the file: of each partition a piece, and free its
 * chunks.  For a time when no entries are taken: pieces are appended at its end.  ERROR if
 * that fails.
 */
void
pmhash_spool_write(PmhashSpool *spool)
{
	PmhashSpoolPrivate *priv = spool->priv;

	if (priv->bytes == 0)
		return;
	if (priv->file == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(priv->context);

		priv->file = priv->files == NULL ? BufFileCreateTemp(priv->lasting) :
			BufFileCreateFileSet(priv->files, priv->name);
		MemoryContextSwitchTo(old);
	}
	for (int i = 0; i < 1 << spool->partition_bits; i++)
	{
		FilePiece	piece = {.partition = i};
		Chunk	   *chunk = priv->partition[i].oldest;

		pmhash_give_way();
		if (chunk == NULL)
			continue;
		close_chunk(&priv->partition[i]);
		BufFileTell(priv->file, &piece.fileno, &piece.offset);
		while (chunk != NULL)
		{
			Chunk	   *next = chunk->next;

			BufFileWrite(priv->file, &chunk->entry[chunk->taken],
						 (chunk->n - chunk->taken) * sizeof(PmhEntry));
			piece.n += chunk->n - chunk->taken;
			pfree(chunk);
			chunk = next;
		}
		priv->partition[i].oldest = priv->partition[i].newest = NULL;
		add_piece(priv, priv->file, &piece);
	}
	priv->bytes = 0;
}

/* Give a partition a new chunk, writing the spool out first if memory is full. */
static void
add_chunk(PmhashSpool *spool, Partition *partition)
{
	PmhashSpoolPrivate *priv = spool->priv;
	size_t		size = FIRST_CHUNK;
	Chunk	   *chunk;

	if (priv->bytes >= priv->memory)
		pmhash_spool_write(spool);
	close_chunk(partition);
	if (partition->newest != NULL)
		size = Min(LAST_CHUNK, 2 * (offsetof(Chunk, entry) +
									partition->newest->capacity * sizeof(PmhEntry)));

	chunk = MemoryContextAlloc(priv->context, size);
	chunk->next = NULL;
	chunk->n = 0;
	chunk->taken = 0;
	chunk->capacity = (size - offsetof(Chunk, entry)) / sizeof(PmhEntry);
	if (partition->oldest == NULL)
		partition->oldest = chunk;
	else
		partition->newest->next = chunk;
	partition->newest = chunk;
	partition->next = chunk->entry;
	partition->end = chunk->entry + chunk->capacity;
	priv->bytes += size;
}

/* Add an entry.  ERROR if memory has to be written out and that fails. */
void
pmhash_spool_add(PmhashSpool *spool, uint64 hash, uint64 value)
{
	int			i = (hash << spool->bits) >> (64 - spool->partition_bits);
	Partition  *partition = &spool->priv->partition[i];

	Assert(value <= PMH_VALUE_MAX);
	if (partition->next == partition->end)
		add_chunk(spool, partition);
	partition->next->hash = hash;
	partition->next->value = value;
	partition->next++;
	spool->partition_n[i]++;
}

/*
 * Take n of the entries of partition i out of the spool: those that were added
 * first.  ERROR if they can't be read back.
 */
void
pmhash_spool_take(PmhashSpool *spool, int i, PmhEntry *entries, uint64 n)
{
	Partition  *partition = &spool->priv->partition[i];

	Assert(i >= 0 && i < 1 << spool->partition_bits && n <= spool->partition_n[i]);
	close_chunk(partition);
	spool->partition_n[i] -= n;
	while (n > 0)
	{
		FilePiece  *piece = partition->first_piece;
		Chunk	   *chunk = partition->oldest;
		uint64		taken;

		Assert(piece != NULL ? piece->n > 0 : chunk->taken < chunk->n);
		if (piece != NULL)
		{
			taken = Min(n, piece->n);
			pmhash_temp_seek(piece->file, piece->fileno, piece->offset);
			pmhash_temp_read(piece->file, entries, taken * sizeof(PmhEntry));
			BufFileTell(piece->file, &piece->fileno, &piece->offset);
			piece->n -= taken;
			if (piece->n == 0)
			{
				partition->first_piece = piece->next;
				pfree(piece);
			}
		}
		else
		{
			taken = Min(n, chunk->n - chunk->taken);
			memcpy(entries, &chunk->entry[chunk->taken], taken * sizeof(PmhEntry));
			chunk->taken += taken;
			if (chunk->taken == chunk->n)
			{
				partition->oldest = chunk->next;
				if (partition->oldest == NULL)
					partition->newest = NULL;
				pfree(chunk);
			}
		}
		entries += taken;
		n -= taken;
	}
}

/* Close all files and give all memory back. */
void
pmhash_spool_free(PmhashSpool *spool)
{
	PmhashSpoolPrivate *priv = spool->priv;
	ListCell   *lc;

	if (priv->file != NULL)
		BufFileClose(priv->file);
	foreach(lc, priv->imported)
		BufFileClose(lfirst(lc));
	MemoryContextDelete(priv->context);
}

/* ---- from worker to leader ---- */

/*
 * Leave everything in the file of the file set, closed; *list becomes
 * where in it the list of its pieces is.  The spool can only be freed after that.
 */
void
pmhash_spool_export(PmhashSpool *spool, PmhashSpoolExport *list)
{
	PmhashSpoolPrivate *priv = spool->priv;

	Assert(priv->files != NULL);
	memset(list, 0, sizeof(*list));
	pmhash_spool_write(spool);
	if (priv->file == NULL)
		return;
	BufFileTell(priv->file, &list->fileno, &list->offset);
	for (int i = 0; i < 1 << spool->partition_bits; i++)
	{
		for (FilePiece *piece = priv->partition[i].first_piece; piece != NULL;
			 piece = piece->next)
		{
			Assert(piece->file == priv->file);
			BufFileWrite(priv->file, piece, sizeof(FilePiece));
			list->npieces++;
		}
	}
	BufFileClose(priv->file);
	priv->file = NULL;
}

/*
 * Add what another process has exported to a spool with the same partitions.
 * It stays in that file, which must be there until the spool is freed.
 */
void
pmhash_spool_import(PmhashSpool *spool, FileSet *files, const char *name,
					const PmhashSpoolExport *list)
{
	PmhashSpoolPrivate *priv = spool->priv;
	MemoryContext old;
	BufFile    *file;

	if (list->npieces == 0)
		return;
	old = MemoryContextSwitchTo(priv->context);
	file = BufFileOpenFileSet(files, name, O_RDONLY, false);
	priv->imported = lappend(priv->imported, file);
	MemoryContextSwitchTo(old);

	pmhash_temp_seek(file, list->fileno, list->offset);
	for (uint32 i = 0; i < list->npieces; i++)
	{
		FilePiece	line;

		pmhash_temp_read(file, &line, sizeof(line));
		Assert(line.partition < (uint32) 1 << spool->partition_bits);
		add_piece(priv, file, &line);
		spool->partition_n[line.partition] += line.n;
	}
}
