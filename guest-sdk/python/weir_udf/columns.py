"""What crosses the boundary, as the contract has it: flat columns, so that a thousand messages are a handful of objects.

Everything here works on whole lists with what is built into Python: a loop of Python's own for each row would cost more than
most functions do.
"""

from dataclasses import dataclass, field
from itertools import accumulate

KEEP = object()
"""Stands for what a row has of the message that it was made of."""


@dataclass(slots=True)
class Column:
    """Byte strings, one for each row, any of which may be absent.

    Row i is `bytes[ends[i - 1]:ends[i]]`. No ends at all: every row is absent. `present` is a bitmap, lowest bit first; if it is
    empty, no row is absent.
    """

    bytes: bytes = b""
    ends: list[int] = field(default_factory=list)
    present: bytes = b""


ABSENT = Column()
"""A column of absent rows, as many as are needed."""


@dataclass(slots=True)
class Attributes:
    """Named values attached to messages: one entry for each attribute, not for each message. `rows` is ascending."""

    rows: list[int] = field(default_factory=list)
    names: Column = field(default_factory=Column)
    values: Column = field(default_factory=Column)


@dataclass(slots=True)
class Batch:
    """Messages in order. `event_times` are milliseconds since the Unix epoch; their number is the number of rows."""

    keys: Column
    values: Column
    event_times: list[int]
    attributes: Attributes = field(default_factory=Attributes)
    received_ms: int = 0


@dataclass(slots=True)
class Rejected:
    """Input rows that cannot be handled, ascending, with a reason for each."""

    rows: list[int] = field(default_factory=list)
    reasons: Column = field(default_factory=Column)


@dataclass(slots=True)
class Output:
    """What became of a batch; udf.wit says what each list must hold.

    `origins` names the input row of each output row (empty: they are the same, one by one), `routes` where each row goes (empty:
    all to the main output).
    """

    batch: Batch
    origins: list[int] = field(default_factory=list)
    routes: bytes = b""
    rejected: Rejected = field(default_factory=Rejected)


def rows_of(column, rows):
    """All rows of a column: bytes, or None."""
    ends = column.ends
    if not ends:
        return [None] * rows
    data = column.bytes
    found = [data[start:end] for start, end in zip([0, *ends], ends)]
    if column.present:
        present = column.present
        for row in range(rows):
            if not present[row >> 3] >> (row & 7) & 1:
                found[row] = None
    return found


def column_of(pieces):
    """A column of bytes and None."""
    try:
        return Column(b"".join(pieces), list(accumulate(map(len, pieces))))
    except TypeError:
        absent = [row for row, piece in enumerate(pieces) if piece is None]
    if len(absent) == len(pieces):
        return ABSENT
    present = bytearray(b"\xff" * ((len(pieces) + 7) // 8))
    for row in absent:
        present[row >> 3] &= ~(1 << (row & 7))
    pieces = [b"" if piece is None else piece for piece in pieces]
    return Column(b"".join(pieces), list(accumulate(map(len, pieces))), bytes(present))


def piece_of(value):
    """A key, value or attribute as bytes or None."""
    if isinstance(value, str):
        return value.encode()
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"expected bytes, a text or None: got {type(value).__name__}")
