"""Aggregators: what the decorator makes of a class, and how it is run over groups, lists of fragments, and panes."""

from dataclasses import dataclass

from .columns import ABSENT, Batch, Output, Rejected, column_of, piece_of, rows_of
from .message import Emitter, Message, parse, reason_of, unparse
from .transform import configured, numbered, register

TIMINGS = ("early", "on time", "late")


@dataclass(slots=True)
class Pane:
    """A window of a key that fires. Times are milliseconds since the Unix epoch; `end` is the first that is not in the window.

    `key` is the text of the key field as JSON, or the bytes of the message's key or attribute, as the step says; None where the
    messages had none. `firings` says how often the window has fired before, `timing` is "early", "on time" or "late", and
    `received` is when the host decided to fire: the only clock there is.
    """

    key: bytes | None
    start: int
    end: int
    firings: int
    timing: str
    received: int


@dataclass(slots=True)
class Accumulated:
    """What a batch added to its groups."""

    fragments: object
    rejected: Rejected


def parse_bytes(encoded):
    """Reads an accumulator kept as JSON."""
    return parse(encoded.decode())


class Aggregator:
    """The exports of an aggregator."""

    def __init__(self, make, routes):
        self._make, self._routes, self._built = make, list(routes), None

    def configure(self, config):
        """Makes the instance; returns the names of its routes."""
        self._built = built = configured(self._make, config)
        routes = list(getattr(built, "routes", self._routes))
        self._numbers = numbered(routes)
        self._encode = getattr(built, "encode", unparse)
        self._decode = getattr(built, "decode", parse_bytes)
        return routes

    def accumulate(self, batch, groups) -> Accumulated:
        """Makes a fragment of the rows of each group."""
        built, message = self._built, Message(batch)
        fragments, refused, at = [], {}, 0
        for end in groups.ends:
            accumulator, taken = built.empty(), False
            for row in groups.rows[at:end]:
                message.row = row
                try:
                    changed = built.add(accumulator, message)
                except Exception as error:
                    refused[row] = reason_of(error).encode("utf-8", "replace")
                    continue
                accumulator = accumulator if changed is None else changed
                taken = True
            at = end
            fragments.append(piece_of(self._encode(accumulator)) if taken else None)
        rows = sorted(refused)
        rejected = Rejected(rows, column_of([refused[row] for row in rows])) if rows else Rejected()
        return Accumulated(column_of(fragments), rejected)

    def merge(self, lists):
        """Makes one accumulator of each list."""
        built, decode = self._built, self._decode
        fragments = rows_of(lists.fragments, lists.ends[-1] if lists.ends else 0)
        merged, at = [], 0
        for end in lists.ends:
            accumulator = decode(fragments[at])
            for fragment in fragments[at + 1 : end]:
                changed = built.merge(accumulator, decode(fragment))
                accumulator = accumulator if changed is None else changed
            at = end
            merged.append(piece_of(self._encode(accumulator)))
        return column_of(merged)

    def emit(self, panes) -> Output:
        """Turns panes into rows."""
        built, rows = self._built, len(panes.ends)
        batch = Batch(panes.keys, ABSENT, [end - 1 for end in panes.ends], received_ms=panes.received_ms)
        message = Message(batch)
        out = Emitter(batch, message, self._numbers)
        keys, accumulators = rows_of(panes.keys, rows), rows_of(panes.accumulators, rows)
        for row in range(rows):
            message.row = row
            timing = TIMINGS[panes.timings[row]]
            pane = Pane(keys[row], panes.starts[row], panes.ends[row], panes.firings[row], timing, panes.received_ms)
            try:
                built.emit(pane, self._decode(accumulators[row]), out)
            except Exception as error:
                out.reject(reason_of(error))
        return out.output()

    def state_version(self):
        """The version of the accumulators' encoding."""
        return getattr(self._built, "state_version", 1)

    def migrate(self, version, accumulators):
        """Accumulators of an older encoding in the present one."""
        migrate = getattr(self._built, "migrate", None)
        if migrate is None:
            raise ValueError(f"accumulators of version {version} cannot be read: the module writes version {self.state_version()}")
        return column_of([piece_of(migrate(version, old)) for old in rows_of(accumulators, len(accumulators.ends))])


def aggregator(made=None, *, routes=()):
    """Makes the file an aggregator: decorates a class that is made with the step's config and has

    * `empty()`: an accumulator without messages, any value,
    * `add(accumulator, message)`: takes a message in; returns the new accumulator, or None if it changed the one given. An
      exception rejects the message; the accumulator must then be as before,
    * `merge(accumulator, other)`: adds another one, whose messages came later; returns likewise,
    * `emit(pane, accumulator, out)`: makes rows of a window that fires. A row has the pane's key, and the window's last
      millisecond as its event time, unless changed,
    * `encode(accumulator)` and `decode(bytes)`: how the host keeps an accumulator; without them, as JSON,
    * `state_version` (1) and `migrate(version, bytes)`: where the encoding has changed.

    Merging must be associative: the host merges what it has when it sees fit, in any grouping, and never what is alone.
    `weir_udf.testing.aggregate` checks that on your own messages.
    """
    if made is None:
        return lambda made: aggregator(made, routes=routes)
    make = made if made.__init__ is not object.__init__ else lambda config: made()
    made.weir = register("aggregator", Aggregator(make, routes))
    return made
