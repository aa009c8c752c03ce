"""The SDK by itself: `python -m unittest` in this folder's parent."""

import unittest
from types import SimpleNamespace

from weir_udf import Batch, Column, Output, aggregator, batch_transformer, transformer
from weir_udf.columns import ABSENT, rows_of
from weir_udf.testing import Input, aggregate, run


@transformer(routes=["left", "right"])
class Commanded:
    """Does what each message says."""

    def __init__(self, config):
        self.prefix = config.get("prefix", "")
        if self.prefix == "no":
            raise ValueError("prefix: not this one")

    def transform(self, message, out):
        if message.value is None:
            out.forward()
        for word in (message.text() or "").split():
            match word:
                case "forward":
                    out.forward()
                case "right":
                    out.forward("right")
                case "emit":
                    out.emit(self.prefix + message.text())
                case "tombstone":
                    out.emit(None)
                case "empty":
                    out.emit(b"")
                case "row":
                    out.emit(message.value, key="k", event_time=-7, attributes={"new": None})
                case "nowhere":
                    out.emit(b"", key="k", event_time=1, attributes={}, route="nowhere")
                case "wrong":
                    out.emit(b"", key="k", event_time=1, attributes={"a": 1})
                case "reject":
                    raise ValueError("told to")


class TransformerTest(unittest.TestCase):
    def test_a_forwarded_batch_goes_back_as_it_came(self):
        rows = run(Commanded, None, [Input("forward", attributes={"a": "1"}), Input("forward", key="", event_time=5)]).rows
        self.assertEqual([row.key for row in rows], [None, b""])
        self.assertEqual([row.event_time for row in rows], [0, 5])
        self.assertEqual(rows[0].attributes, [("a", b"1")])

    def test_rows_keep_what_is_not_changed(self):
        message = Input("emit row right é", "key", -(2**40), {"a": None, "b": "ü"})
        rows = run(Commanded, {"prefix": "> "}, ["forward", message, "forward"]).rows
        self.assertEqual([row.value.decode() for row in rows], ["forward", "> emit row right é", message.value, message.value, "forward"])
        self.assertEqual([row.key for row in rows], [None, b"key", b"k", b"key", None])
        self.assertEqual([row.event_time for row in rows], [0, -(2**40), -7, -(2**40), 0])
        old = [("a", None), ("b", "ü".encode())]
        self.assertEqual([row.attributes for row in rows], [[], old, [("new", None)], old, []])
        self.assertEqual([row.route for row in rows], [None, None, None, "right", None])
        self.assertEqual([row.origin for row in rows], [0, 1, 1, 1, 2])

    def test_a_tombstone_is_not_an_empty_value(self):
        values = run(Commanded, None, ["tombstone", "empty", Input(key="k"), "emit"]).values
        self.assertEqual(values, [None, "", None, "emit"])

    def test_a_rejected_message_takes_back_what_it_emitted(self):
        for words in ["reject", "forward reject", "emit reject", "row right tombstone forward reject", "row nowhere", "right wrong"]:
            messages = ["forward", "tombstone", "forward", Input(words, attributes={"a": "1"}), "", "forward emit"]
            results = run(Commanded, None, messages)
            self.assertEqual(results.values, ["forward", None, "forward", "forward emit", "forward emit"], words)
            self.assertEqual([row.attributes for row in results.rows], [[]] * 5, words)
            self.assertEqual([(row.key, row.event_time, row.route) for row in results.rows], [(None, 0, None)] * 5, words)
            self.assertEqual(results.filtered, [4])
            [(row, reason)] = results.rejected
            self.assertEqual(row, 3)
            self.assertRegex(reason, "told to|`nowhere` was not named|TypeError: expected bytes")

    def test_many_rows_of_all_kinds_stay_in_order(self):
        words = ["forward", "tombstone", "emit", "empty", "forward emit reject", "", "row", "emit é"]
        messages = [words[i * 7919 % len(words)] for i in range(1000)]
        rows, last = run(Commanded, None, messages).rows, -1
        for row in rows:
            word = messages[row.origin]
            expected = {"tombstone": None, "empty": b""}.get(word, word.encode())
            self.assertEqual(row.value, expected)
            self.assertGreater(row.origin, last)
            last = row.origin

    def test_a_wrong_configuration_is_refused(self):
        for config, reason in [({"prefix": "no"}, "prefix: not this one"), ([], "AttributeError")]:
            with self.assertRaisesRegex(ValueError, reason):
                run(Commanded, config, [])

    def test_a_function_is_enough_and_takes_no_configuration(self):
        @transformer
        def shout(message, out):
            out.emit(message.value.upper())

        results = run(shout, None, ["a", None])
        self.assertEqual((results.values, results.reasons), (["A"], ["AttributeError: 'NoneType' object has no attribute 'upper'"]))
        with self.assertRaisesRegex(ValueError, "config: x: no such setting"):
            run(shout, {"x": 1}, [])

    def test_whole_batches_need_no_loop(self):
        @batch_transformer
        def upper(batch):
            values = Column(batch.values.bytes.upper(), batch.values.ends, batch.values.present)
            return Output(Batch(batch.keys, values, batch.event_times, batch.attributes))

        self.assertEqual(run(upper, None, ["a", None, "b"]).values, ["A", None, "B"])


@aggregator
class Longest:
    def empty(self):
        return 0

    def add(self, longest, message):
        if message.value is None:
            raise ValueError("a tombstone has no length")
        return max(longest, len(message.value))

    def merge(self, longest, other):
        return max(longest, other)

    def emit(self, pane, longest, out):
        if longest > 100:
            raise ValueError("too long")
        out.json({"longest": longest, "end": pane.end, "timing": pane.timing})


class AggregatorTest(unittest.TestCase):
    def test_an_aggregator_sums_up_and_rejects(self):
        results = aggregate(Longest, None, ["a", "abc", None, "ab"])
        self.assertEqual(results.values, ['{"longest":3,"end":60000,"timing":"on time"}'])
        self.assertEqual((results.rows[0].key, results.rows[0].event_time), (b"key", 59_999))
        self.assertEqual(results.rejected, [(2, "a tombstone has no length")])
        self.assertEqual(aggregate(Longest, None, ["x" * 101]).reasons, ["too long"])
        self.assertEqual(aggregate(Longest, None, [None]).rows, [])

    def test_groups_are_kept_apart_and_one_without_a_row_leaves_nothing(self):
        weir = Longest.weir
        weir.configure("null")
        batch = Batch(ABSENT, Column(b"abbccc", [1, 3, 6, 6], b"\7"), [0] * 4)
        made = weir.accumulate(batch, SimpleNamespace(rows=[2, 3, 0, 1], ends=[1, 2, 4]))
        self.assertEqual(rows_of(made.fragments, 3), [b"3", None, b"2"])
        self.assertEqual(made.rejected.rows, [3])
        with self.assertRaisesRegex(ValueError, "version 7"):
            weir.migrate(7, ABSENT)

    def test_a_merge_that_is_not_associative_is_told(self):
        @aggregator
        class Difference(Longest):
            def add(self, number, message):
                return number + 1

            def merge(self, number, other):
                return number - other

        with self.assertRaisesRegex(AssertionError, "merged all at once"):
            aggregate(Difference, None, ["a", "b", "c"])


if __name__ == "__main__":
    unittest.main()
