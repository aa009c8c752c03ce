"""What the scripts share: the command line that names a table, the checksum of rows, and how an answer is printed."""

import argparse
import json


def arguments(description):
    """A parser that knows a table's place: --catalog sql|rest URI WAREHOUSE --table NAMESPACE.NAME."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", nargs=3, metavar=("KIND", "URI", "WAREHOUSE"), required=True,
                        help="sql or rest, its address, and the warehouse (empty: the catalog's own)")
    parser.add_argument("--name", default="default", help="the catalog's name, which a sql catalog keeps with each table")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        help="a property of the catalog or of the storage, such as s3.endpoint=http://127.0.0.1:9000")
    parser.add_argument("--table", required=True, help="namespace.table")
    return parser


def load(args):
    """The table that the arguments name."""
    from pyiceberg.catalog import load_catalog

    kind, uri, warehouse = args.catalog
    properties = {"type": kind, "uri": uri, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    properties.update(pair.split("=", 1) for pair in args.option)
    if warehouse:
        properties["warehouse"] = warehouse
    return load_catalog(args.name, **properties).load_table(args.table)


def checksum(rows, values):
    """The sum, modulo 2^64, of 64 bits of each row's MD5: equal for equal rows in any order, and for hardly any others.

    `rows` is an Arrow table; `values` are SQL expressions over it. A value counts by its text and that text's length.
    """
    import duckdb

    text = " || ".join(f"coalesce(length(({v})::VARCHAR) || ':' || ({v})::VARCHAR, 'null')" for v in values)
    found = duckdb.sql(f"SELECT sum(md5_number_lower({text})) FROM rows").fetchone()[0]
    return int(found or 0) % 2**64


def show(answer):
    """Prints the answer as one line of JSON; whatever JSON has no word for becomes text."""
    print(json.dumps(answer, default=str, ensure_ascii=False))
