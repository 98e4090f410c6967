#!/bin/bash
#
# test/coverage.sh - which lines and branches of src the tests reach, by gcov.
#
#	coverage.sh [STAGE...]
#		STAGE		stages of test/run.sh (default: engine regress isolation tap);
#					PMHASH_PROVE_TESTS and PMHASH_REGRESS name some of their files
#
# Prints a table of the folders of src and the functions that nothing has reached; what the
# tests say goes to standard error.  Assertions are left out: that one fails is no branch to
# be tested.  Also counted is what builds with stop points and injected faults reach.  A
# process that is killed (kill -9, a crash, an immediate stop) takes its counts along, so what
# only such processes do is not seen.
#
# Needs what test/run.sh needs, and gcovr; prints at the end
#	N passed, N failed

set -u

top=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
. "$top/test/lib/packages.sh"
. "$top/test/lib/count.sh"

install_packages gcc gcovr python3 || exit 1
work=$(mktemp -d "$(scratch_parent)/pmhash-cov.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
install -d -m 1777 "$work/t"

# (PROFILE is PostgreSQL's: all that is built has it, what tests build as well)
TMPDIR=$work/t PMHASH_KEEP=1 PROFILE="--coverage -fprofile-update=atomic" \
	bash "$top/test/run.sh" ${*:-engine regress isolation tap} 2>&1 | tee "$work/log" >&2
count_run "$work/log" || { echo "the tests did not come to their end" >&2; exit 1; }
passed=$stage_passed failed=$stage_failed

# each tree that has counts, as a file of gcovr's with paths from src on
n=0
while read -r tree; do
	n=$((n + 1))
	# (the engine's tests are built in test/engine, and name their sources from there)
	root=. objects=.
	[ ! -d "$tree/test/build/engine" ] || tree=$tree/test/engine root=../.. objects=../build
	(cd "$tree" && gcovr --root "$root" --filter '(.*/)?src/' --gcov-ignore-parse-errors --json "$work/$n.json" "$objects" >"$work/gcovr" 2>&1) ||
		{ tail -n 5 "$work/gcovr" >&2; failed=$((failed + 1)); }
done < <(find "$work/t" -name '*.gcda' -printf '%h\n' | sed -E 's,/(src|test)/.*?,&,; s,/src/(engine|cluster/[a-z]+|am|join)$,,; s,/src$,,; s,/test/build/.*$,,' | sort -u)

python3 - "$top" "$work"/*.json <<'P'
import functools, json, re, sys
lines, branches, functions = {}, {}, {}
@functools.cache
def assertions(path):           # numbers of their lines
    numbers, depth = set(), 0
    for number, line in enumerate(open(sys.argv[1] + "/" + path), 1):
        if depth > 0 or re.match(r"\s*(PMH_ASSERT|Assert|AssertMacro)\(", line):
            numbers.add(number)
            depth += line.count("(") - line.count(")")
    return numbers
for name in sys.argv[2:]:
    for file in json.load(open(name))["files"]:
        path = file["file"]
        for line in file["lines"]:
            if line.get("gcovr/noncode") or line["line_number"] in assertions(path):
                continue
            key = (path, line["line_number"])
            lines[key] = lines.get(key, 0) + line["count"]
            for i, branch in enumerate(line["branches"]):
                branches[key + (i,)] = branches.get(key + (i,), 0) + branch["count"]
        for function in file.get("functions", []):
            key = (path, function["name"])
            functions[key] = functions.get(key, 0) + function["execution_count"]
def share(counts, folder):
    here = [n for key, n in counts.items() if key[0].startswith(folder)]
    return "%d of %d (%.1f %%)" % (sum(n > 0 for n in here), len(here), 100.0 * sum(n > 0 for n in here) / max(len(here), 1))
print("| folder | lines | branches | functions |\n|---|---|---|---|")
for folder in sorted({"/".join(key[0].split("/")[:2]) + "/" for key in lines if key[0].count("/") > 1}) + ["src/"]:
    print("| `%s` | %s | %s | %s |" % (folder[:-1], share(lines, folder), share(branches, folder), share(functions, folder)))
print("\nfunctions that nothing has reached:")
for path, name in sorted(key for key, n in functions.items() if n == 0):
    print("  %s: %s" % (path, name))
P
[ $? -eq 0 ] && [ "$n" -gt 0 ] || failed=$((failed + 1))
report_counts
