/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  From key values to 64-bit hashes, and back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/inet.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/uuid.h"

#include "am/am.h"
#include "am/keys.h"
#include "cluster/base/versions.h"

/*
 * Which way the keys of an index are hashed.
 *
 * Which way it is must never change while there is an index, so it depends only on
 * the input type, the hash function and the equality operator of the operator class.
 * If these are built-in functions that known_keys[] lists together, equality is what
 * we know it to be.  A user's operator class with another equality on the same type is
 * hashed by its function.
 *
 * An operator class cannot lose these, but a family can lose what came into it before
 * there was a class.  Without the equality of a known type nothing is hashed, and the
 * family gets no other one while there are indexes (validate.c).  That all types of a
 * family agree about the way is ensured there, too.  Cross-type operators are taken at
 * their word: one that says more than that two integers are the same number, say, does
 * not belong in a family of hashed integers.
 */

/*
 * Keys whose equality is equality of bytes.  Read in the source of each
 * equality function: chareq, int4eq and so on compare C integers;
 * timestamp_cmp_internal, cash_eq and xid8eq compare 64-bit integers;
 * macaddr_cmp_internal compares all 6 bytes in two parts, macaddr8 all 8;
 * ItemPointerCompare block and offset; timetz_cmp_internal time plus zone and
 * then zone, so both; network_cmp_internal family, prefix length and the
 * whole address, which is all that an inet contains; uuid_eq 16 bytes; texteq
 * and byteaeq the data; bpchareq the data without trailing blanks.
 *
 * Types with the same layout are hashed alike: their words or bytes may be compared, those
 * of dates and timestamps once one has become the other's type (words_of_moment).
 */
typedef struct KnownKey
{
	Oid			type;			/* opclass input type */
	Oid			proc;			/* support function 1 */
	Oid			equal;			/* function of "type = type" */
	Oid			layout;			/* named by a type that has it */
	PmhashShape shape;
} KnownKey;

static const KnownKey known_keys[] = {
	{INT8OID, F_HASHINT8EXTENDED, F_INT8EQ, INT8OID, PMHASH_SHAPE_INT64},
	{INT4OID, F_HASHINT4EXTENDED, F_INT4EQ, INT8OID, PMHASH_SHAPE_INT32},
	{INT2OID, F_HASHINT2EXTENDED, F_INT2EQ, INT8OID, PMHASH_SHAPE_INT16},
	{TEXTOID, F_HASHTEXTEXTENDED, F_TEXTEQ, TEXTOID, PMHASH_SHAPE_VARLENA},
	{NAMEOID, F_HASHNAMEEXTENDED, F_NAMEEQ, TEXTOID, PMHASH_SHAPE_NAME},
	{BPCHAROID, F_HASHBPCHAREXTENDED, F_BPCHAREQ, BPCHAROID, PMHASH_SHAPE_BPCHAR},
	{UUIDOID, F_UUID_HASH_EXTENDED, F_UUID_EQ, UUIDOID, PMHASH_SHAPE_UUID},
	{TIMESTAMPOID, F_TIMESTAMP_HASH_EXTENDED, F_TIMESTAMP_EQ, TIMESTAMPTZOID,
	PMHASH_SHAPE_INT64},
	{TIMESTAMPTZOID, F_TIMESTAMP_HASH_EXTENDED, F_TIMESTAMPTZ_EQ, TIMESTAMPTZOID,
	PMHASH_SHAPE_INT64},
	{DATEOID, F_HASHINT4EXTENDED, F_DATE_EQ, TIMESTAMPTZOID, PMHASH_SHAPE_INT32},
	{TIMEOID, F_TIME_HASH_EXTENDED, F_TIME_EQ, TIMEOID, PMHASH_SHAPE_INT64},
	{TIMETZOID, F_TIMETZ_HASH_EXTENDED, F_TIMETZ_EQ, TIMETZOID, PMHASH_SHAPE_TIMETZ},
	{FLOAT8OID, F_HASHFLOAT8EXTENDED, F_FLOAT8EQ, FLOAT8OID, PMHASH_SHAPE_FLOAT8},
	{FLOAT4OID, F_HASHFLOAT4EXTENDED, F_FLOAT4EQ, FLOAT8OID, PMHASH_SHAPE_FLOAT4},
	{OIDOID, F_HASHOIDEXTENDED, F_OIDEQ, OIDOID, PMHASH_SHAPE_UINT32},
	{ANYENUMOID, F_HASHENUMEXTENDED, F_ENUM_EQ, ANYENUMOID, PMHASH_SHAPE_UINT32},
	{BOOLOID, F_HASHCHAREXTENDED, F_BOOLEQ, BOOLOID, PMHASH_SHAPE_BOOL},
	{CHAROID, F_HASHCHAREXTENDED, F_CHAREQ, CHAROID, PMHASH_SHAPE_CHAR},
	{BYTEAOID, F_HASHVARLENAEXTENDED, F_BYTEAEQ, BYTEAOID, PMHASH_SHAPE_VARLENA},
	{INETOID, F_HASHINETEXTENDED, F_NETWORK_EQ, INETOID, PMHASH_SHAPE_VARLENA},
	{CASHOID, F_HASHINT8EXTENDED, F_CASH_EQ, CASHOID, PMHASH_SHAPE_INT64},
	{XIDOID, F_HASHINT4EXTENDED, F_XIDEQ, XIDOID, PMHASH_SHAPE_UINT32},
	{CIDOID, F_HASHINT4EXTENDED, F_CIDEQ, CIDOID, PMHASH_SHAPE_UINT32},
	{XID8OID, F_HASHINT8EXTENDED, F_XID8EQ, XID8OID, PMHASH_SHAPE_INT64},
	{PG_LSNOID, F_PG_LSN_HASH_EXTENDED, F_PG_LSN_EQ, PG_LSNOID, PMHASH_SHAPE_INT64},
	{MACADDROID, F_HASHMACADDREXTENDED, F_MACADDR_EQ, MACADDROID, PMHASH_SHAPE_MACADDR},
	{MACADDR8OID, F_HASHMACADDR8EXTENDED, F_MACADDR8_EQ, MACADDR8OID,
	PMHASH_SHAPE_MACADDR8},
	{TIDOID, F_HASHTIDEXTENDED, F_TIDEQ, TIDOID, PMHASH_SHAPE_TID},
#if PG_VERSION_NUM >= 190000
	{OID8OID, F_HASHOID8EXTENDED, F_OID8EQ, OID8OID, PMHASH_SHAPE_INT64},
#endif
};

static const KnownKey *
find_known_key(Oid type, Oid proc)
{
	for (int i = 0; i < (int) lengthof(known_keys); i++)
		if (known_keys[i].type == type && known_keys[i].proc == proc)
			return &known_keys[i];
	return NULL;
}

/*
 * By which layout are keys of (type, hash function) hashed?
 *
 * InvalidOid if keys are hashed by the function.  Types of one operator family have to be
 * hashed in the same way (validate.c).
 */
Oid
pmhash_keys_layout(Oid type, Oid proc)
{
	const KnownKey *known = find_known_key(type, proc);

	return known ? known->layout : InvalidOid;
}

/* In which of the three ways are values of this shape hashed? */
static PmhashKeyKind
shape_kind(PmhashShape shape)
{
	return shape <= PMHASH_SHAPE_FLOAT8 ? PMHASH_KEY_EXACT :
		shape <= PMHASH_SHAPE_TIMETZ ? PMHASH_KEY_BYTES : PMHASH_KEY_FUNCTION;
}

/* Can the datum be made from the word?  Zeroes have lost their sign. */
static bool
shape_can_return(PmhashShape shape)
{
	return shape < PMHASH_SHAPE_FLOAT4;
}

/*
 * How are values of a known key (NULL: of any other) to be hashed?
 *
 * Under a collation that takes different strings for equal only the hash function knows.
 * Of text, that is: core's functions for the others do not agree with their equality
 * here (key_types.c, hash_misleads).
 */
static PmhashShape
shape_of(const KnownKey *known, Oid collation)
{
	if (known == NULL)
		return PMHASH_SHAPE_FUNCTION;
	if ((known->layout != TEXTOID && known->layout != BPCHAROID) ||
		!OidIsValid(collation) || get_collation_isdeterministic(collation))
		return known->shape;
	switch (known->shape)
	{
		case PMHASH_SHAPE_NAME:
			return PMHASH_SHAPE_NAME_AS_TEXT;
		case PMHASH_SHAPE_BPCHAR:
			return PMHASH_SHAPE_BPCHAR_AS_TEXT;
		default:
			return PMHASH_SHAPE_FUNCTION;
	}
}

/*
 * The shape of a column of an index, looked up in the catalogs; attno from 1.  (Not by
 * index_getprocid: the server never forgets what an operator class had when the session
 * saw it first, in relcache.c, LookupOpclassInfo; its indexes may have been dropped, and
 * the class got another function, before this index was made.)
 *
 * If its keys can't be hashed: ERROR, or false if that is 'passed' over.
 */
static bool
find_column_shape(Relation index, int attno, bool passed, PmhashShape *shape)
{
	Oid			type = index->rd_opcintype[attno - 1];
	Oid			family = index->rd_opfamily[attno - 1];
	Oid			collation = index->rd_indcollation[attno - 1];
	Oid			proc = get_opfamily_proc(family, type, type, PMHASH_HASH_PROC);
	Oid			equal = get_opfamily_member(family, type, type, PMHASH_EQUAL_STRATEGY);
	const KnownKey *known = find_known_key(type, proc);
	bool		by_order;

	Assert(IsTransactionState());
	if (!OidIsValid(proc) || (known && !OidIsValid(equal)))
	{
		if (passed)
			return false;
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg(!OidIsValid(proc) ?
						"operator class of column %d of index \"%s\" has no hash function" :
						"operator class of column %d of index \"%s\" has no equality operator",
						attno, RelationGetRelationName(index)),
				 !OidIsValid(proc) ?
				 errhint("Operator classes for access method pmhash need support function %d, hash(type, bigint) returning bigint.",
						 PMHASH_HASH_PROC) :
				 errhint("Drop the index, add operator %d to the operator family, and create the index again.",
						 PMHASH_EQUAL_STRATEGY)));
	}
	if (known && get_opcode(equal) != known->equal)
		known = NULL;
	*shape = shape_of(known, collation);

	/*
	 * Do not even core's functions agree with the equality of this column?  We mend those
	 * of strings themselves (shape_of), but can't in what contains strings.
	 */
	if (known || (proc != F_HASH_ARRAY_EXTENDED && proc != F_HASH_RECORD_EXTENDED &&
				  proc != F_HASH_RANGE_EXTENDED && proc != F_HASH_MULTIRANGE_EXTENDED) ||
		!pmhash_core_hash_misleads(TupleDescAttr(RelationGetDescr(index), attno - 1)->atttypid,
								   collation, &by_order))
		return true;
	if (passed)
		return false;
	if (by_order)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column %d of index \"%s\" contains ranges that cannot be hashed",
						attno, RelationGetRelationName(index)),
				 errdetail("Their bounds are ordered by an operator class or a collation with an equality of its own, and PostgreSQL's hash function goes by the default one."),
				 errhint("Use a range type with the default operator class of its subtype, and a deterministic collation.")));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("column %d of index \"%s\" contains strings that cannot be hashed under a nondeterministic collation",
					attno, RelationGetRelationName(index)),
			 errdetail("PostgreSQL's hash function of type %s gives different hashes of values that are equal.",
					   format_type_be(type)),
			 errhint("Use text instead of name and character(n), or another collation.")));
}

/*
 * The shapes of the key columns of an index, an array in the relation cache.
 *
 * They can't change while there is an index (see the head of this file), and to look
 * one up takes as long as all the rest that a look-up in the index does; so the cache
 * keeps them.  If a column has none: ERROR, or NULL if obstacles are 'passed' over.
 */
static const PmhashShape *
column_shapes(Relation index, bool passed)
{
	PmhashShape shapes[INDEX_MAX_KEYS];
	int			ncolumns = IndexRelationGetNumberOfKeyAttributes(index);

	Assert(ncolumns >= 1 && ncolumns <= INDEX_MAX_KEYS);
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	if (index->rd_amcache == NULL)
	{
		for (int i = 0; i < ncolumns; i++)
		{
			if (!find_column_shape(index, i + 1, passed, &shapes[i]))
				return NULL;
		}
		index->rd_amcache = MemoryContextAlloc(index->rd_indexcxt,
											   ncolumns * sizeof(PmhashShape));
		memcpy(index->rd_amcache, shapes, ncolumns * sizeof(PmhashShape));
	}
	return (const PmhashShape *) index->rd_amcache;
}

/*
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
 * An index on several columns hashes the words of all columns, in order:
 * for an EXACT column the widened value, else the hash of the value.
 */

/* What stands for a NULL in a column after the first. */
#define NULL_WORD		UINT64CONST(0x4c4c554e204c5153)

/* Bytes of a timetz that count: 8 of time, 4 of zone, no padding between. */
#define TIMETZ_BYTES	(sizeof(TimeADT) + sizeof(int32))

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
	if (shape_kind(shape) == PMHASH_KEY_FUNCTION)
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

/*
 * How the keys of 'index' are hashed under 'seed'.
 *
 * The result and all it needs are allocated in the current memory context and
 * go with it.  ERROR if an operator class has no hash function or has lost its
 * equality, or if the function does not agree with that.
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
	{
		PmhashKeyColumn *column = &keys->column[i];
		PmhashShape shape = column_shapes(index, false)[i];
		Oid			type = index->rd_opcintype[i];
		Oid			proc = InvalidOid;

		column->kind = shape_kind(shape);
		column->family = index->rd_opfamily[i];
		column->collation = index->rd_indcollation[i];
		if (column->kind == PMHASH_KEY_FUNCTION)
			proc = hash_proc(column, type);
		set_operand(&column->own, type, shape, proc, keys->context);
		if (column->kind == PMHASH_KEY_FUNCTION && keys->scratch == NULL)
			keys->scratch = AllocSetContextCreate(keys->context,
												  "pmhash key hashing",
												  ALLOCSET_DEFAULT_SIZES);
	}
	if (ncolumns == 1)
	{
		keys->exact = (keys->column[0].kind == PMHASH_KEY_EXACT);
		keys->can_return = shape_can_return(keys->column[0].own.shape);
	}
	return keys;
}

/*
 * Can column 'attno' (from 1) of 'index' be computed from a hash?
 *
 * For amcanreturn: needs no file and no seed.
 */
bool
pmhash_keys_can_return(Relation index, int attno)
{
	const PmhashShape *shapes;

	Assert(attno >= 1);
	if (IndexRelationGetNumberOfKeyAttributes(index) > 1)
		return false;
	shapes = column_shapes(index, true);
	return shapes != NULL && shape_can_return(shapes[attno - 1]);
}

/* ---- words of short values ---- */

/* n bytes as a number, least first. */
static uint64
word_from_bytes(Datum value, int n)
{
	uint64		word = 0;

	Assert(n <= (int) sizeof(word));
	memcpy(&word, DatumGetPointer(value), n);
	return le64toh(word);
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

/* A fresh macaddr or macaddr8. */
static Datum
bytes_from_word(uint64 word, int n)
{
	void	   *bytes = palloc(n);

	word = htole64(word);
	memcpy(bytes, &word, n);
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
			{
				ItemPointer tid = palloc(sizeof(ItemPointerData));

				ItemPointerSet(tid, (BlockNumber) (word >> 16), (OffsetNumber) word);
				return PointerGetDatum(tid);
			}
		default:
			elog(ERROR, "unexpected pmhash key shape %d", (int) shape);
			pg_unreachable();
	}
}

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

/*
 * Hash of a value by the hash function.  Not all of them free what they
 * detoast and deform, and a build calls this for every row: whatever they
 * leave in it goes with the scratch context.
 */
static uint64
function_word(PmhashKeys *keys, PmhashKeyColumn *column,
			  PmhashOperand *operand, Datum value)
{
	MemoryContext caller;
	uint64		word;

	Assert(keys->scratch != NULL && column->kind == PMHASH_KEY_FUNCTION);
	caller = MemoryContextSwitchTo(keys->scratch);

	if (operand->shape == PMHASH_SHAPE_NAME_AS_TEXT)
		value = CStringGetTextDatum(NameStr(*DatumGetName(value)));
	else if (operand->shape == PMHASH_SHAPE_BPCHAR_AS_TEXT)
	{
		BpChar	   *data = DatumGetBpCharPP(value);
		int			length = bpchartruelen(VARDATA_ANY(data), VARSIZE_ANY_EXHDR(data));

		value = PointerGetDatum(cstring_to_text_with_len(VARDATA_ANY(data), length));
	}
	word = DatumGetUInt64(FunctionCall2Coll(&operand->proc, column->collation,
											value,
											UInt64GetDatum(keys->seed)));
	MemoryContextSwitchTo(caller);
	MemoryContextReset(keys->scratch);
	return word;
}

/*
 * ---- dates and timestamps ----
 *
 * A date is equal to the timestamp of its midnight, and a timestamp to the instant at which
 * clocks in the session's time zone show it.  Values of another type are brought to that
 * of the column by core's rules (date.c and timestamp.c, functions named _cmp_), as they are
 * at the start of the scan: the operators are stable, not immutable.  What is
 * out of range there is equal to nothing.
 *
 * Where clocks were put forward they have shown none of the timestamps that were passed over.
 * To core these are instants all the same, those that the clocks would have shown had
 * they not been changed: so two timestamps can be equal to one instant, and two dates
 * where a whole day was left out (Samoa, 2011-12-30).
 */

/* An offset from UTC is less than seven days (localtime.c, getoffset); and a day more. */
#define ZONE_REACH		(8 * SECS_PER_DAY)

/* The instant that a timestamp is equal to; false: none that there is. */
static bool
find_instant(Timestamp local, TimestampTz *instant)
{
	struct pg_tm tm;
	fsec_t		fsec;

	*instant = local;
	if (TIMESTAMP_NOT_FINITE(local))
		return true;
	if (timestamp2tm(local, NULL, &tm, &fsec, NULL, NULL) != 0)
		return false;
	*instant += DetermineTimeZoneOffset(&tm, session_timezone) * USECS_PER_SEC;
	return IS_VALID_TIMESTAMP(*instant);
}

/*
 * The timestamps that are equal to an instant; returns how many.
 *
 * find_instant adds an offset that the zone has in the days around it (datetime.c,
 * DetermineTimeZoneOffset: before or after the first change past the day before), so each
 * offset that it has there is tried.
 */
static int
find_timestamps(TimestampTz instant, Timestamp *found)
{
	pg_time_t	at = timestamptz_to_time_t(instant) - ZONE_REACH;
	pg_time_t	end = at + 2 * ZONE_REACH;
	int			n = 0;

	if (TIMESTAMP_NOT_FINITE(instant))
	{
		found[0] = instant;
		return 1;
	}
	for (;;)
	{
		long int	offset;
		long int	next;
		int			is_dst;
		Timestamp	local;
		TimestampTz back;
		bool		changes = pg_next_dst_boundary(&at, &offset, &is_dst, &at, &next,
												   &is_dst, session_timezone) > 0;

		local = instant + offset * USECS_PER_SEC;
		if (IS_VALID_TIMESTAMP(local) && find_instant(local, &back) && back == instant &&
			(n == 0 || found[n - 1] != local))
			found[n++] = local;
		if (!changes || at > end || n == PMHASH_EQUAL_MAX)
			return n;
	}
}

/* The words of the values of a column's type that are equal to one of another type. */
static int
words_of_moment(Oid type, Oid other, Datum value, uint64 *word)
{
	Timestamp	local[PMHASH_EQUAL_MAX];
	int			nlocal = 1;
	int			n = 0;

	if (other == TIMESTAMPTZOID)
		nlocal = find_timestamps(DatumGetTimestampTz(value), local);
	else if (other == TIMESTAMPOID)
		local[0] = DatumGetTimestamp(value);
	else
	{
		DateADT		date = DatumGetDateADT(value);

		if (DATE_NOT_FINITE(date))
			local[0] = DATE_IS_NOEND(date) ? PG_INT64_MAX : PG_INT64_MIN;
		else if (date < TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE)
			local[0] = date * USECS_PER_DAY;
		else
			return 0;
	}
	for (int i = 0; i < nlocal; i++)
	{
		int64		equal = local[i];

		if (type == TIMESTAMPTZOID && !find_instant(local[i], &equal))
			continue;
		if (type == DATEOID)
		{
			if (TIMESTAMP_NOT_FINITE(local[i]))
				equal = TIMESTAMP_IS_NOEND(local[i]) ? DATEVAL_NOEND : DATEVAL_NOBEGIN;
			else if (local[i] % USECS_PER_DAY == 0)
				equal = local[i] / USECS_PER_DAY;
			else
				continue;
		}
		word[n++] = (uint64) equal;
	}
	return n;
}

/* May several values of a column's type be equal to one value of another type? */
bool
pmhash_keys_many_equal(Oid type, Oid other)
{
	return other == TIMESTAMPTZOID && (type == TIMESTAMPOID || type == DATEOID);
}

/* ---- all columns ---- */

/* What a column brings to the hash. */
static inline uint64
column_word(PmhashKeys *keys, PmhashKeyColumn *column, PmhashOperand *operand,
			Datum value)
{
	uint64		seed = keys->seed;

	switch (operand->shape)
	{
			/* EXACT: the value, widened */
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
			return word_from_bytes(value, sizeof(macaddr));
		case PMHASH_SHAPE_MACADDR8:
			return word_from_bytes(value, sizeof(macaddr8));
		case PMHASH_SHAPE_TID:
			{
				ItemPointer tid = (ItemPointer) DatumGetPointer(value);

				return (uint64) ItemPointerGetBlockNumberNoCheck(tid) << 16 |
					ItemPointerGetOffsetNumberNoCheck(tid);
			}
		case PMHASH_SHAPE_FLOAT4:
			return word_from_float8((float8) DatumGetFloat4(value));
		case PMHASH_SHAPE_FLOAT8:
			return word_from_float8(DatumGetFloat8(value));

			/* BYTES: their hash */
		case PMHASH_SHAPE_VARLENA:
			return varlena_word(value, false, seed);
		case PMHASH_SHAPE_BPCHAR:
			return varlena_word(value, true, seed);
		case PMHASH_SHAPE_NAME:
			return pmhash_hash_bytes(DatumGetPointer(value),
									 strlen(NameStr(*DatumGetName(value))), seed);
		case PMHASH_SHAPE_UUID:
			return pmhash_hash_bytes(DatumGetPointer(value), UUID_LEN, seed);
		case PMHASH_SHAPE_TIMETZ:
			return pmhash_hash_bytes(DatumGetPointer(value), TIMETZ_BYTES, seed);
		case PMHASH_SHAPE_FUNCTION:
		case PMHASH_SHAPE_NAME_AS_TEXT:
		case PMHASH_SHAPE_BPCHAR_AS_TEXT:
			break;
	}
	return function_word(keys, column, operand, value);
}

/* The hash of words, one of each column. */
uint64
pmhash_keys_hash_words(const PmhashKeys *keys, const uint64 *words)
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
 * Hash of an index tuple.
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
	*hash = pmhash_keys_hash_words(keys, words);
	return true;
}

/*
 * Words of what a scan looks for in a column, to be hashed with those of the others by
 * pmhash_keys_hash_words.  Returns how many, up to PMHASH_EQUAL_MAX: one for each key
 * that is equal to the value.  That is one, but for dates and timestamps.
 *
 * subtype: the type of the value, a member of the column's operator family; InvalidOid
 * means its input type.  ERROR if the family cannot hash it.  How another type is
 * hashed is looked up and kept in column->other.  The types of a family agree about the
 * kind; if this one does not, it has not come in by ALTER OPERATOR FAMILY.
 */
int
pmhash_keys_words(PmhashKeys *keys, int column_no, Datum value, Oid subtype, uint64 *words)
{
	PmhashKeyColumn *column = &keys->column[column_no];
	PmhashOperand *operand = &column->own;

	Assert(column_no >= 0 && column_no < keys->ncolumns);
	if (OidIsValid(subtype) && subtype != column->own.type)
	{
		operand = &column->other;
		if (unlikely(subtype != operand->type))
		{
			Oid			proc = hash_proc(column, subtype);
			const KnownKey *known = find_known_key(subtype, proc);
			PmhashShape shape = shape_of(known, column->collation);

			if (column->kind == PMHASH_KEY_FUNCTION &&
				shape_kind(shape) != PMHASH_KEY_FUNCTION)
				shape = PMHASH_SHAPE_FUNCTION;
			if (shape_kind(shape) != column->kind)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
						 errmsg("operator family \"%s\" of access method %s does not hash types %s and %s alike",
								pmhash_opfamily_name(column->family), "pmhash",
								format_type_be(column->own.type),
								format_type_be(subtype))));
			set_operand(operand, subtype, shape, proc, keys->context);
			column->moments = column->kind == PMHASH_KEY_EXACT &&
				known->layout == TIMESTAMPTZOID;
		}
		if (column->moments)
			return words_of_moment(column->own.type, subtype, value, words);
	}
	words[0] = column_word(keys, column, operand, value);
	return 1;
}

/* The word of the key that has this hash. */
uint64
pmhash_keys_unhash_word(const PmhashKeys *keys, uint64 hash)
{
	Assert(keys->can_return && keys->ncolumns == 1);
	return pmhash_unhash_word(pmhash_permute_back(&keys->permutation, hash), keys->flip);
}

/*
 * The key that has this hash.
 *
 * By-reference types are allocated in the current memory context.
 */
Datum
pmhash_keys_unhash(PmhashKeys *keys, uint64 hash)
{
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
