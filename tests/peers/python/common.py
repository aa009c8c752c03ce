"""What the scripts share: the command line that names a table, and how an answer is printed."""

import argparse
import json


def arguments(description):
    """A parser that knows a table's place: --catalog sql|rest URI WAREHOUSE --table NAMESPACE.NAME."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", nargs=3, metavar=("KIND", "URI", "WAREHOUSE"), required=True,
                        help="sql or rest, its address, and the warehouse (empty: the catalog's own)")
    parser.add_argument("--name", default="default", help="the catalog's name, which a sql catalog keeps with each table")
    parser.add_argument("--table", required=True, help="namespace.table")
    return parser


def load(args):
    """The table that the arguments name."""
    from pyiceberg.catalog import load_catalog

    kind, uri, warehouse = args.catalog
    properties = {"type": kind, "uri": uri, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    if warehouse:
        properties["warehouse"] = warehouse
    return load_catalog(args.name, **properties).load_table(args.table)


def show(answer):
    """Prints the answer as one line of JSON; whatever JSON has no word for becomes text."""
    print(json.dumps(answer, default=str, ensure_ascii=False))
