#!/bin/bash
#
# test/ha/run.sh [--keep]: three servers under Patroni with etcd, lost and switched over
# again and again under load; make ha-test.
#
# In a chroot with Debian's packages, as test/tools.sh makes it: nothing is installed
# here, and no service of the system is started.  test/ha/failovers.py is the test.
# PMHASH_PG_MAJOR names the server (default 15), HA_FAILOVERS how many (default 8).

set -u
top=$(CDPATH= cd "$(dirname "$0")/../.." && pwd)
exec bash "$top/test/tools.sh" --major "${PMHASH_PG_MAJOR:-15}" "$@" patroni
