"""Orders in Python: checks orders, masks e-mail addresses, and tells large orders from small ones."""

from weir_udf import transformer


def parse(message):
    try:
        order = message.json()
    except ValueError:
        order = None
    if type(order) is not dict:
        raise ValueError("not a JSON object")
    return order


@transformer(routes=["large"])
class Orders:
    def __init__(self, config):
        self.large_from = config.pop("large_from", 10_000)
        if type(self.large_from) is not int or self.large_from < 1:
            raise ValueError("config: large_from: expected a whole number of at least 1")
        for name in config:
            raise ValueError(f"config: {name}: no such setting")

    def transform(self, message, out):
        if message.value is None:
            return out.forward()
        field = parse(message).get
        number, deleted, email, amount, time, note = (
            field("id"), field("deleted"), field("email"), field("amount"), field("ts"), field("note")
        )
        if type(number) is not int:
            raise ValueError("id: expected a whole number")
        if deleted is not None and type(deleted) is not bool:
            raise ValueError("deleted: expected true or false")
        if deleted:
            return out.emit(None, key=str(number))
        at = email.find("@") if type(email) is str else -1
        if at < 1:
            raise ValueError("email: expected an address")
        if type(amount) is not int or amount < 0:
            raise ValueError("amount: expected a whole number of cents")
        if time is not None and type(time) is not int:
            raise ValueError("ts: expected milliseconds")
        if note is not None and type(note) is not str:
            raise ValueError("note: expected a text")
        size = "large" if amount >= self.large_from else "small"
        checked = {"id": number, "email": f"{email[0]}***{email[at:]}", "amount": amount, "size": size, "note": note or ""}
        out.json(checked, key=str(number), event_time=time, add={"size": size}, route="large" if size == "large" else None)
