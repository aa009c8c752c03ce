import assert from "node:assert/strict";
import { test } from "node:test";
import { run } from "weir-udf/testing";
import * as orders from "./transform.js";

test("orders are masked and sized", () => {
  const { rows } = run(orders, { large_from: 500 }, [
    { value: '{"id":1,"email":"ann@example.com","amount":499,"ts":7,"note":"é <b>"}', attributes: { trace: "t1" } },
    '{"id":2,"email":"😀b@example.com","amount":500}',
    '{"id":3,"deleted":true}',
    { key: "gone" },
  ]);
  assert.equal(rows[0].value, '{"id":1,"email":"a***@example.com","amount":499,"size":"small","note":"é <b>"}');
  assert.deepEqual([rows[0].key, rows[0].eventTime, rows[0].attributes, rows[0].route], ["1", 7, { trace: "t1", size: "small" }, undefined]);
  assert.deepEqual([JSON.parse(rows[1].value).email, rows[1].route], ["😀***@example.com", "large"]);
  assert.deepEqual([rows[2].key, rows[2].value, rows[3].key, rows[3].value], ["3", null, "gone", null]);
});

test("what is no order is rejected", () => {
  const messages = ["x", "[]", "{}", '{"id":"1"}', '{"id":1,"deleted":1}', '{"id":1}', '{"id":1,"email":"a@b","amount":-1}'];
  assert.deepEqual(run(orders, null, messages).reasons, [
    "not a JSON object",
    "not a JSON object",
    "id: expected a whole number",
    "id: expected a whole number",
    "deleted: expected true or false",
    "email: expected an address",
    "amount: expected a whole number of cents",
  ]);
});

test("a wrong configuration is refused", () => {
  assert.throws(() => run(orders, { large_from: 0 }, []), /^Error: config: large_from: expected a whole number of at least 1$/);
  assert.throws(() => run(orders, { lage_from: 1 }, []), /config: lage_from: no such setting/);
});
