# pmhash: build, install and test
#
#   make                          the extension, for the pg_config in PATH
#   make PG_CONFIG=/path/pg_config install
#   make installcheck             against a running server that preloads pmhash
#   make test                     everything, from nothing (test/run.sh)
#   make crash-exhaustive         crash states of the engine, 1,000 million
#   make dax-test                 power cuts on emulated persistent memory (root)
#   make soak                     the long tests: kill cycles, injected faults
#   make soak-faults              the latter alone
#   make demo                     btree, hash and pmhash side by side
#   make bench                    all figures, as Markdown and charts (bench/results)
#   make bench-quick              the same on small tables, in a few minutes
#   make bench-engine             the engine's benchmark program
#   make mutants MUTANT=name      faults put into the sources: do the tests catch them?
#   make fuzz CASES=n FIRST=seed  damaged index files, longer than make test does
#   make bench-tpcc               TPC-C's transactions with btree and with pmhash
#   make bench-exclusion          unique values: EXCLUDE USING pmhash, UNIQUE with btree
#   make bench-recovery           recovery time by number of entries

MODULE_big = pmhash
PGFILEDESC = "pmhash - equality index on persistent memory"

ENGINE_OBJS = \
	src/engine/bucket.o \
	src/engine/build.o \
	src/engine/bulkload.o \
	src/engine/check.o \
	src/engine/crc.o \
	src/engine/cursor.o \
	src/engine/directory.o \
	src/engine/drain.o \
	src/engine/group.o \
	src/engine/lock.o \
	src/engine/pm.o \
	src/engine/reclaim.o \
	src/engine/recover.o \
	src/engine/segment.o \
	src/engine/shrink.o \
	src/engine/sort.o \
	src/engine/space.o \
	src/engine/stats.o \
	src/engine/sweep.o \
	src/engine/table.o \
	src/engine/values.o

CLUSTER_OBJS = \
	src/cluster/dead_entries.o \
	src/cluster/files_view.o \
	src/cluster/gucs.o \
	src/cluster/index_file.o \
	src/cluster/invalid.o \
	src/cluster/life_cycle.o \
	src/cluster/planner_hook.o \
	src/cluster/pool.o \
	src/cluster/rebuild.o \
	src/cluster/removal.o \
	src/cluster/removal_epoch.o \
	src/cluster/startup.o \
	src/cluster/stub.o \
	src/cluster/sweep.o \
	src/cluster/undo.o \
	src/cluster/undo_journal.o \
	src/cluster/worker.o

AM_OBJS = \
	src/am/build.o \
	src/am/build_pages.o \
	src/am/build_scan.o \
	src/am/check.o \
	src/am/cost.o \
	src/am/handler.o \
	src/am/insert.o \
	src/am/insert_queue.o \
	src/am/keyhash.o \
	src/am/keys.o \
	src/am/options.o \
	src/am/scan.o \
	src/am/spool.o \
	src/am/stats.o \
	src/am/table_walk.o \
	src/am/vacuum.o \
	src/am/verdicts.o \
	src/am/validate.o

MAIN_OBJS = src/pmhash.o

OBJS = $(MAIN_OBJS) $(AM_OBJS) $(CLUSTER_OBJS) $(ENGINE_OBJS)

EXTENSION = pmhash
DATA = pmhash--1.0.sql

# setup comes first: the others use what it makes
REGRESS = \
	setup \
	basic \
	duplicates \
	refused \
	expressions \
	dml \
	rewrite \
	temporary \
	exclusion \
	partition \
	plans \
	two_phase \
	stats \
	types \
	types_cross \
	types_collate \
	opclass \
	privileges \
	check \
	index_only \
	dead_entries \
	group_insert \
	parallel_build \
	build_pages \
	shrink \
	vacuum
ISOLATION = ssi ssi_btree concurrent_build scan_and_change exclusion_wait vacuum_and_scan shrink_and_scan
TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl

# The server's headers are not ours to keep clean under -Wextra: -isystem.
PG_CPPFLAGS = -I$(srcdir)/src -isystem $(includedir_server)
PG_CFLAGS = -Wextra -Wno-unused-parameter
SHLIB_LINK = -lpmem

# For tests only: processes can be held at named points (test/README.md).
ifdef PMH_STOP_POINTS
OBJS += test/lib/stop_points.o
PG_CPPFLAGS += -DPMH_STOP_POINTS
endif

EXTRA_CLEAN = build output_iso results tmp_check tmp_check_iso log

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# PGXS tracks no header dependencies.
ENGINE_HEADERS = \
	src/engine/bucket.h \
	src/engine/build.h \
	src/engine/internal.h \
	src/engine/layout.h \
	src/engine/lock.h \
	src/engine/pm.h \
	src/engine/sort.h \
	src/engine/stop_point.h \
	src/engine/table.h \
	src/engine/values.h
CLUSTER_HEADERS = \
	src/cluster/cluster.h \
	src/cluster/internal.h \
	src/cluster/versions.h \
	$(ENGINE_HEADERS)
AM_HEADERS = \
	src/am/am.h \
	src/am/keyhash.h \
	src/am/spool.h \
	$(CLUSTER_HEADERS)

$(ENGINE_OBJS) $(ENGINE_OBJS:.o=.bc): $(ENGINE_HEADERS)
$(CLUSTER_OBJS) $(CLUSTER_OBJS:.o=.bc): $(CLUSTER_HEADERS)
$(AM_OBJS) $(AM_OBJS:.o=.bc) $(MAIN_OBJS) $(MAIN_OBJS:.o=.bc): $(AM_HEADERS)

.PHONY: test mutants crash-exhaustive dax-test fuzz demo bench bench-quick bench-engine bench-tpcc bench-exclusion bench-recovery clean-subdirs soak soak-faults

test:
	bash $(srcdir)/test/run.sh

crash-exhaustive:
	$(MAKE) -C $(srcdir)/test/crash exhaustive

dax-test:
	bash $(srcdir)/test/dax/run.sh

soak:
	bash $(srcdir)/test/soak/run.sh

soak-faults:
	bash $(srcdir)/test/soak/run.sh faults

demo:
	bash $(srcdir)/bench/demo.sh

mutants:
	bash $(srcdir)/test/mutants/mutants.sh $(MUTANT:%=--mutant=%) $(MUTANTS)

fuzz:
	$(MAKE) -C $(srcdir)/test/fuzz long

bench:
	bash $(srcdir)/bench/run.sh

bench-quick:
	bash $(srcdir)/bench/run.sh --quick

bench-engine:
	$(MAKE) -C bench/engine

bench-tpcc:
	bash $(srcdir)/bench/tpcc/run.sh

bench-exclusion:
	bash $(srcdir)/bench/exclusion.sh

bench-recovery:
	bash $(srcdir)/bench/recovery.sh

clean: clean-subdirs
clean-subdirs:
	for dir in test/engine test/crash test/fuzz bench/engine; do \
		if test -f $$dir/Makefile; then $(MAKE) -C $$dir clean || exit 1; fi; \
	done
