/*-------------------------------------------------------------------------
 *
 * versions.h
 *	  What PostgreSQL names otherwise from version to version.
 *
 * Differences in behaviour stand where they matter, behind PG_VERSION_NUM.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_VERSIONS_H
#define PMHASH_VERSIONS_H

#include "storage/smgr.h"
#include "utils/rel.h"

#if PG_VERSION_NUM >= 160000

#include "varatt.h"

/* The place of a relation's files, and its parts. */
typedef RelFileLocator PmhashNode;

#define pmhash_node(rel)				((rel)->rd_locator)
#define pmhash_node_tablespace(node)	((node)->spcOid)
#define pmhash_node_number(node)		((node)->relNumber)
#define pmhash_node_of_smgr(smgr)		((smgr)->smgr_rlocator.locator)

/* The subtransaction that gave a relation its present files. */
#define pmhash_node_subid(rel)			((rel)->rd_firstRelfilelocatorSubid)

#else

typedef RelFileNode PmhashNode;

#define pmhash_node(rel)				((rel)->rd_node)
#define pmhash_node_tablespace(node)	((node)->spcNode)
#define pmhash_node_number(node)		((node)->relNode)
#define pmhash_node_of_smgr(smgr)		((smgr)->smgr_rnode.node)
#define pmhash_node_subid(rel)			((rel)->rd_firstRelfilenodeSubid)

#endif

#if PG_VERSION_NUM < 180000
#define pg_noreturn						pg_attribute_noreturn()
#endif

#endif							/* PMHASH_VERSIONS_H */
