/*-------------------------------------------------------------------------
 *
 * trust.h
 *	  What may be trusted when the pool is taken into use, and while it is used.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_TRUST_H
#define PMHASH_TRUST_H

#include "cluster/base/control_file.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"
#include "cluster/standby/standby_state.h"

/* ---- pool_life.c ---- */
extern bool pmhash_pool_start(PmhashControl *control, char *reason);
extern void pmhash_pool_ready(void);
extern PmhashReason pmhash_service_doubt(void);
extern void pmhash_pool_stop(void);

/* ---- trust.c ---- */
extern PmhashStandbyStart pmhash_decide(PmhashControl *control,
										PmhashControlRead found, bool write_failed,
										const PmhashServerState *server);
extern bool pmhash_token_matches(const PmhashControl *control, bool has_token,
								 const PmhashToken *token);
extern void pmhash_refuse_trust(void);

/* ---- failed_writes.c ---- */
extern void pmhash_renew_nonce(void);

/* ms from the start of a server life to its first question */
#define PMHASH_FIRST_QUESTION	300000

extern void pmhash_notice_failed_writes(PmhashGoOn go_on);
extern void pmhash_notice_for_launcher(void);

/* ---- the witness of the page cache ---- */

extern void pmhash_set_witness(void);
extern bool pmhash_has_witness(void);
extern bool pmhash_withdraw_witness(void);
extern bool pmhash_witness_is_withdrawn(void);
extern void pmhash_restore_witness(void);

/* ---- standby_lose.c: none of these raises an ERROR while it holds the lock ---- */

extern void pmhash_standby_lose(PmhashStandbyRow *row, int sqlstate, const char *why);
extern int	pmhash_standby_lose_all(bool (*which) (const PmhashStandbyRow *), int sqlstate,
									const char *why);
extern void pmhash_standby_forget(PmhashStandbyRow *row);
extern void pmhash_standby_lost(uint64 file_id, uint64 life, int sqlstate,
								const char *why);
extern void pmhash_standby_promote(void);

/*
 * A database has been dropped: WAL does not say which files go with it.  Not those that the
 * server life before has built past this place in WAL, where another one has its OID.
 */
extern void pmhash_standby_database_dropped(Oid database, XLogRecPtr upto);

/*
 * What is in the files of a server in recovery cannot be believed any more: none of them
 * is used from here on, nor after a restart or a promotion, and all are built anew.
 * False, and nothing done, if they are not a standby's, or not any more.  Takes the lock.
 */
extern bool pmhash_standby_distrust(int sqlstate, const char *why);

#endif							/* PMHASH_TRUST_H */
