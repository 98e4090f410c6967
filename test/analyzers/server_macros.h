/* For cppcheck, which reads the server's part of pmhash without the server's headers. */
#define foreach(cell, list)	for (cell = list_head(list); cell != NULL; cell = lnext(list, cell))
#define XL_ROUTINE(...)		NULL
/* What is asserted is no condition that might be false. */
#define Assert(condition)	((void) 0)
