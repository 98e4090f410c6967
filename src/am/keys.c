/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  From key values to 64-bit hashes, and back.
 *
 * There are three ways to hash a column, which its operator class decides:
 *
 * EXACT.  The type has at most 8 bytes and two values are equal if and only
 * if these bytes are.  The value is widened to a word, and the hash of an
 * index on this column alone is a permutation of the words (keyhash.h).  So
 * equal hashes mean equal keys, nothing needs to be rechecked, and the key
 * can be computed from the hash.  Types of an operator family are widened so
 * that values which compare equal across types give the same word: integers
 * are sign-extended; float4 becomes float8.  Floating point values are not
 * equal by bytes, but they are after zero and NaN have been put into one
 * form; the form of a zero is lost, so the key cannot be computed from the hash.
 *
 * BYTES.  Two values are equal if and only if certain bytes of them are (text
 * under a deterministic collation, bytea, uuid, ...).  XXH3 over these bytes;
 * a match is rechecked.
 *
 * FUNCTION.  Everything else: support function 1 of the operator class, which
 * works like the extended hash functions of core's hash operator classes.
 *
 * Which way it is, is found out in key_shapes.c.
 *
 * An index on several columns hashes the words of all columns, in order:
 * for an EXACT column the widened value, else the hash of the value.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/inet.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/uuid.h"

#include "am/am.h"
#include "am/key_shapes.h"
#include "am/keys.h"
#include "cluster/versions.h"

/* What stands for a NULL in a column after the first. */
#define NULL_WORD		UINT64CONST(0x4c4c554e204c5153)

/* Bytes of a timetz that count: 8 of time, 4 of zone, no padding between. */
#define TIMETZ_BYTES	(sizeof(TimeADT) + sizeof(int32))

/* A value is hashed in another way than its shape allows: a bug. */
pg_noreturn static void
wrong_shape(PmhashShape shape)
{
	elog(ERROR, "unexpected pmhash key shape %d", (int) shape);
	pg_unreachable();
}

/* Fill in an operand that is hashed by calling proc, if it is. */
static void
set_operand(PmhashOperand *operand, Oid type, PmhashShape shape, Oid proc,
			MemoryContext context)
{
	operand->type = type;
	operand->shape = shape;
	if (shape == PMHASH_SHAPE_NAME_AS_TEXT ||
		shape == PMHASH_SHAPE_BPCHAR_AS_TEXT)
		proc = F_HASHTEXTEXTENDED;
	if (pmhash_shape_kind(shape) == PMHASH_KEY_FUNCTION)
		fmgr_info_cxt(proc, &operand->proc, context);
}

/* The hash function of a type of a column's family. */
static Oid
hash_proc(const PmhashKeyColumn *column, Oid type)
{
	Oid			proc = get_opfamily_proc(column->family, type, type,
										 PMHASH_HASH_PROC);

	if (!OidIsValid(proc))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("operator family \"%s\" of access method %s has no hash function for type %s",
						pmhash_opfamily_name(column->family), "pmhash",
						format_type_be(type))));
	return proc;
}

static void
make_column(PmhashKeys *keys, Relation index, int attno)
{
	PmhashKeyColumn *column = &keys->column[attno - 1];
	PmhashShape shape = pmhash_column_shapes(index, false)[attno - 1];
	Oid			type = index->rd_opcintype[attno - 1];
	Oid			proc = InvalidOid;

	column->kind = pmhash_shape_kind(shape);
	column->family = index->rd_opfamily[attno - 1];
	column->collation = index->rd_indcollation[attno - 1];
	if (column->kind == PMHASH_KEY_FUNCTION)
		proc = hash_proc(column, type);
	set_operand(&column->own, type, shape, proc, keys->context);
	column->other.type = InvalidOid;
	if (column->kind == PMHASH_KEY_FUNCTION && keys->scratch == NULL)
		keys->scratch = AllocSetContextCreate(keys->context,
											  "pmhash key hashing",
											  ALLOCSET_DEFAULT_SIZES);
}

/*
 * pmhash_keys_make
 *		How the keys of 'index' are hashed under 'seed'.
 *
 * The result and all it needs are allocated in the current memory context and
 * go with it.  ERROR if an operator class has no hash function or has lost its
 * equality, or if the function does not agree with that.  The caller holds a lock on
 * the index.
 */
PmhashKeys *
pmhash_keys_make(Relation index, PmhashSeed seed)
{
	int			ncolumns = IndexRelationGetNumberOfKeyAttributes(index);
	PmhashKeys *keys;

	keys = palloc0(offsetof(PmhashKeys, column) +
				   ncolumns * sizeof(PmhashKeyColumn));
	keys->ncolumns = ncolumns;
	keys->seed = seed.xxh;
	keys->flip = pmhash_hash_flip(seed.xxh);
	pmhash_permutation_make(&keys->permutation, seed.key);
	keys->context = CurrentMemoryContext;
	for (int i = 0; i < ncolumns; i++)
		make_column(keys, index, i + 1);
	if (ncolumns == 1)
	{
		keys->exact = (keys->column[0].kind == PMHASH_KEY_EXACT);
		keys->can_return = pmhash_shape_can_return(keys->column[0].own.shape);
	}
	return keys;
}

/*
 * pmhash_keys_can_return
 *		Can column 'attno' (from 1) of 'index' be computed from a hash?
 *
 * For amcanreturn: needs no file and no seed.  The caller holds a lock on the
 * index.
 */
bool
pmhash_keys_can_return(Relation index, int attno)
{
	const PmhashShape *shapes;

	if (IndexRelationGetNumberOfKeyAttributes(index) > 1)
		return false;
	shapes = pmhash_column_shapes(index, true);
	return shapes != NULL && pmhash_shape_can_return(shapes[attno - 1]);
}

/* ---- words of short values ---- */

/* n bytes as a number, least first. */
static uint64
word_from_bytes(const unsigned char *bytes, int n)
{
	uint64		word = 0;

	for (int i = 0; i < n; i++)
		word |= (uint64) bytes[i] << (8 * i);
	return word;
}

static void
word_to_bytes(uint64 word, unsigned char *bytes, int n)
{
	for (int i = 0; i < n; i++)
		bytes[i] = (unsigned char) (word >> (8 * i));
}

/*
 * A float as float8eq sees it: zeroes are equal whatever their sign, NaNs
 * whatever their bits (compare hashfloat8extended in access/hash/hashfunc.c).
 */
static uint64
word_from_float8(float8 value)
{
	uint64		word;

	if (value == 0)
		return 0;
	if (isnan(value))
		value = get_float8_nan();
	memcpy(&word, &value, sizeof(word));
	return word;
}

static uint64
word_from_tid(ItemPointer tid)
{
	return (uint64) ItemPointerGetBlockNumberNoCheck(tid) << 16 |
		ItemPointerGetOffsetNumberNoCheck(tid);
}

static Datum
tid_from_word(uint64 word)
{
	ItemPointer tid = palloc(sizeof(ItemPointerData));

	ItemPointerSet(tid, (BlockNumber) (word >> 16), (OffsetNumber) word);
	return PointerGetDatum(tid);
}

/* The word of a value of kind EXACT. */
static uint64
exact_word(PmhashShape shape, Datum value)
{
	switch (shape)
	{
		case PMHASH_SHAPE_BOOL:
			return DatumGetBool(value);
		case PMHASH_SHAPE_CHAR:
			return (unsigned char) DatumGetChar(value);
		case PMHASH_SHAPE_INT16:
			return (uint64) (int64) DatumGetInt16(value);
		case PMHASH_SHAPE_INT32:
			return (uint64) (int64) DatumGetInt32(value);
		case PMHASH_SHAPE_INT64:
			return (uint64) DatumGetInt64(value);
		case PMHASH_SHAPE_UINT32:
			return DatumGetUInt32(value);
		case PMHASH_SHAPE_MACADDR:
			return word_from_bytes((unsigned char *) DatumGetPointer(value),
								   sizeof(macaddr));
		case PMHASH_SHAPE_MACADDR8:
			return word_from_bytes((unsigned char *) DatumGetPointer(value),
								   sizeof(macaddr8));
		case PMHASH_SHAPE_TID:
			return word_from_tid((ItemPointer) DatumGetPointer(value));
		case PMHASH_SHAPE_FLOAT4:
			return word_from_float8((float8) DatumGetFloat4(value));
		case PMHASH_SHAPE_FLOAT8:
			return word_from_float8(DatumGetFloat8(value));
		BYTES_SHAPES:
		FUNCTION_SHAPES:
			break;
	}
	wrong_shape(shape);
}

/* A fresh macaddr or macaddr8. */
static Datum
bytes_from_word(uint64 word, int n)
{
	unsigned char *bytes = palloc(n);

	word_to_bytes(word, bytes, n);
	return PointerGetDatum(bytes);
}

/* The way back, for the shapes that have one. */
static Datum
exact_datum(PmhashShape shape, uint64 word)
{
	switch (shape)
	{
		case PMHASH_SHAPE_BOOL:
			return BoolGetDatum(word != 0);
		case PMHASH_SHAPE_CHAR:
			return CharGetDatum((char) word);
		case PMHASH_SHAPE_INT16:
			return Int16GetDatum((int16) word);
		case PMHASH_SHAPE_INT32:
			return Int32GetDatum((int32) word);
		case PMHASH_SHAPE_INT64:
			return Int64GetDatum((int64) word);
		case PMHASH_SHAPE_UINT32:
			return UInt32GetDatum((uint32) word);
		case PMHASH_SHAPE_MACADDR:
			return bytes_from_word(word, sizeof(macaddr));
		case PMHASH_SHAPE_MACADDR8:
			return bytes_from_word(word, sizeof(macaddr8));
		case PMHASH_SHAPE_TID:
			return tid_from_word(word);
		case PMHASH_SHAPE_FLOAT4:
		case PMHASH_SHAPE_FLOAT8:
		BYTES_SHAPES:
		FUNCTION_SHAPES:
			break;
	}
	wrong_shape(shape);
}

/* ---- hashes of long values ---- */

/* XXH3 over the data of a varlena, without the trailing blanks of a bpchar. */
static uint64
varlena_word(Datum value, bool blank_padded, uint64 seed)
{
	struct varlena *data = pg_detoast_datum_packed((struct varlena *)
												   DatumGetPointer(value));
	int			length = VARSIZE_ANY_EXHDR(data);
	uint64		word;

	if (blank_padded)
		length = bpchartruelen(VARDATA_ANY(data), length);
	word = pmhash_hash_bytes(VARDATA_ANY(data), length, seed);
	if ((Pointer) data != DatumGetPointer(value))
		pfree(data);
	return word;
}

/* Hash of a value of kind BYTES. */
static uint64
bytes_word(PmhashShape shape, Datum value, uint64 seed)
{
	switch (shape)
	{
		case PMHASH_SHAPE_VARLENA:
			return varlena_word(value, false, seed);
		case PMHASH_SHAPE_BPCHAR:
			return varlena_word(value, true, seed);
		case PMHASH_SHAPE_NAME:
			return pmhash_hash_bytes(DatumGetPointer(value),
									 strlen(NameStr(*DatumGetName(value))),
									 seed);
		case PMHASH_SHAPE_UUID:
			return pmhash_hash_bytes(DatumGetPointer(value), UUID_LEN, seed);
		case PMHASH_SHAPE_TIMETZ:
			return pmhash_hash_bytes(DatumGetPointer(value), TIMETZ_BYTES,
									 seed);
		EXACT_SHAPES:
		FUNCTION_SHAPES:
			break;
	}
	wrong_shape(shape);
}

/* A bpchar as text, palloc'd, without its trailing blanks. */
static Datum
text_from_bpchar(Datum value)
{
	BpChar	   *data = DatumGetBpCharPP(value);
	int			length = bpchartruelen(VARDATA_ANY(data),
									   VARSIZE_ANY_EXHDR(data));

	return PointerGetDatum(cstring_to_text_with_len(VARDATA_ANY(data), length));
}

/*
 * Hash of a value by the hash function.  Not all of them free what they
 * detoast and deform, and a build calls this for every row: whatever they
 * leave in it goes with the scratch context.
 */
static uint64
function_word(PmhashKeys *keys, PmhashKeyColumn *column,
			  PmhashOperand *operand, Datum value)
{
	MemoryContext caller = MemoryContextSwitchTo(keys->scratch);
	uint64		word;

	if (operand->shape == PMHASH_SHAPE_NAME_AS_TEXT)
		value = CStringGetTextDatum(NameStr(*DatumGetName(value)));
	else if (operand->shape == PMHASH_SHAPE_BPCHAR_AS_TEXT)
		value = text_from_bpchar(value);
	word = DatumGetUInt64(FunctionCall2Coll(&operand->proc, column->collation,
											value,
											UInt64GetDatum(keys->seed)));
	MemoryContextSwitchTo(caller);
	MemoryContextReset(keys->scratch);
	return word;
}

/* ---- all columns ---- */

/* What a column brings to the hash. */
static inline uint64
column_word(PmhashKeys *keys, PmhashKeyColumn *column, PmhashOperand *operand,
			Datum value)
{
	switch (column->kind)
	{
		case PMHASH_KEY_EXACT:
			return exact_word(operand->shape, value);
		case PMHASH_KEY_BYTES:
			return bytes_word(operand->shape, value, keys->seed);
		case PMHASH_KEY_FUNCTION:
			break;
	}
	return function_word(keys, column, operand, value);
}

/* The hash of the words of all columns. */
static inline uint64
hash_words(PmhashKeys *keys, const uint64 *words)
{
	uint64		hash;

	if (keys->ncolumns > 1)
		hash = pmhash_hash_bytes(words, keys->ncolumns * sizeof(uint64), keys->seed);
	else if (keys->column[0].kind == PMHASH_KEY_BYTES)
		hash = words[0];		/* it is one already */
	else
		hash = pmhash_hash_word(words[0], keys->seed);
	return pmhash_permute(&keys->permutation, hash);
}

/*
 * pmhash_keys_hash
 *		Hash of an index tuple.
 *
 * values, isnull: of all key columns, as from FormIndexDatum.  Returns false,
 * and no hash, if the first column is NULL: such a row cannot be found by "="
 * and, as amoptionalkey is false, need not be found otherwise.  A NULL after
 * the first column is hashed as a word of its own: the row has to be in the
 * index for scans that bind the first columns only.
 *
 * Whatever the hash function of an operator class raises comes through.
 */
bool
pmhash_keys_hash(PmhashKeys *keys, const Datum *values, const bool *isnull,
				 uint64 *hash)
{
	uint64		words[INDEX_MAX_KEYS];

	if (isnull[0])
		return false;
	for (int i = 0; i < keys->ncolumns; i++)
	{
		PmhashKeyColumn *column = &keys->column[i];

		words[i] = isnull[i] ? NULL_WORD :
			column_word(keys, column, &column->own, values[i]);
	}
	*hash = hash_words(keys, words);
	return true;
}

/*
 * How an argument of another type of the family is hashed, looked up and kept
 * in column->other.  The types of a family agree about the kind; if this one
 * does not, it has not come in by ALTER OPERATOR FAMILY.
 */
static void
resolve_other(PmhashKeys *keys, PmhashKeyColumn *column, Oid type)
{
	Oid			proc = hash_proc(column, type);
	PmhashShape shape;

	shape = pmhash_type_shape(type, proc, column->collation);
	if (column->kind == PMHASH_KEY_FUNCTION &&
		pmhash_shape_kind(shape) != PMHASH_KEY_FUNCTION)
		shape = PMHASH_SHAPE_FUNCTION;
	if (pmhash_shape_kind(shape) != column->kind)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator family \"%s\" of access method %s does not hash types %s and %s alike",
						pmhash_opfamily_name(column->family), "pmhash",
						format_type_be(column->own.type),
						format_type_be(type))));
	set_operand(&column->other, type, shape, proc, keys->context);
}

/* How an argument of this type is hashed. */
static inline PmhashOperand *
operand_for(PmhashKeys *keys, PmhashKeyColumn *column, Oid type)
{
	if (!OidIsValid(type) || type == column->own.type)
		return &column->own;
	if (type != column->other.type)
		resolve_other(keys, column, type);
	return &column->other;
}

/*
 * pmhash_keys_hash_args
 *		Hash of what a scan looks for.
 *
 * values: one datum per key column, none NULL.  subtype: the type of each, a
 * member of the column's operator family; InvalidOid means its input type.
 * ERROR if the family cannot hash a type.
 */
uint64
pmhash_keys_hash_args(PmhashKeys *keys, const Datum *values,
					  const Oid *subtype)
{
	uint64		words[INDEX_MAX_KEYS];

	for (int i = 0; i < keys->ncolumns; i++)
		words[i] = pmhash_keys_word(keys, i, values[i], subtype[i]);
	return hash_words(keys, words);
}

/*
 * pmhash_keys_word, pmhash_keys_hash_words
 *		The same in two steps, for arguments that are used in many hashes: what
 *		a column's argument is hashed to, and the hash of such words, one per
 *		key column.
 *
 * Arguments that are equal have the same word.
 */
uint64
pmhash_keys_word(PmhashKeys *keys, int column_no, Datum value, Oid subtype)
{
	PmhashKeyColumn *column = &keys->column[column_no];

	return column_word(keys, column, operand_for(keys, column, subtype), value);
}

uint64
pmhash_keys_hash_words(PmhashKeys *keys, const uint64 *words)
{
	return hash_words(keys, words);
}

uint64
pmhash_keys_unhash_word(const PmhashKeys *keys, uint64 hash)
{
	return pmhash_unhash_word(pmhash_permute_back(&keys->permutation, hash), keys->flip);
}

/*
 * pmhash_keys_unhash
 *		The key that has this hash.
 *
 * Only if keys->can_return.  By-reference types are allocated in the current
 * memory context.
 */
Datum
pmhash_keys_unhash(PmhashKeys *keys, uint64 hash)
{
	Assert(keys->can_return);
	return exact_datum(keys->column[0].own.shape,
					   pmhash_keys_unhash_word(keys, hash));
}

/* ---- TIDs ---- */

void
pmhash_tid_error(Relation index, ItemPointer tid)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("row identifier (%u,%u) does not fit into index \"%s\"",
					ItemPointerGetBlockNumberNoCheck(tid),
					ItemPointerGetOffsetNumberNoCheck(tid),
					RelationGetRelationName(index)),
			 errdetail("Access method pmhash holds offsets from 1 to %d. The table has another access method than heap.",
					   (1 << PMHASH_OFFSET_BITS) - 1)));
}
