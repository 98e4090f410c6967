/*-------------------------------------------------------------------------
 *
 * trust.h
 *	  What may be trusted when the pool is taken into use, and while it is used.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_TRUST_H
#define PMHASH_TRUST_H

#include "cluster/base/control_file.h"
#include "cluster/base/data_directory.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"

/* What is known of the way to here when the pool is entered. */
typedef struct PmhashEntryState
{
	int			lock_fd;		/* of the pool's lock file */
	bool		lock_kept;		/* this postmaster had it before, too */
	bool		has_control;	/* the control file is there and sound */
	bool		is_damaged;		/* it is there */
	bool		is_other_version;	/* it is there, and another version's */
	bool		write_failed;	/* the kernel has failed to write something back */
} PmhashEntryState;

/* ---- pool_start.c ---- */
extern bool pmhash_pool_start(PmhashControl *control, uint64 instance,
							  char *reason);
extern void pmhash_pool_stop(uint64 instance);

/* ---- trust.c ---- */
extern void pmhash_see_redo(PmhashControl *control);
extern PmhashStandbyStart pmhash_decide(PmhashControl *control,
										const PmhashEntryState *entry,
										const PmhashServerState *server,
										uint64 instance);
extern bool pmhash_token_matches(const PmhashControl *control,
								 const PmhashServerState *server);
extern bool pmhash_trust_stands(const PmhashControl *control, int lock_fd);
extern void pmhash_refuse_trust(uint64 journal_instance);
extern void pmhash_continue_without_pool(void);

/* ---- first_use.c ---- */
extern void pmhash_pool_ready(void);

/* ---- service.c ---- */
extern PmhashReason pmhash_service_doubt(void);

/* ---- distrust.c ---- */
extern void pmhash_renew_nonce(void);
extern bool pmhash_ask_for_failed_file(int fd, const char *path, char *failed);
extern bool pmhash_ask_for_failed_writes(const char *failed);

/* ---- failed_writes.c ---- */
/* ms from the start of a server life to its first question */
#define PMHASH_FIRST_QUESTION	30000

extern void pmhash_notice_failed_writes(PmhashGoOn go_on);
extern void pmhash_ask_soon(void);
extern void pmhash_notice_for_launcher(void);

#endif							/* PMHASH_TRUST_H */
