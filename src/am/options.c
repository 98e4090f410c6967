/*-------------------------------------------------------------------------
 *
 * options.c
 *	  Storage parameters of pmhash indexes.
 *
 * There are two:
 *
 * fillfactor	percent of the slots that CREATE INDEX and REINDEX fill.  The
 *				default packs an entry into about 15 bytes; segments filled
 *				less take more insertions before they first grow.
 * wal			are changes of entries logged, so that standbys have the index?
 *				"default": as the GUC pmhash.wal says (cluster/logged.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "utils/rel.h"

#include "am/am.h"

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
		/* the same; see cluster/logged.c */
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
 * pmhash_options
 *		Parse WITH (...) of an index, for amoptions.
 *
 * ERROR for an unknown parameter or a value out of range, if validate.
 */
bytea *
pmhash_options(Datum reloptions, bool validate)
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
