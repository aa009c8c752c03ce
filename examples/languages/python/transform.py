"""Orders in Python: checks orders, masks e-mail addresses, and tells large orders from small ones."""

import json

from weir_udf import transformer


def whole(value):
    return type(value) is int


def check(holds, reason):
    if not holds:
        raise ValueError(reason)


def parse(value):
    try:
        order = json.loads(value)
    except ValueError:
        order = None
    check(type(order) is dict, "not a JSON object")
    return order


@transformer(routes=["large"])
class Orders:
    def __init__(self, config):
        self.large_from = config.pop("large_from", 10_000)
        check(whole(self.large_from) and self.large_from >= 1, "config: large_from: expected a whole number of at least 1")
        for name in config:
            raise ValueError(f"config: {name}: no such setting")

    def transform(self, message, out):
        value = message.value
        if value is None:
            return out.forward()
        order = parse(value)
        number = order.get("id")
        check(whole(number), "id: expected a whole number")
        deleted = order.get("deleted")
        check(deleted is None or type(deleted) is bool, "deleted: expected true or false")
        if deleted:
            return out.emit(None, key=str(number))
        email, amount, time, note = order.get("email"), order.get("amount"), order.get("ts"), order.get("note")
        at = email.find("@") if type(email) is str else -1
        check(at >= 1, "email: expected an address")
        check(whole(amount) and amount >= 0, "amount: expected a whole number of cents")
        check(time is None or whole(time), "ts: expected milliseconds")
        check(note is None or type(note) is str, "note: expected a text")
        size = "large" if amount >= self.large_from else "small"
        checked = {"id": number, "email": f"{email[0]}***{email[at:]}", "amount": amount, "size": size, "note": note or ""}
        out.json(
            checked,
            key=str(number),
            event_time=message.event_time if time is None else time,
            attributes=[*message.attributes, ("size", size)],
            route="large" if size == "large" else None,
        )
