"""Tell how many cache lines an operation touches.

usage: trace_lines.py CSV < TRACE

TRACE is what valgrind's lackey says of "pmh_bench --op trace" and, in between,
what that prints: where the file, the lock table and the marks are.  Appends to
CSV "lines,operation,1,file_lines,value" and the same for lines of the lock table
(lock_lines) and of all other memory (other_lines).
"""

import sys

LINE = 64


def count(lines, areas):
    """How many of the lines are in each area, and in none."""
    counts = [0] * (len(areas) + 1)
    for line in lines:
        for i, (base, length) in enumerate(areas):
            if base <= line * LINE < base + length:
                counts[i] += 1
                break
        else:
            counts[-1] += 1
    return counts


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    areas = []
    kind_of_mark = {}
    touched = {}                # operation: how many, and lines of all of them
    kind = None
    lines = set()
    for text in sys.stdin:
        if text.startswith("trace "):
            _, name, address, length = text.split()
            if name in ("file", "locks"):
                areas.append((int(address, 16), int(length)))
            else:
                kind_of_mark[int(address, 16)] = name
            continue
        if text[:3] not in (" L ", " S ", " M ") or not kind_of_mark:
            continue
        address, _, size = text[3:].partition(",")
        address = int(address, 16)
        if address in kind_of_mark:
            if kind not in (None, "end"):
                sums = touched.setdefault(kind, [0, 0, 0, 0])
                for i, n in enumerate([1] + count(lines, areas)):
                    sums[i] += n
            kind = kind_of_mark[address]
            lines = set()
        elif kind not in (None, "end"):
            lines.update(range(address // LINE, (address + int(size) - 1) // LINE + 1))
    if not touched:
        sys.exit("trace_lines.py: no operation was traced")
    with open(sys.argv[1], "a") as out:
        for kind, (operations, *counts) in touched.items():
            for name, n in zip(("file_lines", "lock_lines", "other_lines"), counts):
                out.write(f"lines,{kind},1,{name},{n / operations:.4f}\n")


main()
