/*-------------------------------------------------------------------------
 *
 * key_types.c
 *	  The types that keys are made of: elements of arrays, attributes of
 *	  composite types, bounds of ranges, however deep.
 *
 * They are read from the caches of catalogs, without locks, as the planner does it, and
 * ALTER TABLE of relations that have nothing to do with them: what is not there
 * any more is passed over.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "catalog/namespace.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_range.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "am/key_types.h"

/* A type that has been visited, as its values are compared there. */
typedef struct Visited
{
	Oid			type;
	Oid			collation;
} Visited;

typedef struct TypeWalk
{
	PmhashTypeVisitor visit;
	void	   *arg;
	List	   *visited;		/* Visited: nested types may come many times over */
	bool		in_row;			/* what is visited now is part of a composite type */
	bool		temporary;		/* such a part is in a temporary schema */
} TypeWalk;

static bool visit_type(TypeWalk *walk, Oid type, Oid collation);

/* Note that a type is visited; false if it was before. */
static bool
is_new(TypeWalk *walk, Oid type, Oid collation)
{
	Visited    *added;
	ListCell   *lc;

	foreach(lc, walk->visited)
	{
		const Visited *visited = lfirst(lc);

		if (visited->type == type && visited->collation == collation)
			return false;
	}
	added = palloc(sizeof(Visited));
	added->type = type;
	added->collation = collation;
	walk->visited = lappend(walk->visited, added);
	return true;
}

/* record_eq compares attributes under their own collations. */
static bool
visit_attributes(TypeWalk *walk, Oid type)
{
	Oid			relid = get_typ_typrelid(type);
	bool		enough = false;

	walk->in_row = true;
	for (AttrNumber attno = 1; !enough; attno++)
	{
		HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid),
											Int16GetDatum(attno));
		FormData_pg_attribute att;

		if (!HeapTupleIsValid(tuple))
			return false;
		memcpy(&att, GETSTRUCT(tuple), ATTRIBUTE_FIXED_PART_SIZE);
		ReleaseSysCache(tuple);
		if (!att.attisdropped)
			enough = visit_type(walk, att.atttypid, att.attcollation);
	}
	return true;
}

/* range_eq compares bounds under the collation of the range type. */
static bool
visit_bounds(TypeWalk *walk, Oid range)
{
	return visit_type(walk, get_range_subtype(range), get_range_collation(range));
}

/* array_eq compares elements under the collation that it is called with. */
static bool
visit_element(TypeWalk *walk, Oid type, Oid collation)
{
	Oid			element = get_element_type(type);

	return OidIsValid(element) && visit_type(walk, element, collation);
}

/*
 * The type beneath domains; InvalidOid if one is not there.  Notes what is in a temporary
 * schema within a row.
 */
static Oid
base_type(TypeWalk *walk, Oid type)
{
	for (;;)
	{
		HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
		FormData_pg_type found;

		if (!HeapTupleIsValid(tuple))
			return InvalidOid;
		found = *(Form_pg_type) GETSTRUCT(tuple);
		ReleaseSysCache(tuple);
		walk->temporary |= walk->in_row && isAnyTempNamespace(found.typnamespace);
		if (found.typtype != TYPTYPE_DOMAIN)
			return type;
		type = found.typbasetype;
	}
}

static bool
visit_type(TypeWalk *walk, Oid type, Oid collation)
{
	check_stack_depth();
	type = base_type(walk, type);
	if (!OidIsValid(type) || !is_new(walk, type, collation))
		return false;
	if (walk->visit(type, collation, walk->arg))
		return true;
	switch (get_typtype(type))
	{
		case TYPTYPE_COMPOSITE:
			return visit_attributes(walk, type);
		case TYPTYPE_RANGE:
			return visit_bounds(walk, type);
		case TYPTYPE_MULTIRANGE:
			return visit_bounds(walk, get_multirange_range(type));
		default:
			return visit_element(walk, type, collation);
	}
}

/*
 * pmhash_visit_types
 *		Visit a type, and all that its values are made of.
 *
 * collation: under which the values are compared.  Domains are visited as the types
 * beneath them, each type once for each collation, a composite type before its
 * attributes are looked up.  Returns true as soon as a visit does, false if none did.
 */
bool
pmhash_visit_types(Oid type, Oid collation, PmhashTypeVisitor visit, void *arg)
{
	TypeWalk	walk = {.visit = visit, .arg = arg};
	bool		enough = visit_type(&walk, type, collation);

	list_free_deep(walk.visited);
	return enough;
}

static bool
lock_row_type(Oid type, Oid collation, void *arg)
{
	Oid			relid = get_typ_typrelid(type);

	if (OidIsValid(relid))
		LockRelationOid(relid, AccessShareLock);
	return false;
}

/*
 * pmhash_lock_row_types
 *		Keep the composite types in the keys of an index as they are until the end of
 *		the transaction.
 *
 * For a build: to add or drop an attribute takes an AccessExclusiveLock on the type's
 * relation (ALTER TYPE, ALTER TABLE).  So either that has been done and is seen here, or
 * it waits until this index can be seen in the catalogs (row_types.c).
 *
 * Returns the number of a column whose composite types have a part in a temporary
 * schema, or 0.  The server drops such parts by itself, at the end of a session or, after
 * a crash, by autovacuum: then attributes go, and no user is there to be refused that.
 */
AttrNumber
pmhash_lock_row_types(Relation index)
{
	AttrNumber	temporary = 0;

	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		TypeWalk	walk = {.visit = lock_row_type};

		(void) visit_type(&walk, TupleDescAttr(RelationGetDescr(index), i)->atttypid,
						  index->rd_indcollation[i]);
		list_free_deep(walk.visited);
		if (walk.temporary && temporary == 0)
			temporary = i + 1;
	}
	return temporary;
}

/*
 * hashname knows nothing of collations, though nameeq does; until PostgreSQL 16
 * hashbpchar then hashed the trailing blanks, which bpchareq passes over.
 */
static bool
hash_misleads(Oid type, Oid collation, void *arg)
{
	bool		misled = type == NAMEOID;

#if PG_VERSION_NUM < 160000
	misled = misled || type == BPCHAROID;
#endif
	return misled && OidIsValid(collation) &&
		!get_collation_isdeterministic(collation);
}

/*
 * pmhash_core_hash_misleads
 *		Are there values of an array, composite or range type that are equal under this
 *		collation, though core's hash functions give different hashes of them?
 */
bool
pmhash_core_hash_misleads(Oid type, Oid collation)
{
	return pmhash_visit_types(type, collation, hash_misleads, NULL);
}

/*
 * Strings that may be equal in an order under this collation, and are not by their "="?
 * Core's types agree with themselves (but for hash functions: hash_misleads).  Those of
 * others may have an "=" that knows nothing of collations, as citext has.
 */
static bool
orders_otherwise(Oid type, Oid collation, void *arg)
{
	return OidIsValid(collation) && !get_collation_isdeterministic(collation) &&
		type_is_collatable(type) && !OidIsValid(get_element_type(type)) &&
		type != TEXTOID && type != VARCHAROID && type != BPCHAROID && type != NAMEOID;
}

/*
 * range_eq and multirange_eq compare bounds by the operator class that the range type was
 * made with, and under its collation.  hash_range calls the hash function that goes with
 * the default equality of their type.
 */
static bool
order_misleads(Oid type, Oid collation, void *arg)
{
	Oid			range = get_typtype(type) == TYPTYPE_MULTIRANGE ?
		get_multirange_range(type) : type;
	HeapTuple	tuple = SearchSysCache1(RANGETYPE, ObjectIdGetDatum(range));
	FormData_pg_range found;
	Oid			input;

	if (!HeapTupleIsValid(tuple))
		return false;
	found = *(Form_pg_range) GETSTRUCT(tuple);
	ReleaseSysCache(tuple);
	input = get_opclass_input_type(found.rngsubopc);
	return get_opfamily_member(get_opclass_family(found.rngsubopc), input, input,
							   BTEqualStrategyNumber) !=
		lookup_type_cache(found.rngsubtype, TYPECACHE_EQ_OPR)->eq_opr ||
		pmhash_visit_types(found.rngsubtype, found.rngcollation, orders_otherwise, NULL);
}

/*
 * pmhash_range_order_misleads
 *		Does a type contain ranges whose bounds are compared by another equality than
 *		the one that core's hash function goes by?
 */
bool
pmhash_range_order_misleads(Oid type)
{
	return pmhash_visit_types(type, InvalidOid, order_misleads, NULL);
}
