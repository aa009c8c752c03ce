"""Tells for each snapshot of an Iceberg table its summary, the rows that it added, and the different values in one of
their columns: [{"summary": …, "rows": N, "values": [...]}]. Files that a later snapshot removed are not looked for.
"""

import pyarrow.parquet as parquet

from common import arguments, load, show


def main():
    parser = arguments(__doc__)
    parser.add_argument("--column", required=True)
    args = parser.parse_args()

    table = load(args)
    found = {snapshot.snapshot_id: {"summary": dict(snapshot.summary.additional_properties), "rows": 0, "values": set()}
             for snapshot in table.metadata.snapshots}
    for entry in table.inspect.entries().to_pylist():
        snapshot = found[entry["snapshot_id"]]
        column = parquet.read_table(entry["data_file"]["file_path"].removeprefix("file://"), columns=[args.column])
        snapshot["rows"] += column.num_rows
        snapshot["values"].update(column[args.column].unique().to_pylist())
    for snapshot in found.values():
        snapshot["values"] = sorted(snapshot["values"])
    show(list(found.values()))


main()
