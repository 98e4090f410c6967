/*-------------------------------------------------------------------------
 *
 * core_faults.c
 *	  Each call by which the engine can fail is made to fail, one after
 *	  another: malloc and its kin, and what pm.c asks of the operating system.
 *	  The operation then succeeds or returns an error; what it has reported
 *	  done is there, nothing else is, and it can be done again.
 *
 * The functions are wrapped when this program is linked (see the Makefile).
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>

#include "fixture.h"

/* ---- calls that fail ---- */

static bool armed;
static long calls;
static long fail_at;
static long fired;
static const char *failed_call = "none";

/* Is it this call's turn? */
static bool
fails(void)
{
	if (!armed || ++calls != fail_at)
		return false;
	fired++;
	return true;
}

#define WRAP(type, name, parameters, arguments, failure, error) \
	extern type __real_##name parameters; \
	extern type __wrap_##name parameters; \
	type \
	__wrap_##name parameters \
	{ \
		if (!fails()) \
			return __real_##name arguments; \
		failed_call = #name; \
		errno = error; \
		return failure; \
	}

WRAP(void *, malloc, (size_t n), (n), NULL, ENOMEM)
WRAP(void *, calloc, (size_t n, size_t m), (n, m), NULL, ENOMEM)
WRAP(void *, realloc, (void *p, size_t n), (p, n), NULL, ENOMEM)
WRAP(int, open, (const char *p, int f, mode_t m), (p, f, m), -1, EMFILE)
WRAP(int, statx, (int fd, const char *p, int f, unsigned m, struct statx *s), (fd, p, f, m, s), -1, EIO)
WRAP(int, fstat, (int fd, struct stat *s), (fd, s), -1, EIO)
WRAP(int, posix_fallocate, (int fd, off_t o, off_t n), (fd, o, n), ENOSPC, 0)
WRAP(int, fallocate, (int fd, int m, off_t o, off_t n), (fd, m, o, n), -1, EIO)
WRAP(int, fsync, (int fd), (fd), -1, EIO)
WRAP(ssize_t, pread, (int fd, void *b, size_t n, off_t o), (fd, b, n, o), -1, EIO)
WRAP(ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o), -1, ENOSPC)
WRAP(void *, mmap, (void *a, size_t n, int p, int f, int fd, off_t o), (a, n, p, f, fd, o), MAP_FAILED, ENOMEM)
WRAP(void *, mremap, (void *a, size_t n, size_t m, int f, void *to), (a, n, m, f, to), MAP_FAILED, ENOMEM)

/* ---- a table and what must be in it ---- */

#define KEYS		5000		/* at first; every 50th has a list */
#define LIST		30
#define MORE		12000		/* keys that are added */
#define HOT			UINT64_C(0x5555555555555555)
#define HOT_VALUES	20000

static const char *path;
static PmhTable *table;
static bool present[KEYS + MORE];
static uint64_t hot;			/* values of HOT: 0 .. hot - 1 */
static uint64_t instance = 1;

static bool
is_failure(PmhResult result)
{
	return result == PMH_ERR_NO_MEMORY || result == PMH_ERR_NO_SPACE ||
		result == PMH_ERR_NO_DESCRIPTOR || result == PMH_ERR_IO;
}

static void
make_table(void)
{
	PmhEnv		env = fixture_env(++instance);

	table = fixture_create_in(path, &env);
	memset(present, 0, sizeof(present));
	hot = 0;
	for (uint64_t k = 0; k < KEYS; k++)
	{
		for (uint64_t v = 0; v < (k % 50 == 0 ? LIST : 1); v++)
			REQUIRE(pmh_insert(table, fixture_hash(k), v << 32 | k, false) == PMH_OK);
		present[k] = true;
	}
}

static bool
check_entries(void)
{
	bool		ok;
	PmhValues	values = {0};
	unsigned	wrong = 0;

	for (uint64_t k = 0; k < KEYS + MORE; k++)
	{
		size_t		want = !present[k] ? 0 : k < KEYS && k % 50 == 0 ? LIST : 1;

		REQUIRE(pmh_lookup(table, fixture_hash(k), &values) == PMH_OK);
		wrong += values.n != want || (want > 0 && values.value[0] != k);
	}
	ok = CHECK(wrong == 0);
	REQUIRE(pmh_lookup(table, HOT, &values) == PMH_OK);
	ok &= CHECK(values.n == hot && (hot == 0 || values.value[hot - 1] == hot - 1));
	ok &= CHECK(fixture_no_lock_held());
	ok &= CHECK_SOUND(table);
	pmh_values_free(&values);
	return ok;
}

/* Another server life begins. */
static void
restart(void)
{
	PmhEnv		env = fixture_env(++instance);
	PmhError	error;

	pmh_close(table);
	REQUIRE(pmh_open(path, &env, &table, &error) == PMH_OK);
}

/* All is right, now and after a crash. */
static bool
check_table(void)
{
	bool		ok = check_entries();

	restart();
	ok &= check_entries();
	pmh_close(table);
	return ok;
}

/* ---- operations ---- */

static PmhResult
grow(void)
{
	PmhResult	result = PMH_OK;

	for (uint64_t k = KEYS; k < KEYS + MORE && result == PMH_OK; k++)
	{
		if (present[k])
			continue;
		result = pmh_insert(table, fixture_hash(k), k, false);
		present[k] = result == PMH_OK;
	}
	armed = false;
	return result;
}

static PmhResult
grow_in_groups(void)
{
	PmhResult	result = PMH_OK;
	PmhEntry	entry[100];
	uint64_t	k = KEYS;

	while (k < KEYS + MORE && result == PMH_OK)
	{
		size_t		n = 0;
		size_t		done = 0;
		uint64_t	first = k;

		for (; n < 100 && k < KEYS + MORE && !present[k]; n++, k++)
			entry[n] = (PmhEntry) {fixture_hash(k), k};
		if (n == 0)
		{
			k++;
			continue;
		}
		result = pmh_insert_group(table, entry, n, false, &done);
		CHECK(result != PMH_OK || done == n);
		for (size_t i = 0; i < done; i++)
			present[first + i] = true;
	}
	return result;
}

static PmhResult
grow_list(void)
{
	PmhResult	result = PMH_OK;

	while (hot < HOT_VALUES && result == PMH_OK)
	{
		result = pmh_insert(table, HOT, hot, false);
		hot += result == PMH_OK;
	}
	return result;
}

/* Insert from one handle while another has mapped less: it maps further. */
static PmhResult
follow(void)
{
	PmhEnv		env = fixture_env(instance);
	PmhTable   *other;
	PmhError	error;
	PmhValues	values = {0};
	PmhResult	result;

	armed = false;
	REQUIRE(pmh_open(path, &env, &other, &error) == PMH_OK);
	REQUIRE(grow() == PMH_OK);
	armed = true;
	result = PMH_OK;
	for (uint64_t k = 0; k < KEYS + MORE && result == PMH_OK; k += 7)
	{
		result = pmh_lookup(other, fixture_hash(k), &values);
		CHECK(result != PMH_OK || values.n > 0);
	}
	armed = false;
	pmh_values_free(&values);
	pmh_close(other);
	return result;
}

static PmhResult
read_list(void)
{
	PmhResult	result;
	uint64_t	n;

	armed = false;
	REQUIRE(grow_list() == PMH_OK);
	armed = true;
	result = fixture_count_by_cursor(table, HOT, 100, &n);
	CHECK(result != PMH_OK || n == HOT_VALUES);
	return result;
}

/* Take every key with an odd number out. */
static PmhResult
sweep(void)
{
	PmhSweep	s;
	PmhResult	result = pmh_sweep_begin(table, &s);
	static PmhEntry dead[KEYS * LIST];
	size_t		removed;

	if (result != PMH_OK)
		return result;
	while ((result = pmh_sweep_next(table, &s)) == PMH_OK)
	{
		size_t		n = 0;

		for (size_t i = 0; i < s.n; i++)
		{
			if ((s.entries[i].value & 1) != 0)
				dead[n++] = s.entries[i];
		}
		result = pmh_delete_group(table, dead, n, &removed);
		if (result != PMH_OK)
			break;
	}
	pmh_sweep_end(&s);
	return result == PMH_DONE ? PMH_OK : result;
}

/* After a sweep that failed some odd keys are there still: finish it. */
static PmhResult
sweep_twice(void)
{
	PmhResult	result = sweep();

	armed = false;
	REQUIRE(sweep() == PMH_OK);
	for (uint64_t k = 1; k < KEYS; k += 2)
		present[k] = false;
	return result;
}

/* Nine in ten are taken out before; then there is much to give back. */
static PmhResult
shrink(void)
{
	PmhShrink	s;
	PmhResult	result;

	armed = false;
	REQUIRE(grow() == PMH_OK && grow_list() == PMH_OK);
	for (uint64_t k = KEYS; k < KEYS + MORE; k++)
	{
		if (k % 10 == 0)
			continue;
		REQUIRE(pmh_delete(table, fixture_hash(k), k) == PMH_OK);
		present[k] = false;
	}
	for (; hot > HOT_VALUES / 10; hot--)
		REQUIRE(pmh_delete(table, HOT, hot - 1) == PMH_OK);
	armed = true;
	result = pmh_shrink_begin(table, PMH_DEFAULT_FILL, &s);
	if (result != PMH_OK)
		return result;
	while ((result = pmh_shrink_step(table, &s)) == PMH_OK)
		;
	armed = false;

	/*
	 * A call that has failed may have cost a segment or a list that stays as it is.  How
	 * much goes otherwise is tested in shrink.c: in a file as small as this it differs
	 * from run to run, from half to two thirds.
	 */
	if (!CHECK(result != PMH_DONE || fired > 0 || s.bytes_after < s.bytes_before / 5 * 4))
		fprintf(stderr, "%llu of %llu bytes are left\n",
				(unsigned long long) s.bytes_after, (unsigned long long) s.bytes_before);
	return result == PMH_DONE ? PMH_OK : result;
}

static PmhResult
reopen(uint64_t as)
{
	PmhEnv		env = fixture_env(as);
	PmhError	error;
	PmhResult	result;

	armed = false;
	pmh_close(table);
	armed = true;
	result = pmh_open(path, &env, &table, &error);
	armed = false;
	if (result != PMH_OK)
	{
		CHECK(table == NULL && error.code == result && error.detail[0] != '\0');
		REQUIRE(pmh_open(path, &env, &table, &error) == PMH_OK);
	}
	return result;
}

static PmhResult
open_again(void)
{
	return reopen(instance);
}

static PmhResult
recover(void)
{
	return reopen(++instance);
}

static PmhResult
create(void)
{
	PmhEnv		env = fixture_env(++instance);
	PmhError	error;
	PmhResult	result;

	armed = false;
	pmh_close(table);
	unlink(path);
	armed = true;
	result = pmh_create(path, NULL, &env, &table, &error);
	armed = false;
	memset(present, 0, sizeof(present));
	if (result != PMH_OK)
	{
		CHECK(table == NULL && access(path, F_OK) != 0);
		REQUIRE(pmh_create(path, NULL, &env, &table, &error) == PMH_OK);
	}
	return result;
}

/* Bulk load into an empty table; what fails leaves it empty. */
static PmhResult
load(void)
{
	static PmhEntry entry[KEYS + HOT_VALUES];
	PmhBulk    *bulk;
	PmhResult	result;
	uint32_t	depth;

	armed = false;
	(void) create();
	for (uint64_t i = 0; i < KEYS + HOT_VALUES; i++)
		entry[i] = i < KEYS ? (PmhEntry) {fixture_hash(i), i} : (PmhEntry) {HOT, i - KEYS};
	hot = 0;
	armed = true;
	result = pmh_bulk_begin(table, KEYS + 1, PMH_DEFAULT_FILL, &depth, &bulk);
	if (result != PMH_OK)
		return result;
	result = pmh_bulk_partition(bulk, 0, entry, KEYS + HOT_VALUES);
	if (result == PMH_OK)
		result = pmh_bulk_finish(bulk);
	else
		pmh_bulk_abandon(bulk);
	armed = false;
	/* What it has written has the space until then. */
	if (result != PMH_OK)
		restart();
	else
	{
		CHECK_SOUND(table);
		for (uint64_t k = 0; k < KEYS; k++)
		{
			present[k] = true;
			if (k % 50 == 0)
				for (uint64_t v = 1; v < LIST; v++)
					REQUIRE(pmh_insert(table, fixture_hash(k), v << 32 | k, false) == PMH_OK);
		}
		hot = HOT_VALUES;
	}
	return result;
}

static PmhResult
stats(void)
{
	PmhStats	s;
	uint64_t	entries;
	PmhResult	result = pmh_stats(table, &s);

	return result == PMH_OK ? pmh_estimate(table, &entries) : result;
}

static PmhResult
check(void)
{
	return pmh_check(table, fixture_report, NULL);
}

/* Without a fault it succeeds; with one at each call in turn as said above. */
static void
test_operation(const char *name, PmhResult (*operation) (void))
{
	long		failures = 0;

	for (fail_at = 1;; fail_at++)
	{
		PmhResult	result;

		make_table();
		calls = fired = 0;
		failed_call = "none";
		armed = true;
		result = operation();
		armed = false;
		if (!CHECK(result == PMH_OK || (fired > 0 && is_failure(result))))
			fprintf(stderr, "%s, call %ld: result %d\n", name, fail_at, (int) result);
		failures += result != PMH_OK;
		if (!check_table())
			fprintf(stderr, "%s, call %ld of %ld: %s\n", name, fail_at, calls, failed_call);
		if (fired == 0)
			break;
	}
	if (!CHECK(failures > 0))
		fprintf(stderr, "%s: no call has failed\n", name);
}

int
main(void)
{
	path = fixture_path("core_faults");
	TEST(test_operation("create", create));
	TEST(test_operation("open", open_again));
	TEST(test_operation("recover", recover));
	TEST(test_operation("insert", grow));
	TEST(test_operation("insert in groups", grow_in_groups));
	TEST(test_operation("insert into a list", grow_list));
	TEST(test_operation("map further", follow));
	TEST(test_operation("cursor", read_list));
	TEST(test_operation("sweep", sweep_twice));
	TEST(test_operation("shrink", shrink));
	TEST(test_operation("bulk load", load));
	TEST(test_operation("statistics", stats));
	TEST(test_operation("check", check));
	unlink(path);
	return unit_done("core_faults");
}
