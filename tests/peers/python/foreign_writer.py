"""What others do to a table while Weir writes it. Prints the snapshot that came of it as JSON.

--action append    --count rows (1) with made-up values; their numbers are new at each call, unless --start says where to count from
--action expire    expire all but the newest --retain snapshots (1)
--action compact   rewrite all rows into new files, as table maintenance does
--action delete    delete the rows of --where
--action property  set the table property --set NAME VALUE
"""

import datetime
import random

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException

from common import arguments, load, show


def made_up(kind, number):
    if pa.types.is_integer(kind):
        return number
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"foreign-{number}"
    if pa.types.is_timestamp(kind):
        zone = datetime.timezone.utc if kind.tz else None
        return datetime.datetime(2024, 1, 1, tzinfo=zone) + datetime.timedelta(milliseconds=number)
    if pa.types.is_date(kind):
        return datetime.date(2024, 1, 1)
    if pa.types.is_floating(kind):
        return float(number)
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    return None


def append(table, args):
    schema = table.schema().as_arrow()
    numbers = range(args.start, args.start + args.count)
    columns = {field.name: [made_up(field.type, number) for number in numbers] for field in schema}
    table.append(pa.table(columns, schema=schema))


def expire(table, args):
    oldest_first = [s.snapshot_id for s in sorted(table.metadata.snapshots, key=lambda s: s.sequence_number)]
    old = oldest_first[: -args.retain]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()


def compact(table, args):
    table.overwrite(table.scan().to_arrow())


def delete(table, args):
    table.delete(args.where)


def set_property(table, args):
    with table.transaction() as transaction:
        transaction.set_properties(dict([args.set]))


ACTIONS = {"append": append, "expire": expire, "compact": compact, "delete": delete, "property": set_property}


def main():
    parser = arguments(__doc__)
    parser.add_argument("--action", choices=ACTIONS, required=True)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--start", type=int, default=random.randrange(10**9, 2 * 10**9))
    parser.add_argument("--retain", type=int, default=1)
    parser.add_argument("--where")
    parser.add_argument("--set", nargs=2)
    args = parser.parse_args()
    tries = 20
    for left in reversed(range(tries)):
        table = load(args)
        try:
            ACTIONS[args.action](table, args)
            break
        except CommitFailedException:
            if not left:
                raise
    table.refresh()
    show({"snapshot": table.metadata.current_snapshot_id, "snapshots": len(table.metadata.snapshots)})


main()
