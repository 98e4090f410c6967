/*-------------------------------------------------------------------------
 *
 * format.h
 *	  Guards of what this layer writes to files: every offset and size.
 *
 * A change of one of them is another format.  The struct says which version it
 * takes then.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FORMAT_H
#define PMHASH_FORMAT_H

#define PMHASH_AT(type, field, offset) \
	StaticAssertDecl(offsetof(type, field) == (offset), #type "." #field " has moved")
#define PMHASH_SIZE(type, size) \
	StaticAssertDecl(sizeof(type) == (size), #type " has another size")

#endif							/* PMHASH_FORMAT_H */
