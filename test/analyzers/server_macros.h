/* For cppcheck, which reads the server's part of pmhash without the server's headers. */
#define foreach(cell, list)	for (cell = list_head(list); cell != NULL; cell = lnext(list, cell))
#define XL_ROUTINE(...)		NULL
