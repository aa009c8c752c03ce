"""Reads a table of windows with PyIceberg: rows, distinct keys, and exact sums of columns."""

from common import arguments, load, show

parser = arguments(__doc__)
parser.add_argument("--distinct", required=True, metavar="COLUMN,...")
parser.add_argument("--sum", required=True, metavar="COLUMN,...")
args = parser.parse_args()

rows = load(args).scan().to_arrow()
found = {"rows": rows.num_rows, "distinct": rows.group_by(args.distinct.split(",")).aggregate([]).num_rows}
for column in args.sum.split(","):
    found[column] = sum(int(value) for value in rows[column].to_pylist())
show(found)
