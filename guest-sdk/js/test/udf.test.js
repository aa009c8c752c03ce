import assert from "node:assert/strict";
import { test } from "node:test";
import { aggregator, get, transformer } from "../src/index.js";
import { aggregate, run } from "../src/testing.js";

/** Does what each message says. */
const commanded = transformer(({ prefix = "" }) => {
  if (prefix === "no") throw new Error("prefix: not this one");
  return {
    routes: ["left", "right"],
    transform(message, out) {
      if (message.value === null) out.forward();
      for (const word of (message.text() ?? "").split(" ")) {
        if (word === "forward") out.forward();
        if (word === "right") out.forward("right");
        if (word === "emit") out.emit(prefix + message.text());
        if (word === "bytes") out.emit(message.value);
        if (word === "tombstone") out.emit(null);
        if (word === "empty") out.emit("");
        if (word === "row") out.emit(message.value, { key: "k", eventTime: -7, attributes: { new: null } });
        if (word === "nowhere") out.forward("nowhere");
        if (word === "wrong") out.emit({});
        if (word === "reject") throw new Error("told to");
        if (word === "bug") message.no.such;
      }
    },
  };
});

test("a forwarded batch goes back as it came", () => {
  const { rows } = run(commanded, null, [{ value: "forward", attributes: { a: "1" } }, { key: "", value: "forward", eventTime: 5 }]);
  assert.deepEqual(rows, [
    { key: null, value: "forward", eventTime: 0, attributes: { a: "1" }, origin: 0 },
    { key: "", value: "forward", eventTime: 5, attributes: {}, origin: 1 },
  ]);
});

test("rows keep what is not changed", () => {
  const message = { key: "key", value: "emit row right é", eventTime: -5e12, attributes: { a: null, b: "ü" } };
  const { rows } = run(commanded, { prefix: "> " }, ["forward", message, "forward"]);
  assert.deepEqual(rows, [
    { key: null, value: "forward", eventTime: 0, attributes: {}, origin: 0 },
    { ...message, value: "> emit row right é", origin: 1 },
    { key: "k", value: message.value, eventTime: -7, attributes: { new: null }, origin: 1 },
    { ...message, origin: 1, route: "right" },
    { key: null, value: "forward", eventTime: 0, attributes: {}, origin: 2 },
  ]);
});

test("attributes are added beside the message's, or replace them", () => {
  const module = transformer(() => ({
    transform(message, out) {
      out.emit("added", { add: { b: "2" } });
      out.emit("replaced", { attributes: [["c", message.attribute("a")]] });
    },
  }));
  const { rows } = run(module, null, ["x", { value: "y", attributes: { a: "1" } }]);
  assert.deepEqual(rows.map(({ attributes }) => attributes), [{ b: "2" }, { c: null }, { a: "1", b: "2" }, { c: "1" }]);
});

test("a tombstone is not an empty value", () => {
  const { values } = run(commanded, null, ["tombstone", "empty", { key: "k" }, "bytes"]);
  assert.deepEqual(values, [null, "", null, "bytes"]);
});

test("a rejected message takes back what it emitted", () => {
  for (const words of ["reject", "forward reject", "emit reject", "row right tombstone forward reject", "forward forward reject", "row nowhere", "forward wrong", "emit bug"]) {
    const messages = ["forward", "tombstone", "forward", { value: words, attributes: { a: "1" } }, "", "forward emit"];
    const { values, rejected, filtered, rows } = run(commanded, null, messages);
    assert.deepEqual(values, ["forward", null, "forward", "forward emit", "forward emit"], words);
    assert.deepEqual(rows[3].attributes, {});
    assert.equal(rejected[0].row, 3);
    assert.match(rejected[0].reason, /told to|`nowhere` was not named|TypeError: /);
    assert.deepEqual(filtered, [4]);
  }
});

test("many rows of all kinds stay in order", () => {
  const words = ["forward", "tombstone", "emit", "empty", "forward emit reject", "", "row", "emit é"];
  const messages = Array.from({ length: 1000 }, (_, i) => words[(i * 7919) % words.length]);
  const { rows } = run(commanded, null, messages);
  let last = -1;
  for (const { origin, value } of rows) {
    const word = messages[origin];
    assert.equal(value, word === "tombstone" ? null : word === "empty" ? "" : word);
    assert.ok(origin > last);
    last = origin;
  }
});

test("what is not UTF-8 or not JSON is rejected when it is asked for", () => {
  const parsing = transformer(() => ({ transform: (message, out) => out.json(message.json()) }));
  const { values, reasons } = run(parsing, null, ['{"a": 1}', Uint8Array.of(255), "{", '"é"']);
  assert.deepEqual(values, ['{"a":1}', '"é"']);
  assert.deepEqual(reasons, ["not UTF-8", "not JSON"]);
});

test("a wrong configuration is refused", () => {
  assert.throws(() => run(commanded, { prefix: "no" }, []), /^Error: prefix: not this one$/);
  const routes = Array.from({ length: 255 }, (_, i) => `r${i}`);
  assert.throws(() => run(transformer(() => ({ routes, transform() {} })), null, []), /at most 254/);
});

const longest = aggregator(() => ({
  empty: () => 0,
  add(longest, message) {
    if (message.value === null) throw new Error("a tombstone has no length");
    return Math.max(longest, message.value.length);
  },
  encode: String,
  decode: (bytes) => Number(new TextDecoder().decode(bytes)),
  merge: Math.max,
  emit(pane, longest, out) {
    if (longest > 100) throw new Error("too long");
    out.json({ longest, end: pane.end, timing: pane.timing });
  },
}));

test("an aggregator sums up and rejects", () => {
  const { rows, rejected } = aggregate(longest, null, ["a", "abc", { key: "k" }, "ab"]);
  const value = '{"longest":3,"end":60000,"timing":"on time"}';
  assert.deepEqual(rows, [{ key: "key", value, eventTime: 59999, attributes: {}, origin: 0 }]);
  assert.deepEqual(rejected, [{ row: 2, reason: "a tombstone has no length" }]);
  assert.deepEqual(aggregate(longest, null, ["x".repeat(101)]).reasons, ["too long"]);
});

test("groups are kept apart, and one without a row leaves nothing", () => {
  longest.configure("null");
  const bytes = new TextEncoder().encode("abbccc");
  const none = { bytes: new Uint8Array(0), ends: new Uint32Array(0), present: new Uint8Array(0) };
  const batch = {
    keys: none, values: { bytes, ends: Uint32Array.of(1, 3, 6, 6), present: Uint8Array.of(7) }, eventTimes: new BigInt64Array(4),
    attributes: { rows: new Uint32Array(0), names: none, values: none }, receivedMs: 0n,
  };
  const { fragments, rejected } = longest.accumulate(batch, { rows: Uint32Array.of(2, 3, 0, 1), ends: Uint32Array.of(1, 2, 4) });
  assert.deepEqual([0, 1, 2].map((row) => get(fragments, row)?.toString()), ["51", undefined, "50"]);
  assert.deepEqual([...rejected.rows], [3]);
  assert.throws(() => longest.migrate(7, none), /version 7/);
});

test("a merge that is not associative is told", () => {
  const last = aggregator(() => ({
    empty: () => 0, add: (n) => n + 1, encode: String, decode: (bytes) => Number(new TextDecoder().decode(bytes)),
    merge: (a, b) => a - b, emit: (_, n, out) => out.emit(String(n)),
  }));
  assert.throws(() => aggregate(last, null, ["a", "b", "c"]), /merged all at once: /);
});
