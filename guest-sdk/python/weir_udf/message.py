"""A message, and what takes what becomes of it. Both are one object for all messages of a batch."""

import json
from json.encoder import c_make_encoder, encode_basestring

from .columns import KEEP, Attributes, Batch, Output, Rejected, column_of, piece_of, rows_of


class Message:
    """The message at hand. It is one object for all messages: keep what it has, not the object."""

    __slots__ = ("_attributes", "_batch", "_keys", "_values", "row")

    def __init__(self, batch):
        self._batch = batch
        # Made at first use, for all messages at once.
        self._keys = self._values = self._attributes = None
        self.row = 0

    @property
    def value(self):
        """The payload: bytes; None is a tombstone, which is not the same as empty."""
        if self._values is None:
            self._values = rows_of(self._batch.values, len(self._batch.event_times))
        return self._values[self.row]

    @property
    def key(self):
        """The key: bytes; None if there is none."""
        if self._keys is None:
            self._keys = rows_of(self._batch.keys, len(self._batch.event_times))
        return self._keys[self.row]

    @property
    def event_time(self):
        """When the thing that the message tells of happened: milliseconds since the Unix epoch."""
        return self._batch.event_times[self.row]

    @property
    def received(self):
        """When the host received the message: milliseconds since the Unix epoch. The only clock there is."""
        return self._batch.received_ms

    @property
    def attributes(self):
        """Names and values, in order."""
        if self._attributes is None:
            self._attributes = {}
            attributes = self._batch.attributes
            count = len(attributes.rows)
            names, values = rows_of(attributes.names, count), rows_of(attributes.values, count)
            for row, name, value in zip(attributes.rows, names, values):
                self._attributes.setdefault(row, []).append((name.decode(), value))
        return self._attributes.get(self.row, [])

    def attribute(self, name):
        """The value of the first attribute with this name; None if it has none."""
        return next((value for found, value in self.attributes if found == name), None)

    def text(self):
        """The value as text; None for a tombstone. Rejects the message if it isn't UTF-8."""
        value = self.value
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError:
            raise ValueError("not UTF-8") from None

    def json(self):
        """The value as JSON; None for a tombstone. Rejects the message if it isn't JSON."""
        value = self.value
        if value is None:
            return None
        try:
            return parse(value.decode())
        except ValueError:
            raise ValueError("not JSON") from None


_scan = json.JSONDecoder().scan_once


def parse(text):
    """Reads JSON. What `json.loads` does around its scanner takes longer than the scanner on a small message."""
    try:
        found, end = _scan(text, 0)
    except StopIteration:
        return json.loads(text)
    return found if end == len(text) else json.loads(text)


def _refuse(value):
    raise TypeError(f"{type(value).__name__} is not JSON")


# Made once, for the same reason: `json.dumps` makes an encoder for each value.
_encode = c_make_encoder and c_make_encoder(None, _refuse, encode_basestring, None, ":", ",", False, False, False)


def unparse(value):
    """Writes JSON, without spaces and with all characters as they are."""
    if _encode is None:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return "".join(_encode(value, 0))


class Emitter:
    """Takes what becomes of the message at hand. What is emitted is noted, and made into columns at the end of the batch."""

    __slots__ = (
        "_attributes", "_batch", "_forwarded", "_keys", "_message", "_numbers", "_origins", "_reasons", "_rejected", "_routes",
        "_times", "_values",
    )

    def __init__(self, batch, message, numbers):
        self._batch, self._message, self._numbers = batch, message, numbers
        # As long as all that happened is that rows 0, 1, 2, ... were forwarded: how many.
        self._forwarded = 0
        self._origins, self._values = [], []
        # Of rows that don't keep them:
        self._keys, self._times, self._attributes, self._routes = {}, {}, {}, {}
        self._rejected, self._reasons = [], []

    def forward(self, route=None):
        """Passes the message on, unchanged."""
        row = self._message.row
        if route is None and self._forwarded == row:
            self._forwarded = row + 1
            return
        if self._forwarded >= 0:
            self._spell()
        if route is not None:
            self._route(route, len(self._origins))
        self._origins.append(row)
        self._values.append(KEEP)

    def emit(self, value, *, key=KEEP, event_time=None, attributes=None, add=None, route=None):
        """Emits a row with this value: bytes, a text, or None for a tombstone. What isn't given is the message's.

        `attributes`, a dict or a list of pairs, stand for all of the message's, those of `add` come after them; `route` is one of
        `routes`, None the main output.
        """
        value = value.encode() if type(value) is str else piece_of(value)
        row = len(self._origins) if self._forwarded < 0 else self._spell()
        if route is not None:
            self._route(route, row)
        if key is not KEEP:
            self._keys[row] = key.encode() if type(key) is str else piece_of(key)
        if event_time is not None:
            self._times[row] = int(event_time)
        if attributes is not None:
            self._attributes[row] = _pairs(attributes)
        elif add is not None:
            kept = self._batch.attributes.rows and self._message.attributes
            self._attributes[row] = _pairs(kept) + _pairs(add)
        self._origins.append(self._message.row)
        self._values.append(value)

    def json(self, value, **changes):
        """Emits a row whose value is written as JSON. The rest is as with `emit`."""
        self.emit(unparse(value), **changes)

    def _route(self, route, row):
        number = self._numbers.get(route)
        if number is None:
            raise ValueError(f"the route `{route}` was not named in `routes`")
        self._routes[row] = number

    def _spell(self):
        """Notes the rows one by one that were only counted: from here on something else happens."""
        self._origins.extend(range(self._forwarded))
        self._values.extend([KEEP] * self._forwarded)
        self._forwarded = -1
        return len(self._origins)

    def reject(self, reason):
        """Rejects the message at hand: what it emitted is taken back."""
        row = self._message.row
        if self._forwarded >= 0:
            self._spell()
        origins = self._origins
        while origins and origins[-1] == row:
            del origins[-1], self._values[-1]
        # Whatever was noted of a row that then wasn't made, or is taken back.
        rows = len(origins)
        for noted in (self._keys, self._times, self._attributes, self._routes):
            while noted and next(reversed(noted)) >= rows:
                noted.popitem()
        self._rejected.append(row)
        self._reasons.append(reason.encode("utf-8", "replace"))

    def output(self):
        """All that became of the batch."""
        batch, origins = self._batch, self._origins
        if self._forwarded > 0 and self._forwarded == len(batch.event_times):
            return Output(batch)
        if self._forwarded >= 0:
            self._spell()
        rejected = Rejected(self._rejected, column_of(self._reasons)) if self._rejected else Rejected()
        same = origins == list(range(len(batch.event_times)))
        made = Batch(
            self._key_column(same), self._value_column(), self._all_times(same), self._all_attributes(same), 0
        )
        return Output(made, [] if same and not self._rejected else origins, self._all_routes(), rejected)

    def _key_column(self, same):
        keys = self._batch.keys
        if not self._keys:
            if same or not keys.ends:
                return keys
        if len(self._keys) == len(self._origins):
            return column_of(list(self._keys.values()))
        old = rows_of(keys, len(self._batch.event_times))
        changed = self._keys.get
        return column_of([old[origin] if (key := changed(row, KEEP)) is KEEP else key for row, origin in enumerate(self._origins)])

    def _value_column(self):
        values = self._values
        if KEEP in values:
            old = self._message._values or rows_of(self._batch.values, len(self._batch.event_times))
            values = [old[origin] if value is KEEP else value for value, origin in zip(values, self._origins)]
        return column_of(values)

    def _all_times(self, same):
        old = self._batch.event_times
        if not self._times:
            return old if same else [old[origin] for origin in self._origins]
        if len(self._times) == len(self._origins):
            return list(self._times.values())
        changed = self._times.get
        return [changed(row, old[origin]) for row, origin in enumerate(self._origins)]

    def _all_routes(self):
        if not self._routes:
            return b""
        routes = bytearray(len(self._origins))
        for row, number in self._routes.items():
            routes[row] = number
        return bytes(routes)

    def _all_attributes(self, same):
        old, changed = self._batch.attributes, self._attributes
        if not changed and (same or not old.rows):
            return old
        if old.rows:
            message = self._message
            for row, origin in enumerate(self._origins):
                if row not in changed:
                    message.row = origin
                    changed[row] = _pairs(message.attributes)
            changed = dict(sorted(changed.items()))
        rows = [row for row, pairs in changed.items() for _ in pairs]
        pairs = [pair for of in changed.values() for pair in of]
        return Attributes(rows, column_of([name for name, _ in pairs]), column_of([value for _, value in pairs]))


def _pairs(attributes):
    """Attributes as pairs of bytes."""
    if not attributes:
        return []
    pairs = attributes.items() if type(attributes) is dict else attributes
    return [(name.encode(), value.encode() if type(value) is str else piece_of(value)) for name, value in pairs]


def reason_of(error):
    """An exception as a reason: its text, with its type where the text alone says too little."""
    text = str(error)
    if text and type(error) is ValueError:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
