# pmhash: build, install and test
#
#   make                          the extension, for the pg_config in PATH
#   make PG_CONFIG=/path/pg_config install
#   make installcheck             against a running server that preloads pmhash
#   make test                     everything, from nothing (test/run.sh)
#   make demo                     btree, hash and pmhash side by side
#   make bench-engine             the engine's benchmark program

MODULE_big = pmhash
PGFILEDESC = "pmhash - equality index on persistent memory"

ENGINE_OBJS = $(patsubst %.c,%.o,$(filter-out %/pm_record.c,$(wildcard src/engine/*.c)))
CLUSTER_OBJS = $(patsubst %.c,%.o,$(wildcard src/cluster/*.c))
AM_OBJS = $(patsubst %.c,%.o,$(wildcard src/am/*.c))
MAIN_OBJS = $(patsubst %.c,%.o,$(wildcard src/*.c))
OBJS = $(MAIN_OBJS) $(AM_OBJS) $(CLUSTER_OBJS) $(ENGINE_OBJS)

EXTENSION = pmhash
DATA = pmhash--1.0.sql

REGRESS = $(patsubst sql/%.sql,%,$(wildcard sql/*.sql))
ISOLATION = $(patsubst specs/%.spec,%,$(wildcard specs/*.spec))
TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl

# The server's headers are not ours to keep clean under -Wextra: -isystem.
PG_CPPFLAGS = -I$(srcdir)/src -isystem $(includedir_server)
PG_CFLAGS = -Wextra -Wno-unused-parameter
SHLIB_LINK = -lpmem

EXTRA_CLEAN = build output_iso results tmp_check tmp_check_iso log

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# PGXS tracks no header dependencies.
ENGINE_HEADERS = $(wildcard src/engine/*.h)
CLUSTER_HEADERS = $(wildcard src/cluster/*.h) $(ENGINE_HEADERS)
AM_HEADERS = $(wildcard src/am/*.h) $(CLUSTER_HEADERS)

$(ENGINE_OBJS) $(ENGINE_OBJS:.o=.bc): $(ENGINE_HEADERS)
$(CLUSTER_OBJS) $(CLUSTER_OBJS:.o=.bc): $(CLUSTER_HEADERS)
$(AM_OBJS) $(AM_OBJS:.o=.bc) $(MAIN_OBJS) $(MAIN_OBJS:.o=.bc): $(AM_HEADERS)

.PHONY: test demo bench-engine clean-subdirs

test:
	bash $(srcdir)/test/run.sh

demo:
	bash $(srcdir)/bench/demo.sh

bench-engine:
	$(MAKE) -C bench/engine

clean: clean-subdirs
clean-subdirs:
	for dir in test/engine bench/engine; do \
		if test -f $$dir/Makefile; then $(MAKE) -C $$dir clean || exit 1; fi; \
	done
