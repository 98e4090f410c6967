/*-------------------------------------------------------------------------
 *
 * keys.h
 *	  From keys to hashes and from TIDs to values: what an entry is made of.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_KEYS_H
#define PMHASH_KEYS_H

#include "fmgr.h"
#include "storage/itemptr.h"
#include "storage/off.h"
#include "utils/relcache.h"

#include "am/keyhash.h"
#include "cluster/base/tid_value.h"
#include "cluster/cluster.h"

/* strategy and support function numbers of operator classes */
#define PMHASH_EQUAL_STRATEGY	1
#define PMHASH_NSTRATEGIES		1
#define PMHASH_HASH_PROC		1	/* hash(type, int8) -> int8, as core's extended
									 * hash functions; used unless the key is
									 * "bitwise" (see keys.c) */
#define PMHASH_NPROCS			1

typedef enum PmhashKeyKind
{
	PMHASH_KEY_EXACT,			/* equality of at most 8 bytes: the hash is a
								 * permutation of them */
	PMHASH_KEY_BYTES,			/* equality is equality of bytes: XXH3 over them */
	PMHASH_KEY_FUNCTION			/* the opclass's hash function, then mixed */
} PmhashKeyKind;

/* How a datum becomes the word or the bytes that are hashed (see keys.c), by kinds. */
typedef enum PmhashShape
{
	/* words: kind EXACT, and the datum can be made from the word */
	PMHASH_SHAPE_BOOL,
	PMHASH_SHAPE_CHAR,
	PMHASH_SHAPE_INT16,
	PMHASH_SHAPE_INT32,
	PMHASH_SHAPE_INT64,
	PMHASH_SHAPE_UINT32,
	PMHASH_SHAPE_MACADDR,
	PMHASH_SHAPE_MACADDR8,
	PMHASH_SHAPE_TID,
	/* words: kind EXACT, but values that differ (-0.0, 0.0) share one */
	PMHASH_SHAPE_FLOAT4,
	PMHASH_SHAPE_FLOAT8,
	/* bytes: kind BYTES */
	PMHASH_SHAPE_VARLENA,
	PMHASH_SHAPE_BPCHAR,
	PMHASH_SHAPE_NAME,
	PMHASH_SHAPE_UUID,
	PMHASH_SHAPE_TIMETZ,
	/* kind FUNCTION; the last two by the function of text */
	PMHASH_SHAPE_FUNCTION,
	PMHASH_SHAPE_NAME_AS_TEXT,
	PMHASH_SHAPE_BPCHAR_AS_TEXT
} PmhashShape;

/* How values of one type are hashed. */
typedef struct PmhashOperand
{
	Oid			type;			/* a member of the operator family */
	PmhashShape shape;
	FmgrInfo	proc;			/* for the shapes of kind FUNCTION */
} PmhashOperand;

/* How one column is hashed. */
typedef struct PmhashKeyColumn
{
	PmhashKeyKind kind;
	Oid			family;
	Oid			collation;
	PmhashOperand own;			/* values of the opclass's input type */
	PmhashOperand other;		/* the last other type a scan argument had, and */
	bool		moments;		/* whether both are dates or timestamps */
} PmhashKeyColumn;

/* Keys of a column that are equal to one value of another type, at most. */
#define PMHASH_EQUAL_MAX		4

/* How the keys of an index are hashed; lives in the context it was made in. */
typedef struct PmhashKeys
{
	int			ncolumns;
	uint64		seed;			/* of XXH3, and of hash functions */
	uint64		flip;			/* what the seed is to the inverse */
	PmhashPermutation permutation;	/* of what they give */
	bool		exact;			/* one column of kind EXACT: no recheck */
	bool		can_return;		/* exact, and pmhash_keys_unhash may be called */
	MemoryContext context;		/* where this stands */
	MemoryContext scratch;		/* for hash functions to leak into, or NULL */
	PmhashKeyColumn column[FLEXIBLE_ARRAY_MEMBER];
} PmhashKeys;

extern Oid	pmhash_keys_layout(Oid type, Oid proc);
extern PmhashKeys *pmhash_keys_make(Relation index, PmhashSeed seed);
extern bool pmhash_keys_can_return(Relation index, int attno);
extern bool pmhash_keys_hash(PmhashKeys *keys, const Datum *values,
							 const bool *isnull, uint64 *hash);
extern bool pmhash_keys_many_equal(Oid type, Oid other);
extern int	pmhash_keys_words(PmhashKeys *keys, int column_no, Datum value,
							  Oid subtype, uint64 *words);
extern uint64 pmhash_keys_hash_words(const PmhashKeys *keys, const uint64 *words);
extern uint64 pmhash_keys_unhash_word(const PmhashKeys *keys, uint64 hash);
extern Datum pmhash_keys_unhash(PmhashKeys *keys, uint64 hash);

/*
 * ---- TIDs (keys.c) ----
 *
 * The value of an entry for the row at tid; ERROR if that is none that a value can hold.
 */
pg_noreturn extern void pmhash_tid_error(Relation index, ItemPointer tid);

static inline uint64
pmhash_entry_value(Relation index, ItemPointer tid)
{
	if (unlikely(!pmhash_tid_fits(tid)))
		pmhash_tid_error(index, tid);
	return pmhash_tid_to_value(tid);
}

#endif							/* PMHASH_KEYS_H */
