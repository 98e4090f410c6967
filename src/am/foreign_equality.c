/*-------------------------------------------------------------------------
 *
 * foreign_equality.c
 *	  A build warns of columns that the server indexes by the equality of another type.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "commands/defrem.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "am/am.h"

/*
 * Is a column indexed by the class of a type that its own can be taken for (citext by
 * that of text), though its own equality is another one?  So it is if its own type
 * has no class, and no class was named.
 */
static bool
has_foreign_equality(Relation index, int attno, Oid type)
{
	Oid			equal = lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr;
	Oid			opclass;

	if (type == index->rd_opcintype[attno - 1] || !OidIsValid(equal) ||
		op_in_opfamily(equal, index->rd_opfamily[attno - 1]))
		return false;
	opclass = GetDefaultOpClass(type, index->rd_rel->relam);
	return OidIsValid(opclass) &&
		get_opclass_family(opclass) == index->rd_opfamily[attno - 1] &&
		get_opclass_input_type(opclass) == index->rd_opcintype[attno - 1];
}

/*
 * pmhash_warn_of_equality
 *		WARNING for each column of a new index whose type has another equality than
 *		the operator class that the server has taken for it.
 *
 * The caller holds a lock on the index.
 */
void
pmhash_warn_of_equality(Relation index)
{
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(index), i);
		Oid			type = getBaseType(att->atttypid);
		char	   *shown = format_type_be_qualified(type);

		if (!has_foreign_equality(index, i + 1, type))
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
