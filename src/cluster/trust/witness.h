/*-------------------------------------------------------------------------
 *
 * witness.h
 *	  The witness of the page cache, in the inode of the pool's lock file.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_WITNESS_H
#define PMHASH_WITNESS_H

extern void pmhash_set_witness(int lock_fd);
extern bool pmhash_has_witness(int lock_fd);
extern bool pmhash_revoke_trust(int lock_fd);
extern bool pmhash_withdraw_witness(int lock_fd);
extern bool pmhash_witness_is_withdrawn(int lock_fd);
extern void pmhash_restore_witness(int lock_fd);
extern bool pmhash_trust_is_revoked(int lock_fd);

#endif							/* PMHASH_WITNESS_H */
