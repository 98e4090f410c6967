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
extern const char *pmhash_disabled_detail(bool retried);
extern const char *pmhash_standby_disabled_detail(void);

#endif							/* PMHASH_DISABLED_H */
