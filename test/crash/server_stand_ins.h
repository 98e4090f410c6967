/*-------------------------------------------------------------------------
 *
 * server_stand_ins.h
 *	  What stands in for the PostgreSQL server, the same under the undo journal
 *	  (journal.c) and under starts (starts.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CRASH_SERVER_STAND_INS_H
#define PMH_CRASH_SERVER_STAND_INS_H

#define SERVER_DATABASE		5
#define SERVER_WAL_SEGMENT	(16 * 1024 * 1024)

/* A function of the server that only does this, or nothing; one that only gives a value. */
#define DOES(name, parameters, statement)		void name parameters { statement; }
#define DOES_NOTHING(name, parameters)			void name parameters { }
#define GIVES(type, name, parameters, value)	type name parameters { return value; }

/* Messages from this level on are made; errfinish of the program sees to them. */
extern int	server_report_from;

/* The level of the message that is being made. */
extern int	server_error_level;

#endif							/* PMH_CRASH_SERVER_STAND_INS_H */
