/*-------------------------------------------------------------------------
 *
 * standby_redo.h
 *	  What the startup process of a standby does, and the files that it has open.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STANDBY_REDO_H
#define PMHASH_STANDBY_REDO_H

#include "access/xlogreader.h"

#include "cluster/standby/standby_state.h"
#include "cluster/wal/wal_record.h"

/* ---- standby_redo.c ---- */
extern void pmhash_standby_redo_init(void);

/* ---- standby_handles.c ---- */
extern PmhTable *pmhash_standby_open_table(const PmhashStandbyRow *row, char *reason);
extern int	pmhash_standby_open_delta(const PmhashStandbyRow *row, char *reason);
extern void pmhash_standby_handles_at_end_of_record(void);

#endif							/* PMHASH_STANDBY_REDO_H */
