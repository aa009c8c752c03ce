import assert from "node:assert/strict";
import test from "node:test";

import { load } from "../../../guest-sdk/assemblyscript/testing.mjs";

const module = process.argv[2];

test("messages are counted and summed up", async () => {
  const guest = await load(module, { field: "amount" });
  const values = ['{"amount":5}', '{"amount":"x"}', '{"amount":-7}', '{"amount":1}', null];
  const { rows, rejected, failed } = guest.aggregate(values.map((value) => ({ value, key: "k" })));
  assert.deepEqual(rows.map(({ key, value, eventTimeMs }) => [key, value, eventTimeMs]), [["k", '{"count":3,"sum":-1}', 59_999]]);
  assert.deepEqual(rejected, [
    { message: 1, reason: "amount: expected a whole number" },
    { message: 4, reason: "not a JSON object" },
  ]);
  assert.deepEqual(failed, []);
});

test("a field must be named", async () => {
  await assert.rejects(load(module), /config: field: name the field to sum up/);
});
