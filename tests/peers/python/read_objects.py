"""read_objects.py s3 ORIGIN PREFIX FIELD: reads all JSON lines of objects under BUCKET/PREFIX with PyArrow and DuckDB.

PREFIX is s3://BUCKET/START-OF-NAMES. Names that end with .gz are decompressed. Prints rows and the number of
different values of FIELD as one JSON object.
"""

import argparse
import gzip

import duckdb
import pyarrow as pa
from pyarrow import fs

from common import show


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["s3"])
    parser.add_argument("origin")
    parser.add_argument("prefix")
    parser.add_argument("field")
    args = parser.parse_args()

    store = fs.S3FileSystem(access_key="test", secret_key="test", region="us-east-1", endpoint_override=args.origin)
    start = args.prefix.removeprefix("s3://")
    listed = store.get_file_info(fs.FileSelector(start.rsplit("/", 1)[0]))
    lines = []
    for info in listed:
        if info.is_file and info.path.startswith(start):
            data = store.open_input_stream(info.path, compression=None).read()
            lines.extend((gzip.decompress(data) if info.path.endswith(".gz") else data).splitlines())
    rows = pa.table({"line": pa.array([line.decode() for line in lines], pa.string())})
    distinct = duckdb.sql(f"SELECT count(DISTINCT line->>'$.{args.field}') FROM rows").fetchone()[0]
    show({"rows": len(lines), "distinct": distinct, "objects": len(listed)})


main()
