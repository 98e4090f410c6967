#!/usr/bin/env python3
"""TPC-H's tables and queries, made by DuckDB's dbgen.

usage: tpch_data.py SCALE DIRECTORY

Writes TABLE.csv for each of the eight tables, and q01.sql to q22.sql.  Needs the
packages duckdb and duckdb-ext-tpch of one version; opens no connection.
"""

import os
import sys

import duckdb
import duckdb_ext

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")


def extension():
    """The file of the extension that goes with this DuckDB."""
    for top in duckdb_ext.__path__:
        for directory, _, files in os.walk(os.path.join(top, "extensions", "v" + duckdb.__version__)):
            if "tpch.duckdb_extension" in files:
                return os.path.join(directory, "tpch.duckdb_extension")
    sys.exit(f"no tpch extension for DuckDB {duckdb.__version__}")


def main():
    scale, directory = float(sys.argv[1]), sys.argv[2]
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension()}'")
    connection.execute(f"CALL dbgen(sf = {scale})")
    for table in TABLES:
        path = os.path.join(directory, table + ".csv")
        connection.execute(f"COPY {table} TO '{path}' (FORMAT csv, HEADER false)")
    for number, query in connection.execute("FROM tpch_queries()").fetchall():
        with open(os.path.join(directory, f"q{number:02}.sql"), "w") as file:
            file.write(query.strip().rstrip(";") + "\n")


main()
