/*-------------------------------------------------------------------------
 *
 * validate.c
 *	  Operator classes for pmhash: amvalidate and amadjustmembers.
 *
 * The rules are those of hash (access/hash/hashvalidate.c), with the extended
 * hash function as the only support function, and one more: the types of a
 * family must be hashed alike.  Types that keys.c hashes by their bytes cannot
 * be in a family with types that are hashed by a function, nor with types of
 * another layout.  Since such an index would miss rows, that rule is enforced
 * where members are added, not only complained of by amvalidate.  For the same reason
 * a family that has lost an equality or a hash function gets none while there are
 * indexes, and none gets a hash function of another form: it would be called, and what
 * it returns be taken for a hash (or the key for the address of something).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amvalidate.h"
#include "access/htup_details.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "am/am.h"
#include "am/keys.h"

/* What is being validated, and what has been found. */
typedef struct Validation
{
	char	   *opclass;
	char	   *family;			/* names, for messages */
	Oid			opcintype;
	CatCList   *operators;
	CatCList   *functions;
	List	   *hashable;		/* types that have a good hash function */
	bool		good;
} Validation;

/* Complain about the family under validation, and note that it is not good. */
#define complain(v, ...) \
	do { \
		ereport(INFO, \
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION), \
				 errmsg(__VA_ARGS__))); \
		(v)->good = false; \
	} while (0)

/*
 * Is funcid a hash(argtype, int8) returning int8?
 *
 * Core's functions are used for types that merely look like their argument
 * types (int4's for date, say); which ones may be is what keys.c knows.
 */
static bool
hash_function_is_good(Oid funcid, Oid argtype)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));
	Form_pg_proc proc;
	bool		good;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", funcid);
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	good = proc->prorettype == INT8OID && !proc->proretset &&
		proc->pronargs == 2 && proc->proargtypes.values[1] == INT8OID &&
		(IsBinaryCoercible(argtype, proc->proargtypes.values[0]) ||
		 OidIsValid(pmhash_keys_layout(argtype, funcid)));
	ReleaseSysCache(tuple);
	return good;
}

static void
validate_operator(Validation *v, Form_pg_amop member)
{
	if (member->amopstrategy != PMHASH_EQUAL_STRATEGY)
		complain(v, "operator family \"%s\" of access method %s contains operator %s with invalid strategy number %d",
				 v->family, "pmhash", format_operator(member->amopopr),
				 member->amopstrategy);
	if (member->amoppurpose != AMOP_SEARCH ||
		OidIsValid(member->amopsortfamily))
		complain(v, "operator family \"%s\" of access method %s contains invalid ORDER BY specification for operator %s",
				 v->family, "pmhash", format_operator(member->amopopr));
	if (!check_amop_signature(member->amopopr, BOOLOID,
							  member->amoplefttype, member->amoprighttype))
		complain(v, "operator family \"%s\" of access method %s contains operator %s with wrong signature",
				 v->family, "pmhash", format_operator(member->amopopr));
	if (!list_member_oid(v->hashable, member->amoplefttype) ||
		!list_member_oid(v->hashable, member->amoprighttype))
		complain(v, "operator family \"%s\" of access method %s lacks support function for operator %s",
				 v->family, "pmhash", format_operator(member->amopopr));
}

/*
 * Every pair of types of the family has its "=", the opclass's own type
 * foremost.
 */
static void
validate_groups(Validation *v)
{
	List	   *groups = identify_opfamily_groups(v->operators, v->functions);
	int			ntypes = list_length(v->hashable);
	bool		opclass_found = false;
	ListCell   *lc;

	foreach(lc, groups)
	{
		OpFamilyOpFuncGroup *group = (OpFamilyOpFuncGroup *) lfirst(lc);

		if (group->lefttype == v->opcintype &&
			group->righttype == v->opcintype)
			opclass_found = true;
		if (group->operatorset != (1 << PMHASH_EQUAL_STRATEGY))
			complain(v, "operator family \"%s\" of access method %s is missing operator(s) for types %s and %s",
					 v->family, "pmhash", format_type_be(group->lefttype),
					 format_type_be(group->righttype));
	}
	if (!opclass_found)
		complain(v, "operator class \"%s\" of access method %s is missing operator(s)",
				 v->opclass, "pmhash");
	if (list_length(groups) != ntypes * ntypes)
		complain(v, "operator family \"%s\" of access method %s is missing cross-type operator(s)",
				 v->family, "pmhash");
}

/* A family as it is in the catalogs. */
static FormData_pg_opfamily
read_family(Oid family)
{
	HeapTuple	tuple = SearchSysCache1(OPFAMILYOID, ObjectIdGetDatum(family));
	FormData_pg_opfamily form;

	Assert(IsTransactionState());
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator family %u", family);
	form = *(Form_pg_opfamily) GETSTRUCT(tuple);
	ReleaseSysCache(tuple);
	return form;
}

/* The name of an operator family, palloc'd, for messages. */
char *
pmhash_opfamily_name(Oid family)
{
	FormData_pg_opfamily form = read_family(family);

	return pstrdup(NameStr(form.opfname));
}

/*
 * Check an operator class and its family, for amvalidate.
 *
 * Complains with INFO messages about each thing that is wrong and returns
 * false if there was any.
 */
bool
pmhash_validate(Oid opclassoid)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclassoid));
	Form_pg_opclass opclass;
	Validation	v = {0};
	Oid			family;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", opclassoid);
	opclass = (Form_pg_opclass) GETSTRUCT(tuple);
	family = opclass->opcfamily;
	v.opclass = pstrdup(NameStr(opclass->opcname));
	v.opcintype = opclass->opcintype;
	ReleaseSysCache(tuple);

	v.family = pmhash_opfamily_name(family);
	v.operators = SearchSysCacheList1(AMOPSTRATEGY, ObjectIdGetDatum(family));
	v.functions = SearchSysCacheList1(AMPROCNUM, ObjectIdGetDatum(family));
	v.good = true;
	for (int i = 0; i < v.functions->n_members; i++)
	{
		Form_pg_amproc member = (Form_pg_amproc) GETSTRUCT(&v.functions->members[i]->tuple);

		if (member->amproclefttype != member->amprocrighttype)
			complain(&v, "operator family \"%s\" of access method %s contains support function %s with different left and right input types",
					 v.family, "pmhash", format_procedure(member->amproc));
		if (member->amprocnum != PMHASH_HASH_PROC)
			complain(&v, "operator family \"%s\" of access method %s contains function %s with invalid support number %d",
					 v.family, "pmhash", format_procedure(member->amproc),
					 member->amprocnum);
		else if (!hash_function_is_good(member->amproc, member->amproclefttype))
			complain(&v, "operator family \"%s\" of access method %s contains function %s with wrong signature for support number %d",
					 v.family, "pmhash", format_procedure(member->amproc),
					 member->amprocnum);
		else
			v.hashable = list_append_unique_oid(v.hashable, member->amproclefttype);
	}
	for (int i = 0; i < v.operators->n_members; i++)
		validate_operator(&v, (Form_pg_amop) GETSTRUCT(&v.operators->members[i]->tuple));
	validate_groups(&v);
	ReleaseCatCacheList(v.functions);
	ReleaseCatCacheList(v.operators);
	return v.good;
}

/* ---- adding members ---- */

/* Refuse a family that has both types, with these hash functions. */
static void
check_hashed_alike(Oid family, Oid a, Oid a_proc, Oid b, Oid b_proc)
{
	Oid			layout_a = pmhash_keys_layout(a, a_proc);
	Oid			layout_b = pmhash_keys_layout(b, b_proc);
	bool		a_bitwise = OidIsValid(layout_a);
	char	   *bitwise_proc;

	Assert(OidIsValid(a_proc) && OidIsValid(b_proc));
	if (layout_a == layout_b)
		return;
	bitwise_proc = format_procedure(a_bitwise ? a_proc : b_proc);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
			 errmsg("operator family \"%s\" of access method %s cannot have both type %s and type %s",
					pmhash_opfamily_name(family), "pmhash",
					format_type_be(a), format_type_be(b)),
			 errdetail("Type %s is hashed by its bytes, since its hash function is %s.",
					   format_type_be(a_bitwise ? a : b), bitwise_proc),
			 errhint("Use a function of your own that calls %s; it will then be called for every key.",
					 bitwise_proc)));
}

/* Check new hash functions against each other and against the family's. */
static void
check_functions_alike(Oid family, List *functions)
{
	CatCList   *present = SearchSysCacheList1(AMPROCNUM,
											  ObjectIdGetDatum(family));
	ListCell   *lc;

	foreach(lc, functions)
	{
		OpFamilyMember *member = (OpFamilyMember *) lfirst(lc);
		OpFamilyMember *first = (OpFamilyMember *) linitial(functions);

		check_hashed_alike(family, member->lefttype, member->object,
						   first->lefttype, first->object);
		for (int i = 0; i < present->n_members; i++)
		{
			Form_pg_amproc old = (Form_pg_amproc)
				GETSTRUCT(&present->members[i]->tuple);

			check_hashed_alike(family, member->lefttype, member->object,
							   old->amproclefttype, old->amproc);
		}
	}
	ReleaseCatCacheList(present);
}

/* Do indexes use operator classes of a family for a type, but for one being created? */
static bool
is_in_use(Oid family, Oid type, Oid created)
{
	Oid			method = read_family(family).opfmethod;
	CatCList   *all = SearchSysCacheList1(CLAAMNAMENSP, ObjectIdGetDatum(method));
	List	   *indexes = NIL;

	for (int i = 0; i < all->n_members; i++)
	{
		Form_pg_opclass class = (Form_pg_opclass) GETSTRUCT(&all->members[i]->tuple);

		if (class->opcfamily == family && class->opcintype == type &&
			class->oid != created)
			indexes = pmhash_add_indexes(indexes, class->oid);
	}
	ReleaseCatCacheList(all);
	return indexes != NIL;
}

/*
 * Refuse what decides which way keys of a type are hashed where there are indexes: a hash
 * function, and an equality of a type whose hash depends on it (keys.c).  They were made
 * with one that the family has lost, and it is not known whether that was the same.  If
 * the family has one the server refuses it.
 */
static void
check_is_first(Oid family, Oid created, const OpFamilyMember *member, bool is_operator)
{
	Oid			type = member->lefttype;
	Oid			proc = get_opfamily_proc(family, type, type, PMHASH_HASH_PROC);

	Assert(member->is_func == !is_operator);
	if (type != member->righttype)
		return;
	if (!is_operator && OidIsValid(proc))
		return;
	if (is_operator &&
		(member->number != PMHASH_EQUAL_STRATEGY ||
		 (OidIsValid(proc) && !OidIsValid(pmhash_keys_layout(type, proc))) ||
		 OidIsValid(get_opfamily_member(family, type, type, PMHASH_EQUAL_STRATEGY))))
		return;
	if (!is_in_use(family, type, created))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg(is_operator ?
					"operator family \"%s\" of access method %s cannot get another equality operator for type %s" :
					"operator family \"%s\" of access method %s cannot get another hash function for type %s",
					pmhash_opfamily_name(family), "pmhash", format_type_be(type)),
			 errdetail("Indexes that use an operator class of the family were made with %s that has been dropped.",
					   is_operator ? "an operator" : "a function"),
			 errhint("Drop these indexes, and create them again when the %s has been added.",
					 is_operator ? "operator" : "function")));
}

/*
 * Look at members that are to be added to an operator family, for
 * amadjustmembers: refuse what could not work and say what they depend
 * on (as hashadjustmembers does; its comments say why).
 *
 * opclassoid is the class being created, or InvalidOid.
 */
void
pmhash_adjustmembers(Oid opfamilyoid, Oid opclassoid,
					 List *operators, List *functions)
{
	Oid			method;
	Oid			type = InvalidOid;
	ListCell   *lc;

	if (OidIsValid(opclassoid))
	{
		/* make the class, and a family made for it, visible to us */
		CommandCounterIncrement();
		type = get_opclass_input_type(opclassoid);
	}
	/* Builds have a lock, too (build.c): what they have made can be seen then. */
	LockDatabaseObject(OperatorFamilyRelationId, opfamilyoid, 0, AccessExclusiveLock);
	method = read_family(opfamilyoid).opfmethod;
	foreach(lc, functions)
	{
		const OpFamilyMember *member = lfirst(lc);

		if (!hash_function_is_good(member->object, member->lefttype))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
					 errmsg("function %s cannot be the hash function of type %s for access method %s",
							format_procedure(member->object),
							format_type_be(member->lefttype), "pmhash"),
					 errhint("Operator classes for access method pmhash need support function %d, hash(type, bigint) returning bigint.",
							 PMHASH_HASH_PROC)));
		check_is_first(opfamilyoid, opclassoid, member, false);
	}
	check_functions_alike(opfamilyoid, functions);
	foreach(lc, operators)
		check_is_first(opfamilyoid, opclassoid, lfirst(lc), true);
	foreach(lc, list_concat_copy(operators, functions))
	{
		OpFamilyMember *member = (OpFamilyMember *) lfirst(lc);

		if (member->lefttype == member->righttype && member->lefttype != type)
		{
			type = member->lefttype;
			opclassoid = opclass_for_family_datatype(method, opfamilyoid,
													 type);
		}
		/* on the opclass of its type if there is one (hard), else on the family (soft) */
		member->ref_is_hard = member->lefttype == member->righttype &&
			OidIsValid(opclassoid);
		member->ref_is_family = !member->ref_is_hard;
		member->refobjid = member->ref_is_hard ? opclassoid : opfamilyoid;
	}
}

/*
 * WARNING for each column of a new index whose type has another equality than
 * the operator class that the server has taken for it.
 *
 * So it is if its own type has no class, and none was named, and it can be taken for one
 * that has (citext for text).
 */
void
pmhash_warn_of_equality(Relation index)
{
	Assert(CheckRelationLockedByMe(index, RowExclusiveLock, true));
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		Oid			type = getBaseType(TupleDescAttr(RelationGetDescr(index), i)->atttypid);
		Oid			equal = lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr;
		char	   *shown = format_type_be_qualified(type);
		Oid			opclass;

		if (type == index->rd_opcintype[i] || !OidIsValid(equal) ||
			op_in_opfamily(equal, index->rd_opfamily[i]))
			continue;
		opclass = GetDefaultOpClass(type, index->rd_rel->relam);
		if (!OidIsValid(opclass) ||
			get_opclass_family(opclass) != index->rd_opfamily[i] ||
			get_opclass_input_type(opclass) != index->rd_opcintype[i])
			continue;
		ereport(WARNING,
				(errmsg("column %d of pmhash index \"%s\" is not indexed by the equality of its type %s",
						i + 1, RelationGetRelationName(index), shown),
				 errdetail("Type %s has no operator class for access method %s, so the index has the equality of type %s.",
						   shown, "pmhash", format_type_be(index->rd_opcintype[i])),
				 errhint("Create an operator class for type %s, and then the index.",
						 shown)));
	}
}
