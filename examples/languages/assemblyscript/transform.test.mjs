import assert from "node:assert/strict";
import test from "node:test";

import { load } from "../../../guest-sdk/assemblyscript/testing.mjs";

const module = process.argv[2];

test("orders are masked and sized", async () => {
  const guest = await load(module, { large_from: 500 });
  const { rows } = guest.transform([
    { value: '{"id":1,"email":"ann@example.com","amount":499,"ts":7,"note":"é <b>"}', attributes: { trace: "t1" } },
    { value: '{"id":2,"email":"bob@example.com","amount":500}', eventTimeMs: 5 },
    { value: '{"id":3,"deleted":true}' },
    { key: "4" },
  ]);
  assert.equal(rows[0].value, '{"id":1,"email":"a***@example.com","amount":499,"size":"small","note":"é <b>"}');
  assert.deepEqual(rows[0].attributes, { size: "small", trace: "t1" });
  assert.deepEqual([rows[0].key, rows[0].eventTimeMs, rows[0].route], ["1", 7, null]);
  assert.deepEqual([rows[1].route, rows[1].eventTimeMs], ["large", 5]);
  assert.deepEqual([rows[2].key, rows[2].value], ["3", null]);
  assert.deepEqual([rows[3].key, rows[3].value, rows[3].origin], ["4", null, 3]);
});

test("what is no order is rejected", async () => {
  const guest = await load(module);
  const values = ["x", "[]", "{}", '{"id":"1"}', '{"id":1}', '{"id":1,"email":"a@b","amount":-1}', '{"id":1} x'];
  const { rows, rejected } = guest.transform(values.map((value) => ({ value })));
  assert.equal(rows.length, 0);
  assert.deepEqual(rejected.map(({ reason }) => reason), [
    "not a JSON object", "not a JSON object", "id: expected a whole number", "id: expected a whole number",
    "email: expected an address", "amount: expected a whole number of cents", "not a JSON object",
  ]);
});

test("a wrong limit is refused", async () => {
  await assert.rejects(load(module, { large_from: 0 }), /config: large_from: expected a whole number of at least 1/);
});
