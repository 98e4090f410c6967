# pmhash: build, install and test
#
#   make -j                       the extension, for the pg_config in PATH
#   make PG_CONFIG=/path/pg_config install
#   make installcheck             against a running server that preloads pmhash;
#                                 TAP_TESTS= leaves out servers of its own
#   make check-FEATURE            what has changed is built, and the tests of a feature run:
#                                 a folder or file of test/t, a file of sql/ or specs/
#                                 (test/check.sh)
#   make test                     the default ladder, from nothing (test/run.sh)
#   make test-all                 all that runs in an hour: sanitizers, crash states, mutants
#   make versions-test            the suites on each version of PostgreSQL, in chroots
#   make assert-test              regress, isolation, TAP on servers with assertions; hours
#   make analyzers-test           gcc -fanalyzer, cppcheck, pgspot
#   make coverage-test            lines and branches that the tests reach
#   make nightly                  these four, then tools-test, packages-test and soak
#   make tools-test               beside pg_repack, pgbouncer, pglogical and others, in a chroot
#   make packages-test            Debian's packages, the archive, the container image
#   make dist                     the archive for PGXN, of what is committed
#   make crash-exhaustive         crash states of the engine, 1,000 million
#   make dax-test                 power cuts on emulated persistent memory (root)
#   make soak                     the long tests: kill cycles, injected faults
#   make soak-cycles, soak-faults, soak-failover    one of them
#   make ha-test                  three servers under Patroni, failovers under load
#   make demo                     btree, hash and pmhash side by side
#   make bench, bench-quick       all figures, as Markdown and charts (bench/results)
#   make bench-NAME               one benchmark, bench/NAME.sh: exclusion, unique, recovery,
#                                 rebuild, shards, standby, join, tpch, queue, partitions, cold;
#                                 bench-engine, bench-tpcc; ARGS="..." (bench/README.md)
#   make mutants MUTANT=name      faults put into the sources: do the tests catch them?
#   make fuzz CASES=n FIRST=seed  damaged index files, longer than make test does

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
OBJS = $(patsubst $(top)/%.c,%.o,$(sort $(wildcard $(addprefix $(top)/src/,*.c */*.c */*/*.c))))

EXTENSION = pmhash
# scripts of all versions, and those from one to the next
DATA = $(notdir $(wildcard $(top)/pmhash--*.sql))

# setup comes first: the others use what it makes
REGRESS = setup basic duplicates refused expressions dml rewrite temporary exclusion partition \
	plans backward boolean two_phase stats types types_cross types_collate row_types \
	opclass privileges check counters index_only dead_entries group_insert array_scan \
	join join_cases page_scan jit merge held_cursors parallel_build build_pages shrink vacuum candidates
ISOLATION = join_ssi pages_ssi ssi ssi_btree concurrent_build scan_and_change exclusion_wait \
	vacuum_and_scan shrink_and_scan speculative eval_plan_qual held_cursor row_type operator_family
TAP_TESTS = 1

# What the TAP tests share.
export PERL5LIB := $(abspath $(top))/test/lib/perl$(addprefix :,$(PERL5LIB))

# All of them take half an hour: REGRESS= ISOLATION= runs them.  Beside the
# other suites there are some that take seconds.
ifeq ($(REGRESS)$(ISOLATION),)
PROVE_TESTS = test/t/*/*.pl
else
PROVE_TESTS = test/t/start/restart_and_dump.pl
endif

# The server's headers are not ours to keep clean under -Wextra: -isystem.
# "override" since these are added to what the command line says.
override PG_CPPFLAGS += -I$(srcdir)/src -isystem $(includedir_server)
# (-MMD writes beside each object which headers it depends on.)
override PG_CFLAGS += -Wextra -Wno-unused-parameter -MMD -MP
override SHLIB_LINK += -lpmem

# For tests only: processes can be held at named points (test/README.md).
ifdef PMH_STOP_POINTS
OBJS += test/lib/stop_points.o
override PG_CPPFLAGS += -DPMH_STOP_POINTS
endif

EXTRA_CLEAN = $(OBJS:.o=.d) build output_iso results tmp_check tmp_check_iso log

# Targets that need no PGXS
SOAKS = soak-cycles soak-faults soak-failover
BENCHES = $(filter-out bench-unique bench-queue bench-demo bench-run, \
	$(patsubst $(top)/bench/%.sh,bench-%,$(wildcard $(top)/bench/*.sh)))
NIGHTLY = analyzers-test assert-test coverage-test versions-test tools-test packages-test
WITHOUT_PGXS = test test-all check-% nightly $(NIGHTLY) dist crash-exhaustive dax-test soak $(SOAKS) \
	ha-test mutants fuzz demo bench bench-quick bench-engine bench-tpcc bench-unique bench-queue $(BENCHES)

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

# A header's change reaches what includes it; code for the JIT compiler is made anew
# with its object.
-include $(OBJS:.o=.d)
$(OBJS:.o=.bc): %.bc: %.o

test:
	bash $(top)/test/run.sh
test-all:
	bash $(top)/test/run.sh all
check-%:
	bash $(top)/test/check.sh $*
# TAP files that the night runs in short, and so long here
soak: soak-cycles soak-faults
soak-cycles: long = SOAK_CYCLES=$(or $(SOAK_CYCLES),200) PMHASH_PROVE_TESTS=test/t/start/kill_cycles.pl
soak-faults: long = PMHASH_FAULTS=all PMHASH_PROVE_TESTS=test/t/files/injected_faults.pl
soak-failover: long = FAILOVER_CYCLES=$(or $(FAILOVER_CYCLES),220) PMHASH_PROVE_TESTS=test/t/standby/failover.pl
$(SOAKS):
	$(long) bash $(top)/test/run.sh tap
dax-test:
	bash $(top)/test/dax/run.sh $(ARGS)
ha-test:
	bash $(top)/test/tools.sh --major $(or $(PMHASH_PG_MAJOR),15) $(ARGS) patroni
$(NIGHTLY):
	bash $(top)/test/$(@:-test=).sh $(ARGS)
nightly:
	$(MAKE) -k -f $(top)/Makefile $(NIGHTLY) soak
mutants:
	bash $(top)/test/mutants/mutants.sh $(MUTANT:%=--mutant=%) $(MUTANTS)

# name and version are META.json's
META = $(shell sed -n 's/^   "$1": "\(.*\)",$$/\1/p' $(top)/META.json)
DIST = $(call META,name)-$(call META,version)
DIST_DIR = .

dist:
	git -C $(top) -c safe.directory="$$(cd $(top) && pwd)" archive --format=zip --prefix=$(DIST)/ -o "$(abspath $(DIST_DIR))/$(DIST).zip" HEAD

# what a make in a directory of programs needs, and then that make
WITH_PACKAGES = bash -c '. $(top)/test/lib/packages.sh && install_server && "$$@"' bash $(MAKE) -C $(top)

crash-exhaustive:
	$(WITH_PACKAGES)/test/crash exhaustive
fuzz:
	$(WITH_PACKAGES)/test/fuzz long $(CASES:%=CASES=%) $(FIRST:%=FIRST=%)

demo:
	bash $(top)/bench/demo.sh
bench:
	bash $(top)/bench/run.sh
bench-quick:
	bash $(top)/bench/run.sh --quick
bench-engine:
	$(WITH_PACKAGES)/bench/engine
bench-tpcc:
	bash $(top)/bench/tpcc/run.sh
bench-unique bench-queue:
	bash $(top)/bench/$(@:bench-%=%).sh $(or $(BINDIR),"$$($(PG_CONFIG) --bindir)") $(ARGS)
$(BENCHES): bench-%:
	bash $(top)/bench/$*.sh $(ARGS)

clean: clean-subdirs
clean-subdirs:
	for dir in test/engine test/crash test/fuzz bench/engine; do \
		if test -f $$dir/Makefile; then $(MAKE) -C $$dir clean || exit 1; fi; \
	done
