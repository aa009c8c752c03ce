"""duck_table.py METADATA_FILE [COLUMN] [--query SQL]: reads an Iceberg table with DuckDB, a second reader with code of its own.

Prints one JSON object: rows, snapshots, for each column its type, values, distinct count, minimum and maximum, and
`distinct` of COLUMN. With --query, the rows of that SQL over the table `t` instead.
"""

import argparse
import glob
import re
import sysconfig

import duckdb

from common import show


def connect():
    """DuckDB with its extensions as installed beside it: INSTALL by name would download them."""
    connection = duckdb.connect()
    for name in ("avro", "httpfs", "iceberg"):
        pattern = f"{sysconfig.get_path('purelib')}/duckdb_extension_{name}/extensions/*/{name}.duckdb_extension"
        connection.execute(f"INSTALL '{glob.glob(pattern)[0]}'")
        connection.execute(f"LOAD {name}")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metadata")
    parser.add_argument("column", nargs="?")
    parser.add_argument("--query")
    args = parser.parse_args()

    connection = connect()
    location = re.sub("^file:/*", "/", args.metadata)
    connection.execute(f"CREATE VIEW t AS SELECT * FROM iceberg_scan('{location}')")
    if args.query:
        cursor = connection.execute(args.query)
        names = [column[0] for column in cursor.description]
        return show([dict(zip(names, row)) for row in cursor.fetchall()])
    columns = {}
    for name, kind in [row[:2] for row in connection.execute("DESCRIBE t").fetchall()]:
        quoted = '"' + name.replace('"', '""') + '"'
        count, distinct, least, most = connection.execute(
            f"SELECT count({quoted}), count(DISTINCT {quoted}), min({quoted}), max({quoted}) FROM t").fetchone()
        columns[name] = {"type": kind, "values": count, "distinct": distinct, "min": least, "max": most}
    rows = connection.execute("SELECT count(*) FROM t").fetchone()[0]
    snapshots = connection.execute(f"SELECT count(*) FROM iceberg_snapshots('{location}')").fetchone()[0]
    answer = {"rows": rows, "snapshots": snapshots, "columns": columns}
    if args.column:
        answer["distinct"] = columns[args.column]["distinct"]
    show(answer)


main()
