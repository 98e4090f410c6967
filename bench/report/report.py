"""Make tables (Markdown) and charts (PNG) of what bench/run.sh has measured.

usage: report.py DIRECTORY

DIRECTORY holds machine.csv and, of the parts that were measured, postgresql.csv
and engine*.csv; the report goes there too.
"""

import os
import sys

import engine
import postgresql
from common import read_pairs


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = sys.argv[1]
    machine = read_pairs(os.path.join(directory, "machine.csv"))
    if os.path.exists(os.path.join(directory, "postgresql.csv")):
        postgresql.report(directory, machine)
    if os.path.exists(os.path.join(directory, "engine.csv")):
        engine.report(directory, machine)


main()
