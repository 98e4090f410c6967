/*-------------------------------------------------------------------------
 *
 * may_see.c
 *	  Which user may see where files are, and what may reveal rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/rel.h"

#include "cluster/base/pool_names.h"
#include "cluster/cluster.h"

/* Is this user the owner of the index (InvalidOid: it has none), or in pg_monitor? */
static bool
has_right_to_details(Oid user, Oid index)
{
	if (has_privs_of_role(user, ROLE_PG_MONITOR))
		return true;
	if (!OidIsValid(index))
		return false;
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(RelationRelationId, index, user);
#else
	return pg_class_ownercheck(index, user);
#endif
}

/*
 * May this user see where the files are and why a rebuild has failed?  That may
 * reveal rows, as an expression of the index that fails for one shows its
 * value, and the server's directories: for the owner of the index (InvalidOid: it has
 * none) and for pg_monitor, which superusers are members of.
 *
 * In an operation in the rights of a table's owner two users look on, and both must
 * have the right: the owner, whose functions may put down what they see (ANALYZE by a
 * superuser or autovacuum), and the one outside, which reads the message (pmhash.check).
 */
bool
pmhash_may_see_details_of(Oid index)
{
	if (!IsTransactionState())
		return true;
	return has_right_to_details(GetUserId(), index) &&
		(!InSecurityRestrictedOperation() ||
		 has_right_to_details(GetOuterUserId(), index));
}

bool
pmhash_may_see_details(Relation index)
{
	return pmhash_may_see_details_of(index != NULL ? RelationGetRelid(index)
									 : InvalidOid);
}

/*
 * A path in the pool as this user may see it: where the server's directories are
 * is for the owner of the index and for pg_monitor, as in the view; for others it
 * begins in the pool.
 */
const char *
pmhash_shown_path(Relation index, const char *path)
{
	const char *pool = pmhash_pool_path();
	size_t		length = strlen(pool);

	if (strncmp(path, pool, length) != 0 || path[length] != '/' ||
		pmhash_may_see_details(index))
		return path;
	return path + length + 1;
}
