/*-------------------------------------------------------------------------
 *
 * key_shapes.c
 *	  Which way the keys of an index are hashed (see keys.c).
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
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "am/key_shapes.h"
#include "am/key_types.h"
#include "cluster/versions.h"

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
 * Types with the same layout are hashed alike: their words or bytes may be compared.
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
	{TIMESTAMPOID, F_TIMESTAMP_HASH_EXTENDED, F_TIMESTAMP_EQ, TIMESTAMPOID,
	PMHASH_SHAPE_INT64},
	{TIMESTAMPTZOID, F_TIMESTAMP_HASH_EXTENDED, F_TIMESTAMPTZ_EQ, TIMESTAMPTZOID,
	PMHASH_SHAPE_INT64},
	{DATEOID, F_HASHINT4EXTENDED, F_DATE_EQ, DATEOID, PMHASH_SHAPE_INT32},
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
 * pmhash_keys_layout
 *		By which layout are keys of (type, hash function) hashed?
 *
 * InvalidOid if keys are hashed by the function.  No errors, no locks.
 */
Oid
pmhash_keys_layout(Oid type, Oid proc)
{
	const KnownKey *known = find_known_key(type, proc);

	return known ? known->layout : InvalidOid;
}

/*
 * pmhash_shape_kind
 *		In which of the three ways are values of this shape hashed?
 */
PmhashKeyKind
pmhash_shape_kind(PmhashShape shape)
{
	switch (shape)
	{
		EXACT_SHAPES:
			return PMHASH_KEY_EXACT;
		BYTES_SHAPES:
			return PMHASH_KEY_BYTES;
		FUNCTION_SHAPES:
			break;
	}
	return PMHASH_KEY_FUNCTION;
}

/*
 * pmhash_shape_can_return
 *		Can the datum be made from the word?  Zeroes have lost their sign.
 */
bool
pmhash_shape_can_return(PmhashShape shape)
{
	return pmhash_shape_kind(shape) == PMHASH_KEY_EXACT &&
		shape != PMHASH_SHAPE_FLOAT4 && shape != PMHASH_SHAPE_FLOAT8;
}

/* Does equality of these keys follow a collation? */
static bool
key_is_collated(const KnownKey *known)
{
	return known->layout == TEXTOID || known->layout == BPCHAROID;
}

/*
 * The shape of a string under a collation that takes different strings for
 * equal: only the hash function knows.  Of text, that is: core's functions
 * for the others do not agree with their equality here.  hashname knows
 * nothing of collations, though nameeq does; hashbpchar then hashes the
 * trailing blanks, too, which bpchareq passes over.
 */
static PmhashShape
collated_shape(PmhashShape shape)
{
	switch (shape)
	{
		case PMHASH_SHAPE_NAME:
			return PMHASH_SHAPE_NAME_AS_TEXT;
		case PMHASH_SHAPE_BPCHAR:
			return PMHASH_SHAPE_BPCHAR_AS_TEXT;
		default:
			return PMHASH_SHAPE_FUNCTION;
	}
}

/* How are values of a known key (NULL: of any other) to be hashed? */
static PmhashShape
shape_of(const KnownKey *known, Oid collation)
{
	if (known == NULL)
		return PMHASH_SHAPE_FUNCTION;
	if (key_is_collated(known) && OidIsValid(collation) &&
		!get_collation_isdeterministic(collation))
		return collated_shape(known->shape);
	return known->shape;
}

/* Why the keys of a column can't be hashed. */
typedef enum Obstacle
{
	NO_OBSTACLE,
	NO_FUNCTION,				/* its operator class has no hash function */
	NO_EQUALITY,				/* and no operator that says which way to hash */
	MISLED_FUNCTION,			/* the function gives equal values different hashes */
	MISLED_BY_ORDER				/* so it does, of ranges */
} Obstacle;

/*
 * Do not even core's functions agree with the equality of this column?  We mend those
 * of strings themselves (collated_shape), but can't in what contains strings.
 */
static Obstacle
function_obstacle(Relation index, int attno, Oid proc)
{
	Oid			type = TupleDescAttr(RelationGetDescr(index), attno - 1)->atttypid;

	switch (proc)
	{
		case F_HASH_ARRAY_EXTENDED:
		case F_HASH_RECORD_EXTENDED:
		case F_HASH_RANGE_EXTENDED:
		case F_HASH_MULTIRANGE_EXTENDED:
			if (pmhash_core_hash_misleads(type, index->rd_indcollation[attno - 1]))
				return MISLED_FUNCTION;
			if (pmhash_range_order_misleads(type))
				return MISLED_BY_ORDER;
			return NO_OBSTACLE;
		default:
			return NO_OBSTACLE;
	}
}

/*
 * The shape of a column of an index, looked up in the catalogs; attno from 1.  (Not by
 * index_getprocid: the server never forgets what an operator class had when the session
 * saw it first, in relcache.c, LookupOpclassInfo; its indexes may have been dropped, and
 * the class got another function, before this index was made.)
 */
static Obstacle
find_column_shape(Relation index, int attno, PmhashShape *shape)
{
	Oid			type = index->rd_opcintype[attno - 1];
	Oid			family = index->rd_opfamily[attno - 1];
	Oid			proc = get_opfamily_proc(family, type, type, PMHASH_HASH_PROC);
	const KnownKey *known = find_known_key(type, proc);

	if (!OidIsValid(proc))
		return NO_FUNCTION;
	if (known)
	{
		Oid			equal = get_opfamily_member(family, type, type,
												PMHASH_EQUAL_STRATEGY);

		if (!OidIsValid(equal))
			return NO_EQUALITY;
		if (get_opcode(equal) != known->equal)
			known = NULL;
	}
	*shape = shape_of(known, index->rd_indcollation[attno - 1]);
	return known ? NO_OBSTACLE : function_obstacle(index, attno, proc);
}

/* ERROR for a column whose keys can't be hashed. */
pg_noreturn static void
raise_obstacle(Relation index, int attno, Obstacle obstacle)
{
	if (obstacle == MISLED_FUNCTION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column %d of index \"%s\" contains strings that cannot be hashed under a nondeterministic collation",
						attno, RelationGetRelationName(index)),
				 errdetail("PostgreSQL's hash function of type %s gives different hashes of values that are equal.",
						   format_type_be(index->rd_opcintype[attno - 1])),
				 errhint("Use text instead of name and character(n), or another collation.")));
	if (obstacle == MISLED_BY_ORDER)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column %d of index \"%s\" contains ranges that cannot be hashed",
						attno, RelationGetRelationName(index)),
				 errdetail("Their bounds are ordered by an operator class or a collation with an equality of its own, and PostgreSQL's hash function goes by the default one."),
				 errhint("Use a range type with the default operator class of its subtype, and a deterministic collation.")));
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_FUNCTION),
			 obstacle == NO_FUNCTION ?
			 errmsg("operator class of column %d of index \"%s\" has no hash function",
					attno, RelationGetRelationName(index)) :
			 errmsg("operator class of column %d of index \"%s\" has no equality operator",
					attno, RelationGetRelationName(index)),
			 obstacle == NO_FUNCTION ?
			 errhint("Operator classes for access method pmhash need support function %d, hash(type, bigint) returning bigint.",
					 PMHASH_HASH_PROC) :
			 errhint("Drop the index, add operator %d to the operator family, and create the index again.",
					 PMHASH_EQUAL_STRATEGY)));
	pg_unreachable();
}

/*
 * pmhash_column_shapes
 *		The shapes of the key columns of an index, an array in the relation cache.
 *
 * They can't change while there is an index (see the head of this file), and to look
 * one up takes as long as all the rest that a look-up in the index does; so the cache
 * keeps them.  If a column has none: ERROR, or NULL if obstacles are 'passed' over.
 * The caller holds a lock on the index.
 */
const PmhashShape *
pmhash_column_shapes(Relation index, bool passed)
{
	PmhashShape shapes[INDEX_MAX_KEYS];
	int			ncolumns = IndexRelationGetNumberOfKeyAttributes(index);

	if (index->rd_amcache == NULL)
	{
		for (int i = 0; i < ncolumns; i++)
		{
			Obstacle	obstacle = find_column_shape(index, i + 1, &shapes[i]);

			if (obstacle == NO_OBSTACLE)
				continue;
			if (passed)
				return NULL;
			raise_obstacle(index, i + 1, obstacle);
		}
		index->rd_amcache = MemoryContextAlloc(index->rd_indexcxt,
											   ncolumns * sizeof(PmhashShape));
		memcpy(index->rd_amcache, shapes, ncolumns * sizeof(PmhashShape));
	}
	return (const PmhashShape *) index->rd_amcache;
}

/*
 * pmhash_type_shape
 *		The shape of values of another type of a family, whose hash function is proc, in
 *		a column with this collation.
 */
PmhashShape
pmhash_type_shape(Oid type, Oid proc, Oid collation)
{
	return shape_of(find_known_key(type, proc), collation);
}
