/*-------------------------------------------------------------------------
 *
 * kept_message.c
 *	  The message of a failure as it is kept, for views and other messages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "cluster/base/kept_message.h"

#define GAP		"..."
#define HEAD	48				/* bytes kept of the beginning, if there is a gap */
#define TAIL(size)	((int) (size) - HEAD - (int) sizeof(GAP))

StaticAssertDecl(TAIL(PMHASH_KEPT_MESSAGE) > HEAD, "most of it is the end");

/*
 * How many of the first limit bytes are whole characters.  A process that is in no
 * database (replay, the launcher) goes by SQL_ASCII, where each byte is one, and who
 * reads the message is in one: what it has besides ASCII, a path, is in UTF-8 as a rule.
 */
static int
whole_characters(const char *message, int length, int limit)
{
	int			encoding = GetDatabaseEncoding();

	return pg_encoding_mbcliplen(encoding == PG_SQL_ASCII ? PG_UTF8 : encoding,
								 message, length, limit);
}

/*
 * Copy a message, in the encoding of the database, to a buffer of so many bytes, at
 * least PMHASH_KEPT_MESSAGE.  One that is too long loses its middle, in whole
 * characters: what is long is a path as a rule, or a value, and why it failed comes
 * after that ("could not create file \"...\": Permission denied").  Raises nothing.
 */
void
pmhash_keep_message(char *to, size_t size, const char *message)
{
	int			length = (int) strlen(message);
	int			head;
	int			end;

	if (length < (int) size)
	{
		memcpy(to, message, length + 1);
		return;
	}
	head = whole_characters(message, length, HEAD);

	/* it goes back to the beginning of a character, so it stays within TAIL bytes */
	end = whole_characters(message, length,
						   length - TAIL(size) + MAX_MULTIBYTE_CHAR_LEN - 1);
	snprintf(to, size, "%.*s" GAP "%s", head, message, message + end);
}
