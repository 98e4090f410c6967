/*-------------------------------------------------------------------------
 *
 * handler.c
 *	  The handler function: the abilities and callbacks of pmhash.
 *
 * The abilities it denies are denied on purpose; src/README, "Hashes", says
 * why for each (INCLUDE, parallel scan and others).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "commands/vacuum.h"
#include "nodes/nodes.h"
#include "utils/rel.h"

#include "am/am.h"
#include "am/keys.h"

PG_FUNCTION_INFO_V1(pmhash_handler);

/*
 * Storage parameters of pmhash indexes.
 *
 * There are two:
 *
 * fillfactor	percent of the slots that CREATE INDEX and REINDEX fill.  The
 *				default packs an entry into about 15 bytes; segments filled
 *				less take more insertions before they first grow.
 * wal			are changes of entries logged, so that standbys have the index?
 *				"default": as the GUC pmhash.wal says (cluster/wal/logged.c).
 */

/* Values of "wal": those of a boolean, and none. */
static relopt_enum_elt_def wal_values[] = {
	{"default", PMHASH_WAL_BY_DEFAULT},
	{"on", PMHASH_WAL_ON},
	{"off", PMHASH_WAL_OFF},
	{"true", PMHASH_WAL_ON},
	{"false", PMHASH_WAL_OFF},
	{"yes", PMHASH_WAL_ON},
	{"no", PMHASH_WAL_OFF},
	{"1", PMHASH_WAL_ON},
	{"0", PMHASH_WAL_OFF},
	{(const char *) NULL}		/* list terminator */
};

/*
 * Parse WITH (...) of an index, for amoptions.
 *
 * ERROR for an unknown parameter or a value out of range, if validate.  Our parameters are
 * registered in this backend at first use: nothing else needs them.
 */
static bytea *
parse_options(Datum reloptions, bool validate)
{
	static const relopt_parse_elt parameters[] = {
		{.optname = "fillfactor", .opttype = RELOPT_TYPE_INT,
		.offset = offsetof(PmhashOptions, fillfactor)},
		{.optname = "wal", .opttype = RELOPT_TYPE_ENUM,
		.offset = offsetof(PmhashOptions, wal)}
	};
	static relopt_kind kind = 0;

	if (kind == 0)
	{
		relopt_kind fresh = add_reloption_kind();

		/* they take effect at the next build, so a weak lock will do */
		add_int_reloption(fresh, "fillfactor",
						  "Percentage of slots that CREATE INDEX fills",
						  PMH_DEFAULT_FILL, PMH_MIN_FILL, 100,
						  ShareUpdateExclusiveLock);
		add_enum_reloption(fresh, "wal",
						   "Write entries to WAL, for standbys",
						   wal_values, PMHASH_WAL_BY_DEFAULT,
						   "Valid values are \"on\", \"off\", and \"default\".",
						   ShareUpdateExclusiveLock);
		kind = fresh;
	}
	return (bytea *) build_reloptions(reloptions, validate, kind, sizeof(PmhashOptions),
									  parameters, lengthof(parameters));
}

#if PG_VERSION_NUM >= 180000
/* amtranslatestrategy, amtranslatecmptype: strategy 1 is equality. */
static CompareType
translate_strategy(StrategyNumber strategy, Oid opfamily)
{
	return strategy == PMHASH_EQUAL_STRATEGY ? COMPARE_EQ : COMPARE_INVALID;
}

static StrategyNumber
translate_cmptype(CompareType cmptype, Oid opfamily)
{
	return cmptype == COMPARE_EQ ? PMHASH_EQUAL_STRATEGY : InvalidStrategy;
}
#endif

/*
 * The abilities and callbacks: see amapi.h for each.  What is not named here is false,
 * 0 or NULL.
 */
static IndexAmRoutine routine = {
	.type = T_IndexAmRoutine,
	.amstrategies = PMHASH_NSTRATEGIES,
	.amsupport = PMHASH_NPROCS,
	.amcanmulticol = true,
	.amsearcharray = true,
	.ampredlocks = true,
	.amusemaintenanceworkmem = true,
	.amparallelvacuumoptions =
		VACUUM_OPTION_PARALLEL_BULKDEL | VACUUM_OPTION_PARALLEL_COND_CLEANUP,
#if PG_VERSION_NUM >= 180000
	/* amcanhash is false: its hash function is not core's */
	.amconsistentequality = true,
	.amcanunique = true,
	.amtranslatestrategy = translate_strategy,
	.amtranslatecmptype = translate_cmptype,
#endif
	.ambuild = pmhash_build,
	.ambuildempty = pmhash_file_create_init,
	.aminsert = pmhash_insert,
	.ambulkdelete = pmhash_bulkdelete,
	.amvacuumcleanup = pmhash_vacuumcleanup,
	.amcanreturn = pmhash_keys_can_return,
	.amcostestimate = pmhash_costestimate,
	.amoptions = parse_options,
	.ambuildphasename = pmhash_buildphasename,
	.amvalidate = pmhash_validate,
	.amadjustmembers = pmhash_adjustmembers,
	.ambeginscan = pmhash_beginscan,
	.amrescan = pmhash_rescan,
	.amgettuple = pmhash_gettuple,
	.amgetbitmap = pmhash_getbitmap,
	.amendscan = pmhash_endscan
};

/*
 * pmhash_handler(internal) returns index_am_handler
 *
 * The result is palloc'd in the caller's context, and the relation cache copies it.  From
 * PostgreSQL 19 on all indexes point to it, for as long as the process lives.
 */
Datum
pmhash_handler(PG_FUNCTION_ARGS)
{
	IndexAmRoutine *am = &routine;

#if PG_VERSION_NUM < 190000
	am = makeNode(IndexAmRoutine);
	*am = routine;
#endif
	PG_RETURN_POINTER(am);
}

/*
 * Percent of slots that a build of 'index' is to fill, between
 * PMH_MIN_FILL and PMH_MAX_FILL.
 *
 * 100 is accepted, as by other access methods, but a segment that full
 * would not take what hashes unevenly.
 */
int
pmhash_fillfactor(Relation index)
{
	PmhashOptions *options = (PmhashOptions *) index->rd_options;

	return Min(options ? options->fillfactor : PMH_DEFAULT_FILL, PMH_MAX_FILL);
}
