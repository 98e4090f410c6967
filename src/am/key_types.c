/*-------------------------------------------------------------------------
 *
 * key_types.c
 *	  The types that keys are made of, and that they stay as they are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_range.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "am/am.h"
#include "cluster/queue/queue.h"

/*
 * The types that keys are made of: elements of arrays, attributes of
 * composite types, bounds of ranges, however deep.
 *
 * They are read from the caches of catalogs, without locks, as the planner does it, and
 * ALTER TABLE of relations that have nothing to do with them: what is not there
 * any more is passed over.
 */

/* Look at a type that values are compared under this collation in; true: enough. */
typedef bool (*TypeVisitor) (Oid type, Oid collation, void *arg);

/* A type that has been visited, as its values are compared there. */
typedef struct Visited
{
	Oid			type;
	Oid			collation;
} Visited;

typedef struct TypeWalk
{
	TypeVisitor visit;
	void	   *arg;
	List	   *visited;		/* Visited: nested types may come many times over */
	bool		in_row;			/* what is visited now is part of a composite type */
	bool		temporary;		/* such a part is in a temporary schema */
} TypeWalk;

static bool visit_type(TypeWalk *walk, Oid type, Oid collation);

/* record_eq compares attributes under their own collations. */
static bool
visit_attributes(TypeWalk *walk, Oid type)
{
	Oid			relid = get_typ_typrelid(type);

	Assert(OidIsValid(relid));
	walk->in_row = true;
	for (AttrNumber attno = 1;; attno++)
	{
		HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid),
											Int16GetDatum(attno));
		FormData_pg_attribute att;

		if (!HeapTupleIsValid(tuple))
			return false;
		memcpy(&att, GETSTRUCT(tuple), ATTRIBUTE_FIXED_PART_SIZE);
		ReleaseSysCache(tuple);
		if (!att.attisdropped && visit_type(walk, att.atttypid, att.attcollation))
			return true;
	}
}

static bool
visit_type(TypeWalk *walk, Oid type, Oid collation)
{
	FormData_pg_type found;
	Visited    *added;
	ListCell   *lc;

	Assert(IsTransactionState());
	check_stack_depth();
	do							/* to the type beneath domains */
	{
		HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));

		if (!HeapTupleIsValid(tuple))
			return false;
		found = *(Form_pg_type) GETSTRUCT(tuple);
		ReleaseSysCache(tuple);
		walk->temporary |= walk->in_row && isAnyTempNamespace(found.typnamespace);
		type = found.typtype == TYPTYPE_DOMAIN ? found.typbasetype : type;
	} while (found.typtype == TYPTYPE_DOMAIN);
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
	if (walk->visit(type, collation, walk->arg))
		return true;
	switch (found.typtype)
	{
		case TYPTYPE_COMPOSITE:
			return visit_attributes(walk, type);
		case TYPTYPE_MULTIRANGE:
		case TYPTYPE_RANGE:
			/* range_eq compares bounds under the collation of the range type */
			if (found.typtype == TYPTYPE_MULTIRANGE)
				type = get_multirange_range(type);
			return visit_type(walk, get_range_subtype(type), get_range_collation(type));
		default:
			break;
	}
	/* array_eq compares elements under the collation that it is called with */
	type = get_element_type(type);
	return OidIsValid(type) && visit_type(walk, type, collation);
}

/*
 * Visit a type, and all that its values are made of.
 *
 * collation: under which the values are compared.  Domains are visited as the types
 * beneath them, each type once for each collation, a composite type before its
 * attributes are looked up.  Returns true as soon as a visit does, false if none did.
 */
static bool
visit_types(Oid type, Oid collation, TypeVisitor visit, void *arg)
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
 * Keep the composite types in the keys of an index as they are until the end of
 * the transaction.
 *
 * For a build: to add or drop an attribute takes an AccessExclusiveLock on the type's
 * relation (ALTER TYPE, ALTER TABLE).  So either that has been done and is seen here, or
 * it waits until this index can be seen in the catalogs.
 *
 * Returns the number of a column whose composite types have a part in a temporary
 * schema, or 0.  The server drops such parts by itself, at the end of a session or, after
 * a crash, by autovacuum: then attributes go, and no user is there to be refused that.
 */
AttrNumber
pmhash_lock_row_types(Relation index)
{
	AttrNumber	temporary = 0;

	Assert(CheckRelationLockedByMe(index, RowExclusiveLock, true));
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
		visit_types(found.rngsubtype, found.rngcollation, orders_otherwise, NULL);
}

/*
 * Are there values of an array, composite or range type that are equal under this
 * collation, though core's hash functions give different hashes of them?  *by_order: so
 * it is since it contains ranges whose bounds are compared by another equality.
 */
bool
pmhash_core_hash_misleads(Oid type, Oid collation, bool *by_order)
{
	*by_order = false;
	if (visit_types(type, collation, hash_misleads, NULL))
		return true;
	return *by_order = visit_types(type, InvalidOid, order_misleads, NULL);
}

/*
 * Row types that keys are made of stay as they are.
 *
 * record_eq and hash_record_extended go by the row type as it is when they are called
 * (rowtypes.c).  To add an attribute changes the hash of every row, though a row that is
 * stored without it is equal to one that has a NULL there; to drop one makes equal what
 * was not.  The server lets both be done while columns have that type, and neither
 * rewrites nor locks their tables (tablecmds.c, ATRewriteTables).  An index with the old
 * hashes would miss rows, and its constraint let duplicates in.  So this is refused, as
 * the server refuses to change the type of an attribute where a column uses the row type
 * (find_composite_type_dependencies).  Not all versions do for expressions of indexes, so
 * that is refused here, too.
 *
 * The object access hook notes the relations whose columns change, and they are looked
 * for in the keys of all indexes with an operator class for such types when the
 * statement is over (hooks.c): DROP ... CASCADE may drop an attribute before the
 * index.  An index that another transaction is making cannot be seen, but its build locks
 * the types that it uses (pmhash_lock_row_types).  It is seen by the transaction that has waited
 * for that lock, since catalogs are read with a snapshot taken after the lock.
 *
 * Without the library nothing is refused; but then the files of the indexes are not
 * trusted any more (trust.c), and made anew.
 */

/* A relation whose columns have changed; lives in TopTransactionContext. */
typedef struct Altered
{
	int			level;			/* nesting level of the transaction */
	Oid			relid;
	AttrNumber	attno;			/* 0: a column has come or gone; else this one was
								 * altered, and had this type */
	Oid			type;
	Oid			collation;
} Altered;

static List *altered = NIL;		/* Altered: not looked for yet */

/* The type and collation that a column has in the catalogs; false if it is not there. */
static bool
read_column(Altered *one)
{
	HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(one->relid),
										Int16GetDatum(one->attno));

	if (!HeapTupleIsValid(tuple))
		return false;
	one->type = ((Form_pg_attribute) GETSTRUCT(tuple))->atttypid;
	one->collation = ((Form_pg_attribute) GETSTRUCT(tuple))->attcollation;
	ReleaseSysCache(tuple);
	return true;
}

/*
 * A column of this relation is about to be altered; 0: one is added or dropped.
 *
 * A column is altered in many ways.  This is called before the change can be seen
 * (tablecmds.c, ATExecAlterColumnType), so we note what it was.
 */
void
pmhash_row_types_note(Oid relid, AttrNumber attno)
{
	MemoryContext old;
	Altered    *one;
	ListCell   *lc;

	Assert(OidIsValid(relid) && attno >= 0 && IsTransactionState());
	foreach(lc, altered)
	{
		one = lfirst(lc);
		if (one->relid == relid && one->attno == attno)
			return;
	}
	old = MemoryContextSwitchTo(TopTransactionContext);
	one = palloc0(sizeof(Altered));
	one->level = GetCurrentTransactionNestLevel();
	one->relid = relid;
	one->attno = attno;
	if (attno == 0 || read_column(one))
		altered = lappend(altered, one);
	MemoryContextSwitchTo(old);
}

/*
 * A visitor of types: is it the row type of a relation that has been altered by this
 * statement or one within it?  Outer ones look for theirs when they are over.  *arg: that
 * relation.
 */
static bool
is_altered_type(Oid type, Oid collation, void *arg)
{
	Oid			relid = get_typ_typrelid(type);
	ListCell   *lc;

	foreach(lc, altered)
	{
		const Altered *one = lfirst(lc);

		if (one->relid == relid && one->level >= GetCurrentTransactionNestLevel())
		{
			*(Oid *) arg = relid;
			return true;
		}
	}
	return false;
}

/* The name of a relation with its schema, for messages. */
static char *
shown_name(Oid relid)
{
	ObjectAddress address = {RelationRelationId, relid, 0};
	char	   *name = getObjectIdentity(&address, true);

	return name != NULL ? name : psprintf("%u", relid);
}

/* The indexes that an operator class is used in (index.c, index_create), added to a list. */
List *
pmhash_add_indexes(List *indexes, Oid opclass)
{
	Relation	pg_depend = table_open(DependRelationId, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key[2];
	HeapTuple	tuple;

	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(OperatorClassRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(opclass));
	scan = systable_beginscan(pg_depend, DependReferenceIndexId, true, NULL, 2, key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		if (form->classid == RelationRelationId &&
			get_rel_relkind(form->objid) == RELKIND_INDEX)	/* not a partitioned one */
			indexes = lappend_oid(indexes, form->objid);
	}
	systable_endscan(scan);
	table_close(pg_depend, AccessShareLock);
	return indexes;
}

/*
 * A statement is over: ERROR if a composite type that is in the keys of an index has
 * been altered by it.
 *
 * Our indexes that may have one are found by indexes of catalogs: each ALTER TABLE that
 * adds or drops a column looks for them, and pg_class may be long.
 */
void
pmhash_row_types_check(void)
{
	int			level = GetCurrentTransactionNestLevel();
	List	   *indexes = NIL;	/* some of them several times */
	ListCell   *lc;

	/* keep what changes hashes */
	foreach(lc, altered)
	{
		const Altered *one = lfirst(lc);
		Altered		now = *one;

		if (one->attno != 0 &&
			(!read_column(&now) ||
			 (now.type == one->type && now.collation == one->collation)))
			altered = foreach_delete_current(altered, lc);
	}
	if (altered == NIL)
		return;
	Assert(IsTransactionState());
	foreach(lc, pmhash_access_methods())
	{
		CatCList   *classes = SearchSysCacheList1(CLAAMNAMENSP,
												  ObjectIdGetDatum(lfirst_oid(lc)));

		for (int i = 0; i < classes->n_members; i++)
		{
			Form_pg_opclass class = (Form_pg_opclass) GETSTRUCT(&classes->members[i]->tuple);
			char		kind = get_typtype(class->opcintype);

			/* there is no composite type in an enum or a base type that is no array */
			if (kind != TYPTYPE_ENUM &&
				(kind != TYPTYPE_BASE || OidIsValid(get_element_type(class->opcintype))))
				indexes = pmhash_add_indexes(indexes, class->oid);
		}
		ReleaseCatCacheList(classes);
	}
	foreach(lc, indexes)
	{
		Oid			relid = InvalidOid;

		/* its columns; it is not locked, and may be gone */
		for (int attno = 1; !OidIsValid(relid); attno++)
		{
			Oid			type = get_atttype(lfirst_oid(lc), attno);

			if (!OidIsValid(type))
				break;
			(void) visit_types(type, InvalidOid, is_altered_type, &relid);
		}
		if (OidIsValid(relid))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot alter attributes of %s because pmhash index %s has it in its keys",
							shown_name(relid), shown_name(lfirst_oid(lc))),
					 errdetail("The hash of a key is made of all its attributes."),
					 errhint("Drop the index, and create it again when the type has been altered.")));
	}
	list_free(indexes);

	/*
	 * Those have been looked for.  What an outer level has noted stays: what let it pass
	 * here, an index that has been dropped, may come back with a rollback to that level.
	 */
	foreach(lc, altered)
	{
		if (((const Altered *) lfirst(lc))->level >= level)
			altered = foreach_delete_current(altered, lc);
	}
}

/* The level has ended; 1 is the transaction's, of which nothing is left in any case. */
void
pmhash_row_types_level_ends(int level, bool committed)
{
	ListCell   *lc;

	foreach(lc, altered)
	{
		Altered    *one = lfirst(lc);

		if (one->level >= level && !committed)
			altered = foreach_delete_current(altered, lc);
		else if (one->level >= level)
			one->level = level - 1;	/* what it has noted is its parent's */
	}
}
