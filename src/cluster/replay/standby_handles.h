/*-------------------------------------------------------------------------
 *
 * standby_handles.h
 *	  The files that the startup process of a standby has open.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STANDBY_HANDLES_H
#define PMHASH_STANDBY_HANDLES_H

#include "cluster/standby/standby_state.h"

extern PmhTable *pmhash_standby_open_table(const PmhashStandbyRow *row, char *reason);
extern int	pmhash_standby_open_delta(const PmhashStandbyRow *row, char *reason);
extern void pmhash_standby_handles_at_end_of_record(void);

#endif							/* PMHASH_STANDBY_HANDLES_H */
