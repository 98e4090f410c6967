# pmhash: build, install and test
#
#   make                          the extension, for the pg_config in PATH
#   make PG_CONFIG=/path/pg_config install
#   make installcheck             against a running server that preloads pmhash;
#                                 TAP_TESTS= leaves out servers of its own
#   make test                     everything, from nothing (test/run.sh)
#   make versions-test            the suites on each version of PostgreSQL, in chroots
#   make tools-test               beside pg_repack, pgbouncer, pglogical and others, in a chroot
#   make packages-test            Debian's packages, the archive, the container image
#   make dist                     the archive for PGXN, of what is committed
#   make crash-exhaustive         crash states of the engine, 1,000 million
#   make dax-test                 power cuts on emulated persistent memory (root)
#   make soak                     the long tests: kill cycles, injected faults
#   make soak-faults              the latter alone
#   make soak-failover            a primary and a standby, 220 failovers
#   make soak-snapshots           random histories of snapshots, 60 of them
#   make ha-test                  three servers under Patroni, failovers under load
#   make demo                     btree, hash and pmhash side by side
#   make bench                    all figures, as Markdown and charts (bench/results)
#   make bench-quick              the same on small tables, in a few minutes
#   make bench-engine             the engine's benchmark program
#   make mutants MUTANT=name      faults put into the sources: do the tests catch them?
#   make fuzz CASES=n FIRST=seed  damaged index files, longer than make test does
#   make bench-tpcc               TPC-C's transactions with btree and with pmhash
#   make bench-exclusion          unique values: EXCLUDE USING pmhash, UNIQUE with btree
#   make bench-unique             unique indexes of btree and pmhash on 18; BINDIR, ARGS="ROWS"
#   make bench-recovery           recovery time by number of entries
#   make bench-rebuild            latencies of writers beside the rebuild of an index
#   make bench-shards             three servers joined by postgres_fdw, beside hash
#   make bench-standby            logged indexes: WAL, replay, builds, promotion
#   make bench-join              joins beside nested loops and hash joins; ARGS="--grid ..."
#   make bench-tpch               TPC-H by indexes of btree and pmhash; ARGS="--scale N ..."
#   make bench-queue              job queues and hot keys; ARGS="SECONDS CLIENTS ...",
#                                 BINDIR=programs of a server with pmhash
#   make bench-partitions         10,000 partitions with an index each, few descriptors

# Where this file is.  PGXS knows it as well (srcdir), but most of the targets below
# do not need it and are there before any package is.
top := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))

# A build outside of the sources (make -f).  PGXS sets VPATH by itself only where the
# server was built outside of its own: configure leaves those lines out otherwise.
ifneq ($(abspath $(top)),$(CURDIR))
VPATH ?= $(top)
endif

MODULE_big = pmhash
PGFILEDESC = "pmhash - equality index on persistent memory"

ENGINE_OBJS = \
	src/engine/bucket.o \
	src/engine/bulk_range.o \
	src/engine/bulkload.o \
	src/engine/check.o \
	src/engine/check_space.o \
	src/engine/crc.o \
	src/engine/cursor.o \
	src/engine/descriptor.o \
	src/engine/directory.o \
	src/engine/drain.o \
	src/engine/entry.o \
	src/engine/fail.o \
	src/engine/figures.o \
	src/engine/file_life.o \
	src/engine/file_size.o \
	src/engine/group.o \
	src/engine/list_read.o \
	src/engine/list_rewrite.o \
	src/engine/list_write.o \
	src/engine/lock.o \
	src/engine/lookup.o \
	src/engine/map.o \
	src/engine/overflow.o \
	src/engine/pm.o \
	src/engine/reclaim.o \
	src/engine/recover.o \
	src/engine/region.o \
	src/engine/segment.o \
	src/engine/segment_build.o \
	src/engine/segment_resize.o \
	src/engine/shrink.o \
	src/engine/shrink_lists.o \
	src/engine/sort.o \
	src/engine/space.o \
	src/engine/sweep.o \
	src/engine/sweep_remove.o \
	src/engine/value_array.o \
	src/engine/value_set.o \
	src/engine/value_space.o

CLUSTER_OBJS = \
	src/cluster/am_callbacks.o \
	src/cluster/buffer_lookup.o \
	src/cluster/build_kind.o \
	src/cluster/conflict_horizon.o \
	src/cluster/control_file.o \
	src/cluster/data_directory.o \
	src/cluster/counters.o \
	src/cluster/counters_file.o \
	src/cluster/counters_view.o \
	src/cluster/database_probe.o \
	src/cluster/databases.o \
	src/cluster/dead_entries.o \
	src/cluster/dead_list.o \
	src/cluster/disabled.o \
	src/cluster/distrust.o \
	src/cluster/durable.o \
	src/cluster/engine_hooks.o \
	src/cluster/failed_writes.o \
	src/cluster/file_cache.o \
	src/cluster/file_create.o \
	src/cluster/file_error.o \
	src/cluster/file_levels.o \
	src/cluster/file_open.o \
	src/cluster/files_view.o \
	src/cluster/first_use.o \
	src/cluster/function_worker.o \
	src/cluster/give_way.o \
	src/cluster/gucs.o \
	src/cluster/held.o \
	src/cluster/identity.o \
	src/cluster/idle_sessions.o \
	src/cluster/index_list.o \
	src/cluster/init.o \
	src/cluster/invalid.o \
	src/cluster/kept_message.o \
	src/cluster/launch_cleaners.o \
	src/cluster/launch_rebuilders.o \
	src/cluster/launcher.o \
	src/cluster/life_cycle.o \
	src/cluster/logged.o \
	src/cluster/logged_entries.o \
	src/cluster/mappings.o \
	src/cluster/may_see.o \
	src/cluster/moved.o \
	src/cluster/new_database.o \
	src/cluster/older_snapshots.o \
	src/cluster/orphans.o \
	src/cluster/planner_hook.o \
	src/cluster/pool.o \
	src/cluster/pool_files.o \
	src/cluster/pool_lock.o \
	src/cluster/pool_names.o \
	src/cluster/put_off.o \
	src/cluster/queue_count.o \
	src/cluster/rebuild.o \
	src/cluster/rebuild_table.o \
	src/cluster/refill.o \
	src/cluster/removal.o \
	src/cluster/replay.o \
	src/cluster/requests.o \
	src/cluster/service.o \
	src/cluster/session_files.o \
	src/cluster/standby.o \
	src/cluster/standby_build.o \
	src/cluster/standby_database.o \
	src/cluster/standby_delta.o \
	src/cluster/standby_file.o \
	src/cluster/standby_files.o \
	src/cluster/standby_gone.o \
	src/cluster/standby_handles.o \
	src/cluster/standby_promote.o \
	src/cluster/standby_redo.o \
	src/cluster/standby_sweep.o \
	src/cluster/standby_view.o \
	src/cluster/standby_wanted.o \
	src/cluster/standby_worker.o \
	src/cluster/startup.o \
	src/cluster/stub.o \
	src/cluster/stub_read.o \
	src/cluster/syncfs.o \
	src/cluster/trust.o \
	src/cluster/try.o \
	src/cluster/undo.o \
	src/cluster/undo_journal.o \
	src/cluster/wal_look.o \
	src/cluster/wal_record.o \
	src/cluster/wait_events.o \
	src/cluster/witness.o \
	src/cluster/worker.o

AM_OBJS = \
	src/am/build.o \
	src/am/build_pages.o \
	src/am/build_scan.o \
	src/am/build_unique.o \
	src/am/cost.o \
	src/am/dead_tids.o \
	src/am/fetch.o \
	src/am/foreign_equality.o \
	src/am/handler.o \
	src/am/index_stats.o \
	src/am/insert.o \
	src/am/insert_queue.o \
	src/am/insert_source.o \
	src/am/key_shapes.o \
	src/am/key_types.o \
	src/am/keyhash.o \
	src/am/keys.o \
	src/am/logged_removal.o \
	src/am/object_hook.o \
	src/am/options.o \
	src/am/wal_records.o \
	src/am/predicate.o \
	src/am/prewarm.o \
	src/am/residence.o \
	src/am/row_key.o \
	src/am/row_types.o \
	src/am/scan.o \
	src/am/scan_ahead.o \
	src/am/scan_array.o \
	src/am/scan_dead.o \
	src/am/scan_keys.o \
	src/am/scan_queue.o \
	src/am/scan_replica.o \
	src/am/sort_entries.o \
	src/am/spool.o \
	src/am/standby_fill.o \
	src/am/standby_scan.o \
	src/am/statements.o \
	src/am/table_walk.o \
	src/am/unique.o \
	src/am/utility_hook.o \
	src/am/vacuum.o \
	src/am/validate.o \
	src/am/verify.o \
	src/am/verify_heap.o \
	src/am/visibility.o

JOIN_OBJS = \
	src/join/batch.o \
	src/join/exec.o \
	src/join/explain.o \
	src/join/join_cost.o \
	src/join/pages_exec.o \
	src/join/pages_path.o \
	src/join/path.o \
	src/join/plan.o \
	src/join/probe.o

MAIN_OBJS = src/pmhash.o

OBJS = $(MAIN_OBJS) $(JOIN_OBJS) $(AM_OBJS) $(CLUSTER_OBJS) $(ENGINE_OBJS)

EXTENSION = pmhash
# scripts of all versions, and those from one to the next
DATA = $(notdir $(wildcard $(top)/pmhash--*.sql))

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
	backward \
	boolean \
	two_phase \
	stats \
	types \
	types_cross \
	types_collate \
	row_types \
	opclass \
	privileges \
	check \
	counters \
	index_only \
	dead_entries \
	group_insert \
	array_scan \
	join \
	join_cases \
	page_scan \
	parallel_build \
	build_pages \
	shrink \
	vacuum
ISOLATION = join_ssi pages_ssi ssi ssi_btree concurrent_build scan_and_change exclusion_wait vacuum_and_scan shrink_and_scan speculative row_type operator_family
TAP_TESTS = 1

# All of them take half an hour: REGRESS= ISOLATION= runs them.  Beside the
# other suites there are some that take seconds.
ifeq ($(REGRESS)$(ISOLATION),)
PROVE_TESTS = test/t/*.pl
else
PROVE_TESTS = test/t/004_no_preload.pl test/t/007_restart_and_dump.pl \
	test/t/024_template.pl
endif

# The server's headers are not ours to keep clean under -Wextra: -isystem.
# "override" since these are added to what the command line says.
override PG_CPPFLAGS += -I$(srcdir)/src -isystem $(includedir_server)
override PG_CFLAGS += -Wextra -Wno-unused-parameter
override SHLIB_LINK += -lpmem

# For tests only: processes can be held at named points (test/README.md).
ifdef PMH_STOP_POINTS
OBJS += test/lib/stop_points.o
override PG_CPPFLAGS += -DPMH_STOP_POINTS
endif

EXTRA_CLEAN = build output_iso results tmp_check tmp_check_iso log

# Targets that need no PGXS
WITHOUT_PGXS = test versions-test tools-test packages-test dist mutants crash-exhaustive dax-test fuzz demo \
	bench bench-quick bench-engine bench-tpcc bench-exclusion bench-unique bench-recovery \
	bench-join bench-partitions bench-rebuild bench-queue bench-standby bench-shards bench-tpch \
	soak soak-faults soak-failover soak-snapshots ha-test

.PHONY: $(WITHOUT_PGXS) clean-subdirs
all:

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifneq ($(wildcard $(PGXS)),)
include $(PGXS)
# unique indexes are for 18 and later
ifeq ($(filter 15 16 17,$(MAJORVERSION)),)
REGRESS += unique
ISOLATION += unique_wait unique_upsert unique_several unique_ssi unique_deferred unique_toast
endif
else ifneq ($(filter-out $(WITHOUT_PGXS),$(or $(MAKECMDGOALS),all)),)
define NO_PGXS_MESSAGE
"$(PG_CONFIG)" is not there, or its server's files for building are not.
Install them, on Debian by
  apt-get install postgresql-server-dev-$(or $(shell bash -c '. $(top)/test/lib/packages.sh && newest_major'),N) libpmem-dev libxxhash-dev gcc
or name the pg_config of another installation: make PG_CONFIG=/path/pg_config
endef
$(error $(NO_PGXS_MESSAGE))
endif

# In a directory other than that of the sources (VPATH) those of the objects are
# to be made.  Absolute paths: others would be found in VPATH.
ifneq ($(VPATH),)
OBJECT_DIRS = $(addprefix $(CURDIR)/,$(sort $(dir $(OBJS))))
$(OBJS) $(OBJS:.o=.bc): | $(OBJECT_DIRS)
$(OBJECT_DIRS):
	mkdir -p $@
endif

# PGXS tracks no header dependencies.
ENGINE_HEADERS = \
	src/engine/bucket.h \
	src/engine/buffer.h \
	src/engine/bulkload.h \
	src/engine/check.h \
	src/engine/compiler.h \
	src/engine/crc.h \
	src/engine/cursor.h \
	src/engine/descriptor.h \
	src/engine/directory.h \
	src/engine/drain.h \
	src/engine/element.h \
	src/engine/entry.h \
	src/engine/error.h \
	src/engine/fail.h \
	src/engine/figures.h \
	src/engine/file_size.h \
	src/engine/group.h \
	src/engine/handle.h \
	src/engine/home.h \
	src/engine/layout.h \
	src/engine/list_read.h \
	src/engine/list_rewrite.h \
	src/engine/list_write.h \
	src/engine/live.h \
	src/engine/lock.h \
	src/engine/lookup.h \
	src/engine/map.h \
	src/engine/overflow.h \
	src/engine/place.h \
	src/engine/pm.h \
	src/engine/reclaim.h \
	src/engine/recover.h \
	src/engine/region.h \
	src/engine/segment.h \
	src/engine/segment_build.h \
	src/engine/segment_resize.h \
	src/engine/shrink.h \
	src/engine/sort.h \
	src/engine/space.h \
	src/engine/stop_point.h \
	src/engine/sweep.h \
	src/engine/table.h \
	src/engine/value_array.h \
	src/engine/value_set.h \
	src/engine/value_space.h
CLUSTER_HEADERS = \
	src/cluster/am_callbacks.h \
	src/cluster/as_owner.h \
	src/cluster/build_kind.h src/cluster/clock.h \
	src/cluster/cluster.h \
	src/cluster/control_file.h \
	src/cluster/counters.h \
	src/cluster/data_directory.h \
	src/cluster/database_probe.h \
	src/cluster/databases.h \
	src/cluster/dead_entries.h \
	src/cluster/dead_list.h \
	src/cluster/disabled.h \
	src/cluster/distrust.h \
	src/cluster/durable.h \
	src/cluster/engine_hooks.h \
	src/cluster/failed_writes.h \
	src/cluster/file_cache.h \
	src/cluster/file_create.h \
	src/cluster/file_error.h \
	src/cluster/file_levels.h \
	src/cluster/file_open.h \
	src/cluster/format.h \
	src/cluster/first_use.h \
	src/cluster/function_worker.h \
	src/cluster/give_way.h \
	src/cluster/gucs.h \
	src/cluster/heap_table.h \
	src/cluster/held.h \
	src/cluster/identity.h \
	src/cluster/idle_sessions.h \
	src/cluster/index_list.h \
	src/cluster/invalid.h \
	src/cluster/kept_message.h \
	src/cluster/key_lock.h \
	src/cluster/launcher.h \
	src/cluster/levels.h \
	src/cluster/life_cycle.h \
	src/cluster/logged.h \
	src/cluster/mappings.h \
	src/cluster/moved.h \
	src/cluster/new_database.h \
	src/cluster/older_snapshots.h \
	src/cluster/orphans.h \
	src/cluster/planner_hook.h \
	src/cluster/pool.h \
	src/cluster/pool_files.h \
	src/cluster/pool_lock.h \
	src/cluster/pool_names.h \
	src/cluster/put_off.h \
	src/cluster/rebuild.h \
	src/cluster/rebuild_table.h \
	src/cluster/refill.h \
	src/cluster/replay.h \
	src/cluster/requests.h \
	src/cluster/service.h \
	src/cluster/session_files.h \
	src/cluster/shared.h \
	src/cluster/standby.h \
	src/cluster/standby_build.h \
	src/cluster/standby_handles.h \
	src/cluster/standby_state.h \
	src/cluster/standby_view.h \
	src/cluster/startup.h \
	src/cluster/stub.h \
	src/cluster/syncfs.h \
	src/cluster/tid_value.h \
	src/cluster/trust.h \
	src/cluster/try.h \
	src/cluster/undo.h \
	src/cluster/undo_journal.h \
	src/cluster/versions.h \
	src/cluster/wait_events.h \
	src/cluster/wal_look.h \
	src/cluster/wal_record.h \
	src/cluster/witness.h \
	src/cluster/worker.h \
	$(ENGINE_HEADERS)
AM_HEADERS = \
	src/am/am.h \
	src/am/build_scan.h \
	src/am/dead_tids.h \
	src/am/fetch.h \
	src/am/insert_queue.h \
	src/am/key_shapes.h \
	src/am/key_types.h \
	src/am/keyhash.h \
	src/am/keys.h \
	src/am/logged_removal.h \
	src/am/object_hook.h \
	src/am/predicate.h \
	src/am/row_key.h \
	src/am/row_types.h \
	src/am/scan.h \
	src/am/sort_entries.h \
	src/am/spool.h \
	src/am/standby_fill.h \
	src/am/standby_scan.h \
	src/am/statements.h \
	src/am/temp_file.h \
	src/am/unique.h \
	src/am/utility_hook.h \
	src/am/verify.h \
	$(CLUSTER_HEADERS)
JOIN_HEADERS = \
	src/join/join.h \
	src/join/pages.h \
	src/join/path.h \
	$(AM_HEADERS)

$(ENGINE_OBJS) $(ENGINE_OBJS:.o=.bc): $(ENGINE_HEADERS)
$(CLUSTER_OBJS) $(CLUSTER_OBJS:.o=.bc): $(CLUSTER_HEADERS)
$(AM_OBJS) $(AM_OBJS:.o=.bc): $(AM_HEADERS)
$(JOIN_OBJS) $(JOIN_OBJS:.o=.bc) $(MAIN_OBJS) $(MAIN_OBJS:.o=.bc): $(JOIN_HEADERS)

test:
	bash $(top)/test/run.sh

versions-test:
	bash $(top)/test/versions.sh

tools-test:
	bash $(top)/test/tools.sh $(ARGS)

packages-test:
	bash $(top)/test/packages.sh $(ARGS)

# name and version are META.json's
DIST = $(shell sed -n 's/^   "name": "\(.*\)",$$/\1/p' $(top)/META.json)-$(shell sed -n 's/^   "version": "\(.*\)",$$/\1/p' $(top)/META.json)
DIST_DIR = .

dist:
	git -C $(top) -c safe.directory="$$(cd $(top) && pwd)" archive --format=zip --prefix=$(DIST)/ -o "$(abspath $(DIST_DIR))/$(DIST).zip" HEAD

# what a make in a directory of programs needs, and then that make
WITH_PACKAGES = bash -c '. $(top)/test/lib/packages.sh && install_server && "$$@"' bash $(MAKE) -C $(top)

crash-exhaustive:
	$(WITH_PACKAGES)/test/crash exhaustive

dax-test:
	bash $(top)/test/dax/run.sh

soak:
	bash $(top)/test/soak/run.sh

soak-faults:
	bash $(top)/test/soak/run.sh faults

soak-failover:
	bash $(top)/test/soak/run.sh failover

soak-snapshots:
	bash $(top)/test/soak/run.sh snapshots

ha-test:
	bash $(top)/test/ha/run.sh $(ARGS)

demo:
	bash $(top)/bench/demo.sh

mutants:
	bash $(top)/test/mutants/mutants.sh $(MUTANT:%=--mutant=%) $(MUTANTS)

fuzz:
	$(WITH_PACKAGES)/test/fuzz long $(CASES:%=CASES=%) $(FIRST:%=FIRST=%)

bench:
	bash $(top)/bench/run.sh

bench-quick:
	bash $(top)/bench/run.sh --quick

bench-engine:
	$(WITH_PACKAGES)/bench/engine

bench-tpcc:
	bash $(top)/bench/tpcc/run.sh

bench-exclusion:
	bash $(top)/bench/exclusion.sh

bench-unique:
	bash $(top)/bench/unique.sh $(or $(BINDIR),"$$($(PG_CONFIG) --bindir)") $(ARGS)

bench-recovery:
	bash $(top)/bench/recovery.sh

bench-join:
	bash $(top)/bench/join.sh $(ARGS)

bench-tpch:
	bash $(top)/bench/tpch.sh $(ARGS)

bench-rebuild:
	bash $(top)/bench/rebuild.sh

bench-standby:
	bash $(top)/bench/standby.sh $(ARGS)

bench-shards:
	bash $(top)/bench/shards.sh $(ARGS)

bench-queue:
	bash $(top)/bench/queue.sh $(or $(BINDIR),"$$($(PG_CONFIG) --bindir)") $(ARGS)

bench-partitions:
	bash $(top)/bench/partitions.sh

clean: clean-subdirs
clean-subdirs:
	for dir in test/engine test/crash test/fuzz bench/engine; do \
		if test -f $$dir/Makefile; then $(MAKE) -C $$dir clean || exit 1; fi; \
	done
