"""The guests of this folder, natively."""

import json
import unittest

from aggregate import Totals
from transform import Orders
from weir_udf.testing import Input, aggregate, run


class OrdersTest(unittest.TestCase):
    def test_orders_are_masked_and_sized(self):
        rows = run(
            Orders,
            {"large_from": 500},
            [
                Input('{"id":1,"email":"ann@example.com","amount":499,"ts":7,"note":"é <b>"}', attributes={"trace": "t1"}),
                '{"id":2,"email":"😀b@example.com","amount":500}',
                '{"id":3,"deleted":true}',
                None,
            ],
        ).rows
        self.assertEqual(
            rows[0].value.decode(), '{"id":1,"email":"a***@example.com","amount":499,"size":"small","note":"é <b>"}'
        )
        self.assertEqual((rows[0].key, rows[0].event_time, rows[0].route), (b"1", 7, None))
        self.assertEqual(rows[0].attributes, [("trace", b"t1"), ("size", b"small")])
        self.assertEqual((json.loads(rows[1].value)["email"], rows[1].route), ("😀***@example.com", "large"))
        self.assertEqual((rows[2].key, rows[2].value, rows[3].value), (b"3", None, None))

    def test_what_is_no_order_is_rejected(self):
        messages = ["x", "[]", "{}", '{"id":"1"}', '{"id":1,"deleted":1}', '{"id":1}', '{"id":1,"email":"a@b","amount":-1}']
        reasons = [
            "not a JSON object",
            "not a JSON object",
            "id: expected a whole number",
            "id: expected a whole number",
            "deleted: expected true or false",
            "email: expected an address",
            "amount: expected a whole number of cents",
        ]
        self.assertEqual(run(Orders, None, messages).reasons, reasons)

    def test_a_wrong_configuration_is_refused(self):
        for config, reason in [
            ({"large_from": 0}, "config: large_from: expected a whole number of at least 1"),
            ({"lage_from": 1}, "config: lage_from: no such setting"),
        ]:
            with self.assertRaisesRegex(ValueError, reason):
                run(Orders, config, [])


class TotalsTest(unittest.TestCase):
    def test_a_field_is_counted_and_summed_up(self):
        messages = ['{"amount":5}', '{"amount":-7}', '{"amount":"5"}', "x", "{}", '{"amount":40}']
        results = aggregate(Totals, {"field": "amount"}, messages)
        self.assertEqual(results.values, ['{"count":3,"sum":38}'])
        bad = "amount: expected a whole number"
        self.assertEqual(results.reasons, [bad, "not a JSON object", bad])

    def test_the_field_must_be_named(self):
        with self.assertRaisesRegex(ValueError, "config: field: name the field to sum up"):
            aggregate(Totals, None, [])


if __name__ == "__main__":
    unittest.main()
