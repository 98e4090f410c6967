/*-------------------------------------------------------------------------
 *
 * wal_look.h
 *	  A look into WAL before the server replays it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_WAL_LOOK_H
#define PMHASH_WAL_LOOK_H

#include "access/xlogdefs.h"
#include "catalog/pg_control.h"

/* So much WAL is looked at, and no more: bytes. */
#define PMHASH_LONGEST_LOOK		(64 * 1024 * 1024)

extern XLogRecPtr pmhash_end_without_replay(const ControlFileData *server);
extern bool pmhash_wal_is_as_crash_left_it(const ControlFileData *server);
extern bool pmhash_is_checkpoint_of_server(const ControlFileData *server);
extern bool pmhash_is_checkpoint_of_promoted(const ControlFileData *server,
											 XLogRecPtr end);

#endif							/* PMHASH_WAL_LOOK_H */
