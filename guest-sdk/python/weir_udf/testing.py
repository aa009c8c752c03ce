"""Runs what a file exports natively, in ordinary tests: no WebAssembly is involved, so that debuggers and coverage work as ever.

    from weir_udf.testing import run
    from orders import Orders

    assert run(Orders, {"large_from": 5}, ['{"id": 1}']).reasons == ["email: expected an address"]
"""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace

from .columns import Attributes, Batch, column_of, piece_of, rows_of


@dataclass
class Input:
    """A message to be handed in. Texts are encoded; None is absent."""

    value: bytes | str | None = None
    key: bytes | str | None = None
    event_time: int = 0
    attributes: dict = field(default_factory=dict)


@dataclass
class Row:
    """A row that came out."""

    value: bytes | None
    key: bytes | None
    event_time: int
    attributes: list
    origin: int
    """The message that it was made of, by its place; of an aggregator, the pane."""
    route: str | None = None
    """Its route; None: the main output."""


@dataclass
class Results:
    """What came out. `rejected` are messages by their place, with the reason; of `filtered` ones nothing came out."""

    rows: list = field(default_factory=list)
    rejected: list = field(default_factory=list)
    filtered: list = field(default_factory=list)

    @property
    def values(self):
        """The values of all rows as text; None for tombstones."""
        return [None if row.value is None else row.value.decode() for row in self.rows]

    @property
    def reasons(self):
        """The reasons of all rejections."""
        return [reason for _, reason in self.rejected]


def run(exported, config, messages, *, received=0):
    """Runs a transformer over messages (values or `Input`s) as one batch. Raises ValueError if the configuration is refused."""
    routes = exported.weir.configure(json.dumps(config))
    messages = _inputs(messages)
    return _read(exported.weir.transform(_batch(messages, received)), routes, len(messages))


WINDOW = (0, 60_000)
"""The window that `aggregate` takes its messages to fall into."""


def aggregate(exported, config, messages):
    """Runs an aggregator over messages of one key and window, and fires it.

    On the way it checks the laws of merging on these very messages. Raises ValueError if the configuration is refused,
    AssertionError if a law is broken.
    """
    weir = exported.weir
    routes = weir.configure(json.dumps(config))
    messages = _inputs(messages)
    whole, rejected = _accumulate(weir, messages)
    if whole is None:
        return Results(rejected=rejected)
    found = _emit(weir, whole, routes)
    each = [_accumulate(weir, [message])[0] for message in messages]
    left = right = None
    for fragment in each:
        left = _merge(weir, [left, fragment])
    for fragment in reversed(each):
        right = _merge(weir, [fragment, right])
    laws = {
        "a fragment merged alone": _merge(weir, [whole]),
        "merged all at once": _merge(weir, each),
        "merged one by one": left,
        "merged from the right": right,
    }
    for law, accumulator in laws.items():
        other = _emit(weir, accumulator, routes).values
        if other != found.values:
            raise AssertionError(f"{law}: {other} instead of {found.values}")
    found.rejected = rejected + found.rejected
    return found


def _inputs(messages):
    return [message if isinstance(message, Input) else Input(message) for message in messages]


def _batch(messages, received=0):
    rows, names, values = [], [], []
    for row, message in enumerate(messages):
        for name, value in message.attributes.items():
            rows.append(row)
            names.append(name.encode())
            values.append(piece_of(value))
    return Batch(
        column_of([piece_of(message.key) for message in messages]),
        column_of([piece_of(message.value) for message in messages]),
        [message.event_time for message in messages],
        Attributes(rows, column_of(names), column_of(values)),
        received,
    )


def _read(output, routes, inputs):
    batch, rows = output.batch, len(output.batch.event_times)
    attributes, count = {}, len(batch.attributes.rows)
    names, values = rows_of(batch.attributes.names, count), rows_of(batch.attributes.values, count)
    for row, name, value in zip(batch.attributes.rows, names, values):
        attributes.setdefault(row, []).append((name.decode(), value))
    found, seen = Results(), [False] * inputs
    for row, (key, value) in enumerate(zip(rows_of(batch.keys, rows), rows_of(batch.values, rows))):
        origin = output.origins[row] if output.origins else row
        number = output.routes[row] if output.routes else 0
        seen[origin] = True
        route = routes[number - 1] if number else None
        found.rows.append(Row(value, key, batch.event_times[row], attributes.get(row, []), origin, route))
    for row, reason in zip(output.rejected.rows, rows_of(output.rejected.reasons, len(output.rejected.rows))):
        if seen[row]:
            raise AssertionError(f"message {row} was both rejected and emitted")
        seen[row] = True
        found.rejected.append((row, reason.decode()))
    found.filtered = [row for row, was_seen in enumerate(seen) if not was_seen]
    return found


def _accumulate(weir, messages):
    groups = SimpleNamespace(rows=list(range(len(messages))), ends=[len(messages)] if messages else [])
    made = weir.accumulate(_batch(messages), groups)
    reasons = rows_of(made.rejected.reasons, len(made.rejected.rows))
    rejected = [(row, reason.decode()) for row, reason in zip(made.rejected.rows, reasons)]
    return (rows_of(made.fragments, 1)[0] if messages else None), rejected


def _merge(weir, fragments):
    fragments = [fragment for fragment in fragments if fragment is not None]
    if not fragments:
        return None
    lists = SimpleNamespace(fragments=column_of(fragments), ends=[len(fragments)])
    return rows_of(weir.merge(lists), 1)[0]


def _emit(weir, accumulator, routes):
    start, end = WINDOW
    panes = SimpleNamespace(
        keys=column_of([b"key"]), starts=[start], ends=[end], accumulators=column_of([accumulator]), firings=[0], timings=b"\1",
        received_ms=0,
    )
    return _read(weir.emit(panes), routes, 1)
