"""Reads an Iceberg table with PyIceberg and tells everything about it as one JSON object.

rows; columns {count, nulls, distinct, min, max, and the sum of integers modulo 2^63}; snapshots with their
summaries; properties; files with their sizes, partition values and column bounds; schema; partition fields.

--distinct COLUMN  adds `distinct`, the number of different values
--checksum COLUMN… adds `checksum`, a sum over the rows' hashes: equal rows, in any order, have equal sums
--first N          adds `first`, N rows in the order of the --distinct column
"""

import pyarrow as pa
import pyarrow.compute as pc

from common import arguments, checksum, load, show


def column_facts(column):
    facts = {"count": len(column), "nulls": column.null_count}
    if pa.types.is_nested(column.type) or isinstance(column.type, pa.BaseExtensionType):
        return facts
    facts["distinct"] = pc.count_distinct(column, mode="only_valid").as_py()
    if not pa.types.is_boolean(column.type):
        facts.update({name: value.as_py() for name, value in zip(("min", "max"), pc.min_max(column).values())})
    if pa.types.is_integer(column.type):
        facts["sum"] = (pc.sum(column.cast(pa.int64())).as_py() or 0) % 2**63  # wraps around, which the modulus undoes
    return facts


def snapshot_facts(snapshot):
    summary = {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}
    return {"id": snapshot.snapshot_id, "parent": snapshot.parent_snapshot_id, "sequence": snapshot.sequence_number,
            "timestamp_ms": snapshot.timestamp_ms, "summary": summary}


def file_facts(file, spec):
    values = {field.name: file.partition[i] for i, field in enumerate(spec.fields)}
    return {"path": file.file_path, "rows": file.record_count, "bytes": file.file_size_in_bytes, "partition": values,
            "columns_with_bounds": sorted(file.lower_bounds or {}), "split_offsets": file.split_offsets}


def main():
    parser = arguments(__doc__)
    parser.add_argument("--distinct", metavar="COLUMN")
    parser.add_argument("--checksum", nargs="+", metavar="COLUMN")
    parser.add_argument("--first", type=int, default=0, metavar="N")
    parser.add_argument("--where", help="a row filter, such as `id < 5`")
    parser.add_argument("--snapshot", type=int, help="read this snapshot")
    args = parser.parse_args()

    table = load(args)
    scan = table.scan(snapshot_id=args.snapshot, **({"row_filter": args.where} if args.where else {}))
    rows = scan.to_arrow()
    answer = {
        "rows": rows.num_rows,
        "columns": {name: column_facts(rows[name]) for name in rows.column_names},
        "snapshots": [snapshot_facts(s) for s in table.metadata.snapshots],
        "properties": table.properties,
        "files": [file_facts(t.file, table.specs()[t.file.spec_id]) for t in scan.plan_files()],
        "schema": [{"id": f.field_id, "name": f.name, "type": str(f.field_type), "required": f.required}
                   for f in table.schema().fields],
        "partition_by": [f"{f.transform}({table.schema().find_column_name(f.source_id)})" for f in table.spec().fields],
        "uuid": table.metadata.table_uuid,
        "format_version": table.metadata.format_version,
        "metadata_location": table.metadata_location,
    }
    if args.distinct:
        answer["distinct"] = pc.count_distinct(rows[args.distinct], mode="all").as_py()
    if args.checksum:
        answer["checksum"] = checksum(rows, [f'"{name}"' for name in args.checksum])
    if args.first:
        ordered = rows.sort_by(args.distinct) if args.distinct else rows
        answer["first"] = ordered.slice(0, args.first).to_pylist()
    show(answer)


main()
