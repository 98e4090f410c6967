/*-------------------------------------------------------------------------
 *
 * key_shapes.h
 *	  Which way the keys of an index are hashed.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_KEY_SHAPES_H
#define PMHASH_KEY_SHAPES_H

#include "utils/relcache.h"

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

/* How a datum becomes the word or the bytes that are hashed (see keys.c). */
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

/* The shapes of each kind: labels for a switch, which has to name them all. */
#define EXACT_SHAPES \
	case PMHASH_SHAPE_BOOL: case PMHASH_SHAPE_CHAR: case PMHASH_SHAPE_INT16: \
	case PMHASH_SHAPE_INT32: case PMHASH_SHAPE_INT64: \
	case PMHASH_SHAPE_UINT32: case PMHASH_SHAPE_MACADDR: \
	case PMHASH_SHAPE_MACADDR8: case PMHASH_SHAPE_TID: \
	case PMHASH_SHAPE_FLOAT4: case PMHASH_SHAPE_FLOAT8
#define BYTES_SHAPES \
	case PMHASH_SHAPE_VARLENA: case PMHASH_SHAPE_BPCHAR: \
	case PMHASH_SHAPE_NAME: case PMHASH_SHAPE_UUID: case PMHASH_SHAPE_TIMETZ
#define FUNCTION_SHAPES \
	case PMHASH_SHAPE_FUNCTION: case PMHASH_SHAPE_NAME_AS_TEXT: \
	case PMHASH_SHAPE_BPCHAR_AS_TEXT

/*
 * For validate.c: types of one operator family have to be hashed in the same way.
 * Returns which way that is for keys of 'type' with hash function 'proc' (types with
 * the same result agree), InvalidOid if by calling proc.
 */
extern Oid	pmhash_keys_layout(Oid type, Oid proc);

extern PmhashKeyKind pmhash_shape_kind(PmhashShape shape);
extern bool pmhash_shape_can_return(PmhashShape shape);
extern const PmhashShape *pmhash_column_shapes(Relation index, bool passed);
extern PmhashShape pmhash_type_shape(Oid type, Oid proc, Oid collation);

#endif							/* PMHASH_KEY_SHAPES_H */
