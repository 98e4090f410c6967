/*-------------------------------------------------------------------------
 *
 * pm_record.h
 *	  The stores, flushes, fences and copies of pm.h, recorded (recorder.c); part of pm.h
 *	  with PMH_RECORD.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_PM_RECORD_H
#define PMH_PM_RECORD_H

/*
 * A line of the source that stores, flushes, fences or copies.  Each has one
 * of these; the linker gathers pointers to them in section pm_sites, so that
 * they can be listed without being reached.
 */
typedef struct PmSite
{
	const char *kind;			/* "store", "commit", "copy", "flush" or "fence" */
	const char *file;
	const char *function;
	int			line;
	int			id;				/* given by the recorder; 0: not yet */
} PmSite;

#define PM_SITE(kind) \
	({ \
		static PmSite site_ = {kind, __FILE__, __func__, __LINE__, 0}; \
		static PmSite *const entry_ __attribute__((section("pm_sites"), used)) = &site_; \
		(void) entry_; \
		&site_; \
	})

extern void pm_record_flush(const PmFile *f, const void *addr, size_t len,
							const PmSite *site);
extern void pm_record_fence(const PmFile *f, const PmSite *site);
extern void pm_record_copy(const PmFile *f, void *dst, const void *src,
						   size_t len, const PmSite *site);

/* Store the low 'size' bytes of v at addr, and note it. */
extern void pm_record_store(void *addr, size_t size, uint64_t v,
							const PmSite *site);

/* The same, and flush its line. */
extern void pm_record_commit(const PmFile *f, void *addr, size_t size, uint64_t v,
							 const PmSite *site);

#define pm_flush(f, addr, len)		pm_record_flush(f, addr, len, PM_SITE("flush"))
#define pm_fence(f)					pm_record_fence(f, PM_SITE("fence"))
#define pm_copy(f, dst, src, len)	pm_record_copy(f, dst, src, len, PM_SITE("copy"))
#define pm_copy_to_space(f, dst, src, len, fresh) \
	((void) (fresh), pm_record_copy(f, dst, src, len, PM_SITE("copy")))

#define PM_RECORDED(type, addr, v) \
	({ \
		type	   *addr_ = (addr); \
		pm_record_store(addr_, sizeof(type), (uint64_t) (v), PM_SITE("store")); \
	})
#define pm_store64(addr, v)			PM_RECORDED(uint64_t, addr, v)
#define pm_store32(addr, v)			PM_RECORDED(uint32_t, addr, v)
#define pm_store16(addr, v)			PM_RECORDED(uint16_t, addr, v)
#define pm_store8(addr, v)			PM_RECORDED(uint8_t, addr, v)

#define PM_RECORDED_COMMIT(f, type, addr, v) \
	({ \
		type	   *addr_ = (addr); \
		pm_record_commit(f, addr_, sizeof(type), (uint64_t) (v), PM_SITE("commit")); \
	})
#define pm_commit64(f, addr, v)		PM_RECORDED_COMMIT(f, uint64_t, addr, v)
#define pm_commit16(f, addr, v)		PM_RECORDED_COMMIT(f, uint16_t, addr, v)
#define pm_commit32(f, addr, v)		PM_RECORDED_COMMIT(f, uint32_t, addr, v)

#define pm_raise64(addr, v) \
	do { \
		if (*(addr) < (v)) \
			PM_RECORDED(uint64_t, addr, v); \
	} while (0)

#endif							/* PMH_PM_RECORD_H */
