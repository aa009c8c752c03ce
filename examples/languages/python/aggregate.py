"""Totals in Python: how many messages of a key and window there are, and the sum of one of their fields."""

from weir_udf import aggregator


@aggregator
class Totals:
    def __init__(self, config):
        self.field = config.get("field")
        if not self.field:
            raise ValueError("config: field: name the field to sum up")

    def empty(self):
        return [0, 0]

    def add(self, total, message):
        try:
            fields = message.json()
        except ValueError:
            fields = None
        if type(fields) is not dict:
            raise ValueError("not a JSON object")
        number = fields.get(self.field)
        if type(number) is not int:
            raise ValueError(f"{self.field}: expected a whole number")
        total[0] += 1
        total[1] += number

    def merge(self, total, other):
        total[0] += other[0]
        total[1] += other[1]

    def emit(self, pane, total, out):
        out.json({"count": total[0], "sum": total[1]})
