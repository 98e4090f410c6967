/*-------------------------------------------------------------------------
 *
 * disabled.h
 *	  The state "disabled".
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_DISABLED_H
#define PMHASH_DISABLED_H

extern void pmhash_disable(const char *reason);
extern const char *pmhash_disabled_detail(bool standby);

#endif							/* PMHASH_DISABLED_H */
