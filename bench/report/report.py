"""Make tables (Markdown) and charts (PNG) of what bench/run.sh, rebuild.sh and join.sh have measured.

usage: report.py DIRECTORY

DIRECTORY holds, of the parts that were measured, machine_postgresql.csv and
postgresql.csv, machine_engine.csv and engine*.csv, machine_rebuild.csv and
rebuild*.csv, machine_join.csv and join.csv; the report goes there too.
"""

import os
import sys

import engine
import join
import postgresql
import rebuild
from common import read_pairs


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = sys.argv[1]
    for name, part in (("postgresql", postgresql), ("engine", engine), ("rebuild", rebuild),
                       ("join", join)):
        if os.path.exists(os.path.join(directory, name + ".csv")):
            part.report(directory, read_pairs(os.path.join(directory, f"machine_{name}.csv")))


main()
