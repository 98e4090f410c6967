/*-------------------------------------------------------------------------
 *
 * server_shim.h
 *	  What stands in for the PostgreSQL server under undo_journal.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CRASH_SERVER_SHIM_H
#define PMH_CRASH_SERVER_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "table.h"

/* The write-ahead log: inserted so far, and of that durable. */
extern uint64_t shim_wal_inserted;
extern uint64_t shim_wal_flushed;

/* What pmhash_engine_env() gives. */
extern PmhEnv shim_env;

/* An index file was removed, or eras renewed: nothing that should happen. */
extern const char *shim_complaint;

/* Make shared memory and a journal with so many records. */
extern void shim_start(uint64_t nrecords);

/*
 * Another server life begins, which takes over the journal of this one, of so many
 * records; some of them have been damaged meanwhile.
 */
extern void shim_take_over(uint64_t nrecords);

/* Note entries as the access method does, for a transaction's record at lsn. */
extern void shim_note(const PmhEntry *entries, size_t n, uint64_t lsn);
extern void shim_note_flushed(uint64_t lsn);

/* Undo what depends on WAL after 'end'.  False if that ended with an ERROR. */
extern bool shim_undo(uint64_t end);

#endif							/* PMH_CRASH_SERVER_SHIM_H */
