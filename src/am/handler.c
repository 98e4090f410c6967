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
#include "fmgr.h"
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
 * The kind under which our parameters are registered in this backend.  Done at
 * first use: there is no other user of it than this file.
 */
static relopt_kind
options_kind(void)
{
	static relopt_kind kind = 0;

	if (kind == 0)
	{
		relopt_kind fresh = add_reloption_kind();

		/* it takes effect at the next build, so a weak lock will do */
		add_int_reloption(fresh, "fillfactor",
						  "Percentage of slots that CREATE INDEX fills",
						  PMH_DEFAULT_FILL, PMH_MIN_FILL, 100,
						  ShareUpdateExclusiveLock);
		/* the same; see cluster/wal/logged.c */
		add_enum_reloption(fresh, "wal",
						   "Write entries to WAL, for standbys",
						   wal_values, PMHASH_WAL_BY_DEFAULT,
						   "Valid values are \"on\", \"off\", and \"default\".",
						   ShareUpdateExclusiveLock);
		kind = fresh;
	}
	return kind;
}

/*
 * parse_options
 *		Parse WITH (...) of an index, for amoptions.
 *
 * ERROR for an unknown parameter or a value out of range, if validate.
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

	return (bytea *) build_reloptions(reloptions, validate, options_kind(),
									  sizeof(PmhashOptions),
									  parameters, lengthof(parameters));
}

/* Fill in the abilities: see amapi.h for each. */
static void
set_abilities(IndexAmRoutine *am)
{
	am->amstrategies = PMHASH_NSTRATEGIES;
	am->amsupport = PMHASH_NPROCS;
	am->amoptsprocnum = 0;
	am->amcanorder = false;
#if PG_VERSION_NUM >= 180000
	am->amcanhash = false;		/* its hash function is not core's */
	am->amconsistentequality = true;
	am->amconsistentordering = false;
#endif
	am->amcanorderbyop = false;
	am->amcanbackward = false;
#if PG_VERSION_NUM >= 180000
	am->amcanunique = true;
#else
	am->amcanunique = false;
#endif
	am->amcanmulticol = true;
	am->amoptionalkey = false;
	am->amsearcharray = true;
	am->amsearchnulls = false;
	am->amstorage = false;
	am->amclusterable = false;
	am->ampredlocks = true;
	am->amcanparallel = false;
#if PG_VERSION_NUM >= 170000
	am->amcanbuildparallel = false;
#endif
	am->amcaninclude = false;
	am->amusemaintenanceworkmem = true;
#if PG_VERSION_NUM >= 160000
	am->amsummarizing = false;
#endif
	am->amparallelvacuumoptions =
		VACUUM_OPTION_PARALLEL_BULKDEL | VACUUM_OPTION_PARALLEL_COND_CLEANUP;
	am->amkeytype = InvalidOid;
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

static void
set_callbacks(IndexAmRoutine *am)
{
	am->ambuild = pmhash_build;
	am->ambuildempty = pmhash_buildempty;
	am->aminsert = pmhash_insert;
#if PG_VERSION_NUM >= 170000
	am->aminsertcleanup = NULL;
#endif
	am->ambulkdelete = pmhash_bulkdelete;
	am->amvacuumcleanup = pmhash_vacuumcleanup;
	am->amcanreturn = pmhash_keys_can_return;
	am->amcostestimate = pmhash_costestimate;
	am->amoptions = parse_options;
	am->amproperty = NULL;
	am->ambuildphasename = pmhash_buildphasename;
	am->amvalidate = pmhash_validate;
	am->amadjustmembers = pmhash_adjustmembers;
	am->ambeginscan = pmhash_beginscan;
	am->amrescan = pmhash_rescan;
	am->amgettuple = pmhash_gettuple;
	am->amgetbitmap = pmhash_getbitmap;
	am->amendscan = pmhash_endscan;
	am->ammarkpos = NULL;
	am->amrestrpos = NULL;
	am->amestimateparallelscan = NULL;
	am->aminitparallelscan = NULL;
	am->amparallelrescan = NULL;
#if PG_VERSION_NUM >= 180000
	am->amtranslatestrategy = translate_strategy;
	am->amtranslatecmptype = translate_cmptype;
#endif
}

/*
 * pmhash_handler(internal) returns index_am_handler
 *
 * The result is palloc'd in the caller's context, as amapi.h says: the relation cache
 * copies it.  From PostgreSQL 19 on nothing copies it and all indexes point to it, for as
 * long as the process lives.
 */
Datum
pmhash_handler(PG_FUNCTION_ARGS)
{
#if PG_VERSION_NUM >= 190000
	static IndexAmRoutine routine = {.type = T_IndexAmRoutine};
	IndexAmRoutine *am = &routine;
#else
	IndexAmRoutine *am = makeNode(IndexAmRoutine);
#endif

	set_abilities(am);
	set_callbacks(am);
	PG_RETURN_POINTER(am);
}

/*
 * pmhash_fillfactor
 *		Percent of slots that a build of 'index' is to fill, between
 *		PMH_MIN_FILL and PMH_MAX_FILL.
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
