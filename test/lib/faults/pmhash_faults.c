/*-------------------------------------------------------------------------
 *
 * pmhash_faults.c
 *	  A test library that makes calls fail which pmhash makes.
 *
 * It is loaded by shared_preload_libraries after pmhash and works on the
 * pmhash library as it is, built like any other:
 *
 *	hooks	the entries of pmhash's global offset table for the functions in
 *			HOOKS are replaced, so its calls of them, and no others, come
 *			here first
 *	palloc	the alloc and realloc methods of AllocSet contexts are replaced;
 *			calls with a function of pmhash anywhere on the stack are counted,
 *			so those of server functions that pmhash calls are among them
 *
 * A session says with variables which call is to fail, and learns from
 * pmhash_faults_report() whether it has, and where in pmhash that was.
 * Allocations in critical sections are counted apart and never fail: there
 * must be none.  Written for PostgreSQL 15 to 18 and ELF, on x86-64 and arm64.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "postgres.h"

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/memnodes.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#if PG_VERSION_NUM >= 160000
#include "utils/memutils_internal.h"
#endif

PG_MODULE_MAGIC;

#ifdef __x86_64__
#define JUMP_SLOT		R_X86_64_JUMP_SLOT
#define GLOB_DAT		R_X86_64_GLOB_DAT
#else
#define JUMP_SLOT		R_AARCH64_JUMP_SLOT
#define GLOB_DAT		R_AARCH64_GLOB_DAT
#endif

#define MAX_FRAMES		100
#define MAX_SITES		1000

typedef enum FaultAction
{
	ACTION_FAIL,				/* the call fails */
	ACTION_SKIP,				/* it does nothing and says it has */
	ACTION_CANCEL,				/* it is made, and the query cancelled meanwhile */
	ACTION_PANIC,
	ACTION_KILL,				/* the process is killed */
	ACTION_SLOW					/* it is made, and takes a second */
} FaultAction;

static const struct config_enum_entry action_options[] = {
	{"fail", ACTION_FAIL, false},
	{"skip", ACTION_SKIP, false},
	{"cancel", ACTION_CANCEL, false},
	{"panic", ACTION_PANIC, false},
	{"kill", ACTION_KILL, false},
	{"slow", ACTION_SLOW, false},
	{NULL, 0, false}
};

/* ---- variables ---- */

static char *selected;			/* "memory", "io", "system" (io and unlink) or names
								 * of functions, one blank between them */
static char *process;			/* type of the only process meant, or empty */
static char *after;				/* count only from a call of this one on */
static bool at_restart;			/* count only since shared memory was made anew */
static bool flush;				/* calls of XLogFlush are made */
static int	fail_at;			/* number of the call that fails; 0: none */
static int	fail_for;			/* how many calls fail from there on */
static int	error_number;		/* errno of failing calls; 0: as it suits */
static int	action;
static int	file_system;		/* f_type of what statfs finds; 0: as it is */
static int	hours;				/* so much later it is to pmhash than it is */

static shmem_startup_hook_type previous_shmem_startup_hook;

/* ---- what has happened since fail_at was set ---- */

static int	memories;			/* how often shared memory was made */
static bool after_seen;
static int64 calls;
static int64 fired;
static uintptr_t fired_site;	/* return address in pmhash, from its start */
static int64 critical;			/* allocations in critical sections */

/* Places in pmhash that calls came from, and the number of each one's first. */
typedef struct Site
{
	uintptr_t	address;
	int64		first;
} Site;

static Site sites[MAX_SITES];
static int	nsites;

/* ---- where pmhash is ---- */

static uintptr_t base;
static uintptr_t text_start;
static uintptr_t text_end;
static const ElfW(Dyn) * dynamic;
static uintptr_t utility_return;	/* where standard_ProcessUtility returns to */

/*
 * The innermost return address in pmhash on the stack, or 0.  What the server
 * does inside a utility command is its own work, though pmhash's hook has
 * called it.
 */
static uintptr_t
pmhash_frame(void)
{
	void	   *frame[MAX_FRAMES];
	int			n = backtrace(frame, MAX_FRAMES);

	for (int i = 0; i < n; i++)
	{
		uintptr_t	at = (uintptr_t) frame[i];

		if (utility_return != 0 && at == utility_return)
			return 0;
		if (at >= text_start && at < text_end)
			return at - base;
	}
	return 0;
}

/* ---- to fail or not ---- */

/* Is it one of the words of 'selected'? */
static bool
is_word(const char *word)
{
	size_t		n = strlen(word);

	for (const char *s = selected; (s = strstr(s, word)) != NULL; s += n)
	{
		if ((s == selected || s[-1] == ' ') && (s[n] == '\0' || s[n] == ' '))
			return true;
	}
	return false;
}

static bool
is_selected(const char *name, const char *class)
{
	if (strcmp(selected, "system") == 0)
		return strcmp(class, "io") == 0 || strcmp(class, "unlink") == 0;
	return is_word(name) || is_word(class);
}

static void
note_site(uintptr_t address)
{
	for (int i = 0; i < nsites; i++)
	{
		if (sites[i].address == address)
			return;
	}
	if (nsites == MAX_SITES)
		elog(ERROR, "pmhash_faults: too many places");
	sites[nsites].address = address;
	sites[nsites].first = calls;
	nsites++;
}

/*
 * A call of a function of this name comes from pmhash at 'site'.  True if it
 * is not to be made.
 */
static bool
fault(const char *name, const char *class, uintptr_t site)
{
	if (process[0] != '\0' &&
		(MyBgworkerEntry == NULL || strcmp(MyBgworkerEntry->bgw_type, process) != 0))
		return false;
	if (at_restart && memories < 2)
		return false;
	if (after[0] != '\0' && !after_seen)
	{
		after_seen = strcmp(after, name) == 0;
		if (!after_seen)
			return false;
	}
	if (!is_selected(name, class))
		return false;
	if (CritSectionCount > 0 && strcmp(class, "memory") == 0)
	{
		critical++;
		return false;
	}
	calls++;
	note_site(site);
	if (calls < fail_at || calls >= (int64) fail_at + fail_for)
		return false;
	fired++;
	fired_site = site;
	write_stderr("pmhash_faults: call %d of %s (%s), from pmhash.so+%lx\n",
				 (int) calls, selected, name, (unsigned long) site);
	if (action == ACTION_PANIC)
	{
		fail_at = 0;
		elog(PANIC, "pmhash_faults: call %lld of %s", (long long) calls, name);
	}
	if (action == ACTION_KILL)
		kill(getpid(), SIGKILL);
	if (action == ACTION_SLOW)
	{
		pg_usleep(1000000L);
		return false;
	}
	if (action == ACTION_CANCEL)
	{
		/* what StatementCancelHandler does (postgres.c) */
		InterruptPending = true;
		QueryCancelPending = true;
		return false;
	}
	return true;
}

#define FAULT(name, class) \
	(fail_at > 0 && \
	 fault(name, class, (uintptr_t) __builtin_return_address(0) - base))

/* What a call that is not made leaves in errno. */
static int
errno_or(int usual)
{
	return error_number != 0 ? error_number : usual;
}

/* ---- hooks ---- */

/*
 * name, class, type, parameters, arguments, what it returns when it fails and
 * when it is skipped, errno
 */
#define HOOKS(HOOK) \
	HOOK(malloc, "memory", void *, (size_t n), (n), NULL, NULL, ENOMEM) \
	HOOK(calloc, "memory", void *, (size_t n, size_t m), (n, m), NULL, NULL, ENOMEM) \
	HOOK(realloc, "memory", void *, (void *p, size_t n), (p, n), NULL, NULL, ENOMEM) \
	HOOK(open, "io", int, (const char *p, int f, mode_t m), (p, f, m), -1, -1, EIO) \
	HOOK(fstat, "io", int, (int fd, struct stat *s), (fd, s), -1, -1, EIO) \
	HOOK(statx, "io", int, (int fd, const char *p, int f, unsigned m, struct statx *s), \
		 (fd, p, f, m, s), -1, -1, EIO) \
	HOOK(pread, "io", ssize_t, (int fd, void *b, size_t n, off_t o), (fd, b, n, o), -1, -1, EIO) \
	HOOK(pwrite, "io", ssize_t, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o), -1, -1, ENOSPC) \
	HOOK(ftruncate, "io", int, (int fd, off_t n), (fd, n), -1, 0, EIO) \
	HOOK(fsync, "io", int, (int fd), (fd), -1, 0, EIO) \
	HOOK(truncate, "io", int, (const char *p, off_t n), (p, n), -1, 0, EIO) \
	HOOK(uname, "uname", int, (struct utsname *u), (u), -1, -1, ENOSYS) \
	HOOK(syncfs, "io", int, (int fd), (fd), -1, 0, EIO) \
	HOOK(sync_file_range, "write back", int, (int fd, off_t o, off_t n, unsigned f), \
		 (fd, o, n, f), -1, 0, EIO) \
	HOOK(fcntl, "io", int, (int fd, int command, void *p), (fd, command, p), -1, 0, EIO) \
	HOOK(mkdir, "io", int, (const char *p, mode_t m), (p, m), -1, 0, ENOSPC) \
	HOOK(stat, "stat", int, (const char *p, struct stat *s), (p, s), -1, -1, EIO) \
	HOOK(readdir, "readdir", struct dirent *, (DIR *d), (d), NULL, NULL, EIO) \
	HOOK(unlink, "unlink", int, (const char *p), (p), -1, 0, EIO) \
	HOOK(mmap, "io", void *, (void *a, size_t n, int p, int f, int fd, off_t o), \
		 (a, n, p, f, fd, o), MAP_FAILED, MAP_FAILED, ENOMEM)

#define DEFINE_HOOK(name, class, type, parameters, arguments, failed, skipped, error) \
	static type (*real_##name) parameters; \
	static type \
	hook_##name parameters \
	{ \
		if (!FAULT(#name, class)) \
			return real_##name arguments; \
		errno = errno_or(error); \
		return action == ACTION_SKIP ? skipped : failed; \
	}
HOOKS(DEFINE_HOOK)

/* mremap has a variable list of arguments, posix_fallocate returns its errno. */
static int	(*real_fstatfs) (int fd, struct statfs *fs);
static int	(*real_clock_gettime) (clockid_t clock, struct timespec *now);
static void *(*real_mremap) (void *a, size_t n, size_t m, int f, void *to);
static int	(*real_posix_fallocate) (int fd, off_t from, off_t n);
#if PG_VERSION_NUM >= 180000
#define DELAY_PARAMETERS	bool is_analyze
#define DELAY_ARGUMENTS		is_analyze
#else
#define DELAY_PARAMETERS	void
#define DELAY_ARGUMENTS
#endif
static void (*real_vacuum_delay_point) (DELAY_PARAMETERS);
static void (*real_XLogFlush) (uint64 lsn);
static ProcessUtility_hook_type real_standard_ProcessUtility;
static MemoryContext (*real_AllocSetContextCreateInternal) (MemoryContext parent,
															const char *name,
															Size min, Size init,
															Size max);

static int
hook_fstatfs(int fd, struct statfs *fs)
{
	if (FAULT("fstatfs", "fstatfs") || real_fstatfs(fd, fs) != 0)
	{
		errno = errno_or(EIO);
		return -1;
	}
	if (file_system != 0)
		fs->f_type = file_system;
	return 0;
}

static int
hook_clock_gettime(clockid_t clock, struct timespec *now)
{
	int			result = real_clock_gettime(clock, now);

	now->tv_sec += hours * (time_t) 3600;
	return result;
}

static void *
hook_mremap(void *a, size_t n, size_t m, int f, void *to)
{
	if (!FAULT("mremap", "io"))
		return real_mremap(a, n, m, f, to);
	errno = errno_or(ENOMEM);
	return MAP_FAILED;
}

static int
hook_posix_fallocate(int fd, off_t from, off_t n)
{
	if (!FAULT("posix_fallocate", "io"))
		return real_posix_fallocate(fd, from, n);
	return errno_or(ENOSPC);
}

/* Places to crash at, not calls that can fail. */
static void
hook_vacuum_delay_point(DELAY_PARAMETERS)
{
	(void) FAULT("vacuum_delay_point", "place");
	real_vacuum_delay_point(DELAY_ARGUMENTS);
}

static void
hook_XLogFlush(uint64 lsn)
{
	(void) FAULT("XLogFlush", "place");
	if (flush)
		real_XLogFlush(lsn);
}

/* Only to learn where it is called from: nothing fails here. */
static void
hook_standard_ProcessUtility(PlannedStmt *pstmt, const char *query, bool tree,
							 ProcessUtilityContext context, ParamListInfo params,
							 QueryEnvironment *env, DestReceiver *dest,
							 QueryCompletion *qc)
{
	utility_return = (uintptr_t) __builtin_return_address(0);
	real_standard_ProcessUtility(pstmt, query, tree, context, params, env, dest, qc);
}

static MemoryContext
hook_AllocSetContextCreateInternal(MemoryContext parent, const char *name,
								   Size min, Size init, Size max)
{
	if (FAULT("AllocSetContextCreateInternal", "memory"))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("Failed while creating memory context \"%s\".", name)));
	return real_AllocSetContextCreateInternal(parent, name, min, init, max);
}

typedef struct Hook
{
	const char *name;
	void	   *function;
	void	  **real;
	bool		found;
} Hook;

#define HOOK_ENTRY(name, class, type, parameters, arguments, failed, skipped, error) \
	{#name, (void *) hook_##name, (void **) &real_##name, false},

static Hook hooks[] = {
	HOOKS(HOOK_ENTRY)
	{"fstatfs", (void *) hook_fstatfs, (void **) &real_fstatfs, false},
	{"clock_gettime", (void *) hook_clock_gettime, (void **) &real_clock_gettime, false},
	{"mremap", (void *) hook_mremap, (void **) &real_mremap, false},
	{"posix_fallocate", (void *) hook_posix_fallocate, (void **) &real_posix_fallocate, false},
	{"vacuum_delay_point", (void *) hook_vacuum_delay_point, (void **) &real_vacuum_delay_point, false},
	{"XLogFlush", (void *) hook_XLogFlush, (void **) &real_XLogFlush, false},
	{"standard_ProcessUtility", (void *) hook_standard_ProcessUtility, (void **) &real_standard_ProcessUtility, false},
	{"AllocSetContextCreateInternal", (void *) hook_AllocSetContextCreateInternal,
	(void **) &real_AllocSetContextCreateInternal, false},
};

/* Store a pointer into memory that may be read-only by now (RELRO). */
static void
store_pointer(void **where, void *value)
{
	size_t		page_size = (size_t) sysconf(_SC_PAGESIZE);
	uintptr_t	page = (uintptr_t) where & ~(page_size - 1);

	if (mprotect((void *) page, page_size, PROT_READ | PROT_WRITE) != 0)
		elog(FATAL, "pmhash_faults: mprotect: %m");
	*where = value;
}

static ElfW(Addr)
dynamic_entry(ElfW(Sxword) tag)
{
	for (const ElfW(Dyn) * d = dynamic; d->d_tag != DT_NULL; d++)
	{
		if (d->d_tag == tag)
			return d->d_un.d_ptr;
	}
	return 0;
}

/* Replace the hooked functions in one table of relocations. */
static void
hook_relocations(const ElfW(Rela) * rela, size_t bytes)
{
	const ElfW(Sym) * symbols = (const ElfW(Sym) *) dynamic_entry(DT_SYMTAB);
	const char *strings = (const char *) dynamic_entry(DT_STRTAB);

	for (size_t i = 0; i < bytes / sizeof(*rela); i++)
	{
		const char *name = strings + symbols[ELF64_R_SYM(rela[i].r_info)].st_name;
		void	  **where = (void **) (base + rela[i].r_offset);

		if (ELF64_R_TYPE(rela[i].r_info) != JUMP_SLOT &&
			ELF64_R_TYPE(rela[i].r_info) != GLOB_DAT)
			continue;
		for (int h = 0; h < (int) lengthof(hooks); h++)
		{
			if (strcmp(hooks[h].name, name) != 0)
				continue;
			*hooks[h].real = *where;
			store_pointer(where, hooks[h].function);
			hooks[h].found = true;
		}
	}
}

static int
find_pmhash(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *name = strrchr(info->dlpi_name, '/');

	if (name == NULL || strcmp(name, "/pmhash.so") != 0)
		return 0;
	base = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++)
	{
		const ElfW(Phdr) * p = &info->dlpi_phdr[i];

		if (p->p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *) (base + p->p_vaddr);
		if (p->p_type == PT_LOAD && (p->p_flags & PF_X) != 0)
		{
			text_start = base + p->p_vaddr;
			text_end = text_start + p->p_memsz;
		}
	}
	return 1;
}

/* ---- palloc ---- */

/*
 * The methods have other parameters from version to version (memnodes.h), and
 * since 17 they raise the error themselves, unless a flag says not to.
 */
#if PG_VERSION_NUM >= 170000
#define FLAGS_PARAMETER		, int flags
#define FLAGS_ARGUMENT		, flags
#define NO_MEMORY(context, size) MemoryContextAllocationFailure(context, size, flags)
#else
#define FLAGS_PARAMETER
#define FLAGS_ARGUMENT
#define NO_MEMORY(context, size) NULL
#endif

#if PG_VERSION_NUM >= 160000
#define REALLOC_PARAMETERS	void *pointer, Size size FLAGS_PARAMETER
#define REALLOC_ARGUMENTS	pointer, size FLAGS_ARGUMENT
#define REALLOC_CONTEXT		GetMemoryChunkContext(pointer)
#else
#define REALLOC_PARAMETERS	MemoryContext context, void *pointer, Size size
#define REALLOC_ARGUMENTS	context, pointer, size
#define REALLOC_CONTEXT		context
#endif

static void *(*real_alloc) (MemoryContext context, Size size FLAGS_PARAMETER);
static void *(*real_method_realloc) (REALLOC_PARAMETERS);

/*
 * Memory for error reports is in reserve (elog.c).  The statistics of the
 * server do not bear want of memory: pgstat_get_entry_ref_cached leaves
 * an entry without its reference, which is followed later.  And a server
 * that has said that any error is its end means it: since PostgreSQL 18
 * BeginInternalSubTransaction (xact.c) takes that rather than an error.
 */
static bool
is_spared(MemoryContext context)
{
	return context == ErrorContext || ExitOnAnyError ||
		strncmp(context->name, "PgStat", strlen("PgStat")) == 0;
}

static bool
palloc_fault(const char *name, MemoryContext context)
{
	uintptr_t	site;

	if (fail_at <= 0 || is_spared(context) || !is_selected(name, "memory"))
		return false;
	site = pmhash_frame();
	return site != 0 && fault(name, "memory", site);
}

static void *
method_alloc(MemoryContext context, Size size FLAGS_PARAMETER)
{
	if (palloc_fault("palloc", context))
		return NO_MEMORY(context, size);
	return real_alloc(context, size FLAGS_ARGUMENT);
}

static void *
method_realloc(REALLOC_PARAMETERS)
{
	if (palloc_fault("repalloc", REALLOC_CONTEXT))
		return NO_MEMORY(REALLOC_CONTEXT, size);
	return real_method_realloc(REALLOC_ARGUMENTS);
}

static void
hook_palloc(void)
{
	MemoryContextMethods *methods = unconstify(MemoryContextMethods *, TopMemoryContext->methods);

	real_alloc = methods->alloc;
	real_method_realloc = methods->realloc;
	store_pointer((void **) &methods->alloc, (void *) method_alloc);
	store_pointer((void **) &methods->realloc, (void *) method_realloc);
}

/* ---- what a session sees ---- */

PG_FUNCTION_INFO_V1(pmhash_faults_report);
PG_FUNCTION_INFO_V1(pmhash_faults_sites);

/*
 * pmhash_faults_report() returns text: calls counted since fail_at was set,
 * how many of them failed, the site of the last (offset in pmhash.so, hex),
 * and allocations in critical sections.
 */
Datum
pmhash_faults_report(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%lld %lld %llx %lld",
											  (long long) calls, (long long) fired,
											  (unsigned long long) fired_site,
											  (long long) critical)));
}

/*
 * pmhash_faults_sites() returns text: for each place in pmhash that counted
 * calls came from, the number of its first call and its offset (hex).
 */
Datum
pmhash_faults_sites(PG_FUNCTION_ARGS)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < nsites; i++)
		appendStringInfo(&list, "%s%lld:%llx", i > 0 ? " " : "",
						 (long long) sites[i].first,
						 (unsigned long long) sites[i].address);
	PG_RETURN_TEXT_P(cstring_to_text(list.data));
}

/* Setting fail_at to a number begins a new count; to 0 ends it. */
static void
assign_fail_at(int newval, void *extra)
{
	if (newval <= 0)
		return;
	after_seen = false;
	calls = fired = critical = 0;
	fired_site = 0;
	nsites = 0;
}

static void
define_variables(void)
{
	DefineCustomStringVariable("pmhash_faults.calls",
							   "Calls that are counted: memory, io, system, or functions.",
							   NULL, &selected, "memory", PGC_SUSET, 0,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("pmhash_faults.process",
							   "Type of the background workers that are meant, instead of all processes.",
							   NULL, &process, "", PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pmhash_faults.flush",
							 "WAL is flushed when pmhash says so.",
							 NULL, &flush, true, PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("pmhash_faults.after",
							   "Counting begins with a call of this function.",
							   NULL, &after, "", PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pmhash_faults.at_restart",
							 "Counting begins when a crash has the postmaster make shared memory anew.",
							 NULL, &at_restart, false, PGC_SUSET, 0,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pmhash_faults.fail_for",
							"So many calls fail.",
							NULL, &fail_for, 1, 1, INT_MAX, PGC_SUSET, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pmhash_faults.error",
							"errno of calls that fail; 0: as it suits.",
							NULL, &error_number, 0, 0, 1000, PGC_SUSET, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pmhash_faults.file_system",
							"The pool is on a file system of this type (statfs); 0: on what it is.",
							NULL, &file_system, 0, 0, INT_MAX, PGC_SUSET, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pmhash_faults.hours",
							"So much later it is to pmhash than it is.",
							NULL, &hours, 0, 0, INT_MAX, PGC_SUSET, 0,
							NULL, NULL, NULL);
	DefineCustomEnumVariable("pmhash_faults.action",
							 "What happens instead of the call.",
							 NULL, &action, ACTION_FAIL, action_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pmhash_faults.fail_at",
							"Number of the first call that fails; 0: none.",
							NULL, &fail_at, 0, 0, INT_MAX, PGC_SUSET, 0,
							NULL, assign_fail_at, NULL);
}

/* We come before pmhash, which was loaded first. */
static void
shared_memory_is_made(void)
{
	memories++;
	previous_shmem_startup_hook();
}

void
_PG_init(void)
{
	void	   *frame[1];

	(void) backtrace(frame, 1); /* has its library loaded now */
	if (dl_iterate_phdr(find_pmhash, NULL) == 0)
		elog(FATAL, "pmhash_faults: pmhash has to be loaded first");
	define_variables();
	hook_relocations((const ElfW(Rela) *) dynamic_entry(DT_JMPREL), dynamic_entry(DT_PLTRELSZ));
	hook_relocations((const ElfW(Rela) *) dynamic_entry(DT_RELA), dynamic_entry(DT_RELASZ));
	for (int h = 0; h < (int) lengthof(hooks); h++)
	{
		if (!hooks[h].found)
			elog(FATAL, "pmhash_faults: pmhash does not call %s", hooks[h].name);
	}
	hook_palloc();
	previous_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shared_memory_is_made;
}
