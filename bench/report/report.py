"""Make tables (Markdown) and charts (PNG) of what the scripts of bench have measured.

usage: report.py DIRECTORY

DIRECTORY holds, of the parts that were measured, machine_postgresql.csv and
postgresql.csv, machine_engine.csv and engine*.csv, machine_rebuild.csv and
rebuild*.csv, and both of join, standby and cold; the report goes there too.
"""

import os
import sys

import engine
import figures
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
    for name in ("standby", "cold"):
        if os.path.exists(os.path.join(directory, name + ".csv")):
            figures.report(directory, name, read_pairs(os.path.join(directory, f"machine_{name}.csv")))


main()
